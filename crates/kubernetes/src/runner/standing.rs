//! The standing of a run, by what is seen of it; pure.

use std::time::Duration;

use engine::ports::{RunFailure, RunState};
use engine::record::Reason;
use osb::Failure;

use super::seen::{Fence, Seen, SeenJob, SeenPod, Warning};
use super::stage::{End, Stage, UNKNOWN, Waits};
use crate::conditions::JobEnd;
use crate::nodes::{self, MAKES, UNHEARD};

/// How many seconds after a run's time a node may be silent before its pods are no longer waited for.
const SILENCE: i64 = 60;
/// How many seconds Kubernetes may take to make a pod before that is worth telling.
const PATIENCE: i64 = 2;
/// The message where two pods of a run have nodes, or may have.
const TWO: &str = "Kubernetes made two pods for it, and both may have begun";
/// The message where one of two pods went, and may have had a node.
const MISSED: &str =
    "Kubernetes made two pods for it, and one went while pods were not watched, and may have begun";
/// The message where one of two pods has ended, and itself says how.
const ENDED: &str = "Kubernetes made two pods for it, and one has ended";
/// The message that the Job controller writes a moment later.
const OVER_TIME: &str = "Job was active longer than specified deadline";

/// The standing of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    /// The run was released, or never made.
    Absent,
    /// The run goes on, or will; with what to tell about it, and whether its broker has begun.
    Going { said: Option<String>, broker: bool },
    /// The container left a message.
    Reported(End),
    /// The run never began.
    NeverBegan(String),
    /// The run has to be ended, and is not yet: the Job is to be fenced off.
    ToEnd(Fence),
    /// The run was ended because somebody asked for it.
    Halted,
    /// The run was ended because its time was up.
    TimedOut(String),
    /// The run is gone and left no report.
    Lost(String),
}

impl Standing {
    /// The state of a run by its standing; `None` where more has to be read: a report, or the progress of its broker.
    pub(super) fn state(&self) -> Option<RunState> {
        let running = |progress| RunState::Running { progress };
        let failed = |reason, why: &str| {
            RunState::Finished(Err(RunFailure::new(reason, Failure::failed(why))))
        };
        Some(match self {
            Self::Reported(_) | Self::Going { said: None, broker: true } => return None,
            Self::Absent => RunState::Absent,
            Self::Going { said, .. } => running(said.clone()),
            Self::ToEnd(Fence::Cancelled) => running(None),
            Self::ToEnd(Fence::Lost(why) | Fence::Hopeless(why)) => {
                running(Some(format!("it is being ended: {why}")))
            }
            Self::NeverBegan(why) => failed(Reason::NotStarted, why),
            Self::Halted => failed(Reason::Halted, "it was ended before it had done its work"),
            Self::TimedOut(said) => failed(Reason::Timeout, &format!("its time was up: {said}")),
            Self::Lost(why) => RunState::Lost { why: why.clone() },
        })
    }

    /// Whether the run is not over.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Self::Going { .. } | Self::ToEnd(_))
    }
}

