//! The names of the contract between a platform and `/bin/broker`, for both sides, and the documents
//! that a broker prints. They are read in one place, `engine::contract`.
//!
//! Version 1 is the seed's: subcommands, four flags, JSON on stdout, zero or not. Version 2 adds only
//! what a broker declares under the catalog's `jobs` key, so that a strict parser of version 1 never
//! meets a flag, a subcommand or an exit code that it does not know:
//!
//! ```json
//! {"services": [], "jobs": {"version": 2, "capabilities": ["request-file", "exit-codes"]}}
//! ```

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::broker::{Action, Failure, FailureKind, Output, Standing};

/// The path of the executable in its image.
pub const EXECUTABLE: &str = "/bin/broker";

/// The subcommand that prints the catalog. Those for the actions are [`Action::as_str`].
pub const CATALOG: &str = "catalog";

/// The subcommand that asks how external work stands; with [`flag::OPERATION`]. Needs
/// [`Capability::LastOperation`] and [`Capability::RequestFile`]; the request's `action` is that of the work.
pub const LAST_OPERATION: &str = "last-operation";

/// The catalog's top-level key that declares the extension; it is not served to platforms.
pub const EXTENSION_KEY: &str = "jobs";

/// The version of the extension.
pub const VERSION: u32 = 2;

/// The longest state, in bytes of JSON. A Kubernetes Secret holds no more.
pub const MAX_STATE_BYTES: usize = 1024 * 1024;

/// The flags; each takes a value, as `--flag value` or `--flag=value`.
pub mod flag {
    /// The service offering.
    pub const SERVICE_ID: &str = "--service-id";
    /// The plan; the new one in an update.
    pub const PLAN_ID: &str = "--plan-id";
    /// The instance.
    pub const INSTANCE_ID: &str = "--instance-id";
    /// The binding; for bind and unbind.
    pub const BINDING_ID: &str = "--binding-id";
    /// The operation to ask after; for last-operation, in version 2.
    pub const OPERATION: &str = "--operation";

    pub(in crate::jobs) const ALL: [&str; 5] =
        [SERVICE_ID, PLAN_ID, INSTANCE_ID, BINDING_ID, OPERATION];
}

/// The environment variables of version 2. An empty one counts as absent.
pub mod variable {
    /// File: [`crate::Work`] as JSON, without its state. That it is set says that the platform speaks
    /// version 2.
    pub const REQUEST_FILE: &str = "OSB_REQUEST_FILE";
    /// The operation's id, the same in every attempt. Goes before the request file.
    pub const OPERATION_ID: &str = "OSB_OPERATION_ID";
    /// The number of the attempt, from 1. Goes before the request file.
    pub const ATTEMPT: &str = "OSB_ATTEMPT";
    /// When the run will be ended, in seconds since 1970. Goes before the request file.
    pub const DEADLINE: &str = "OSB_DEADLINE";
    /// File: the state that earlier operations on the instance left, as JSON; absent or empty if none.
    pub const STATE_FILE: &str = "OSB_STATE_FILE";
    /// File: where to leave the state for later operations, however the run ends. If it is not written, or is no JSON
    /// when the run fails, the state stays as it is.
    pub const STATE_OUT_FILE: &str = "OSB_STATE_OUT_FILE";
    /// File: where to say how far the work is, as [`super::ProgressReport`]; replaced atomically.
    pub const PROGRESS_FILE: &str = "OSB_PROGRESS_FILE";

    /// Directory: the configuration, a file for each key; not set without one.
    pub const CONFIG_DIR: &str = "OSB_CONFIG_DIR";
    /// Directory: the secret part of the configuration, a file for each key.
    pub const SECRET_DIR: &str = "OSB_SECRET_DIR";

    /// All variables of the contract: a platform lets no configuration of its user shadow one.
    pub const ALL: [&str; 9] = [
        REQUEST_FILE,
        OPERATION_ID,
        ATTEMPT,
        DEADLINE,
        STATE_FILE,
        STATE_OUT_FILE,
        PROGRESS_FILE,
        CONFIG_DIR,
        SECRET_DIR,
    ];
}

/// The exit codes of version 2. In version 1, everything but zero is a failure.
pub mod exit {
    /// Done.
    pub const OK: u8 = 0;
    /// Failed; something may have been made. So is every code that is not listed here.
    pub const FAILED: u8 = 1;
    /// The broker does not do this at all.
    pub const UNSUPPORTED: u8 = 8;
    /// The resource was there already, exactly as asked for: a success.
    pub const EXISTS: u8 = 10;
    /// The id is taken by something else.
    pub const CONFLICT: u8 = 11;
    /// What is to be removed does not exist.
    pub const GONE: u8 = 12;
    /// The request asks for something impossible.
    pub const INVALID: u8 = 13;
    /// Something else is being done to the instance or binding.
    pub const BUSY: u8 = 14;
    /// The broker does not make this change.
    pub const UNSUPPORTED_CHANGE: u8 = 15;
    /// A passing fault: try again (`EX_TEMPFAIL` of sysexits).
    pub const RETRY: u8 = 75;
}

