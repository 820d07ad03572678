//! Reads the configuration from environment variables: the seed's (seed "Jobs Mode", "Environment Variables"), and
//! Manciple's own for members of `kubernetes`.
//!
//! ```text
//! mode ─▶ what is served ─┬─▶ a cluster's names       ─┬─▶ times, log
//!                         └─▶ this machine's folders  ─┘
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use serde_json::Value;

use super::{Broker, Cluster, Config, Period};

/// Manciple's variables for a cluster, each with the setting that it needs. `POD_NAMESPACE` is not among them: any pod
/// may have it.
const OF_A_CLUSTER: [(&str, &str); 2] = [
    (
        "MANCIPLE_JOB_NAMESPACES",
        "is for Broker resources: set MANCIPLE_BROKERS too, or give kubernetes.brokers in the file, or unset it",
    ),
    (
        "MANCIPLE_IMAGE",
        "is for pods of a cluster: set JOBS_IMAGE or MANCIPLE_BROKERS too, or give kubernetes in the file, or unset it",
    ),
];

/// The default of Steward's `JOBS_TIMEOUT`, which is that of Manciple's operations, too.
const STEWARDS_TIMEOUT: Duration = Duration::from_secs(15 * 60);

impl Config {
    /// Takes over the variables that are set. An empty one counts as not set.
    ///
    /// # Errors
    /// If a variable has an invalid value, or would have no effect: with its name and the remedy.
    pub(crate) fn take_environment(
        &mut self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<()> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        self.take_mode(set)?;
        self.take_what_is_served(set)?;
        match &mut self.kubernetes {
            Some(cluster) => take_names(cluster, set),
            None => take_folders(&mut self.broker, set)?,
        }
        self.take_timeout(set)?;
        if let Some(level) = set("LOG_LEVEL").filter(|_| self.jobs_mode) {
            self.log.level = Some(of_steward(level));
        }
        Ok(())
    }

    fn take_mode(&mut self, set: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
        if let Some(mode) = set("STEWARD_MODE") {
            ensure!(
                mode == "jobs",
                "STEWARD_MODE is {mode:?}: only `jobs` is served; unset it or set it to jobs"
            );
            self.jobs_mode = true;
            // It told the Stewards of a namespace apart.
            self.broker.name = set("BROKER_NAME").or(self.broker.name.take());
        }
        Ok(())
    }

    /// Takes over an image or the use of `Broker`s: either makes a cluster the place of records and runs.
    fn take_what_is_served(&mut self, set: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
        if let Some(image) = set("JOBS_IMAGE") {
            self.kubernetes.get_or_insert_default().image = Some(image);
        }
        if let Some(how) = set("MANCIPLE_BROKERS") {
            let several = serde_json::from_value(Value::String(how.clone()));
            let several = several.ok().with_context(|| {
                format!("MANCIPLE_BROKERS is {how:?}: give together or apart, or unset it")
            })?;
            self.kubernetes.get_or_insert_default().brokers = Some(several);
        }
        Ok(())
    }

    fn take_timeout(&mut self, set: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
        let timeout = match set("JOBS_TIMEOUT") {
            Some(millis) => {
                let millis: u64 = millis
                    .parse()
                    .with_context(|| format!("JOBS_TIMEOUT is {millis:?}: give milliseconds"))?;
                let timeout = Period::new(Duration::from_millis(millis));
                let timeout = timeout.map_err(|why| anyhow!("JOBS_TIMEOUT: {why}"))?;
                self.operations.timeout = Some(timeout);
                self.jobs_timeout = true;
                timeout
            }
            // As its Deployment is: whoever writes a file says there what differs from ours.
            None if self.jobs_mode && !self.is_of_a_file => Period(STEWARDS_TIMEOUT),
            None => return Ok(()),
        };
        // There it was the time of a pod, from its creation on, whatever it was for.
        self.catalog.timeout.get_or_insert(timeout);
        if let Some(cluster) = &mut self.kubernetes {
            cluster.start_timeout.get_or_insert(timeout);
        }
        Ok(())
    }
}

/// Takes over the names of a cluster's objects.
fn take_names(cluster: &mut Cluster, set: impl Fn(&str) -> Option<String>) {
    if let Some(namespaces) = set("MANCIPLE_JOB_NAMESPACES") {
        let names = namespaces.split(',').map(|name| name.trim().to_owned());
        cluster.job_namespaces = names.filter(|name| !name.is_empty()).collect();
    }
    for (name, slot) in [
        ("POD_NAMESPACE", &mut cluster.namespace),
        ("JOBS_CONFIG_MAP", &mut cluster.config_map),
        ("JOBS_SECRET", &mut cluster.secret),
        ("MANCIPLE_IMAGE", &mut cluster.agent_image),
    ] {
        *slot = set(name).or(slot.take());
    }
}

/// Takes over the folders that an executable of this machine is given.
fn take_folders(broker: &mut Broker, set: impl Fn(&str) -> Option<String>) -> anyhow::Result<()> {
    for (name, why) in OF_A_CLUSTER {
        ensure!(set(name).is_none(), "{name} {why}");
    }
    for (name, slot) in
        [("JOBS_CONFIG_MAP", &mut broker.config_dir), ("JOBS_SECRET", &mut broker.secret_dir)]
    {
        if let Some(directory) = set(name) {
            ensure!(
                Path::new(&directory).is_dir(),
                "{name} is {directory:?}, which is not a directory: without JOBS_IMAGE it is one of this \
                 machine, with a file for each key"
            );
            *slot = Some(PathBuf::from(directory));
        }
    }
    Ok(())
}

/// Translates a log level of Steward, which takes an unknown word for `info`. A list of targets is Manciple's own, and
/// stays.
pub(super) fn of_steward(level: String) -> String {
    match level.to_lowercase().as_str() {
        "warning" => "warn",
        "critical" => "error",
        known @ ("off" | "error" | "warn" | "info" | "debug" | "trace") => known,
        _ if level.contains(['=', ',']) => return level,
        _ => "info",
    }
    .to_owned()
}
