//! Checks a configuration for settings that cannot be meant. They are refused at start, all at once, since each of
//! them would otherwise only be seen as a server that answers nobody, or a run that never begins.

use std::time::Duration;

use anyhow::bail;
use engine::contract::RESERVED_PREFIX;
use engine::policy::PerAction;
use osb::Action;

use super::{Cluster, Config, Period, filter};
use crate::serve::access::ClusterTokens;

/// The most of a broker's output that a pod's log can carry, in bytes; sealed it takes half as much again.
const MOST_IN_A_LOG: usize = 4 * 1024 * 1024;
/// The most of a broker's stderr that an agent writes to the pod's log, in bytes, with what runtimes add to lines.
const MOST_OF_STDERR: usize = 2 * 1024 * 1024;
/// The shortest period of reading the catalog: one that is read more often is read all the time.
const LEAST_REFRESH: Duration = Duration::from_secs(1);
/// The shortest time for a pod to begin, which is kept in whole seconds: with less every run would fail.
const LEAST_START: Duration = Duration::from_secs(1);

/// How long platforms wait for the answer to a request.
const PLATFORMS_WAIT: Duration = Duration::from_secs(60);

/// The placeholder that `operations.dashboard_url` may have.
const PLACEHOLDER: &str = "{instance_id}";

