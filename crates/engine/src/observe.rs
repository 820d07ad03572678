//! Observes an operation: reads its record, its run, and the records that it has to agree with.

use osb::{Action, InstanceId};

use crate::decide::{Around, Parent, State};
use crate::ports::{
    Filter, Kind, Query, RunState, RunnerError, Scanned, StoreError, Stored, Unreadable,
};
use crate::record::{Key, Lifecycle, Operation, Phase, Record};
use crate::shared::Shared;
use crate::task_state::{TaskState, Trouble};
use crate::transition;

/// The record as this process knows it, or as it is read anew where the known version turned out to be old.
pub(crate) async fn newest(
    shared: &Shared,
    key: &Key,
    task: &mut TaskState,
) -> Result<Option<Stored>, StoreError> {
    if !std::mem::take(&mut task.behind) {
        let known = shared.store.glance(key).await?;
        if known.is_some() || !shared.store.lags() {
            return Ok(known);
        }
    }
    shared.store.read(key).await
}

/// The state of an operation's current run. A run that this process does not know may be another process's, so it is
/// looked for, unless the record says that it was not started yet: to start it again is to start it once. After a
/// refused start it is looked for, too: the run may have started without the answer being heard.
async fn run_of(
    shared: &Shared,
    operation: &Operation,
    refused: bool,
) -> Result<RunState, RunnerError> {
    let run = transition::current_run(operation);
    let known = shared.runner.glance(&run).await?;
    let pending = matches!(operation.phase, Phase::Pending { .. });
    if known == RunState::Absent && (refused || !pending) {
        return shared.runner.observe(&run).await;
    }
    Ok(known)
}

/// Gathers everything that the next decision rests on.
pub(crate) async fn observe<'a>(
    shared: &Shared,
    record: &'a Record,
    task: &TaskState,
) -> Result<State<'a>, Trouble> {
    let operation = &record.operation;
    let current = transition::current_run(operation);
    let refused_start = task.refused_start(&current).cloned();
    let run = match &operation.phase {
        // It is not asked after yet, and to ask whether it is may be a call.
        Phase::External { next, .. }
            if !transition::is_due(&shared.policy, *next, shared.clock.now()) =>
        {
            RunState::Absent
        }
        _ => run_of(shared, operation, refused_start.is_some()).await?,
    };
    let halted = match &operation.halts {
        // Its own run was begun when that one was over; and of one that is over, and whose leavings are kept, there is nothing
        // more to learn.
        Some(halt) if run == RunState::Absent && !halt.kept => {
            Some(shared.runner.observe(&halt.run).await?)
        }
        _ => None,
    };
    // It may have done its work in a process that is gone.
    let halted = halted.filter(|it| *it != RunState::Absent || !shared.runner.forgets());
    // Without a permit nothing is started, and there is another look.
    let starting = task.permit.is_some()
        && matches!(operation.phase, Phase::Pending { .. })
        && run == RunState::Absent;
    // Of these only a first attempt gives way (`decide::give_way`).
    let is_first = operation.attempt == 1;
    let around = match (&record.key, operation.action) {
        _ if !starting => Around::Nothing,
        (Key::Binding(instance, _), Action::Bind | Action::Unbind) if is_first => {
            let instance = shared.store.read(&Key::Instance(instance.clone())).await?;
            Around::Instance(parent(instance.as_ref().map(|stored| &*stored.record), record))
        }
        (Key::Instance(instance), Action::Update) if is_first => {
            let query = bindings(instance, Filter::Busy, 1);
            // One that cannot be read may be anything.
            Around::Busy(!shared.store.scan(&query).await?.is_empty())
        }
        (Key::Instance(instance), Action::Deprovision) => {
            let query = bindings(instance, Filter::Live, 64);
            bindings_around(record, shared.store.scan(&query).await?)
        }
        _ => Around::Nothing,
    };
    let begun = task.begun.as_ref() == Some(&current);
    Ok(State { record, run, begun, halted, around, refused_start, queued: task.queued })
}

fn bindings(instance: &InstanceId, filter: Filter, limit: usize) -> Query {
    Query { kind: Kind::Bindings, instance: Some(instance.clone()), filter, after: None, limit }
}

fn parent(instance: Option<&Record>, binding: &Record) -> Parent {
    let Some(record) = instance.filter(|record| record.lifecycle == Lifecycle::Ready) else {
        return Parent::Unusable;
    };
    match record.operation.action {
        Action::Update if record.is_busy() => Parent::Updating,
        Action::Deprovision if record.is_busy() => Parent::Unusable,
        _ if binding.ordered.plan_id != record.ordered.plan_id => Parent::Replanned,
        _ => Parent::Usable,
    }
}

