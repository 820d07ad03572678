//! Edits of the strategy: which of them are triggers, and what is left of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{Town, pod, spec};

/// Long enough that a run that should not be would have begun.
const QUIET: Duration = Duration::from_secs(2);

fn strategy(object: &Value) -> &Value {
    &object["spec"]["trigger"]["strategy"]
}

/// What triggered the runs that have ended, the first first.
async fn triggers(town: &Town, name: &str) -> Vec<String> {
    let object = town.get(name).await;
    let history = object["status"]["history"].as_array().cloned().unwrap_or_default();
    history.iter().rev().map(|run| run["trigger"].as_str().unwrap().to_owned()).collect()
}

/// Whether it is completed, and what its condition says.
fn stands(object: &Value) -> (bool, &str) {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let succeeded = conditions.find(|it| it["type"] == "Succeeded");
    let says = succeeded.and_then(|it| it["status"].as_str()).unwrap_or_default();
    (object["status"]["completed"] == true, says)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_edit_of_the_strategy_is_a_trigger_or_none() {
    let town = Town::new("edits").await;
    // The edit, what of its run triggers it if there is one, and what the strategy is then.
    type Edits = &'static [(&'static str, Option<&'static str>, &'static str)];
    let once_again: Edits = &[
        ("once", Some("once"), "done"),
        ("once", None, "once"),
        ("now", Some("now"), "manual"),
        ("done", None, "done"),
        ("once", None, "once"),
        ("done", None, "done"),
    ];
    let now_first: Edits = &[
        ("now", Some("now"), "manual"),
        ("done", None, "done"),
        ("now", Some("now"), "manual"),
        ("once", Some("once"), "done"),
        ("manual", None, "manual"),
    ];
    let of_one = async |name: &str, first: &str, edits: Edits| {
        town.create(name, spec(first, &pod("true"))).await;
        let mut expected = Vec::new();
        for (place, (edit, run, left)) in edits.iter().enumerate() {
            let which = format!("{name}: edit {place}, {edit}");
            town.trigger(name, edit).await;
            match run {
                Some(run) => {
                    expected.push((*run).to_owned());
                    town.ended(name, expected.len() as u64).await;
                }
                None => sleep(QUIET).await,
            }
            assert_eq!(triggers(&town, name).await, expected, "{which}");
            assert_eq!(strategy(&town.get(name).await), left, "{which}");
        }
    };
    tokio::join!(
        of_one("manual-once", "manual", once_again),
        of_one("done-once", "done", once_again),
        of_one("manual-now", "manual", now_first),
        of_one("done-now", "done", now_first),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn once_that_becomes_now_before_it_ran_is_one_run_for_now() {
    let town = Town::new("once-now").await;
    let mut waits = spec("once", &pod("true"));
    waits["template"]["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "late"}}]);
    for name in ["now", "manual"] {
        town.create(name, waits.clone()).await;
        let told = |it: &Value| it["status"]["conditions"].to_string().contains("configmap/late");
        town.until(name, "told what it waits for", told).await;
        town.trigger(name, name).await;
    }
    sleep(QUIET).await;
    town.config_map("late", "1").await;
    town.ended("now", 1).await;
    sleep(QUIET).await;
    assert_eq!(triggers(&town, "now").await, ["now"]);
    assert_eq!(strategy(&town.get("now").await), "manual");
    assert_eq!(triggers(&town, "manual").await, [""; 0], "its trigger was taken back");
    // It never ran for once, so it still may.
    for (name, expected) in [("now", vec!["now", "once"]), ("manual", vec!["once"])] {
        town.trigger(name, "once").await;
        town.ended(name, expected.len() as u64).await;
        assert_eq!(triggers(&town, name).await, expected, "{name}");
        assert_eq!(strategy(&town.get(name).await), "done", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn now_that_is_said_while_a_run_for_once_goes_on_is_a_run_beside_it() {
    let town = Town::new("once-and-now").await;
    town.create("a", spec("once", &pod("sleep 6"))).await;
    town.until("a", "taken", |it| strategy(it) == "done").await;
    town.trigger("a", "once").await;
    town.trigger("a", "now").await;
    town.until("a", "taken", |it| strategy(it) == "manual").await;
    let (first, second) = (town.ended("a", 1).await, town.ended("a", 2).await);
    assert!(second["startedAt"].as_str() < first["endedAt"].as_str(), "{first} {second}");
    sleep(QUIET).await;
    assert_eq!(triggers(&town, "a").await, ["once", "now"], "and none for once a second time");
    assert_eq!(stands(&town.get("a").await), (true, "True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_is_of_the_newest_run_alone() {
    let town = Town::new("reopens").await;
    let script = "sleep 3; test -z \"$BAD\"";
    town.create("a", spec("once", &pod(script))).await;
    let bad = json!([{"name": "BAD", "value": "yes"}]);
    for (run, inputs, while_it_runs, then) in [
        (1, json!([]), (false, ""), (true, "True")),
        (2, bad, (false, "Unknown"), (false, "False")),
        (3, json!([]), (false, "False"), (true, "True")),
        (4, json!([]), (false, "Unknown"), (true, "True")),
    ] {
        if run > 1 {
            let trigger = json!({"strategy": "now", "inputs": inputs});
            town.patch("a", json!({"spec": {"trigger": trigger}})).await;
        }
        let left = if run == 1 { "done" } else { "manual" };
        let object = town.until("a", "taken", |it| strategy(it) == left).await;
        assert_eq!(stands(&object), while_it_runs, "while run {run} goes on");
        town.ended("a", run).await;
        assert_eq!(stands(&town.get("a").await), then, "after run {run}");
    }
}