impl Config {
    /// Checks the configuration as it was read from everywhere.
    ///
    /// # Errors
    /// Every fault, a line each, with the member and the remedy.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let mut faults: Vec<String> = self
            .zeros()
            .map(|member| format!("{member}: must not be 0; give more, or leave it out"))
            .collect();
        let users = self.auth.users.iter().map(|user| user.name.as_str());
        let tokens = self.auth.tokens.iter().map(|token| token.name.as_str());
        faults.extend(repeated("auth.users", users.collect()));
        faults.extend(repeated("auth.tokens", tokens.collect()));
        let secrets = self.auth.secrets.iter().map(|secret| secret.name.as_str());
        faults.extend(repeated("auth.secrets", secrets.collect()));
        faults.extend(self.auth.kubernetes.iter().flat_map(ClusterTokens::faults));
        if let (Some(member), None) = (self.auth.of_cluster(), &self.kubernetes) {
            faults.push(format!("{member}: is for a cluster; give kubernetes too, or files"));
        }
        faults.extend(self.auth.in_vain().map(|member| {
            format!(
                "auth.disabled: lets everybody in, whatever {member} says; leave one of them out"
            )
        }));
        faults.extend(self.empty_paths().map(|member| {
            format!("{member}: is empty, which would be the folder of this file; give a path, or leave it out")
        }));
        faults.extend(self.of_one_broker());
        faults.extend(self.of_one_machine());
        let passed = self.broker.pass_env.iter().enumerate();
        faults.extend(passed.filter_map(|(index, name)| {
            Some(format!("broker.pass_env[{index}]: {}", no_variable(name)?))
        }));
        if self.catalog.refresh.is_some_and(|it| !it.0.is_zero() && it.0 < LEAST_REFRESH) {
            let why = "must be 1s at least, for the broker is run each time; or 0s: never";
            faults.push(format!("catalog.refresh: {why}"));
        }
        let start = self.kubernetes.as_ref().and_then(|cluster| cluster.start_timeout);
        if start.is_some_and(|it| it.0 < LEAST_START) {
            let why = "must be at least 1s, and so must be what JOBS_TIMEOUT gives it; give more, or leave it out";
            faults.push(format!("kubernetes.start_timeout: {why}"));
        }
        faults.extend(self.no_image().map(str::to_owned));
        faults.extend(self.pod_limits());
        faults.extend(self.key_rotation());
        faults.extend(self.holds());
        faults.extend(self.operations.dashboard_url.as_deref().and_then(dashboard_url));
        let level = self.log.level.as_deref().and_then(|level| filter(level).err());
        faults.extend(level.map(|fault| format!("log.level: {fault}")));
        faults.extend(self.kubernetes.iter().flat_map(Cluster::faults));
        refuse(&faults)
    }

    /// The fault where jobs mode has no image. An executable of this machine is not meant then, unless one is named.
    fn no_image(&self) -> Option<&'static str> {
        let is_told = self.kubernetes.is_some() || self.broker.command.is_some();
        (self.jobs_mode && !is_told).then_some(
            "JOBS_IMAGE: is missing or empty, and STEWARD_MODE=jobs needs it; give the broker's image, or, for a broker of \
             this machine, unset STEWARD_MODE or name its executable (broker.command or MANCIPLE_BROKER_COMMAND)",
        )
    }

    /// The faults where settings for one broker, as its catalog or its capabilities, are given with several.
    fn of_one_broker(&self) -> impl Iterator<Item = String> {
        let several = self.kubernetes.as_ref().is_some_and(|cluster| cluster.brokers.is_some());
        [
            ("catalog.file", self.catalog.file.is_some(), "say their own"),
            (
                "broker.capabilities",
                self.broker.capabilities.is_some(),
                "declare their own, as jobs.capabilities of what their subcommand catalog prints",
            ),
        ]
        .into_iter()
        .filter(move |(_, given, _)| several && *given)
        .map(|(member, _, how)| {
            format!("{member}: Brokers each {how}; leave it out, or leave out kubernetes.brokers")
        })
    }

    /// The faults where settings for an executable of this machine are given on a cluster: there the broker is an
    /// image, and pods are configured otherwise; templates have neither.
    fn of_one_machine(&self) -> Vec<String> {
        let keys = [
            ("key_file", &self.encryption.key_file),
            ("previous_key_file", &self.encryption.previous_key_file),
        ];
        let keys = keys.into_iter().filter(|(_, key)| self.kubernetes.is_some() && key.is_some());
        let keys = keys.map(|(member, _)| {
            format!(
                "encryption.{member}: is for one machine; on a cluster what is confidential is in Secrets, which its API \
                 server encrypts where it is told to (EncryptionConfiguration): leave it out"
            )
        });
        let cluster = self.kubernetes.as_ref().filter(|cluster| !cluster.is_of_templates());
        let Some(cluster) = cluster else { return keys.collect() };
        let broker = &self.broker;
        [
            ("command", broker.command.is_some(), "kubernetes.image", "spec.image"),
            ("config_dir", broker.config_dir.is_some(), "kubernetes.config_map", "spec.configMap"),
            ("secret_dir", broker.secret_dir.is_some(), "kubernetes.secret", "spec.secret"),
            ("pass_env", !broker.pass_env.is_empty(), "kubernetes.pod.env", "spec.pod.env"),
        ]
        .into_iter()
        .filter(|(_, given, ..)| *given)
        .map(|(member, _, of_one, of_several)| {
            let instead = match cluster.brokers {
                None => of_one.to_owned(),
                Some(_) => format!("{of_several} of a Broker"),
            };
            format!("broker.{member}: is for one machine; on a cluster give {instead} instead")
        })
        .chain(keys)
        .collect()
    }

    /// The faults where requests are held for longer than platforms wait.
    fn holds(&self) -> impl Iterator<Item = String> {
        let hold = self.policy().hold;
        let is_too_long = move |action: &Action| hold.of(*action) >= PLATFORMS_WAIT;
        Action::ALL.into_iter().filter(is_too_long).map(|action| {
            format!("operations.hold.{action}: platforms give up after 60s; give less")
        })
    }

    /// The faults where a broker's output or stderr could be larger than a pod's log can carry.
    fn pod_limits(&self) -> impl Iterator<Item = String> {
        let broker = &self.broker;
        let given = [
            ("output_limit", broker.output_limit, MOST_IN_A_LOG),
            ("log_limit", broker.log_limit, MOST_OF_STDERR),
        ];
        let on_a_cluster = self.kubernetes.is_some();
        let is_too_much = move |given: Option<usize>, most| on_a_cluster && given > Some(most);
        given.into_iter().filter(move |(_, given, most)| is_too_much(*given, *most)).map(
            |(member, _, most)| {
                format!(
                    "broker.{member}: must be {most} at most on a cluster: a kubelet keeps 10 MiB of a pod's log"
                )
            },
        )
    }

    /// The fault where a run may last longer than a key of reports. A key is kept for two periods once it is not the
    /// newest any more, and runs may begin with it in the first: they have to end within one, and so has the question
    /// for the catalog. Runs whose `Broker` sets another deadline are checked when they begin.
    fn key_rotation(&self) -> Option<String> {
        // Nothing is run for templates.
        let cluster = self.kubernetes.as_ref().filter(|cluster| !cluster.is_of_templates())?;
        let settings = cluster.jobs(self, "", "", "");
        let PerAction { provision, update, bind, unbind, deprovision } = self.policy().timeouts;
        // Where a file has the catalog nobody is asked for it.
        let catalog = Some(settings.catalog_timeout).filter(|_| self.catalog.file.is_none());
        let longest = [provision, update, bind, unbind, deprovision]
            .into_iter()
            .fold(catalog.unwrap_or_default(), Duration::max);
        let lifetime = settings.lifetime(longest);
        let least = lifetime.max(Duration::from_secs(60 * 60));
        // It goes before what the file says, and gives what the file does not.
        let timeout = if self.jobs_timeout { "JOBS_TIMEOUT" } else { "operations.timeout" };
        (settings.key_rotation < least).then(|| {
            format!(
                "kubernetes.key_rotation: must be at least 1h, and longer than any run, which may be {} s by {timeout}, \
                 operations.timeouts, catalog.timeout, kubernetes.start_timeout and broker.grace; it is {} s{}; give \
                 more, or have runs take less",
                lifetime.as_secs(),
                settings.key_rotation.as_secs(),
                if cluster.key_rotation.is_none() { ", by default" } else { "" },
            )
        })
    }

    /// The members that are an empty path.
    fn empty_paths(&self) -> impl Iterator<Item = String> {
        let cluster = self.kubernetes.as_ref();
        let optional = [
            ("data_dir", &self.data_dir),
            ("broker.command", &self.broker.command),
            ("broker.config_dir", &self.broker.config_dir),
            ("broker.secret_dir", &self.broker.secret_dir),
            ("catalog.file", &self.catalog.file),
            ("encryption.key_file", &self.encryption.key_file),
            ("encryption.previous_key_file", &self.encryption.previous_key_file),
        ];
        let given =
            optional.into_iter().filter_map(|(member, path)| Some((member, path.as_ref()?)));
        let kubeconfig = cluster.and_then(|cluster| cluster.kubeconfig.as_ref());
        let given = given.chain(kubeconfig.map(|path| ("kubernetes.kubeconfig", path)));
        let tls = self.tls.iter();
        let tls =
            tls.flat_map(|tls| [("tls.certificate", &tls.certificate), ("tls.key", &tls.key)]);
        let given = given.chain(tls).map(|(member, path)| (member.to_owned(), path));
        let users = self.auth.users.iter().enumerate();
        let users = users
            .map(|(at, user)| (format!("auth.users[{at}].password_file"), &user.password_file));
        let tokens = self.auth.tokens.iter().enumerate();
        let tokens =
            tokens.map(|(at, token)| (format!("auth.tokens[{at}].token_file"), &token.token_file));
        let all = given.chain(users).chain(tokens);
        all.filter(|(_, path)| path.as_os_str().is_empty()).map(|(member, _)| member)
    }

    /// The members that are 0 and must not be.
    fn zeros(&self) -> impl Iterator<Item = &'static str> {
        let (http, operations) = (&self.http, &self.operations);
        let timeouts = &operations.timeouts;
        let none = |period: Option<Period>| period.is_some_and(|period| period.0.is_zero());
        [
            ("http.max_connections", http.max_connections == Some(0)),
            ("http.changes_in_flight", http.changes_in_flight == Some(0)),
            ("http.body_limit", http.body_limit == Some(0)),
            ("http.head_limit", http.head_limit == Some(0)),
            ("http.body_timeout", none(http.body_timeout)),
            ("http.head_timeout", none(http.head_timeout)),
            ("http.write_timeout", none(http.write_timeout)),
            ("http.handshake_timeout", none(http.handshake_timeout)),
            ("broker.output_limit", self.broker.output_limit == Some(0)),
            ("catalog.timeout", none(self.catalog.timeout)),
            ("operations.max_runs", operations.max_runs == Some(0)),
            ("operations.max_in_progress", operations.max_in_progress == Some(0)),
            ("operations.attempts", operations.attempts == Some(0)),
            ("operations.timeout", none(operations.timeout)),
            ("operations.external_timeout", none(operations.external_timeout)),
            ("operations.timeouts.provision", none(timeouts.provision)),
            ("operations.timeouts.update", none(timeouts.update)),
            ("operations.timeouts.bind", none(timeouts.bind)),
            ("operations.timeouts.unbind", none(timeouts.unbind)),
            ("operations.timeouts.deprovision", none(timeouts.deprovision)),
        ]
        .into_iter()
        .filter_map(|(member, zero)| zero.then_some(member))
    }
}

