//! What becomes of an instance whose objects go while one of them is waited for.

use std::sync::{Arc, Mutex};

use kube::api::{Patch, PatchParams};
use kube::client::{Body, Client};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::harness::{Town, condition, template};

fn map(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": annotations}, "data": {"come": "no"},
    })
}

fn awaited(name: &str) -> Value {
    map(name, json!({"template.manciple.dev/ready-when": "self.data.come == 'yes'"}))
}

/// One that runs nothing.
fn deployment(name: &str) -> Value {
    let container = json!({"name": "c", "image": "none"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}}, "spec": {"containers": [container]},
            },
        },
    })
}

async fn until_waiting(town: &Town) -> Value {
    let waits = |it: &Value| condition(it, "Ready")["reason"] == "Waiting";
    town.until("i", "waiting", waits).await
}

async fn come(town: &Town, name: &str) {
    let come = Patch::Merge(json!({"data": {"come": "yes"}}));
    town.objects("v1", "ConfigMap").patch(name, &PatchParams::default(), &come).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_may_go() {
    let town = Town::new("template-unawaited").await;
    let objects = json!([awaited("waits"), deployment("web"), map("other", json!({}))]);
    town.order("i", "editor", template(objects, json!([]))).await;
    until_waiting(&town).await;
    for (api_version, kind, name) in
        [("apps/v1", "Deployment", "web"), ("v1", "ConfigMap", "other")]
    {
        town.objects(api_version, kind).delete(name, &Default::default()).await.unwrap();
    }
    come(&town, "waits").await;
    town.ready("i").await;
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

/// A client whose reads of one ConfigMap are sent when a test says so.
fn held(client: &Client, namespace: &str, opened: watch::Receiver<bool>) -> Client {
    let base = client.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (base, mut opened) = (base.clone(), opened.clone());
        async move {
            let is_read = request.method() == http::Method::GET;
            if is_read && request.uri().path().ends_with("/configmaps/waits") {
                let _ = opened.wait_for(|opened| *opened).await;
            }
            base.send(request).await
        }
    });
    Client::new(service, namespace)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_waited_for_is_told_by_its_uid() {
    let mut town = Town::still("template-uid").await;
    let opened = watch::Sender::new(false);
    let client = held(&town.cluster.client, &town.cluster.namespace, opened.subscribe());
    town.start_with(client).await;
    town.order("i", "editor", template(json!([awaited("waits")]), json!([]))).await;
    let waiting = until_waiting(&town).await;
    town.objects("v1", "ConfigMap").delete("waits", &Default::default()).await.unwrap();
    // Before anybody looks somebody makes it anew, ready, and says that it is of the instance.
    let mut anew = awaited("waits");
    anew["metadata"]["labels"] =
        json!({"template.openshift.io/template-instance-owner": waiting["metadata"]["uid"]});
    anew["data"]["come"] = json!("yes");
    town.make(anew).await;
    opened.send_replace(true);
    assert_eq!(town.failed("i").await, "ConfigMap waits: it was removed");
    town.delete("i").await;
    town.gone("i").await;
    assert!(town.object("v1", "ConfigMap", "waits").await.is_some(), "it is somebody else's");
    town.remove().await;
}

/// In whose name ConfigMaps were asked for, or written.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<Option<String>>>>);

impl Names {
    fn of(&self, client: &Client, namespace: &str) -> Client {
        let (base, names) = (client.clone(), self.clone());
        let service = tower::service_fn(move |request: http::Request<Body>| {
            if request.uri().path().contains("/configmaps") {
                let name = request.headers().get("impersonate-user");
                let name = name.map(|name| name.to_str().unwrap().to_owned());
                names.0.lock().unwrap().push(name);
            }
            let base = base.clone();
            async move { base.send(request).await }
        });
        Client::new(service, namespace)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_made_watched_and_removed_as_the_requester() {
    let mut town = Town::still("template-as").await;
    let names = Names::default();
    let client = names.of(&town.cluster.client, &town.cluster.namespace);
    town.start_with(client).await;
    town.order("i", "editor", template(json!([awaited("waits")]), json!([]))).await;
    until_waiting(&town).await;
    come(&town, "waits").await;
    town.ready("i").await;
    town.delete("i").await;
    town.gone("i").await;
    let names = names.0.lock().unwrap().clone();
    // Made, watched, looked for and removed.
    assert!(names.len() >= 4, "{names:?}");
    assert!(names.iter().all(|name| name.as_deref() == Some("editor")), "{names:?}");
    town.remove().await;
}

/// Whoever ordered it sees no pods, perhaps: the instance says which image it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_is_named_by_the_instance() {
    let town = Town::new("template-image").await;
    let image = "registry.invalid/nothing:1";
    let spec = json!({
        "containers": [{"name": "web", "image": image}], "terminationGracePeriodSeconds": 0,
    });
    let waits = json!({"template.alpha.openshift.io/wait-for-ready": "true"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "annotations": waits},
        "spec": spec,
    });
    let mut workload = deployment("work");
    workload["metadata"]["annotations"] = waits;
    workload["spec"]["replicas"] = json!(1);
    workload["spec"]["template"]["spec"] = spec;
    town.order("i", "editor", template(json!([pod, workload]), json!([]))).await;
    let says = |object: &Value| {
        let ready = condition(object, "Ready");
        let words = ready["message"].as_str().unwrap_or_default();
        let is_named = |of: &str| {
            let line = words.lines().find(|line| line.starts_with(of)).unwrap_or_default();
            ["ErrImagePull", "ImagePullBackOff"]
                .iter()
                .any(|reason| line.contains(&format!("container web: image {image}: {reason}")))
        };
        ready["reason"] == "Waiting" && is_named("Pod web: ") && is_named("Deployment work: ")
    };
    town.until("i", "said to wait for its images", says).await;
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}
