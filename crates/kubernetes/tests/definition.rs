//! Under the definition that the original operator has installed, and nobody has replaced.

#[path = "support/calls.rs"]
mod calls;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, PostParams};
use kubernetes::Lead;
use kubernetes::quarks::{Controller, Dialect, Monitored, Settings, definition};
use serde_json::json;
use testkit::kubelet::{JobAct, Kubelet};
use testkit::plane::ControlPlane;

use calls::Calls;

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_drops_what_we_write_is_no_storm_of_writes() {
    let mut foreign = definition(Dialect::QuarksJob);
    foreign["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({
        "type": "object",
        "properties": {
            "completed": {"type": "boolean"}, "lastReconcile": {"type": "string", "nullable": true},
        },
    });
    let plane = ControlPlane::start(&[foreign]).unwrap();
    let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let act =
        JobAct { begins: Duration::ZERO, lasts: Duration::ZERO, code: 0, output: String::new() };
    let _kubelet = Kubelet::start_jobs(client.clone(), "n", Arc::new(move |_: &str| act.clone()));
    let settings = Settings {
        namespace: "n".to_owned(),
        name: "foreign".to_owned(),
        monitored: Monitored::All,
        delivery: "agent".into(),
        settle: Duration::from_millis(100),
        workers: 2,
        key_rotation: Duration::from_secs(3600),
        wraps: true,
        strict: false,
        verbatim_prefixes: false,
    };
    let calls = Calls::default();
    let controller = Controller::open(calls.of(&client, "n"), settings).await.unwrap();
    let lead = Arc::new(Lead::new(client.clone(), "n", "foreign", "test"));
    let keeps = Arc::clone(&lead);
    tokio::spawn(async move { keeps.keep().await });
    tokio::spawn(Arc::clone(&controller).run(lead));
    let object = json!({
        "apiVersion": Dialect::QuarksJob.api_version(), "kind": "QuarksJob",
        "metadata": {"name": "a"},
        "spec": {"trigger": {"strategy": "once"}, "template": {"spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "none", "command": ["none"]}],
        }}}}},
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let jobs: Api<DynamicObject> =
        Api::namespaced_with(client, "n", &Dialect::QuarksJob.resource());
    jobs.create(&PostParams::default(), &object).await.unwrap();
    tokio::time::sleep(Duration::from_secs(12)).await;
    let calls = calls.take();
    let writes = calls.iter().filter(|call| call.starts_with("PATCH")).count();
    assert!((2..40).contains(&writes), "{writes} in 12 s: {calls:?}");
    assert_eq!(calls.iter().filter(|call| *call == "POST jobs").count(), 1);
    assert!(controller.counts().calls_failed > 0);
}
