//! Who carries operations out, of several replicas: the holder of a Lease.
//!
//! It saves work, and nothing depends on it: each step of an operation is compared and set, and each run has
//! one name. So a holder that was paused and does not know that its time is over does no harm.

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
use crate::names;

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
    /// Until then nobody else may take it.
    until: Mutex<Option<Instant>>,
    /// It is not wanted any more.
    given_back: AtomicBool,
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
            until: Mutex::new(None),
            given_back: AtomicBool::new(false),
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
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.map(|until| until.saturating_duration_since(Instant::now())).unwrap_or_default()
    }

    /// Takes it when it is free and keeps it, until it is given back. To be spawned.
    pub async fn keep(&self) {
        let mut ours: Option<Lease> = None;
        let mut seen: Option<Seen> = None;
        let mut renewed: Option<Instant> = None;
        while !self.given_back.load(Ordering::Relaxed) {
            let begun = Instant::now();
            // A holder has to know in time that it is one no more: an answer that takes long is none.
            match tokio::time::timeout(self.renew(), self.step(&mut ours, &mut seen)).await {
                Ok(Ok(())) => renewed = ours.is_some().then_some(begun),
                Ok(Err(error)) => {
                    tracing::warn!(%error, lease = %self.name, "the Lease cannot be had");
                }
                Err(_) => tracing::warn!(lease = %self.name, "the Lease cannot be had in time"),
            }
            // Without an answer it is ours for as long as nobody else may take it.
            let lasts = self.duration - self.renew();
            let held = renewed.is_some_and(|renewed| renewed.elapsed() < lasts);
            self.lasts_until(renewed.map(|renewed| renewed + self.duration));
            self.tell(held && !self.given_back.load(Ordering::Relaxed));
            tokio::time::sleep(if held { self.renew() } else { self.look() }).await;
        }
    }

    /// Gives it back, so that the next one does not have to wait. Nothing is lost if it fails.
    pub async fn give_back(&self) {
        self.given_back.store(true, Ordering::Relaxed);
        self.lasts_until(None);
        if !*self.held.borrow() {
            return;
        }
        // Twice: it may just be renewed.
        for _ in 0..2 {
            let Ok(Some(mut lease)) = find(self.leases.get(&self.name)).await else { break };
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(&self.identity) {
                break;
            }
            spec.holder_identity = None;
            let given = call(self.leases.replace(&self.name, &PostParams::default(), &lease)).await;
            if !matches!(given, Err(CallError::Conflict)) {
                break;
            }
        }
        self.tell(false);
    }

    fn lasts_until(&self, until: Option<Instant>) {
        let until = until.filter(|_| !self.given_back.load(Ordering::Relaxed));
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn tell(&self, held: bool) {
        if self.held.send_if_modified(|was| std::mem::replace(was, held) != held) {
            tracing::info!(lease = %self.name, identity = %self.identity, held, "leadership");
        }
    }

    /// Leaves in `ours` what was written of it if it is ours now. What is ours is written as it was left, which
    /// is refused if anybody wrote since: only then, and while it is another's, is it looked at.
    async fn step(
        &self,
        ours: &mut Option<Lease>,
        seen: &mut Option<Seen>,
    ) -> Result<(), CallError> {
        // Taken, so that it is looked at after a write of which no answer came.
        if let Some(lease) = ours.take() {
            *ours = self.write(Some(lease)).await?;
        }
        if ours.is_none() {
            *ours = self.look_and_write(seen).await?;
        }
        Ok(())
    }

    /// One look, one write at most.
    async fn look_and_write(&self, seen: &mut Option<Seen>) -> Result<Option<Lease>, CallError> {
        let lease = find(self.leases.get(&self.name)).await?;
        // Asked after the look: if it is given back later than that, the write is of an old version.
        if self.given_back.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(lease) = lease else { return self.write(None).await };
        let spec = lease.spec.clone().unwrap_or_default();
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let ours = spec.holder_identity.as_deref() == Some(&self.identity);
        let free = spec.holder_identity.as_deref().unwrap_or_default().is_empty();
        if ours || free {
            return self.write(Some(lease)).await;
        }
        let now = Instant::now();
        let duration = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = duration.map_or(self.duration, Duration::from_secs);
        match seen {
            Some(seen) if seen.version == version && seen.at + duration <= now => {
                self.write(Some(lease)).await
            }
            Some(seen) if seen.version == version => Ok(None),
            _ => {
                *seen = Some(Seen { version, at: now });
                Ok(None)
            }
        }
    }

    /// As it was written, unless another was quicker.
    async fn write(&self, before: Option<Lease>) -> Result<Option<Lease>, CallError> {
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
                .map_err(|error| CallError::Refused(error.to_string()))?;
                lease.spec = Some(spec);
                call(self.leases.create(&PostParams::default(), &lease)).await
            }
        };
        match written {
            Ok(lease) => Ok(Some(lease)),
            Err(CallError::Conflict | CallError::Exists | CallError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    /// An API server that has one Lease, and writes down what it is asked.
    #[derive(Default)]
    struct Server {
        lease: Mutex<Option<Value>>,
        asked: Mutex<Vec<String>>,
    }

    impl Server {
        /// Somebody writes it.
        fn write(&self, mut lease: Value) -> Value {
            let mut kept = self.lease.lock().unwrap();
            let before = kept.as_ref().and_then(|it| it["metadata"]["resourceVersion"].as_str());
            let next = before.map_or(1, |version| version.parse::<u64>().unwrap() + 1);
            lease["metadata"]["resourceVersion"] = json!(next.to_string());
            *kept = Some(lease.clone());
            lease
        }

        fn answer(&self, method: &str, body: Option<Value>) -> (u16, Value) {
            self.asked.lock().unwrap().push(method.to_owned());
            let known = self.lease.lock().unwrap().clone();
            let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
            match (method, known, body) {
                ("GET", Some(known), _) => (200, known),
                ("GET", None, _) => (404, refusal(404, "NotFound")),
                ("PUT", Some(known), Some(body)) if version(&known) != version(&body) => {
                    (409, refusal(409, "Conflict"))
                }
                (_, _, body) => (200, self.write(body.unwrap())),
            }
        }

        fn lead(self: &Arc<Self>) -> Arc<Lead> {
            let server = Arc::clone(self);
            let service = tower::service_fn(move |request: Request<Body>| {
                let server = Arc::clone(&server);
                async move {
                    let method = request.method().to_string();
                    let bytes = request.into_body().collect_bytes().await?;
                    let (status, answer) =
                        server.answer(&method, serde_json::from_slice(&bytes).ok());
                    let answer = Body::from(answer.to_string().into_bytes());
                    let response = Response::builder().status(status).body(answer);
                    response.map_err(Into::<tower::BoxError>::into)
                }
            });
            Arc::new(Lead::new(Client::new(service, "n"), "n", "b", "me"))
        }

        fn asked(&self) -> Vec<String> {
            std::mem::take(&mut *self.asked.lock().unwrap())
        }
    }

    fn refusal(code: u16, reason: &str) -> Value {
        json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": ""})
    }

    #[tokio::test]
    async fn what_is_ours_is_written_and_looked_at_only_after_somebody_else_wrote() {
        let server = Arc::new(Server::default());
        let lead = server.lead();
        let (mut ours, mut seen) = (None, None);
        lead.step(&mut ours, &mut seen).await.unwrap();
        assert_eq!(server.asked(), ["GET", "POST"]);
        lead.step(&mut ours, &mut seen).await.unwrap();
        assert_eq!(server.asked(), ["PUT"]);
        let mut touched = server.lease.lock().unwrap().clone().unwrap();
        server.write(touched.clone());
        lead.step(&mut ours, &mut seen).await.unwrap();
        assert!(ours.is_some());
        assert_eq!(server.asked(), ["PUT", "GET", "PUT"]);
        touched["spec"]["holderIdentity"] = json!("other");
        server.write(touched);
        lead.step(&mut ours, &mut seen).await.unwrap();
        assert!(ours.is_none(), "it is another's");
        assert_eq!(server.asked(), ["PUT", "GET"]);
    }

    #[tokio::test]
    async fn what_was_given_back_while_it_was_renewed_is_not_taken_again() {
        let server = Arc::new(Server::default());
        let lead = server.lead();
        let (mut ours, mut seen) = (None, None);
        lead.step(&mut ours, &mut seen).await.unwrap();
        lead.tell(true);
        lead.give_back().await;
        lead.step(&mut ours, &mut seen).await.unwrap();
        assert!(ours.is_none());
        let lease = server.lease.lock().unwrap().clone().unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], Value::Null, "the next need not wait");
    }
}
