//! A runner whose runs do what a test scripted, and which remembers every run that ever began: the
//! outside world of a simulation, which survives when the engine does not.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use osb::{BindingBody, Failure, Object, Output, Work};
use serde_json::json;
use tokio::time::Instant;

use crate::names::RunName;
use crate::ports::{Offer, Run, RunFailure, RunState, Runner, RunnerError, StartError};
use crate::record::{Key, Reason};

/// The act that a script gives to a run.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a script is short")]
pub enum Act {
    /// End with this result after this time.
    End(Duration, Result<Output, RunFailure>),
    /// Vanish after this time, without a result.
    Vanish(Duration),
    /// Never end by itself; it is ended at its timeout.
    Hang,
    /// Never end by itself, and report this progress.
    Say(&'static str),
}

/// A script: it decides what a run does, from its work.
pub type Script = Arc<dyn Fn(&Work) -> Act + Send + Sync>;

/// A runner whose runs follow a script. Clones share the runs.
#[derive(Clone)]
pub struct ScriptedRunner {
    inner: Arc<Mutex<Inner>>,
    script: Arc<Mutex<Script>>,
}

#[derive(Default)]
struct Inner {
    runs: HashMap<RunName, Live>,
    /// How often each run's work really began.
    begun: BTreeMap<RunName, u32>,
    works: Vec<Work>,
    released: Vec<RunName>,
    refuse: Vec<StartError>,
    hindered: Option<String>,
    offer: Offer,
    /// How long the answer to a question for the offer takes.
    offer_takes: Duration,
}

impl Inner {
    fn check(&self) -> Result<(), RunnerError> {
        self.hindered.clone().map_or(Ok(()), |why| Err(RunnerError(why)))
    }
}

struct Live {
    key: Key,
    act: Act,
    since: Instant,
    timeout: Duration,
    cancelled: bool,
}

impl Live {
    fn state(&self) -> RunState {
        if self.cancelled {
            return RunState::Finished(Err(failure(Reason::Halted, "the run was halted")));
        }
        let age = self.since.elapsed();
        match &self.act {
            Act::End(after, result) if age >= *after => RunState::Finished(result.clone()),
            Act::Vanish(after) if age >= *after => RunState::Lost { why: "it vanished".into() },
            _ if age >= self.timeout => {
                RunState::Finished(Err(failure(Reason::Timeout, "it did not end in time")))
            }
            Act::Say(progress) => RunState::Running { progress: Some((*progress).to_owned()) },
            _ => RunState::Running { progress: None },
        }
    }
}

/// A failed run.
pub fn failure(reason: Reason, description: &str) -> RunFailure {
    RunFailure::new(reason, Failure::failed(description))
}

/// The output of a well-behaved broker: a binding gets credentials named after the operation.
pub fn fitting_output(work: &Work) -> Output {
    let mut credentials = Object::new();
    credentials.insert("password".into(), json!(format!("secret-of-{}", work.operation_id)));
    let binding = BindingBody { credentials: Some(credentials.into()), ..BindingBody::default() };
    Output { binding: work.binding_id.is_some().then_some(binding), ..Output::default() }
}

impl Default for ScriptedRunner {
    fn default() -> Self {
        Self::new(|work| Act::End(Duration::from_millis(100), Ok(fitting_output(work))))
    }
}

impl ScriptedRunner {
    /// A runner with a script.
    pub fn new(script: impl Fn(&Work) -> Act + Send + Sync + 'static) -> Self {
        Self { inner: Arc::default(), script: Arc::new(Mutex::new(Arc::new(script))) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the script for runs that begin from now on.
    pub fn script(&self, script: impl Fn(&Work) -> Act + Send + Sync + 'static) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
    }

    /// Sets what `offer` answers.
    pub fn set_offer(&self, offer: Offer) {
        self.offer_after(Duration::ZERO, offer);
    }

    /// Sets what `offer` answers, this long after it was asked.
    pub fn offer_after(&self, takes: Duration, offer: Offer) {
        let mut inner = self.lock();
        (inner.offer, inner.offer_takes) = (offer, takes);
    }

    /// Refuses the next start.
    pub fn refuse_start(&self, error: StartError) {
        self.lock().refuse.push(error);
    }

    /// Sets why no run can be looked at or ended; `None`: they can.
    pub fn hinder(&self, why: Option<&str>) {
        self.lock().hindered = why.map(str::to_owned);
    }

    /// How often each run's work began: more than once is a defect.
    pub fn begun(&self) -> BTreeMap<RunName, u32> {
        self.lock().begun.clone()
    }

    /// Every piece of work, in the order in which it began.
    pub fn works(&self) -> Vec<Work> {
        self.lock().works.clone()
    }

    /// The runs that are still kept.
    pub fn kept(&self) -> Vec<RunName> {
        self.lock().runs.keys().cloned().collect()
    }

    /// Lets a running run vanish.
    pub fn lose(&self, name: &RunName) {
        if let Some(run) = self.lock().runs.get_mut(name) {
            run.act = Act::Vanish(Duration::ZERO);
        }
    }

    /// Removes a run behind the engine's back.
    pub fn destroy(&self, name: &RunName) {
        self.lock().runs.remove(name);
    }
}

#[async_trait]
impl Runner for ScriptedRunner {
    async fn start(&self, run: &Run) -> Result<(), StartError> {
        let script = self.script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut inner = self.lock();
        if inner.runs.contains_key(&run.name) {
            return Ok(());
        }
        if !inner.refuse.is_empty() {
            return Err(inner.refuse.remove(0));
        }
        let key = Key::of(run.work.instance_id.clone(), run.work.binding_id.clone());
        *inner.begun.entry(run.name.clone()).or_default() += 1;
        inner.works.push(run.work.clone());
        let act = script(&run.work);
        let live = Live { key, act, since: Instant::now(), timeout: run.timeout, cancelled: false };
        inner.runs.insert(run.name.clone(), live);
        Ok(())
    }

    async fn observe(&self, name: &RunName) -> Result<RunState, RunnerError> {
        let inner = self.lock();
        inner.check()?;
        Ok(inner.runs.get(name).map_or(RunState::Absent, Live::state))
    }

    async fn changed(&self, name: &RunName) {
        let wait = {
            let inner = self.lock();
            match inner.runs.get(name) {
                Some(Live {
                    act: Act::End(after, _) | Act::Vanish(after),
                    since,
                    cancelled,
                    ..
                }) if !cancelled => after.saturating_sub(since.elapsed()),
                _ => Duration::from_millis(20),
            }
        };
        tokio::time::sleep(wait.min(Duration::from_secs(2))).await;
    }

    async fn cancel(&self, name: &RunName) -> Result<(), RunnerError> {
        let mut inner = self.lock();
        inner.check()?;
        if let Some(run) = inner.runs.get_mut(name) {
            run.cancelled |= matches!(run.state(), RunState::Running { .. });
        }
        Ok(())
    }

    async fn release(&self, name: &RunName) -> Result<(), RunnerError> {
        let mut inner = self.lock();
        if inner.runs.remove(name).is_some() {
            inner.released.push(name.clone());
        }
        Ok(())
    }

    async fn unreleased(&self) -> Result<Vec<(RunName, Key)>, RunnerError> {
        Ok(self.lock().runs.iter().map(|(name, run)| (name.clone(), run.key.clone())).collect())
    }

    async fn log(&self, _: &RunName) -> Result<Option<String>, RunnerError> {
        Ok(None)
    }

    async fn offer(&self) -> Result<Offer, RunFailure> {
        let (offer, takes) = {
            let inner = self.lock();
            (inner.offer.clone(), inner.offer_takes)
        };
        tokio::time::sleep(takes).await;
        Ok(offer)
    }
}
