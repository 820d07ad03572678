//! What a container waits at until the test lets it go on, however long the test takes to come to that.
#![allow(dead_code, reason = "not every test needs everything")]

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tempfile::TempDir;

/// What a container does there, as a shell says it.
pub(crate) const WAITS: &str = "touch /gate/begun; until [ -e /gate/open ]; do sleep 0.1; done";

/// A folder of the machine that the node and the test share. Shut at first.
pub(crate) struct Gate(TempDir);

impl Gate {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("gate-").tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        Self(folder)
    }

    /// The volume of a pod.
    pub(crate) fn volume(&self) -> Value {
        json!({"name": "gate", "hostPath": {"path": self.0.path()}})
    }

    /// Where a container has it.
    pub(crate) fn mount() -> Value {
        json!({"name": "gate", "mountPath": "/gate"})
    }

    /// Whether a container has come to it.
    pub(crate) fn is_met(&self) -> bool {
        self.0.path().join("begun").exists()
    }

    pub(crate) fn open(&self) {
        std::fs::write(self.0.path().join("open"), "").unwrap();
    }

    pub(crate) fn shut(&self) {
        std::fs::remove_file(self.0.path().join("open")).unwrap();
    }
}
