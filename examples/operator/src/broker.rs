//! The work: what is offered, and what an order makes. All else is around it.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kubernetes::names;
use osb::{
    BindingBody, Broker, Catalog, Failure, FailureKind, InstanceId, Object, Output, Sensitive, Work,
};
use serde::Deserialize;
use serde_json::json;

/// Names the broker in ids, labels and the Lease.
pub(crate) const NAME: &str = "settings";

/// Keeps settings in ConfigMaps of a namespace.
pub struct Settings {
    maps: Api<ConfigMap>,
    namespace: String,
}

#[derive(Deserialize)]
struct Order {
    #[serde(default)]
    values: BTreeMap<String, String>,
    /// How long it takes, of the plan `later`.
    seconds: Option<u64>,
}

impl Settings {
    /// In this namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { maps: Api::namespaced(client, namespace), namespace: namespace.to_owned() }
    }

    /// The name of an instance's ConfigMap: derived, so that making it twice makes one.
    fn name(instance: &InstanceId) -> String {
        let key = engine::record::Key::Instance(instance.clone());
        format!("settings-{}", names::resource(NAME, &key))
    }

    async fn write(&self, work: &Work) -> Result<Output, Failure> {
        let Order { values, .. } = work.parameters()?;
        work.progress.report("writing the settings");
        let name = Self::name(&work.instance_id);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": values,
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": NAME}},
        });
        let apply = PatchParams::apply(NAME).force();
        self.maps.patch(&name, &apply, &Patch::Apply(map)).await.map_err(failed)?;
        Ok(Output::default())
    }
}

impl Broker for Settings {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        let parameters = json!({
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "object",
            "properties": {"values": {"type": "object", "additionalProperties": {"type": "string"}}},
            "additionalProperties": false,
        });
        let schema = json!({"service_instance": {
            "create": {"parameters": parameters}, "update": {"parameters": parameters},
        }});
        serde_json::from_value(json!({"services": [{
            "id": "7d0c6a52-settings", "name": "settings", "bindable": true, "plan_updateable": true,
            "description": "Settings that are kept in the cluster",
            "plans": [
                {"id": "e2b1-at-once", "name": "at-once", "description": "Now", "schemas": schema},
                {"id": "e2b1-later", "name": "later", "description": "After `seconds`, or three"},
            ],
        }]}))
        .map_err(|error| Failure::failed(error.to_string()))
    }

    async fn provision(&self, work: Work) -> Result<Output, Failure> {
        if work.plan_id.as_str() == "e2b1-later" {
            let Order { seconds, .. } = work.parameters()?;
            work.progress.report("waiting");
            tokio::time::sleep(Duration::from_secs(seconds.unwrap_or(3))).await;
        }
        self.write(&work).await
    }

    async fn update(&self, work: Work) -> Result<Output, Failure> {
        self.write(&work).await
    }

    async fn bind(&self, work: Work) -> Result<Output, Failure> {
        let map = self.maps.get(&Self::name(&work.instance_id)).await.map_err(failed)?;
        let mut credentials = Object::new();
        credentials.insert("namespace".to_owned(), json!(self.namespace));
        credentials.insert("name".to_owned(), json!(map.metadata.name));
        credentials.insert("values".to_owned(), json!(map.data.unwrap_or_default()));
        let credentials = Some(Sensitive::new(credentials));
        let binding = Some(BindingBody { credentials, ..BindingBody::default() });
        Ok(Output { binding, ..Output::default() })
    }

    async fn unbind(&self, _: Work) -> Result<Output, Failure> {
        Ok(Output::default())
    }

    async fn deprovision(&self, work: Work) -> Result<Output, Failure> {
        let name = Self::name(&work.instance_id);
        match self.maps.delete(&name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Output::default()),
            gone => gone.map(|_| Output::default()).map_err(failed),
        }
    }
}

/// What the API server refuses, and what somebody else has deleted, stays so; anything else may pass.
#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn failed(error: kube::Error) -> Failure {
    let (kind, why) = match &error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 404 | 422) => {
            (FailureKind::Failed, status.message.clone())
        }
        kube::Error::Api(status) => (FailureKind::Transient, status.message.clone()),
        other => (FailureKind::Transient, other.to_string()),
    };
    Failure::new(kind, format!("the ConfigMap: {why}"))
}
