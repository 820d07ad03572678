//! What waits for the writer: bounded, each with the one who waits for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use engine::ports::StoreError;
use engine::record::Key;
use tokio::sync::oneshot;

use super::rows::{Document, Sealed, SealedRecord};

/// The answer to a change: the record's new version, or 0 where there is none.
pub(super) type Answer = Result<i64, StoreError>;

/// Something to be done by the writer.
#[derive(Debug)]
pub(super) enum Order {
    /// To be committed together with others.
    Change(Change),
    /// Make a new data key and bring everything over to it.
    Rotate(oneshot::Sender<Answer>),
    /// Test only: do this with the writer's connection.
    #[cfg(test)]
    Hook(Hook),
}

/// A change of the database.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) what: What,
    reply: oneshot::Sender<Answer>,
    _slot: Slot,
}

/// The changes there are.
#[derive(Debug)]
pub(super) enum What {
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
    /// Answers. Nobody may be waiting any more; the change stands nevertheless.
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

/// The senders' end.
#[derive(Debug)]
pub(super) struct Queue {
    orders: Sender<Order>,
    waiting: Arc<AtomicUsize>,
    capacity: usize,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> (Self, Receiver<Order>) {
        let (orders, receiver) = channel();
        (Self { orders, waiting: Arc::default(), capacity }, receiver)
    }

    /// Takes a place, before any work is spent on what is to stand there.
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

    /// Changes that wait or are being committed.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Puts a change into a place and waits for the answer.
    pub(super) async fn change(&self, slot: Slot, what: What) -> Answer {
        self.ask(|reply| Order::Change(Change { what, reply, _slot: slot })).await
    }

    /// Sends an order and waits for the answer.
    pub(super) async fn ask(&self, order: impl FnOnce(oneshot::Sender<Answer>) -> Order) -> Answer {
        let (reply, answer) = oneshot::channel();
        let ended = || StoreError::Unavailable("its writer has ended".to_owned());
        self.orders.send(order(reply)).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    #[cfg(test)]
    pub(super) fn hook(&self, hook: impl FnOnce(&rusqlite::Connection) + Send + 'static) {
        let _ = self.orders.send(Order::Hook(Hook(Box::new(hook))));
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
