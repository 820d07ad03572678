//! One cluster, as one command sees it: its calls, each bounded in time, with the right that it needs.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use kubernetes::Client;

use super::args::Printing;
use super::exit::Exit;
use super::failure::Failure;
use super::output::{Output, quoted};
use super::{Ongoing, RemoteArgs, format, times};

/// The heading of its options in the help.
pub(crate) const HEADING: &str = "Cluster and output";
/// The time limit for one request.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a cluster may not answer while a command waits for something.
const AWAY: Duration = Duration::from_secs(60);
/// The first interval between looks at what a command waits for: a person waits. Later it is longer, for the wait may
/// take hours.
const INTERVAL: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_secs(60);
const LATER_INTERVAL: Duration = Duration::from_secs(2);
/// The longest name of an object in a path, and of a namespace.
const SUBDOMAIN: usize = 253;
const LABEL: usize = 63;

/// Which cluster, and how to print.
#[derive(Debug, Args)]
#[command(next_help_heading = HEADING)]
pub(crate) struct ClusterArgs {
    /// The cluster [env: KUBECONFIG] [default: ~/.kube/config, or that of the pod]
    #[arg(short = 'c', long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The namespace [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME", value_parser = namespace)]
    pub(crate) namespace: Option<String>,
    /// The longest to wait: 90s, 15m, 2h [default: for ever for an outcome; 30s for one request]
    #[arg(long, value_name = "DURATION", value_parser = times::parse_span)]
    timeout: Option<Duration>,
    #[command(flatten)]
    printing: Printing,
}

impl ClusterArgs {
    /// The options for printing and waiting, in the form that all commands use.
    pub(crate) fn remote(&self) -> RemoteArgs {
        let (timeout, printing) = (self.timeout, self.printing);
        RemoteArgs { timeout, printing, ..RemoteArgs::default() }
    }

    /// The options as words of a command that a person may copy.
    pub(crate) fn words(&self) -> String {
        let file = self.kubeconfig.as_ref().map(|file| quoted(&file.to_string_lossy()));
        let file = file.map(|file| format!(" -c {file}"));
        let context = self.context.as_ref().map(|name| format!(" --context {}", quoted(name)));
        let namespace = self.namespace.as_ref().map(|name| format!(" -n {name}"));
        [file, context, namespace].into_iter().flatten().collect()
    }
}

/// A cluster, as one command uses it.
pub(crate) struct Cluster {
    /// The client, for use with [`Self::call`].
    pub(crate) client: Client,
    /// The namespace that the command is about.
    pub(crate) namespace: String,
    /// The output of the command.
    pub(crate) out: Output,
    /// The longest to wait for an outcome, if the user sets one.
    pub(crate) patience: Option<Duration>,
    /// The work that goes on in the cluster when the command is interrupted.
    pub(crate) ongoing: Ongoing,
}

impl Cluster {
    /// Opens a cluster: reads the kubeconfig, and sends nothing yet.
    pub(crate) async fn open(
        args: &ClusterArgs,
        remote: &RemoteArgs,
        ongoing: Ongoing,
    ) -> Result<Self, Failure> {
        let out = Output { format: format(remote)?, quiet: remote.printing.quiet };
        let named = (args.kubeconfig.as_deref(), args.context.as_deref());
        let client = kubernetes::client_of(named.0, named.1).await;
        let client = client.map_err(|error| Failure::kubeconfig(&error))?;
        let context = || client.default_namespace().to_owned();
        let namespace = args.namespace.clone().unwrap_or_else(context);
        Ok(Self { client, namespace, out, patience: remote.timeout, ongoing })
    }

    /// Makes a call, within a time limit. `what` completes "cannot …".
    pub(crate) async fn call<T>(
        &self,
        what: &str,
        right: &Right<'_>,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, Failure> {
        let limit = self.patience.unwrap_or(REQUEST_TIMEOUT).min(REQUEST_TIMEOUT);
        match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map_err(|error| Failure::cluster(what, &error, Some(right))),
            Err(_) => Err(Failure::no_answer(what, limit)),
        }
    }

    /// A right in the namespace of the command.
    pub(crate) fn right_to(&self, verb: &'static str, resource: &str) -> Right<'_> {
        Right { verb, resource: resource.to_owned(), namespace: Some(&self.namespace) }
    }
}

/// A right that a call needs.
pub(crate) struct Right<'a> {
    verb: &'static str,
    resource: String,
    /// The namespace; `None`: all namespaces.
    namespace: Option<&'a str>,
}

impl Right<'_> {
    /// The same right in all namespaces.
    pub(crate) fn everywhere(self) -> Self {
        Self { namespace: None, ..self }
    }

    /// The hint if the cluster does not know the resource.
    pub(crate) fn unknown_kind(&self) -> String {
        // Of templates the definitions are OpenShift's, and ours stand in for them only where there are none.
        let of_templates = self.resource.ends_with(".template.openshift.io");
        let crds = if of_templates { "manciple crds --templates" } else { "manciple crds" };
        format!(
            "the cluster does not know this kind; who administers it applies the definition: {crds} | kubectl apply -f -"
        )
    }
}

