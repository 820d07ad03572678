//! The decisions themselves: what is recorded and seen, and the step that follows.

mod elsewhere;
mod refusals;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use engine::Policy;
use engine::decide::{Around, Parent, RefusedStart, STARTS, State, Step, TOLD, decide};
use engine::names::RunName;
use engine::policy::{OnBound, OnLost};
use engine::ports::{RunFailure, RunState, Store};
use engine::record::{
    Halt, Key, Lifecycle, Operation, PastOperation, Phase, Reason, Record, Shown, Timestamp,
};
use engine::testing::scripted_runner::Act;
use osb::{Action, Failure, FailureKind, InstanceMetadata, Output};
use support::{Platform, World, binding_id, id};

const NOW: Timestamp = Timestamp(1_700_000_100_000);

/// A record whose provision is in progress.
async fn creating() -> Record {
    let world = World::default();
    world.runner.script(|_| Act::Hang);
    let platform = Platform(world.mortal(&engine::testing::mortal::Life::of(4)));
    let waiting = platform.provision(serde_json::json!({}));
    let _ = tokio::time::timeout(Duration::from_secs(1), waiting).await;
    let stored = world.store.read(&Key::Instance(id("i"))).await.unwrap().unwrap();
    (*stored.record).clone()
}

fn removing(mut record: Record) -> Record {
    record.lifecycle = Lifecycle::Ready;
    record.operation.action = Action::Deprovision;
    record
}

fn binding(mut record: Record) -> Record {
    record.key = Key::Binding(id("i"), binding_id("b"));
    record.operation.action = Action::Bind;
    record
}

fn started(mut record: Record) -> Record {
    record.operation.phase = Phase::Started { at: NOW };
    record
}

fn seen(record: &Record, run: RunState) -> State<'_> {
    State {
        record,
        run,
        begun: false,
        halted: None,
        around: Around::Nothing,
        refused_start: None,
        queued: None,
    }
}

fn running() -> RunState {
    RunState::Running { progress: None }
}

fn ended(kind: FailureKind) -> RunState {
    ended_asking(kind, None)
}

/// As [`ended`], and asks for so long a pause.
fn ended_asking(kind: FailureKind, retry_after: Option<u64>) -> RunState {
    let failure = Failure { retry_after, ..Failure::new(kind, "words") };
    RunState::Finished(Err(RunFailure::new(Reason::ExitStatus, failure)))
}

/// Whoever was to say something did not come to it.
fn unheard(reason: Reason) -> RunState {
    RunState::Finished(Err(RunFailure::new(reason, Failure::failed("words"))))
}

fn run(record: &Record) -> RunName {
    RunName::attempt(&record.operation.id, record.operation.attempt)
}

/// The phase that is written; panics for other steps.
fn written(step: Step) -> Record {
    match step {
        Step::Write { record, .. } => *record,
        other => panic!("nothing is written: {other:?}"),
    }
}

