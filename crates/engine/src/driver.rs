//! The driver carries operations to their end: one task per record with an operation in progress, which looks,
//! decides and acts until the operation has ended.
//!
//! A task holds a key and, while a run is alive, a permit; the record is read for each look. So a
//! thousand waiting operations cost little, and a restart only has to start the tasks again.

use std::sync::Arc;
use std::time::Duration;

use osb::model::Permission;
use osb::{Action, ServiceId, Work};
use tokio::sync::Notify;

use crate::decide::{RefusedStart, Step, decide};
use crate::failpoint;
use crate::names::RunName;
use crate::observe::{is_leaving, newest, observe};
use crate::permits::Permits;
use crate::policy::doubled;
use crate::ports::{Run, RunState, RunnerError, StartError, StoreError, Stored};
use crate::record::{Key, OperationFailure, Phase, Reason, Record, Timestamp};
use crate::shared::Shared;
use crate::task_state::{TaskState, Trouble, Unheard};
use crate::transition::{self, HINDERED, Intent};

/// How long to wait before the store or the runner is asked again after it failed; twice as long each time, up to
/// `TROUBLE_MOST`.
const TROUBLE: Duration = Duration::from_millis(500);
const TROUBLE_MOST: Duration = Duration::from_secs(8);
/// The number of looks in a row that ended early from which on it is recorded what hinders the runner.
const SAID: u32 = 3;
/// The shortest time between two such records.
const SAID_AGAIN: Duration = Duration::from_secs(60);
/// How long to wait before a record that another process takes care of is looked at again, unless this process hears of
/// a change to it first.
const ELSEWHERE: Duration = Duration::from_secs(5);
/// The first pause of a deprovision before it looks at its bindings again; it doubles each time, up to `BINDINGS_MOST`.
const BINDINGS: Duration = Duration::from_millis(200);
const BINDINGS_MOST: Duration = Duration::from_secs(2);
/// The age from which a pending record is read anew before its first run, if the store lags: another process may have
/// carried the operation out since, by a run that is not known of any more. A runner remembers the runs of the last
/// minute.
const OLD: Duration = Duration::from_secs(30);

/// The reason why an operation waits while no catalog is in force: it was recorded under a catalog that is not valid
/// any more, or is gone, so that the capabilities of its broker are not known.
const NO_CATALOG: &str = "the catalog of its broker is not known yet";

/// Has a record looked at: starts its task, or wakes it.
pub(crate) fn kick(shared: &Arc<Shared>, key: &Key) {
    wake(shared, key, false);
}

/// As [`kick`], for an operation that was just recorded: if it has no task yet, there is nothing to
/// see before its first run can be started.
pub(crate) fn begin(shared: &Arc<Shared>, key: &Key) {
    wake(shared, key, true);
}

fn wake(shared: &Arc<Shared>, key: &Key, new: bool) {
    if let Some(wake) = shared.tasks.kick(key) {
        let shared = Arc::clone(shared);
        let key = key.clone();
        tokio::spawn(async move { drive(&shared, key, &wake, new).await });
    }
}

/// A guard in each task: if the task panics, in an adapter or here, dropping the guard starts another task for its
/// record.
struct Successor<'a> {
    shared: &'a Arc<Shared>,
    key: &'a Key,
}

impl Drop for Successor<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        self.shared.tasks.broke_off(self.key);
        let (shared, key) = (Arc::clone(self.shared), self.key.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                shared.clock.sleep(TROUBLE).await;
                kick(&shared, &key);
            });
        }
    }
}

/// The step of a task between two looks at its record.
enum Next {
    /// The operation has ended.
    Over,
    Look,
    Await(Awaited),
    /// A run has to be started, and the task has to wait for one of these permits first.
    Permit(Arc<Permits>),
}

/// The event that a task waits for, unless it is woken.
enum Awaited {
    Run(RunName),
    Time(Duration),
}

async fn drive(shared: &Arc<Shared>, key: Key, wake: &Notify, new: bool) {
    let _successor = Successor { shared, key: &key };
    let mut task = TaskState::default();
    let mut next = match new && shared.drives() && shared.is_of_one() {
        true => Next::Permit(Arc::clone(&shared.permits)),
        false => Next::Look,
    };
    let mut failures = 0;
    loop {
        // What waits for something else, or for nothing, keeps no place from others; who looks once more may come back.
        if matches!(next, Next::Over | Next::Await(_)) {
            task.queue.leave();
        }
        match next {
            Next::Over if shared.tasks.retire(&key) => return,
            Next::Over | Next::Look => {}
            Next::Permit(permits) => task.wait_for(&permits, &*shared.clock, wake).await,
            Next::Await(awaited) => wait(shared, wake, awaited).await,
        }
        shared.tasks.looks(&key);
        // A look is large and short, a wait small and long: thousands of tasks do the latter.
        let looked = Box::pin(look(shared, &key, &mut task)).await;
        failures = if looked.is_ok() { 0 } else { failures + 1 };
        next = match looked {
            Ok(next) => next,
            Err(trouble) => after(shared, &key, &mut task, &trouble, failures).await,
        };
    }
}

