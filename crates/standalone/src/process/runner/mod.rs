//! The process runner, the server's side: it orders runs, observes them, and asks for their end.
//!
//! It needs nothing in memory: what it knows of its own supervisors only makes it
//! quicker to notice their end.

mod observe;
mod orders;
mod start;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use engine::contract;
use engine::names::RunName;
use engine::ports::{Offer, Run, RunFailure, RunState, Runner, RunnerError, StartError};
use engine::record::Key;
use tokio::sync::watch;
use tokio::time::Instant;

use self::observe::Said;
pub use self::observe::has_runs;
use super::directory::{RunDirectory, Standing};
use super::ending::RunKey;
use super::exchange::{self, Exchange};
use super::retention::Retention;
use super::settings::{OpenError, ProcessSettings};
use crate::data_dir;

/// The longest that [`Runner::changed`] waits.
const CHANGED: Duration = Duration::from_secs(2);
/// The prefix of the names of runs that ask for the catalog: no name of another run begins like this.
const CATALOG_PREFIX: &str = ".catalog-";

/// The runner that runs brokers as processes of this machine; see the [module](super).
///
/// A cheap handle: clones share everything. A second runner over the same settings, in this process or
/// in another, sees the same runs.
#[derive(Debug, Clone)]
pub struct ProcessRunner {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: ProcessSettings,
    /// The absolute path of the directory of runs.
    runs: PathBuf,
    exchange: exchange::Root,
    /// Supervisors that are children of this process; their channels close when they end.
    own: Mutex<HashMap<String, watch::Receiver<()>>>,
    said: Mutex<HashMap<String, Said>>,
    retention: Retention,
}

impl ProcessRunner {
    /// Opens the runner, and makes the directory of runs if need be.
    ///
    /// # Errors
    /// If that directory, or the exchange directory, cannot be made or written.
    pub fn open(settings: ProcessSettings) -> Result<Self, OpenError> {
        let failed = |path: &Path| {
            let what = format!("the directory {} cannot be used", path.display());
            |source| OpenError { what, source }
        };
        let runs = std::path::absolute(&settings.runs).map_err(failed(&settings.runs))?;
        data_dir::make(&runs)
            .and_then(|()| data_dir::try_to_write(&runs))
            .map_err(failed(&runs))?;
        let configured = settings.exchange.as_deref();
        let exchange =
            exchange::root(configured, &runs).map_err(failed(configured.unwrap_or(&runs)))?;
        let retention = Retention::new(&runs, settings.keep_runs, settings.keep_for);
        let (own, said) = (Mutex::default(), Mutex::default());
        let shared = Shared { settings, runs, exchange, own, said, retention };
        Ok(Self { shared: Arc::new(shared) })
    }
}

#[async_trait]
impl Runner for ProcessRunner {
    async fn start(&self, run: &Run) -> Result<(), StartError> {
        let order = self.shared.order(run)?;
        Ok(self.shared.clone().start(&self.shared.run(run.name.as_str()), &order).await?)
    }

    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError> {
        // Asked of every new operation; one look-up of a name is less than handing it over.
        if self.shared.run(name.as_str()).is_absent() {
            return Ok(RunState::Absent);
        }
        let (shared, name) = (self.shared.clone(), name.clone());
        blocking(move || shared.observe(name.as_str())).await
    }

    async fn changed(&self, name: &RunName) {
        let own = self.shared.own().get(name.as_str()).cloned();
        match own {
            Some(mut ended) => {
                let _ = tokio::time::timeout(CHANGED, ended.changed()).await;
            }
            None => self.shared.poll(name.as_str()).await,
        }
    }

    async fn cancel(&self, name: &RunName) -> Result<(), RunnerError> {
        let run = self.shared.run(name.as_str());
        blocking(move || match run.standing()? {
            Standing::Prepared | Standing::Running { .. } => run.cancel(),
            Standing::Absent | Standing::Ended | Standing::Lost | Standing::Released => Ok(()),
        })
        .await
    }

    async fn release(&self, name: &RunName) -> Result<(), RunnerError> {
        let patience = Instant::now() + self.shared.settings.grace + Duration::from_secs(10);
        loop {
            let (shared, released) = (self.shared.clone(), name.clone());
            let over = blocking(move || {
                let name = released.as_str();
                let over = shared.release(&shared.run(name), name)?;
                if over && let Err(error) = shared.retention.released(name, shared.exchange.path())
                {
                    tracing::warn!(%error, "what is left of former runs stays");
                }
                Ok(over)
            });
            if over.await? {
                return Ok(());
            }
            if Instant::now() > patience {
                return Err(RunnerError(format!("the run {name} does not end")));
            }
            self.changed(name).await;
        }
    }

    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError> {
        let shared = self.shared.clone();
        blocking(move || shared.unreleased()).await
    }

    async fn log(&self, name: &RunName) -> Result<Option<String>, RunnerError> {
        let (shared, name) = (self.shared.clone(), name.clone());
        blocking(move || shared.log(name.as_str())).await
    }

    async fn offer(&self) -> Result<Offer, RunFailure> {
        if let Some(file) = self.shared.settings.catalog_file.clone() {
            return contract::of_file(&file);
        }
        let name = format!("{CATALOG_PREFIX}{}", random_name());
        let run = self.shared.run(&name);
        let offer = self.shared.clone().offer(&run, &name).await;
        let shared = self.shared.clone();
        let forgotten = blocking(move || {
            let exchange = shared.exchange(&name).remove();
            run.remove().and(exchange)
        });
        if let Err(error) = forgotten.await {
            tracing::warn!(%error, "the run of a catalog cannot be removed");
        }
        offer
    }
}

impl Shared {
    fn run(&self, name: &str) -> RunDirectory {
        RunDirectory::at(self.runs.join(name))
    }

    fn exchange(&self, name: &str) -> Exchange {
        Exchange::at(self.exchange.path().join(name))
    }

    fn own(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<()>>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key that seals the result of a run. `None` only if the cryptography fails.
    fn key(&self, name: &str) -> Option<RunKey> {
        RunKey::derive(&self.settings.key, name)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, RunnerError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| RunnerError(error.to_string())),
        Err(error) => Err(RunnerError(error.to_string())),
    }
}

fn random_name() -> String {
    use ring::rand::{SecureRandom, SystemRandom};
    let mut bytes = [0; 8];
    // Without randomness the name may be taken: the catalog is then not read, this once.
    let _ = SystemRandom::new().fill(&mut bytes);
    data_encoding::HEXLOWER.encode(&bytes)
}
