//! What is asked of an API server before a run is given up, and of which pod.

use std::sync::{Arc, Mutex};

use engine::names::RunName;
use engine::ports::RunState;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::super::manifest::{alone, of_catalog};
use super::super::seen::{Seen, SeenPod};
use super::super::settings::JobSettings;
use super::logs::{Set, ended_at, runs};
use super::status::{ended, installed, of, running};
use super::{MADE, gone, job, job_object, pod, pod_object};

/// Answers `GET` and `LIST` with what there is, and takes what is made and changed. All calls, in their order.
fn server(there: Vec<(&'static str, Value)>) -> (Client, Arc<Mutex<Vec<String>>>) {
    let calls = Arc::<Mutex<Vec<String>>>::default();
    let called = Arc::clone(&calls);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (there, called) = (there.clone(), Arc::clone(&called));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let path = parts.uri.path().to_owned();
            called.lock().unwrap().push(format!("{} {path}", parts.method));
            let found = there.iter().find(|(end, _)| path.ends_with(end));
            let (status, body) = match (parts.method, found) {
                (Method::GET, Some((_, object))) => (200, object.to_string().into_bytes()),
                (Method::GET, None) => (404, json!({"code": 404}).to_string().into_bytes()),
                _ => (201, body.to_vec()),
            };
            Response::builder().status(status).body(Body::from(body)).map_err(tower::BoxError::from)
        }
    });
    (Client::new(service, "n"), calls)
}

/// From Kubernetes 1.30 on none follows one that is deleted.
#[tokio::test]
async fn only_where_there_may_be_two_pods_of_a_run_are_they_kept_apart() {
    let name = RunName::parse("run-1").unwrap();
    let nodes = json!({"nodeAffinity": {}});
    for (makes_second_pods, chosen, expected) in [
        (true, None, alone("run-1", None)),
        (true, Some(&nodes), alone("run-1", Some(nodes.clone()))),
        (false, None, Value::Null),
        (false, Some(&nodes), nodes.clone()),
    ] {
        let made = Arc::<Mutex<Value>>::default();
        let taken = Arc::clone(&made);
        let service = tower::service_fn(move |request: Request<Body>| {
            let taken = Arc::clone(&taken);
            async move {
                let is_job = request.uri().path().ends_with("/jobs");
                let body = request.into_body().collect_bytes().await?;
                if is_job {
                    *taken.lock().unwrap() = serde_json::from_slice(&body).unwrap();
                }
                let answer = Response::builder().status(201).body(Body::from(body.to_vec()));
                answer.map_err(tower::BoxError::from)
            }
        });
        let mut settings = JobSettings::new("n", "b", "image", "agent");
        settings.pod.affinity = chosen.cloned();
        let key = agent::KeyPair::generate().public().clone();
        let manifest = of_catalog(&settings, &key, name.as_str()).unwrap();
        let (client, clock) = (server(Vec::new()).0, Set::at(MADE));
        let mut shared = runs(&client, &clock).await;
        shared.client = Client::new(service, "n");
        shared.makes_second_pods = makes_second_pods;
        shared.make(&name, "n", manifest, None).await.unwrap();
        let affinity = made.lock().unwrap()["spec"]["template"]["spec"]["affinity"].clone();
        assert_eq!(affinity, expected, "{makes_second_pods} {chosen:?}");
    }
}

/// A pod that is younger than the list was heard of before that came to its end.
#[tokio::test]
async fn a_list_that_is_older_than_a_pod_ends_no_run() {
    let name = RunName::parse("run-1").unwrap();
    for (is_there, ends) in [(true, false), (false, true)] {
        let pods = if is_there { vec![pod_object("a", &running())] } else { Vec::new() };
        let (client, calls) = server(vec![
            ("/jobs/run-1", job_object(&json!({}))),
            ("/pods", json!({"metadata": {}, "items": pods})),
            ("/namespaces/n", json!({"metadata": {"name": "n"}})),
        ]);
        let shared = Arc::new(runs(&client, &Set::at(MADE + 20)).await);
        shared.known.learn(job(&json!({})));
        shared.known.learn(pod("a", &running()));
        shared.known.finish::<SeenPod>("n", &[]);
        assert!(shared.known.get(&name).pods[0].gone, "so the list says");
        let state = shared.attend(&name).await.unwrap();
        let RunState::Running { progress } = state else { panic!("{state:?}") };
        let is_told = progress.as_deref().is_some_and(|it| it.contains("it is being ended"));
        assert_eq!(is_told, ends, "there: {is_there}, {progress:?}");
        let ended = calls.lock().unwrap().iter().any(|call| call.starts_with("PATCH"));
        assert_eq!(ended, ends, "there: {is_there}, {:?}", calls.lock().unwrap());
    }
}

#[tokio::test]
async fn a_report_is_read_from_the_log_of_the_pod_that_has_reported() {
    let name = RunName::parse("run-1").unwrap();
    let message = ended_at(MADE).message.unwrap();
    let reported = pod("b", &of("Succeeded", &installed(), &ended(0, "Completed", &message)));
    let evicted = gone(pod("a", &json!({"phase": "Failed", "reason": "Evicted"})));
    let seen =
        Seen { job: Some(job(&json!({}))), pods: vec![evicted, reported], ..Seen::default() };
    let (client, calls) = server(vec![("/pods/run-1-b/log", json!("nothing of ours"))]);
    let shared = runs(&client, &Set::at(MADE)).await;
    let state = shared.reported(&name, &seen, &ended_at(MADE)).await.unwrap();
    let RunState::Lost { why } = state else { panic!("{state:?}") };
    let read = calls
        .lock()
        .unwrap()
        .iter()
        .filter(|call| call.ends_with("/log"))
        .cloned()
        .collect::<Vec<_>>();
    assert_eq!(read, ["GET /api/v1/namespaces/n/pods/run-1-b/log"], "{why}");
}
