//! When nobody had answers.

use std::sync::OnceLock;
use std::time::Duration;

use testkit::kubelet::Entry;
use testkit::plane::ControlPlane;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long after its end a pod may begin that was made in it.
const HEARD: Duration = Duration::from_secs(30);

/// From when until when an API server, or its etcd, was away.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    began: OnceLock<Instant>,
    ended: OnceLock<Instant>,
}

impl Outage {
    /// It is away while this goes on.
    pub(crate) fn during(&self, away: impl FnOnce()) {
        self.began.set(Instant::now()).unwrap();
        away();
        self.ended.set(Instant::now()).unwrap();
    }

    /// Whether a run went on around it, of whose Job there may be a further pod: whoever makes these makes another, if
    /// the answer to the first did not come.
    pub(crate) fn is_around(&self, run: &Entry) -> bool {
        let (Some(&began), Some((first, last))) = (self.began.get(), run.ran) else { return false };
        let is_after = self.ended.get().is_some_and(|&ended| first > ended + HEARD);
        last >= began && !is_after
    }
}

/// Waits until some run has a pod that has not ended; fails if all was over before.
pub(crate) fn until_one_goes_on<T>(plane: &ControlPlane, running: &[JoinHandle<T>]) {
    let going = "--field-selector=status.phase!=Succeeded,status.phase!=Failed";
    let look = ["get", "pods", "-A", "-l", "job-name", going, "-o", "name"];
    while plane.kubectl().args(look).output().unwrap().stdout.is_empty() {
        assert!(!running.iter().all(JoinHandle::is_finished), "all was over before");
        std::thread::sleep(Duration::from_millis(50));
    }
}
