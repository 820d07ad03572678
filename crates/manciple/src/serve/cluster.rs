//! Connects to the cluster that a configuration names, where records are resources, runs are Jobs, and one of several
//! replicas leads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use kubernetes::access::{Followed, Reviews};
use kubernetes::brokers::{Brokers, Registry};
use kubernetes::own;
use kubernetes::{
    Bonds, Client, Delivery, JobRunner, JobSettings, KubernetesStore, Lead, PackedAgent,
    StoreSettings,
};

use super::access::Access;
use super::config::{AgentDelivery, Auth, Cluster, Config, Spelling};
use crate::process::{identity, pod};
use crate::random;

/// The name of the packed agent's file, as it goes into a ConfigMap.
const PACKED_AGENT: &str = "manciple-agent.packed";

/// A cluster to which there is a connection.
pub(crate) struct Connected {
    pub(crate) client: Client,
    /// The settings of runs, but for what `Broker`s say.
    base: JobSettings,
    further: Vec<String>,
    /// The registry of `Broker`s, if these are served.
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) lead: Arc<Lead>,
}

/// The store and the runner of a broker's name: of a group of brokers, or of a single one.
pub(crate) struct Opened {
    pub(crate) store: Arc<KubernetesStore>,
    pub(crate) runner: JobRunner,
    /// The brokers of the group, if they are `Broker`s.
    pub(crate) brokers: Option<Arc<Brokers>>,
}

impl Connected {
    /// The namespace of all resources.
    pub(crate) fn namespace(&self) -> &str {
        &self.base.namespace
    }

    /// The further namespaces in which Jobs may be.
    pub(crate) fn further(&self) -> &[String] {
        &self.further
    }

    /// Opens the records of a broker's name, and its runs.
    pub(crate) async fn open(&self, name: &str) -> anyhow::Result<Opened> {
        let base = JobSettings { broker: name.to_owned(), ..self.base.clone() };
        let settings = StoreSettings { namespace: base.namespace.clone(), broker: name.to_owned() };
        let store = Arc::new(KubernetesStore::open(self.client.clone(), settings).await?);
        let client = self.client.clone();
        let bonds = Bonds { store: Some(Arc::clone(&store)), lead: Some(Arc::clone(&self.lead)) };
        if self.registry.is_none() {
            let runner = JobRunner::open(client, base, bonds).await?;
            return Ok(Opened { store, runner, brokers: None });
        }
        let brokers = Brokers::new(base, self.further.clone());
        let runner = JobRunner::open_group(client, Arc::clone(&brokers), bonds).await?;
        Ok(Opened { store, runner, brokers: Some(brokers) })
    }
}

#[cfg(test)]
impl Connected {
    /// A connection to an API server of a test, in the namespace `home`.
    pub(crate) fn before(client: Client, registry: &Arc<Registry>, name: &str) -> Self {
        let base = JobSettings::new("home", name, "", "agent");
        let lead = Arc::new(Lead::new(client.clone(), "home", name, "this"));
        let registry = Some(Arc::clone(registry));
        Self { client, base, further: Vec::new(), registry, lead }
    }
}

impl Cluster {
    /// Connects to the cluster, and finds out what has to be known before anything is opened.
    pub(crate) async fn connect(&self, config: &Config, name: &str) -> anyhow::Result<Connected> {
        let namespace = self.namespace()?;
        let client = kubernetes::client(self.kubeconfig.as_deref()).await?;
        let delivery = self.delivery(&client, &namespace).await?;
        let base = self.jobs(config, name, &namespace, delivery);
        let registry = match self.brokers {
            Some(_) => Some(Registry::open(client.clone(), &namespace).await?),
            None => None,
        };
        let lead = Arc::new(Lead::new(client.clone(), &namespace, name, &identity()?));
        Ok(Connected { client, base, further: self.job_namespaces.clone(), registry, lead })
    }

    /// The access to the cluster for authenticating requests.
    pub(crate) async fn access(&self, auth: &Auth) -> anyhow::Result<Access> {
        if auth.of_cluster().is_none() {
            return Ok(Access::default());
        }
        let client = kubernetes::client(self.kubeconfig.as_deref()).await?;
        let names: Vec<_> = auth.secrets.iter().map(|secret| secret.name.clone()).collect();
        let followed = match names.is_empty() {
            true => None,
            false => Some(Followed::open(client.clone(), &self.namespace()?, &names).await),
        };
        let tokens = auth
            .kubernetes
            .clone()
            .map(|tokens| (Reviews::new(client, tokens.audiences.clone()), tokens));
        Ok(Access { followed, tokens })
    }

    /// The password of the first user, which all replicas share: in a Secret, made at the first start.
    pub(crate) async fn first_password(&self, name: &str) -> anyhow::Result<String> {
        let namespace = self.namespace()?;
        let client = kubernetes::client(self.kubeconfig.as_deref()).await?;
        let fresh = random::text()?;
        let (secret, password) = own::shared_password(client, &namespace, name, &fresh).await?;
        tracing::warn!(
            user = super::secrets::FIRST_USER,
            %secret,
            "no users are configured: the password of one is in a Secret, under the key password"
        );
        Ok(password)
    }

    /// The way in which the agent comes into pods.
    pub(crate) async fn delivery(
        &self,
        client: &Client,
        namespace: &str,
    ) -> anyhow::Result<Delivery> {
        match self.packed()? {
            Some(agent) => Ok(Delivery::ConfigMap(agent)),
            None => self.image(client, namespace).await,
        }
    }

    /// The agent for a ConfigMap; none if an init container brings it.
    fn packed(&self) -> anyhow::Result<Option<PackedAgent>> {
        if self.agent_delivery == AgentDelivery::InitContainer {
            return Ok(None);
        }
        let file = self.agent_file.clone().unwrap_or_else(packed_agent);
        let Spelling { agent_file, by_init_container, .. } = self.spelling;
        PackedAgent::read(&file).map(Some).map_err(|error| {
            anyhow!(
                "{agent_file}: {error}; give the packed agent, manciple-agent.packed of the image or of \
                 `cargo xtask agent`, or say {by_init_container}"
            )
        })
    }

    /// The image for an init container.
    async fn image(&self, client: &Client, namespace: &str) -> anyhow::Result<Delivery> {
        let image = match &self.agent_image {
            Some(image) => image.clone(),
            None => own::image(client.clone(), namespace, &pod()).await.with_context(|| {
                let member = self.spelling.agent_image;
                format!("{member}: give the image that this program is in (or MANCIPLE_IMAGE)")
            })?,
        };
        let path = self.agent_path.clone().unwrap_or_else(|| Delivery::PATH.to_owned());
        Ok(Delivery::InitContainer { image, path, resources: self.agent_resources.clone() })
    }
}

/// The path of the packed agent: beside this program, or where Manciple's image has it.
fn packed_agent() -> PathBuf {
    let ours = std::env::current_exe().unwrap_or_default().with_file_name(PACKED_AGENT);
    if ours.is_file() { ours } else { Path::new("/").join(PACKED_AGENT) }
}
