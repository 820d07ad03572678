//! What the broker makes of claims, beside a simulated API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::in_process::InProcess;
use engine::testing::MemoryStore;
use engine::{Engine, Policy, Ports, SystemClock};
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use ring::hmac;
use serde_json::{Value, json};

use super::{Settings, TemplateBroker};

const ID: &str = "11111111-2222-4333-8444-555555555555";

/// A broker whose API server has these objects, by the ends of their paths, and lists of none; what is removed goes into the
/// list. What is watched says nothing.
fn broker(has: Vec<(&'static str, Value)>) -> (TemplateBroker, Arc<Mutex<Vec<String>>>) {
    let removed = Arc::new(Mutex::new(Vec::new()));
    let (has, removals) = (Arc::new(has), Arc::clone(&removed));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (has, removals) = (Arc::clone(&has), Arc::clone(&removals));
        async move {
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            if query.contains("watch=") {
                std::future::pending::<()>().await;
            }
            let name = path.rsplit('/').next().unwrap_or_default();
            let found = has.iter().find(|(end, _)| path.ends_with(end)).map(|(_, it)| it.clone());
            let (status, answer) = match (request.method(), found) {
                (&Method::DELETE, _) => {
                    removals.lock().unwrap().push(name.to_owned());
                    (200, json!({"kind": "Status", "status": "Success"}))
                }
                (_, Some(found)) => (200, found),
                (_, None) if name == "namespaces" => (200, list(&[])),
                (_, None) => {
                    let failure = json!({"kind": "Status", "status": "Failure", "code": 404});
                    let details = json!({"name": name, "kind": "k"});
                    let mut failure = failure;
                    (failure["details"], failure["reason"]) = (details, json!("NotFound"));
                    (404, failure)
                }
            };
            let body = Body::from(answer.to_string().into_bytes());
            Ok::<_, tower::BoxError>(Response::builder().status(status).body(body)?)
        }
    });
    let client = Client::new(service, "shop");
    let seal = hmac::Key::new(hmac::HMAC_SHA256, &[7; 32]);
    (TemplateBroker::new(&client, Settings::default(), seal), removed)
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items})
}

fn claim(uid: &str) -> Value {
    let of = |kind: &str| json!({"kind": kind, "namespace": "shop", "name": ID});
    json!({
        "apiVersion": "template.openshift.io/v1", "kind": "BrokerTemplateInstance",
        "metadata": {"name": ID, "uid": uid, "resourceVersion": "1"},
        "spec": {"templateInstance": of("TemplateInstance"), "secret": of("Secret")},
    })
}

/// An engine of the broker's that carries nothing out yet.
fn engine(of: &TemplateBroker) -> Engine {
    let ports = Ports {
        store: Arc::new(MemoryStore::default()),
        runner: Arc::new(InProcess::new(of.clone())),
        clock: Arc::new(SystemClock),
        observer: Arc::new(()),
    };
    let engine = Engine::new(Policy::default(), ports);
    engine.set_driving(false);
    engine
}

#[tokio::test(start_paused = true)]
async fn whoever_begins_to_lead_removes_the_claims_of_namespaces_that_went_before() {
    let (broker, removed) = broker(vec![("/brokertemplateinstances", list(&[claim("u-1")]))]);
    let engine = engine(&broker);
    let keeps = {
        let (broker, engine) = (broker.clone(), engine.clone());
        tokio::spawn(async move { broker.keep_claims(engine).await })
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(*removed.lock().unwrap(), Vec::<String>::new(), "another leads");
    engine.set_driving(true);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(*removed.lock().unwrap(), [ID]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(removed.lock().unwrap().len(), 1, "once");
    keeps.abort();
}
