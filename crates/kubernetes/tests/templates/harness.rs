//! A namespace with users, a controller, and what a test asks of both.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use kubernetes::templates::names::{Kind, VERIFIED};
use kubernetes::templates::verified::{self, Word};
use kubernetes::templates::{
    Controller, DRIFT_INTERVAL, Drift, Requesters, Settings, WORKERS, install, seal_key,
};
use kubernetes::{Client, Lead};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::support::{Cluster, wait};

/// The longest that anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// The name of the controllers here.
const NAME: &str = "templates";

pub(crate) struct Town {
    pub(crate) cluster: Cluster,
    pub(crate) settings: Settings,
    seal: ring::hmac::Key,
    controller: Option<JoinSet<()>>,
}

impl Town {
    /// With a controller that runs.
    pub(crate) async fn new(test: &str) -> Self {
        let mut town = Self::still(test).await;
        town.start().await;
        town
    }

    /// Without one. `editor` may edit the namespace, and `viewer` view it.
    pub(crate) async fn still(test: &str) -> Self {
        let cluster = Cluster::new(test).await;
        Self::of(cluster).await
    }

    pub(crate) async fn of(cluster: Cluster) -> Self {
        install(cluster.client.clone()).await.unwrap();
        let settings = Settings {
            namespace: cluster.namespace.clone(),
            name: NAME.to_owned(),
            requesters: Requesters::Verified,
            watched: vec![cluster.namespace.clone()],
            workers: WORKERS,
            drift: Drift::Ignore,
            drift_interval: DRIFT_INTERVAL,
            translation: None,
            longest_call: Duration::from_secs(1),
        };
        let seal = seal_key(cluster.client.clone(), &cluster.namespace, NAME).await.unwrap();
        let town = Self { cluster, settings, seal, controller: None };
        for (user, role) in [("editor", "edit"), ("viewer", "view")] {
            town.bind(user, role).await;
        }
        town
    }

    /// One whose controller keeps what is its own in the namespace of another.
    pub(crate) async fn beside(test: &str, home: &Self) -> Self {
        let mut town = Self::still(test).await;
        town.settings.namespace.clone_from(&home.settings.namespace);
        town.seal = home.seal.clone();
        town
    }

