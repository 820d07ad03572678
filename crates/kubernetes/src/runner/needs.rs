//! What has to exist before a pod can begin; pure.

use k8s_openapi::api::core::v1::{Pod, Volume};

use super::labels::RUN;

/// A ConfigMap or a Secret that a pod mounts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Need {
    ConfigMap(String),
    Secret(String),
}

impl Need {
    /// The message that it is missing, in a kubelet's words, so that it does not change when the kubelet's own arrives.
    pub(super) fn missing(&self) -> String {
        match self {
            Self::ConfigMap(name) => format!("configmap {name:?} not found"),
            Self::Secret(name) => format!("secret {name:?} not found"),
        }
    }
}

/// The mounts that have to exist before a pod can begin. The Secret given to the run is left out: it is made before its
/// Job.
pub(super) fn needs(pod: &Pod) -> Vec<Need> {
    let run = pod.metadata.labels.as_ref().and_then(|labels| labels.get(RUN));
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let need = |volume: &Volume| {
        if let Some(source) = volume.config_map.as_ref().filter(|it| it.optional != Some(true)) {
            return Some(Need::ConfigMap(source.name.clone()));
        }
        let source = volume.secret.as_ref().filter(|it| it.optional != Some(true))?;
        let name = source.secret_name.as_ref().filter(|name| Some(*name) != run)?;
        Some(Need::Secret(name.clone()))
    };
    volumes.filter_map(need).collect()
}
