//! Where a run stands, by what is seen of it: pure.

use std::time::Duration;

use super::seen::{End, Ended, SeenJob, SeenPod, Stage};

/// Where a run stands.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Standing {
    /// Released, or never made.
    Absent,
    /// It goes on, or will; what to tell of it before its broker has begun.
    Going { said: Option<String>, broker: bool },
    /// Its container left a message.
    Reported(String),
    /// It never began.
    NeverBegan(String),
    /// It did not begin in time, or never will, and has to be ended: the Job is fenced off.
    Hopeless(String),
    /// It was ended because somebody asked for it.
    Halted,
    /// It was ended because its time was up.
    TimedOut(String),
    /// It is gone and left nothing.
    Lost(String),
}

/// Decides; `now` is in seconds since 1970.
pub(super) fn standing(
    job: Option<&SeenJob>,
    pods: &[SeenPod],
    start_timeout: Duration,
    now: i64,
) -> Standing {
    let Some(job) = job.filter(|job| job.released.is_none()) else { return Standing::Absent };
    if let Some(said) = pods.iter().find_map(message) {
        return Standing::Reported(said);
    }
    if let Some(why) = &job.ended {
        return ended(why, pods);
    }
    // More than one only where a server made another for one that was deleted: the first is ours.
    let Some(pod) = pods.first() else { return without_pod(job, now) };
    match &pod.stage {
        Stage::Waiting(waits) => {
            let late = now.saturating_sub(job.created) > seconds(start_timeout);
            match waits {
                Some(waits) if waits.for_ever || late => Standing::Hopeless(waits.why.clone()),
                None if late => Standing::Hopeless(format!(
                    "its pod did not begin within {} s",
                    start_timeout.as_secs()
                )),
                waits => Standing::Going {
                    said: waits.as_ref().map(|waits| waits.why.clone()),
                    broker: false,
                },
            }
        }
        Stage::Running => Standing::Going { said: None, broker: true },
        Stage::NeverBegan(why) => Standing::NeverBegan(why.clone()),
        Stage::Ended(end) => Standing::Lost(without_message(end)),
    }
}

/// What the broker's container left, if it is something.
fn message(pod: &SeenPod) -> Option<String> {
    match &pod.stage {
        Stage::Ended(end) if !end.message.is_empty() => Some(end.message.clone()),
        _ => None,
    }
}

/// A run that was ended goes on until its pods are gone: they may have an effect to the last.
fn ended(why: &Ended, pods: &[SeenPod]) -> Standing {
    if pods.iter().any(|pod| matches!(pod.stage, Stage::Running | Stage::Waiting(_))) {
        return Standing::Going { said: None, broker: false };
    }
    match why {
        Ended::Cancelled => Standing::Halted,
        Ended::Lost(why) => Standing::Lost(why.clone()),
        Ended::Hopeless(why) => Standing::NeverBegan(why.clone()),
    }
}

fn without_pod(job: &SeenJob, now: i64) -> Standing {
    match &job.failed {
        Some((reason, said)) if reason == "DeadlineExceeded" => Standing::TimedOut(said.clone()),
        Some((reason, said)) => Standing::Lost(format!("its pod is gone: {reason}: {said}")),
        None if job.going => Standing::Lost("its Job was deleted".to_owned()),
        None => {
            let patience = 2;
            let slow = now.saturating_sub(job.created) > patience;
            let said = slow.then(|| "Kubernetes has made no pod for it yet".to_owned());
            Standing::Going { said, broker: false }
        }
    }
}

fn without_message(end: &End) -> String {
    if end.reason == "OOMKilled" {
        return "its container ran out of memory and was killed (OOMKilled)".to_owned();
    }
    let pod = end.pod.as_deref().map_or(String::new(), |said| format!("; {said}"));
    let (code, reason) = (end.exit_code, &end.reason);
    format!("its container ended without a report: exit status {code}, {reason}{pod}")
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