/// The next step after a look that ended early, as it has the last `failures` times.
async fn after(
    shared: &Arc<Shared>,
    key: &Key,
    task: &mut TaskState,
    trouble: &Trouble,
    failures: u32,
) -> Next {
    tracing::warn!(record = %key, error = %trouble, "an operation waits for the store or the runner");
    if let (Trouble::Runner(error), SAID..) = (trouble, failures)
        && let Err(error) = say_hindered(shared, key, task, error).await
    {
        tracing::warn!(record = %key, %error, "what hinders a run cannot be written down");
    }
    // Somebody has to put it right, or to purge it, which may take long.
    let is_unreadable = matches!(trouble, Trouble::Store(StoreError::Unreadable { .. }));
    if is_unreadable {
        task.permit = None;
    }
    let pause = if is_unreadable { ELSEWHERE } else { doubled(TROUBLE, failures, TROUBLE_MOST) };
    Next::Await(Awaited::Time(pause))
}

/// Records what hinders the runner, for whoever waits for the operation: once a minute at most.
async fn say_hindered(
    shared: &Arc<Shared>,
    key: &Key,
    task: &mut TaskState,
    error: &RunnerError,
) -> Result<(), Trouble> {
    let Some(stored) = newest(shared, key, task).await? else { return Ok(()) };
    let (record, now) = (&*stored.record, shared.clock.now());
    let waits = format!("{HINDERED}{}", error.0);
    let stands = task.hindered.is_some_and(|said| now < said.plus(SAID_AGAIN));
    let is_said = record.operation.waits.as_ref() == Some(&waits);
    if stands || is_said || !record.is_busy() || !shared.drives() {
        return Ok(());
    }
    task.hindered = Some(now);
    let next = transition::waiting(record, waits, now);
    write(shared, &stored, next, &[], task).await.map(drop)
}

async fn wait(shared: &Shared, wake: &Notify, awaited: Awaited) {
    match awaited {
        Awaited::Run(run) => tokio::select! {
            () = shared.runner.changed(&run) => {}
            () = wake.notified() => {}
        },
        Awaited::Time(duration) => tokio::select! {
            () = shared.clock.sleep(duration) => {}
            () = wake.notified() => {}
        },
    }
}

/// Reads the record and its run, decides the next step, and carries it out.
async fn look(shared: &Arc<Shared>, key: &Key, task: &mut TaskState) -> Result<Next, Trouble> {
    // A record may be large, and who carries it out does not depend on what it says.
    if !shared.drives() && shared.store.is_busy(key) == Some(true) {
        return Ok(leave(task));
    }
    let Some(stored) = newest(shared, key, task).await? else { return Ok(Next::Over) };
    let record = &*stored.record;
    if let Some(unheard) = task.unheard.take_if(|it| it.record.operation == record.operation) {
        close(shared, &unheard.record, &unheard.release, task).await?;
    }
    if !record.is_busy() {
        return Ok(Next::Over);
    }
    if !shared.drives() {
        return Ok(leave(task));
    }
    let state = observe(shared, record, task).await?;
    let permits = || shared.permits(&record.ordered.service_id);
    if matches!(state.run, RunState::Running { .. }) && task.permit.is_none() {
        task.permit = permits().try_acquire();
    }
    match decide(&shared.policy, &state, shared.clock.now()) {
        Step::Settled => Ok(Next::Over),
        Step::Start { .. } if task.permit.is_none() => Ok(Next::Permit(permits())),
        Step::Start { run, poll } => start(shared, &stored, run, poll, task).await,
        Step::Write { record, release } => write(shared, &stored, *record, &release, task).await,
        Step::Wait(run) => Ok(Next::Await(Awaited::Run(run))),
        Step::WaitUntil(when) => {
            task.permit = None;
            Ok(Next::Await(Awaited::Time(shared.clock.now().until(when))))
        }
        Step::Cancel(run) => cancel(shared, &stored, run, task).await,
        Step::Unbind(bindings) => {
            // Their runs may need the last one.
            task.permit = None;
            unbind(shared, &bindings).await?;
            task.looks_at_bindings += 1;
            let pause = doubled(BINDINGS, task.looks_at_bindings, BINDINGS_MOST);
            Ok(Next::Await(Awaited::Time(pause)))
        }
    }
}

