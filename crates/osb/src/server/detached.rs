//! Detached work: it goes on although its caller does not wait for it any more.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future that is not cancelled by being dropped: what is left of it is then carried on by a task
/// of its own. So a client that hangs up cancels nothing, and one that waits costs no task.
///
/// A future that panicked is not carried on. Outside of a runtime, or at its end, it is cancelled.
pub(super) struct Detached<F: Future + Send + 'static>(Option<Pin<Box<F>>>)
where
    F::Output: Send;

impl<F: Future + Send + 'static> Detached<F>
where
    F::Output: Send,
{
    pub(super) fn new(future: F) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<F: Future + Send + 'static> Future for Detached<F>
where
    F::Output: Send,
{
    type Output = F::Output;

    /// # Panics
    /// As any future may, if it is polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out meanwhile, so that nothing is left if it panics.
        #[expect(clippy::expect_used, reason = "the contract of a future")]
        let mut future = self.0.take().expect("not polled again after it was ready");
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.0 = Some(future);
        }
        polled
    }
}

impl<F: Future + Send + 'static> Drop for Detached<F>
where
    F::Output: Send,
{
    fn drop(&mut self) {
        if let Some(future) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(future);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_begun_goes_on_without_its_waiter() {
        let (done, seen) = oneshot::channel();
        let detached = Detached::new(async move {
            sleep(Duration::from_secs(5)).await;
            let _ = done.send(());
        });
        assert!(timeout(Duration::from_secs(1), detached).await.is_err());
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn what_was_never_looked_at_is_begun() {
        let (done, seen) = oneshot::channel();
        drop(Detached::new(async move { done.send(()) }));
        seen.await.unwrap();
    }

    #[tokio::test]
    async fn what_is_done_is_not_done_again() {
        let (done, mut seen) = tokio::sync::mpsc::unbounded_channel();
        Detached::new(async move { done.send(()) }).await.unwrap();
        assert!(seen.recv().await.is_some());
        assert!(seen.recv().await.is_none());
    }

    #[tokio::test]
    async fn what_panicked_is_not_carried_on() {
        let (done, seen) = oneshot::channel::<()>();
        let mut detached = Box::pin(Detached::new(async move {
            let _done = done;
            panic!("the broker's fault");
        }));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let polled =
            std::panic::catch_unwind(AssertUnwindSafe(|| detached.as_mut().poll(&mut context)));
        assert!(polled.is_err());
        drop(detached);
        assert!(seen.await.is_err());
    }

    #[test]
    fn outside_of_a_runtime_it_is_cancelled() {
        let (done, seen) = oneshot::channel::<()>();
        drop(Detached::new(async move { done.send(()) }));
        assert!(seen.blocking_recv().is_err());
    }
}
