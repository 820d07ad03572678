//! What the broker makes of claims, beside a simulated API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::in_process::InProcess;
use engine::testing::MemoryStore;
use engine::{Engine, Policy, Ports, SystemClock};
use http::{Method, Request, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::client::Body;
use osb::{FailureKind, PlanId, ServiceId};
use ring::hmac;
use serde_json::{Value, json};

use super::adopt::{Aim, Asked};
use super::{Settings, TemplateBroker, parameters};
use crate::templates::record::Values;

const ID: &str = "11111111-2222-4333-8444-555555555555";

/// A broker whose API server has these objects, by the ends of their paths, and lists of none; what is removed goes into the
/// list. What is watched says nothing.
fn broker(has: Vec<(String, Value)>) -> (TemplateBroker, Arc<Mutex<Vec<String>>>) {
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
            let found =
                has.iter().find(|(end, _)| path.ends_with(end.as_str())).map(|(_, it)| it.clone());
            let (status, answer) = match (request.method(), found) {
                (&Method::DELETE, _) => {
                    removals.lock().unwrap().push(name.to_owned());
                    (200, json!({"kind": "Status", "status": "Success"}))
                }
                (_, Some(found)) => (200, found),
                (&Method::POST, None) => (
                    409,
                    json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "AlreadyExists"}),
                ),
                (_, None) if name == "namespaces" => (200, list(&[])),
                (_, None) => {
                    let details = json!({"name": name, "kind": "k"});
                    let reason = json!({
                        "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
                        "details": details,
                    });
                    (404, reason)
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
    let (broker, removed) =
        broker(vec![("/brokertemplateinstances".to_owned(), list(&[claim("u-1")]))]);
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

/// The Secret of a claim of this uid.
fn secret(data: &Value, owner: &str, kind: &str) -> Value {
    let owner = json!({
        "apiVersion": "template.openshift.io/v1", "kind": kind, "name": ID, "uid": owner,
    });
    let metadata = json!({"name": ID, "uid": "u-s", "ownerReferences": [owner]});
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
}

const CLAIM: &str = "BrokerTemplateInstance";

/// As T4.54 has it, where there is no record, and no TemplateInstance yet.
#[tokio::test]
async fn an_interrupted_order_is_repeated_with_the_same_parameters() {
    let values = |values: &[(&str, &str)]| {
        let values = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Values::from_iter(values)
    };
    let (page, none) = (json!({"NAME": "cGFnZQ=="}), json!(null));
    for (name, kept, asked, is_same) in [
        ("the same", Some(secret(&page, "u-1", CLAIM)), values(&[("NAME", "page")]), true),
        ("another value", Some(secret(&page, "u-1", CLAIM)), values(&[("NAME", "shop")]), false),
        ("one less", Some(secret(&page, "u-1", CLAIM)), values(&[]), false),
        (
            "one more",
            Some(secret(&page, "u-1", CLAIM)),
            values(&[("NAME", "page"), ("SIZE", "1")]),
            false,
        ),
        ("none, as before", Some(secret(&none, "u-1", CLAIM)), values(&[]), true),
        ("nothing is kept yet", None, values(&[("NAME", "shop")]), true),
        ("it is another's", Some(secret(&page, "u-9", CLAIM)), values(&[("NAME", "shop")]), true),
    ] {
        let mut has = vec![("/brokertemplateinstances/".to_owned() + ID, claim("u-1"))];
        let is_owned =
            kept.as_ref().is_some_and(|it| it["metadata"]["ownerReferences"][0]["uid"] == "u-1");
        has.extend(kept.map(|kept| ("/secrets/".to_owned() + ID, kept)));
        let (broker, _) = broker(has);
        let claim = broker.claimed(ID).await.unwrap().unwrap();
        let order = Asked { aim: Aim::Order, values: Some(asked.clone()), ..Asked::default() };
        let said = broker.is_same_order(&claim, &order).await;
        let said = said.map_err(|error| error.kind.status());
        assert_eq!(said, if is_same { Ok(()) } else { Err(409) }, "{name}");
        // Two at once, of which each has asked before the other has kept anything.
        let kept = parameters::keep(&broker.client, &claim, ID, &asked).await;
        if is_owned {
            assert_eq!(kept.map_err(|failure| failure.kind), Ok(is_same), "{name}");
        }
    }
}

/// Parameters may be the same of two services; and a claim is made before any are kept.
#[tokio::test]
async fn an_interrupted_order_is_repeated_for_the_same_service_and_plan() {
    let (broker, _) = broker(Vec::new());
    let digest = |[service, plan]: [&str; 2], parameters: &Value| {
        let (service, plan) = (ServiceId::new(service).unwrap(), PlanId::new(plan).unwrap());
        broker.order_digest(&service, &plan, parameters.as_object().unwrap())
    };
    let page = json!({"NAME": "page"});
    let first = digest(["s", "p"], &page);
    for (name, order, is_same) in [
        ("the same", digest(["s", "p"], &page), true),
        ("another service", digest(["t", "p"], &page), false),
        ("another plan", digest(["s", "q"], &page), false),
        ("other parameters", digest(["s", "p"], &json!({"NAME": "shop"})), false),
        ("none", digest(["s", "p"], &json!({})), false),
    ] {
        let mut claim = claim("u-1");
        claim["metadata"]["annotations"] = json!({"template.manciple.dev/order": first});
        let has = vec![("/brokertemplateinstances/".to_owned() + ID, claim)];
        let (broker, _) = self::broker(has);
        let found = broker.claimed(ID).await.unwrap().unwrap();
        let asked = Asked { aim: Aim::Order, order: Some(order.clone()), ..Asked::default() };
        let said = broker.is_same_order(&found, &asked).await;
        let said = said.map_err(|error| error.kind.status());
        assert_eq!(said, if is_same { Ok(()) } else { Err(409) }, "{name}");
        // Two at once.
        let claimed = broker.claim(ID, "shop", &order).await.map(drop);
        let claimed = claimed.map_err(|failure| failure.kind);
        assert_eq!(claimed, if is_same { Ok(()) } else { Err(FailureKind::Conflict) }, "{name}");
    }
}

/// A removal ends when the claim is gone; what that owned is collected after it.
#[tokio::test]
async fn what_is_left_of_the_order_before_is_waited_for() {
    let (broker, _) = broker(vec![("/brokertemplateinstances/".to_owned() + ID, claim("u-2"))]);
    let claim = broker.claimed(ID).await.unwrap().unwrap();
    let of = |owners: &[(&str, &str)]| -> ObjectMeta {
        let secrets = owners.iter().map(|(kind, uid)| secret(&json!(null), uid, kind));
        let owners: Vec<Value> =
            secrets.map(|it| it["metadata"]["ownerReferences"][0].clone()).collect();
        serde_json::from_value(json!({"name": ID, "ownerReferences": owners})).unwrap()
    };
    let (transient, failed) = (Err(FailureKind::Transient), Err(FailureKind::Failed));
    for (name, owners, expected) in [
        ("its own", vec![(CLAIM, "u-2")], Ok(())),
        ("of the order before", vec![(CLAIM, "u-1")], transient),
        ("of two before", vec![(CLAIM, "u-0"), (CLAIM, "u-1")], transient),
        ("of both", vec![(CLAIM, "u-1"), (CLAIM, "u-2")], Ok(())),
        ("somebody else has it, too", vec![(CLAIM, "u-1"), ("Template", "u-t")], failed),
        ("another's", vec![("Template", "u-t")], failed),
        ("nobody's", vec![], failed),
    ] {
        let said = claim.check("Secret", &of(&owners)).map_err(|failure| failure.kind);
        assert_eq!(said, expected, "{name}");
    }
}
