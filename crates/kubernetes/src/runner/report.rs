//! Reads the results of runs: a report from a termination message or a log, the progress, and the log itself.

use agent::{Answer, Line, Message, Report};
use engine::names::RunName;
use engine::ports::{Offer, RunFailure, RunState, RunnerError};
use engine::record::Reason;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use osb::{Failure, Output};

use super::labels::BROKER_CONTAINER;
use super::seen::{Fence, Seen, SeenPod};
use super::stage::End;
use super::standing::{Standing, reported, taken_away};
use super::{CHANGED, Shared};
use crate::calls::{self, CallError, there};
use crate::names;
use crate::text::each;

/// How many bytes of a log are read: a report, and what is around it.
const LOG_BYTES: i64 = 12 * 1024 * 1024;
/// How many seconds the log with a report is waited for.
const UNREAD: i64 = 5 * 60;

impl Shared {
    /// The state of a run by its termination message.
    pub(super) async fn reported(
        &self,
        name: &RunName,
        seen: &Seen,
        end: &End,
    ) -> Result<RunState, RunnerError> {
        let report = match self.report(name, seen, end).await? {
            Ok(report) => report,
            Err(Untold::Yet(said)) => return Ok(RunState::Running { progress: Some(said) }),
            Err(Untold::Ever(why)) => return Ok(RunState::Lost { why }),
        };
        Ok(match report.answer {
            Answer::Work(result) => meant(result, seen, end, self.now_seconds()),
            Answer::Offer(_) => RunState::Lost { why: "it answered another question".to_owned() },
        })
    }

    /// The report of a run, or why there is none.
    async fn report(
        &self,
        name: &RunName,
        seen: &Seen,
        end: &End,
    ) -> Result<Result<Report, Untold>, RunnerError> {
        let message = end.message.as_deref().unwrap_or_default();
        let sealed = match Message::parse(message) {
            Ok(Message::Sealed(sealed)) => sealed,
            Ok(Message::Logged(logged)) => {
                self.readings.enter(name).await;
                let pod = with_report(&seen.pods);
                let log = match self.whole_log(pod).await {
                    Ok(log) => log,
                    // The log went with the pod.
                    Err(CallError::NotFound) if pod.is_none_or(|pod| pod.gone) => None,
                    Err(error) => {
                        self.readings.leave(name);
                        tracing::warn!(run = %name, %error, "the report of a run cannot be read");
                        return self.without_log(name, end, &error).await.map(Err);
                    }
                };
                match log.map(|log| logged.read(&log)) {
                    Some(Ok(sealed)) => sealed,
                    Some(Err(error)) => return Ok(Err(Untold::Ever(error.to_string()))),
                    None => {
                        self.readings.leave(name);
                        return Ok(Err(never("its report was in a log that is gone")));
                    }
                }
            }
            // The broker may have written this text: it stays in the log.
            Ok(Message::Broken(_)) => {
                let why = "the agent could not begin, or not read what it was given; the log of the pod says why";
                return Ok(Err(never(why)));
            }
            Err(error) => return Ok(Err(Untold::Ever(error.to_string()))),
        };
        let opened = self.keys.opened(|keys| sealed.report(keys, name.as_str())).await;
        let opened = opened.map_err(CallError::from)?;
        Ok(opened.map_err(|error| Untold::Ever(error.to_string())))
    }

