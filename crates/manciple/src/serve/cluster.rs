//! Serving on Kubernetes: records as resources, runs as Jobs, several replicas of which one leads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, ensure};
use kubernetes::own;
use kubernetes::{
    Client, Delivery, JobRunner, JobSettings, KubernetesStore, Lead, PackedAgent, PodPolicy,
    Settings,
};
use serde::Deserialize;

use super::config::{Broker, Period};

/// Where a pod is told its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The agent as it goes into a ConfigMap.
const PACKED_AGENT: &str = "manciple-agent.packed";

/// The member `kubernetes`: present, or given by the seed's variables, it makes a cluster the place of
/// everything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cluster {
    /// Of the resources and the Jobs; that of the pod, by default.
    pub(crate) namespace: Option<String>,
    /// The image that has `/bin/broker`.
    pub(crate) image: Option<String>,
    /// How the agent comes into pods.
    pub(crate) agent_delivery: AgentDelivery,
    /// For a ConfigMap: the packed agent, a file of this machine.
    pub(crate) agent_file: Option<PathBuf>,
    /// For an init container: the image that has the agent; that of the pod that this runs in, by default.
    pub(crate) agent_image: Option<String>,
    /// For an init container: where the agent is in it.
    pub(crate) agent_path: Option<String>,
    /// A ConfigMap, at `/config`.
    pub(crate) config_map: Option<String>,
    /// A Secret, at `/secret`.
    pub(crate) secret: Option<String>,
    /// What else is said of the pods.
    pub(crate) pod: PodPolicy,
    /// How long a pod may take to begin.
    pub(crate) start_timeout: Option<Period>,
    /// How long the Job of a run that succeeded is kept.
    pub(crate) keep_succeeded: Option<Period>,
    /// The same of one that did not.
    pub(crate) keep_failed: Option<Period>,
    /// The cluster, where this does not run in a pod of it.
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// How the agent comes into pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AgentDelivery {
    /// Mounted from a ConfigMap.
    #[default]
    ConfigMap,
    /// Copied out of our image, where nothing may be executed from a ConfigMap.
    InitContainer,
}

/// What serves on a cluster.
pub(crate) struct Parts {
    pub(crate) store: Arc<KubernetesStore>,
    pub(crate) runner: JobRunner,
    pub(crate) lead: Arc<Lead>,
}

impl Cluster {
    /// Connects, and reads what there is.
    pub(crate) async fn open(&self, broker: &Broker, name: &str) -> anyhow::Result<Parts> {
        let namespace = self.namespace()?;
        let packed = self.packed()?;
        let client = kubernetes::client(self.kubeconfig.as_deref()).await?;
        let delivery = match packed {
            Some(agent) => Delivery::ConfigMap(agent),
            None => self.image(&client, &namespace).await?,
        };
        let settings = Settings { namespace: namespace.clone(), broker: name.to_owned() };
        let store = KubernetesStore::open(client.clone(), settings).await?;
        let jobs = self.jobs(&namespace, delivery, broker, name)?;
        let runner = JobRunner::open(client.clone(), jobs).await?;
        let lead = Lead::new(client, &namespace, name, &identity()?);
        Ok(Parts { store: Arc::new(store), runner, lead: Arc::new(lead) })
    }

    /// The password of the first user, which all replicas share: in a Secret, made at the first start.
    pub(crate) async fn first_password(&self, name: &str) -> anyhow::Result<String> {
        let namespace = self.namespace()?;
        let client = kubernetes::client(self.kubeconfig.as_deref()).await?;
        let fresh = super::random_text()?;
        let (secret, password) = own::shared_password(client, &namespace, name, &fresh).await?;
        tracing::warn!(
            user = super::secrets::FIRST_USER,
            %secret,
            "no users are configured: the password of one is in a Secret, under the key password"
        );
        Ok(password)
    }

