//! The server is killed by SIGKILL at its n-th call, before that takes effect and after it: whoever is started then ends
//! each operation, and begins none again.
//!
//! `MANCIPLE_CALLS=1` has it die at each call of an instance's life; otherwise it is every sixth. With `MANCIPLE_OLDER` one
//! of this build follows one of that, and the other way round.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::number;
use testkit::plane::ControlPlane;
use testkit::proxy::Plan;
use tokio::runtime::Runtime;

use super::support::builds::successions;
use super::support::deaths::at_calls;
use super::support::{http, order, within};
use super::{Town, plane, runtime};

/// An instance's life, by a platform that repeats each request until somebody answers as it wants.
fn lives(address: &Mutex<String>) {
    const IDS: &str = "service_id=s&plan_id=p&accepts_incomplete=true";
    let asks = |method: &str, path: &str, body: Option<&Value>, wanted: &[u16]| {
        let answers = || {
            let address = address.lock().unwrap().clone();
            let answer = http::send(&address, method, path, body)?;
            wanted.contains(&answer.status).then_some(answer.body)
        };
        within(90, answers).unwrap_or_else(|| panic!("{method} {path}"))
    };
    let path = order::path("i");
    let bound = format!("{path}/service_bindings/b");
    let of_binding = json!({"service_id": "s", "plan_id": "p"});
    for (of, body) in [(&path, order::body("p")), (&bound, of_binding)] {
        let ordered = format!("{of}?accepts_incomplete=true");
        asks("PUT", &ordered, Some(&body), &[200, 201, 202]);
        let ended = || {
            let last = asks("GET", &format!("{of}/last_operation"), None, &[200]);
            (last["state"] != "in progress").then_some(last)
        };
        let last = within(90, ended).expect("an end");
        assert_eq!(last["state"], "succeeded", "{of}: {last}");
    }
    for of in [&bound, &path] {
        asks("DELETE", &format!("{of}?{IDS}"), None, &[410]);
    }
}

/// A life in which the first server is killed there, or never; how many calls it made, and whether it was killed.
fn live(
    (plane, runtime): (&ControlPlane, &Arc<Runtime>),
    [first, second]: &[PathBuf; 2],
    name: &str,
    death: Option<(u64, bool)>,
) -> (u64, bool) {
    let when = match death {
        None => format!("{name}-never"),
        Some((call, effect)) => {
            format!("{name}-{call}-{}", if effect { "after" } else { "before" })
        }
    };
    let town = Town::new(plane, runtime, &format!("killed-{when}"), Duration::from_millis(50));
    let (call, effect) = death.unzip();
    let address = Mutex::new("127.0.0.1:1".to_owned());
    let counted = std::thread::scope(|scope| {
        let life = scope.spawn(|| lives(&address));
        let plan = Plan { death: call, effect, ..Plan::calm() };
        let first = town.mortal_of(first, plan, 0);
        let mut counted = (call.unwrap_or_default(), true);
        if let Some((mut server, proxy)) = first {
            address.lock().unwrap().clone_from(&server.address);
            let is_dead = || {
                runtime.block_on(async {
                    tokio::time::timeout(Duration::from_millis(20), proxy.died()).await.is_ok()
                })
            };
            let died = loop {
                if is_dead() || life.is_finished() {
                    break !life.is_finished();
                }
            };
            server.kill();
            counted = (proxy.calls(), died);
        }
        town.free_lease();
        let second = town.mortal_of(second, Plan::calm(), 0);
        let (second, _proxy) = second.expect("a server");
        address.lock().unwrap().clone_from(&second.address);
        assert!(life.join().is_ok(), "{when}:\n{}", second.log());
        // The name of a Job stays taken for a minute, and until somebody looks, every half a minute: one life is to wait
        // for that, or each where each call is died at.
        let waits = death.is_none() || number("MANCIPLE_CALLS").is_some();
        let left = || if waits { town.left() } else { town.kept() };
        let clean = within(120, || left().is_empty().then_some(()));
        assert!(clean.is_some(), "{when}: left behind: {:?}\n{}", left(), second.log());
        counted
    });
    town.has_one_job_each();
    let ledger = town.kubelet.ledger();
    for action in ["provision", "bind", "unbind", "deprovision"] {
        let runs: Vec<_> =
            ledger.iter().filter(|(run, _)| run.starts_with(&format!("{action}-"))).collect();
        assert!(runs.len() == 1 && runs[0].1.begun.len() == 1, "{when}: {action}: {runs:?}");
        assert!(runs[0].0.ends_with("-1"), "{when}: by its first attempt: {runs:?}");
    }
    counted
}

#[test]
fn a_server_that_is_killed_at_any_call_is_followed_by_one_that_ends_each_operation_and_begins_none_again()
 {
    let (plane, runtime) = (plane(), runtime());
    for (place, builds) in successions().iter().enumerate() {
        println!("{builds:?}");
        let live = |death| live((&plane, &runtime), builds, &place.to_string(), death);
        let (calls, _) = live(None);
        at_calls(calls, 50, |point| live(Some(point)).1);
    }
}