impl fmt::Display for Right<'_> {
    /// Writes the right as a hint: which one it is, and how the user gets it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, resource, namespace } = self;
        let (place, with, role) = match namespace {
            Some(namespace) => {
                (format!("in namespace {namespace}"), format!(" -n {namespace}"), "role")
            }
            None => ("in all namespaces".to_owned(), String::new(), "clusterrole"),
        };
        write!(
            f,
            "the right to {verb} {resource} {place} is missing; who administers the cluster gives it: kubectl{with} \
             create {role} NAME --verb={verb} --resource={resource}, and kubectl{with} create {role}binding NAME \
             --{role}=NAME --user=USER"
        )
    }
}

/// The time since which a cluster does not answer, while a command waits for something.
#[derive(Debug, Default)]
pub(crate) struct Away(Option<Instant>);

impl Away {
    /// Notes that the cluster answers.
    pub(crate) fn answered_again(&mut self) {
        self.0 = None;
    }

    /// Notes that the cluster did not answer; returns the state to show, if it is worth to ask again.
    ///
    /// # Errors
    /// The failure, if it is not; `hint` says what else to do.
    pub(crate) fn bear(&mut self, failure: Failure, hint: &str) -> Result<String, Failure> {
        match failure.exit {
            // Too many requests among them.
            Exit::Unreachable | Exit::BrokerFailed | Exit::Refused => {}
            _ => return Err(failure),
        }
        if self.0.get_or_insert_with(Instant::now).elapsed() > AWAY {
            return Err(failure.hint(hint));
        }
        Ok(format!("{}; asking again", failure.message))
    }
}

/// The pause before the next look, after having `waited`; `None`: the patience is over.
pub(crate) fn pause(waited: Duration, patience: Option<Duration>) -> Option<Duration> {
    let interval = if waited < LATER { INTERVAL } else { LATER_INTERVAL };
    match patience.map(|patience| patience.saturating_sub(waited)) {
        Some(Duration::ZERO) => None,
        left => Some(left.unwrap_or(interval).min(interval)),
    }
}

/// Checks a name that goes into a path, so that it cannot lead elsewhere.
pub(crate) fn name(text: &str) -> Result<String, String> {
    let good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let ends = |at: Option<char>| at.is_some_and(|end| end.is_ascii_alphanumeric());
    let is_name = text.len() <= SUBDOMAIN
        && text.bytes().all(good)
        && ends(text.chars().next())
        && ends(text.chars().next_back());
    match is_name {
        true => Ok(text.to_owned()),
        false => Err("no object has such a name: small letters, digits, '-' and '.'".to_owned()),
    }
}

fn namespace(text: &str) -> Result<String, String> {
    match name(text) {
        Ok(name) if name.len() <= LABEL && !name.contains('.') => Ok(name),
        _ => Err("no namespace has such a name: small letters, digits and '-'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_is_not_known_is_defined_by_the_command_that_has_it() {
        for (resource, crds) in [
            ("quarksjobs.quarks.cloudfoundry.org", ": manciple crds |"),
            ("templateinstances.template.openshift.io", ": manciple crds --templates |"),
        ] {
            let right =
                Right { verb: "get", resource: resource.to_owned(), namespace: Some("shop") };
            let status = serde_json::json!({
                "code": 404, "message": "the server could not find the requested resource",
            });
            let error = kube::Error::Api(serde_json::from_value(status).unwrap());
            let hint = Failure::cluster("read it", &error, Some(&right)).hint.unwrap_or_default();
            assert!(hint.contains(crds), "{resource}: {hint}");
        }
    }

    #[test]
    fn what_takes_long_is_looked_at_less_often_and_for_the_last_time_when_patience_ends() {
        for (case, waited, patience, expected) in [
            ("at first", 0, None, Some(500)),
            ("for long", 59_999, None, Some(500)),
            ("for longer", 60_000, None, Some(2_000)),
            ("for hours", 86_400_000, None, Some(2_000)),
            ("with patience", 0, Some(90_000), Some(500)),
            ("with little patience", 0, Some(200), Some(200)),
            ("at its end", 89_000, Some(90_000), Some(1_000)),
            ("when it has ended", 90_000, Some(90_000), None),
            ("after that", 91_000, Some(90_000), None),
            ("with none", 0, Some(0), None),
        ] {
            let millis = Duration::from_millis;
            assert_eq!(pause(millis(waited), patience.map(millis)), expected.map(millis), "{case}");
        }
    }

    #[test]
    fn no_name_leads_elsewhere() {
        for (text, good) in [
            ("backup", true),
            ("a.b-1", true),
            ("", false),
            (".", false),
            ("..", false),
            ("a/../b", false),
            ("a%2fb", false),
            ("-a", false),
            ("A", false),
            ("é", false),
            ("a\u{1b}[2J", false),
        ] {
            assert_eq!(name(text).is_ok(), good, "{text}");
        }
        assert!(name(&"a".repeat(254)).is_err() && namespace(&"a".repeat(64)).is_err());
        assert!(namespace("a.b").is_err() && namespace("shop").is_ok());
    }
}
