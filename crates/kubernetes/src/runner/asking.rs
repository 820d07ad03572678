//! Questions for catalogs, of few brokers at a time: who begins to lead asks all there are, and each question is a Job.

use std::pin::pin;
use std::time::Duration;

use engine::ports::RunFailure;
use engine::record::Reason;
use osb::Failure;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Of so many brokers catalogs are asked for at a time, by all groups of a process together.
pub(super) const AT_ONCE: usize = 16;
/// How often whoever waits for its turn looks whether it is still wanted.
const LOOK: Duration = Duration::from_secs(1);

/// Those who may ask now.
pub(super) static ASKING: Semaphore = Semaphore::const_new(AT_ONCE);

/// The turn of one, waited for as [`JobRunner::ask`](super::JobRunner::ask) waits for the answer.
pub(super) async fn turn<'t>(
    turns: &'t Semaphore,
    waits: impl Fn(Option<&str>) -> bool,
) -> Result<SemaphorePermit<'t>, RunFailure> {
    let mut turn = pin!(turns.acquire());
    loop {
        match tokio::time::timeout(LOOK, &mut turn).await {
            Ok(Ok(permit)) => return Ok(permit),
            Err(_) if waits(Some("for its turn: as many brokers as may be are asked now")) => {}
            Ok(Err(_)) | Err(_) => {
                let why = "it is not wanted any more".to_owned();
                return Err(RunFailure::new(Reason::Halted, Failure::failed(why)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_are_asked_at_a_time_and_the_next_when_one_has_answered_or_is_not_wanted() {
        let turns = Semaphore::new(2);
        let wanted = AtomicBool::new(true);
        let first = turn(&turns, |_| true).await.unwrap();
        let second = turn(&turns, |_| true).await.unwrap();
        let mut third = pin!(turn(&turns, |what| {
            assert!(what.is_some_and(|what| what.contains("its turn")));
            wanted.load(Ordering::Relaxed)
        }));
        let fourth = turn(&turns, |_| true);
        let waits = tokio::time::timeout(LOOK * 5, &mut third).await;
        assert!(waits.is_err(), "it waits for as long as it is wanted");
        wanted.store(false, Ordering::Relaxed);
        let failure = third.await.unwrap_err();
        assert_eq!(failure.reason, Reason::Halted);
        drop(first);
        assert!(fourth.await.is_ok());
        drop(second);
    }
}
