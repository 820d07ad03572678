//! Warnings of Kubernetes: mostly only an event says why a pod does not begin.

use k8s_openapi::api::core::v1::Event;

/// The reason of a pod that does not begin because its volumes cannot be mounted.
pub(crate) const MOUNTS: &str = "the pod waits for what it mounts";

/// A warning that says why something does not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warned {
    /// Whether the warning is about a pod, or else about a Job.
    pub(crate) of_pod: bool,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// The reason, for people.
    pub(crate) why: String,
    /// Whether the warning says only that something was waited for.
    pub(crate) vague: bool,
}

impl Warned {
    /// Reads an event; `None` if it does not say why a Job or a pod does not begin.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let object = &event.involved_object;
        let said = event.message.as_deref()?;
        let (of_pod, what) = match (object.kind.as_deref()?, event.reason.as_deref()?) {
            ("Job", "FailedCreate") => (false, "Kubernetes makes no pod for it"),
            ("Pod", "FailedMount" | "FailedAttachVolume") => (true, MOUNTS),
            ("Pod", "FailedCreatePodSandBox") => (true, "the node cannot make the pod"),
            ("Pod", "FailedPrepareDynamicResources") => {
                (true, "the node cannot prepare what its resource claims ask for")
            }
            _ => return None,
        };
        // `MountVolume.SetUp failed for volume "config" : configmap "c" not found`
        let said = match said.strip_prefix("MountVolume.SetUp failed for volume ") {
            Some(rest) => rest.split_once(" : ").map_or(said, |(_, why)| why),
            None => said,
        };
        let said = unnamed(said);
        Some(Self {
            of_pod,
            namespace: object.namespace.clone().unwrap_or_default(),
            name: object.name.clone()?,
            uid: object.uid.clone()?,
            why: shortened(format!("{what}: {said}")),
            vague: said.contains("timed out waiting for the condition"),
        })
    }
}

/// How many bytes of a message are kept: anybody who may write Events may write long ones, and for each run the last
/// one is kept.
const LONGEST: usize = 1024;

/// Cuts a message to the length that is kept.
fn shortened(mut said: String) -> String {
    if said.len() > LONGEST {
        said.truncate(said.floor_char_boundary(LONGEST));
        said.push('…');
    }
    said
}

/// Removes the names of pods that could not be made, which change with each try, so that the message stays the same.
fn unnamed(said: &str) -> String {
    let refused = said.split_once("pods \"").and_then(|(before, rest)| {
        let (_, after) = rest.split_once("\" is forbidden")?;
        Some(format!("{before}its pod is forbidden{after}"))
    });
    refused.unwrap_or_else(|| said.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{shortened, unnamed};

    #[test]
    fn of_what_is_long_the_beginning_is_kept() {
        assert_eq!(shortened("short".to_owned()), "short");
        let long = shortened("é".repeat(1000));
        assert_eq!((long.chars().count(), long.ends_with("é…")), (513, true));
    }

    #[test]
    fn a_pod_that_is_refused_again_is_refused_in_the_same_words() {
        for (said, expected) in [
            (
                "Error creating: pods \"a-1f-x7k2p\" is forbidden: exceeded quota: q, requested: pods=1",
                "Error creating: its pod is forbidden: exceeded quota: q, requested: pods=1",
            ),
            (
                "Error creating: pods \"a-1f-x7k2p\" is invalid",
                "Error creating: pods \"a-1f-x7k2p\" is invalid",
            ),
            ("configmap \"settings\" not found", "configmap \"settings\" not found"),
            ("pods \"", "pods \""),
        ] {
            assert_eq!(unnamed(said), expected);
        }
    }
}
