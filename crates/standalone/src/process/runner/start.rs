//! Starts runs, and notices their end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use engine::ports::{Offer, RunFailure, StartError};
use engine::record::Reason;
use osb::{Failure, FailureKind};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::{CHANGED, Shared};
use crate::process::directory::{RunDirectory, Standing};
use crate::process::ending::Ending;
use crate::process::launch::launch;
use crate::process::order::{Order, Reply};
use crate::process::refusal::Refusal;

impl Shared {
    /// Starts a run, unless it was started already; when this returns `Ok`, it was started exactly once.
    pub(super) async fn start(
        self: Arc<Self>,
        run: &RunDirectory,
        order: &Order,
    ) -> Result<(), Refusal> {
        let refused = |error: &io::Error| Refusal::of(run.path().display(), error);
        loop {
            let found = run.clone();
            let settled = tokio::task::spawn_blocking(move || {
                let settled = found.settled()?;
                if matches!(settled, Standing::Absent | Standing::Prepared) {
                    found.prepare()?;
                }
                Ok(settled)
            });
            let settled = settled.await.unwrap_or_else(|error| Err(error.into()));
            match settled.map_err(|error| refused(&error))? {
                Standing::Running { .. }
                | Standing::Ended
                | Standing::Lost
                | Standing::Released => return Ok(()),
                Standing::Absent | Standing::Prepared => {}
            }
            let (reply, child) = launch(&self.settings.supervisor, run.path(), order).await?;
            self.clone().watch(&order.about.name, child, reply == Reply::Started);
            match reply {
                Reply::Started => return Ok(()),
                Reply::Refused(refusal) => return Err(refusal),
                // Another has it, of an earlier server or of another call of this.
                Reply::Taken | Reply::Ready => sleep(Duration::from_millis(10)).await,
            }
        }
    }

    /// Reaps a supervisor when it ends; if it has started the run, its end is announced through its channel.
    fn watch(self: Arc<Self>, name: &str, mut child: Child, started: bool) {
        let (alive, ended) = watch::channel(());
        if started {
            self.own().insert(name.to_owned(), ended);
        }
        let name = name.to_owned();
        tokio::spawn(async move {
            let status = child.wait().await;
            if started {
                tracing::debug!(run = name, ?status, "the supervisor has ended");
                self.own().remove(&name);
            }
            drop(alive);
        });
    }

    /// Waits for the end of a run whose supervisor is no child of this process, by looking with growing pauses.
    pub(super) async fn poll(&self, name: &str) {
        let run = self.run(name);
        let until = Instant::now() + CHANGED;
        let mut pause = Duration::from_millis(20);
        loop {
            let over = matches!(run.standing(), Ok(Standing::Ended | Standing::Lost));
            if over || Instant::now() > until {
                return;
            }
            sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_millis(500));
        }
    }

    /// Asks the broker for its offer, by a run that is forgotten afterwards.
    pub(super) async fn offer(
        self: Arc<Self>,
        run: &RunDirectory,
        name: &str,
    ) -> Result<Offer, RunFailure> {
        let not_started = |kind, why| {
            RunFailure::new(
                Reason::NotStarted,
                Failure::new(kind, format!("catalog cannot be run: {why}")),
            )
        };
        let order = self.catalog_order(name);
        let started = match order {
            Ok(order) => self.clone().start(run, &order).await,
            Err(refusal) => Err(refusal),
        };
        started.map_err(|refusal| match StartError::from(refusal) {
            StartError::Transient(why) | StartError::Unready(why) => {
                not_started(FailureKind::Transient, why)
            }
            StartError::Permanent(why) => not_started(FailureKind::Failed, why),
        })?;
        let own = self.own().get(name).cloned();
        if let Some(mut ended) = own {
            let _ = ended.changed().await;
        }
        let (key, sealed) = (self.key(name), run.result().ok().flatten().unwrap_or_default());
        let Some(ending) = key.and_then(|key| Ending::open(&key, name, &sealed)) else {
            let what = "catalog left no result: its supervisor was killed";
            return Err(RunFailure::new(Reason::Lost, Failure::failed(what)));
        };
        ending.offer()
    }
}
