//! A platform that asks at random, and knows what was acknowledged to it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::random::Random;

use super::{Served, http, order, within};

/// What a platform knows: what was acknowledged to it.
#[derive(Default)]
pub(crate) struct Platform {
    /// Operations: what they are of, and the token of each 202.
    accepted: Vec<(String, String)>,
    /// Credentials that a 201 or a GET carried.
    credentials: BTreeMap<(String, String), Value>,
}

const IDS: &str = "service_id=s&plan_id=p";

/// Why an operation fails whose broker did not.
const GIVES_WAY: [&str; 4] =
    ["halted by a later", "is being deprovisioned", "is being made or removed", "has bindings"];

impl Platform {
    /// Asks for something; hears an answer or does not.
    pub(crate) fn act(&mut self, server: &Served, random: &mut Random) {
        let instance = format!("i{}", random.below(3));
        let path = format!("/v2/service_instances/{instance}");
        let binding = format!("b{}", random.below(3));
        let bound = format!("{path}/service_bindings/{binding}");
        let address = &server.address;
        let plan = if random.below(4) == 0 { "q" } else { "p" };
        let asynchronous = |path: &str| format!("{path}?accepts_incomplete=true");
        match random.below(7) {
            0 | 1 => {
                let body = json!({ "service_id": "s", "plan_id": plan,
                    "organization_guid": "o", "space_guid": "s" });
                let answer = http::send(address, "PUT", &asynchronous(&path), Some(&body));
                self.heard(&path, answer);
            }
            2 => {
                let asked = format!("{}&{IDS}", asynchronous(&path));
                let answer = http::send(address, "DELETE", &asked, None);
                self.heard(&path, answer);
            }
            3 => {
                let body = json!({ "service_id": "s", "plan_id": plan });
                let answer = http::send(address, "PATCH", &asynchronous(&path), Some(&body));
                self.heard(&path, answer);
            }
            turn @ (4 | 5) => {
                let mut body = json!({ "service_id": "s", "plan_id": "p" });
                if turn == 5 {
                    body["predecessor_binding_id"] = format!("b{}", random.below(3)).into();
                }
                let answer = http::send(address, "PUT", &bound, Some(&body));
                self.heard(&bound, answer.clone());
                if let Some(answer) = answer.filter(|answer| matches!(answer.status, 200 | 201)) {
                    let password = answer.body["credentials"]["password"].clone();
                    assert!(password.is_string(), "{answer:?}");
                    self.credentials.insert((instance, binding), password);
                }
            }
            _ => {
                let asked = format!("{}&{IDS}", asynchronous(&bound));
                let answer = http::send(address, "DELETE", &asked, None);
                self.heard(&bound, answer);
                self.credentials.remove(&(instance, binding));
            }
        }
        std::thread::sleep(Duration::from_millis(random.below(40)));
    }

    /// Orders what takes its time, and deletes it while it is made.
    pub(crate) fn think_better(&mut self, server: &Served) {
        let path = "/v2/service_instances/hasty";
        let body = json!({ "service_id": "s", "plan_id": "q",
            "organization_guid": "o", "space_guid": "s" });
        let asked = format!("{path}?accepts_incomplete=true");
        self.heard(path, http::send(&server.address, "PUT", &asked, Some(&body)));
        std::thread::sleep(Duration::from_millis(60));
        let asked = format!("{asked}&{IDS}");
        self.heard(path, http::send(&server.address, "DELETE", &asked, None));
        std::thread::sleep(Duration::from_millis(60));
    }

