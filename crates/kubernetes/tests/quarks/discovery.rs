//! What depends on which API server there is.

use std::sync::{Arc, Mutex};

use http::Response;
use kube::client::Body;
use serde_json::{Value, json};

use super::harness::{PATIENCE, Town};
use super::output::{WELL, makes};
use super::support::wait;

/// The cluster, as an API server of this version, which makes no Job: whoever asks it to leaves what it asked for.
fn of_version(town: &Town, minor: &str, asked: &Arc<Mutex<Vec<Value>>>) -> kube::Client {
    let (base, namespace) = (town.cluster.client.clone(), town.cluster.namespace.clone());
    let version = json!({
        "major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.0"), "gitCommit": "",
        "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    let asked = Arc::clone(asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (base, version, asked) = (base.clone(), version.to_string(), Arc::clone(&asked));
        async move {
            if request.uri().path() == "/version" {
                return Ok::<_, kube::Error>(Response::new(Body::from(version.into_bytes())));
            }
            if request.method() == "POST" && request.uri().path().ends_with("/jobs") {
                let body = request.into_body().collect_bytes().await.unwrap();
                asked.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                let answer = Response::builder().status(503);
                return Ok(answer.body(Body::from(b"not now".to_vec())).unwrap());
            }
            base.send(request).await
        }
    });
    kube::Client::new(service, namespace)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sidecar_is_a_native_one_where_the_server_says_that_it_has_them() {
    for (minor, place, elsewhere, restarts) in [
        ("31", "containers", "initContainers", Value::Null),
        ("33+", "initContainers", "containers", json!("Always")),
    ] {
        let mut town = Town::still(&format!("discovered-{}", minor.trim_end_matches('+'))).await;
        town.settings.wraps = false;
        let asked = Arc::default();
        let client = of_version(&town, minor, &asked);
        town.start_with(client).await;
        town.create("a", makes(WELL, json!({"name": "made"}))).await;
        let job = wait::until("nobody makes a Job", PATIENCE, async || {
            asked.lock().unwrap().first().cloned().ok_or("not one")
        })
        .await;
        let pod = &job["spec"]["template"]["spec"];
        let sidecar = |place: &str| {
            let all = pod[place].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|container| container["name"] == "output-persist")
        };
        let there = sidecar(place).unwrap_or_else(|| panic!("1.{minor}: {pod:#}"));
        assert_eq!(there["restartPolicy"], restarts, "1.{minor}");
        assert_eq!(sidecar(elsewhere), None, "1.{minor}");
    }
}
