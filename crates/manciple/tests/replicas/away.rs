//! Two replicas and no answers, for longer than a Lease, a call and a run may last: nothing is told that is not so, and
//! afterwards either ends what goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use osb::Action;
use serde_json::{Value, json};
use testkit::kubelet::{Act, Script};
use testkit::number;
use testkit::plane::ControlPlane;

use super::support::{Served, http, order, within};
use super::{Town, plane, runtime};

/// What an outage is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outage {
    /// The API server is killed, and begun anew.
    Killed,
    /// Its etcd stands still: who asks waits, and what was asked for may be done when it goes on.
    Still,
}

impl Outage {
    fn begin(self, plane: &mut ControlPlane) {
        match self {
            Self::Killed => plane.kill_api_server().unwrap(),
            Self::Still => plane.pause_etcd().unwrap(),
        }
    }

    fn end(self, plane: &mut ControlPlane) {
        match self {
            Self::Killed => plane.start_api_server().unwrap(),
            Self::Still => {
                plane.resume_etcd().unwrap();
                plane.until_ready().unwrap();
            }
        }
    }
}

#[test]
fn an_api_server_that_is_away_for_longer_than_a_lease_costs_neither_of_two_replicas_anything() {
    costs_nothing("away", Outage::Killed);
}

#[test]
fn an_etcd_that_stands_still_for_longer_than_a_lease_costs_neither_of_two_replicas_anything() {
    costs_nothing("still", Outage::Still);
}

/// What a platform may hear of one that a replica has accepted, and of a new one, while there are no answers: each question
/// that has to be asked elsewhere takes its time.
fn asks(replica: &Served, id: &str, token: &str) {
    let path = format!("{}/last_operation", order::path(id));
    let known = http::get(&replica.address, &format!("{path}?operation={token}"));
    let known = known.expect("an answer");
    let goes_on = (200, &json!("in progress"));
    assert_eq!((known.status, &known.body["state"]), goes_on, "it is known: {known:?}");
    let last = http::get(&replica.address, &path).expect("an answer");
    let is_true = last.status == 503 || (last.status, &last.body["state"]) == goes_on;
    assert!(is_true, "nobody knows of an end: {last:?}");
    let path = format!("{}?accepts_incomplete=true", order::path("late"));
    let late = http::send(&replica.address, "PUT", &path, Some(&order::body("p")));
    assert!(late.as_ref().is_none_or(|it| it.status == 503), "who knows that it is kept? {late:?}");
}

/// `MANCIPLE_OUTAGE=60` has it last for so many seconds.
fn costs_nothing(name: &str, outage: Outage) {
    let (mut plane, runtime) = (plane(), runtime());
    // Those that are ordered before go on when it goes, though they do not begin at once.
    let script: Script = Arc::new(|order| {
        let of = order.work.get("instance_id").and_then(Value::as_str).unwrap_or_default();
        let is_long = order.action == Some(Action::Provision) && of.starts_with('i');
        let lasts = Duration::from_secs(if is_long { 12 } else { 1 });
        Act::well(Duration::from_millis(20), lasts)
    });
    let mut town = Town::of(&plane, &runtime, name, script);
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    settings["operations"]["timeout"] = json!("30s");
    town.site.settings = settings.to_string();
    let kubeconfig = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    let replicas = [(); 2].map(|()| Served::start(&mut town.command(&kubeconfig)).unwrap());
    replicas.iter().for_each(order::ready);
    let ids = ["i0", "i1", "i2", "i3"];
    let mut tokens = Vec::new();
    for (id, replica) in ids.iter().zip(replicas.iter().cycle()) {
        let accepted = order::provision(replica, id, &order::body("p"));
        assert_eq!(accepted.status, 202, "{accepted:?}");
        tokens.push(accepted.body["operation"].as_str().unwrap().to_owned());
    }
    let begun = || {
        let ledger = town.kubelet.ledger();
        let begun = |run: &str| run.starts_with("provision-") && !ledger[run].begun.is_empty();
        (ledger.keys().filter(|run| begun(run)).count() == ids.len()).then_some(())
    };
    assert!(within(60, begun).is_some(), "{:?}", town.kubelet.ledger());

    outage.begin(&mut plane);
    let lasts = Duration::from_secs(number("MANCIPLE_OUTAGE").unwrap_or(40));
    let gone = Instant::now();
    std::thread::scope(|scope| {
        for ((id, token), replica) in ids.iter().zip(&tokens).zip(&replicas) {
            scope.spawn(move || {
                while gone.elapsed() < lasts {
                    asks(replica, id, token);
                    std::thread::sleep(Duration::from_secs(2));
                }
            });
        }
    });
    outage.end(&mut plane);

    for ((id, token), replica) in ids.iter().zip(&tokens).zip(replicas.iter().rev().cycle()) {
        let path = format!("{}/last_operation?operation={token}", order::path(id));
        let ended = || {
            let last = http::get(&replica.address, &path)?;
            (last.status == 200 && last.body["state"] != "in progress").then_some(last.body)
        };
        let last = within(90, ended).unwrap_or_else(|| panic!("{id}:\n{}", replica.log()));
        assert_eq!(last["state"], "succeeded", "{id}: {last}\n{}", replica.log());
    }
    let made = order::provisioned(&replicas[0], "after", &order::body("p"));
    assert_eq!(made["state"], "succeeded", "{made}");
    if outage == Outage::Killed {
        let nobody = http::get(&replicas[1].address, &order::path("late")).expect("an answer");
        assert_eq!(nobody.status, 404, "{nobody:?}");
    }
    // As a platform does that was told 503.
    for id in ids.iter().chain(&["after", "late"]) {
        let asked = "service_id=s&plan_id=p&accepts_incomplete=true";
        let path = format!("{}?{asked}", order::path(id));
        let gone = || {
            let answer = http::send(&replicas[1].address, "DELETE", &path, None)?;
            (answer.status == 410).then_some(())
        };
        assert!(within(120, gone).is_some(), "{id} stays:\n{}", replicas[1].log());
    }
    for (run, entry) in &town.kubelet.ledger() {
        assert_eq!(entry.begun.len(), 1, "{run}: {entry:?}");
    }
    // The name of a Job stays taken for a minute, and until somebody looks, every half a minute.
    let clean = within(120, || town.left().is_empty().then_some(()));
    assert!(clean.is_some(), "left behind: {:?}\n{}", town.left(), replicas[0].log());
}