    fn namespace(&self) -> anyhow::Result<String> {
        let ours = || std::fs::read_to_string(NAMESPACE_FILE).ok();
        self.namespace.clone().or_else(ours).context(
            "kubernetes.namespace: give one (or POD_NAMESPACE), for this is no pod of a cluster",
        )
    }

    fn jobs(
        &self,
        namespace: &str,
        delivery: Delivery,
        broker: &Broker,
        name: &str,
    ) -> anyhow::Result<JobSettings> {
        let image = self.image.as_deref();
        let image = image.context("kubernetes.image: give the broker's image (or JOBS_IMAGE)")?;
        for (given, member) in [
            (broker.command.is_some(), "command"),
            (broker.config_dir.is_some(), "config_dir"),
            (broker.secret_dir.is_some(), "secret_dir"),
            (!broker.pass_env.is_empty(), "pass_env"),
        ] {
            ensure!(!given, "broker.{member}: is for one machine; on a cluster give kubernetes.…");
        }
        let mut settings = JobSettings::new(namespace, name, image, delivery);
        let or = |period: Option<Period>, base| period.map_or(base, |period| period.0);
        settings.config_map.clone_from(&self.config_map);
        settings.secret.clone_from(&self.secret);
        settings.pod = self.pod.clone();
        settings.grace = or(broker.grace, settings.grace);
        settings.start_timeout = or(self.start_timeout, settings.start_timeout);
        settings.keep_succeeded = or(self.keep_succeeded, settings.keep_succeeded);
        settings.keep_failed = or(self.keep_failed, settings.keep_failed);
        Ok(settings)
    }
}

impl Cluster {
    /// What of one way of delivery is said beside the other. The image may be: it can come from a variable.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        let by_map = self.agent_delivery == AgentDelivery::ConfigMap;
        [
            ("agent_file", self.agent_file.is_some() && !by_map, "config-map"),
            ("agent_path", self.agent_path.is_some() && by_map, "init-container"),
        ]
        .into_iter()
        .filter_map(|(member, wrong, of)| {
            let words = format!("kubernetes.{member}: is for agent_delivery: {of}; leave it out");
            wrong.then_some(words)
        })
    }

    /// The agent for a ConfigMap; none if an init container brings it.
    fn packed(&self) -> anyhow::Result<Option<PackedAgent>> {
        if self.agent_delivery == AgentDelivery::InitContainer {
            return Ok(None);
        }
        let file = self.agent_file.clone().unwrap_or_else(packed_agent);
        PackedAgent::read(&file).map(Some).map_err(|error| {
            anyhow!(
                "kubernetes.agent_file: {error}; give the packed agent, manciple-agent.packed of the image or \
                 of `cargo xtask agent`, or say agent_delivery: init-container"
            )
        })
    }

    /// The image for an init container.
    async fn image(&self, client: &Client, namespace: &str) -> anyhow::Result<Delivery> {
        let image = match &self.agent_image {
            Some(image) => image.clone(),
            None => own::image(client.clone(), namespace, &pod()).await.context(
                "kubernetes.agent_image: give the image that this program is in (or MANCIPLE_IMAGE)",
            )?,
        };
        let path = self.agent_path.clone().unwrap_or_else(|| Delivery::PATH.to_owned());
        Ok(Delivery::InitContainer { image, path })
    }
}

/// The packed agent beside this program, or where our image has it.
fn packed_agent() -> PathBuf {
    let ours = std::env::current_exe().unwrap_or_default().with_file_name(PACKED_AGENT);
    if ours.is_file() { ours } else { Path::new("/").join(PACKED_AGENT) }
}

/// Who we are among replicas: the pod's name, and something that a pod of the same name does not have.
fn identity() -> anyhow::Result<String> {
    Ok(format!("{}-{}", pod(), &super::random_text()?[..8]))
}

/// The pod's name. Host names are cut at 63 bytes; a pod's name may be longer.
fn pod() -> String {
    let named = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    named.unwrap_or_else(|| host().trim().to_owned())
}
