//! `kubernetes` of the configuration: a cluster as the place of records and runs, and what runs on it.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use kubernetes::brokers::resources_fault;
use kubernetes::syntax::is_subdomain;
use kubernetes::{Delivery, JobSettings, PodPolicy};
use serde::Deserialize;
use serde_json::Value;

use super::{Config, Period, Templates, namespace};

/// The file from which a pod reads its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The member `kubernetes`: present, or given by the seed's variables, it makes a cluster the place of
/// records and runs.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cluster {
    /// The namespace of the resources and the Jobs; that of the pod, by default.
    pub(crate) namespace: Option<String>,
    /// The image that has `/bin/broker`.
    pub(crate) image: Option<String>,
    /// `Broker` resources instead of an image, and how they are served.
    pub(crate) brokers: Option<Several>,
    /// OpenShift templates as services, beside what else is served.
    pub(crate) templates: Option<Templates>,
    /// The namespaces in which `Broker`s may have their Jobs, beside the namespace.
    pub(crate) job_namespaces: Vec<String>,
    /// The way in which the agent comes into pods.
    pub(crate) agent_delivery: AgentDelivery,
    /// For delivery by a ConfigMap: the file of the packed agent on this machine.
    pub(crate) agent_file: Option<PathBuf>,
    /// For delivery by an init container: the image that has the agent; by default that of the pod that this runs in.
    pub(crate) agent_image: Option<String>,
    /// For delivery by an init container: the path of the agent in its image.
    pub(crate) agent_path: Option<String>,
    /// For delivery by an init container: its requests and limits, as in a container.
    pub(crate) agent_resources: Option<Value>,
    /// The ConfigMap that is mounted at `/config`.
    pub(crate) config_map: Option<String>,
    /// The Secret that is mounted at `/secret`.
    pub(crate) secret: Option<String>,
    /// Further settings of the pods.
    pub(crate) pod: PodPolicy,
    /// How long a pod may take to begin.
    pub(crate) start_timeout: Option<Period>,
    /// The period after which a new key of reports is made.
    pub(crate) key_rotation: Option<Period>,
    /// How long the Job of a run that succeeded is kept.
    pub(crate) keep_succeeded: Option<Period>,
    /// How long the Job of a run that failed is kept.
    pub(crate) keep_failed: Option<Period>,
    /// The kubeconfig of the cluster, if this does not run in a pod of it.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The names of these settings, as the user gave them, for faults.
    #[serde(skip)]
    pub(crate) spelling: Spelling,
}

/// The names in faults of the settings that can be given in several ways.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spelling {
    pub(crate) namespace: &'static str,
    pub(crate) agent_file: &'static str,
    pub(crate) agent_image: &'static str,
    pub(crate) by_init_container: &'static str,
}

/// The names as members of a configuration.
impl Default for Spelling {
    fn default() -> Self {
        Self {
            namespace: "kubernetes.namespace",
            agent_file: "kubernetes.agent_file",
            agent_image: "kubernetes.agent_image",
            by_init_container: "agent_delivery: init-container",
        }
    }
}

/// How the agent comes into pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AgentDelivery {
    /// Mounted from a ConfigMap.
    #[default]
    ConfigMap,
    /// Copied out of our image, where nothing may be executed from a ConfigMap.
    InitContainer,
}

/// The ways to serve several brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Several {
    /// As one catalog, at `/v2`.
    Together,
    /// Each with its own, at `/brokers/NAME/v2`.
    Apart,
}

impl Cluster {
    /// Whether nothing but templates is served.
    pub(crate) fn is_of_templates(&self) -> bool {
        self.templates.is_some() && self.image.is_none() && self.brokers.is_none()
    }

    /// Whether this runs in a pod of the cluster. Even if no kubeconfig is configured there may be that of a person,
    /// which the client finds by itself.
    pub(crate) fn is_in_a_pod(&self) -> bool {
        self.has_account(Path::new(NAMESPACE_FILE))
    }

    /// Whether this runs in a pod, by the file that comes with a service account, without which a pod cannot use the
    /// cluster.
    fn has_account(&self, namespace: &Path) -> bool {
        self.kubeconfig.is_none() && namespace.exists()
    }

    pub(crate) fn namespace(&self) -> anyhow::Result<String> {
        self.namespace_or(None)
    }

    /// Does as [`Self::namespace`]; returns `otherwise` if none is given and this is no pod of a cluster.
    pub(crate) fn namespace_or(&self, otherwise: Option<&str>) -> anyhow::Result<String> {
        let ours = || std::fs::read_to_string(NAMESPACE_FILE).ok();
        let member = self.spelling.namespace;
        let given = self.namespace.clone().filter(|name| !name.is_empty());
        let name = given.or_else(ours).or(otherwise.map(str::to_owned)).with_context(|| {
            format!("{member}: give one (or POD_NAMESPACE), for this is no pod of a cluster")
        })?;
        namespace(&name).map_err(|fault| anyhow!("{member} (or POD_NAMESPACE): {name:?} {fault}"))
    }

    /// The settings of Jobs, by a configuration that [`Config::check`] accepts; `Broker`s each say their own image.
    pub(crate) fn jobs(
        &self,
        config: &Config,
        name: &str,
        namespace: &str,
        delivery: impl Into<Delivery>,
    ) -> JobSettings {
        let image = self.image.as_deref().unwrap_or_default();
        let base = JobSettings::new(namespace, name, image, delivery);
        JobSettings {
            config_map: self.config_map.clone(),
            secret: self.secret.clone(),
            pod: self.pod.clone(),
            start_timeout: Period::or(self.start_timeout, base.start_timeout),
            grace: Period::or(config.broker.grace, base.grace),
            output_limit: config.broker.output_limit,
            log_limit: config.broker.log_limit,
            catalog_timeout: Period::or(config.catalog.timeout, base.catalog_timeout),
            catalog_file: config.catalog.file.clone(),
            key_rotation: Period::or(self.key_rotation, base.key_rotation),
            keep_succeeded: Period::or(self.keep_succeeded, base.keep_succeeded),
            keep_failed: Period::or(self.keep_failed, base.keep_failed),
            ..base
        }
    }

