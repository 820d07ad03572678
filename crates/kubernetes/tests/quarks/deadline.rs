//! Times of a schedule that passed while no controller ran, and how late a run may begin.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use tokio::time::sleep;

use super::harness::{Town, pod, spec};

/// Waits until that second, since 1970.
async fn until(second: i64) {
    let left = second - Timestamp::now().as_second();
    sleep(Duration::from_secs(u64::try_from(left).unwrap_or_default())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_passed_has_a_run_within_its_deadline_and_none_beyond() {
    let mut town = Town::still("deadline").await;
    // A whole minute, far enough ahead for all to be there by then, and the next is a day away.
    let minutes = (Timestamp::now().as_second() + 75) / 60;
    let schedule = format!("{} {} * * *", minutes % 60, minutes / 60 % 24);
    let cases = [("beyond", json!(10)), ("within", json!(3600)), ("without", json!(null))];
    for (name, seconds) in &cases {
        let mut spec = spec("manual", &pod("true"));
        spec["trigger"]["schedule"] = json!(schedule);
        if !seconds.is_null() {
            spec["trigger"]["startingDeadlineSeconds"] = seconds.clone();
        }
        town.create(name, spec).await;
    }
    assert!(Timestamp::now().as_second() < minutes * 60, "the machine is too slow for this");
    until(minutes * 60 + 15).await;
    town.start().await;
    for name in ["within", "without"] {
        let run = town.ended(name, 1).await;
        assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("schedule"), &json!(true)));
    }
    sleep(Duration::from_secs(3)).await;
    assert_eq!(town.runs("beyond").await, 0, "its time is over");
    // It is known, and runs when it is told to.
    town.trigger("beyond", "now").await;
    assert_eq!(town.ended("beyond", 1).await["trigger"], "now");
    for (name, _) in &cases {
        assert_eq!(town.runs(name).await, 1, "{name}");
    }
}
