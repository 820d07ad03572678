//! Permits: they bound how many runs are alive at once, and queue the tasks that wait for one.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use osb::ServiceId;
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};

use crate::ports::Clock;

/// The period in which a permit has to be given to somebody for the queue to count as moving.
const MOVES: Duration = Duration::from_secs(10);
/// How many of these periods a task waits in a moving queue before it says that it waits.
const SILENT: u32 = 6;

/// The permits for runs.
pub(crate) struct Permits {
    places: Arc<Semaphore>,
    most: usize,
    /// How many permits were given away, ever.
    given: AtomicU64,
}

/// The outcome of a wait for a permit.
pub(crate) enum Waited {
    /// A permit was given.
    For(OwnedSemaphorePermit),
    /// The task was woken first: the record may have changed.
    Woken,
    /// The queue does not move, or the task has waited for long: the record has to say so.
    Long,
}

impl Permits {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Arc::new(Self { places: Arc::new(Semaphore::new(most)), most, given: AtomicU64::new(0) })
    }

    /// How many permits there are in all.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Whether somebody has a permit, or waits for one.
    fn is_in_use(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) > 1 || self.places.available_permits() < self.most
    }

    /// Takes a permit, if one is free.
    pub(crate) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.given.fetch_add(1, Ordering::Relaxed);
        Some(place)
    }

    /// Joins the queue for a permit.
    fn queue(self: &Arc<Self>) -> Queued {
        Queued {
            permits: Arc::clone(self),
            place: Box::pin(Arc::clone(&self.places).acquire_owned()),
            given: self.given.load(Ordering::Relaxed),
            silent: 0,
        }
    }
}

/// A task's place in the queue, which is served in order. The task keeps its place until this is dropped, however often
/// it is woken meanwhile.
struct Queued {
    permits: Arc<Permits>,
    place: Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send + Sync>>,
    given: u64,
    silent: u32,
}

/// The queue in which a task waits, if it does.
#[derive(Default)]
pub(crate) struct Queue(Option<Queued>);

impl Queue {
    /// Leaves the queue.
    pub(crate) fn leave(&mut self) {
        self.0 = None;
    }

    /// Waits for one of these permits. `told`: the record says already that the wait takes long.
    pub(crate) async fn wait(
        &mut self,
        permits: &Arc<Permits>,
        clock: &dyn Clock,
        wake: &Notify,
        told: bool,
    ) -> Waited {
        let queued = match self.0.take() {
            Some(queued) if Arc::ptr_eq(&queued.permits, permits) => self.0.insert(queued),
            _ => self.0.insert(permits.queue()),
        };
        loop {
            tokio::select! {
                biased;
                place = &mut queued.place => {
                    permits.given.fetch_add(1, Ordering::Relaxed);
                    self.leave();
                    // It is never closed.
                    return place.map_or(Waited::Woken, Waited::For);
                }
                () = wake.notified() => return Waited::Woken,
                () = clock.sleep(MOVES), if !told => {
                    let now = permits.given.load(Ordering::Relaxed);
                    let before = std::mem::replace(&mut queued.given, now);
                    queued.silent += 1;
                    if before == now || queued.silent >= SILENT {
                        return Waited::Long;
                    }
                }
            }
        }
    }
}

/// The permits of each service whose broker is one of several: no service waits for another's.
#[derive(Default)]
pub(crate) struct Apart(Mutex<HashMap<ServiceId, Arc<Permits>>>);

impl Apart {
    fn lock(&self) -> MutexGuard<'_, HashMap<ServiceId, Arc<Permits>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The permits of a service; `most`: how many there are, if it had none before.
    pub(crate) fn of(&self, service: &ServiceId, most: usize) -> Arc<Permits> {
        let mut table = self.lock();
        Arc::clone(table.entry(service.clone()).or_insert_with(|| Permits::new(most)))
    }

    /// Forgets the permits of services that are not offered, unless they are in use: services come and go for as long
    /// as the process lives.
    pub(crate) fn keep(&self, is_offered: impl Fn(&ServiceId) -> bool) {
        self.lock().retain(|service, permits| is_offered(service) || permits.is_in_use());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ServiceId {
        ServiceId::new(text).unwrap()
    }

    #[test]
    fn places_of_services_that_are_not_offered_any_more_go_unless_they_are_in_use() {
        let apart = Apart::default();
        for name in ["offered", "waited-for", "held", "idle"] {
            apart.of(&id(name), 1);
        }
        let waits = apart.of(&id("waited-for"), 1);
        let place = apart.of(&id("held"), 1).try_acquire();
        let kept = |offered: &[&str]| {
            apart.keep(|service| offered.contains(&service.as_str()));
            let mut names: Vec<_> = apart.lock().keys().map(ToString::to_string).collect();
            names.sort();
            names
        };
        assert_eq!(kept(&["offered"]), ["held", "offered", "waited-for"]);
        assert!(apart.of(&id("held"), 1).try_acquire().is_none(), "it is as it was");
        drop((waits, place));
        assert_eq!(kept(&["offered"]), ["offered"]);
    }
}