/// The meaning of an exit code of version 2; `None` if it is a success.
pub fn failure_kind(exit_code: i32) -> Option<FailureKind> {
    let Ok(code) = u8::try_from(exit_code) else { return Some(FailureKind::Failed) };
    match code {
        exit::OK | exit::EXISTS => None,
        exit::UNSUPPORTED | exit::UNSUPPORTED_CHANGE => Some(FailureKind::Unsupported),
        exit::CONFLICT => Some(FailureKind::Conflict),
        exit::GONE => Some(FailureKind::Gone),
        exit::INVALID => Some(FailureKind::Invalid),
        exit::BUSY => Some(FailureKind::Busy),
        exit::RETRY => Some(FailureKind::Transient),
        _ => Some(FailureKind::Failed),
    }
}

/// The exit code for a failure.
pub fn exit_code(kind: FailureKind) -> u8 {
    match kind {
        FailureKind::Failed => exit::FAILED,
        FailureKind::Unsupported => exit::UNSUPPORTED,
        FailureKind::Invalid => exit::INVALID,
        FailureKind::Conflict => exit::CONFLICT,
        FailureKind::Gone => exit::GONE,
        FailureKind::Busy => exit::BUSY,
        FailureKind::Transient => exit::RETRY,
    }
}

/// The extensions of version 2 that a broker may declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// Reads [`variable::REQUEST_FILE`].
    RequestFile,
    /// Has the subcommand `update`.
    Update,
    /// Writes [`variable::PROGRESS_FILE`].
    Progress,
    /// Reads and writes the state's files.
    State,
    /// Prints an [`ErrorReport`] on stdout when it fails.
    StructuredErrors,
    /// Exits with the codes of [`exit`], which mean what [`failure_kind`] says.
    ExitCodes,
    /// May answer `{"async": true, "operation": …}` and has the subcommand [`LAST_OPERATION`].
    LastOperation,
}

impl Capability {
    /// Every capability.
    pub const ALL: [Self; 7] = [
        Self::RequestFile,
        Self::Update,
        Self::Progress,
        Self::State,
        Self::StructuredErrors,
        Self::ExitCodes,
        Self::LastOperation,
    ];
}

/// The declaration under [`EXTENSION_KEY`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Extension {
    /// [`VERSION`], or later: later versions only add.
    pub version: u32,
    /// The extensions that the broker has.
    pub capabilities: Vec<Capability>,
}

impl Extension {
    /// The declaration of [`crate::jobs::main`]: everything.
    pub fn ours() -> Self {
        Self { version: VERSION, capabilities: Capability::ALL.to_vec() }
    }
}

/// The content of [`variable::PROGRESS_FILE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressReport {
    /// For people, without secrets.
    pub description: String,
    /// From 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u8>,
}

/// The report that a failing broker prints on stdout; every member is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ErrorReport {
    /// One camel-case word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// For people, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// After an update or deprovision: whether the instance still works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_usable: Option<bool>,
    /// After an update: whether it may be repeated as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_repeatable: Option<bool>,
    /// Seconds to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

impl From<&Failure> for ErrorReport {
    fn from(failure: &Failure) -> Self {
        let word = match failure.kind {
            FailureKind::Failed => "Failed",
            FailureKind::Unsupported => "Unsupported",
            FailureKind::Invalid => "BadRequest",
            FailureKind::Conflict => "Conflict",
            FailureKind::Gone => "Gone",
            FailureKind::Busy => "ConcurrencyError",
            FailureKind::Transient => "Unavailable",
        };
        Self {
            error: Some(word.to_owned()),
            description: Some(failure.description.clone()),
            instance_usable: failure.instance_usable,
            update_repeatable: failure.update_repeatable,
            retry_after: failure.retry_after,
        }
    }
}

/// The document to print for work that was done: the response of the specification, without the state, which
/// has its file; or `{"async": true, "operation": …}` for external work.
pub fn output_document(action: Action, output: &Output) -> Value {
    let mut document = match action {
        Action::Provision | Action::Update => {
            json!({"dashboard_url": output.dashboard_url, "metadata": output.metadata})
        }
        Action::Bind => json!(output.binding.clone().unwrap_or_default()),
        Action::Unbind | Action::Deprovision => json!({}),
    };
    if let Some(members) = document.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    if let Some(description) = &output.description {
        document["description"] = json!(description);
    }
    if let Some(operation) = &output.external_operation {
        document["async"] = json!(true);
        document["operation"] = json!(operation);
        if let Some(retry_after) = output.retry_after {
            document["retry_after"] = json!(retry_after);
        }
    }
    document
}

/// The document to print for [`LAST_OPERATION`].
pub fn standing_document(action: Action, standing: &Standing) -> Value {
    match standing {
        Standing::InProgress { description, retry_after } => {
            let mut document = json!({"state": "in progress"});
            if let Some(description) = description {
                document["description"] = json!(description);
            }
            if let Some(retry_after) = retry_after {
                document["retry_after"] = json!(retry_after);
            }
            document
        }
        Standing::Succeeded(output) => {
            let mut document = output_document(action, output);
            document["state"] = json!("succeeded");
            document
        }
    }
}
