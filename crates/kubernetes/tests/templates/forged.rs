//! Somebody who may write the status of an instance, and labels, has nothing read or removed by them in the name of its
//! requester, who may do more.

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kubernetes::templates::Drift;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::counter::{Counter, id};
use super::harness::{Town, condition, template};
use super::rights::rule;
use super::withstands::{Wide, administrator};

const PLANTED: &str = "planted-elsewhere";
const OWNER: &str = "template.openshift.io/template-instance-owner";
const INSTANCE: (&str, &str) = ("template.openshift.io/v1", "TemplateInstance");

/// Another namespace.
struct Elsewhere {
    namespace: String,
    _wide: Wide,
}

impl Elsewhere {
    async fn of(town: &Town) -> Self {
        let namespace = format!("{}-elsewhere", town.cluster.namespace);
        let wide = Wide::of(&[&["namespace", &namespace, "--wait=false"]]);
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        let all: Api<DynamicObject> =
            Api::all_with(town.cluster.client.clone(), &resource(("v1", "Namespace")));
        all.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
        Self { namespace, _wide: wide }
    }

    fn objects(&self, town: &Town, kind: (&str, &str)) -> Api<DynamicObject> {
        Api::namespaced_with(town.cluster.client.clone(), &self.namespace, &resource(kind))
    }

    /// Makes an object in it that is labelled as the instance's; how a status names it.
    async fn labelled(
        &self,
        town: &Town,
        kind: (&str, &str),
        instance: &Value,
        mut object: Value,
    ) -> Value {
        object["apiVersion"] = json!(kind.0);
        object["kind"] = json!(kind.1);
        object["metadata"]["labels"] = json!({OWNER: instance["metadata"]["uid"]});
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = self.objects(town, kind).create(&PostParams::default(), &object).await.unwrap();
        reference(kind, &serde_json::to_value(made).unwrap())
    }
}

fn resource((api_version, kind): (&str, &str)) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

fn reference((api_version, kind): (&str, &str), object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({"ref": {
        "apiVersion": api_version, "kind": kind, "namespace": metadata["namespace"],
        "name": metadata["name"], "uid": metadata["uid"],
    }})
}

/// Exposes a password.
fn database(name: &str, password: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "annotations": {
            "template.openshift.io/expose-password": "{.data['password']}",
        }},
        "stringData": {"password": password},
    })
}

fn map(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "annotations": annotations}, "data": {},
    })
}

fn bindable(objects: Value) -> Value {
    let mut template = template(objects, json!([]));
    template["metadata"]["annotations"] =
        json!({"template.manciple.dev/binding-type": "postgresql"});
    template
}

/// One object, which is waited for for ever.
fn waits() -> Value {
    let never = json!({"template.manciple.dev/ready-when": "self.data.come == 'yes'"});
    bindable(json!([map("waits", never)]))
}

async fn until_waiting(town: &Town, name: &str) -> Value {
    town.until(name, "waiting", |it| it["status"]["objects"][0]["state"] == "Waiting").await
}

