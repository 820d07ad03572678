//! What changes something: to its end, within limits, observed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use osb::Error;
use osb::server::{Exchange, Observer, Settings, refuse};
use serde_json::json;
use tokio::sync::Semaphore;
use tower_service::Service;

use crate::support::{
    Answer, BINDING, INSTANCE, Mood, Rig, bind_with, delete, get, patch, provision_with, put,
    settings,
};

async fn until(what: impl Fn() -> bool) {
    for _ in 0..6000 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not come to pass within a minute");
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_nothing() {
    let gate = Arc::new(Semaphore::new(0));
    let rig = Rig::new();
    rig.mood(Mood::Waiting(Arc::clone(&gate)));
    let asks = [
        put(INSTANCE, &provision_with(json!({}))),
        patch(INSTANCE, &json!({"service_id": "db"})),
        delete(&format!("{INSTANCE}?service_id=db&plan_id=small")),
        put(BINDING, &bind_with(json!({}))),
        delete(&format!("{BINDING}?service_id=db&plan_id=small")),
    ];
    for (index, ask) in asks.into_iter().enumerate() {
        let mut router = rig.router.clone();
        let request = tokio::spawn(async move { router.call(ask.0).await });
        until(|| rig.backend.heard.lock().unwrap().len() == index + 1).await;
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        gate.add_permits(1);
        until(|| rig.backend.finished.load(Ordering::SeqCst) == index + 1).await;
    }
}

#[tokio::test]
async fn a_backend_that_panics_is_a_500_and_the_server_goes_on() {
    let rig = Rig::new();
    rig.mood(Mood::Panicking);
    for ask in [
        put(INSTANCE, &provision_with(json!({}))),
        patch(INSTANCE, &json!({"service_id": "db"})),
        delete(&format!("{INSTANCE}?service_id=db&plan_id=small")),
        get(INSTANCE),
        get(&format!("{INSTANCE}/last_operation")),
        put(BINDING, &bind_with(json!({}))),
        delete(&format!("{BINDING}?service_id=db&plan_id=small")),
        get(BINDING),
        get(&format!("{BINDING}/last_operation")),
    ] {
        let answer = rig.send(ask.header("x-broker-api-request-identity", "r")).await;
        answer.refusal(500, "InternalError");
        assert_eq!(answer.header("x-broker-api-request-identity"), Some("r"));
    }
    rig.mood(Mood::Prompt);
    assert_eq!(rig.send(put(INSTANCE, &provision_with(json!({})))).await.status, 201);
}

#[tokio::test]
async fn too_many_changes_at_once_are_429_and_reading_goes_on() {
    let gate = Arc::new(Semaphore::new(0));
    let rig = Rig::with(Settings { changes_in_flight: 2, ..settings() });
    rig.mood(Mood::Waiting(Arc::clone(&gate)));
    let mut waiting = Vec::new();
    for count in 1..=2 {
        let mut router = rig.router.clone();
        let ask = put(INSTANCE, &provision_with(json!({})));
        waiting
            .push(tokio::spawn(async move { Answer::of(router.call(ask.0).await.unwrap()).await }));
        until(|| rig.backend.heard.lock().unwrap().len() == count).await;
    }
    let answer = rig.send(put(BINDING, &bind_with(json!({})))).await;
    answer.refusal(429, "TooManyRequests");
    assert_eq!(answer.header("retry-after"), Some("5"));
    assert_eq!(rig.send(get("/v2/catalog")).await.status, 200);
    assert_eq!(rig.heard().len(), 2);
    gate.add_permits(3);
    for answer in waiting {
        assert_eq!(answer.await.unwrap().status, 201);
    }
    assert_eq!(rig.send(put(BINDING, &bind_with(json!({})))).await.status, 201);
}

#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn responded(&self, exchange: &Exchange<'_>) {
        assert!(exchange.duration < Duration::from_secs(60));
        self.0.lock().unwrap().push(format!(
            "{} {} {:?} {:?} {:?} {:?}",
            exchange.method,
            exchange.route,
            exchange.status,
            exchange.request_identity,
            exchange.principal.map(|principal| (&*principal.name, &*principal.role)),
            exchange.error.map(|error| error.kind),
        ));
    }
}

#[tokio::test]
async fn the_observer_is_told_of_every_exchange_once_and_of_no_id() {
    let notes = Arc::new(Notes::default());
    let rig = Rig::with(Settings { observer: Some(notes.clone()), ..settings() });
    let told = || std::mem::take(&mut *notes.0.lock().unwrap());
    let platform = r#"Some(("platform", "platform"))"#;
    rig.send(
        put(INSTANCE, &provision_with(json!({}))).header("x-broker-api-request-identity", "r-1"),
    )
    .await;
    let expected = format!(
        r#"PUT /v2/service_instances/{{instance_id}} Some(201) Some("r-1") {platform} None"#
    );
    assert_eq!(told(), [expected]);
    rig.send(get("/unknown/secret").without("authorization")).await;
    assert_eq!(told(), ["GET unknown Some(401) None None Some(Unauthorized)"]);
    rig.send(get(&format!("{BINDING}/last_operation?operation=%00"))).await;
    let route = "/v2/service_instances/{instance_id}/service_bindings/{binding_id}/last_operation";
    assert_eq!(told(), [format!("GET {route} Some(400) None {platform} Some(BadRequest)")]);
    let observed = Settings { observer: Some(notes.clone()), ..settings() };
    let (parts, _) = get(INSTANCE).0.into_parts();
    refuse(&observed, &parts, Error::not_found("nobody is here")).await;
    let route = "/v2/service_instances/{instance_id}";
    assert_eq!(told(), [format!("GET {route} Some(404) None {platform} Some(NotFound)")]);

    rig.mood(Mood::Waiting(Arc::new(Semaphore::new(0))));
    let (mut router, ask) = (rig.router.clone(), put(INSTANCE, &provision_with(json!({}))));
    let request = tokio::spawn(async move { router.call(ask.0).await });
    until(|| rig.backend.heard.lock().unwrap().len() == 3 - 1).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    assert_eq!(
        told(),
        [format!("PUT /v2/service_instances/{{instance_id}} None None {platform} None")]
    );
}