    /// Orders of a server that nothing happens to what at random may have been refused or removed each time: an instance
    /// that is bound, updated, and bound anew in place of the first binding.
    pub(crate) fn order_surely(&mut self, server: &Served, seed: u64) {
        let instance = "i3";
        let of_plan = |plan: &str| json!({ "service_id": "s", "plan_id": plan });
        let mut successor = of_plan("q");
        successor["predecessor_binding_id"] = "b0".into();
        let orders = [
            ("PUT", None, order::body("p")),
            ("PUT", Some("b0"), of_plan("p")),
            ("PATCH", None, of_plan("q")),
            ("PUT", Some("b1"), successor),
        ];
        for (method, binding, body) in orders {
            let path = match binding {
                Some(binding) => format!("{}/service_bindings/{binding}", order::path(instance)),
                None => order::path(instance),
            };
            let asked = format!("{path}?accepts_incomplete=true");
            let accepted = || {
                let answer = http::send(&server.address, method, &asked, Some(&body))?;
                (answer.status == 202).then_some(answer)
            };
            let answer = within(30, accepted);
            let answer = answer.unwrap_or_else(|| panic!("seed {seed}: {method} {path}: no 202"));
            if let Some(binding) = binding {
                let operation = answer.body["operation"].as_str().unwrap();
                let password = format!("secret-of-{operation}").into();
                self.credentials.insert((instance.to_owned(), binding.to_owned()), password);
            }
            self.heard(&path, Some(answer));
            self.settle(server, seed);
        }
    }

    fn heard(&mut self, path: &str, answer: Option<http::Answer>) {
        let Some(answer) = answer else { return };
        assert!(answer.status < 500 || answer.status == 503, "{answer:?}");
        if let Some(operation) = answer.body["operation"].as_str() {
            self.accepted.push((path.to_owned(), operation.to_owned()));
        }
    }

    /// Whether anything is in progress, or anything that was acknowledged: lists may be behind that.
    pub(crate) fn goes_on(&self, server: &Served) -> bool {
        let is_quiet = |kind: &str| {
            let answer = http::get(&server.address, &format!("/admin/v1/{kind}?state=busy"));
            answer.is_some_and(|it| it.body["items"].as_array().is_some_and(Vec::is_empty))
        };
        let goes_on = |(path, operation): &(String, String)| {
            let path = format!("{path}/last_operation?operation={operation}");
            http::get(&server.address, &path)
                .is_none_or(|answer| answer.body["state"] == "in progress")
        };
        !["instances", "bindings"].into_iter().all(is_quiet) || self.accepted.iter().any(goes_on)
    }

    /// Waits until nothing is.
    pub(crate) fn settle(&self, server: &Served, seed: u64) {
        let until = Instant::now() + Duration::from_secs(180);
        while self.goes_on(server) {
            assert!(Instant::now() < until, "seed {seed}: stuck\n{}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Every operation that was acknowledged has ended, what is told as made was `begun` by the broker, and
    /// every credential that was handed out is there; how many these are.
    pub(crate) fn check(&self, server: &Served, begun: impl Fn(&str) -> bool, seed: u64) -> usize {
        for (path, operation) in &self.accepted {
            let asked = format!("{path}/last_operation?operation={operation}");
            let answer = http::get(&server.address, &asked).unwrap();
            assert_eq!(answer.status, 200, "seed {seed}: {operation} is forgotten: {answer:?}");
            let state = answer.body["state"].as_str().unwrap();
            let said = answer.body["description"].as_str().unwrap_or_default();
            // No broker of these fails, and no run is lost: what failed gave way to what came later.
            let gave_way = || GIVES_WAY.iter().any(|words| said.contains(words));
            assert!(
                state == "succeeded" || (state == "failed" && gave_way()),
                "seed {seed}: {operation}: {answer:?}"
            );
            // What was never made is removed without the broker.
            let makes = ["provision", "update"].iter().any(|word| operation.starts_with(word));
            assert!(
                state == "failed" || !makes || begun(operation),
                "seed {seed}: {operation} succeeded, and nobody did it"
            );
        }
        for ((instance, binding), password) in &self.credentials {
            let path = format!("/v2/service_instances/{instance}/service_bindings/{binding}");
            let answer = http::get(&server.address, &path).unwrap();
            assert_eq!(answer.status, 200, "seed {seed}: {binding} of {instance} is lost");
            assert_eq!(&answer.body["credentials"]["password"], password, "seed {seed}");
        }
        self.credentials.len()
    }
}
