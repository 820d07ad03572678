//! The order to an agent, which anybody may read, and the confidential files that are given with it.

use std::path::PathBuf;
use std::time::Duration;

use engine::contract::{self, Asked};
use engine::ports::{Run, StartError};
use osb::jobs::contract::{Capability, EXECUTABLE, variable};
use osb::{Action, Object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::keys::PublicKey;
use crate::message::MESSAGE_FILE;

/// The variable that holds the order, of the container that runs the broker.
pub const ORDER_VARIABLE: &str = "MANCIPLE_ORDER";
/// The variable with the [`Gathering`](crate::Gathering), of the container whose agent gathers.
pub const GATHERING_VARIABLE: &str = "MANCIPLE_GATHERING";
/// The variable that names the directory of a mounted Secret with [`Given::files`], of the container
/// that installs the agent.
pub const GIVEN_VARIABLE: &str = "MANCIPLE_GIVEN";
/// The variable that tells a packed agent where to unpack itself to.
pub const TARGET_VARIABLE: &str = "MANCIPLE_AGENT";
/// All variables by which an agent is told something.
pub const OUR_VARIABLES: [&str; 4] =
    [ORDER_VARIABLE, GIVEN_VARIABLE, GATHERING_VARIABLE, TARGET_VARIABLE];
/// The name of the program in the directory that it was installed into.
pub const AGENT_FILE: &str = "agent";
/// The name of the directory, beside the program, of the given files until they were read.
pub const GIVEN_DIRECTORY: &str = "given";
/// The name of the directory, beside the program, of the contract's files, unless the order says otherwise.
pub const EXCHANGE_DIRECTORY: &str = "exchange";

/// The members of a request that everybody may know: they are in the broker's arguments, or confidential to nobody.
const PUBLIC: [&str; 6] =
    ["service_id", "plan_id", "instance_id", "binding_id", "operation_id", "attempt"];

/// The order of a run: what to do and how. Nothing confidential: it stands in the pod's specification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The run's name, which its report is bound to.
    pub run: String,
    /// The action; `None`: the run asks for the catalog.
    pub action: Option<Action>,
    /// The name of the external work that the run asks after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// The extensions of the contract that are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// The members of [`osb::Work`] that anybody may know.
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub work: Object,
    /// The files that are given beside the order: if one is missing, the run fails before the broker starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<GivenFile>,
    /// The read-only mount of the given files. Default: [`GIVEN_DIRECTORY`], to which they were copied; there they are
    /// removed before the broker starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_dir: Option<PathBuf>,
    /// The executable, in the broker's image. Default: `/bin/broker`.
    #[serde(default = "program")]
    pub program: PathBuf,
    /// The mount of the configuration, if there is one. Usually `/config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_dir: Option<PathBuf>,
    /// The mount of the configuration's secret part, if there is one. Usually `/secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_dir: Option<PathBuf>,
    /// Further variables of this container that hold secrets: their values are masked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_variables: Vec<String>,
    /// The mounts of further secrets, directories or single files: what is in them is masked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_paths: Vec<PathBuf>,
    /// The directory of the contract's files. Default: beside the installed agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<PathBuf>,
    /// The path of the termination message (`terminationMessagePath`). Default: `/dev/termination-log`, as in
    /// Kubernetes.
    #[serde(default = "message")]
    pub message: PathBuf,
    /// How long the broker may take; after this it is ended.
    pub timeout: Duration,
    /// The time between SIGTERM and SIGKILL. The pod's own grace period has to be some seconds longer.
    #[serde(default = "grace")]
    pub grace: Duration,
    /// The most that the broker may print on stdout, in bytes. Default: 1 MiB, which is as much as a
    /// Secret holds.
    #[serde(default = "output_limit")]
    pub output_limit: usize,
    /// How many bytes of what the broker prints on stderr are written to the log: half of it from the
    /// beginning, half from the end. Default: 256 KiB. With what runtimes add to lines at most 2 MiB are
    /// written, of which half is for the end.
    #[serde(default = "log_limit")]
    pub log_limit: usize,
    /// The key that the report is sealed to.
    pub key: PublicKey,
}

/// The confidential files that are given to a run: a Secret's content, by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given(Vec<(GivenFile, osb::Sensitive<Value>)>);

/// A key of the Secret with the given files, each a file in [`GIVEN_DIRECTORY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GivenFile {
    /// Members of [`osb::Work`], which override those of the order.
    Work,
    /// The state that earlier runs left.
    State,
    /// The binding that the run removes, so that it can be redacted: it is no part of the broker's request. A broker
    /// can read it where it stays mounted ([`Order::given_dir`]): it made the binding itself.
    Removes,
}

