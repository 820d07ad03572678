//! The runner that runs a [`Broker`] in this process.
//!
//! A run is a task here, so it ends with the runner and with the process. A run that was recorded as started is then
//! lost, and [`OnLost::Retry`](crate::policy::OnLost) gives its operation a further attempt, as the trait's contract
//! allows. A task is ended where it awaits: a broker that blocks its thread cannot be ended.

mod told;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use osb::broker::{Progress, Standing, perform};
use osb::jobs::contract::Capability;
use osb::{Broker, Failure, MAX_DEPTH, Output, Work, is_too_deep};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use self::told::Teller;
use crate::names::RunName;
use crate::ports::{Offer, Run, RunFailure, RunState, Runner, RunnerError, StartError};
use crate::record::{Key, Reason};

/// How long the broker may take to give its catalog, so that the caller does not wait for ever.
const CATALOG: Duration = Duration::from_secs(60);
const PANICKED: &str = "the broker panicked; see its log";
/// The longest wait for a change of a run.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long the runner waits for an aborted task to end before it says that the run has ended.
const ENDING: Duration = Duration::from_secs(5);

/// The runner of one broker.
pub struct InProcess<B: Broker> {
    broker: Arc<B>,
    runs: Arc<Mutex<HashMap<RunName, Entry>>>,
}

struct Entry {
    key: Key,
    state: RunState,
    changed: Arc<Notify>,
    halt: Arc<Notify>,
    /// The task of the run, which ends with the entry.
    _task: Task<()>,
}

/// A task that is aborted when its handle is dropped.
struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

type Runs = Mutex<HashMap<RunName, Entry>>;

fn lock(runs: &Runs) -> MutexGuard<'_, HashMap<RunName, Entry>> {
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(runs: &Runs, name: &RunName, state: RunState) {
    if let Some(entry) = lock(runs).get_mut(name)
        && matches!(entry.state, RunState::Running { .. })
    {
        entry.state = state;
        entry.changed.notify_waiters();
    }
}

impl<B: Broker> InProcess<B> {
    /// A runner of `broker`.
    pub fn new(broker: B) -> Self {
        Self { broker: Arc::new(broker), runs: Arc::default() }
    }

    fn goes_on(&self, name: &RunName) -> bool {
        lock(&self.runs)
            .get(name)
            .is_some_and(|entry| matches!(entry.state, RunState::Running { .. }))
    }
}

impl<B: Broker> Drop for InProcess<B> {
    /// Ends all runs: their tasks share the table of runs, and would go on otherwise.
    fn drop(&mut self) {
        lock(&self.runs).clear();
    }
}

async fn carry_out<B: Broker>(broker: Arc<B>, mut work: Work) -> Result<Output, Failure> {
    if let Some(name) = work.external_operation.take() {
        return Ok(match broker.last_operation(work, &name).await? {
            Standing::Succeeded(output) => *output,
            Standing::InProgress { description, retry_after } => Output {
                external_operation: Some(name),
                description,
                retry_after,
                ..Output::default()
            },
        });
    }
    perform(&*broker, work).await
}

/// Carries out the work in a task of its own, so that a panic of the broker is a failed run.
async fn result<B: Broker>(
    broker: Arc<B>,
    work: Work,
    teller: &Teller,
    timeout: Duration,
    halt: Arc<Notify>,
) -> Result<Output, RunFailure> {
    let mut task = Task(tokio::spawn(carry_out(broker, work)));
    let fail = |reason, words: String| Err(RunFailure::new(reason, Failure::failed(words)));
    let ended = tokio::select! {
        ended = &mut task.0 => match ended {
            Ok(Ok(output)) if cannot_be_kept(&output) => return fail(
                Reason::WrongShape,
                format!(
                    "the output is nested more than {MAX_DEPTH} levels deep, which cannot be kept"
                ),
            ),
            Ok(ended) => return teller.ended(ended),
            Err(_) => return fail(Reason::Killed, PANICKED.into()),
        },
        () = halt.notified() => fail(Reason::Halted, "the work was halted".into()),
        () = tokio::time::sleep(timeout) => {
            fail(Reason::Timeout, format!("the broker did not end within {} s", timeout.as_secs()))
        }
    };
    // What has ended has no effect any more: it is said only when it is so.
    task.0.abort();
    let _ = tokio::time::timeout(ENDING, &mut task.0).await;
    ended
}

fn cannot_be_kept(output: &Output) -> bool {
    serde_json::to_value(output).map_or(true, |document| is_too_deep(&document))
}

#[async_trait]
impl<B: Broker> Runner for InProcess<B> {
    async fn start(&self, run: &Run) -> Result<(), StartError> {
        let mut runs = lock(&self.runs);
        if runs.contains_key(&run.name) {
            return Ok(());
        }
        let key = Key::of(run.work.instance_id.clone(), run.work.binding_id.clone());
        let mut work = run.work.clone();
        let (name, table) = (run.name.clone(), Arc::clone(&self.runs));
        let said = (name.clone(), Arc::clone(&table));
        let teller = Arc::new(Teller::of(run));
        let tells = Arc::clone(&teller);
        work.progress = Progress::new(move |words| {
            let progress = Some(tells.progress(words).unwrap_or_default());
            set(&said.1, &said.0, RunState::Running { progress });
        });
        let (broker, timeout) = (Arc::clone(&self.broker), run.timeout);
        let halt = Arc::<Notify>::default();
        let halted = Arc::clone(&halt);
        let task = tokio::spawn(async move {
            let result = result(broker, work, &teller, timeout, halted).await;
            set(&table, &name, RunState::Finished(result));
        });
        let entry = Entry {
            key,
            state: RunState::Running { progress: None },
            changed: Arc::default(),
            halt,
            _task: Task(task),
        };
        runs.insert(run.name.clone(), entry);
        Ok(())
    }

    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError> {
        Ok(lock(&self.runs).get(name).map_or(RunState::Absent, |entry| entry.state.clone()))
    }

