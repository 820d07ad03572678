//! What is asked of an API server that may be away, and what the objects say.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use kubernetes::quarks::Dialect;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::town::Town;

/// Between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(500);
/// The longest that anything is waited for: more than the five minutes for which a Job's controller may leave alone a Job
/// whose pod was taken away.
pub(crate) const PATIENCE: Duration = Duration::from_secs(420);

/// Asks again while nobody answers.
pub(crate) async fn sure<T, F: Future<Output = kube::Result<T>>>(ask: impl Fn() -> F) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "nobody answers: {error}"),
        }
        sleep(LOOK).await;
    }
}

/// Waits until there is what is asked for.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "never {what}");
        sleep(LOOK).await;
    }
}

pub(crate) fn resources(town: &Town, dialect: Dialect) -> Api<DynamicObject> {
    Api::namespaced_with(town.client.clone(), &town.namespace, &dialect.resource())
}

/// What is recorded of runs.
pub(crate) fn record(object: &DynamicObject) -> Value {
    let record = object.metadata.annotations.as_ref().and_then(|all| all.get("manciple.dev/runs"));
    serde_json::from_str(record.map_or("{}", String::as_str)).unwrap()
}

/// The number of the last run that is recorded.
pub(crate) fn recorded(object: &DynamicObject) -> u64 {
    record(object)["last"].as_u64().unwrap_or_default()
}

/// The runs that have ended, the newest first.
pub(crate) fn history(object: &DynamicObject) -> Vec<Value> {
    object.data["status"]["history"].as_array().cloned().unwrap_or_default()
}

/// The runs that have not ended.
pub(crate) fn open(object: &DynamicObject) -> Vec<Value> {
    let history = history(object);
    let mut open = record(object)["open"].as_array().cloned().unwrap_or_default();
    open.retain(|run| history.iter().all(|ended| ended["id"] != run["id"]));
    open
}

/// When a run was recorded, or has ended, in seconds since 1970.
pub(crate) fn at(run: &Value, member: &str) -> i64 {
    let at: Timestamp = run[member].as_str().unwrap().parse().unwrap();
    at.as_second()
}
