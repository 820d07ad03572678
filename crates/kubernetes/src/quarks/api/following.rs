//! The pods that an ExtendedJob follows whose strategy is `podstate`, the trigger that its first releases had.

use serde_json::Value;

use super::selecting::Selecting;

/// Which pods are followed, and the state of a pod that triggers a run.
#[derive(Debug, Clone)]
pub(crate) struct Following {
    /// `spec.trigger.podstate`, as JSON.
    pub(crate) of: Box<str>,
    pub(crate) when: When,
    pub(crate) selecting: Selecting,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    NotReady,
    Created,
    Ready,
    Deleted,
}

impl Following {
    /// Reads `spec.trigger`. `None`: it follows no pods. The error is the fault, with the path of the member.
    pub(crate) fn of(trigger: &Value) -> Option<Result<Self, String>> {
        (trigger["strategy"] == "podstate").then(|| Self::read(&trigger["podstate"]))
    }

    pub(crate) fn read(podstate: &Value) -> Result<Self, String> {
        let at = "spec.trigger.podstate";
        let when = match podstate["when"].as_str() {
            Some("notready") => When::NotReady,
            Some("created") => When::Created,
            Some("ready") => When::Ready,
            Some("deleted") => When::Deleted,
            _ => return Err(format!("{at}.when: has to be ready, notready, created or deleted")),
        };
        let selecting = Selecting::read(&podstate["selector"])
            .map_err(|error| format!("{at}.selector: {error}"))?;
        Ok(Self { of: podstate.to_string().into(), when, selecting })
    }
}
