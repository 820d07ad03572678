//! What an agent is told: an order, which anybody may read, and what is given with it, which nobody may.

use std::path::PathBuf;
use std::time::Duration;

use engine::contract::{self, Asked};
use engine::ports::{Run, StartError};
use osb::jobs::contract::{Capability, EXECUTABLE, variable};
use osb::{Action, Object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::gathering::GATHERING_VARIABLE;
use crate::keys::PublicKey;
use crate::message::MESSAGE_FILE;

/// The variable that holds the order, of the container that runs the broker.
pub const ORDER_VARIABLE: &str = "MANCIPLE_ORDER";
/// The variable that names the directory of a mounted Secret with [`Given::files`], of the container
/// that installs the agent.
pub const GIVEN_VARIABLE: &str = "MANCIPLE_GIVEN";
/// The variable that tells a packed agent where to unpack itself to.
pub const TARGET_VARIABLE: &str = "MANCIPLE_AGENT";
/// All by which an agent is told something.
pub const OUR_VARIABLES: [&str; 4] =
    [ORDER_VARIABLE, GIVEN_VARIABLE, GATHERING_VARIABLE, TARGET_VARIABLE];
/// The program, in the directory that it was installed into.
pub const AGENT_FILE: &str = "agent";
/// There too: what is given, until it was read.
pub const GIVEN_DIRECTORY: &str = "given";
/// There too: the files of the contract, unless the order says otherwise.
pub const EXCHANGE_DIRECTORY: &str = "exchange";

/// What of a request everybody may know: it is in the broker's arguments, or says nothing.
const PUBLIC: [&str; 6] =
    ["service_id", "plan_id", "instance_id", "binding_id", "operation_id", "attempt"];

/// What a run is asked to do and how. Nothing confidential: it stands in the pod's specification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The run's name, which its report is bound to.
    pub run: String,
    /// `None`: the catalog.
    pub action: Option<Action>,
    /// The external work that is asked after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<String>,
    /// The extensions of the contract that are in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Capability>,
    /// The members of [`osb::Work`] that anybody may know.
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub work: Object,
    /// What is given beside the order: one that is missing ends the run before it begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<GivenFile>,
    /// Where what is given is mounted, not to be written to. Default: [`GIVEN_DIRECTORY`], where it was copied
    /// to; there it is removed before the broker starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_dir: Option<PathBuf>,
    /// The executable, in the broker's image. Default: `/bin/broker`.
    #[serde(default = "program")]
    pub program: PathBuf,
    /// Where the configuration is mounted, if there is one. Usually `/config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_dir: Option<PathBuf>,
    /// The same for secrets. Usually `/secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_dir: Option<PathBuf>,
    /// Further variables of this container that hold secrets: their values are masked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_variables: Vec<String>,
    /// Where further secrets are mounted, directories or single files: what is in them is masked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_paths: Vec<PathBuf>,
    /// Where the files of the contract are. Default: beside the installed agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<PathBuf>,
    /// `terminationMessagePath`. Default: `/dev/termination-log`, as Kubernetes has it.
    #[serde(default = "message")]
    pub message: PathBuf,
    /// After this the broker is ended.
    pub timeout: Duration,
    /// Between SIGTERM and SIGKILL. The pod's own period has to be some seconds longer.
    #[serde(default = "grace")]
    pub grace: Duration,
    /// The most that the broker may print on stdout, in bytes. Default: 1 MiB, which is as much as a
    /// Secret holds.
    #[serde(default = "output_limit")]
    pub output_limit: usize,
    /// How much of what it prints on stderr is written to the log, in bytes: half of it from the
    /// beginning, half from the end. Default: 256 KiB. With what runtimes add to lines at most 2 MiB are
    /// written, of which half is for the end.
    #[serde(default = "log_limit")]
    pub log_limit: usize,
    /// What the report is sealed to.
    pub key: PublicKey,
}

/// What is given to a run and is confidential: a Secret's content, by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Given(Vec<(GivenFile, osb::Sensitive<Value>)>);

/// A key of that Secret: a file in [`GIVEN_DIRECTORY`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GivenFile {
    /// Members of [`osb::Work`], laid over those of the order.
    Work,
    /// The state that the broker left.
    State,
    /// The binding that is removed: no part of the broker's request, and not to be shown. A broker can
    /// read it where it stays mounted ([`Order::given_dir`]): it made it itself.
    Removes,
}

impl Order {
    /// The order of a run, and what is to be given with it. The configuration's directories are for
    /// the caller to name.
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
    /// If the order is not JSON: a path that is not UTF-8.
    pub fn to_variable(&self) -> serde_json::Result<String> {
        to_variable(self)
    }

    /// What the broker is asked, for [`contract::interpret`].
    pub fn asked(&self) -> Asked<'_> {
        Asked {
            action: self.action,
            external: self.external.as_deref(),
            capabilities: &self.capabilities,
        }
    }

    /// Whether a capability is in force. The catalog is the same whatever is.
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

/// Whether a variable of a broker's container is for its agent, or the contract's: a broker never has another's under
/// such a name. All others are for its image, and for whoever runs it, to set.
pub fn is_variable_taken(name: &str) -> bool {
    OUR_VARIABLES.contains(&name) || variable::ALL.contains(&name)
}

/// JSON without `$`: outside of strings it has none.
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
