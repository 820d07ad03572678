//! A pod too many.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta, PostParams};

use crate::wait::until;

/// Makes another pod of the Job that a pod is of, as its controller does that had no answer when it made that one, and
/// waits until it is taken away.
pub(crate) async fn come_and_go(pods: &Api<Pod>, pod: &Pod, within: std::time::Duration) {
    let name = format!("{}-twin", pod.name_any());
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        labels: pod.metadata.labels.clone(),
        annotations: pod.metadata.annotations.clone(),
        owner_references: pod.metadata.owner_references.clone(),
        ..ObjectMeta::default()
    };
    let mut twin = Pod { metadata, spec: pod.spec.clone(), status: None };
    twin.spec.iter_mut().for_each(|spec| spec.node_name = None);
    pods.create(&PostParams::default(), &twin).await.unwrap();
    until("it stays", within, async || match pods.get_opt(&name).await.unwrap() {
        None => Ok(()),
        Some(pod) => Err(pod),
    })
    .await;
}
