//! The table of tasks: one per record with an operation in progress, and the requests that wait for its end. What a
//! task does is in [`driver`](crate::driver).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::record::Key;

/// The tasks, by record, and the requests that wait for their end.
#[derive(Default)]
pub(crate) struct Tasks {
    table: Mutex<HashMap<Key, Task>>,
    /// Intents that are being written, and have no task yet.
    writing: AtomicUsize,
}

/// Permission to write an intent, which counts as an operation in progress while it is held.
pub(crate) struct Admitted<'t>(&'t Tasks);

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        self.0.writing.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Task {
    wake: Arc<Notify>,
    running: bool,
    /// Set by a kick, cleared when the task looks: closes the gap between its last look and its end.
    kicked: bool,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Task>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many operations are in progress.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Permits one more operation, unless there are `limit` in progress or about to be. Intents that are being
    /// written count: on a slow disk a thousand would pass while none has a task yet.
    pub(crate) fn admit(&self, limit: usize) -> Option<Admitted<'_>> {
        let table = self.lock();
        let known = table.len() + self.writing.load(Ordering::Relaxed);
        (known < limit).then(|| {
            self.writing.fetch_add(1, Ordering::Relaxed);
            Admitted(self)
        })
    }

    /// Wakes every task: who carries out operations has changed.
    pub(crate) fn wake_all(&self) {
        self.lock().values().for_each(|task| task.wake.notify_one());
    }

    /// Whether the record has a task, or a request waits for one.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    /// Whether the record has a task that looks at it.
    pub(crate) fn is_driven(&self, key: &Key) -> bool {
        self.lock().get(key).is_some_and(|task| task.running)
    }

    /// Resolves when the record's task has ended. To be asked for before the kick.
    pub(crate) fn ended(&self, key: &Key) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut table = self.lock();
        let waiting = &mut table.entry(key.clone()).or_default().waiting;
        // An operation may outlast many that gave up.
        waiting.retain(|sender| !sender.is_closed());
        waiting.push(sender);
        receiver
    }

    /// Wakes the record's task. If it has none, the caller has to start one, for which the `Notify` that wakes it is
    /// returned; the record counts as having a task from now on.
    pub(crate) fn kick(&self, key: &Key) -> Option<Arc<Notify>> {
        let mut table = self.lock();
        let task = table.entry(key.clone()).or_default();
        task.kicked = true;
        if std::mem::replace(&mut task.running, true) {
            task.wake.notify_one();
            return None;
        }
        Some(Arc::clone(&task.wake))
    }

    /// Notes that the record's task looks now, and so sees what it was kicked for before.
    pub(crate) fn looks(&self, key: &Key) {
        if let Some(task) = self.lock().get_mut(key) {
            task.kicked = false;
        }
    }

    /// Notes that the record's task has broken off: the next kick starts another.
    pub(crate) fn broke_off(&self, key: &Key) {
        if let Some(task) = self.lock().get_mut(key) {
            task.running = false;
        }
    }

    /// Ends the record's task, unless it was kicked since its last look; returns whether it has ended.
    pub(crate) fn retire(&self, key: &Key) -> bool {
        let task = {
            let mut table = self.lock();
            if table.get(key).is_some_and(|task| task.kicked) {
                return false;
            }
            table.remove(key)
        };
        for waiting in task.into_iter().flat_map(|task| task.waiting) {
            let _ = waiting.send(());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_gave_up_waiting_is_forgotten_and_the_others_are_told() {
        let tasks = Tasks::default();
        let key = Key::Instance(osb::InstanceId::new("i").unwrap());
        let waits = tasks.ended(&key);
        for _ in 0..100 {
            drop(tasks.ended(&key));
        }
        let also = tasks.ended(&key);
        assert_eq!(tasks.lock()[&key].waiting.len(), 2);
        assert!(tasks.retire(&key));
        assert_eq!((waits.await, also.await), (Ok(()), Ok(())));
    }
}
