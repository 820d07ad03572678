//! Pods that are still there when their time is up.

use kube::api::DeleteParams;

use super::Shared;
use super::seen::{Seen, SeenPod};
use super::stage::Stage;
use crate::calls::{self, CallError};

/// How long after its time a pod may still be there, in seconds.
const LATE: i64 = 2;
/// How long after its time a pod that never began is taken for one that never will.
const NEVER: i64 = 8;

impl Shared {
    /// A kubelet of 1.20 takes a pod that is deleted in the moment in which its container begins for one that
    /// has ended, and leaves it alone until the pod changes: it is deleted again.
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

/// With how many seconds of grace a pod is deleted again, if it is: for good, with none, where it has no node, or one
/// whose kubelet may have forgotten it before it began. Any other kubelet is to end it itself: it may be pulling the
/// image, and would begin what is not there any more when it has it (kubernetes/kubernetes#125050).
pub(super) fn reminder(pod: &SeenPod, now: i64, forgets: bool) -> Option<u32> {
    // Nobody is there to be reminded on a node that is silent.
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
