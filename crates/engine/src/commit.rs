//! Commits an admitted request: records the intent, begins the operation, and answers at once or holds the request.

use std::sync::Arc;
use std::time::Duration;

use osb::{Action, Call, Error, ErrorKind, Reply};

use crate::answer;
use crate::backend::{by, store_error};
use crate::driver;
use crate::engine::Engine;
use crate::failpoint;
use crate::ports::{StoreError, Stored};
use crate::record::{Key, Ordered, Record};
use crate::transition::{self, Intent};

impl Engine {
    pub(crate) fn creation(
        &self,
        call: &Call,
        key: &Key,
        existing: Option<&Record>,
        ordered: &Ordered,
        action: Action,
    ) -> Record {
        let policy = &self.shared.policy;
        let now = self.shared.clock.now();
        let mut next = match existing.filter(|record| record.is_live()) {
            // It is the same order, but what a platform may send anew with it.
            Some(broken) => Record {
                ordered: ordered.clone(),
                ..transition::begin(policy, broken, by(call, action), now)
            },
            None => {
                let mut record = transition::create(
                    policy,
                    key,
                    existing,
                    ordered.clone(),
                    by(call, action),
                    now,
                );
                if action == Action::Provision {
                    record.made.dashboard_url = answer::dashboard_url(policy, key.instance());
                }
                record
            }
        };
        next.operation.held = self.is_held(call, &next);
        next
    }

    pub(crate) fn begin(&self, record: &Record, intent: Intent) -> Record {
        transition::begin(&self.shared.policy, record, intent, self.shared.clock.now())
    }

    /// Records an intent; `false`: somebody else wrote first.
    pub(crate) async fn commit(
        &self,
        next: &Arc<Record>,
        stored: Option<&Stored>,
    ) -> Result<bool, Error> {
        let Some(_admitted) = self.shared.tasks.admit(self.shared.policy.max_in_progress) else {
            let error = Error::new(
                ErrorKind::TooManyRequests,
                "too many operations are in progress; nothing was recorded, come again later",
            );
            return Err(error.retry_after(Duration::from_secs(5)));
        };
        failpoint::hit("before-intent").await;
        let expected = stored.map(|stored| &stored.version);
        match self.shared.store.write(Arc::clone(next), expected).await {
            Ok(_) => {}
            Err(StoreError::Conflict) => return Ok(false),
            Err(error) => return Err(store_error(error)),
        }
        failpoint::hit("after-intent").await;
        Ok(true)
    }

    /// Answers a request for a creation that is in progress, as it was asked for before; `None`: the record has to be
    /// read again.
    pub(crate) async fn join<T>(
        &self,
        call: &Call,
        stored: Stored,
        body: impl Fn(&Record) -> T,
        done: impl Fn(T) -> Reply<T>,
    ) -> Option<Result<Reply<T>, Error>> {
        if stored.record.operation.held && !self.is_held(call, &stored.record) {
            // Whoever is told of it by a 202 is to find it, also where nobody else waits long enough.
            let mut next = Record::clone(&stored.record);
            next.operation.held = false;
            match self.shared.store.write(Arc::new(next), Some(&stored.version)).await {
                Ok(_) => {}
                Err(StoreError::Conflict) => return None,
                // It is recorded, if not this: who is told that nothing was leaves it behind.
                Err(error) => return Some(Err(store_error(error.of_what_is_recorded()))),
            }
        }
        Some(self.conclude(call, stored.record, body, done).await)
    }

    /// Whether a request is answered only when its operation has ended.
    fn is_held(&self, call: &Call, record: &Record) -> bool {
        let hold = self.shared.policy.hold.of(record.operation.action);
        !hold.is_zero() && (!call.accepts_incomplete || self.is_answered_at_once(record))
    }