/// The next step where another process carries the operation out: the permit is given back, and the record looked at
/// again later.
fn leave(task: &mut TaskState) -> Next {
    task.permit = None;
    // Before this process starts anything again it asks what has become of the record meanwhile.
    task.refused = None;
    Next::Await(Awaited::Time(ELSEWHERE))
}

async fn start(
    shared: &Arc<Shared>,
    stored: &Stored,
    name: RunName,
    poll: Option<String>,
    task: &mut TaskState,
) -> Result<Next, Trouble> {
    let record = &*stored.record;
    if task.refused_start(&name).is_none() && is_overtaken(shared, stored).await? {
        task.behind = true;
        return Ok(Next::Look);
    }
    let work = work(shared, record, poll).await?;
    failpoint::hit("before-start").await;
    let started = match shared.capabilities(&work.service_id) {
        Some(capabilities) => {
            let run = Run {
                name: name.clone(),
                timeout: shared.policy.timeouts.of(record.operation.action),
                capabilities,
                work,
                removes: record.made.binding.clone().map(Box::new),
            };
            shared.runner.start(&run).await
        }
        // It would be run as a broker of the first version of the contract, without parameters and without state.
        None => Err(StartError::Unready(NO_CATALOG.to_owned())),
    };
    match started {
        Ok(()) => {
            task.refused = None;
            task.begun = Some(name);
            failpoint::hit("after-start").await;
            Ok(Next::Look)
        }
        Err(error) => {
            let now = shared.clock.now();
            let before = task.refused_start(&name);
            let refused = RefusedStart::after(&shared.policy, before, &error, now);
            let times = refused.times;
            // What is not ready is looked at again and again, for as long as that lasts.
            if times < 2 || !matches!(error, StartError::Unready(_)) {
                tracing::warn!(run = %name, %error, times, "a run could not be started");
            }
            if shared.catalog().is_none() {
                // Nobody's can be: each says so itself.
                task.permit = None;
            }
            // It keeps its place: what is refused for all is refused to as many as go on at once, and not to all that wait.
            let next = match refused.permanent {
                true => Next::Look,
                false => Next::Await(Awaited::Time(now.until(refused.until))),
            };
            task.refused = Some((name, refused));
            Ok(next)
        }
    }
}

/// Whether somebody has written the record since the version that this process knows: a process that has just begun to
/// lead may know old versions for as long as its watches bring nothing newer.
async fn is_overtaken(shared: &Shared, stored: &Stored) -> Result<bool, StoreError> {
    let record = &stored.record;
    let is_first = matches!(record.operation.phase, Phase::Pending { .. });
    if !is_first || !shared.store.lags() || shared.clock.now() < record.updated_at.plus(OLD) {
        return Ok(false);
    }
    let now = shared.store.read(&record.key).await?;
    Ok(now.is_none_or(|now| now.version != stored.version))
}

async fn work(shared: &Shared, record: &Record, poll: Option<String>) -> Result<Work, StoreError> {
    let operation = &record.operation;
    let ordered = operation.target.as_ref().unwrap_or(&record.ordered);
    let mut state = record.made.state.clone();
    if let (Key::Binding(instance, _), None) = (&record.key, &state) {
        let instance = shared.store.glance(&Key::Instance(instance.clone())).await?;
        state = instance.and_then(|stored| stored.record.made.state.clone());
    }
    let timeout = shared.policy.timeouts.of(operation.action);
    Ok(Work {
        action: operation.action,
        service_id: ordered.service_id.clone(),
        plan_id: ordered.plan_id.clone(),
        instance_id: record.key.instance().clone(),
        binding_id: record.key.binding().cloned(),
        operation_id: operation.id.clone(),
        attempt: operation.attempt,
        deadline: Some(shared.clock.now().plus(timeout).0 / 1000),
        parameters: ordered.parameters.clone(),
        context: ordered.context.clone(),
        previous_values: operation.previous_values.clone(),
        maintenance_info: ordered.maintenance_info.clone(),
        bind_resource: ordered.bind_resource.clone(),
        predecessor_binding_id: ordered.predecessor_binding_id.clone(),
        originating_identity: operation.originating_identity.clone(),
        state,
        external_operation: poll,
        progress: osb::broker::Progress::default(),
    })
}

