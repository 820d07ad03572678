//! Operations from their record to their end, over an in-memory world: retries, lost runs, external
//! work, trouble with the store, limits.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::policy::OnLost;
use engine::ports::{Filter, Kind, Query, RunFailure, Store};
use engine::record::{Key, Lifecycle, Phase, Reason};
use engine::testing::mortal::Life;
use engine::testing::scripted_runner::{Act, failure, fitting_output};
use engine::testing::store_contract::Lists as _;
use osb::jobs::contract::Capability;
use osb::{
    Action, Backend, Call, ErrorKind, Failure, FailureKind, OperationState, Output, Reply, Work,
};
use serde_json::json;
use support::{Platform, World, asynchronous, bind, binding_id, id, operation, provision};

fn instance() -> Key {
    Key::Instance(id("i"))
}

async fn platform(world: &World) -> Platform {
    Platform(world.engine().await)
}

async fn failed(platform: &Platform, operation: &str) -> String {
    let answer = platform.wait(operation).await;
    assert_eq!(answer.state, OperationState::Failed, "{answer:?}");
    answer.description.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_vanishes_fails_the_operation_and_says_so() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.script(|_| Act::Vanish(Duration::from_secs(1)));
    let operation = operation(platform.provision(json!({})).await.unwrap());
    assert_eq!(failed(&platform, &operation).await, "the run was lost: it vanished");
    let record = world.record(&instance()).await.unwrap();
    assert_eq!(record.lifecycle, Lifecycle::Broken);
    assert_eq!(world.runner.kept(), []);
}

