//! What large instances are kept from, and when all that is waited for is there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use template::ready::Readiness;

use super::server::{Server, controller};
use super::{of, seen};
use crate::templates::MUCH;
use crate::templates::await_ready::judged;
use crate::templates::status::{Made, Stand, State};

#[tokio::test]
async fn what_is_large_waits_for_its_turn_in_nobodys_place() {
    let controller = controller(&server());
    let held = controller.turn(MUCH).unwrap();
    assert!(held.is_some());
    assert!(controller.turn(MUCH).is_err(), "another has it");
    assert!(controller.turn(MUCH - 1).unwrap().is_none(), "what is small needs none");
    drop(held);
    assert!(controller.turn(MUCH).is_ok());
}

#[tokio::test]
async fn one_that_waits_goes_on_where_there_is_no_room_for_what_it_waits_for() {
    let server = server();
    server.lock().unwrap().refuses = |_, body| body.to_string().contains("PLANTED").then_some(413);
    let controller = controller(&server);
    controller.table().learn(seen("1", &json!({})));
    let instance = controller.known(&of()).unwrap();
    let made = made("a", State::Waiting, "PLANTED");
    controller.say_waiting(&instance, vec![made]).await.unwrap();
    let status = server.lock().unwrap().instance["status"].clone();
    assert_eq!(status["conditions"][0]["reason"], "Waiting", "{status}");
    assert_eq!(status["objects"][0].get("message"), None, "{status}");
}

#[test]
fn an_instance_is_ready_when_all_is_that_is_waited_for_and_fails_with_the_first() {
    let ready = || Some(Readiness::Ready);
    let waits = |why: &str| Some(Readiness::Waiting(why.to_owned()));
    let fails = |why: &str| Some(Readiness::Failed(why.to_owned()));
    let (waiting, created) = (State::Waiting, State::Created);
    // What is seen of `a` and `b`, of which the latter may not be waited for.
    for (name, a, b, of_b, stand, expected) in [
        (
            "both are",
            ready(),
            ready(),
            waiting,
            Some(Stand::Ready),
            [(State::Ready, ""), (State::Ready, "")],
        ),
        (
            "one waits",
            ready(),
            waits("SECRET"),
            waiting,
            None,
            [(State::Ready, ""), (waiting, "***")],
        ),
        (
            "nothing was seen of one",
            ready(),
            None,
            waiting,
            None,
            [(State::Ready, ""), (waiting, "before")],
        ),
        (
            "nobody waits for the other",
            ready(),
            fails("no"),
            created,
            Some(Stand::Ready),
            [(State::Ready, ""), (created, "before")],
        ),
        (
            "one fails while the other waits",
            waits("for a node"),
            fails("SECRET"),
            waiting,
            Some(Stand::Failed { why: "Pod b: ***".to_owned(), was_awaited: true }),
            [(waiting, "for a node"), (State::Failed, "***")],
        ),
        (
            "both fail",
            fails("x"),
            fails("y"),
            waiting,
            Some(Stand::Failed { why: "Pod a: x\nPod b: y".to_owned(), was_awaited: true }),
            [(State::Failed, "x"), (State::Failed, "y")],
        ),
    ] {
        let mut made = [made("a", waiting, "before"), made("b", of_b, "before")];
        let seen = HashMap::from([("u-a".to_owned(), a), ("u-b".to_owned(), b)]);
        let judged = judged(&mut made, seen, |text| text.replace("SECRET", "***"));
        assert_eq!(judged, stand, "{name}");
        assert_eq!(made.each_ref().map(|it| (it.state, &*it.message)), expected, "{name}");
    }
}

fn made(name: &str, state: State, message: &str) -> Made {
    Made {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("u-{name}"),
        state,
        message: message.to_owned(),
    }
}

fn server() -> Arc<Mutex<Server>> {
    let metadata = json!({
        "namespace": "shop", "name": "i", "uid": "u-1", "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    let instance = json!({"metadata": metadata, "spec": {"template": {"objects": []}}});
    let (record, writes) = (Value::Null, Vec::new());
    Arc::new(Mutex::new(Server { instance, record, refuses: |_, _| None, writes }))
}
