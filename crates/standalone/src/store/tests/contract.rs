//! The contract of the port, and that its questions are answered from the indexes made for them.

use async_trait::async_trait;
use engine::ports::{Filter, Kind};
use engine::record::Timestamp;
use engine::testing::store_contract::{self, Place};

use super::*;

#[async_trait]
impl Place for Home {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Home::open(self))
    }
}

/// As it is outside of tests: with recent records in memory.
struct Usual(Home);

impl Usual {
    fn open(&self) -> EmbeddedStore {
        EmbeddedStore::open(&Options::new(self.0.store(), self.0.key(1))).unwrap()
    }
}

#[async_trait]
impl Place for Usual {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(Usual::open(self))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_the_contract() {
    store_contract::run(Home::new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keeps_the_contract_with_recent_records_in_memory() {
    store_contract::run(|| Usual(Home::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_sees_what_was_acknowledged_before_it() {
    let home = Usual(Home::new());
    let store = Arc::new(home.open());
    let acknowledged = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let number = |version: &Version| version.0.parse::<u64>().unwrap();
    let writer = tokio::spawn({
        let (store, acknowledged) = (Arc::clone(&store), Arc::clone(&acknowledged));
        async move {
            let mut version = put(&store, sample("hot")).await;
            for _ in 0..500 {
                acknowledged.store(number(&version), std::sync::atomic::Ordering::SeqCst);
                // Gone and back: what is removed must not come again either.
                store.remove(&key("hot"), &version).await.unwrap();
                assert!(store.read(&key("hot")).await.unwrap().is_none());
                version = put(&store, sample("hot")).await;
            }
        }
    });
    let mut seen = 0_u32;
    while !writer.is_finished() {
        let before = acknowledged.load(std::sync::atomic::Ordering::SeqCst);
        if let Some(stored) = store.read(&key("hot")).await.unwrap() {
            assert!(number(&stored.version) >= before, "{} after {before}", stored.version.0);
            seen += 1;
        }
    }
    writer.await.unwrap();
    assert!(seen > 0);
}

fn plan(connection: &Connection, sql: &str, values: Vec<rusqlite::types::Value>) -> String {
    connection
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap()
        .query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>(3))
        .unwrap()
        .map(Result::unwrap)
        .collect::<Vec<_>>()
        .join("; ")
}

#[test]
fn no_question_reads_all_records_or_sorts() {
    let home = Home::new();
    drop(home.open());
    let connection = home.stranger();
    let after = Some(key("i"));
    let instance = InstanceId::new("i").unwrap();
    for (filter, index) in [
        (Filter::All, "sqlite_autoindex_records_1"),
        (Filter::Live, "sqlite_autoindex_records_1"),
        (Filter::Busy, "busy_records"),
        (Filter::DeletedBefore(Timestamp(5)), "deleted_records"),
    ] {
        for instance in [None, Some(instance.clone())] {
            for after in [None, after.clone()] {
                let query = Query {
                    kind: Kind::Instances,
                    instance: instance.clone(),
                    filter,
                    after,
                    limit: 100,
                };
                let (sql, values) = reader::select(&query);
                let plan = plan(&connection, &sql, values);
                assert!(plan.starts_with("SEARCH records USING INDEX"), "{query:?}: {plan}");
                assert!(!plan.contains("TEMP B-TREE"), "{query:?}: {plan}");
                assert!(plan.contains(index), "{query:?}: {plan}");
            }
        }
    }
    let busy = plan(&connection, reader::BUSY, Vec::new());
    assert_eq!(busy, "SCAN records USING COVERING INDEX busy_records");
    let plans = plan(&connection, reader::PLANS_IN_USE, Vec::new());
    assert!(plans.contains("SEARCH records USING COVERING INDEX plans_in_use"), "{plans}");
}