    async fn changed(&self, name: &RunName) {
        let Some(changed) = lock(&self.runs).get(name).map(|entry| Arc::clone(&entry.changed))
        else {
            return;
        };
        let wait = changed.notified();
        // Looked at only now: it may end before the wait begins.
        if self.goes_on(name) {
            let _ = tokio::time::timeout(LOOK_AGAIN, wait).await;
        }
    }

    async fn cancel(&self, name: &RunName) -> Result<(), RunnerError> {
        if let Some(entry) = lock(&self.runs).get(name) {
            entry.halt.notify_one();
        }
        Ok(())
    }

    async fn release(&self, name: &RunName) -> Result<(), RunnerError> {
        self.cancel(name).await?;
        while self.goes_on(name) {
            self.changed(name).await;
        }
        lock(&self.runs).remove(name);
        Ok(())
    }

    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError> {
        Ok(lock(&self.runs).iter().map(|(name, entry)| (name.clone(), entry.key.clone())).collect())
    }

    fn forgets(&self) -> bool {
        true
    }

    async fn log(&self, _: &RunName) -> Result<Option<String>, RunnerError> {
        Ok(None)
    }

    async fn offer(&self) -> Result<Offer, RunFailure> {
        let reported = |failure| RunFailure::new(Reason::Reported, failure);
        let broker = Arc::clone(&self.broker);
        let mut task = Task(tokio::spawn(async move { broker.catalog().await }));
        let fail = |reason, words: &str| Err(RunFailure::new(reason, Failure::failed(words)));
        let catalog = match tokio::time::timeout(CATALOG, &mut task.0).await {
            Ok(Ok(catalog)) => catalog.map_err(reported)?,
            Ok(Err(_)) => return fail(Reason::Killed, PANICKED),
            Err(_) => {
                return fail(Reason::Timeout, "the broker did not give its catalog within 60 s");
            }
        };
        let catalog = serde_json::to_value(catalog)
            .map_err(|error| reported(Failure::failed(error.to_string())))?;
        Ok(Offer {
            catalog,
            capabilities: vec![Capability::Update, Capability::RequestFile, Capability::Progress],
            ..Offer::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use osb::Catalog;
    use serde_json::{Value, json};

    use super::*;

    /// Whose catalog is what this makes of it.
    struct Offering(fn());

    impl Broker for Offering {
        async fn catalog(&self) -> Result<Catalog, Failure> {
            (self.0)();
            std::future::pending().await
        }
        async fn provision(&self, _: Work) -> Result<Output, Failure> {
            Ok(Output::default())
        }
        async fn deprovision(&self, _: Work) -> Result<Output, Failure> {
            Ok(Output::default())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_catalog_that_never_comes_and_an_author_who_panics_end_the_question_alone() {
        let panics: fn() = || panic!("of the author's");
        for (name, broker, expected) in [
            ("never", Offering(|| ()), Reason::Timeout),
            ("panics", Offering(panics), Reason::Killed),
        ] {
            let failed = InProcess::new(broker).offer().await.unwrap_err();
            assert_eq!(failed.reason, expected, "{name}");
        }
    }

    /// Leaves what it is given as parameters.
    struct Echo;

    impl Broker for Echo {
        async fn catalog(&self) -> Result<Catalog, Failure> {
            Ok(Catalog::default())
        }
        async fn provision(&self, work: Work) -> Result<Output, Failure> {
            let state = Value::Object(work.parameters.expose().clone());
            Ok(Output { state: Some(state.into()), ..Output::default() })
        }
        async fn deprovision(&self, _: Work) -> Result<Output, Failure> {
            Ok(Output::default())
        }
    }

    #[tokio::test]
    async fn what_is_nested_too_deep_to_be_kept_is_a_failure() {
        for (levels, kept) in [(1, true), (MAX_DEPTH - 1, true), (MAX_DEPTH, false)] {
            let parameters = (1..levels).fold(json!({}), |inner, _| json!({"a": inner}));
            let work = json!({
                "action": "provision", "service_id": "s", "plan_id": "p", "instance_id": "i",
                "operation_id": "o", "attempt": 1, "parameters": parameters,
            });
            let run = Run {
                name: RunName::attempt("o", 1),
                work: serde_json::from_value(work).unwrap(),
                timeout: Duration::from_secs(5),
                capabilities: Vec::new(),
                removes: None,
            };
            let runner = InProcess::new(Echo);
            runner.start(&run).await.unwrap();
            while runner.goes_on(&run.name) {
                runner.changed(&run.name).await;
            }
            let ended = runner.observe(&run.name).await.unwrap();
            let is_kept = match ended {
                RunState::Finished(ended) => ended.is_ok(),
                other => panic!("{other:?}"),
            };
            assert_eq!(is_kept, kept, "{levels}");
        }
    }
}
