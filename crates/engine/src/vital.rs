//! Vital tasks: they go on for as long as the process does, and all else relies on them, as a watch, a sweep, or the
//! task that keeps a Lease.
//!
//! Without this module nothing would show that one of them has panicked: the process is up, answers, is ready, and does
//! not do its work. The panic is recorded here, and the process is ended, to be started anew. A task that goes on after
//! a panic in its own way, as that of a record, is not vital.

use std::sync::LazyLock;

use tokio::sync::watch;

/// The name of the first vital task that panicked.
static PANICKED: LazyLock<watch::Sender<Option<&'static str>>> =
    LazyLock::new(|| watch::Sender::new(None));

/// Wraps the work of a vital task, which is then spawned. Only a panic of the work is recorded: it may end or be
/// dropped, as when the process ends.
pub fn task<T>(name: &'static str, work: impl Future<Output = T>) -> impl Future<Output = T> {
    // Else it would be there twice, before it is begun and while it goes on.
    let work = Box::pin(work);
    async move {
        let _witness = Witness(name);
        work.await
    }
}

/// The name of the first vital task that has panicked, if one has.
pub fn panicked() -> Option<&'static str> {
    *PANICKED.borrow()
}

/// Waits until a vital task has panicked: for ever, as a rule.
pub async fn until_panicked() {
    // The sender stays.
    let _ = PANICKED.subscribe().wait_for(Option::is_some).await;
}

/// A guard that is dropped with the work of a vital task, and records the panic.
struct Witness(&'static str);

impl Drop for Witness {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        tracing::error!(
            task = self.0,
            "a task panicked that all else relies on: this process has to end, and to be begun anew"
        );
        PANICKED.send_if_modified(|first| {
            let is_first = first.is_none();
            *first = first.or(Some(self.0));
            is_first
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn panics() {
        panic!("planted");
    }

    #[tokio::test]
    async fn a_panic_is_told_and_neither_an_end_nor_an_abort_is() {
        tokio::spawn(task("ends", async {})).await.unwrap();
        let goes_on = tokio::spawn(task("goes on", std::future::pending::<()>()));
        tokio::task::yield_now().await;
        goes_on.abort();
        assert!(goes_on.await.unwrap_err().is_cancelled());
        assert_eq!(panicked(), None);

        let told = tokio::spawn(until_panicked());
        for name in ["first", "second"] {
            let ended = tokio::spawn(task(name, panics())).await;
            assert!(ended.unwrap_err().is_panic(), "whoever joins it learns of it too");
        }
        told.await.unwrap();
        assert_eq!(panicked(), Some("first"));
    }
}
