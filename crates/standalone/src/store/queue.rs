//! The queue of changes for the writer: it is bounded, and each change has somebody who waits for its answer.
//!
//! A channel of the standard library would wake the writer for every change; here it is woken when as
//! many are there as it waits for.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use engine::ports::StoreError;
use engine::record::Key;
use tokio::sync::oneshot;

use super::rows::{Document, Sealed, SealedRecord};

/// The answer to a change: the record's new version, or 0 where there is none.
pub(super) type Answer = Result<i64, StoreError>;

/// A command to the writer.
#[derive(Debug)]
pub(super) enum Command {
    /// A change, to be committed together with others.
    Change(Change),
    /// Make a new data key and seal everything again with it.
    Rotate(oneshot::Sender<Answer>),
    /// Test only: do this with the writer's connection.
    #[cfg(test)]
    Hook(Hook),
}

/// A change of the database.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) what: Mutation,
    reply: oneshot::Sender<Answer>,
    _slot: Slot,
}

/// The kinds of changes.
#[derive(Debug)]
pub(super) enum Mutation {
    /// Write a record if it has the expected version; `None`: if there is none.
    Write { record: Box<SealedRecord>, expected: Option<i64> },
    /// Remove a record if it has the expected version.
    Remove { key: Key, expected: i64 },
    /// Replace a document.
    Save(Document, Sealed),
    /// Remove a record that cannot be read.
    Discard(Key),
}

impl Change {
    /// Sends the answer of a change. If nobody waits any more, the change stands nevertheless.
    pub(super) fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }
}

/// A place in the queue.
#[derive(Debug)]
pub(super) struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The state that both ends of the queue share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    orders: VecDeque<Command>,
    /// The number of orders until which the writer sleeps.
    wanted: usize,
    /// Whether one end is gone.
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until `wanted` orders are there, or one comes that does not wait for others, or the given time is over.
    fn wait<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        wanted: usize,
        most: Option<Duration>,
    ) -> MutexGuard<'s, State> {
        state.wanted = wanted;
        let waits = |state: &mut State| !state.closed && state.orders.len() < state.wanted;
        let poisoned = PoisonError::into_inner;
        match most {
            None => self.changed.wait_while(state, waits).unwrap_or_else(poisoned),
            Some(most) => {
                let waited = self.changed.wait_timeout_while(state, most, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }
}

/// The next work of the writer.
#[derive(Debug)]
pub(super) enum Next {
    /// Changes to be committed together, in this order.
    Changes(Vec<Change>),
    /// Any other command.
    Other(Command),
    /// Nothing came in the time given.
    Nothing,
    /// Nothing will come any more.
    Closed,
}

/// The limits of the writer's wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// How long it waits for any order at all; `None`: for ever.
    pub(super) first: Option<Duration>,
    /// How many changes it waits for once there is one.
    pub(super) expected: usize,
    /// How long it waits for them at most.
    pub(super) gathering: Duration,
    /// How many changes it takes at once at most.
    pub(super) most: usize,
}

/// The writer's end of the queue.
#[derive(Debug)]
pub(super) struct Orders(Arc<Shared>);

impl Orders {
    pub(super) fn next(&self, patience: Patience) -> Next {
        let mut state = self.0.wait(self.0.lock(), 1, patience.first);
        if let Some(Command::Change(_)) = state.orders.front() {
            let wanted = patience.expected.min(patience.most);
            state = self.0.wait(state, wanted, Some(patience.gathering));
        }
        // Until it waits again, waking it would be for nothing.
        state.wanted = usize::MAX;
        let mut changes = Vec::new();
        while changes.len() < patience.most {
            match state.orders.pop_front() {
                Some(Command::Change(change)) => changes.push(change),
                Some(other) if changes.is_empty() => return Next::Other(other),
                Some(other) => {
                    state.orders.push_front(other);
                    break;
                }
                None => break,
            }
        }
        match (changes.is_empty(), state.closed) {
            (false, _) => Next::Changes(changes),
            (true, true) => Next::Closed,
            (true, false) => Next::Nothing,
        }
    }
}

impl Drop for Orders {
    /// Closes the queue: those who wait get an error, and no further order is taken.
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.lock();
            state.closed = true;
            std::mem::take(&mut state.orders)
        };
        drop(left);
    }
}

/// The senders' end of the queue.
#[derive(Debug)]
pub(super) struct Queue {
    shared: Arc<Shared>,
    waiting: Arc<AtomicUsize>,
    capacity: usize,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

impl Queue {
    pub(super) fn new(capacity: usize) -> (Self, Orders) {
        let shared = Arc::<Shared>::default();
        let orders = Orders(Arc::clone(&shared));
        (Self { shared, waiting: Arc::default(), capacity }, orders)
    }

    /// Sends an order; `false` if there is no writer any more.
    fn send(&self, order: Command) -> bool {
        let mut state = self.shared.lock();
        if state.closed {
            return false;
        }
        if !matches!(order, Command::Change(_)) {
            // It is not kept waiting for changes to gather.
            state.wanted = 0;
        }
        state.orders.push_back(order);
        let enough = state.orders.len() >= state.wanted;
        drop(state);
        if enough {
            self.shared.changed.notify_one();
        }
        true
    }

