//! What large instances are kept from.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::server::{Server, controller};
use super::{of, seen};
use crate::templates::MUCH;
use crate::templates::status::{Made, State};

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
    controller.table().learn(&seen("1", &json!({})));
    let instance = controller.known(&of()).unwrap();
    let made = Made {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "shop".to_owned(),
        name: "a".to_owned(),
        uid: "u-a".to_owned(),
        state: State::Waiting,
        message: "PLANTED".to_owned(),
    };
    controller.say_waiting(&instance, vec![made]).await.unwrap();
    let status = server.lock().unwrap().instance["status"].clone();
    assert_eq!(status["conditions"][0]["reason"], "Waiting", "{status}");
    assert_eq!(status["objects"][0].get("message"), None, "{status}");
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
