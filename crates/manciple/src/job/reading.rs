//! Reads the log of one container: as a whole, or following it until the container is over.

use std::cell::Cell;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kubernetes::quarks::view::is_sealed;
use serde_json::json;

use super::cluster::Cluster;
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// How often the command looks at a container that has not begun, or begins again.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a pod's status may say that a container goes on whose log has ended.
const LAG: Duration = Duration::from_secs(30);
/// The longest line that is kept in memory, in bytes; a longer one is printed as several.
const LINE: u64 = 1024 * 1024;

/// A printer of log lines, which leaves out those of the agent.
pub(crate) struct Printer {
    out: Output,
    run: u64,
    /// Whether the user was told that something is left out.
    told: Cell<bool>,
}

/// A container whose log is read.
pub(crate) struct Reading<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) printer: &'a Printer,
    pub(crate) pod: &'a str,
    pub(crate) container: &'a str,
    /// The prefix of each line.
    pub(crate) prefix: String,
}

impl Printer {
    /// A printer of the logs of this run.
    pub(crate) fn new(out: Output, run: u64) -> Self {
        Self { out, run, told: Cell::new(false) }
    }

    /// Prints a line; for programs each line is a document of its own.
    fn print(&self, reading: &Reading<'_>, line: &str) -> Result<(), Failure> {
        let Reading { pod, container, prefix, .. } = reading;
        match self.out.is_json() {
            true => {
                let line =
                    json!({"run": self.run, "pod": pod, "container": container, "line": line});
                self.out.line(&line.to_string())
            }
            false => self.out.foreign(&format!("{prefix}{line}\n")),
        }
    }

    /// Says, once, that something is left out.
    fn left_out(&self) {
        if !self.told.replace(true) {
            self.note("(output stands in this log too, sealed: those lines are left out)");
        }
    }

    fn note(&self, text: &str) {
        if self.out.is_chatty() {
            self.out.note(text);
        }
    }
}

impl Reading<'_> {
    /// Prints what the container has printed so far.
    pub(crate) async fn whole(self, pod: &Pod) -> Result<(), Failure> {
        let status = self.status(pod);
        let log = match status.is_some_and(has_begun) {
            true => self.cluster.log(self.pod, self.container, false).await?,
            false => None,
        };
        let Some(log) = log else {
            let (container, pod) = (self.container, self.pod);
            self.printer.note(&format!("(container {container} of pod {pod} has not begun)"));
            return Ok(());
        };
        let again = status.map_or(0, |status| status.restart_count);
        if again > 0 {
            let (container, times) = (self.container, again + 1);
            self.printer.note(&format!(
                "({container} was started {times} times: this is the log of the last)"
            ));
        }
        self.lines(log).await
    }

    /// Prints what the container prints until it is over, also each time that it is started again.
    pub(crate) async fn follow(self) -> Result<(), Failure> {
        let mut read = None;
        let mut silent = Instant::now();
        // A pod that is gone says nothing more.
        while let Some(pod) = self.cluster.pod(self.pod).await? {
            let status = self.status(&pod);
            let new = status.filter(|it| has_begun(it) && read != Some(it.restart_count));
            if let Some(status) = new
                && let Some(log) = self.cluster.log(self.pod, self.container, true).await?
            {
                self.lines(log).await?;
                (read, silent) = (Some(status.restart_count), Instant::now());
                continue;
            }
            if is_over(&pod, status) {
                return Ok(());
            }
            let goes_on = status.is_some_and(|status| read == Some(status.restart_count));
            if goes_on && status.is_some_and(is_running) && silent.elapsed() > LAG {
                return Err(self.broken_off("the container goes on"));
            }
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    }

    async fn lines(&self, log: impl AsyncBufRead) -> Result<(), Failure> {
        let mut log = pin!(log);
        let mut bytes = Vec::new();
        // The agent begins with an end of line, for the last before its own may have none.
        let mut empty = false;
        loop {
            bytes.clear();
            let read = (&mut log).take(LINE).read_until(b'\n', &mut bytes).await;
            let read = read.map_err(|error| self.broken_off(&error.to_string()))?;
            let line = String::from_utf8_lossy(&bytes);
            let line = line.strip_suffix('\n').unwrap_or(&line);
            let sealed = is_sealed(line);
            if std::mem::take(&mut empty) && !sealed {
                self.printer.print(self, "")?;
            }
            match line {
                _ if read == 0 => return Ok(()),
                _ if sealed => self.printer.left_out(),
                "" => empty = true,
                line => self.printer.print(self, line)?,
            }
        }
    }

    fn broken_off(&self, cause: &str) -> Failure {
        Failure::broken_off(&format!("container {} of pod {}", self.container, self.pod), cause)
    }

    fn status<'p>(&self, pod: &'p Pod) -> Option<&'p ContainerStatus> {
        let status = pod.status.as_ref()?;
        let first = status.init_container_statuses.iter().flatten();
        let mut all = first.chain(status.container_statuses.iter().flatten());
        all.find(|status| status.name == self.container)
    }
}

fn has_begun(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Whether a container is over, so that it prints nothing any more.
fn is_over(pod: &Pod, status: Option<&ContainerStatus>) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let restarts = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let ended = status.and_then(|status| status.state.as_ref()?.terminated.as_ref());
    matches!(phase, Some("Succeeded" | "Failed"))
        || ended.is_some_and(|ended| ended.exit_code == 0 || restarts == Some("Never"))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn over(phase: &str, policy: &str, state: &Value) -> bool {
        let status = json!({
            "name": "c", "image": "i", "imageID": "i", "restartCount": 0, "ready": false, "state": state,
        });
        let pod = json!({
            "spec": {"containers": [], "restartPolicy": policy},
            "status": {"phase": phase, "containerStatuses": [status]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let status = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
        is_over(&pod, status.first())
    }

    #[test]
    fn a_container_is_over_when_it_is_not_started_again() {
        let running = json!({"running": {}});
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let ended = |code: i32| json!({"terminated": {"exitCode": code}});
        for (case, phase, policy, state, expected) in [
            ("it goes on", "Running", "Never", running.clone(), false),
            ("it waits", "Pending", "OnFailure", waiting.clone(), false),
            ("well", "Running", "OnFailure", ended(0), true),
            ("badly, and again", "Running", "OnFailure", ended(1), false),
            ("badly, and never again", "Running", "Never", ended(1), true),
            ("the pod is over", "Failed", "OnFailure", waiting, true),
            ("its node went", "Failed", "Never", running, true),
        ] {
            assert_eq!(over(phase, policy, &state), expected, "{case}");
        }
        assert!(!is_over(&Pod::default(), None));
    }
}
