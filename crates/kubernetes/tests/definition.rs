//! Under definitions that are not as we would have them: somebody else's, or not there yet.

#[allow(dead_code, reason = "shared with those of budgets")]
#[path = "support/calls.rs"]
mod calls;
#[path = "support/wait.rs"]
mod wait;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kubernetes::quarks::{Controller, Dialect, Monitored, Settings, definition, install};
use kubernetes::{Lead, templates};
use serde_json::{Value, json};
use testkit::kubelet::{JobAct, Kubelet};
use testkit::plane::ControlPlane;

use calls::Calls;

/// A controller of an API server with these definitions, and a namespace `n` whose Jobs end at once.
struct Town {
    _plane: ControlPlane,
    _kubelet: Kubelet,
    client: Client,
    calls: Calls,
    controller: Arc<Controller>,
}

impl Town {
    async fn new(definitions: &[Value]) -> Self {
        Self::with(definitions, false).await
    }

    /// Whose controller has definitions of others replaced, or not.
    async fn with(definitions: &[Value], mends_definitions: bool) -> Self {
        let plane = ControlPlane::start(definitions).unwrap();
        let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
        let namespace = json!({"metadata": {"name": "n"}});
        let namespace: Namespace = serde_json::from_value(namespace).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        let (begins, lasts) = (Duration::ZERO, Duration::ZERO);
        let act = JobAct { begins, lasts, ends: Duration::ZERO, code: 0, output: String::new() };
        let acts = Arc::new(move |_: &str| act.clone());
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
            immutable_versions: true,
            mends_definitions,
            agent_resources: None,
        };
        let calls = Calls::default();
        let controller = Controller::open(calls.of(&client, "n"), settings).await.unwrap();
        let lead = Arc::new(Lead::new(client.clone(), "n", "foreign", "test"));
        let keeps = Arc::clone(&lead);
        tokio::spawn(async move { keeps.keep().await });
        tokio::spawn(Arc::clone(&controller).run(lead));
        let kubelet = Kubelet::start_jobs(client.clone(), "n", acts);
        Self { _plane: plane, _kubelet: kubelet, client, calls, controller }
    }

    async fn create(&self, dialect: Dialect, spec: Value) -> Api<DynamicObject> {
        let object = json!({
            "apiVersion": dialect.api_version(), "kind": dialect.kind(),
            "metadata": {"name": "a"}, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let all = Api::namespaced_with(self.client.clone(), "n", &dialect.resource());
        all.create(&PostParams::default(), &object).await.unwrap();
        all
    }
}

/// With names of this length an annotation has room for some two thousand.
const MANY: usize = 2500;

fn pod() -> Value {
    let container = json!({"name": "c", "image": "none", "command": ["none"]});
    json!({"spec": {"restartPolicy": "Never", "containers": [container]}})
}

/// As an original has it.
fn foreign() -> Value {
    let mut foreign = definition(Dialect::QuarksJob);
    foreign["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = json!({
        "type": "object",
        "properties": {
            "completed": {"type": "boolean"}, "lastReconcile": {"type": "string", "nullable": true},
        },
    });
    foreign
}

/// An original's test suite and its charts apply theirs when they begin.
#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_drops_what_we_write_is_replaced_where_that_is_wanted() {
    let town = Town::with(&[foreign()], true).await;
    let spec = json!({"trigger": {"strategy": "once"}, "template": {"spec": {"template": pod()}}});
    let all = town.create(Dialect::QuarksJob, spec).await;
    let status = wait::until("it is never over", Duration::from_secs(60), async || {
        let status = all.get("a").await.unwrap().data["status"].clone();
        if status["history"][0]["succeeded"] == true { Ok(status) } else { Err(status) }
    })
    .await;
    assert_eq!(status["completed"], true);
    assert_eq!(town.calls.take().iter().filter(|call| *call == "POST jobs").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_drops_what_we_write_is_no_storm_of_writes() {
    let town = Town::new(&[foreign()]).await;
    let spec = json!({"trigger": {"strategy": "once"}, "template": {"spec": {"template": pod()}}});
    town.create(Dialect::QuarksJob, spec).await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let calls = town.calls.take();
    let writes = calls.iter().filter(|call| call.starts_with("PATCH")).count();
    assert!((2..40).contains(&writes), "{writes} in 12 s: {calls:?}");
    assert_eq!(calls.iter().filter(|call| *call == "POST jobs").count(), 1);
    assert!(town.controller.counts().looks_failed > 0);
}

/// An annotation has room for so many pods: whoever follows more is told what to do, and does not run for some of them.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_follows_more_pods_than_can_be_remembered_says_what_to_do() {
    let town = Town::new(&Dialect::ALL.map(definition)).await;
    let pods = Api::<Pod>::namespaced(town.client.clone(), "n");
    let make = |number: usize| {
        let pod = json!({
            "metadata": {"name": format!("{number:060}"), "labels": {"app": "many"}}, "spec": pod()["spec"],
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let pods = pods.clone();
        async move { drop(pods.create(&PostParams::default(), &pod).await.unwrap()) }
    };
    futures_util::stream::iter(0..MANY).for_each_concurrent(16, make).await;
    let podstate = json!({"when": "ready", "selector": {"matchLabels": {"app": "many"}}});
    let spec = json!({
        "trigger": {"strategy": "podstate", "podstate": podstate}, "template": pod(),
    });
    let all = town.create(Dialect::ExtendedJob, spec).await;
    let remedy = format!(
        "{MANY} pods are followed, and each has to be remembered: have spec.trigger.podstate.selector select fewer"
    );
    wait::until("it does not say so", Duration::from_secs(180), async || {
        let status = all.get("a").await.unwrap().data["status"].to_string();
        if status.contains(&remedy) { Ok(()) } else { Err(status) }
    })
    .await;
    assert!(!town.calls.take().iter().any(|call| call == "POST jobs"));
}

/// An API server that has just started denies the kinds that it has: whoever asked then runs them all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_was_not_known_at_the_start_is_run_once_it_is() {
    let town = Town::new(&[definition(Dialect::QuarksJob)]).await;
    install(town.client.clone()).await.unwrap();
    let spec = json!({"trigger": {"strategy": "once"}, "template": pod()});
    town.create(Dialect::ExtendedJob, spec).await;
    // By the call: the Job itself is gone once the run has ended, which is at once.
    let (begun, mut calls) = (Instant::now(), Vec::new());
    while !calls.iter().any(|call| call == "POST jobs") {
        assert!(begun.elapsed() < Duration::from_secs(180), "it is never run: {calls:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
        calls.extend(town.calls.take());
    }
    assert!(town.controller.is_ready());
}

/// What the API server leaves out or adds is in conflict with whoever applies the same again, as another.
#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_kept_as_they_are_so_two_may_apply_them() {
    let plane = ControlPlane::start(&[]).unwrap();
    let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let of_templates = templates::names::Kind::ALL.map(templates::definition);
    let ours = kubernetes::definitions().into_iter().chain(of_templates);
    for definition in ours {
        let name = definition["metadata"]["name"].as_str().unwrap();
        for manager in ["kubectl", "flux"] {
            let (params, patch) = (PatchParams::apply(manager), Patch::Apply(&definition));
            let applied = definitions.patch(name, &params, &patch).await;
            applied.unwrap_or_else(|error| panic!("{manager} cannot apply {name}: {error}"));
        }
    }
}
