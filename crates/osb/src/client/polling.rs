//! Polls an operation until it has ended or a deadline has passed (sections "Polling Last Operation for
//! Service Instances", "Polling Last Operation for Service Bindings" and "Polling Interval and Duration").

use std::future::Future;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Client;
use super::error::ClientError;
use super::response::Response;
use crate::broker::Action;
use crate::model::{
    BindingId, InstanceId, LastOperation, LastOperationQuery, OperationState, Plan,
};

/// How long platforms poll when a plan does not say: a week.
const MAXIMUM_POLLING_DURATION: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The longest deadline, to which a longer one is cut: a catalog may name more seconds than a clock can count.
const LONGEST_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How long to go on polling a broker that does not answer at all: longer than a restart takes, and shorter
/// than anybody watches a server that is gone. The specification would go on to the end.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// How many answers in a row that make no sense (a 404, a malformed body) end the polling. The
/// specification would poll on to the end; someone who waits is better told.
const PATIENCE: u32 = 5;

/// How to poll an operation.
#[derive(Clone)]
pub struct Polling {
    /// The first pause; each one is half again as long.
    pub first_interval: Duration,
    /// The longest pause. A `Retry-After` of the broker goes before it, and is at least the first pause.
    pub max_interval: Duration,
    /// How long to poll before giving up.
    pub deadline: Duration,
    /// How long to poll before giving up if there is no answer at all: no connection, or one that broke, or none in
    /// time.
    pub silence: Duration,
    /// Called with every answer.
    pub on_event: Option<OnEvent>,
}

/// Called with every answer while polling.
pub type OnEvent = Arc<dyn Fn(PollEvent<'_>) + Send + Sync>;

/// An event of polling.
#[derive(Debug)]
pub enum PollEvent<'a> {
    /// The broker said how the operation stands.
    State(&'a LastOperation),
    /// There was no usable answer; the broker will be asked again.
    Trouble(&'a ClientError),
}

impl Polling {
    /// Polls for as long as the plan allows (`maximum_polling_duration`).
    pub fn for_plan(plan: &Plan) -> Self {
        let limit = plan.maximum_polling_duration.map(Duration::from_secs);
        Self { deadline: limit.unwrap_or(MAXIMUM_POLLING_DURATION), ..Self::default() }
    }

    /// Calls `on_event` with every answer.
    #[must_use]
    pub fn on_event(mut self, on_event: impl Fn(PollEvent<'_>) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(on_event));
        self
    }

    fn tell(&self, event: PollEvent<'_>) {
        if let Some(on_event) = &self.on_event {
            on_event(event);
        }
    }
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            first_interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(30),
            deadline: MAXIMUM_POLLING_DURATION,
            silence: SILENCE,
            on_event: None,
        }
    }
}

impl std::fmt::Debug for Polling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Polling")
            .field("first_interval", &self.first_interval)
            .field("max_interval", &self.max_interval)
            .field("deadline", &self.deadline)
            .field("silence", &self.silence)
            .finish_non_exhaustive()
    }
}

/// How to repeat a request that must succeed in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// The most attempts, the first included.
    pub attempts: u32,
    /// The first pause; each one is twice as long. A `Retry-After` of the broker goes before it.
    pub first_pause: Duration,
    /// The longest pause.
    pub max_pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            attempts: 8,
            first_pause: Duration::from_secs(1),
            max_pause: Duration::from_secs(60),
        }
    }
}

/// An operation that is in progress: what a 202 said, and what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The action that was asked for: it decides what 410 means.
    pub action: Action,
    /// Hints for the broker; during a change of plan the old plan's id.
    pub query: LastOperationQuery,
}

/// The reason why an operation did not end well.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The broker said that it failed.
    #[error("the operation failed: {}", .0.description.as_deref().unwrap_or("the broker does not say why"))]
    Failed(LastOperation),
    /// The time to poll ran out.
    #[error("the operation did not end within {after:?}")]
    Deadline {
        /// How long the operation was polled.
        after: Duration,
        /// What the broker said last.
        last: Option<LastOperation>,
    },
    /// The broker does not answer.
    #[error("for {after:?} the broker has not answered")]
    Silent {
        /// How long it has not answered: [`Polling::silence`], or less at the deadline.
        after: Duration,
        /// What the broker said last.
        last: Option<LastOperation>,
        /// The error of the last request.
        #[source]
        source: ClientError,
    },
    /// The broker's answers make no sense.
    #[error("the broker cannot tell how the operation stands")]
    Unclear {
        /// What the broker said last that made sense.
        last: Option<LastOperation>,
        /// The error of its last answer.
        #[source]
        source: ClientError,
    },
}