/// Decides the standing of a run; `now` is in seconds since 1970, as is `back`: since when the API server answers.
/// Before that nobody could make a pod, or report that one had begun or ended.
pub(super) fn standing(seen: &Seen, start_timeout: Duration, now: i64, back: i64) -> Standing {
    let Seen { job, pods, warning, .. } = seen;
    let Some(job) = job.as_ref().filter(|job| job.released.is_none()) else {
        return Standing::Absent;
    };
    if let Some(end) = pods.iter().find_map(reported) {
        return Standing::Reported(end.clone());
    }
    let alive = pods.iter().any(|pod| is_alive(pod, job, now, back));
    if let Some(why) = &job.fenced {
        return fenced(why, pods, alive);
    }
    if let Some(why) = why_to_fence(seen, now) {
        return Standing::ToEnd(why);
    }
    if let Some(said) = job.over_time() {
        return over_time(said, pods, warning.as_ref(), alive);
    }
    let late = now.saturating_sub(job.created.max(back)) > seconds(start_timeout);
    let hopeless = late.then_some(start_timeout);
    let Some(pod) = pods.first() else {
        return without_pod(job, warning.as_ref(), hopeless, now);
    };
    match &pod.stage {
        _ if pod.gone && job.goes_over_time(now) => Standing::TimedOut(OVER_TIME.to_owned()),
        _ if pod.gone => Standing::Lost(gone(job)),
        Stage::Waiting(waits) => {
            let waits = waits.clone().or_else(|| warning.as_ref()?.of(&pod.uid));
            waiting(pod, waits, hopeless, now)
        }
        Stage::Running if !alive => Standing::Lost(joined([unanswered(pods)])),
        Stage::Running => running(pod, job),
        Stage::NeverBegan(why) if !pod.began => Standing::NeverBegan(why.clone()),
        Stage::NeverBegan(_) if job.is_leaving() => Standing::Lost(gone(job)),
        _ => Standing::Lost(without_report(pod)),
    }
}

/// The reason why the pods of a run have to be ended: one was deleted, and servers before 1.29 make another in its
/// place, which would do the work a second time; or there are two, as a Job controller makes that got no answer, and
/// more than one may begin. It is returned until the Job is known to be fenced off.
pub(super) fn why_to_fence(seen: &Seen, now: i64) -> Option<Fence> {
    let Seen { job, pods, .. } = seen;
    if !job.as_ref().is_some_and(|job| is_open(job, now)) {
        return None;
    }
    let first = pods.first()?;
    let Some(second) = pods.get(1) else {
        return first.is_leaving().then(|| Fence::Lost(pod_words(pods)));
    };
    let leaving = || pods.iter().filter(|pod| pod.is_leaving());
    // A pod that had a node before the other, which was made in its place.
    let was_before =
        |pod: &SeenPod| pod.placed.is_some_and(|at| first.placed.is_none_or(|it| at < it));
    if leaving().any(was_before) {
        return Some(Fence::Lost(pod_words(pods)));
    }
    // The other pod waited for this one to end.
    if first.has_ended() && !first.is_leaving() {
        return Some(match &first.stage {
            Stage::NeverBegan(why) if !first.began => Fence::Hopeless(why.clone()),
            _ if reported(first).is_none() => Fence::Lost(without_report(first)),
            _ if first.leaving.is_some() => Fence::Lost(pod_words(pods)),
            _ => Fence::Lost(ENDED.to_owned()),
        });
    }
    let has_gone = leaving().next().is_some();
    let is_missed = |pod: &SeenPod| pod.missed && pod.placed.is_none();
    let words = if has_gone && leaving().all(is_missed) {
        MISSED.to_owned()
    } else if first.is_leaving() {
        pod_words(pods)
    } else if has_gone || second.placed.is_some() {
        // The younger pod is the one too many.
        TWO.to_owned()
    } else {
        return None;
    };
    Some(Fence::Lost(words))
}

/// Whether more pods may be made for a Job, and none is ended because its time is up.
pub(super) fn is_open(job: &SeenJob, now: i64) -> bool {
    let closed = job.fenced.is_some() || job.released.is_some() || job.end.is_some();
    !closed && !job.is_leaving() && !job.goes_over_time(now)
}

/// The message that says who ended a run whose agent was told to end, and not by us.
pub(super) fn taken_away(seen: &Seen) -> String {
    let leaving = seen.job.as_ref().filter(|job| job.is_leaving());
    leaving.map_or_else(|| pod_words(&seen.pods), gone)
}

fn pod_words(pods: &[SeenPod]) -> String {
    match pods.iter().find_map(|pod| pod.leaving.as_ref()) {
        Some(said) => format!("its pod was taken away: {said}"),
        None => "its pod was deleted: by hand, or because its node was drained".to_owned(),
    }
}

