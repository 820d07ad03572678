//! What the task of an operation holds between looks, and what may end a look early.

use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::decide::RefusedStart;
use crate::names::RunName;
use crate::permits::{Permits, Queue, Waited};
use crate::ports::{Clock, RunnerError, StoreError};

/// What a task holds between looks.
#[derive(Default)]
pub(crate) struct TaskState {
    pub(crate) permit: Option<OwnedSemaphorePermit>,
    /// The last run whose start was refused, and how, until one is started or let go of.
    pub(crate) refused: Option<(RunName, RefusedStart)>,
    /// Where it waits for a permit.
    pub(crate) queue: Queue,
    /// It has waited for a permit for long: how many there are.
    pub(crate) queued: Option<usize>,
    pub(crate) cancelled: Option<RunName>,
    /// How often its bindings were looked at that have to go before it.
    pub(crate) looks_at_bindings: u32,
    /// The run that was started from here.
    pub(crate) begun: Option<RunName>,
    /// Somebody else wrote the record, and we have not heard of it yet.
    pub(crate) behind: bool,
}

impl TaskState {
    /// How the start of this run was refused last.
    pub(crate) fn refused_start(&self, run: &RunName) -> Option<&RefusedStart> {
        self.refused.as_ref().filter(|(refused, _)| refused == run).map(|(_, how)| how)
    }

    /// Waits for one of these permits, unless it is woken.
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

/// Why a look ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Runner(#[from] RunnerError),
}
