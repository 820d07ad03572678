//! What becomes of the record, and of objects, of an instance that goes.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::server::{Server, controller};
use super::{key, of};
use crate::templates::names::FINALIZER;
use crate::templates::plan::owner;
use crate::templates::record::{self, Record, StoredRecord};
use crate::templates::resource::Instance;
use crate::templates::seen::SeenInstance;
use crate::templates::status::{Made, State};
use crate::templates::step::Came;
use crate::templates::trouble::Trouble;

/// One that is being removed, with these finalizers.
fn instance(finalizers: &Value) -> Value {
    json!({
        "metadata": {
            "namespace": "shop", "name": "i", "uid": "u-1", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:01Z",
            "finalizers": finalizers,
        },
        "spec": {"requester": {"username": "somebody"}, "template": {"objects": []}},
        "status": {"objects": [made("u-said").entry()]},
    })
}

fn seen(instance: &Value) -> SeenInstance {
    serde_json::from_str(&instance.to_string()).unwrap()
}

/// A ClusterRole, of which there is one.
fn made(uid: &str) -> Made {
    Made {
        api_version: "rbac.authorization.k8s.io/v1".to_owned(),
        kind: "ClusterRole".to_owned(),
        namespace: String::new(),
        name: "r".to_owned(),
        uid: uid.to_owned(),
        state: State::Created,
        message: String::new(),
    }
}

fn server(finalizers: &Value, owners: &Value) -> Arc<Mutex<Server>> {
    let instance = instance(finalizers);
    let read = Instance::of(seen(&instance)).unwrap();
    let mut kept = Record::of(&read, &[], String::new(), String::new());
    kept.parameters.insert("PASSWORD".to_owned(), "PLANTED".to_owned());
    let mut record = record::secret(&of(), &StoredRecord::new(kept, read.spec()), &key());
    record["metadata"]["ownerReferences"] = owners.clone();
    record["metadata"]["resourceVersion"] = json!("1");
    Arc::new(Mutex::new(Server { instance, record, refuses: |_, _| None, writes: Vec::new() }))
}

/// As whoever comes anew goes on with it.
async fn remove(server: &Arc<Mutex<Server>>) -> Result<Came, Trouble> {
    let controller = controller(server);
    let seen = seen(&server.lock().unwrap().instance);
    controller.table().learn(seen);
    let instance = controller.known(&of()).unwrap();
    controller.remove(&instance).await
}

fn is_released(server: &Arc<Mutex<Server>>) -> bool {
    let server = server.lock().unwrap();
    server.record["metadata"].get("finalizers").is_none()
        && server.instance["metadata"]["finalizers"] == json!([])
}

#[tokio::test]
async fn the_record_of_objects_that_stay_goes_with_its_instance_and_holds_nothing() {
    let server = server(&json!(["orphan", FINALIZER]), &json!([owner(&of())]));
    assert!(matches!(remove(&server).await, Ok(Came::Later(_))), "the garbage collector is at it");
    assert!(server.lock().unwrap().writes.is_empty());
    {
        let mut server = server.lock().unwrap();
        server.instance["metadata"]["finalizers"] = json!([FINALIZER]);
        server.record["metadata"]["ownerReferences"] = json!([]);
        // Somebody writes the instance in between.
        server.refuses = |path, _| path.ends_with("/i").then_some(409);
    }
    assert!(matches!(remove(&server).await, Err(Trouble::Old)));
    server.lock().unwrap().refuses = |_, _| None;
    assert!(
        matches!(remove(&server).await, Ok(Came::Idle)),
        "whoever comes later lets them be, too"
    );
    assert!(is_released(&server));
    let server = server.lock().unwrap();
    assert_eq!(server.record["metadata"]["ownerReferences"], json!([owner(&of())]));
    assert_eq!(server.record.get("data"), None);
    assert!(server.writes.iter().all(|it| !it.contains("clusterroles")), "{:?}", server.writes);
}

#[tokio::test]
async fn one_of_which_nothing_is_kept_is_read_for_its_turn() {
    let server = server(&json!([FINALIZER]), &json!([]));
    let controller = controller(&server);
    controller.table().most = 0;
    controller.table().learn(seen(&server.lock().unwrap().instance));
    assert!(controller.table().is_unread(&of()));
    server.lock().unwrap().refuses = |_, _| Some(500);
    assert_eq!(controller.step(&of()).await, Err(()), "it cannot be read");
    server.lock().unwrap().refuses = |_, _| None;
    while controller.step(&of()).await != Ok(None) {
        assert!(!is_released(&server));
    }
    assert!(is_released(&server));
}

#[tokio::test]
async fn a_record_that_may_not_be_owned_again_is_emptied() {
    let server = server(&json!([FINALIZER]), &json!([]));
    server.lock().unwrap().refuses =
        |_, body| body["metadata"]["ownerReferences"].is_array().then_some(403);
    assert!(matches!(remove(&server).await, Ok(Came::Idle)));
    assert!(is_released(&server));
    assert_eq!(server.lock().unwrap().record.get("data"), None);
}

/// That the garbage collector let go of the instance before it knew of the record.
#[tokio::test]
async fn who_saw_that_objects_are_to_stay_remembers_it() {
    let server = server(&json!(["orphan", FINALIZER]), &json!([owner(&of())]));
    let controller = controller(&server);
    for finalizers in [json!(["orphan", FINALIZER]), json!([FINALIZER])] {
        let mut instance = instance(&finalizers);
        instance["metadata"]["resourceVersion"] = json!(finalizers.to_string());
        server.lock().unwrap().instance = instance.clone();
        controller.table().learn(seen(&instance));
        let known = controller.known(&of()).unwrap();
        controller.remove(&known).await.unwrap();
    }
    assert!(is_released(&server));
    let writes = &server.lock().unwrap().writes;
    assert!(writes.iter().all(|it| !it.contains("clusterroles")), "{writes:?}");
}

#[tokio::test]
async fn of_what_was_just_made_goes_what_does_not_stay_and_is_known_to_nobody_else() {
    let (with, without) = (json!(["orphan", FINALIZER]), json!([FINALIZER]));
    let (owned, unowned) = (json!([owner(&of())]), json!([]));
    for (name, finalizers, owners, said, is_gone, expected) in [
        ("its instance goes", &without, &owned, "u-other", false, true),
        ("its instance is gone", &without, &owned, "u-other", true, true),
        ("it is to stay", &with, &owned, "u-other", false, false),
        ("it stays", &without, &unowned, "u-other", false, false),
        ("the instance said it, and goes", &without, &owned, "u-r", false, false),
        ("the instance said it, and is gone", &without, &owned, "u-r", true, false),
    ] {
        let server = server(finalizers, owners);
        let controller = controller(&server);
        server.lock().unwrap().instance["status"]["objects"] = json!([made(said).entry()]);
        let seen = seen(&server.lock().unwrap().instance);
        controller.table().learn(seen);
        let known = controller.known(&of()).unwrap();
        if is_gone {
            server.lock().unwrap().refuses = |path, _| path.ends_with("/i").then_some(404);
        }
        controller.leave(&known, vec![made("u-r")], &[]).await;
        let writes = &server.lock().unwrap().writes;
        let is_removed = writes.iter().any(|it| it.starts_with("DELETE"));
        assert_eq!(is_removed, expected, "{name}: {writes:?}");
    }
}