/// The end of the broker's container, if the agent left a message.
pub(super) fn reported(pod: &SeenPod) -> Option<&End> {
    match &pod.stage {
        Stage::Ended(end) if end.message.is_some() => Some(end),
        _ => None,
    }
}

/// Whether a pod may still have an effect. The agent ends its broker in time, even where nobody can see that. While the
/// API server was away nobody could report an end.
fn is_alive(pod: &SeenPod, job: &SeenJob, now: i64, back: i64) -> bool {
    let over = job.until.is_some_and(|until| until.max(back).saturating_add(SILENCE) < now);
    !pod.gone && !over && !pod.has_ended()
}

/// The standing of a fenced-off run: it goes on until its pods are gone, because they may have an effect to the last.
fn fenced(why: &Fence, pods: &[SeenPod], alive: bool) -> Standing {
    if alive {
        let what = match why {
            Fence::Cancelled => "somebody asked for it",
            Fence::Lost(why) | Fence::Hopeless(why) => why,
        };
        return going(joined([Some(format!("it is being ended: {what}")), silence(pods)]));
    }
    if let Some(unanswered) = unanswered(pods) {
        return Standing::Lost(unanswered);
    }
    match why {
        Fence::Cancelled => Standing::Halted,
        Fence::Lost(why) => Standing::Lost(why.clone()),
        Fence::Hopeless(why) if pods.iter().any(|pod| pod.began) => {
            Standing::Lost(format!("it began only when it was to be ended: {why}"))
        }
        Fence::Hopeless(why) => Standing::NeverBegan(why.clone()),
    }
}

/// The standing of a run whose time is up. If it is unknown how far it came, the run is lost for that reason, and not
/// timed out; if its pod is known to have waited to the last, it never began.
fn over_time(said: &str, pods: &[SeenPod], warning: Option<&Warning>, alive: bool) -> Standing {
    match (alive, unanswered(pods)) {
        (true, _) => {
            let why = format!("it is being ended: its time is up: {said}");
            going(joined([Some(why), silence(pods)]))
        }
        (false, Some(unanswered)) => Standing::Lost(unanswered),
        (false, None) => match pods.first() {
            // Of one that was missed, or whose node is not heard of, the last word is not the last state.
            Some(SeenPod {
                began: false,
                missed: false,
                stage: Stage::Waiting(waits),
                uid,
                ..
            }) => {
                let waits = waits.clone().or_else(|| warning?.of(uid)).map(|waits| waits.why);
                let early = "its time was up before it began".to_owned();
                Standing::NeverBegan(joined([Some(early), waits]))
            }
            _ => Standing::TimedOut(said.to_owned()),
        },
    }
}

/// The message for a suspended Job, for which Kubernetes makes no pod.
const SUSPENDED: &str =
    "its Job is suspended, by a queue or a policy of the cluster, and no pod is made for it";

/// The standing of a run without a pod. `hopeless`: the time after which it is given up, if that has passed.
fn without_pod(
    job: &SeenJob,
    warning: Option<&Warning>,
    hopeless: Option<Duration>,
    now: i64,
) -> Standing {
    if job.end.is_some() || job.is_leaving() {
        return Standing::Lost(gone(job));
    }
    let age = now.saturating_sub(job.created);
    let warning = warning.and_then(|warning| warning.of(&job.uid)).map(|waits| waits.why);
    let warning = warning.or_else(|| job.suspended.then(|| SUSPENDED.to_owned()));
    if let Some(after) = hopeless {
        let words = || format!("Kubernetes made no pod for it within {} s", after.as_secs());
        return Standing::ToEnd(Fence::Hopeless(warning.unwrap_or_else(words)));
    }
    let slow = (age > PATIENCE).then(|| "Kubernetes has made no pod for it yet".to_owned());
    Standing::Going { said: warning.or(slow), broker: false }
}

