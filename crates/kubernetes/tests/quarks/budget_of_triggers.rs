//! What runs cost that begin by something else than their strategy, and triggers that have none.

use kubernetes::quarks::Dialect;
use serde_json::json;

use super::budget::{cost, counted, has_run, is_over};
use super::harness::{Town, pod, spec};
use super::names::knows_pods;
use super::podstate::{begin, runs, runs_when};

/// Of one that has not run before.
const RUN: [&str; 4] = ["PATCH quarksjobs", "POST jobs", "PATCH quarksjobs/status", "DELETE jobs"];

#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_inputs_costs_no_more() {
    let (town, calls) = has_run("qjob-budget-inputs").await;
    town.create("a", spec("manual", &pod("true"))).await;
    let inputs = json!([{"name": "TABLE", "value": "orders"}]);
    town.patch("a", json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}})).await;
    assert_eq!(cost(&town, &calls, ("a", 1), RUN.len()).await, RUN);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_depends_on_another_costs_that_it_is_said_to_wait() {
    let (town, calls) = has_run("qjob-budget-depends").await;
    town.create("schema", spec("manual", &pod("true"))).await;
    let mut after = spec("once", &pod("true"));
    after["dependsOn"] = json!(["schema"]);
    town.create("after", after).await;
    let mut said = calls.settled(2).await;
    said.sort();
    assert_eq!(said, ["PATCH quarksjobs/status", "POST events"], "it is said to wait, once");
    town.trigger("schema", "now").await;
    // One more than the two runs: that it waits no more.
    let mut expected = [&RUN[..], &RUN[..], &["PATCH quarksjobs/status"]].concat();
    let mut found = cost(&town, &calls, ("after", 1), expected.len()).await;
    found.sort();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_for_a_pod_costs_no_more_and_what_it_comes_through_before_nothing() {
    let mut town = Town::still("ejob-budget-pods").await;
    town.dialect = Dialect::ExtendedJob;
    let calls = counted(&mut town).await;
    begin(&town, "before", "web").await;
    runs(&town, "before").await;
    town.create("a", runs_when("ready")).await;
    knows_pods(&town, "a").await;
    begin(&town, "first", "web").await;
    is_over(&town, &calls, "a").await;
    begin(&town, "second", "web").await;
    let expected = [
        "PATCH extendedjobs/status",
        "PATCH extendedjobs",
        "POST jobs",
        "PATCH extendedjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(cost(&town, &calls, ("a", 2), expected.len()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_meets_a_run_costs_what_its_policy_says() {
    let mut costs = Vec::new();
    let expected = [
        ("Forbid", &["PATCH quarksjobs", "POST events"][..]),
        // Whether the pods of the one before have ended is asked once.
        (
            "Replace",
            &[
                "PATCH quarksjobs",
                "DELETE jobs",
                "GET pods",
                "POST jobs",
                "PATCH quarksjobs/status",
                "POST events",
            ],
        ),
        ("Allow", &["PATCH quarksjobs", "POST jobs"]),
        ("Queue", &["PATCH quarksjobs/status", "POST events"]),
    ];
    for (policy, expected) in expected {
        let (town, calls) = has_run(&format!("qjob-budget-{}", policy.to_lowercase())).await;
        let mut long = spec("once", &pod("sleep 600"));
        long["concurrencyPolicy"] = json!(policy);
        town.create("a", long).await;
        town.one_runs("a").await;
        calls.settled(2).await;
        town.trigger("a", "now").await;
        let mut found = calls.settled(expected.len()).await;
        found.sort();
        costs.push((policy, found));
    }
    let expected = expected.map(|(policy, calls)| {
        let mut calls: Vec<_> = calls.iter().map(|call| (*call).to_owned()).collect();
        calls.sort();
        (policy, calls)
    });
    assert_eq!(costs, expected);
}