    /// Binds a user to a role of the cluster, in the namespace.
    pub(crate) async fn bind(&self, user: &str, role: &str) {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": format!("{user}-{role}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }))
        .unwrap();
        let bindings = self.cluster.api::<RoleBinding>();
        bindings.create(&PostParams::default(), &binding).await.unwrap();
    }

    pub(crate) async fn start(&mut self) {
        let client = self.cluster.client.clone();
        self.start_with(client).await;
    }

    pub(crate) async fn start_with(&mut self, client: Client) {
        let namespace = &self.settings.namespace;
        let lead = Arc::new(Lead::new(self.cluster.client.clone(), namespace, NAME, "test"));
        let controller = Controller::open(client, self.settings.clone()).await.unwrap();
        let mut tasks = JoinSet::new();
        let keeps = Arc::clone(&lead);
        tasks.spawn(async move { keeps.keep().await });
        tasks.spawn(controller.run(lead));
        self.controller = Some(tasks);
    }

    /// As a process that is killed: what it has not done is not done.
    pub(crate) fn kill(&mut self) {
        self.controller = None;
    }

    pub(crate) fn instances(&self) -> Api<DynamicObject> {
        let resource = Kind::TemplateInstance.resource();
        Api::namespaced_with(self.cluster.client.clone(), &self.cluster.namespace, &resource)
    }

    /// Orders an instance as a user, who was verified.
    pub(crate) async fn order(&self, name: &str, user: &str, template: Value) {
        self.order_with(name, template, &[("requester", json!({"username": user}))]).await;
    }

    /// The same, with further members of the spec.
    pub(crate) async fn order_with(&self, name: &str, template: Value, more: &[(&str, Value)]) {
        let mut spec = json!({"template": template});
        more.iter().for_each(|(member, value)| spec[*member] = value.clone());
        let (namespace, now) = (&self.cluster.namespace, Timestamp::now());
        let moment = (now, verified::FIRST);
        let verified = verified::seal(Word::Webhook, namespace, name, &spec, moment, &self.seal);
        self.create(name, spec, json!({VERIFIED: verified})).await;
    }

    /// Has what is ordered become something else, as a user, who was verified.
    pub(crate) async fn change(&self, name: &str, user: &str, template: Value) {
        let more = [("requester", json!({"username": user}))];
        self.change_with(name, template, &more).await;
    }

    /// The same, with further members of the spec.
    pub(crate) async fn change_with(&self, name: &str, template: Value, more: &[(&str, Value)]) {
        // As kubectl's users do, where a controller wrote in between.
        while let Err(error) = self.try_to_change(name, template.clone(), more).await {
            let is_conflict = matches!(&error, kube::Error::Api(said) if said.code == 409);
            assert!(is_conflict, "{error:?}");
        }
    }

    async fn try_to_change(
        &self,
        name: &str,
        template: Value,
        more: &[(&str, Value)],
    ) -> kube::Result<()> {
        let mut object = self.instances().get(name).await.unwrap();
        let mut spec = json!({"template": template});
        more.iter().for_each(|(member, value)| spec[*member] = value.clone());
        let made_at = object.metadata.creation_timestamp.as_ref().unwrap().0;
        let namespace = &self.cluster.namespace;
        let moment = (made_at, object.metadata.generation.unwrap() + 1);
        let verified = verified::seal(Word::Webhook, namespace, name, &spec, moment, &self.seal);
        object.metadata.annotations.as_mut().unwrap().insert(VERIFIED.to_owned(), verified);
        object.data["spec"] = spec;
        object.data.as_object_mut().unwrap().remove("status");
        self.instances().replace(name, &PostParams::default(), &object).await.map(drop)
    }

    /// Waits until what is ordered now is ready.
    pub(crate) async fn ready_again(&self, name: &str) -> Value {
        let object = self.until(name, "ready as changed", is_observed).await;
        assert_eq!(condition(&object, "Ready")["status"], "True", "{object:#}");
        assert_ne!(condition(&object, "InstantiateFailure")["status"], "True", "{object:#}");
        object
    }

    /// Waits until what is ordered now has failed; why.
    pub(crate) async fn failed_again(&self, name: &str) -> String {
        self.until(name, "failed as changed", is_observed).await;
        self.failed(name).await
    }

    pub(crate) async fn create(&self, name: &str, spec: Value, annotations: Value) {
        let resource = Kind::TemplateInstance.resource();
        let object = json!({
            "apiVersion": resource.api_version, "kind": resource.kind,
            "metadata": {"name": name, "annotations": annotations}, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.instances().create(&PostParams::default(), &object).await.unwrap();
    }

    pub(crate) async fn get(&self, name: &str) -> Value {
        serde_json::to_value(self.instances().get(name).await.unwrap()).unwrap()
    }

    /// Waits until it is there.
    pub(crate) async fn appears(&self, name: &str) {
        wait::until(&format!("{name} is never there"), PATIENCE, async || {
            self.instances().get_opt(name).await.unwrap().ok_or("not found")
        })
        .await;
    }

    /// Waits until it is so.
    pub(crate) async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        wait::until(&format!("{name} is never {what}"), PATIENCE, async || {
            let object = self.get(name).await;
            if holds(&object) { Ok(object) } else { Err(object) }
        })
        .await
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&self, name: &str) -> Value {
        let object = self.until(name, "ready", has_ended).await;
        assert_eq!(condition(&object, "Ready")["status"], "True", "{object:#}");
        assert!(condition(&object, "InstantiateFailure").is_null(), "{object:#}");
        object
    }

    /// Waits until it has failed; why.
    pub(crate) async fn failed(&self, name: &str) -> String {
        let object = self.until(name, "failed", has_ended).await;
        let failure = condition(&object, "InstantiateFailure");
        assert_eq!(failure["status"], "True", "{object:#}");
        failure["message"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.instances().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until it is gone.
    pub(crate) async fn gone(&self, name: &str) {
        wait::until(&format!("{name} stays"), PATIENCE, async || {
            self.instances().get_opt(name).await.unwrap().map_or(Ok(()), Err)
        })
        .await;
    }

    /// Patches it, or a part of it.
    pub(crate) async fn patch(&self, name: &str, part: &str, patch: Value) {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let api = self.instances();
        match part {
            "" => api.patch(name, &params, &patch).await,
            _ => api.patch_status(name, &params, &patch).await,
        }
        .unwrap();
    }

    /// An object of the namespace, as it is.
    pub(crate) async fn object(&self, api_version: &str, kind: &str, name: &str) -> Option<Value> {
        let found = self.objects(api_version, kind).get_opt(name).await.unwrap();
        found.map(|found| serde_json::to_value(found).unwrap())
    }

    /// Waits until an object is there.
    pub(crate) async fn until_there(&self, api_version: &str, kind: &str, name: &str) {
        wait::until(&format!("{kind} {name} is never there"), PATIENCE, async || {
            self.object(api_version, kind, name).await.ok_or("not found")
        })
        .await;
    }

    /// Waits until an object is gone.
    pub(crate) async fn until_gone(&self, api_version: &str, kind: &str, name: &str) {
        wait::until(&format!("{kind} {name} stays"), PATIENCE, async || {
            let found = self.object(api_version, kind, name).await;
            found.map_or(Ok(()), |object| Err(object["metadata"].clone()))
        })
        .await;
    }

    pub(crate) fn objects(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let plural = format!("{}s", kind.to_lowercase());
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            plural,
        };
        Api::namespaced_with(self.cluster.client.clone(), &self.cluster.namespace, &resource)
    }

    /// A value in a Secret, as text.
    pub(crate) async fn secret(&self, name: &str, key: &str) -> Option<String> {
        let secret = self.cluster.api::<Secret>().get_opt(name).await.unwrap()?;
        let value = secret.data.unwrap_or_default().remove(key)?;
        Some(String::from_utf8(value.0).unwrap())
    }

    pub(crate) async fn make(&self, object: Value) {
        let text = |of: &Value| of.as_str().unwrap().to_owned();
        let api = self.objects(&text(&object["apiVersion"]), &text(&object["kind"]));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Removes the namespace, and what would hold it.
    pub(crate) async fn remove(mut self) {
        self.kill();
        for object in self.instances().list(&Default::default()).await.unwrap() {
            let name = object.metadata.name.unwrap();
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let _ = self.instances().patch(&name, &PatchParams::default(), &free).await;
        }
        let records = self.cluster.api::<Secret>();
        for secret in records.list(&Default::default()).await.unwrap() {
            if secret.metadata.finalizers.is_some() {
                let name = secret.metadata.name.unwrap();
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let _ = records.patch(&name, &PatchParams::default(), &free).await;
            }
        }
        self.cluster.remove().await;
    }
}

pub(crate) fn condition(object: &Value, kind: &str) -> Value {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|it| it["type"] == kind).cloned().unwrap_or_default()
}

fn is_observed(object: &Value) -> bool {
    has_ended(object) && object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

fn has_ended(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
        || condition(object, "InstantiateFailure")["status"] == "True"
}

/// A template of these objects and parameters.
pub(crate) fn template(objects: Value, parameters: Value) -> Value {
    json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template",
        "metadata": {"name": "sample"}, "objects": objects, "parameters": parameters,
    })
}

/// One with a password that is generated, twice in what it makes.
pub(crate) fn password() -> Value {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "${NAME}"},
        "stringData": {"password": "${PASSWORD}"},
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${NAME}"},
        "data": {"name": "${NAME}", "twice": "${PASSWORD}"},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "${NAME}"},
        "spec": {"ports": [{"port": "${{PORT}}"}]},
    });
    template(
        json!([secret, map, service]),
        json!([
            {"name": "NAME", "required": true, "value": "sample"},
            {"name": "PORT", "value": "8080"},
            {"name": "PASSWORD", "generate": "expression", "from": "[a-zA-Z0-9]{24}"},
        ]),
    )
}
