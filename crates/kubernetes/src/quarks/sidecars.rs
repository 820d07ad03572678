//! Classic sidecars, which go on until they are told that all else in their pod has ended.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::Controller;
use super::capture::ENDED;
use super::resource::Resource;
use super::seen::SeenPod;
use super::table::Key;
use crate::calls::{CallError, call};

/// How often those are told that no run knows of.
const STRAYS: Duration = Duration::from_secs(2);

/// A pod whose sidecar waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) namespace: Arc<str>,
    name: Arc<str>,
    pub(super) uid: Arc<str>,
    /// The uid of its Job.
    pub(super) job: Arc<str>,
}

impl Waiting {
    /// `None` if it does not wait for us.
    pub(super) fn of(pod: &SeenPod) -> Option<Self> {
        let [namespace, name, uid, job] =
            [&pod.namespace, &pod.name, &pod.uid, &pod.job].map(Arc::clone);
        (pod.waits_for_us && !pod.gone).then_some(Self { namespace, name, uid, job })
    }
}

impl Controller {
    /// Tells those of runs that go on.
    pub(super) async fn end_sidecars(
        &self,
        key: &Key,
        resource: &Resource,
    ) -> Result<(), CallError> {
        let waiting: Vec<_> = {
            let table = self.table();
            let Some(entry) = table.get(key) else { return Ok(()) };
            let open = entry.jobs.values().filter(|job| resource.is_open(job.run));
            open.flat_map(|job| table.pods(job)).filter_map(Waiting::of).collect()
        };
        for waiting in waiting {
            self.end_sidecar(&waiting).await?;
        }
        Ok(())
    }

    /// Tells, for ever, those of pods whose Job is gone or whose run is over: Kubernetes is to take such a pod away, and
    /// until it does nobody else would end it.
    pub(super) async fn end_stray_sidecars(self: Arc<Self>) {
        loop {
            tokio::time::sleep(STRAYS).await;
            if !self.leads() {
                continue;
            }
            let strays = self.table().strays();
            for stray in strays {
                if !self.leads() {
                    break;
                }
                if let Err(error) = self.end_sidecar(&stray).await {
                    let (namespace, name) = (&*stray.namespace, &*stray.name);
                    tracing::warn!(namespace, name, %error, "a sidecar was not told that it may end");
                }
            }
        }
    }

    async fn end_sidecar(&self, waiting: &Waiting) -> Result<(), CallError> {
        let Waiting { namespace, name, uid, .. } = waiting;
        let patch = json!({"metadata": {"uid": &**uid, "annotations": {ENDED: "true"}}});
        let pods = self.api::<Pod>(namespace);
        match call(pods.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch))).await {
            Ok(_) | Err(CallError::NotFound) => {
                self.table().told(uid);
                Ok(())
            }
            // Somebody wrote just now: there will be news of it.
            Err(CallError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