/// Nothing of the namespace that the one who forges may read has it.
async fn is_nowhere(town: &Town, name: &str) {
    let instance = town.get(name).await;
    assert!(!instance.to_string().contains(PLANTED), "{instance:#}");
    for secret in town.objects("v1", "Secret").list(&Default::default()).await.unwrap() {
        let found = secret.metadata.name.unwrap();
        assert_ne!(town.secret(&found, "password").await.as_deref(), Some(PLANTED), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_elsewhere_is_waited_for_exposed_and_removed() {
    let town = Town::new("forged-not").await;
    let elsewhere = Elsewhere::of(&town).await;
    let (user, _wide) = administrator(&town).await;
    let at_once = json!({"template.manciple.dev/ready-when": "self.metadata.name == 'far'"});
    let mut objects = json!([database("db", PLANTED), map("far", at_once)]);
    for object in objects.as_array_mut().unwrap() {
        object["metadata"]["namespace"] = json!(elsewhere.namespace);
    }
    town.order("i", &user, bindable(objects)).await;
    let instance = town.ready("i").await;
    assert_eq!(instance["status"]["objects"][1]["state"], "Ready");
    let name = instance["status"]["binding"]["name"].as_str().unwrap();
    assert_eq!(town.secret(name, "password").await.as_deref(), Some(PLANTED));
    town.delete("i").await;
    town.gone("i").await;
    for (kind, name) in [("Secret", "db"), ("ConfigMap", "far")] {
        let found = elsewhere.objects(&town, ("v1", kind)).get_opt(name).await.unwrap();
        assert_eq!(found, None, "{kind}");
    }
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_another_namespace_that_a_status_names_is_not_bound() {
    let town = Town::new("forged-binding").await;
    let elsewhere = Elsewhere::of(&town).await;
    let (user, _wide) = administrator(&town).await;
    town.order("i", &user, waits()).await;
    let instance = until_waiting(&town, "i").await;
    let prey =
        elsewhere.labelled(&town, ("v1", "Secret"), &instance, database("db", PLANTED)).await;
    town.patch("i", "status", json!({"status": {"objects": [prey]}})).await;
    assert_eq!(town.failed("i").await, "Secret db: it is not of this instance");
    is_nowhere(&town, "i").await;
    town.delete("i").await;
    town.gone("i").await;
    let secrets = elsewhere.objects(&town, ("v1", "Secret"));
    assert!(secrets.get_opt("db").await.unwrap().is_some(), "it is somebody else's");
    town.remove().await;
}

/// Of one that is ready it is looked at again what is exposed, whenever drift is.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_another_namespace_that_a_status_names_is_not_bound_later() {
    let mut town = Town::still("forged-drift").await;
    (town.settings.drift, town.settings.drift_interval) = (Drift::Report, Duration::from_secs(1));
    town.start().await;
    let elsewhere = Elsewhere::of(&town).await;
    let (user, _wide) = administrator(&town).await;
    let objects = json!([database("own", "own"), map("drifts", json!({}))]);
    town.order("i", &user, bindable(objects)).await;
    let instance = town.ready("i").await;
    let binding = instance["status"]["binding"].clone();
    assert!(binding.is_object(), "{instance:#}");
    let prey =
        elsewhere.labelled(&town, ("v1", "Secret"), &instance, database("db", PLANTED)).await;
    // In the place of its own: of two that expose one key nothing is told.
    let mut objects = instance["status"]["objects"].clone();
    objects[0] = prey;
    town.patch("i", "status", json!({"status": {"objects": objects}})).await;
    let drift = Patch::Merge(json!({"metadata": {"labels": {OWNER: "nobody"}}}));
    let maps = town.objects("v1", "ConfigMap");
    maps.patch("drifts", &PatchParams::default(), &drift).await.unwrap();
    // It was looked at after the status was written; then a few times more.
    town.until("i", "drifted", |it| condition(it, "Drifted")["status"] == "True").await;
    sleep(Duration::from_secs(5)).await;
    is_nowhere(&town, "i").await;
    assert_eq!(town.get("i").await["status"]["binding"], binding, "it is as it was");
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_object_of_another_namespace_waits_for_is_not_told() {
    let mut town = Town::new("forged-waiting").await;
    let elsewhere = Elsewhere::of(&town).await;
    let (user, _wide) = administrator(&town).await;
    town.order("i", &user, waits()).await;
    let instance = until_waiting(&town, "i").await;
    town.kill();
    let object =
        json!({"metadata": {"name": "prey"}, "spec": {"template": template(json!([]), json!([]))}});
    let mut prey = elsewhere.labelled(&town, INSTANCE, &instance, object).await;
    let said = json!({"status": {"conditions": [{
        "type": "Ready", "status": "False", "reason": "Waiting", "message": PLANTED,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]}});
    let (api, params) = (elsewhere.objects(&town, INSTANCE), PatchParams::default());
    api.patch_status("prey", &params, &Patch::Merge(said)).await.unwrap();
    prey["state"] = json!("Waiting");
    town.patch("i", "status", json!({"status": {"objects": [prey]}})).await;
    // Whoever comes anew watches what is said to be waited for.
    town.start().await;
    assert_eq!(town.failed("i").await, "TemplateInstance prey: it is not of this instance");
    is_nowhere(&town, "i").await;
    town.delete("i").await;
    town.gone("i").await;
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_label_and_a_status_name_is_not_removed() {
    let town = Town::new("forged-removal").await;
    let elsewhere = Elsewhere::of(&town).await;
    let (user, _wide) = administrator(&town).await;
    town.order("i", &user, template(json!([map("own", json!({}))]), json!([]))).await;
    let instance = town.ready("i").await;
    let kind = ("v1", "ConfigMap");
    let far = elsewhere.labelled(&town, kind, &instance, map("far", json!({}))).await;
    let mut near = map("near", json!({}));
    near["metadata"]["labels"] = json!({OWNER: instance["metadata"]["uid"]});
    town.make(near).await;
    let near = town.object("v1", "ConfigMap", "near").await.unwrap();
    // Its path is that of the object, and its namespace that of nothing.
    let mut path = reference(kind, &near);
    path["ref"]["namespace"] = json!(format!("{}/configmaps/near?x=", town.cluster.namespace));
    path["ref"]["name"] = json!("other");
    let mut objects = instance["status"]["objects"].as_array().unwrap().clone();
    objects.extend([far, path, reference(kind, &near)]);
    town.patch("i", "status", json!({"status": {"objects": objects}})).await;
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(town.object("v1", "ConfigMap", "own").await, None, "it goes with its instance");
    assert!(town.object("v1", "ConfigMap", "near").await.is_some(), "nothing owns it");
    let found = elsewhere.objects(&town, kind).get_opt("far").await.unwrap();
    assert!(found.is_some(), "nothing marks it");
    town.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binder_is_given_what_was_made_elsewhere_and_not_what_a_status_names() {
    let town = Town::new("forged-bind").await;
    let elsewhere = Elsewhere::of(&town).await;
    let verbs = ["get", "create", "delete"];
    let secrets = rule("", &["secrets"], &verbs);
    town.grant_in(&elsewhere.namespace, "editor", vec![secrets]).await;
    let mut far = database("far", "far");
    far["metadata"]["namespace"] = json!(elsewhere.namespace);
    let counter = Counter::of(town, &[template(json!([far]), json!([]))]).await;
    let instance = id();
    counter.made(&instance).await;
    let answer = counter.bind("editor", &instance, &id()).await;
    let given = &answer.body["credentials"];
    assert_eq!((answer.status, given), (201, &json!({"password": "far"})), "{answer:?}");
    let (town, there) = (&counter.town, counter.town.get(&instance).await);
    let prey = elsewhere.labelled(town, ("v1", "Secret"), &there, database("db", PLANTED)).await;
    town.patch(&instance, "status", json!({"status": {"objects": [prey]}})).await;
    let answer = counter.bind("editor", &instance, &id()).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.words().contains("Secret db: it is not of this instance"), "{answer:?}");
    assert!(!answer.body.to_string().contains(PLANTED), "{answer:?}");
    town.delete(&instance).await;
    town.gone(&instance).await;
    counter.remove().await;
}