/// Sums up the live bindings of an instance, as a scan found them, for its deprovision.
fn bindings_around(deprovision: &Record, found: Vec<Scanned>) -> Around {
    let unreadable = found.iter().find_map(|found| found.as_ref().err()).map(left_alone);
    let bindings: Vec<Stored> = found.into_iter().flatten().collect();
    let refused = bindings.iter().find_map(|stored| refused_to_go(&stored.record, deprovision));
    let is_coming =
        |binding: &Record| binding.is_busy() && binding.operation.action == Action::Bind;
    let all_coming = bindings.iter().all(|stored| is_coming(&stored.record));
    let coming = unreadable.is_none() && all_coming;
    let live = unreadable.is_some() || !bindings.is_empty();
    let stuck = unreadable.or(refused);
    let staying = bindings.iter().filter(|stored| !is_leaving(&stored.record));
    let staying = staying.map(|stored| stored.record.key.clone()).collect();
    Around::Bindings { live, staying, coming, stuck }
}

/// Whether a binding is being removed.
pub(crate) fn is_leaving(binding: &Record) -> bool {
    binding.is_busy() && binding.operation.action == Action::Unbind
}

/// Why a binding that cannot be read is not removed.
fn left_alone(unreadable: &Unreadable) -> String {
    let Unreadable { key, why } = unreadable;
    format!(
        "{key} cannot be read, so nobody can remove it ({why}): put it right, or forget it: manciple purge"
    )
}

/// Why a binding could not be removed since the deprovision was asked for.
fn refused_to_go(binding: &Record, deprovision: &Record) -> Option<String> {
    let operation = &binding.operation;
    match &operation.phase {
        Phase::Failed(failure)
            if operation.action == Action::Unbind
                && operation.ended_at >= Some(deprovision.operation.created_at) =>
        {
            Some(format!("{} could not be removed: {}", binding.key, failure.description))
        }
        _ => None,
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ports::Version;
    use crate::record::{OperationFailure, Reason, Timestamp};
    use crate::testing::store_contract::{sample, sample_binding};

    /// A binding whose last operation is this, and stands so.
    fn binding(id: &str, action: Action, phase: Phase) -> Record {
        let mut record = sample_binding("i", id);
        record.operation.action = action;
        record.operation.phase = phase;
        record
    }

    /// A binding whose unbind failed then.
    fn refuses(id: &str, ended_at: u64) -> Record {
        let failure = OperationFailure::new(Reason::ExitStatus, "it is in use");
        let mut record = binding(id, Action::Unbind, Phase::Failed(failure));
        record.operation.ended_at = Some(Timestamp(ended_at));
        record
    }

    fn read(record: Record) -> Scanned {
        Ok(Stored { record: Arc::new(record), version: Version("1".to_owned()) })
    }

    fn unreadable(id: &str) -> Scanned {
        Err(Unreadable { key: sample_binding("i", id).key, why: "it is torn".to_owned() })
    }

    #[test]
    fn a_deprovision_agrees_with_every_binding_that_is_found() {
        let going = || Phase::Pending { not_before: None };
        let ready = |id| read(binding(id, Action::Bind, Phase::Succeeded));
        let made = |id| read(binding(id, Action::Bind, going()));
        let removed = |id| read(binding(id, Action::Unbind, going()));
        let refused = "binding a of i could not be removed: it is in use";
        let torn = "binding b of i cannot be read, so nobody can remove it (it is torn): put it right, \
                    or forget it: manciple purge";
        let mut deprovision = sample("i");
        deprovision.operation.created_at = Timestamp(10);
        for (name, found, live, staying, coming, stuck) in [
            ("there is none", vec![], false, vec![], true, None),
            ("they are there", vec![ready("a"), ready("b")], true, vec!["a", "b"], false, None),
            ("all are being made", vec![made("a"), made("b")], true, vec!["a", "b"], true, None),
            ("one is being made", vec![ready("a"), made("b")], true, vec!["a", "b"], false, None),
            ("one is being removed", vec![removed("a"), ready("b")], true, vec!["b"], false, None),
            ("one was refused before", vec![read(refuses("a", 9))], true, vec!["a"], false, None),
            (
                "one was refused since",
                vec![read(refuses("a", 10))],
                true,
                vec!["a"],
                false,
                Some(refused),
            ),
            ("one cannot be read", vec![unreadable("b")], true, vec![], false, Some(torn)),
            (
                "one cannot be read beside one that is being made",
                vec![made("a"), unreadable("b")],
                true,
                vec!["a"],
                false,
                Some(torn),
            ),
            (
                "what cannot be read is said before what was refused",
                vec![read(refuses("a", 10)), unreadable("b")],
                true,
                vec!["a"],
                false,
                Some(torn),
            ),
        ] {
            let staying = staying.into_iter().map(|id| sample_binding("i", id).key).collect();
            let stuck = stuck.map(str::to_owned);
            let expected = Around::Bindings { live, staying, coming, stuck };
            assert_eq!(bindings_around(&deprovision, found), expected, "{name}");
        }
    }
}