/// Returns an error if there are faults.
///
/// # Errors
/// All of them, a line each.
pub(crate) fn refuse(faults: &[String]) -> anyhow::Result<()> {
    match faults {
        [] => Ok(()),
        [fault] => bail!("the configuration is not right: {fault}"),
        faults => bail!("the configuration is not right:\n  {}", faults.join("\n  ")),
    }
}

/// The faults for names that are there more than once: only one of their secrets would be valid.
fn repeated(member: &str, mut names: Vec<&str>) -> Vec<String> {
    names.sort_unstable();
    let mut faults: Vec<_> = names
        .windows(2)
        .filter(|pair| pair[0] == pair[1])
        .map(|pair| format!("{member}: {:?} is there more than once; rename one", pair[0]))
        .collect();
    faults.dedup();
    faults
}

/// The reason why no variable of that name can be passed on. The name is not repeated: a value may be in it.
fn no_variable(name: &str) -> Option<&'static str> {
    match name {
        name if name.is_empty() || name.contains(['=', '\0']) => Some(
            "is no name of a variable; give the name alone: the value is that of the server's own",
        ),
        name if name.starts_with(RESERVED_PREFIX) => {
            Some("names that begin with OSB_ are the contract's own; leave it out")
        }
        _ => None,
    }
}

/// The fault in a dashboard's URL, which platforms show as a link to those who have an instance. A brace has no place
/// in a URL, so one that is left is a placeholder that nobody fills in.
fn dashboard_url(template: &str) -> Option<String> {
    let is_url = |scheme| template.strip_prefix(scheme).is_some_and(|rest: &str| !rest.is_empty());
    if !["https://", "http://"].into_iter().any(is_url) {
        return Some(format!(
            "operations.dashboard_url: {template:?} has to be a URL that begins with https:// or http://; or leave it out"
        ));
    }
    template.replace(PLACEHOLDER, "").contains(['{', '}']).then(|| {
        format!(
            "operations.dashboard_url: {template:?} has braces that are not {PLACEHOLDER}, the only \
             placeholder; write that, or %7B and %7D for the braces themselves"
        )
    })
}

#[cfg(test)]
mod tests;
