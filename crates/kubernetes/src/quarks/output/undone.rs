//! Why a step is not done: pure.

use std::time::Duration;

use crate::calls::CallError;

/// Why a step is not done.
#[derive(Debug)]
pub(crate) enum Undone {
    Failed(CallError),
    /// It is to be tried after this time.
    Later(Duration),
}

impl From<CallError> for Undone {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// Of several steps: the last failure, and after how long the first of the others is to be tried.
pub(crate) fn summed(
    undone: impl IntoIterator<Item = Undone>,
) -> (Option<CallError>, Option<Duration>) {
    undone.into_iter().fold((None, None), |(failed, later), undone| match undone {
        Undone::Failed(error) => (Some(error), later),
        Undone::Later(pause) => (failed, Some(later.map_or(pause, |later| pause.min(later)))),
    })
}

/// What is said of a log that the API server does not find while it has the pod.
pub(crate) const NOT_YET: &str =
    "its node does not know of the pod; its kubelet may have just begun";

/// Whether the message of a kubelet says that it could not reach its runtime, and so not that there is no log.
pub(crate) fn is_of_a_runtime_that_is_away(why: &str) -> bool {
    ["code = Unavailable", "code = DeadlineExceeded", "connection refused"]
        .iter()
        .any(|words| why.contains(words))
}

/// The error for a container's log that cannot be read. That none comes is mostly the fault of the node, and is told;
/// if it is the API server that does not answer, nobody hears that.
pub(crate) fn of_log(pod: &str, container: &str, error: CallError) -> CallError {
    match error {
        CallError::NoAnswer(why) => CallError::Hindered(format!(
            "the log of the container {container} of the pod {pod} does not come: {why}"
        )),
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_told_and_what_is_put_off_taken_up_in_time() {
        let failed = |why: &str| Undone::Failed(CallError::Failed(why.to_owned()));
        let later = |seconds| Undone::Later(Duration::from_secs(seconds));
        for (name, undone, error, pause) in [
            ("nothing", vec![], None, None),
            ("one failed", vec![failed("a")], Some("a"), None),
            ("two failed", vec![failed("a"), failed("b")], Some("b"), None),
            ("two are put off", vec![later(9), later(2), later(5)], None, Some(2)),
            ("one failed, one is put off", vec![failed("a"), later(2)], Some("a"), Some(2)),
            ("the other way round", vec![later(2), failed("a")], Some("a"), Some(2)),
        ] {
            let (found, later) = summed(undone);
            let found = found.map(|error| error.to_string());
            let expected = error.map(|why| format!("the API server refused: {why}"));
            assert_eq!((found, later.map(|it| it.as_secs())), (expected, pause), "{name}");
        }
    }

    #[test]
    fn a_runtime_that_is_away_is_told_from_a_log_that_is_gone() {
        for (why, is_away) in [
            ("rpc error: code = Unavailable desc = connection error: dial unix", true),
            ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", true),
            ("dial unix /run/containerd/containerd.sock: connect: connection refused", true),
            ("previous terminated container \"c\" in pod \"p\" not found", false),
            (
                "rpc error: code = NotFound desc = an error occurred when try to find container",
                false,
            ),
            ("container \"c\" in pod \"p\" is waiting to start: PodInitializing", false),
        ] {
            assert_eq!(is_of_a_runtime_that_is_away(why), is_away, "{why}");
        }
    }

    #[test]
    fn a_log_that_does_not_come_is_told_of() {
        let told = |error| of_log("p", "c", error);
        let silent = CallError::NoAnswer("waited for 20 s".to_owned());
        let words = "the log of the container c of the pod p does not come: waited for 20 s";
        assert!(matches!(told(silent), CallError::Hindered(why) if why == words));
        let refused = CallError::Failed("tls".to_owned());
        assert!(matches!(told(refused), CallError::Failed(why) if why == "tls"));
        let busy = CallError::Overloaded("busy".to_owned());
        assert!(matches!(told(busy), CallError::Overloaded(why) if why == "busy"));
    }
}
