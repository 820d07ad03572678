//! A broker whose instances are objects of the cluster that it serves: a ConfigMap of settings each.
//!
//! [`Settings`] is the work, [`serve`] puts it into a process of its own: orders become `ServiceInstance`
//! resources, the replica that leads carries them out and sets their conditions, `last_operation` reads
//! them, and `kubectl delete serviceinstance` is a deprovision.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::in_process::InProcess;
use engine::policy::OnLost;
use engine::{Engine, Policy, Ports, SystemClock};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kubernetes::{Events, KubernetesStore, Lead, names};
use osb::server::{Authentication, Credentials, Limits};
use osb::{
    Backend, BindingBody, Broker, Catalog, Failure, FailureKind, InstanceId, Object, Output,
    Sensitive, Work,
};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;

/// Names the broker in ids, labels and the Lease.
const NAME: &str = "settings";
/// How often the catalog is asked for again.
const CATALOG: Duration = Duration::from_secs(600);

/// Keeps settings in ConfigMaps of a namespace.
pub struct Settings {
    maps: Api<ConfigMap>,
    namespace: String,
}

#[derive(Deserialize)]
struct Order {
    #[serde(default)]
    values: BTreeMap<String, String>,
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
        let Order { values } = work.parameters()?;
        work.progress.report("writing the settings");
        let name = Self::name(&work.instance_id);
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": values,
        });
        let apply = PatchParams::apply(NAME).force();
        self.maps.patch(&name, &apply, &Patch::Apply(map)).await.map_err(failed)?;
        Ok(Output::default())
    }
}

impl Broker for Settings {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        let parameters = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
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
                {"id": "e2b1-later", "name": "later", "description": "After three seconds"},
            ],
        }]}))
        .map_err(|error| Failure::failed(error.to_string()))
    }

    async fn provision(&self, work: Work) -> Result<Output, Failure> {
        if work.plan_id.as_str() == "e2b1-later" {
            tokio::time::sleep(Duration::from_secs(3)).await;
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

/// What the API server refuses as invalid stays so; anything else may pass.
#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn failed(error: kube::Error) -> Failure {
    let kind = match &error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => FailureKind::Failed,
        _ => FailureKind::Transient,
    };
    Failure::new(kind, format!("the ConfigMap: {error}"))
}

/// Serves until `end`: answers on `listener`, and carries out what is ordered while it leads. `identity` is
/// the name of this replica among others.
///
/// # Errors
/// If the cluster cannot be asked, or the kinds of `manciple.dev` are not installed.
pub async fn serve(
    client: Client,
    namespace: &str,
    identity: &str,
    credentials: Credentials,
    listener: TcpListener,
    end: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let settings =
        kubernetes::Settings { namespace: namespace.to_owned(), broker: NAME.to_owned() };
    let store = Arc::new(KubernetesStore::open(client.clone(), settings).await?);
    let lead = Arc::new(Lead::new(client.clone(), namespace, NAME, identity));
    // Work that was under way in a replica that is gone is begun again: it may be, as ours is the same
    // however often it is done.
    let policy = Policy { broker: NAME.to_owned(), lost: OnLost::Retry, ..Policy::default() };
    let ports = Ports {
        store: Arc::clone(&store) as _,
        runner: Arc::new(InProcess::new(Settings::new(client, namespace))),
        clock: Arc::new(SystemClock),
        observer: Arc::new(Events::new(Arc::clone(&store), Arc::new(()))),
    };
    let engine = Engine::new(policy, ports);
    engine.set_driving(false);
    engine.load_catalog().await?;
    tokio::spawn(engine.clone().keep_catalog(CATALOG));
    tokio::spawn(engine.clone().sweep());
    let control = tokio::spawn(kubernetes::control(engine.clone(), store, Arc::clone(&lead)));
    let keep = tokio::spawn({
        let lead = Arc::clone(&lead);
        async move { lead.keep().await }
    });
    let backend: Arc<dyn Backend> = Arc::new(engine.clone());
    let settings = osb::server::Settings::new(Authentication::fixed(credentials));
    let router = osb::server::router(backend, settings);
    osb::server::serve(listener, router, None, Limits::default(), end).await;
    engine.set_driving(false);
    keep.abort();
    control.abort();
    lead.give_back().await;
    Ok(())
}