impl Client {
    /// Follows an operation on an instance to its end.
    ///
    /// Honours `Retry-After`; goes on through 408, 429 and 5xx, and through broken connections and timeouts
    /// for [`Polling::silence`]; takes 410 for a success of a deletion.
    ///
    /// # Errors
    /// The operation failed, or its end could not be seen.
    pub async fn wait_instance(
        &self,
        instance: &InstanceId,
        pending: &Pending,
        polling: &Polling,
    ) -> Result<LastOperation, WaitError> {
        wait(pending.action, polling, || self.instance_last_operation(instance, &pending.query))
            .await
    }

    /// Follows an operation on a binding to its end, as [`Self::wait_instance`] does.
    ///
    /// # Errors
    /// The operation failed, or its end could not be seen.
    pub async fn wait_binding(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
        pending: &Pending,
        polling: &Polling,
    ) -> Result<LastOperation, WaitError> {
        wait(pending.action, polling, || {
            self.binding_last_operation(instance, binding, &pending.query)
        })
        .await
    }
}

pub(super) async fn wait<F>(
    action: Action,
    polling: &Polling,
    ask: impl Fn() -> F,
) -> Result<LastOperation, WaitError>
where
    F: Future<Output = Result<Response<LastOperation>, ClientError>>,
{
    let mut watch = Watch::new(action, polling);
    loop {
        tokio::time::sleep(watch.pause()).await;
        let asked = Instant::now();
        if let Some(ended) = watch.heard(asked, ask().await) {
            return ended;
        }
    }
}

/// The state of polling an operation: it says how long to pause before the next poll, and when to stop.
pub(crate) struct Watch<'p> {
    action: Action,
    polling: &'p Polling,
    end: Instant,
    interval: Duration,
    pause: Duration,
    known: Option<LastOperation>,
    senseless: u32,
    silent_since: Option<Instant>,
}

impl<'p> Watch<'p> {
    /// Begins to watch an operation now.
    pub(crate) fn new(action: Action, polling: &'p Polling) -> Self {
        Self {
            action,
            polling,
            end: Instant::now() + polling.deadline.min(LONGEST_DEADLINE),
            interval: polling.first_interval,
            pause: polling.first_interval,
            known: None,
            senseless: 0,
            silent_since: None,
        }
    }

    /// The pause before the next poll. There is one more poll at the very end: the operation may have ended during
    /// a long pause.
    pub(crate) fn pause(&self) -> Duration {
        self.pause.min(self.end.saturating_duration_since(Instant::now()))
    }

    /// Takes the answer to a poll; returns the result if that was the last one.
    pub(crate) fn heard(
        &mut self,
        asked: Instant,
        answer: Result<Response<LastOperation>, ClientError>,
    ) -> Option<Result<LastOperation, WaitError>> {
        let retry_after = match answer {
            Ok(Response { body: last, retry_after, .. }) => {
                self.polling.tell(PollEvent::State(&last));
                match last.state {
                    OperationState::Succeeded => return Some(Ok(last)),
                    OperationState::Failed => return Some(Err(WaitError::Failed(last))),
                    OperationState::InProgress => self.known = Some(last),
                }
                (self.senseless, self.silent_since) = (0, None);
                retry_after
            }
            Err(error) if error.status() == Some(410) && deletes(self.action) => {
                return Some(Ok(gone()));
            }
            Err(source) => match self.without_answer(asked, source) {
                ControlFlow::Continue(retry_after) => retry_after,
                ControlFlow::Break(error) => return Some(Err(error)),
            },
        };
        if Instant::now() >= self.end {
            let (after, last) = (self.polling.deadline, self.known.take());
            return Some(Err(WaitError::Deadline { after, last }));
        }
        let first = self.polling.first_interval;
        self.pause = retry_after.map_or(self.interval, |asked| asked.max(first));
        self.interval = (self.interval.saturating_mul(3) / 2).min(self.polling.max_interval);
        None
    }

    /// Takes a poll without a usable answer: returns how long the broker asks to wait, or the error if polling ends.
    fn without_answer(
        &mut self,
        asked: Instant,
        source: ClientError,
    ) -> ControlFlow<WaitError, Option<Duration>> {
        self.polling.tell(PollEvent::Trouble(&source));
        self.senseless = if source.is_passing() { 0 } else { self.senseless + 1 };
        if self.senseless >= PATIENCE {
            return ControlFlow::Break(WaitError::Unclear { last: self.known.take(), source });
        }
        if source.status().is_some() {
            self.silent_since = None;
            return ControlFlow::Continue(source.retry_after());
        }
        let after = self.silent_since.get_or_insert(asked).elapsed();
        if after >= self.polling.silence || Instant::now() >= self.end {
            return ControlFlow::Break(WaitError::Silent {
                after,
                last: self.known.take(),
                source,
            });
        }
        ControlFlow::Continue(source.retry_after())
    }
}

fn deletes(action: Action) -> bool {
    matches!(action, Action::Deprovision | Action::Unbind)
}

fn gone() -> LastOperation {
    LastOperation {
        state: OperationState::Succeeded,
        description: None,
        instance_usable: None,
        update_repeatable: None,
        retry_after: None,
    }
}