    /// The faults in these settings, each with its member and the remedy. An agent image beside the other way of
    /// delivery is no fault: it can come from a variable.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        let by_map = self.agent_delivery == AgentDelivery::ConfigMap;
        [
            ("agent_file", self.agent_file.is_some() && !by_map, "config-map"),
            ("agent_path", self.agent_path.is_some() && by_map, "init-container"),
            ("agent_resources", self.agent_resources.is_some() && by_map, "init-container"),
        ]
        .into_iter()
        .filter_map(|(member, wrong, of)| {
            let words = format!("kubernetes.{member}: is for agent_delivery: {of}; leave it out");
            wrong.then_some(words)
        })
        .chain(self.agent_resources.iter().filter_map(|resources| {
            let fault = resources_fault(resources, "kubernetes.agent_resources")?;
            Some(format!("{}: {}", fault.path, fault.message))
        }))
        .chain(self.of_one_or_several())
        .chain(self.names())
        .chain(self.job_namespaces.iter().enumerate().filter_map(|(index, name)| {
            let fault = namespace(name).err()?;
            Some(format!("kubernetes.job_namespaces[{index}]: {name:?}: {fault}"))
        }))
        .chain(
            kubernetes::brokers::pod_faults(&self.pod, "kubernetes.pod", &self.mounted())
                .into_iter()
                .map(|fault| format!("{}: {}", fault.path, fault.message)),
        )
        .chain(self.templates.iter().flat_map(|templates| {
            let faults = templates.faults().into_iter();
            faults.map(|fault| format!("kubernetes.templates.{fault}"))
        }))
    }

    /// The faults where a setting is missing, or is for one broker and given with several, or the other way round.
    /// Templates alone take none of these settings.
    fn of_one_or_several(&self) -> Vec<String> {
        if self.is_of_templates() {
            return Vec::new();
        }
        if self.brokers.is_some() {
            let of_one = [
                ("image (or JOBS_IMAGE)", self.image.is_some()),
                ("config_map (or JOBS_CONFIG_MAP)", self.config_map.is_some()),
                ("secret (or JOBS_SECRET)", self.secret.is_some()),
                ("pod", self.pod != PodPolicy::default()),
            ];
            let given = of_one.into_iter().filter(|(_, given)| *given);
            let words = |(member, _): (&str, bool)| {
                format!(
                    "kubernetes.{member}: is for one broker, and kubernetes.brokers for several; make a \
                     Broker resource of it, or leave kubernetes.brokers out"
                )
            };
            return given.map(words).collect();
        }
        let image = "kubernetes.image: give the broker's image (or JOBS_IMAGE); or give \
                     kubernetes.brokers: together or apart, and say the brokers in Broker resources; or give \
                     kubernetes.templates";
        let further = "kubernetes.job_namespaces: is for Broker resources; give kubernetes.brokers too, or \
                       leave it out";
        [(image, self.image.is_none()), (further, !self.job_namespaces.is_empty())]
            .into_iter()
            .filter(|(_, wrong)| *wrong)
            .map(|(words, _)| words.to_owned())
            .collect()
    }

    /// The volumes of a broker's configuration that are mounted: name and path.
    fn mounted(&self) -> Vec<(&'static str, &'static str)> {
        let config = self.config_map.as_ref().map(|_| ("config", "/config"));
        config.into_iter().chain(self.secret.as_ref().map(|_| ("secret", "/secret"))).collect()
    }

    /// The faults where an image or object cannot have its name: otherwise only a refused Job, or a waiting pod, would
    /// show it.
    fn names(&self) -> impl Iterator<Item = String> {
        let images = [("image", &self.image), ("agent_image", &self.agent_image)];
        let is_image = |name: &String| !name.is_empty() && !name.contains(char::is_whitespace);
        let images = images.into_iter().filter(move |(_, it)| !it.iter().all(is_image)).map(
            |(member, _)| format!("kubernetes.{member}: must be the name of an image, such as registry.example/broker:1"),
        );
        let objects = [("config_map", &self.config_map), ("secret", &self.secret)];
        let is_name = |name: &String| is_subdomain(name);
        let objects = objects.into_iter().filter(move |(_, it)| !it.iter().all(is_name));
        images.chain(objects.map(|(member, _)| {
            format!(
                "kubernetes.{member}: must be a name: small letters, digits, - and ., at most 253"
            )
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_known_by_its_service_account_and_not_by_the_want_of_a_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let (mounted, none) = (folder.path().join("namespace"), folder.path().join("none"));
        std::fs::write(&mounted, "n").unwrap();
        for (case, kubeconfig, file, expected) in [
            ("in a pod", None, &mounted, true),
            ("a person's kubeconfig is found", None, &none, false),
            ("a kubeconfig", Some("config"), &none, false),
            ("a pod of another cluster", Some("config"), &mounted, false),
        ] {
            let kubeconfig = kubeconfig.map(Into::into);
            let cluster = Cluster { kubeconfig, ..Cluster::default() };
            assert_eq!(cluster.has_account(file), expected, "{case}");
        }
    }
}
