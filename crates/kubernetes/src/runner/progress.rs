//! The progress of runs, from their logs, which are followed once somebody asks.
//!
//! There is one request for each run whose broker declared that it reports progress, for as long as the run goes on;
//! none for others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use agent::Line;
use engine::names::RunName;
use futures_util::{AsyncBufRead, AsyncBufReadExt, pin_mut};
use kube::api::LogParams;
use tokio::task::AbortHandle;

use super::Shared;
use super::labels::BROKER_CONTAINER;
use super::seen::Seen;

/// How many lines of a log are read at first.
const TAIL: i64 = 200;
/// How many bytes a line of the agent has at most.
const LINE: usize = 16 * 1024;
/// How many logs are followed at once: each takes a connection.
const FOLLOWED: usize = 200;
/// The pause between a log's end, or a failure to read it, and the next try.
const AGAIN: Duration = Duration::from_secs(5);

/// The logs that are followed.
#[derive(Default)]
pub(super) struct Followed(Mutex<HashMap<RunName, Follower>>);

struct Follower {
    said: Arc<Mutex<Option<String>>>,
    task: AbortHandle,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Followed {
    /// Ends following the log of a run that does not go on any more.
    pub(super) fn end(&self, run: &RunName) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
    }
}

impl Shared {
    /// What the broker last said of its progress. For one that reports none it is empty: what kept its pod from
    /// beginning does so no longer.
    pub(super) fn progress(self: &Arc<Self>, run: &RunName, seen: &Seen) -> Option<String> {
        let pod = seen.pods.first()?;
        if !seen.job.as_ref()?.progress {
            return Some(String::new());
        }
        let mut followed = self.followed.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = followed.len() >= FOLLOWED;
        let follower = match followed.entry(run.clone()) {
            Entry::Occupied(follower) => follower.into_mut(),
            Entry::Vacant(_) if full => return None,
            Entry::Vacant(vacant) => {
                let said = Arc::default();
                let place = (pod.namespace.clone(), pod.name.clone());
                let follow = follow(Arc::downgrade(self), run.clone(), place, Arc::clone(&said));
                vacant.insert(Follower { said, task: tokio::spawn(follow).abort_handle() })
            }
        };
        follower.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Follows the log of a pod until the task is aborted, or the pod is over: a replica that no longer leads has no other
/// way to learn that.
async fn follow(
    shared: Weak<Shared>,
    run: RunName,
    (namespace, pod): (String, String),
    said: Arc<Mutex<Option<String>>>,
) {
    let params = LogParams {
        container: Some(BROKER_CONTAINER.to_owned()),
        follow: true,
        tail_lines: Some(TAIL),
        ..LogParams::default()
    };
    loop {
        let Some(pods) = shared.upgrade().map(|shared| shared.pods(&namespace)) else { return };
        if shared.upgrade().is_none_or(|shared| shared.known.get(&run).is_quiet()) {
            break;
        }
        match pods.log_stream(&pod, &params).await {
            Ok(log) => {
                let read = lines(log, |line| {
                    let (Some(shared), Some(Ok(Line::Progress(sealed)))) =
                        (shared.upgrade(), Line::parse(line))
                    else {
                        return;
                    };
                    if let Ok(progress) = sealed.progress(&shared.keys.all(), run.as_str()) {
                        *said.lock().unwrap_or_else(PoisonError::into_inner) = Some(progress);
                        shared.known.wake(&run);
                    }
                });
                if let Err(error) = read.await {
                    tracing::debug!(%run, %error, "the log of a run cannot be followed further");
                }
            }
            Err(error) => tracing::debug!(%run, %error, "the log of a run cannot be followed"),
        }
        tokio::time::sleep(AGAIN).await;
    }
    if let Some(shared) = shared.upgrade() {
        shared.followed.end(&run);
    }
}

/// Reads lines; of too long ones only the beginning.
async fn lines(log: impl AsyncBufRead, mut each: impl FnMut(&str)) -> std::io::Result<()> {
    pin_mut!(log);
    let mut line = Vec::new();
    loop {
        let chunk = log.fill_buf().await?;
        if chunk.is_empty() {
            return Ok(());
        }
        let end = chunk.iter().position(|&byte| byte == b'\n');
        let piece = &chunk[..end.unwrap_or(chunk.len())];
        line.extend_from_slice(&piece[..piece.len().min(LINE - line.len().min(LINE))]);
        let used = piece.len() + usize::from(end.is_some());
        log.as_mut().consume(used);
        if end.is_some() {
            each(&String::from_utf8_lossy(&line));
            line.clear();
        }
    }
}
