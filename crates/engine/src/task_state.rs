//! The state that the task of an operation holds between looks, and the errors that end a look early.

use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::decide::RefusedStart;
use crate::names::RunName;
use crate::permits::{Permits, Queue, Waited};
use crate::ports::{Clock, RunnerError, StoreError};
use crate::record::{Record, Timestamp};

/// The state that a task holds between looks.
#[derive(Default)]
pub(crate) struct TaskState {
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The last run whose start was refused, and how, until one is started or let go of.
    pub(crate) refused: Option<(RunName, RefusedStart)>,
    /// The queue in which the task waits for a permit.
    pub(crate) queue: Queue,
    /// The number of permits there are, if the task has waited for one for long.
    pub(crate) queued: Option<usize>,
    pub(crate) cancelled: Option<RunName>,
    /// How many times the instance's bindings were looked at, which have to go before it.
    pub(crate) looks_at_bindings: u32,
    /// The run that this task has started.
    pub(crate) begun: Option<RunName>,
    /// Whether somebody else wrote the record, and this process may not know that version yet.
    pub(crate) behind: bool,
    /// When it was last recorded what hinders the runner.
    pub(crate) hindered: Option<Timestamp>,
    /// The last write that was not answered, which may have taken effect.
    pub(crate) unheard: Option<Unheard>,
}

/// A write that was not answered, and the runs to release if it took effect.
pub(crate) struct Unheard {
    pub(crate) record: Arc<Record>,
    pub(crate) release: Vec<RunName>,
}

impl TaskState {
    /// The last refusal to start this run.
    pub(crate) fn refused_start(&self, run: &RunName) -> Option<&RefusedStart> {
        self.refused.as_ref().filter(|(refused, _)| refused == run).map(|(_, how)| how)
    }

    /// Waits for one of these permits, unless the task is woken.
    pub(crate) async fn wait_for(
        &mut self,
        permits: &Arc<Permits>,
        clock: &dyn Clock,
        wake: &Notify,
    ) {
        match self.queue.wait(permits, clock, wake, self.queued.is_some()).await {
            Waited::For(permit) => (self.permit, self.queued) = (Some(permit), None),
            Waited::Woken => {}
            Waited::Long => self.queued = Some(permits.most()),
        }
    }
}

/// An error that ends a look early; the look is repeated after a pause.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Runner(#[from] RunnerError),
}
