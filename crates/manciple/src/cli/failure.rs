//! The failure of a command: one sentence that says what failed and where, one that says
//! what to do. The only place where errors of the client become exit codes.

use std::fmt;
use std::time::Duration;

use kubernetes::ClientError as ClusterError;
use osb::LastOperation;
use osb::client::{ClientError, Refusal, WaitError};
use serde_json::{Value, json};

use super::cluster::Right;
use super::exit::Exit;
use super::output::one_line;
use super::times;

/// A command's failure.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code of the command.
    pub(crate) exit: Exit,
    /// The message: what failed, and where. Holds no secret.
    pub(crate) message: String,
    /// The hint what to do.
    pub(crate) hint: Option<String>,
    /// The broker's refusal, for programs.
    refusal: Option<Box<Refusal>>,
    /// Whether the reader of the output is gone: nothing is wrong then, and nothing more is printed.
    pub(crate) silent: bool,
}

impl Failure {
    /// A failure of any kind.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, refusal: None, silent: false }
    }

    /// A failure of usage: a wrong argument or file.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// The failure that the named thing does not exist.
    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Self::new(Exit::Missing, message)
    }

    /// The silent failure that the reader of the output has gone away, as `head` does.
    pub(crate) fn output_closed() -> Self {
        Self { silent: true, ..Self::new(Exit::Done, "") }
    }

    /// The failure to print the result of a command that has done its work.
    pub(crate) fn not_printed(why: &dyn fmt::Display) -> Self {
        let message = format!("cannot print the result: {why}; what was asked for is done");
        Self::new(Exit::NotPrinted, message)
    }

    /// The failure of a request. `what` completes "cannot …".
    pub(crate) fn request(what: &str, url: &str, error: &ClientError) -> Self {
        let at = format!("cannot {what} at {url}");
        match error {
            ClientError::Transport { sent, .. } => {
                let cause = root_cause(error);
                let hint = transport_hint(*sent, &cause);
                Self::new(Exit::Unreachable, format!("{at}: {error}: {cause}")).hint(hint)
            }
            ClientError::Timeout { .. } => Self::new(Exit::Unreachable, format!("{at}: {error}"))
                .hint(
                    "the broker may have received the request; look at the status before you \
                       repeat it",
                ),
            ClientError::Refused(refusal) => Self {
                refusal: Some(Box::new(refusal.clone())),
                hint: refusal_hint(refusal).map(str::to_owned),
                ..Self::new(Exit::of_status(refusal.status), format!("{at}: {refusal}"))
            },
            ClientError::Malformed { .. } => {
                Self::new(Exit::BrokerFailed, format!("{at}: {error}"))
                    .hint("is there an Open Service Broker at this address? --url names another")
            }
        }
    }

    /// The failure of an operation that failed, or whose end was not seen. `what` is "provision of instance X".
    pub(crate) fn operation(what: &str, url: &str, error: &WaitError) -> Self {
        match error {
            WaitError::Failed(last) => {
                let why = last.description.as_deref().unwrap_or("the broker does not say why");
                let mut failure =
                    Self::new(Exit::OperationFailed, format!("the {what} failed: {why}"));
                failure.refusal = Some(Box::new(Refusal {
                    description: last.description.clone(),
                    instance_usable: last.instance_usable,
                    update_repeatable: last.update_repeatable,
                    ..Refusal::default()
                }));
                failure
            }
            WaitError::Deadline { after, last } => {
                let after = times::span(*after);
                let last = last_seen(last.as_ref());
                Self::new(Exit::Unfinished, format!("the {what} did not end within {after}{last}"))
            }
            WaitError::Silent { after, last, source } => {
                let (after, last) = (times::span(*after), last_seen(last.as_ref()));
                let cause = root_cause(source);
                Self::new(
                    Exit::Unreachable,
                    format!("no answer from {url} for {after} ({cause}) about the {what}{last}"),
                )
            }
            WaitError::Unclear { last, source } => {
                let mut failure =
                    Self::request(&format!("tell how the {what} stands"), url, source);
                failure.message.push_str(&last_seen(last.as_ref()));
                failure
            }
        }
    }

    /// The failure of a call of a cluster's API server. `what` completes "cannot …", `right` is the right that
    /// the call needs, if its lack can be the reason.
    pub(crate) fn cluster(what: &str, error: &kube::Error, right: Option<&Right<'_>>) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 0 => {
                let message = format!("cannot {what}: {}", kubernetes::NO_API_SERVER);
                Self::new(Exit::Unreachable, message).hint(OTHER_CLUSTER)
            }
            kube::Error::Api(status) => {
                let said = match status.message.as_str() {
                    "" => format!("the API server says {}", status.code),
                    said => one_line(said),
                };
                // Of an object that is not there the answer has the name.
                let named = status.details.as_ref().is_some_and(|it| !it.name.is_empty());
                let hint = match (status.code, right) {
                    (401, _) => "the credentials of the kubeconfig are missing, wrong or expired",
                    (403, Some(right)) => &right.to_string(),
                    (404, Some(right)) if !named => &right.unknown_kind(),
                    (429, _) => "the API server has too much to do; come again later",
                    _ => "",
                };
                Self::new(Exit::of_status(status.code), format!("cannot {what}: {said}")).hint(hint)
            }
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::misunderstood(what),
            error => match kubernetes::of_credentials(error) {
                Some(why) => {
                    let why = one_line(&why);
                    Self::new(Exit::Unauthorized, format!("cannot {what}: no credentials: {why}"))
                        .hint(NO_CREDENTIALS)
                }
                None => {
                    let cause = one_line(&root_cause(error));
                    let message = format!("cannot {what}: the cluster does not answer: {cause}");
                    Self::new(Exit::Unreachable, message).hint(OTHER_CLUSTER)
                }
            },
        }
    }

    /// The failure for an answer of a cluster that is not understood.
    pub(crate) fn misunderstood(what: &str) -> Self {
        let message = format!("cannot {what}: the answer cannot be understood");
        Self::new(Exit::BrokerFailed, message)
            .hint("is there a Kubernetes API server? --kubeconfig or KUBECONFIG names another")
    }

    /// The failure for a cluster that did not answer for `after`.
    pub(crate) fn no_answer(what: &str, after: Duration) -> Self {
        let after = times::span(after);
        let message = format!("cannot {what}: the cluster did not answer within {after}");
        Self::new(Exit::Unreachable, message).hint(OTHER_CLUSTER)
    }

    /// The failure for a log that broke off while it was read.
    pub(crate) fn broken_off(what: &str, cause: &str) -> Self {
        let cause = one_line(cause);
        Self::new(Exit::Unreachable, format!("the log of {what} broke off: {cause}"))
            .hint("read it again; it may be longer now")
    }

    /// The failure to open a cluster, before any call.
    pub(crate) fn kubeconfig(error: &ClusterError) -> Self {
        let named = "name a kubeconfig: --kubeconfig FILE, or KUBECONFIG";
        let (exit, hint) = match error {
            ClusterError::Nowhere(_) => (Exit::Unreachable, named),
            ClusterError::Credentials(_) => (Exit::Unauthorized, NO_CREDENTIALS),
            ClusterError::Kubeconfig(_) | ClusterError::Unusable(_) => (Exit::Usage, named),
        };
        Self::new(exit, one_line(&error.to_string())).hint(hint)
    }

    /// Adds a hint what to do; an empty one adds nothing.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        self
    }

    /// Adds a hint, unless there is one already.
    #[must_use]
    pub(crate) fn or_hint(self, hint: impl Into<String>) -> Self {
        if self.hint.is_some() { self } else { self.hint(hint) }
    }

    /// The document of the failure, for programs.
    pub(crate) fn json(&self) -> Value {
        let mut error = json!({
            "kind": self.exit.word(),
            "exit_code": self.exit.code(),
            "message": self.message,
        });
        let mut add = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                error[name] = value;
            }
        };
        add("hint", self.hint.clone().map(Value::from));
        if let Some(refusal) = &self.refusal {
            add("status", (refusal.status != 0).then(|| refusal.status.into()));
            add("error", refusal.error.clone().map(Value::from));
            add("description", refusal.description.clone().map(Value::from));
            add("instance_usable", refusal.instance_usable.map(Value::from));
            add("update_repeatable", refusal.update_repeatable.map(Value::from));
            add("retry_after_seconds", refusal.retry_after.map(|after| after.as_secs().into()));
        }
        json!({ "error": error })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

