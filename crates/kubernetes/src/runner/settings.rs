//! The settings of runs on a cluster.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use engine::policy::PerAction;
use engine::ports::{Run, StartError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::delivery::Delivery;

/// The time that a pod needs beside that of its broker.
const MARGIN: Duration = Duration::from_secs(30);

/// How the runs of a broker are made.
#[derive(Debug, Clone)]
pub struct JobSettings {
    /// The namespace in which Jobs are made.
    pub namespace: String,
    /// The name of the broker, from which label values are derived.
    pub broker: String,
    /// The name of the `Broker` resource with these settings; `None`: they are the program's own.
    pub resource: Option<String>,
    /// The image with `/bin/broker`.
    pub image: String,
    /// How the agent gets into pods.
    pub delivery: Delivery,
    /// The ConfigMap that is mounted at `/config`.
    pub config_map: Option<String>,
    /// The Secret that is mounted at `/secret`.
    pub secret: Option<String>,
    /// The operator's settings for pods.
    pub pod: PodPolicy,
    /// How long a pod may take to begin: until its image is there, and what it mounts.
    pub start_timeout: Duration,
    /// The grace period between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long a run may take, for actions where the broker sets that instead of the engine.
    pub deadlines: PerAction<Option<Duration>>,
    /// How many bytes a broker may print on stdout. Default: 1 MiB, as the agent has it.
    pub output_limit: Option<usize>,
    /// How many bytes of its stderr a pod's log may have. Default: 256 KiB, as the agent has it.
    pub log_limit: Option<usize>,
    /// How long a question for the catalog may take.
    pub catalog_timeout: Duration,
    /// The file with a catalog that the operator wrote, instead of the broker's answer.
    pub catalog_file: Option<PathBuf>,
    /// How often a new key for reports is made. The previous one stays valid until the next, so a run that may go on
    /// for longer is not begun.
    pub key_rotation: Duration,
    /// How long the Job of a run stays at least when it is over, so that its name is taken: the call of a former leader
    /// that was to make it may reach the API server only now, and a Job made that way could not be told from the first.
    pub linger: Duration,
    /// How long the Job of a run that succeeded is kept, with its log.
    pub keep_succeeded: Duration,
    /// How long the Job of a run that did not succeed is kept, with its log.
    pub keep_failed: Duration,
}

/// An API server carries a call out within this time, or never.
const LINGER: Duration = Duration::from_secs(60);

impl JobSettings {
    /// The settings for an image, with defaults for the rest. If `delivery` is an image, that of an init container.
    pub fn new(namespace: &str, broker: &str, image: &str, delivery: impl Into<Delivery>) -> Self {
        Self {
            namespace: namespace.to_owned(),
            broker: broker.to_owned(),
            resource: None,
            image: image.to_owned(),
            delivery: delivery.into(),
            config_map: None,
            secret: None,
            pod: PodPolicy::default(),
            start_timeout: Duration::from_secs(5 * 60),
            grace: Duration::from_secs(10),
            deadlines: PerAction::all(None),
            output_limit: None,
            log_limit: None,
            catalog_timeout: Duration::from_secs(5 * 60),
            catalog_file: None,
            key_rotation: Duration::from_secs(30 * 24 * 60 * 60),
            linger: LINGER,
            keep_succeeded: Duration::ZERO,
            keep_failed: Duration::from_secs(60 * 60),
        }
    }
}

impl JobSettings {
    /// How long the Job of a run with this timeout may exist: Kubernetes gives it up then.
    pub fn lifetime(&self, timeout: Duration) -> Duration {
        self.start_timeout + timeout + self.grace + MARGIN
    }

    /// Checks that the report of a run with this lifetime can still be opened. A key is valid for two periods once it
    /// is not the newest any more, and a replica that has not checked begins runs with it in the first of them.
    pub(super) fn opens_after(&self, lifetime: Duration) -> Result<(), StartError> {
        if lifetime <= self.key_rotation {
            return Ok(());
        }
        Err(StartError::Permanent(format!(
            "it may take {} s, and keys are changed each {} s: what it reports could not be opened; make \
             kubernetes.key_rotation longer, or operations.timeouts, or the deadline of its Broker, shorter",
            lifetime.as_secs(),
            self.key_rotation.as_secs()
        )))
    }

    /// The run with its broker's deadline for the action, if there is one.
    pub(crate) fn in_time<'r>(&self, run: &'r Run) -> Cow<'r, Run> {
        let Some(deadline) = self.deadlines.of(run.work.action) else { return Cow::Borrowed(run) };
        let mut run = run.clone();
        // The deadline that the broker is told, in seconds since 1970.
        let begins = |until: u64| until.saturating_sub(run.timeout.as_secs());
        run.work.deadline = run.work.deadline.map(|until| begins(until) + deadline.as_secs());
        run.timeout = deadline;
        Cow::Owned(run)
    }
}

/// The operator's settings for a broker's pods: fragments of a pod, spelled as in one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodPolicy {
    /// The service account; its token is not mounted unless [`Self::automount_service_account_token`] says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Whether the account's token is mounted, for brokers that call the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub automount_service_account_token: Option<bool>,
    /// Whether the container gets variables of the namespace's Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_service_links: Option<bool>,
    /// Secrets for the image's registry, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<String>,
    /// When the image is pulled. Default: Kubernetes' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Requests and limits of the broker's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Value>,
    /// The pod's security context, instead of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<Value>,
    /// The containers' security context, instead of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_security_context: Option<Value>,
    /// The labels of the nodes on which pods run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<Value>,
    /// The affinity of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Value>,
    /// The taints that the pods tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Value>,
    /// The priority class of the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Further variables of the broker's container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<Value>,
    /// Further volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Value>,
    /// Where the broker's container mounts the volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<Value>,
    /// Further labels of Jobs and pods.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub labels: Map<String, Value>,
    /// Further annotations of Jobs and pods.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub annotations: Map<String, Value>,
}
