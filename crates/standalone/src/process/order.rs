//! The protocol between server and supervisor, a line for each message.
//!
//! ```text
//! server ──order──▶ supervisor     takes the lock
//!        ◀─ready──
//!        ───go────▶                from here on the run goes on without the server
//!        ◀─started─
//! ```
//!
//! A supervisor whose server is killed before it said `go` starts nothing; one that has received it holds the lock
//! already. So a run whose lock is free and that was not started is certainly not started later by a supervisor that
//! was launched before.

use std::ffi::OsString;
use std::time::Duration;

use engine::contract::Asked;
use engine::record::Key;
use osb::jobs::contract::Capability;
use osb::{Action, BindingId, InstanceId, Work};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ending::RunKey;
use super::refusal::Refusal;

/// The order to a supervisor: everything that it needs to know. It holds secrets, so it goes through a pipe.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    /// The part of the order that is kept in the run's directory.
    pub(super) about: About,
    /// The key that seals the result.
    pub(super) key: RunKey,
    /// The executable, and all of its arguments.
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    /// The environment, but for the key files.
    pub(super) environment: Vec<(String, OsString)>,
    pub(super) config_dir: Option<OsString>,
    pub(super) secret_dir: Option<OsString>,
    /// The run's own exchange directory.
    pub(super) exchange: OsString,
    /// The request, given to the broker as a file if it has declared that it reads it.
    pub(super) request: Option<Work>,
    pub(super) state: Option<Value>,
    /// The binding that the run removes: it is not given to the broker, but redacted.
    pub(super) removes: Option<Value>,
    /// The time between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
    /// The most that the broker may print on stdout, in bytes.
    pub(super) output_limit: usize,
    pub(super) log_limit: usize,
}

/// The facts about a run that are kept in `run.json`. No secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) name: String,
    /// The action; `None`: the run asks for the catalog.
    pub(super) action: Option<Action>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instance_id: Option<InstanceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) binding_id: Option<BindingId>,
    /// The subcommand and its flags: ids.
    pub(super) arguments: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) operation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) attempt: Option<u32>,
    /// The name of the external work that the run asks after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) external: Option<String>,
    /// The extensions that were in force when the run began.
    pub(super) capabilities: Vec<Capability>,
    pub(super) timeout: Duration,
    /// The time of the order, in seconds since 1970.
    pub(super) created_at: u64,
}

impl About {
    pub(super) fn asked(&self) -> Asked<'_> {
        Asked {
            action: self.action,
            external: self.external.as_deref(),
            capabilities: &self.capabilities,
        }
    }

    /// The record that the run is for.
    pub(super) fn key(&self) -> Option<Key> {
        Some(Key::of(self.instance_id.clone()?, self.binding_id.clone()))
    }

    pub(super) fn can(&self, capability: Capability) -> bool {
        self.capabilities.contains(&capability)
    }
}

/// The server's message to a supervisor that is ready.
pub(super) const GO: &str = "go\n";

/// The answer of a supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// The supervisor has the lock and waits for [`GO`].
    Ready,
    /// The broker was started, or the run was over before it began.
    Started,
    /// Another supervisor has this run, or has had it.
    Taken,
    /// Nothing was started.
    Refused(Refusal),
}
