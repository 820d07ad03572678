//! What large instances are kept from, and when all that is waited for is there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// How many writes of a status fail yet, and the status code of those.
static FAILS: AtomicUsize = AtomicUsize::new(0);
static CODE: AtomicUsize = AtomicUsize::new(0);

fn fails(path: &str, _: &Value) -> Option<u16> {
    let is_write = path.ends_with("/status");
    let less = |left: usize| left.checked_sub(1);
    let fails = is_write && FAILS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok();
    fails.then(|| u16::try_from(CODE.load(Ordering::SeqCst)).unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_is_waited_for_is_told_though_writing_it_fails_twice() {
    for (name, code, count, is_told) in [
        ("once", 500, 1, true),
        ("twice", 500, 2, true),
        ("three times", 500, 3, false),
        ("somebody wrote it in between", 409, 2, true),
        ("somebody writes it all the time", 409, 3, false),
    ] {
        let server = server();
        server.lock().unwrap().refuses = fails;
        FAILS.store(count, Ordering::SeqCst);
        CODE.store(code, Ordering::SeqCst);
        let controller = controller(&server);
        controller.table().learn(seen("1", &json!({})));
        let instance = controller.known(&of()).unwrap();
        let said =
            controller.say_waiting(&instance, vec![made("a", State::Waiting, "for a node")]).await;
        assert_eq!(said.is_ok(), is_told, "{name}: {said:?}");
        let status = server.lock().unwrap().instance["status"].clone();
        assert_eq!(status["objects"][0]["message"] == "for a node", is_told, "{name}: {status}");
    }
}

#[tokio::test]
async fn the_condition_says_what_each_object_waits_for() {
    let server = server();
    let controller = controller(&server);
    controller.table().learn(seen("1", &json!({})));
    let instance = controller.known(&of()).unwrap();
    let made = vec![
        made("a", State::Waiting, "the pod is Pending; container c: image i:1: ErrImagePull"),
        made("b", State::Waiting, ""),
        made("c", State::Ready, ""),
    ];
    controller.say_waiting(&instance, made).await.unwrap();
    let said = server.lock().unwrap().instance["status"]["conditions"][0]["message"].clone();
    let words = "Waiting for instantiated objects to report ready\n\
                 Pod a: the pod is Pending; container c: image i:1: ErrImagePull";
    assert_eq!(said, words);
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
