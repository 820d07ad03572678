//! Who carries operations out, of several replicas: the holder of a Lease.
//!
//! It saves work, and nothing depends on it: each step of an operation is compared and set, and each run has
//! one name. So a holder that was paused and does not know that its time is over does no harm.
//!
//! It tells one thing more. Versions of what an API server keeps only grow, and every replica looks at the Lease every few
//! seconds: where its version is less than it was, a snapshot of etcd was restored. What this process knows is of a time
//! that has not come, so nothing that it hears counts as news, and it has to be begun anew.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::calls::{CallError, call, find};
use crate::{names, waking};

/// For how long a Lease is held without a word from its holder, unless said otherwise.
const DURATION: Duration = Duration::from_secs(15);

/// A Lease that many want and one has.
pub struct Lead {
    leases: Api<Lease>,
    name: String,
    identity: String,
    /// For how long it is held without a word from its holder.
    duration: Duration,
    held: watch::Sender<bool>,
    /// While it is ours.
    term: Mutex<Option<Term>>,
    /// It is not wanted any more.
    given_back: AtomicBool,
    /// The API server has said since then that it is not ours.
    is_released: AtomicBool,
    /// The API server went back to an earlier time.
    undone: watch::Sender<bool>,
}

/// From when on it is ours, by the clock of [`waking`].
#[derive(Clone, Copy)]
struct Term {
    since: Duration,
    /// Until then nobody else may take it.
    until: Duration,
}

/// What is known of it.
#[derive(Default)]
struct Known {
    /// As it was written, if it is ours.
    ours: Option<Lease>,
    /// As it was seen, while it is another's.
    seen: Option<Seen>,
    /// Its latest version.
    newest: u64,
}

/// What was last seen of it, and when by our own clock: clocks of others are not compared with.
struct Seen {
    version: String,
    at: Instant,
}