#[tokio::test(start_paused = true)]
async fn a_started_run_that_somebody_removed_is_lost_and_never_begun_again() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.script(|_| Act::Hang);
    let operation = operation(platform.provision(json!({})).await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let run = world.runner.kept().remove(0);
    world.runner.destroy(&run);
    assert!(failed(&platform, &operation).await.contains("nothing is left of it"));
    assert_eq!(world.runner.begun().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn lost_runs_are_tried_again_where_the_operator_says_so_as_new_attempts() {
    let mut world = World::default();
    world.policy.lost = OnLost::Retry;
    let platform = platform(&world).await;
    world.runner.script(|work: &Work| match work.attempt {
        3 => Act::End(Duration::ZERO, Ok(fitting_output(work))),
        _ => Act::Vanish(Duration::from_secs(1)),
    });
    let operation = operation(platform.provision(json!({})).await.unwrap());
    assert_eq!(platform.wait(&operation).await.state, OperationState::Succeeded);
    let works = world.runner.works();
    assert_eq!(works.iter().map(|work| work.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(works.iter().all(|work| work.operation_id == operation));
    assert_eq!(world.runner.kept(), []);
}

#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_tried_again_after_the_pause_it_asks_for_and_not_for_ever() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.script(|_| {
        let mut failure = Failure::new(FailureKind::Transient, "try later");
        failure.retry_after = Some(100);
        Act::End(Duration::ZERO, Err(RunFailure::new(Reason::Reported, failure)))
    });
    let begun = tokio::time::Instant::now();
    let operation = operation(platform.provision(json!({})).await.unwrap());
    assert_eq!(failed(&platform, &operation).await, "try later");
    assert_eq!(world.runner.works().len(), 3);
    assert!(begun.elapsed() >= Duration::from_secs(200), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn who_waited_for_a_failure_is_told_when_to_come_again() {
    use ErrorKind::{ConcurrencyError, Internal};
    for (case, kind, asked, error, told) in [
        ("busy for as long", FailureKind::Busy, Some(100), ConcurrencyError, Some(100)),
        ("busy for ever", FailureKind::Busy, Some(u64::MAX), ConcurrencyError, Some(3600)),
        ("busy", FailureKind::Busy, None, ConcurrencyError, Some(5)),
        ("it may pass, and did not", FailureKind::Transient, Some(7), Internal, None),
        ("it does not pass", FailureKind::Failed, Some(7), Internal, None),
    ] {
        let world = World::default();
        let platform = platform(&world).await;
        platform.provisioned().await;
        world.runner.script(move |_| {
            let failure = Failure { retry_after: asked, ..Failure::new(kind, "not now") };
            Act::End(Duration::ZERO, Err(RunFailure::new(Reason::Reported, failure)))
        });
        let (call, i, b) = (Call::default(), id("i"), binding_id("b"));
        let refused = platform.0.bind(&call, &i, &b, bind(json!({}))).await.unwrap_err();
        let told = told.map(Duration::from_secs);
        assert_eq!((refused.kind, refused.retry_after), (error, told), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn external_work_is_asked_after_with_growing_pauses_until_it_ends() {
    let world = World::default();
    let platform = platform(&world).await;
    let questions = AtomicUsize::new(0);
    world.runner.script(move |work: &Work| {
        let question = questions.fetch_add(1, Ordering::Relaxed);
        let goes_on = Output {
            external_operation: Some("task-7".into()),
            description: Some(format!("at question {question}")),
            ..Output::default()
        };
        let asked = work.external_operation.as_deref();
        assert!(asked.is_none_or(|name| name == "task-7"));
        match asked {
            None => Act::End(Duration::ZERO, Ok(goes_on)),
            Some(_) => Act::End(Duration::from_millis(200), Ok(goes_on)),
        }
    });
    let operation = operation(platform.provision(json!({})).await.unwrap());
    let mut told = Vec::new();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let answer = platform.poll(&operation).await.unwrap();
        assert_eq!(answer.state, OperationState::InProgress);
        told.extend(answer.description);
    }
    told.dedup();
    let asked = world.runner.works().len();
    assert!((7..=14).contains(&asked), "{asked} questions in 300 s");
    let each: Vec<_> = (0..asked).map(|question| format!("at question {question}")).collect();
    assert_eq!(told, each);
    let dashboard = "https://d.example";
    world.runner.script(move |_| {
        let output = Output { dashboard_url: Some(dashboard.into()), ..Output::default() };
        Act::End(Duration::ZERO, Ok(output))
    });
    assert_eq!(platform.wait(&operation).await.state, OperationState::Succeeded);
    let record = world.record(&instance()).await.unwrap();
    assert_eq!(record.made.dashboard_url.as_deref(), Some(dashboard));
    assert_eq!(world.runner.kept(), []);
}

#[tokio::test(start_paused = true)]
async fn external_work_that_never_ends_times_out() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.script(|_| {
        let output = Output { external_operation: Some("t".into()), ..Output::default() };
        Act::End(Duration::ZERO, Ok(output))
    });
    let operation = operation(platform.provision(json!({})).await.unwrap());
    assert!(failed(&platform, &operation).await.contains("86400 s"));
    assert_eq!(world.runner.kept(), []);
}

#[tokio::test(start_paused = true)]
async fn state_that_a_provision_left_reaches_the_operations_after_it() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.script(|work: &Work| {
        let mut output = fitting_output(work);
        if work.action == Action::Provision {
            output.state = Some(json!({ "volume": "v-1" }).into());
        }
        Act::End(Duration::ZERO, Ok(output))
    });
    platform.provisioned().await;
    platform.bound().await;
    let state = world.runner.works().pop().unwrap().state.unwrap();
    assert_eq!(state.expose(), &json!({ "volume": "v-1" }));
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_requests_with_503_and_delays_outcomes_without_losing_them() {
    let world = World::default();
    let platform = platform(&world).await;
    world.store.fail_writes(2);
    let refused = platform.provision(json!({})).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable);
    assert!(world.record(&instance()).await.is_none());
    // Of two attempts.
    world.store.fail_writes(1);
    let operation = operation(platform.provision(json!({})).await.unwrap());
    tokio::time::sleep(Duration::from_millis(50)).await;
    world.store.fail_writes(50);
    assert_eq!(platform.wait(&operation).await.state, OperationState::Succeeded);
    assert_eq!(world.runner.works().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_answered_where_nothing_can_be_written() {
    let world = World::default();
    let platform = platform(&world).await;
    let first = platform.provision(json!({})).await.unwrap();
    platform.wait(&operation(first)).await;
    world.store.fail_writes(u32::MAX);
    let again = platform.provision(json!({})).await;
    assert!(matches!(again, Ok(Reply::Done(_))), "{again:?}");
    let other = platform.provision(json!({"size": 2})).await.unwrap_err();
    assert_eq!(other.kind, ErrorKind::Conflict);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_does_not_keep_is_refused_with_413_or_fails_the_operation() {
    let world = World::default();
    let platform = platform(&world).await;
    world.store.keep_at_most(10_000);
    let large = || json!({ "parameter": "x".repeat(10_000) });
    let refused = platform.provision(large()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::PayloadTooLarge);
    assert!(world.record(&instance()).await.is_none());
    let output = Output { state: Some(osb::Sensitive::new(large())), ..Output::default() };
    world.runner.script(move |_| Act::End(Duration::ZERO, Ok(output.clone())));
    let operation = operation(platform.provision(json!({})).await.unwrap());
    let why = failed(&platform, &operation).await;
    assert!(why.contains("too large to be kept"), "{why}");
    assert_eq!(world.record(&instance()).await.unwrap().lifecycle, Lifecycle::Broken);
    assert_eq!(world.runner.kept(), []);
    // It can be deleted, and then it is ordered anew.
    world.runner.script(|_| Act::End(Duration::ZERO, Ok(Output::default())));
    let gone = self::operation(platform.deprovision().await.unwrap());
    assert_eq!(platform.wait(&gone).await.state, OperationState::Succeeded);
    platform.provisioned().await;
}

#[tokio::test(start_paused = true)]
async fn too_many_operations_in_progress_are_429_and_nothing_is_recorded() {
    let mut world = World::default();
    world.policy.max_in_progress = 3;
    world.runner.script(|_| Act::Hang);
    let engine = world.engine().await;
    for number in 0..5 {
        let request = provision(json!({}));
        let instance = id(&format!("i{number}"));
        let reply = engine.provision(&asynchronous(), &instance, request).await;
        match number {
            0..3 => drop(operation(reply.unwrap())),
            _ => assert_eq!(reply.unwrap_err().kind, ErrorKind::TooManyRequests),
        }
    }
    let query = Query {
        kind: Kind::Instances,
        instance: None,
        filter: Filter::All,
        after: None,
        limit: 10,
    };
    assert_eq!(world.store.list(&query).await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_same_order_from_two_platforms_at_once_is_one_operation() {
    let world = World::default();
    let engine = world.engine().await;
    let order = || {
        let engine = engine.clone();
        async move { engine.provision(&asynchronous(), &id("i"), provision(json!({}))).await }
    };
    let replies = tokio::join!(order(), order(), order(), order());
    let names: std::collections::BTreeSet<_> =
        [replies.0, replies.1, replies.2, replies.3].map(|r| operation(r.unwrap())).into();
    assert_eq!(names.len(), 1);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.runner.works().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn two_engines_over_one_store_begin_every_run_once() {
    let world = Arc::new(World::default());
    let one = world.mortal(&Life::of(i64::MAX));
    let two = world.mortal(&Life::of(i64::MAX));
    one.set_offer(support::offer()).await.unwrap();
    assert!(two.load_catalog().await.unwrap());
    for number in 0..20 {
        let instance = id(&format!("i{number}"));
        one.provision(&asynchronous(), &instance, provision(json!({}))).await.unwrap();
        two.resume().await.unwrap();
    }
    while one.in_progress() + two.in_progress() > 0 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(world.runner.begun().values().all(|times| *times == 1));
    assert_eq!(world.runner.begun().len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_failed_operation_can_be_retried_by_an_operator() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.script(|_| Act::End(Duration::ZERO, Err(failure(Reason::ExitStatus, "no"))));
    let first = operation(platform.provision(json!({ "size": 1 })).await.unwrap());
    failed(&platform, &first).await;
    world.runner.script(|work| Act::End(Duration::ZERO, Ok(fitting_output(work))));
    let record = platform.0.retry(&instance()).await.unwrap();
    assert_ne!(record.operation.id, first);
    assert_eq!(platform.wait(&record.operation.id).await.state, OperationState::Succeeded);
    assert_eq!(world.runner.works().pop().unwrap().parameters.expose()["size"], 1);
    let nothing = platform.0.retry(&instance()).await.unwrap_err();
    assert!(nothing.description.contains("did not fail"));
    // The first one's answer is remembered.
    assert_eq!(platform.poll(&first).await.unwrap().state, OperationState::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_failed_update_is_retried_with_what_it_was_to_change() {
    let world = World::default();
    let platform = platform(&world).await;
    platform.provisioned().await;
    world.runner.script(|_| Act::End(Duration::ZERO, Err(failure(Reason::ExitStatus, "no"))));
    let update = platform.update(json!({ "parameters": { "size": 7 } })).await.unwrap();
    failed(&platform, &operation(update)).await;
    world.runner.script(|work| Act::End(Duration::ZERO, Ok(fitting_output(work))));
    let record = platform.0.retry(&instance()).await.unwrap();
    platform.wait(&record.operation.id).await;
    let record = world.record(&instance()).await.unwrap();
    assert_eq!(record.ordered.parameters.expose()["size"], 7);
}

#[tokio::test(start_paused = true)]
async fn a_purge_forgets_without_asking_the_broker_and_ends_the_run() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.script(|_| Act::Hang);
    operation(platform.provision(json!({ "password": "planted" })).await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    platform.0.purge(&instance()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let record = world.record(&instance()).await.unwrap();
    assert_eq!(record.lifecycle, Lifecycle::Deleted);
    assert!(!serde_json::to_string(&*record).unwrap().contains("planted"));
    assert_eq!(world.runner.works().len(), 1, "the broker was not asked");
    assert_eq!(world.runner.kept(), []);
    assert_eq!(platform.deprovision().await.unwrap_err().kind, ErrorKind::Gone);
    assert_eq!(platform.0.purge(&instance()).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(platform.0.in_progress(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_held_bind_that_does_not_begin_says_what_it_waits_for_and_it_stays_to_be_read() {
    let world = World::default();
    let platform = platform(&world).await;
    platform.provisioned().await;
    world.runner.script(|work| match work.action {
        Action::Bind => Act::Say("the image x cannot be pulled"),
        _ => Act::End(Duration::ZERO, Ok(fitting_output(work))),
    });
    let (call, i, b) = (Call::default(), id("i"), binding_id("b"));
    let error = platform.0.bind(&call, &i, &b, bind(json!({}))).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout);
    let said = error.to_string();
    assert!(said.contains("bind did not end in time (the image x cannot be pulled)"), "{said}");
    assert!(said.contains("accepts_incomplete=true"), "{said}");
    let record = world.record(&Key::Binding(id("i"), binding_id("b"))).await.unwrap();
    let failure = record.past.last().unwrap().failure.as_ref().unwrap();
    let told = "halted by a later unbind; until then: the image x cannot be pulled";
    assert_eq!(failure.description, told);
}

#[tokio::test(start_paused = true)]
async fn what_is_removed_though_no_platform_asked_for_it_says_why() {
    let world = World::default();
    let platform = platform(&world).await;
    world.runner.script(|_| Act::Hang);
    let order = operation(platform.provision(json!({})).await.unwrap());
    tokio::time::sleep(Duration::from_secs(1)).await;
    platform.0.remove(&Key::Instance(id("i")), "its resource was deleted").await.unwrap();
    let last = platform.poll(&order).await.unwrap();
    assert_eq!(last.state, OperationState::Failed);
    let told = last.description.unwrap();
    assert_eq!(told, "halted by a later deprovision (its resource was deleted)");
}

#[tokio::test(start_paused = true)]
async fn of_a_bind_and_a_deprovision_that_raced_one_gives_way() {
    let world = World::default();
    let platform = platform(&world).await;
    platform.provisioned().await;
    // The bind was recorded, then the instance went, then the process died before either began.
    let life = Life::of(i64::MAX);
    let dying = world.mortal(&life);
    dying.set_offer(support::offer()).await.unwrap();
    let call = asynchronous();
    let reply = dying.bind(&call, &id("i"), &binding_id("b"), bind(json!({}))).await.unwrap();
    life.end();
    let Reply::Accepted { operation, .. } = reply else { panic!("not accepted") };
    let parent = world.store.read(&instance()).await.unwrap().unwrap();
    let mut leaving = (*parent.record).clone();
    leaving.operation.action = Action::Deprovision;
    leaving.operation.phase = Phase::Pending { not_before: None };
    world.store.write(Arc::new(leaving), Some(&parent.version)).await.unwrap();
    platform.0.resume().await.unwrap();
    let bound = platform.wait_binding(&operation).await.state == OperationState::Succeeded;
    while platform.0.in_progress() > 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let left = world.record(&instance()).await.unwrap();
    assert_eq!(left.is_live(), bound, "a binding without instance, or neither: {left:?}");
    let begun = world.runner.works().into_iter().skip(1).map(|work| work.action);
    let expected = if bound { Action::Bind } else { Action::Deprovision };
    assert_eq!(begun.collect::<Vec<_>>(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_cancels_nothing() {
    let world = World::default();
    let engine = world.engine().await;
    let request = provision(json!({}));
    let held = Call::default();
    let id = id("i");
    let waiting = engine.provision(&held, &id, request);
    // The policy holds no provision, so it answers at once; a bind is held, and dropped.
    let Ok(Reply::Accepted { operation, .. }) = waiting.await else { panic!("not accepted") };
    let platform = Platform(engine);
    platform.wait(&operation).await;
    let binding = binding_id("b");
    let waiting = platform.0.bind(&held, &id, &binding, bind(json!({})));
    let dropped = tokio::time::timeout(Duration::from_millis(10), waiting).await;
    assert!(dropped.is_err(), "it should have been waiting");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let view = platform.0.binding(&Call::default(), &id, &binding).await.unwrap();
    assert!(view.body.credentials.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_operator_says_what_the_broker_can_wherever_the_catalog_comes_from() {
    for (case, chosen, can_update) in [
        ("the catalog declares it", None, true),
        ("the operator denies it", Some(vec![]), false),
        ("the operator says so too", Some(vec![Capability::Update]), true),
    ] {
        let mut world = World::default();
        world.policy.capabilities = chosen;
        world.runner.set_offer(support::offer());
        let asked = world.mortal(&Life::of(i64::MAX));
        asked.refresh_catalog().await.unwrap();
        let saved = world.mortal(&Life::of(i64::MAX));
        assert!(saved.load_catalog().await.unwrap(), "{case}");
        for (source, engine) in
            [("given", world.engine().await), ("asked", asked), ("saved", saved)]
        {
            let platform = Platform(engine);
            platform.provisioned().await;
            let answer = platform.update(json!({"plan_id": "large"})).await;
            assert_eq!(answer.is_ok(), can_update, "{case}, {source}: {answer:?}");
            if let Ok(reply) = answer {
                platform.wait(&operation(reply)).await;
            }
            platform.wait(&operation(platform.deprovision().await.unwrap())).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_saved_catalog_is_offered_as_it_was_put_in_force() {
    let world = World::default();
    let platform = platform(&world).await;
    platform.provisioned().await;
    // The plan in use is sold no more, and kept.
    let mut other = support::offer();
    other.catalog["services"][0]["plans"][0]["id"] = json!("other");
    other.catalog["services"][0]["plans"][0]["name"] = json!("other");
    platform.0.set_offer(other).await.unwrap();
    let offered = platform.0.offer_in_force();
    assert!(offered.is_some());
    assert!(platform.0.load_catalog().await.unwrap());
    assert_eq!(
        platform.0.offer_in_force(),
        offered,
        "else who leads would think that another wrote it"
    );
}