impl Order {
    /// Makes the order of a run, and the files to give with it. The caller sets the configuration's directories.
    ///
    /// # Errors
    /// [`StartError::Permanent`] for a subcommand that the broker does not declare.
    pub fn of(run: &Run, key: PublicKey) -> Result<(Self, Given), StartError> {
        let Run { name, work, timeout, capabilities, removes } = run;
        let permanent = |what: &str| StartError::Permanent(what.to_owned());
        contract::declared(work, capabilities).map_err(permanent)?;
        let can = |capability| capabilities.contains(&capability);
        let mut order = Self::catalog(name.as_str(), *timeout, key);
        order.action = Some(work.action);
        order.external.clone_from(&work.external_operation);
        order.capabilities.clone_from(capabilities);

        let Ok(Value::Object(mut members)) = serde_json::to_value(work) else {
            return Err(permanent("the request is not a JSON object"));
        };
        // The first three stand elsewhere; the last is true only once the pod has begun.
        for elsewhere in ["action", "external_operation", "state", "deadline"] {
            members.remove(elsewhere);
        }
        for member in PUBLIC {
            let value = members.remove(member);
            order.work.extend(value.map(|value| (member.to_owned(), value)));
        }
        // What is empty need not be given, and mostly nothing else is left.
        members.retain(|_, value| !value.as_object().is_some_and(Object::is_empty));
        let request = can(Capability::RequestFile) && !members.is_empty();
        let mut given = Given::default();
        let removes = removes.as_ref().and_then(|binding| serde_json::to_value(binding).ok());
        let state = work.state.as_ref().filter(|_| can(Capability::State));
        given.add(GivenFile::Work, request.then_some(Value::Object(members)));
        given.add(GivenFile::State, state.map(|state| state.expose().clone()));
        given.add(GivenFile::Removes, removes);
        order.given = given.0.iter().map(|(file, _)| *file).collect();
        Ok((order, given))
    }

    /// The order of a question for the catalog.
    pub fn catalog(run: &str, timeout: Duration, key: PublicKey) -> Self {
        Self {
            run: run.to_owned(),
            action: None,
            external: None,
            capabilities: Vec::new(),
            work: Object::new(),
            given: Vec::new(),
            given_dir: None,
            program: program(),
            config_dir: None,
            secret_dir: None,
            secret_variables: Vec::new(),
            secret_paths: Vec::new(),
            exchange: None,
            message: message(),
            timeout,
            grace: grace(),
            output_limit: output_limit(),
            log_limit: log_limit(),
            key,
        }
    }

    /// The value of [`ORDER_VARIABLE`]. No `$` is in it, which Kubernetes would take for a reference to
    /// another variable.
    ///
    /// # Errors
    /// If a path is not UTF-8, so that the order is no JSON.
    pub fn to_variable(&self) -> serde_json::Result<String> {
        to_variable(self)
    }

    /// The question to the broker, for [`contract::interpret`].
    pub fn asked(&self) -> Asked<'_> {
        Asked {
            action: self.action,
            external: self.external.as_deref(),
            capabilities: &self.capabilities,
        }
    }

    /// Whether a capability is in force; for the catalog none is.
    pub fn can(&self, capability: Capability) -> bool {
        self.action.is_some() && self.capabilities.contains(&capability)
    }
}

impl Given {
    /// The Secret's content: names of files and what is in them. Empty if none is needed.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, Vec<u8>)> {
        self.0.iter().map(|(file, value)| (file.name(), value.expose().to_string().into_bytes()))
    }

    fn add(&mut self, file: GivenFile, value: Option<Value>) {
        self.0.extend(value.map(|value| (file, osb::Sensitive::new(value))));
    }
}

impl GivenFile {
    /// The file's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Work => "work.json",
            Self::State => "state.json",
            Self::Removes => "removes.json",
        }
    }
}

/// Whether a variable's name is reserved in a broker's container, for its agent or for the contract. All others may be
/// set by its image and by the operator.
pub fn is_variable_taken(name: &str) -> bool {
    OUR_VARIABLES.contains(&name) || variable::ALL.contains(&name)
}

/// Writes JSON without `$`, which is escaped: outside of strings JSON has none.
pub(crate) fn to_variable(told: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(told).map(|json| json.replace('$', "\\u0024"))
}

fn program() -> PathBuf {
    PathBuf::from(EXECUTABLE)
}

pub(crate) fn message() -> PathBuf {
    PathBuf::from(MESSAGE_FILE)
}

fn grace() -> Duration {
    Duration::from_secs(10)
}

fn output_limit() -> usize {
    1024 * 1024
}

fn log_limit() -> usize {
    256 * 1024
}