fn reason(record: &Record) -> Option<Reason> {
    match &record.operation.phase {
        Phase::Failed(failure) => Some(failure.reason),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_never_created_is_started_and_one_that_vanished_is_not() {
    let policy = Policy::default();
    let record = creating().await;
    let step = decide(&policy, &seen(&record, RunState::Absent), NOW);
    assert_eq!(step, Step::Start { run: run(&record), poll: None });
    let record = started(record);
    let step = decide(&policy, &seen(&record, RunState::Absent), NOW);
    assert_eq!(reason(&written(step)), Some(Reason::Lost));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_there_is_adopted_collected_or_waited_for() {
    let policy = Policy::default();
    let record = creating().await;
    let adopted = written(decide(&policy, &seen(&record, running()), NOW));
    assert_eq!(adopted.operation.phase, Phase::Started { at: NOW });
    let step = decide(&policy, &seen(&adopted, running()), NOW);
    assert_eq!(step, Step::Wait(run(&adopted)));
    for record in [&record, &adopted] {
        let done = RunState::Finished(Ok(Output::default()));
        let next = written(decide(&policy, &seen(record, done), NOW));
        assert_eq!((next.lifecycle, &next.operation.phase), (Lifecycle::Ready, &Phase::Succeeded));
        assert_eq!(decide(&policy, &seen(&next, RunState::Absent), NOW), Step::Settled);
    }
}

/// Of what kept a pod from beginning nothing is said while its broker works, or when it has ended.
#[tokio::test(start_paused = true)]
async fn what_is_told_of_a_run_is_told_as_long_as_it_holds() {
    let policy = Policy::default();
    let says = |said: &str| RunState::Running { progress: Some(said.to_owned()) };
    let quiet = started(creating().await);
    assert_eq!(decide(&policy, &seen(&quiet, says("")), NOW), Step::Wait(run(&quiet)));
    let told = written(decide(&policy, &seen(&quiet, says("no node takes it")), NOW));
    assert_eq!(told.operation.progress.as_deref(), Some("no node takes it"));
    // What is not known changes nothing.
    assert_eq!(decide(&policy, &seen(&told, running()), NOW), Step::Wait(run(&told)));
    let ends = [
        RunState::Finished(Ok(Output::default())),
        ended(FailureKind::Failed),
        RunState::Lost { why: "gone".to_owned() },
    ];
    let later = NOW.plus(TOLD);
    for state in [says("")].into_iter().chain(ends) {
        let next = written(decide(&policy, &seen(&told, state.clone()), later));
        assert_eq!(next.operation.progress, None, "{state:?}");
    }
}

/// A broker may say another thing many times a second.
#[tokio::test(start_paused = true)]
async fn what_was_told_of_a_run_stands_for_a_moment_and_then_the_last_is_told() {
    let policy = Policy::default();
    let says = |said: &str| RunState::Running { progress: Some(said.to_owned()) };
    let first = written(decide(&policy, &seen(&started(creating().await), says("1 %")), NOW));
    assert_eq!(first.operation.progress.as_deref(), Some("1 %"), "at once");
    let until = NOW.plus(TOLD);
    for (at, said) in [(NOW, "2 %"), (Timestamp(until.0 - 1), "3 %")] {
        assert_eq!(decide(&policy, &seen(&first, says(said)), at), Step::Wait(run(&first)));
    }
    let before = Timestamp(NOW.0 - 3_600_000);
    let set_back = written(decide(&policy, &seen(&first, says("3 %")), before));
    assert_eq!(set_back.operation.progress.as_deref(), Some("3 %"), "a clock that was set back");
    let next = written(decide(&policy, &seen(&first, says("4 %")), until));
    assert_eq!(next.operation.progress.as_deref(), Some("4 %"));
    let ended = seen(&first, RunState::Finished(Ok(Output::default())));
    assert_eq!(written(decide(&policy, &ended, NOW)).operation.phase, Phase::Succeeded, "at once");
}

/// Builds before kept what an operation waits for as if its broker had said so.
#[tokio::test(start_paused = true)]
async fn what_an_operation_waits_for_is_said_before_its_progress_until_it_goes_on() {
    let policy = Policy::default();
    let words = "its run cannot be started yet: no node has room";
    for (case, progress, waits, before, after) in [
        ("it waits", None, Some(words), Some(words), None),
        (
            "it waits for another attempt",
            Some("half way"),
            Some(words),
            Some(words),
            Some("half way"),
        ),
        ("it waited for a build before", Some(words), None, Some(words), None),
        ("it has waited for nothing", Some("half way"), None, Some("half way"), Some("half way")),
    ] {
        let mut record = creating().await;
        record.operation.progress = progress.map(str::to_owned);
        record.operation.waits = waits.map(str::to_owned);
        assert_eq!(record.operation.said(), before, "{case}");
        for run in [running(), ended(FailureKind::Transient)] {
            let next = written(decide(&policy, &seen(&record, run), NOW));
            assert_eq!(next.operation.said(), after, "{case}: {:?}", next.operation.phase);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_failure_ends_a_creation_in_its_own_way() {
    let policy = Policy { attempts: 1, ..Policy::default() };
    let record = started(creating().await);
    let cases = [
        (FailureKind::Failed, Reason::ExitStatus, Lifecycle::Broken, None),
        (FailureKind::Transient, Reason::ExitStatus, Lifecycle::Broken, Some(7)),
        (FailureKind::Gone, Reason::ExitStatus, Lifecycle::Broken, None),
        (FailureKind::Unsupported, Reason::Unsupported, Lifecycle::Deleted, None),
        (FailureKind::Invalid, Reason::Invalid, Lifecycle::Deleted, None),
        (FailureKind::Conflict, Reason::Conflict, Lifecycle::Deleted, None),
        (FailureKind::Busy, Reason::Busy, Lifecycle::Deleted, Some(7)),
    ];
    for (kind, expected, lifecycle, again) in cases {
        let next = written(decide(&policy, &seen(&record, ended_asking(kind, Some(7))), NOW));
        assert_eq!((reason(&next), next.lifecycle), (Some(expected), lifecycle), "{kind:?}");
        let Phase::Failed(failure) = &next.operation.phase else { panic!("{next:?}") };
        assert_eq!(failure.retry_after, again, "{kind:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_was_made_is_believed_only_of_a_first_attempt() {
    let policy = Policy::default();
    let mut record = started(creating().await);
    record.operation.attempt = 2;
    let next = written(decide(&policy, &seen(&record, ended(FailureKind::Invalid)), NOW));
    assert_eq!(next.lifecycle, Lifecycle::Broken);
}

#[tokio::test(start_paused = true)]
async fn a_lost_run_is_retried_by_policy_until_the_attempts_are_used_up() {
    let retry = Policy { lost: OnLost::Retry, attempts: 2, ..Policy::default() };
    let lost = || RunState::Lost { why: "gone".into() };
    let record = started(creating().await);
    let next = written(decide(&Policy::default(), &seen(&record, lost()), NOW));
    assert_eq!(reason(&next), Some(Reason::Lost));
    let again = written(decide(&retry, &seen(&record, lost()), NOW));
    assert_eq!(again.operation.attempt, 2);
    let later = NOW.plus(retry.pause(2));
    assert_eq!(again.operation.phase, Phase::Pending { not_before: Some(later) });
    let step = decide(&retry, &seen(&again, RunState::Absent), NOW);
    assert_eq!(step, Step::WaitUntil(later));
    let step = decide(&retry, &seen(&again, RunState::Absent), later);
    assert_eq!(step, Step::Start { run: run(&again), poll: None });
    let last = written(decide(&retry, &seen(&started(again), lost()), NOW));
    assert_eq!(reason(&last), Some(Reason::Lost));
}

#[tokio::test(start_paused = true)]
async fn a_delete_waits_for_the_run_that_it_halts() {
    let policy = Policy::default();
    let create = creating().await;
    let halted = run(&create);
    let with = |first: bool| {
        let mut record = removing(create.clone());
        record.operation.id = "deprovision-x".into();
        record.operation.halts = Some(Halt { run: halted.clone(), first, kept: false });
        record
    };
    let look = |record: &Record, state: RunState| {
        let state = State { halted: Some(state), ..seen(record, RunState::Absent) };
        decide(&policy, &state, NOW)
    };
    let start = |record: &Record| Step::Start { run: run(record), poll: None };
    let (first, later) = (with(true), with(false));
    assert_eq!(look(&later, running()), Step::Cancel(halted.clone()));
    assert_eq!(look(&later, ended(FailureKind::Failed)), start(&later));
    assert_eq!(look(&later, RunState::Lost { why: String::new() }), start(&later));
    assert_eq!(look(&later, RunState::Absent), start(&later));
    // What never began has left nothing to remove, but what it was to be given.
    let Step::Write { record: gone, release } = look(&first, RunState::Absent) else { panic!() };
    assert_eq!(release, std::slice::from_ref(&halted));
    assert_eq!((gone.lifecycle, &gone.operation.phase), (Lifecycle::Deleted, &Phase::Succeeded));
    // What did begin, and has left nothing, may be gone at the next look.
    for over in [ended(FailureKind::Failed), RunState::Lost { why: String::new() }] {
        let next = written(look(&first, over.clone()));
        let halt = next.operation.halts.as_ref().unwrap();
        assert_eq!((halt.first, next.updated_at), (false, NOW), "{over:?}");
        assert_eq!(look(&next, over), start(&next));
        assert_eq!(look(&next, RunState::Absent), start(&next));
    }
}

#[tokio::test(start_paused = true)]
async fn a_further_attempt_of_a_delete_does_not_take_what_it_halted_for_never_begun() {
    let policy = Policy::default();
    let create = creating().await;
    let mut delete = removing(create.clone());
    delete.operation.id = "deprovision-x".into();
    delete.operation.halts = Some(Halt { run: run(&create), first: true, kept: false });
    let asynchronous = Output { external_operation: Some("elsewhere".into()), ..Output::default() };
    for (what, ended) in [
        ("tried again", ended(FailureKind::Transient)),
        ("goes on elsewhere", RunState::Finished(Ok(asynchronous))),
    ] {
        // The halted run was over before, and is let go of with this one.
        let over = State { halted: Some(RunState::Absent), ..seen(&delete, ended) };
        let next = written(decide(&policy, &over, NOW));
        let later = NOW.plus(Duration::from_secs(3600));
        let looked = seen(&next, RunState::Absent);
        assert!(matches!(decide(&policy, &looked, later), Step::Start { .. }), "{what}: {next:?}");
        assert_eq!(next.operation.halts, None, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_is_ordered_again_may_have_made_something_before() {
    let policy = Policy::default();
    let first = creating().await;
    let nothing = ended(FailureKind::Invalid);
    let next = written(decide(&policy, &seen(&first, nothing.clone()), NOW));
    assert_eq!(next.lifecycle, Lifecycle::Deleted, "nothing was made, and nothing before");
    let mut again = first.clone();
    again.past.push(PastOperation {
        id: "provision-before".into(),
        action: Action::Provision,
        attempts: 1,
        failure: None,
        created_at: first.created_at,
        ended_at: first.created_at,
    });
    let next = written(decide(&policy, &seen(&again, nothing.clone()), NOW));
    assert_eq!(next.lifecycle, Lifecycle::Broken, "what was made before can be removed");
    again.past[0].created_at = Timestamp(0);
    let next = written(decide(&policy, &seen(&again, nothing), NOW));
    assert_eq!(next.lifecycle, Lifecycle::Deleted, "that was in a former life");
}

#[tokio::test(start_paused = true)]
async fn a_bind_looks_at_its_instance_and_a_deprovision_at_its_bindings() {
    let refuse = Policy::default();
    let cascade = Policy { bound: OnBound::Cascade, ..Policy::default() };
    let bind = binding(creating().await);
    let look = |policy: &Policy, record: &Record, around: Around| {
        decide(policy, &State { around, ..seen(record, RunState::Absent) }, NOW)
    };
    let start = |record: &Record| Step::Start { run: run(record), poll: None };
    assert_eq!(look(&refuse, &bind, Around::Instance(Parent::Usable)), start(&bind));
    let next = written(look(&refuse, &bind, Around::Instance(Parent::Unusable)));
    assert_eq!((reason(&next), next.lifecycle), (Some(Reason::Refused), Lifecycle::Deleted));
    // An attempt before it may have made something: the deprovision waits.
    let mut second = bind.clone();
    second.operation.attempt = 2;
    assert_eq!(look(&refuse, &second, Around::Instance(Parent::Unusable)), start(&second));

    let mut remove = removing(creating().await);
    remove.operation.created_at = NOW;
    let bindings = |live: &[Key], stuck: Option<&str>| Around::Bindings {
        live: !live.is_empty(),
        staying: live.to_vec(),
        coming: false,
        stuck: stuck.map(Into::into),
    };
    let coming = || Around::Bindings {
        live: true,
        staying: vec![bind.key.clone()],
        coming: true,
        stuck: None,
    };
    let leaving = || Around::Bindings { live: true, staying: vec![], coming: false, stuck: None };
    let key = bind.key.clone();
    let one = std::slice::from_ref(&key);
    assert_eq!(look(&refuse, &remove, bindings(&[], None)), start(&remove));
    let next = written(look(&refuse, &remove, bindings(one, None)));
    assert_eq!((reason(&next), next.lifecycle), (Some(Reason::Refused), Lifecycle::Ready));
    let Phase::Failed(failure) = &next.operation.phase else { panic!("{next:?}") };
    assert_eq!(failure.instance_usable, Some(true));
    assert!(matches!(look(&refuse, &remove, coming()), Step::WaitUntil(when) if when > NOW));
    for around in [bindings(one, None), coming()] {
        assert_eq!(look(&cascade, &remove, around), Step::Unbind(vec![key.clone()]));
    }
    assert_eq!(look(&cascade, &remove, leaving()), Step::Unbind(vec![]), "they are waited for");
    let mut waits = remove.clone();
    waits.operation.created_at = Timestamp(NOW.0 - 5_000);
    for (policy, around, why) in [
        (&cascade, leaving(), "its bindings are being removed"),
        (&refuse, coming(), "a binding of it is being made"),
    ] {
        let said = written(look(policy, &waits, around.clone()));
        let words = format!("its run cannot be started yet: {why}");
        assert_eq!(said.operation.said(), Some(&*words));
        assert!(!matches!(look(policy, &said, around), Step::Write { .. }), "it is said once");
    }
    let next = written(look(&cascade, &remove, bindings(one, Some("b is stuck"))));
    assert_eq!(reason(&next), Some(Reason::Refused));
}

#[tokio::test(start_paused = true)]
async fn an_update_gives_way_to_what_its_bindings_do_and_they_wait_for_one() {
    let policy = Policy::default();
    let of = |action, mut record: Record| {
        record.operation.action = action;
        record.lifecycle =
            if action == Action::Bind { Lifecycle::Creating } else { Lifecycle::Ready };
        record
    };
    let look = |record: &Record, around: Around| {
        decide(&policy, &State { around, ..seen(record, RunState::Absent) }, NOW)
    };
    let updating = || Around::Instance(Parent::Updating);
    let instance = creating().await;
    let bind = of(Action::Bind, binding(instance.clone()));
    let unbind = of(Action::Unbind, binding(instance.clone()));
    let update = of(Action::Update, instance);
    let start = |record: &Record| Step::Start { run: run(record), poll: None };

    for record in [&bind, &unbind] {
        // Soon, and less often of what takes long.
        for (waited, pause) in [(0, 200), (1_000, 200), (16_000, 2_000), (3_600_000, 5_000)] {
            let mut record = record.clone();
            record.operation.created_at = Timestamp(NOW.0 - waited);
            let when = NOW.plus(Duration::from_millis(pause));
            if waited > 5_000 {
                let said = written(look(&record, updating()));
                let words = "its run cannot be started yet: the instance is being updated";
                assert_eq!(said.operation.said(), Some(words), "{waited}");
                record.operation = said.operation;
            }
            assert_eq!(look(&record, updating()), Step::WaitUntil(when), "{waited}");
        }
    }
    let replanned = || Around::Instance(Parent::Replanned);
    let next = written(look(&bind, replanned()));
    assert_eq!((reason(&next), next.lifecycle), (Some(Reason::Refused), Lifecycle::Deleted));
    assert_eq!(look(&unbind, replanned()), start(&unbind));
    let next = written(look(&update, Around::Busy(true)));
    assert_eq!((reason(&next), next.lifecycle), (Some(Reason::Busy), Lifecycle::Ready));
    let Phase::Failed(failure) = &next.operation.phase else { panic!("{next:?}") };
    assert_eq!((failure.instance_usable, failure.update_repeatable), (Some(true), Some(true)));

    assert_eq!(look(&unbind, Around::Instance(Parent::Usable)), start(&unbind));
    assert_eq!(look(&unbind, Around::Instance(Parent::Unusable)), start(&unbind));
    assert_eq!(look(&update, Around::Busy(false)), start(&update));
    // What has had an attempt goes on: the other sees it.
    for (mut record, around) in
        [(bind, updating()), (unbind, updating()), (update, Around::Busy(true))]
    {
        record.operation.attempt = 2;
        assert_eq!(look(&record, around), start(&record));
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_is_repeated_unless_it_is_for_good() {
    let policy = Policy::default();
    let record = creating().await;
    let look_then = |permanent: bool, times: u32, until: Timestamp| {
        let refused = RefusedStart { why: "no such file".into(), permanent, times, until };
        let state = State { refused_start: Some(refused), ..seen(&record, RunState::Absent) };
        decide(&policy, &state, NOW)
    };
    let look = |permanent, times| look_then(permanent, times, NOW);
    assert!(matches!(look(false, 1), Step::Start { .. }));
    // Whoever looks before that tries nothing.
    let later = NOW.plus(Duration::from_secs(5));
    assert_eq!(look_then(false, 1, later), Step::WaitUntil(later));
    assert_eq!(reason(&written(look(false, STARTS))), Some(Reason::NotStarted));
    assert_eq!(reason(&written(look(true, 1))), Some(Reason::NotStarted));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_turn_for_long_says_so_once() {
    let policy = Policy::default();
    let record = creating().await;
    let look = |record: &Record, queued| {
        decide(&policy, &State { queued, ..seen(record, RunState::Absent) }, NOW)
    };
    assert!(matches!(look(&record, None), Step::Start { .. }));
    let said = written(look(&record, Some(16)));
    let words = said.operation.said().unwrap();
    assert!(words.contains("at once (16, operations.max_runs)"), "{words}");
    assert!(matches!(look(&said, Some(16)), Step::Start { .. }));
}

/// A clock that was hours ahead, and is not any more.
#[tokio::test(start_paused = true)]
async fn what_a_wrong_clock_put_off_is_not_waited_for() {
    let policy = Policy::default();
    for (off, due) in [(1, false), (60, false), (60 * 60, false), (60 * 60 + 1, true)] {
        let then = NOW.plus(Duration::from_secs(off));
        let mut record = creating().await;
        record.operation.created_at = NOW;
        record.operation.phase = Phase::Pending { not_before: Some(then) };
        let step = decide(&policy, &seen(&record, RunState::Absent), NOW);
        assert_eq!(matches!(step, Step::Start { poll: None, .. }), due, "{off} s: {step:?}");
        record.operation.phase = Phase::External { name: "x".into(), polls: 1, next: then };
        let step = decide(&policy, &seen(&record, RunState::Absent), NOW);
        assert_eq!(matches!(step, Step::Start { poll: Some(_), .. }), due, "{off} s: {step:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_halted_run_left_is_kept_before_anything_is_removed() {
    let policy = Policy::default();
    let mut record = removing(creating().await);
    let run = RunName::attempt("provision-a", 1);
    record.operation.halts = Some(Halt { run: run.clone(), first: false, kept: false });
    let state = || Some(osb::Sensitive::from(serde_json::json!("vm-7")));
    let failed =
        RunFailure { state: state(), ..RunFailure::new(Reason::Halted, Failure::failed("words")) };
    let made = Output { state: state(), ..Output::default() };
    for result in [Err(failed), Ok(made)] {
        let look = |record| {
            let halted = Some(RunState::Finished(result.clone()));
            decide(&policy, &State { halted, ..seen(record, RunState::Absent) }, NOW)
        };
        let kept = written(look(&record));
        assert_eq!(kept.made.state, state());
        assert_eq!(kept.operation.halts, Some(Halt { run: run.clone(), first: false, kept: true }));
        assert_eq!(
            (&kept.operation.phase, kept.lifecycle),
            (&record.operation.phase, record.lifecycle)
        );
        assert!(matches!(look(&kept), Step::Start { .. }));
    }
}
