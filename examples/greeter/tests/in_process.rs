//! The same broker in process: the engine runs it, with everything that the framework does for it.

use std::sync::Arc;
use std::time::Duration;

use engine::in_process::InProcess;
use engine::policy::{OnLost, PerAction};
use engine::testing::{MemoryStore, TestClock};
use engine::{Engine, Policy, Ports};
use greeter::Greeter;
use osb::{Backend, BindRequest, BindingId, Call, ErrorKind, InstanceId, ProvisionRequest, Reply};
use serde_json::{Value, json};

async fn engine(folder: &std::path::Path) -> Engine {
    let policy = Policy {
        hold: PerAction::all(Duration::from_secs(30)),
        lost: OnLost::Retry,
        ..Policy::default()
    };
    let ports = Ports {
        store: Arc::new(MemoryStore::default()),
        runner: Arc::new(InProcess::new(Greeter { folder: folder.to_owned() })),
        clock: Arc::new(TestClock::default()),
        observer: Arc::new(()),
    };
    let engine = Engine::new(policy, ports);
    engine.refresh_catalog().await.unwrap();
    engine
}

fn order(parameters: Value) -> ProvisionRequest {
    serde_json::from_value(json!({
        "service_id": "5c4b0c1e-greeter", "plan_id": "1d2f7a90-polite",
        "organization_guid": "o", "space_guid": "s", "parameters": parameters,
    }))
    .unwrap()
}

#[tokio::test]
async fn an_author_writes_the_work_and_gets_the_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path()).await;
    let (call, id) = (Call::default(), InstanceId::new("a/b").unwrap());
    let reply = engine.provision(&call, &id, order(json!({ "greeting": "Good day" }))).await;
    assert!(matches!(reply, Ok(Reply::Created(_))), "{reply:?}");
    let again = engine.provision(&call, &id, order(json!({ "greeting": "Good day" }))).await;
    assert!(matches!(again, Ok(Reply::Done(_))), "{again:?}");
    let other = engine.provision(&call, &id, order(json!({}))).await.unwrap_err();
    assert_eq!(other.kind, ErrorKind::Conflict);

    let binding = BindingId::new("Ada").unwrap();
    let request: BindRequest = serde_json::from_value(json!({
        "service_id": "5c4b0c1e-greeter", "plan_id": "1d2f7a90-polite",
    }))
    .unwrap();
    let Ok(Reply::Created(body)) = engine.bind(&call, &id, &binding, request).await else {
        panic!("the binding was not made");
    };
    assert_eq!(body.credentials.unwrap().expose()["greeting"], "Good day, Ada!");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_the_requests_fault() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine(folder.path()).await;
    let id = InstanceId::new("i").unwrap();
    let wrong = engine.provision(&Call::default(), &id, order(json!({ "greeting": 7 }))).await;
    let error = wrong.unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadRequest);
    assert!(error.description.contains("parameters"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
