use std::future::Future;
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

/// What a deadline is cut to: a catalog may name more seconds than a clock can count.
const LONGEST_DEADLINE: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// How many answers in a row that make no sense (a 404, a malformed body) end the polling. The
/// specification would poll on to the end; someone who waits is better told.
const PATIENCE: u32 = 5;

/// How to ask after an operation.
#[derive(Clone)]
pub struct Polling {
    /// The first pause; each one is half again as long.
    pub first_interval: Duration,
    /// The longest pause. A `Retry-After` of the broker goes before both.
    pub max_interval: Duration,
    /// When to give up.
    pub deadline: Duration,
    /// Called with every answer.
    pub on_event: Option<OnEvent>,
}

/// Called with every answer while polling.
pub type OnEvent = Arc<dyn Fn(PollEvent<'_>) + Send + Sync>;

/// What polling has met.
#[derive(Debug)]
pub enum PollEvent<'a> {
    /// Where the operation stands.
    State(&'a LastOperation),
    /// No usable answer; the broker will be asked again.
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
            .finish_non_exhaustive()
    }
}

/// How often to repeat a request that must succeed in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retries {
    /// How often at most, the first time included.
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
    /// What was asked for: decides what 410 means.
    pub action: Action,
    /// Hints for the broker; during a change of plan the old plan's id.
    pub query: LastOperationQuery,
}

/// Why an operation did not end well.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The broker said so.
    #[error("the operation failed: {}", .0.description.as_deref().unwrap_or("the broker does not say why"))]
    Failed(LastOperation),
    /// The time to poll ran out.
    #[error("the operation did not end within {after:?}")]
    Deadline {
        /// How long was polled.
        after: Duration,
    },
    /// The broker's answers make no sense.
    #[error("the broker cannot tell how the operation stands")]
    Unclear(#[source] ClientError),
}

impl Client {
    /// Follows an operation on an instance to its end.
    ///
    /// Honours `Retry-After`; goes on through broken connections, timeouts, 408, 429 and 5xx; takes 410
    /// for a success of a deletion.
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

async fn wait<F>(
    action: Action,
    polling: &Polling,
    ask: impl Fn() -> F,
) -> Result<LastOperation, WaitError>
where
    F: Future<Output = Result<Response<LastOperation>, ClientError>>,
{
    let end = Instant::now() + polling.deadline.min(LONGEST_DEADLINE);
    let mut interval = polling.first_interval;
    let mut senseless = 0;
    let mut pause = interval;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // Once more at the very end: the operation may have ended during a long pause.
        tokio::time::sleep(pause.min(left)).await;
        let retry_after = match ask().await {
            Ok(Response { body: last, retry_after, .. }) => {
                polling.tell(PollEvent::State(&last));
                match last.state {
                    OperationState::Succeeded => return Ok(last),
                    OperationState::Failed => return Err(WaitError::Failed(last)),
                    OperationState::InProgress => {}
                }
                senseless = 0;
                retry_after
            }
            Err(error) if error.status() == Some(410) && deletes(action) => return Ok(gone()),
            Err(error) => {
                polling.tell(PollEvent::Trouble(&error));
                senseless = if error.is_passing() { 0 } else { senseless + 1 };
                if senseless >= PATIENCE {
                    return Err(WaitError::Unclear(error));
                }
                error.retry_after()
            }
        };
        if Instant::now() >= end {
            return Err(WaitError::Deadline { after: polling.deadline });
        }
        pause = retry_after.unwrap_or(interval);
        interval = (interval.saturating_mul(3) / 2).min(polling.max_interval);
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