    /// Answers a request whose operation is recorded: 202 at once, or held until it has ended.
    pub(crate) async fn conclude<T>(
        &self,
        call: &Call,
        record: Arc<Record>,
        body: impl Fn(&Record) -> T,
        done: impl Fn(T) -> Reply<T>,
    ) -> Result<Reply<T>, Error> {
        if !self.is_held(call, &record) {
            driver::begin(&self.shared, &record.key);
            let operation = record.operation.id.clone();
            return Ok(Reply::Accepted { operation, body: body(&record) });
        }
        let ended = self.shared.tasks.ended(&record.key);
        driver::begin(&self.shared, &record.key);
        tokio::select! {
            _ = ended => {}
            () = self.shared.clock.sleep(self.shared.policy.hold.of(record.operation.action)) => {}
        }
        // It is recorded, and may be carried out: who is told that nothing was done leaves it behind.
        let now = self.shared.store.read(&record.key).await;
        let now = now.map_err(|error| store_error(error.of_what_is_recorded()))?;
        let Some(stored) = now else {
            return Err(Error::internal("the record was removed while the request was held"));
        };
        match answer::held(&stored.record, &record.operation.id) {
            answer::Held::Succeeded => Ok(done(body(&stored.record))),
            answer::Held::Failed(error) => Err(error),
            answer::Held::InProgress => Err(self.undo(&stored, call.accepts_incomplete).await),
        }
    }

    /// Whether a request has to be answered with its result although the platform would take a 202: a bind of a service
    /// whose bindings cannot be fetched (sections "Asynchronous Operations" and "Fetching a Service Binding"). Cloud
    /// Foundry accepts incomplete binds of every service, and fails those that are then incomplete.
    fn is_answered_at_once(&self, record: &Record) -> bool {
        record.operation.action == Action::Bind
            && self.shared.answers_binds_at_once(&record.ordered.service_id)
    }

    /// Records a removal that halts the operation, unless that has ended, or another was recorded. Its progress may be
    /// written meanwhile, so a conflict is tried again.
    async fn remove_again(&self, mut stored: Stored, removal: Action) -> Result<(), StoreError> {
        const TRIES: u32 = 5;
        let operation = stored.record.operation.id.clone();
        for _ in 0..TRIES {
            let next = self.begin(&stored.record, Intent::new(removal));
            match self.shared.store.write(Arc::new(next), Some(&stored.version)).await {
                Err(StoreError::Conflict) => {}
                written => {
                    driver::kick(&self.shared, &stored.record.key);
                    return written.map(drop);
                }
            }
            let now = self.shared.store.read(&stored.record.key).await?;
            let same = |now: &Stored| {
                let record = &now.record;
                record.is_busy() && record.operation.id == operation && record.operation.held
            };
            let Some(now) = now.filter(same) else { break };
            stored = now;
        }
        Err(StoreError::Conflict)
    }

    /// Answers a held request whose operation did not end in time. A creation that nobody was told of is halted and
    /// removed, so that nothing is left behind that the platform does not know of. Other operations go on; the platform
    /// asks again.
    async fn undo(&self, stored: &Stored, accepted_incomplete: bool) -> Error {
        let record = &stored.record;
        let removal = match record.operation.action {
            Action::Bind => Some(Action::Unbind),
            Action::Provision => Some(Action::Deprovision),
            _ => None,
        };
        if let Some(removal) = removal.filter(|_| record.operation.held)
            && let Err(error) = self.remove_again(stored.clone(), removal).await
        {
            tracing::warn!(record = %record.key, %error, "could not undo");
        }
        let told = record.operation.said();
        let told = told.map(|told| format!(" ({told})")).unwrap_or_default();
        let remedy = match accepted_incomplete {
            true => "its service has bindings_retrievable: false, which leaves it no more time",
            false => "repeat it with accepts_incomplete=true",
        };
        let action = record.operation.action;
        Error::new(ErrorKind::Timeout, format!("{action} did not end in time{told}; {remedy}"))
    }
}