impl Lead {
    /// Wants the Lease of a broker; `identity` is this process's own: a pod's name.
    pub fn new(client: Client, namespace: &str, broker: &str, identity: &str) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: format!("manciple-{}", names::broker_label(broker)),
            identity: identity.to_owned(),
            duration: DURATION,
            held: watch::Sender::new(false),
            term: Mutex::new(None),
            given_back: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
            undone: watch::Sender::new(false),
        }
    }

    /// Held for so long without a word from its holder, in whole seconds, instead of 15 s.
    #[must_use]
    pub fn lasting(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// How often its holder says a word.
    fn renew(&self) -> Duration {
        self.duration / 3
    }

    /// How often the others look.
    fn look(&self) -> Duration {
        self.duration * 2 / 15
    }

    /// Whether it is held, from now on.
    pub fn held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    /// For how long nobody else may take it: what must not be done by two has to be done in that time.
    pub fn left(&self) -> Duration {
        self.term().map(|term| term.until.saturating_sub(waking::uptime())).unwrap_or_default()
    }

    /// For how long nobody else has led: what was asked for before that may have been asked for by another.
    pub fn lasted(&self) -> Duration {
        self.term().map(|term| waking::since(term.since)).unwrap_or_default()
    }

    fn term(&self) -> Option<Term> {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the API server went back to an earlier time, so that this process has to be begun anew.
    pub fn is_undone(&self) -> bool {
        *self.undone.borrow()
    }

    /// Waits until it did: for ever, as a rule. Nobody leads here from then on.
    pub async fn undone(&self) {
        // The sender is ours.
        let _ = self.undone.subscribe().wait_for(|undone| *undone).await;
    }

    /// Takes it when it is free and keeps it, until it is given back, or the API server went back to an earlier time. To
    /// be spawned.
    pub async fn keep(&self) {
        let mut known = Known::default();
        let mut renewed: Option<Duration> = None;
        while !self.given_back.load(Ordering::Relaxed) {
            let begun = waking::uptime();
            // A holder has to know in time that it is one no more: an answer that takes long is none.
            let patience =
                self.still_held(renewed).map_or(self.renew(), |left| left.min(self.renew()));
            let step = tokio::time::timeout(patience, self.step(&mut known)).await;
            if self.is_undone() {
                break;
            }
            let is_answered = matches!(step, Ok(Ok(())));
            match step {
                Ok(Ok(())) => renewed = known.ours.is_some().then_some(begun),
                Ok(Err(error)) => {
                    tracing::warn!(%error, lease = %self.name, "the Lease cannot be had");
                }
                Err(_) => tracing::warn!(lease = %self.name, "the Lease cannot be had in time"),
            }
            let pause = match self.still_held(renewed) {
                Some(_) if is_answered => self.renew(),
                Some(left) => left.min(self.look()),
                None => self.look(),
            };
            if self.given_back.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        if self.is_undone() {
            self.lasts_until(None);
            self.tell(false);
        } else {
            // It may have become ours while it was given back.
            self.release().await;
        }
    }

    /// Gives it back, so that the next one does not have to wait. It is not held from the call on, whatever the API server
    /// answers; who lets go of the call may call again. Nothing is lost if it fails.
    pub async fn give_back(&self) {
        self.given_back.store(true, Ordering::Relaxed);
        self.lasts_until(None);
        self.tell(false);
        if !self.is_released.load(Ordering::Relaxed) && self.release().await {
            self.is_released.store(true, Ordering::Relaxed);
        }
    }

    /// Has nobody hold it, if it is ours. Whether the API server says that it is not.
    async fn release(&self) -> bool {
        // Twice: it may just be renewed.
        for _ in 0..2 {
            let Ok(found) = find(self.leases.get(&self.name)).await else { return false };
            let Some(mut lease) = found else { return true };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.identity) {
                return true;
            }
            spec.holder_identity = None;
            match call(self.leases.replace(&self.name, &PostParams::default(), &lease)).await {
                Ok(_) => return true,
                Err(CallError::Conflict) => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Tells whether it is held, which it is for `duration` but one turn of its renewal after the last time that this was
    /// answered: for how long yet, if it is.
    fn still_held(&self, renewed: Option<Duration>) -> Option<Duration> {
        let lasts = self.duration - self.renew();
        let left = renewed.map(|renewed| lasts.saturating_sub(waking::since(renewed)));
        let left = left.filter(|left| !left.is_zero());
        self.lasts_until(renewed.map(|renewed| renewed + self.duration));
        self.tell(left.is_some());
        left
    }

    fn lasts_until(&self, until: Option<Duration>) {
        let mut term = self.term.lock().unwrap_or_else(PoisonError::into_inner);
        let until = until.filter(|_| !self.given_back.load(Ordering::Relaxed));
        let now = waking::uptime();
        // Between two terms somebody else may have had one.
        let since = term.filter(|term| term.until > now).map_or(now, |term| term.since);
        *term = until.map(|until| Term { since, until });
    }

    /// Once it is given back nobody holds it here, whatever is told.
    fn tell(&self, held: bool) {
        let mut is_held = held;
        let is_news = self.held.send_if_modified(|was| {
            is_held = held && !self.given_back.load(Ordering::Relaxed);
            std::mem::replace(was, is_held) != is_held
        });
        if is_news {
            let held = is_held;
            tracing::info!(lease = %self.name, identity = %self.identity, held, "leadership");
        }
    }

    /// What is ours is written as it was left, which is refused if anybody wrote since: only then, and while it is
    /// another's, is it looked at.
    async fn step(&self, known: &mut Known) -> Result<(), CallError> {
        // Taken, so that it is looked at after a write of which no answer came.
        if let Some(lease) = known.ours.take() {
            self.write(known, Some(lease)).await?;
        }
        if known.ours.is_none() && !self.is_undone() {
            self.look_and_write(known).await?;
        }
        Ok(())
    }

    /// Whether it is as new as what was known of it.
    fn is_news(&self, known: &mut Known, lease: &Lease) -> bool {
        // One that is no number tells nothing.
        let version = lease.metadata.resource_version.as_deref();
        let version = version.and_then(|version| version.parse().ok()).unwrap_or(known.newest);
        if version < known.newest {
            tracing::error!(
                lease = %self.name, version, known = known.newest,
                "the API server went back to an earlier time, as if a snapshot of etcd was restored: what is known here \
                 did not come to be, so this process has to end, and to be begun anew"
            );
            self.undone.send_replace(true);
            return false;
        }
        known.newest = version;
        true
    }

    /// One look, one write at most.
    async fn look_and_write(&self, known: &mut Known) -> Result<(), CallError> {
        let lease = find(self.leases.get(&self.name)).await?;
        // Asked after the look: if it is given back later than that, the write is of an old version.
        if self.given_back.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(lease) = lease else { return self.write(known, None).await };
        if !self.is_news(known, &lease) {
            return Ok(());
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.identity);
        let free = spec.holder_identity.as_deref().unwrap_or_default().is_empty();
        if ours || free {
            return self.write(known, Some(lease)).await;
        }
        let now = Instant::now();
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = duration.map_or(self.duration, Duration::from_secs);
        match &known.seen {
            Some(seen) if seen.version == version && seen.at + duration <= now => {
                self.write(known, Some(lease)).await?;
            }
            Some(seen) if seen.version == version => {}
            _ => known.seen = Some(Seen { version, at: now }),
        }
        Ok(())
    }

    /// Makes it ours, unless another was quicker.
    async fn write(&self, known: &mut Known, before: Option<Lease>) -> Result<(), CallError> {
        let spec = before.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.identity);
        let now = MicroTime(jiff::Timestamp::now());
        let spec = LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: if ours { spec.acquire_time } else { Some(now.clone()) },
            renew_time: Some(now),
            lease_transitions: match (ours, spec.lease_transitions) {
                (false, count) => Some(count.unwrap_or_default().saturating_add(1)),
                (true, count) => count,
            },
            ..spec
        };
        let written = match before {
            Some(lease) => {
                let lease = Lease { spec: Some(spec), ..lease };
                call(self.leases.replace(&self.name, &PostParams::default(), &lease)).await
            }
            None => {
                let mut lease: Lease = serde_json::from_value(json!({"metadata": {
                    "name": self.name,
                    "labels": {names::MANAGED_BY.0: names::MANAGED_BY.1},
                }}))
                .map_err(|error| CallError::Unsent(error.to_string()))?;
                lease.spec = Some(spec);
                call(self.leases.create(&PostParams::default(), &lease)).await
            }
        };
        match written {
            Ok(lease) => {
                known.ours = self.is_news(known, &lease).then_some(lease);
                Ok(())
            }
            Err(CallError::Conflict | CallError::Exists | CallError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
