//! Who is to be looked at, and when: each at most once at a time.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::table::Key;

/// The pause after a first failure; doubled with each.
const AGAIN: Duration = Duration::from_millis(250);
/// The longest such pause.
const LONGEST: Duration = Duration::from_secs(30);

/// A queue of those who may have something to do.
#[derive(Default)]
pub(super) struct Queue {
    turns: Mutex<Turns>,
    pushed: Notify,
}

#[derive(Default)]
struct Turns {
    due: BTreeSet<(Instant, Key)>,
    of: HashMap<Key, Turn>,
}

#[derive(Default)]
struct Turn {
    /// When it is looked at.
    due: Option<Instant>,
    /// It is being looked at.
    busy: bool,
    /// To be looked at again when that is done.
    again: bool,
    failures: u32,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something has happened to these.
    pub(super) fn push(&self, keys: impl IntoIterator<Item = Key>) {
        let mut turns = self.lock();
        let now = Instant::now();
        let mut any = false;
        for key in keys {
            any = true;
            let turn = turns.of.entry(key.clone()).or_default();
            // Whoever failed waits; what has happened may be what it waits for.
            match turn.busy {
                true => turn.again = true,
                false => turns.schedule(key, now),
            }
        }
        drop(turns);
        if any {
            self.pushed.notify_one();
        }
    }

    /// The next whose turn it is, waited for.
    pub(super) async fn next(&self) -> Key {
        loop {
            let pushed = self.pushed.notified();
            let wait = {
                let mut turns = self.lock();
                let first = turns.due.first().cloned();
                match first {
                    Some((due, key)) if due <= Instant::now() => {
                        turns.due.pop_first();
                        let turn = turns.of.entry(key.clone()).or_default();
                        (turn.due, turn.busy, turn.again) = (None, true, false);
                        return key;
                    }
                    Some((due, _)) => Some(due),
                    None => None,
                }
            };
            match wait {
                Some(due) => {
                    let _ = tokio::time::timeout_at(due.into(), pushed).await;
                }
                None => pushed.await,
            }
        }
    }

    /// It was looked at: `Ok` with when to look again though nothing happens, or it failed.
    pub(super) fn done(&self, key: Key, looked: Result<Option<Duration>, ()>) {
        let mut turns = self.lock();
        let turn = turns.of.entry(key.clone()).or_default();
        turn.busy = false;
        let again = std::mem::take(&mut turn.again);
        turn.failures = if looked.is_ok() { 0 } else { turn.failures.saturating_add(1) };
        let pause = match looked {
            _ if again => Some(Duration::ZERO),
            Ok(pause) => pause,
            Err(()) => Some(
                AGAIN.saturating_mul(1 << turn.failures.min(10).saturating_sub(1)).min(LONGEST),
            ),
        };
        match pause {
            Some(pause) => {
                turns.schedule(key, Instant::now() + pause);
                drop(turns);
                self.pushed.notify_one();
            }
            None => drop(turns.of.remove(&key)),
        }
    }
}

impl Turns {
    /// No later than it is due anyway.
    fn schedule(&mut self, key: Key, at: Instant) {
        let turn = self.of.entry(key.clone()).or_default();
        if turn.due.is_some_and(|due| due <= at) {
            return;
        }
        let before = turn.due.replace(at);
        if let Some(before) = before {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key));
    }
}