const NO_CREDENTIALS: &str =
    "the kubeconfig says how credentials are made; kubectl with the same kubeconfig shows more";
const OTHER_CLUSTER: &str =
    "is the cluster up, and this the one? --kubeconfig or KUBECONFIG names another";

/// The last known state of an operation whose end was not seen, as an addition to the message.
fn last_seen(last: Option<&LastOperation>) -> String {
    match last.map(|last| last.description.as_deref()) {
        None => String::new(),
        Some(None) => "; it was last seen in progress".to_owned(),
        Some(Some(said)) => format!("; it was last seen in progress: {}", one_line(said)),
    }
}

/// The innermost error: the one that names the cause ("connection refused").
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The message for a CA certificate in the place of a server's, as `openssl req -x509` makes by default.
const CERTIFICATE_OF_A_CA: &str = "the broker's certificate says that it is an authority (CA:TRUE), \
    as openssl's self-signed ones do by default, and such a one is not accepted as a server's. Make \
    another for the broker and name it: --ca-file tls.crt\n  \
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=HOST \
    -addext subjectAltName=DNS:HOST -addext basicConstraints=critical,CA:FALSE \
    -keyout tls.key -out tls.crt";

fn transport_hint(sent: bool, cause: &str) -> &'static str {
    if cause.contains("CaUsedAsEndEntity") {
        CERTIFICATE_OF_A_CA
    } else if cause.contains("certificate not valid for name") {
        "--url must name the broker by a name or an address that its certificate holds"
    } else if cause.contains("certificate expired") || cause.contains("not valid yet") {
        "the broker needs a new certificate, or the clock of one of the machines is wrong"
    } else if cause.contains("certificate") || cause.contains("UnknownIssuer") {
        "name the authority that signed the broker's certificate: --ca-file FILE"
    } else if sent {
        "the broker may have received the request; look at the status before you repeat it"
    } else {
        "is the broker running? --url or MANCIPLE_URL names another address"
    }
}

fn refusal_hint(refusal: &Refusal) -> Option<&'static str> {
    match refusal.status {
        401 => Some(
            "set MANCIPLE_USER and MANCIPLE_PASSWORD, or MANCIPLE_TOKEN; or name files by \
             --password-file or --token-file",
        ),
        403 => Some("these credentials are not allowed to do this; use others"),
        413 => Some("send less: parameters and context count"),
        429 => Some("the broker has too much to do; come again later"),
        _ if refusal.is("ConcurrencyError") => {
            Some("another operation goes on; wait for its end: manciple status --watch")
        }
        _ if refusal.is("MaintenanceInfoConflict") => {
            Some("the catalog has another version now: manciple catalog")
        }
        _ => None,
    }
}