    /// What can be said about a report whose log cannot be read. That it will never come is only said where the API
    /// server answers calls that it can answer by itself: otherwise the API server is what is missing.
    async fn without_log(
        &self,
        name: &RunName,
        end: &End,
        error: &CallError,
    ) -> Result<Untold, RunnerError> {
        let back = self.time.back_seconds();
        let since = end.at.map_or(back, |at| at.max(back));
        let untold = unread(error, self.now_seconds().saturating_sub(since));
        if matches!(untold, Untold::Ever(_)) {
            match self.look_up(name).await {
                // Rights go with their namespace.
                Ok(()) | Err(CallError::Forbidden(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(untold)
    }

    /// Waits for the offer of a catalog's run.
    pub(super) async fn offered(
        &self,
        name: &RunName,
        waits: impl Fn(Option<&str>) -> bool,
    ) -> Result<Offer, RunFailure> {
        let failed = |reason, why: String| RunFailure::new(reason, Failure::failed(why));
        let mut told = None;
        loop {
            let seen = self.look_at(name).await;
            let seen = seen.map_err(|error| failed(Reason::Lost, error.to_string()))?;
            let why = match self.standing(&seen) {
                Standing::Going { said, .. } => {
                    if !waits(said.as_deref()) {
                        return Err(failed(Reason::Halted, "it is not wanted any more".to_owned()));
                    }
                    // Logged, because nobody can order yet who would see the reason.
                    if said.is_some() && said != told {
                        let what = said.as_deref().unwrap_or_default();
                        tracing::warn!(run = %name, what, "the question for the catalog waits");
                        told = said;
                    }
                    if let Err(error) = self.mend_agent(&seen).await {
                        tracing::warn!(run = %name, %error, "the agent's ConfigMap");
                    }
                    self.known.changed(name, CHANGED, |_| false).await;
                    continue;
                }
                Standing::Reported(end) => {
                    let report = self.report(name, &seen, &end).await;
                    match report.map_err(|error| failed(Reason::Lost, error.to_string()))? {
                        Ok(Report { answer: Answer::Offer(offer), .. }) => return offer,
                        Ok(_) => "it answered another question".to_owned(),
                        Err(Untold::Ever(why) | Untold::Yet(why)) => why,
                    }
                }
                Standing::NeverBegan(why) | Standing::ToEnd(Fence::Hopeless(why)) => {
                    return Err(failed(Reason::NotStarted, why));
                }
                Standing::TimedOut(why) => return Err(failed(Reason::Timeout, why)),
                Standing::Lost(why) | Standing::ToEnd(Fence::Lost(why)) => why,
                Standing::Absent | Standing::Halted | Standing::ToEnd(Fence::Cancelled) => {
                    "its Job was removed".to_owned()
                }
            };
            return Err(failed(Reason::Lost, why));
        }
    }

    /// The log of a run, without the agent's own lines.
    pub(super) async fn log(&self, name: &RunName) -> Result<Option<String>, CallError> {
        let mut seen = self.known.get(name);
        if seen.pods.is_empty() {
            // Only pods of this broker: the caller may have no right to another's.
            let run = super::labels::RUN;
            let selector = format!("{run}={name},{}={}", names::BROKER, self.label);
            for namespace in &self.namespaces {
                let pods = self.texts::<Pod>(namespace);
                let of = kube::api::ListParams::default().labels(&selector);
                let home = self.home().to_owned();
                let read = super::watch::at_home(home, super::seen::SeenPod::of_text);
                let found = match there(each(&pods, of, read).await) {
                    // There is no pod that could be read.
                    Err(CallError::Forbidden(_)) if namespace != self.home() => None,
                    found => found?,
                };
                seen.pods.extend(found.into_iter().flatten());
            }
        }
        let pod = with_report(&seen.pods);
        let _place = self.readings.show().await;
        let Some(log) = there(self.whole_log(pod).await)?.flatten() else { return Ok(None) };
        let lines = log.split_inclusive('\n').filter(|line| Line::parse(line).is_none());
        Ok(Some(lines.collect()))
    }

    async fn whole_log(&self, pod: Option<&SeenPod>) -> Result<Option<String>, CallError> {
        let Some(pod) = pod else { return Ok(None) };
        let (container, limit_bytes) = (Some(BROKER_CONTAINER.to_owned()), Some(LOG_BYTES));
        let params = LogParams { container, limit_bytes, ..LogParams::default() };
        let log = calls::log(&self.pods(&pod.namespace), &pod.name, &params).await?;
        Ok(log.map(|log| String::from_utf8_lossy(&log).into_owned()))
    }
}

/// The pod that has reported, or the first one if none has.
fn with_report(pods: &[SeenPod]) -> Option<&SeenPod> {
    pods.iter().find(|pod| reported(pod).is_some()).or(pods.first())
}

/// The reason why there is no report.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Untold {
    /// A report may come later.
    Yet(String),
    /// There will never be a report.
    Ever(String),
}

fn never(why: &str) -> Untold {
    Untold::Ever(why.to_owned())
}

/// The reason why a report is missing whose log the API server does not return, `after` this many seconds since the
/// end: the kubelet may be restarted, or out of reach. Waiting for ever would block the instance: nobody else gets the
/// turn, and it cannot even be removed.
pub(super) fn unread(error: &CallError, after: i64) -> Untold {
    let what = match error {
        CallError::Forbidden(_) => "the right to read it is missing (pods/log: get)",
        CallError::NoAnswer(_) => "it does not come; its node may be out of reach",
        CallError::Overloaded(_) => "the API server has too much to do to read it",
        CallError::NotFound => "its node does not know of the pod; its kubelet may have just begun",
        _ => "the API server cannot read it from the node",
    };
    match after > UNREAD {
        true => Untold::Ever(format!(
            "it has ended, and its report in its pod's log was not to be had: {error}"
        )),
        false => Untold::Yet(format!("it has ended, and its report is in its pod's log: {what}")),
    }
}

/// The result that the agent reports, completed by what it cannot know: who ended it, and that its memory was used up.
fn meant(result: Result<Output, RunFailure>, seen: &Seen, end: &End, now: i64) -> RunState {
    let mut failure = match result {
        Err(failure) => failure,
        done => return RunState::Finished(done),
    };
    let job = seen.job.as_ref();
    if failure.reason != Reason::Halted {
        if end.reason == "OOMKilled" {
            let words = "; its container ran out of memory (OOMKilled)";
            failure.failure.description.push_str(words);
        }
        return RunState::Finished(Err(failure));
    }
    match job.and_then(|job| job.fenced.clone()) {
        Some(Fence::Lost(why)) => return RunState::Lost { why },
        Some(Fence::Cancelled) => {}
        Some(Fence::Hopeless(why)) => {
            let words = format!("; it was too late: {why}");
            failure.failure.description.push_str(&words);
        }
        None if job.is_some_and(|job| job.goes_over_time(now)) => {
            failure.reason = Reason::Timeout;
        }
        None => return RunState::Lost { why: taken_away(seen) },
    }
    RunState::Finished(Err(failure))
}
