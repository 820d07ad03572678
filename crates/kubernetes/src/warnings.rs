//! What Kubernetes warns of: mostly nothing but an event says why a pod does not begin.

use k8s_openapi::api::core::v1::Event;

/// Why a pod does not begin whose volumes cannot be made.
pub(crate) const MOUNTS: &str = "the pod waits for what it mounts";

/// A warning that says why something does not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Warned {
    /// Of what: a pod, or else a Job.
    pub(crate) of_pod: bool,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// For people.
    pub(crate) why: String,
    /// It says only that it has waited.
    pub(crate) vague: bool,
}

impl Warned {
    /// `None` if it says nothing of why a Job or a pod does not begin.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let object = &event.involved_object;
        let said = event.message.as_deref()?;
        let (of_pod, what) = match (object.kind.as_deref()?, event.reason.as_deref()?) {
            ("Job", "FailedCreate") => (false, "Kubernetes makes no pod for it"),
            ("Pod", "FailedMount" | "FailedAttachVolume") => (true, MOUNTS),
            ("Pod", "FailedCreatePodSandBox") => (true, "the node cannot make the pod"),
            _ => return None,
        };
        // `MountVolume.SetUp failed for volume "config" : configmap "c" not found`
        let said = match said.strip_prefix("MountVolume.SetUp failed for volume ") {
            Some(rest) => rest.split_once(" : ").map_or(said, |(_, why)| why),
            None => said,
        };
        Some(Self {
            of_pod,
            name: object.name.clone()?,
            uid: object.uid.clone()?,
            why: format!("{what}: {said}"),
            vague: said.contains("timed out waiting for the condition"),
        })
    }
}
