//! What server and supervisor say to each other, a line each.
//!
//! ```text
//! server ──order──▶ supervisor     takes the lock
//!        ◀─ready──
//!        ───go────▶                from here on the run goes on without the server
//!        ◀─started─
//! ```
//!
//! A supervisor whose server is killed before it said `go` starts nothing; one that has heard it holds
//! the lock already. So a run that nobody holds and nobody started is certainly never started behind
//! one's back.

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

/// Everything that a supervisor needs to know. It has secrets in it: it goes through a pipe.
#[derive(Serialize, Deserialize)]
pub(super) struct Order {
    /// The run, as it is kept.
    pub(super) about: About,
    /// What the result is sealed with.
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
    /// Given to the broker as files, where it has declared that it wants them.
    pub(super) request: Option<Work>,
    pub(super) state: Option<Value>,
    /// The binding that is removed: not given, but not to be shown either.
    pub(super) removes: Option<Value>,
    /// Between SIGTERM and SIGKILL.
    pub(super) grace: Duration,
    /// In bytes.
    pub(super) output_limit: usize,
    pub(super) log_limit: usize,
}

/// A run as it is kept in `run.json`. No secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) name: String,
    /// `None`: the catalog.
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
    /// The external work that is asked after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) external: Option<String>,
    /// In force when the run began.
    pub(super) capabilities: Vec<Capability>,
    pub(super) timeout: Duration,
    /// In seconds since 1970.
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

/// What the server says to a supervisor that is ready.
pub(super) const GO: &str = "go\n";

/// What a supervisor answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    /// It has the lock and waits for [`GO`].
    Ready,
    /// The broker was started, or the run was over before it began.
    Started,
    /// Another supervisor has this run, or has had it.
    Taken,
    /// Nothing was started.
    Refused(Refusal),
}
