//! A mesh, as it comes into pods: by an admission webhook that the API server asks about each pod that is made.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use data_encoding::BASE64;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::harness::{Town, pod};
use super::injected::makes;
use super::named::{limit, the_next_is_refused_and_begins};
use super::support::wait;
use crate::hook::{Hook, PATH};

/// How long the API server may take to hear of a webhook.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is put into a pod: a container that sets its network up, before all others; a proxy that never ends; the words of
/// the mesh; a volume of its own.
fn injected(pod: &Value) -> Value {
    let container = |name: &str, script: &str| {
        let mut container = self::pod(script)["containers"][0].clone();
        container["name"] = json!(name);
        container["volumeMounts"] = json!([{"name": "mesh", "mountPath": "/etc/mesh"}]);
        container
    };
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let set_up = container("mesh-init", "true");
    let mut patch = vec![
        add("/spec/containers/-", container("mesh-proxy", "sleep 600")),
        match pod["spec"]["initContainers"].is_array() {
            true => add("/spec/initContainers/0", set_up),
            false => add("/spec/initContainers", json!([set_up])),
        },
        match pod["spec"]["volumes"].is_array() {
            true => add("/spec/volumes/-", json!({"name": "mesh", "emptyDir": {}})),
            false => add("/spec/volumes", json!([{"name": "mesh", "emptyDir": {}}])),
        },
    ];
    patch.push(match pod["metadata"]["annotations"].is_object() {
        true => add("/metadata/annotations/mesh.example.org~1status", json!("injected")),
        false => add("/metadata/annotations", json!({"mesh.example.org/status": "injected"})),
    });
    json!(patch)
}

/// It may be asked about a pod again that it has been put into.
fn answer(review: &Value) -> Value {
    let pod = &review["request"]["object"];
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if pod["metadata"]["annotations"]["mesh.example.org/status"].is_null() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(BASE64.encode(injected(pod).to_string().as_bytes()));
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

async fn mesh(town: &Town) -> Hook {
    let answer = |body: axum::body::Bytes| async move {
        answer(&serde_json::from_slice(&body).unwrap()).to_string()
    };
    let rules = json!([{
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }]);
    let routes = Router::new().route(PATH, post(answer));
    let hook = Hook::new(&town.cluster.client, &town.cluster.namespace, rules, routes).await;
    let probe = json!({"metadata": {"name": "probe"}, "spec": pod("true")});
    let probe: Pod = serde_json::from_value(probe).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait::until("the API server never asks the webhook", PATIENCE, async || {
        let made = town.cluster.api::<Pod>().create(&dry, &probe).await;
        if made.as_ref().is_ok_and(is_in) { Ok(()) } else { Err(made) }
    })
    .await;
    hook
}

/// Whether the mesh is in a pod.
fn is_in(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref().unwrap();
    let mut first = spec.init_containers.iter().flatten();
    spec.containers.iter().any(|it| it.name == "mesh-proxy")
        && first.next().is_some_and(|it| it.name == "mesh-init")
}

/// What the mesh keeps alive fills the quota, and is ended for the next, which was refused before.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_for_a_quota_begins_when_the_one_before_is_over_but_for_its_mesh() {
    let mut town = Town::either_way("meshed-quota", true).await;
    let _mesh = mesh(&town).await;
    limit(&town, "count/jobs.batch", "1").await;
    town.start().await;
    town.create("a", super::harness::spec("now", &pod("sleep 5"))).await;
    the_next_is_refused_and_begins(&town).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mesh_delays_no_end_and_loses_no_output() {
    for wraps in [true, false] {
        let mut town = Town::either_way("meshed", wraps).await;
        let _mesh = mesh(&town).await;
        town.start().await;
        town.create("good", makes("good", "true")).await;
        town.create("bad", makes("bad", "exit 3")).await;
        let mut bare = super::harness::spec("once", &pod("true"));
        bare["template"]["spec"]["backoffLimit"] = json!(0);
        town.create("bare", bare).await;
        for (name, succeeded, message, made) in [
            ("good", true, Value::Null, json!(["good"])),
            ("bad", false, json!("container c exited with 3"), json!(["bad"])),
            ("bare", true, Value::Null, Value::Null),
        ] {
            let run = town.ended(name, 1).await;
            let found = (&run["succeeded"], &run["message"], &run["made"]);
            assert_eq!(found, (&json!(succeeded), &message, &made), "{name}, wrapped: {wraps}");
        }
        for name in ["good", "bad"] {
            assert_eq!(town.data(name).await["k"], "v");
        }
        let pods = town.pods().await;
        assert!(pods.len() >= 3 && pods.iter().all(is_in), "it was put into each");
        town.nothing_runs().await;
    }
}
