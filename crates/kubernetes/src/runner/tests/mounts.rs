//! What a pod mounts, before a simulated API server that has it or not.

use std::sync::Arc;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;

use super::super::needs::Need;
use super::super::seen::{Seen, SeenPod, Warning};
use super::super::stage::Stage;
use super::logs::{Set, runs};
use super::status::running;
use super::{MADE, job, pod};

/// Answers questions for ConfigMaps with this status, and takes what is made.
fn server(of_config_maps: u16) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| async move {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let metadata = json!({"metadata": {"name": "later"}, "code": of_config_maps});
        let (status, body) = match parts.method {
            Method::POST => (201, body.to_vec()),
            _ if parts.uri.path().contains("/configmaps/") => {
                (of_config_maps, metadata.to_string().into_bytes())
            }
            _ => (404, json!({"code": 404}).to_string().into_bytes()),
        };
        Ok::<_, tower::BoxError>(Response::builder().status(status).body(Body::from(body))?)
    });
    Client::new(service, "n")
}

#[tokio::test]
async fn a_warning_of_what_is_missing_is_overcome_once_it_is_there() {
    let waits = |need: &Need, warned: &str| {
        let pod = SeenPod {
            stage: Stage::Waiting(None),
            needs: vec![need.clone()],
            ..pod("a", &running())
        };
        let warning = Some(Warning::of_mount(&pod, warned));
        Seen { job: Some(job(&json!({}))), pods: vec![pod], warning, ..Seen::default() }
    };
    let need = Need::ConfigMap("later".to_owned());
    for (case, status, warned, expected) in [
        ("it is there", 200, need.missing(), true),
        ("it is not", 404, need.missing(), false),
        ("nobody may look", 403, need.missing(), false),
        ("something else is wrong", 200, "a volume is attached elsewhere".to_owned(), false),
    ] {
        let shared = runs(&server(status), &Set::at(MADE)).await;
        let shared = Arc::new(shared);
        assert_eq!(shared.is_overcome(&waits(&need, &warned)).await, expected, "{case}");
    }
}
