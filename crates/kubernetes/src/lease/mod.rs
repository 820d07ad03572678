//! The lead among several replicas: the holder of a Lease carries operations out.
//!
//! The Lease saves work, and correctness does not depend on it: each step of an operation is compared and set, and each
//! run has one name. So a holder that was paused and does not know that its time is over does no harm.
//!
//! The Lease shows one thing more. Versions at an API server only grow, and every replica reads the Lease every few
//! seconds: if its version is less than it was, a snapshot of etcd was restored. Then this process knows a state that
//! never came to be, so nothing that it hears counts as news, and it has to be restarted.

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

/// How long a Lease is held without a renewal, by default.
const DURATION: Duration = Duration::from_secs(15);

/// A Lease that several replicas want and one holds.
pub struct Lead {
    leases: Api<Lease>,
    name: String,
    identity: String,
    /// How long the Lease is held without a renewal.
    duration: Duration,
    held: watch::Sender<bool>,
    /// Our term, while the Lease is ours.
    term: Mutex<Option<Term>>,
    /// Whether the Lease was given back and is not wanted any more.
    given_back: AtomicBool,
    /// Whether the API server has confirmed since then that the Lease is not ours.
    is_released: AtomicBool,
    /// Whether the API server went back to an earlier state.
    undone: watch::Sender<bool>,
}

/// The term of a holder, by the clock of [`waking`].
#[derive(Clone, Copy)]
struct Term {
    since: Duration,
    /// Until when nobody else may take the Lease.
    until: Duration,
}

/// What is known of the Lease.
#[derive(Default)]
struct Known {
    /// The Lease as we wrote it, if it is ours.
    ours: Option<Lease>,
    /// The Lease as it was seen, while it is another's.
    seen: Option<Seen>,
    /// The latest version of the Lease.
    newest: u64,
}

/// The version that was last seen, and when, by our own clock: those of others are not compared.
struct Seen {
    version: String,
    at: Instant,
}

impl Lead {
    /// A candidate for the Lease of a broker; `identity` is that of this process: a pod's name.
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

    /// Sets how long the Lease is held without a renewal, in whole seconds, instead of 15 s.
    #[must_use]
    pub fn lasting(self, duration: Duration) -> Self {
        Self { duration, ..self }
    }

    /// How often the holder renews the Lease.
    fn renew(&self) -> Duration {
        self.duration / 3
    }

    /// How often the other replicas read the Lease.
    fn look(&self) -> Duration {
        self.duration * 2 / 15
    }

    /// A channel that says whether this process holds the Lease.
    pub fn held(&self) -> watch::Receiver<bool> {
        self.held.subscribe()
    }

    /// For how long nobody else may take the Lease: work that two must not do has to be done in that time.
    pub fn left(&self) -> Duration {
        self.term().map(|term| term.until.saturating_sub(waking::uptime())).unwrap_or_default()
    }

    /// For how long nobody else has led: earlier requests may have been another leader's.
    pub fn lasted(&self) -> Duration {
        self.term().map(|term| waking::since(term.since)).unwrap_or_default()
    }

    fn term(&self) -> Option<Term> {
        *self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the API server went back to an earlier state, so that this process has to be restarted.
    pub fn is_undone(&self) -> bool {
        *self.undone.borrow()
    }

    /// Waits until the API server has gone back to an earlier state, usually for ever. From then on this process does
    /// not lead.
    pub async fn undone(&self) {
        // The channel stays open, because the sender is ours.
        let _ = self.undone.subscribe().wait_for(|undone| *undone).await;
    }

    /// Takes the Lease when it is free and keeps it, until it is given back, or the API server has gone back to an
    /// earlier state. To be spawned.
    pub async fn keep(&self) {
        let mut known = Known::default();
        let mut renewed: Option<Duration> = None;
        while !self.given_back.load(Ordering::Relaxed) {
            let begun = waking::uptime();
            // A holder has to know in time that it no longer holds the Lease: a slow answer counts as none.
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
            // The Lease may have become ours while it was given back.
            self.release().await;
        }
    }

    /// Gives the Lease back, so that the next replica does not have to wait. It is not held from the call on, whatever
    /// the API server answers; a caller that drops the future may call again. Nothing is lost if it fails.
    pub async fn give_back(&self) {
        self.given_back.store(true, Ordering::Relaxed);
        self.lasts_until(None);
        self.tell(false);
        if !self.is_released.load(Ordering::Relaxed) && self.release().await {
            self.is_released.store(true, Ordering::Relaxed);
        }
    }

    /// Writes the Lease without a holder, if it is ours. Whether the API server confirms that it is not ours.
    async fn release(&self) -> bool {
        // Tried twice, because a renewal may be in progress.
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

    /// Reports whether the Lease is held: it is for `duration`, less one renewal interval, after the last successful
    /// renewal. Returns for how long yet, if it is.
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
        // Between two terms another replica may have had one.
        let since = term.filter(|term| term.until > now).map_or(now, |term| term.since);
        *term = until.map(|until| Term { since, until });
    }

    /// Reports whether the Lease is held; after it was given back it never is.
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

    /// One step: if the Lease is ours it is written on from our last state, which is refused if anybody else wrote
    /// since. Only then, and while it is another's, is it read.
    async fn step(&self, known: &mut Known) -> Result<(), CallError> {
        // Taken out, so that the Lease is read after a write without an answer.
        if let Some(lease) = known.ours.take() {
            self.write(known, Some(lease)).await?;
        }
        if known.ours.is_none() && !self.is_undone() {
            self.look_and_write(known).await?;
        }
        Ok(())
    }

    /// Whether a Lease is at least as new as the known one.
    fn is_news(&self, known: &mut Known, lease: &Lease) -> bool {
        // A version that is no number tells nothing.
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

    /// Reads the Lease, and writes it at most once.
    async fn look_and_write(&self, known: &mut Known) -> Result<(), CallError> {
        let lease = find(self.leases.get(&self.name)).await?;
        // Checked after the read: if the Lease is given back later than that, our write has an old version.
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

    /// Makes the Lease ours, unless another replica was faster.
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