async fn write(
    shared: &Arc<Shared>,
    stored: &Stored,
    next: Record,
    release: &[RunName],
    task: &mut TaskState,
) -> Result<Next, Trouble> {
    let next = transition::published(&stored.record, next, |id| shared.requires(id));
    if !next.is_busy() {
        failpoint::hit("before-outcome").await;
    }
    let mut next = Arc::new(next);
    let mut written = shared.store.write(Arc::clone(&next), Some(&stored.version)).await;
    if let Err(StoreError::TooLarge(why)) = &written {
        // What was there before was kept: that it failed can be.
        next = Arc::new(smaller(&stored.record, &next, why));
        written = shared.store.write(Arc::clone(&next), Some(&stored.version)).await;
    }
    match written {
        Ok(_) => {}
        // A request came first; look again.
        Err(StoreError::Conflict) => {
            task.behind = true;
            return Ok(Next::Look);
        }
        Err(error) => {
            // Its run is over, and takes no place from others while that cannot be written.
            if !release.is_empty() {
                task.permit = None;
                task.unheard = Some(Unheard { record: next, release: release.to_vec() });
            }
            return Err(error.into());
        }
    }
    task.unheard = None;
    if matches!(next.operation.phase, Phase::Started { .. }) {
        failpoint::hit("after-started").await;
    }
    if !next.is_busy() {
        failpoint::hit("after-outcome").await;
    } else if shared.is_stuck(&stored.record, &next) {
        shared.observer.stuck(&next);
    }
    close(shared, &next, release, task).await?;
    Ok(Next::Look)
}

/// Tells of the end of an operation, if the record has it, and releases the runs that are not needed any more.
async fn close(
    shared: &Shared,
    record: &Record,
    release: &[RunName],
    task: &mut TaskState,
) -> Result<(), Trouble> {
    if !record.is_busy() {
        shared.observer.ended(record);
    }
    for run in release {
        shared.runner.release(run).await?;
        task.permit = None;
        task.refused = None;
    }
    if !release.is_empty() {
        failpoint::hit("after-release").await;
    }
    Ok(())
}

/// The record that is written where `next` is too large for the store: `next` without the state that a failed run left,
/// or, if there is none or the run succeeded, the failure that its result is too large.
fn smaller(before: &Record, next: &Record, why: &str) -> Record {
    let made = matches!(next.operation.phase, Phase::Succeeded | Phase::External { .. });
    if made || next.made.state == before.made.state {
        return too_large(before, why, next.updated_at);
    }
    tracing::warn!(record = %before.key, why, "what a run has left is too large to be kept");
    let mut smaller = next.clone();
    smaller.made.state.clone_from(&before.made.state);
    smaller
}

/// The record of an operation that has failed because its result is too large for the store.
fn too_large(before: &Record, why: &str, now: Timestamp) -> Record {
    let words = format!("what the broker answered is too large to be kept: {why}");
    let failure = OperationFailure::new(Reason::OutputTooLarge, words);
    transition::failed(before, failure, false, now)
}

/// The record without what hindered the runner, if it has that.
fn unhindered(stored: &Stored, now: Timestamp) -> Option<Record> {
    let waits = stored.record.operation.waits.as_deref().unwrap_or_default();
    waits.starts_with(HINDERED).then(|| transition::gone_on(&stored.record, now))
}

async fn cancel(
    shared: &Arc<Shared>,
    stored: &Stored,
    run: RunName,
    task: &mut TaskState,
) -> Result<Next, Trouble> {
    if task.cancelled.as_ref() != Some(&run) {
        shared.runner.cancel(&run).await?;
        failpoint::hit("after-cancel").await;
        task.cancelled = Some(run.clone());
        if let Some(next) = unhindered(stored, shared.clock.now()) {
            return write(shared, stored, next, &[], task).await;
        }
    }
    Ok(Next::Await(Awaited::Run(run)))
}

/// Records an unbind for each binding that has none yet.
async fn unbind(shared: &Arc<Shared>, bindings: &[Key]) -> Result<(), StoreError> {
    for key in bindings {
        let Some(stored) = shared.store.read(key).await? else { continue };
        let record = &*stored.record;
        if !record.is_live() || is_leaving(record) {
            continue;
        }
        let intent = Intent::new(Action::Unbind);
        let next = transition::begin(&shared.policy, record, intent, shared.clock.now());
        match shared.store.write(Arc::new(next), Some(&stored.version)).await {
            Ok(_) => kick(shared, key),
            Err(StoreError::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl Shared {
    /// The permissions that a service requires of its platform; all of them while no catalog is in force.
    fn requires(&self, service: &ServiceId) -> Vec<Permission> {
        let Some(catalog) = self.catalog() else { return Permission::ALL.to_vec() };
        let service = catalog.service(service);
        service.map(|service| service.requires.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_tried_ever_less_often_up_to_a_bound() {
        for (name, first, most, expected) in [
            ("trouble", TROUBLE, TROUBLE_MOST, [500, 1000, 2000, 4000, 8000, 8000, 8000]),
            ("bindings", BINDINGS, BINDINGS_MOST, [200, 400, 800, 1600, 2000, 2000, 2000]),
        ] {
            let millis = |count| doubled(first, count, most).as_millis();
            assert_eq!([1, 2, 3, 4, 5, 6, u32::MAX].map(millis), expected, "{name}");
        }
    }
}
