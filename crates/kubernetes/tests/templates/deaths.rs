//! Controllers that die at each of their calls: before the one takes effect, after the next.

use std::collections::BTreeSet;

use kube::ResourceExt as _;
use kube::api::ListParams;
use kubernetes::Client;
use serde_json::{Value, json};
use testkit::proxy::{Plan, Proxy};

use super::harness::{Town, password};

/// What a controller asks before it begins.
const OPENING: u64 = 2;

/// A controller whose calls go through a proxy, where it dies at this call, once that has taken effect or before.
async fn mortal(town: &mut Town, call: u64, effect: bool) -> Proxy {
    let plan = Plan { death: Some(OPENING + call), effect: Some(effect), ..Plan::calm() };
    let proxy = Proxy::start(town.cluster.client.clone(), plan).await.unwrap();
    let client = through(&proxy).await;
    town.start_with(client).await;
    proxy
}

async fn through(proxy: &Proxy) -> Client {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, proxy.kubeconfig()).unwrap();
    kubernetes::client(Some(&file)).await.unwrap()
}

/// Whether the controller dies before this comes about.
async fn dies_first<T>(proxy: &Proxy, end: impl Future<Output = T>) -> bool {
    tokio::select! {
        () = proxy.died() => true,
        _ = end => false,
    }
}

/// What a whole life has to come to.
async fn is_whole(town: &Town, name: &str, instance: &Value) {
    let objects = instance["status"]["objects"].as_array().unwrap().iter();
    let uids: BTreeSet<String> = objects.map(|it| it["ref"]["uid"].to_string()).collect();
    assert_eq!(uids.len(), 3, "{name}: {instance:#}");
    let made = town.secret(name, "password").await.unwrap();
    let map = town.object("v1", "ConfigMap", name).await.unwrap();
    assert_eq!(map["data"]["twice"], json!(made), "{name}: one password");
    let given = instance["status"]["binding"]["name"].as_str().unwrap();
    assert_eq!(town.secret(given, "password").await.unwrap(), made, "{name}: what is given is it");
    assert_eq!(bindings(town, name).await, [given], "{name}: and nothing else");
}

/// The Secrets for workloads that an instance has.
async fn bindings(town: &Town, name: &str) -> Vec<String> {
    let secrets = town.objects("v1", "Secret").list(&ListParams::default()).await.unwrap();
    let secrets = secrets.into_iter().map(|secret| secret.name_any());
    secrets.filter(|secret| secret.starts_with(&format!("{name}-binding-"))).collect()
}

/// A template with a password that workloads are given.
fn bindable(name: &str) -> Value {
    let mut template = password();
    template["parameters"][0]["value"] = json!(name);
    template["metadata"]["annotations"] = json!({"template.manciple.dev/binding-type": "sample"});
    template["objects"][0]["metadata"]["annotations"] =
        json!({"template.openshift.io/expose-password": "{.data['password']}"});
    template
}

/// Dies once while it makes, and once while it removes; whoever comes after ends what it has begun.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_at_any_call_makes_no_second_password_and_leaves_nothing() {
    let mut town = Town::still("template-deaths").await;
    let (mut made, mut removed) = (0, 0);
    for call in 1..=28 {
        let name = format!("i{call}");
        let proxy = mortal(&mut town, call, call.is_multiple_of(2)).await;
        town.order(&name, "editor", bindable(&name)).await;
        made += u64::from(dies_first(&proxy, town.ready(&name)).await);
        town.start().await;
        let instance = town.ready(&name).await;
        is_whole(&town, &name, &instance).await;
        let proxy = mortal(&mut town, call, call.is_multiple_of(2)).await;
        town.delete(&name).await;
        removed += u64::from(dies_first(&proxy, town.gone(&name)).await);
        town.start().await;
        town.gone(&name).await;
        for kind in ["Secret", "ConfigMap", "Service"] {
            assert_eq!(town.object("v1", kind, &name).await, None, "{name}: {kind}");
        }
    }
    println!("{made} died while making, {removed} while removing");
    assert!(made >= 12 && removed >= 6, "{made} and {removed} deaths");
    town.remove().await;
}

/// Deleted while it is made, by a controller that dies: nothing is left, whether it was said or not.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_while_it_is_made_leaves_nothing() {
    let mut town = Town::still("template-mid").await;
    let mut died = 0;
    for call in 3..=20 {
        let name = format!("i{call}");
        let mut template = password();
        template["parameters"][0]["value"] = json!(name);
        // The other way than where nobody deletes it.
        let proxy = mortal(&mut town, call, !call.is_multiple_of(2)).await;
        town.order(&name, "editor", template).await;
        died += u64::from(dies_first(&proxy, town.ready(&name)).await);
        town.kill();
        town.delete(&name).await;
        town.start().await;
        town.gone(&name).await;
        for kind in ["Secret", "ConfigMap", "Service"] {
            assert_eq!(town.object("v1", kind, &name).await, None, "{name}: {kind}");
        }
    }
    println!("{died} died while making what is deleted then");
    assert!(died >= 5, "{died} deaths");
    town.remove().await;
}

/// Dies while it changes what was made, at each of its calls; whoever comes after ends it, with the password as it was.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_while_it_changes_something_is_followed_by_who_ends_it() {
    let mut town = Town::still("template-changes").await;
    let mut died = 0;
    for call in 1..=30 {
        let name = format!("i{call}");
        let mut template = bindable(&name);
        template["objects"][2]["metadata"]["annotations"] =
            json!({"template.openshift.io/expose-port": "{.spec.ports[0].port}"});
        town.start().await;
        town.order(&name, "editor", template.clone()).await;
        town.ready(&name).await;
        let made = town.secret(&name, "password").await.unwrap();
        town.kill();
        // The ConfigMap becomes another, the port changes.
        template["objects"][1]["metadata"]["name"] = json!("${NAME}-b");
        template["parameters"][1]["value"] = json!("9090");
        town.change(&name, "editor", template).await;
        let proxy = mortal(&mut town, call, call.is_multiple_of(2)).await;
        died += u64::from(dies_first(&proxy, town.ready_again(&name)).await);
        town.start().await;
        let instance = town.ready_again(&name).await;
        assert_eq!(instance["status"]["revision"], 2, "{name}: one change is one revision");
        assert_eq!(town.secret(&name, "password").await.unwrap(), made, "{name}");
        assert_eq!(town.object("v1", "ConfigMap", &name).await, None, "{name}: it has left");
        let map = town.object("v1", "ConfigMap", &format!("{name}-b")).await.unwrap();
        assert_eq!(map["data"]["twice"], json!(made), "{name}");
        let service = town.object("v1", "Service", &name).await.unwrap();
        assert_eq!(service["spec"]["ports"][0]["port"], 9090, "{name}");
        let given = instance["status"]["binding"]["name"].as_str().unwrap();
        assert_eq!(town.secret(given, "port").await.unwrap(), "9090", "{name}");
        town.delete(&name).await;
        town.gone(&name).await;
        for (kind, name) in [("ConfigMap", format!("{name}-b")), ("Service", name)] {
            assert_eq!(town.object("v1", kind, &name).await, None, "{name}: {kind}");
        }
    }
    println!("{died} died while changing");
    assert!(died >= 15, "{died} deaths");
    town.remove().await;
}
