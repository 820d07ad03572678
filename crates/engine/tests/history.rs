//! Operations, listed: every one that is wanted, none twice, however a page is cut.

mod support;

use std::sync::Arc;

use engine::Engine;
use engine::history::{KeptOperation, LOOKED_AT, OperationFilter, OperationQuery};
use engine::names::operation_id;
use engine::ports::Store;
use engine::record::{
    Lifecycle, OperationFailure, PastOperation, Phase, Reason, Record, Timestamp,
};
use engine::testing::store_contract::{sample, sample_binding};
use osb::{Action, Backend as _, Call, ErrorKind, LastOperationQuery};
use support::{World, id};

fn failure() -> OperationFailure {
    OperationFailure::new(Reason::ExitStatus, "no")
}

/// A record whose operations stand so, the last one last: `+` well, `-` badly, `.` in progress.
fn with(mut record: Record, operations: &str) -> Record {
    let name = record.key.to_string();
    let mut past = Vec::new();
    for (place, how) in operations.chars().enumerate() {
        past.push(PastOperation {
            id: format!("{name} {place}"),
            action: Action::Provision,
            attempts: 1,
            failure: (how == '-').then(failure),
            created_at: Timestamp(1),
            ended_at: Timestamp(2),
        });
    }
    let last = past.pop().unwrap();
    record.past = past;
    record.operation.id = last.id;
    record.operation.phase = match (operations.ends_with('.'), last.failure) {
        (true, _) => Phase::Pending { not_before: None },
        (false, Some(failure)) => Phase::Failed(failure),
        (false, None) => Phase::Succeeded,
    };
    record
}

async fn keep(world: &World, record: Record) {
    world.store.write(Arc::new(record), None).await.unwrap();
}

async fn world() -> (World, Engine) {
    let world = World::default();
    for (instance, operations) in [("a", "+-+"), ("b", "-."), ("c", "-")] {
        keep(&world, with(sample(instance), operations)).await;
    }
    keep(&world, with(sample_binding("b", "x"), "-+")).await;
    keep(&world, with(sample_binding("c", "y"), ".")).await;
    let engine = world.engine().await;
    (world, engine)
}

fn query(filter: OperationFilter, instance: Option<&str>, limit: usize) -> OperationQuery {
    OperationQuery { instance: instance.map(id), filter, after: None, limit }
}

/// Every page to the last, each within its limit.
async fn pages(engine: &Engine, mut query: OperationQuery) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    loop {
        let page = engine.operations(&query).await.unwrap();
        assert!(page.items.len() <= query.limit);
        pages.push(page.items.iter().map(|entry| entry.operation().id().to_owned()).collect());
        match page.next {
            Some(next) => query.after = Some(next),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn what_is_wanted_is_found_once_whatever_the_limit() {
    let (_world, engine) = world().await;
    let all = [
        "instance a 0",
        "instance a 1",
        "instance a 2",
        "instance b 0",
        "instance b 1",
        "instance c 0",
        "binding x of b 0",
        "binding x of b 1",
        "binding y of c 0",
    ];
    let failed = ["instance a 1", "instance b 0", "instance c 0", "binding x of b 0"];
    let of_b = ["instance b 0", "instance b 1", "binding x of b 0", "binding x of b 1"];
    for (case, filter, instance, expected) in [
        ("all", OperationFilter::All, None, &all[..]),
        ("failed", OperationFilter::Failed, None, &failed),
        ("busy", OperationFilter::Busy, None, &["instance b 1", "binding y of c 0"]),
        ("all of b", OperationFilter::All, Some("b"), &of_b),
        ("failed of b", OperationFilter::Failed, Some("b"), &["instance b 0", "binding x of b 0"]),
        ("busy of a", OperationFilter::Busy, Some("a"), &[]),
    ] {
        for limit in 1..=10 {
            let found = pages(&engine, query(filter, instance, limit)).await;
            assert_eq!(found.concat(), expected, "{case}, {limit} at a time: {found:?}");
            let full = found.iter().filter(|page| page.len() == limit).count();
            assert_eq!(full, expected.len() / limit, "{case}, {limit} at a time: {found:?}");
        }
    }
}

#[tokio::test]
async fn an_unknown_instance_is_404() {
    let (_world, engine) = world().await;
    let error = engine.operations(&query(OperationFilter::All, Some("z"), 1)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn a_request_looks_at_so_many_records_and_says_where_to_go_on() {
    let world = World::default();
    for number in 0..LOOKED_AT {
        keep(&world, with(sample(&format!("i{number:05}")), "+")).await;
    }
    keep(&world, with(sample_binding("i", "last"), "-")).await;
    let engine = world.engine().await;
    let found = pages(&engine, query(OperationFilter::Failed, None, 10)).await;
    assert_eq!(found, [vec![], vec!["binding last of i 0".to_owned()]]);
}

#[tokio::test]
async fn a_cursor_whose_operation_is_forgotten_skips_nothing_that_is_kept() {
    let (world, engine) = world().await;
    let mut query = query(OperationFilter::All, Some("a"), 1);
    let first = engine.operations(&query).await.unwrap();
    assert!(matches!(first.items[0].operation(), KeptOperation::Past(_)));
    query.after = first.next;
    let stored = world.store.read(&first.items[0].record.key).await.unwrap().unwrap();
    let mut later = (*stored.record).clone();
    later.past.remove(0);
    world.store.write(Arc::new(later), Some(&stored.version)).await.unwrap();
    let rest = pages(&engine, query).await.concat();
    assert_eq!(rest, ["instance a 1", "instance a 2"]);
}

/// How one operation ended, another does not say.
#[tokio::test]
async fn an_operation_that_is_not_remembered_has_not_ended_as_the_last_one() {
    let world = World::default();
    let there = sample("there");
    keep(&world, there.clone()).await;
    keep(&world, Record { lifecycle: Lifecycle::Deleted, ..sample("gone") }).await;
    let engine = world.engine().await;
    let ours = |action| operation_id("broker", &there.key, action, 7);
    let last = there.operation.id.as_str();
    for (name, instance, token, expected) in [
        ("none", "there", None, Ok(())),
        ("the last one", "there", Some(last.to_owned()), Ok(())),
        ("another broker's, which was moved here", "there", Some("task-7".to_owned()), Ok(())),
        ("one of its form", "there", Some("provision-of-a-database".to_owned()), Ok(())),
        ("a creation", "there", Some(ours(Action::Provision)), Err(ErrorKind::NotFound)),
        ("a removal", "there", Some(ours(Action::Deprovision)), Err(ErrorKind::NotFound)),
        (
            "a creation of what is gone",
            "gone",
            Some(ours(Action::Update)),
            Err(ErrorKind::NotFound),
        ),
        ("a removal of it", "gone", Some(ours(Action::Deprovision)), Err(ErrorKind::Gone)),
    ] {
        let query = LastOperationQuery { operation: token, ..LastOperationQuery::default() };
        let said = engine.instance_last_operation(&Call::default(), &id(instance), query).await;
        assert_eq!(said.map(drop).map_err(|error| error.kind), expected, "{name}");
    }
}