/// The standing of a run whose broker has not begun, and why it waits. `hopeless`: the time after which it is given up,
/// if that has passed.
fn waiting(pod: &SeenPod, waits: Option<Waits>, hopeless: Option<Duration>, now: i64) -> Standing {
    match (waits, hopeless) {
        (Some(waits), _) if waits.for_ever || hopeless.is_some() => {
            Standing::ToEnd(Fence::Hopeless(waits.why))
        }
        (None, Some(after)) => {
            let why = format!("its pod did not begin within {} s", after.as_secs());
            Standing::ToEnd(Fence::Hopeless(joined([Some(why), unheard(pod, now)])))
        }
        (waits, _) => Standing::Going {
            said: waits.map(|waits| waits.why).or_else(|| unheard(pod, now)),
            broker: false,
        },
    }
}

/// The standing of a run whose broker has begun, and may go on.
fn running(pod: &SeenPod, job: &SeenJob) -> Standing {
    let silent = pod.silent.then(|| format!("{}, and may go on", silent(pod)));
    let deleted = job.is_leaving().then(|| "its Job was deleted, and its pod goes on".to_owned());
    Standing::Going { said: silent.or(deleted), broker: true }
}

/// The message for a run whose pods are gone.
fn gone(job: &SeenJob) -> String {
    let what = match &job.end {
        _ if job.is_leaving() => "its Job was deleted, and its pod left no report",
        Some(JobEnd::Complete) => {
            "its pod had ended well, and was deleted before its report was read"
        }
        Some(JobEnd::Failed { reason, .. }) if reason == "BackoffLimitExceeded" => {
            "its pod had failed, and was deleted before its report was read"
        }
        Some(JobEnd::Failed { reason, message, .. }) => {
            return format!("its pod is gone: {reason}: {message}");
        }
        None => "its pod is gone, and left no report",
    };
    what.to_owned()
}

/// The message for a pod that has ended without a report.
fn without_report(pod: &SeenPod) -> String {
    match &pod.stage {
        Stage::Ended(end) => without_message(end),
        Stage::Failed(why) => why.clone(),
        // The kubelet has dropped the state of the container.
        _ => UNKNOWN.to_owned(),
    }
}

fn without_message(end: &End) -> String {
    if end.reason == "OOMKilled" {
        return "its container ran out of memory and was killed (OOMKilled)".to_owned();
    }
    let (code, reason) = (end.exit_code, &end.reason);
    let what = format!("its container ended without a report (exit status {code}, {reason})");
    joined([Some(what), end.said.clone(), end.pod.clone()])
}

fn silent(pod: &SeenPod) -> String {
    nodes::silent(pod.node.as_deref())
}

/// The message for awaited pods of which one is on a silent node.
fn silence(pods: &[SeenPod]) -> Option<String> {
    pods.iter().find(|pod| pod.silent && !pod.gone).map(silent)
}

/// The message for a pod whose kubelet does not take it up, or reports no progress. That the node controller has given
/// the node up does not show in a pod that was not ready before.
fn unheard(pod: &SeenPod, now: i64) -> Option<String> {
    let node = pod.node.as_deref()?;
    let age = now.saturating_sub(pod.created);
    match pod.unheard {
        true => (age > UNHEARD).then(|| nodes::unheard(node)),
        false => (age > MAKES).then(|| nodes::makes(node)),
    }
}

/// The message for a pod that ran when it was last heard of, and is not waited for any more.
fn unanswered(pods: &[SeenPod]) -> Option<String> {
    let left = pods.iter().find(|pod| !pod.gone && pod.stage == Stage::Running)?;
    Some(format!("{}, and the time of the run is over", silent(left)))
}

fn joined<const N: usize>(parts: [Option<String>; N]) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn going(said: String) -> Standing {
    Standing::Going { said: Some(said), broker: false }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
