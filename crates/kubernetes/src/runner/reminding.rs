//! Reminds kubelets of deleted pods that still exist when their time is up.

use kube::api::DeleteParams;

use super::Shared;
use super::seen::{Seen, SeenPod};
use super::stage::Stage;
use crate::calls::{self, CallError};

/// How many seconds after its time a pod may still exist.
const LATE: i64 = 2;
/// After how many seconds past its time a pod that has not begun counts as one that never will.
const NEVER: i64 = 8;

impl Shared {
    /// Deletes pods again whose deletion was ignored: a kubelet of 1.20 takes a pod that is deleted in the moment in
    /// which its container begins for one that has ended, and ignores it until the pod changes.
    pub(super) async fn remind(&self, seen: &Seen) -> Result<(), CallError> {
        for pod in &seen.pods {
            let Some(grace) = reminder(pod, self.now_seconds(), self.forgets_pods) else {
                continue;
            };
            let params =
                DeleteParams { grace_period_seconds: Some(grace), ..DeleteParams::default() };
            match calls::delete(&self.pods(&pod.namespace), &pod.name, &params).await {
                Ok(()) | Err(CallError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The grace period, in seconds, with which a pod is deleted again; `None` if it is not. It is none where the pod has
/// no node, or one whose kubelet may have forgotten it before it began. Any other kubelet has to end the pod itself: it
/// may be pulling the image, and would then begin a pod that does not exist any more (kubernetes/kubernetes#125050).
pub(super) fn reminder(pod: &SeenPod, now: i64, forgets: bool) -> Option<u32> {
    // On a silent node there is no kubelet to remind.
    if pod.gone || pod.silent {
        return None;
    }
    let since = |time: Option<i64>| time.map_or(0, |time| now.saturating_sub(time));
    let late = since(pod.deletion.map(|it| it.until));
    let asked = since(pod.deletion.map(|it| it.asked));
    let for_good = forgets || pod.node.is_none();
    match pod.stage {
        // A broker that cannot have begun has nothing to end politely.
        Stage::Waiting(_) if for_good && !pod.begins && asked > LATE => Some(0),
        Stage::Waiting(_) if for_good && late > NEVER => Some(0),
        Stage::Running | Stage::Waiting(_) if late > LATE => Some(1),
        _ => None,
    }
}
