//! When nobody had answers.

use std::time::Duration;

use testkit::plane::ControlPlane;
use tokio::task::JoinHandle;

/// Waits until some run has a pod that has not ended; fails if all was over before.
pub(crate) fn until_one_goes_on<T>(plane: &ControlPlane, running: &[JoinHandle<T>]) {
    let going = "--field-selector=status.phase!=Succeeded,status.phase!=Failed";
    let look = ["get", "pods", "-A", "-l", "job-name", going, "-o", "name"];
    while plane.kubectl().args(look).output().unwrap().stdout.is_empty() {
        assert!(!running.iter().all(JoinHandle::is_finished), "all was over before");
        std::thread::sleep(Duration::from_millis(50));
    }
}
