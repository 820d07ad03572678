//! A platform that asks at random, and knows what was acknowledged to it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::random::Random;

use super::{Served, http};

/// What a platform knows: what was acknowledged to it.
#[derive(Default)]
pub(crate) struct Platform {
    /// Operations of instances: the instance and the token of each 202.
    accepted: Vec<(String, String)>,
    /// Credentials that a 201 or a GET carried.
    credentials: BTreeMap<(String, String), Value>,
    instances: u32,
}

const IDS: &str = "service_id=s&plan_id=p";

impl Platform {
    /// Asks for something; hears an answer or does not.
    pub(crate) fn act(&mut self, server: &Served, random: &mut Random) {
        let instance = format!("i{}", random.below(3));
        let path = format!("/v2/service_instances/{instance}");
        let binding = format!("b{}", random.below(2));
        let bound = format!("{path}/service_bindings/{binding}");
        let address = &server.address;
        match random.below(5) {
            0 | 1 => {
                let body = json!({ "service_id": "s", "plan_id": "p",
                    "organization_guid": "o", "space_guid": "s" });
                let path = format!("{path}?accepts_incomplete=true");
                let answer = http::send(address, "PUT", &path, Some(&body));
                self.instances += 1;
                self.heard(&instance, answer);
            }
            2 => {
                let path = format!("{path}?accepts_incomplete=true&{IDS}");
                let answer = http::send(address, "DELETE", &path, None);
                self.heard(&instance, answer);
            }
            3 => {
                let body = json!({ "service_id": "s", "plan_id": "p" });
                let answer = http::send(address, "PUT", &bound, Some(&body));
                if let Some(answer) = answer.filter(|answer| matches!(answer.status, 200 | 201)) {
                    let password = answer.body["credentials"]["password"].clone();
                    self.credentials.insert((instance, binding), password);
                }
            }
            _ => {
                let path = format!("{bound}?accepts_incomplete=true&{IDS}");
                http::send(address, "DELETE", &path, None);
                self.credentials.remove(&(instance, binding));
            }
        }
        std::thread::sleep(Duration::from_millis(random.below(40)));
    }

    fn heard(&mut self, instance: &str, answer: Option<http::Answer>) {
        let Some(answer) = answer else { return };
        assert!(answer.status < 500 || answer.status == 503, "{answer:?}");
        if let Some(operation) = answer.body["operation"].as_str() {
            self.accepted.push((instance.to_owned(), operation.to_owned()));
        }
    }

    /// Waits until nothing is in progress.
    pub(crate) fn settle(&self, server: &Served, seed: u64) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let busy: usize = ["instances", "bindings"]
                .iter()
                .filter_map(|kind| {
                    let path = format!("/admin/v1/{kind}?state=busy");
                    http::get(&server.address, &path)?.body["items"].as_array().map(Vec::len)
                })
                .sum();
            if busy == 0 {
                return;
            }
            assert!(Instant::now() < until, "seed {seed}: stuck\n{}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Every operation that was acknowledged has ended, and every credential that was handed out is there.
    pub(crate) fn check(&self, server: &Served, seed: u64) {
        for (instance, operation) in &self.accepted {
            let path =
                format!("/v2/service_instances/{instance}/last_operation?operation={operation}");
            let answer = http::get(&server.address, &path).unwrap();
            assert_eq!(answer.status, 200, "seed {seed}: {operation} is forgotten: {answer:?}");
            let state = answer.body["state"].as_str().unwrap();
            assert!(matches!(state, "succeeded" | "failed"), "seed {seed}: {answer:?}");
        }
        for ((instance, binding), password) in &self.credentials {
            let path = format!("/v2/service_instances/{instance}/service_bindings/{binding}");
            let answer = http::get(&server.address, &path).unwrap();
            assert_eq!(answer.status, 200, "seed {seed}: {binding} of {instance} is lost");
            assert_eq!(&answer.body["credentials"]["password"], password, "seed {seed}");
        }
    }
}