    /// Takes a place in the queue, before any work is spent on the change.
    ///
    /// # Errors
    /// [`StoreError::Overloaded`].
    pub(super) fn slot(&self) -> Result<Slot, StoreError> {
        let slot = Slot(Arc::clone(&self.waiting));
        if self.waiting.fetch_add(1, Ordering::Relaxed) < self.capacity {
            Ok(slot)
        } else {
            Err(StoreError::Overloaded)
        }
    }

    /// How many changes wait or are being committed.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Puts a change into a place and waits for the answer.
    pub(super) async fn change(&self, slot: Slot, what: Mutation) -> Answer {
        self.ask(|reply| Command::Change(Change { what, reply, _slot: slot })).await
    }

    /// Sends an order and waits for the answer.
    pub(super) async fn ask(
        &self,
        order: impl FnOnce(oneshot::Sender<Answer>) -> Command,
    ) -> Answer {
        let (reply, answer) = oneshot::channel();
        let ended = || StoreError::Unavailable("its writer has ended".to_owned());
        if !self.send(order(reply)) {
            return Err(ended());
        }
        answer.await.map_err(|_| ended())?
    }

    #[cfg(test)]
    pub(super) fn hook(&self, hook: impl FnOnce(&rusqlite::Connection) + Send + 'static) {
        let _ = self.send(Command::Hook(Hook(Box::new(hook))));
    }
}

/// Work on the writer's connection.
#[cfg(test)]
pub(super) struct Hook(pub(super) Box<dyn FnOnce(&rusqlite::Connection) + Send>);

#[cfg(test)]
impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hook")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn patience(expected: usize, gathering: Duration) -> Patience {
        Patience { first: Some(LONG), expected, gathering, most: 4 }
    }

    fn send(queue: &Queue, count: usize) {
        for _ in 0..count {
            let (reply, _) = oneshot::channel();
            let what = Mutation::Discard(engine::testing::store_contract::sample("i").key);
            assert!(queue.send(Command::Change(Change {
                what,
                reply,
                _slot: queue.slot().unwrap()
            })));
        }
    }

    fn taken(next: Next) -> usize {
        match next {
            Next::Changes(changes) => changes.len(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_batch_waits_for_as_many_as_are_expected() {
        let (queue, orders) = Queue::new(10);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| taken(orders.next(patience(3, LONG))));
            for _ in 0..3 {
                assert!(!writer.is_finished());
                send(&queue, 1);
            }
            assert_eq!(writer.join().unwrap(), 3);
        });
    }

    #[test]
    fn a_batch_waits_no_longer_than_its_time() {
        let (queue, orders) = Queue::new(10);
        send(&queue, 1);
        let begun = Instant::now();
        assert_eq!(taken(orders.next(patience(3, Duration::from_millis(20)))), 1);
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }

    #[test]
    fn what_comes_alone_is_not_kept_waiting() {
        let (queue, orders) = Queue::new(10);
        send(&queue, 1);
        assert_eq!(taken(orders.next(patience(1, LONG))), 1);
    }

    #[test]
    fn a_batch_has_a_most_and_keeps_the_order() {
        let (queue, orders) = Queue::new(10);
        send(&queue, 6);
        queue.hook(|_| {});
        send(&queue, 1);
        assert_eq!(taken(orders.next(patience(9, LONG))), 4);
        assert_eq!(taken(orders.next(patience(0, LONG))), 2);
        assert!(matches!(orders.next(patience(0, LONG)), Next::Other(_)));
        assert_eq!(taken(orders.next(patience(0, LONG))), 1);
    }

    #[test]
    fn another_order_ends_the_gathering() {
        let (queue, orders) = Queue::new(10);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| taken(orders.next(patience(4, LONG))));
            send(&queue, 1);
            while queue.shared.lock().wanted != 4 {
                std::thread::yield_now();
            }
            queue.hook(|_| {});
            assert_eq!(writer.join().unwrap(), 1);
        });
    }

    #[test]
    fn the_end_of_one_side_is_seen_by_the_other() {
        let (queue, orders) = Queue::new(10);
        send(&queue, 1);
        drop(queue);
        assert_eq!(taken(orders.next(patience(4, LONG))), 1, "what was sent is still done");
        assert!(matches!(orders.next(patience(4, LONG)), Next::Closed));

        let (queue, orders) = Queue::new(10);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let asked = queue.ask(Command::Rotate);
            let end = async { drop(orders) };
            let (answer, ()) = tokio::join!(asked, end);
            assert!(matches!(answer, Err(StoreError::Unavailable(_))));
            assert!(matches!(queue.ask(Command::Rotate).await, Err(StoreError::Unavailable(_))));
        });
    }

    #[test]
    fn nothing_in_the_time_given_is_nothing() {
        let (_queue, orders) = Queue::new(10);
        let patience = Patience { first: Some(Duration::ZERO), ..patience(1, LONG) };
        assert!(matches!(orders.next(patience), Next::Nothing));
    }
}
