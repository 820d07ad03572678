use std::time::Duration;

use kubernetes::quarks::Dialect;
use tokio::time::sleep;

use super::calls::Calls;
use super::harness::{Town, pod, spec};
use serde_json::{Value, json};

/// Starts the controller, whose calls are counted. The Lease has a client of its own.
pub(super) async fn counted(town: &mut Town) -> Calls {
    let calls = Calls::default();
    town.start_with(calls.of(&town.cluster.client, &town.cluster.namespace)).await;
    calls
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_costs_five_writes_and_no_read() {
    let mut town = Town::still("qjob-budget").await;
    let calls = counted(&mut town).await;
    // The first has the agent brought into the namespace.
    let mut spec = spec("once", &pod(r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#));
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "first"}}}});
    town.create("first", spec.clone()).await;
    town.ended("first", 1).await;
    town.no_jobs().await;
    sleep(Duration::from_secs(1)).await;
    calls.take();
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "second"}}}});
    town.create("second", spec).await;
    assert_eq!(town.ended("second", 1).await["succeeded"], true);
    town.no_jobs().await;
    sleep(Duration::from_secs(1)).await;
    let expected =
        ["PATCH quarksjobs", "POST jobs", "POST secrets", "PATCH quarksjobs/status", "DELETE jobs"];
    assert_eq!(calls.take(), expected);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(calls.take(), Vec::<String>::new(), "what is settled costs nothing");
    // Again: it is no longer completed, and its Secret holds what it held.
    town.trigger("second", "now").await;
    assert_eq!(town.ended("second", 2).await["succeeded"], true);
    town.no_jobs().await;
    sleep(Duration::from_secs(1)).await;
    let expected = [
        "PATCH quarksjobs/status",
        "PATCH quarksjobs",
        "POST jobs",
        "PATCH quarksjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(calls.take(), expected);
}

/// Before Kubernetes 1.32, of a container whose command only its image names.
#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_has_to_be_told_costs_one_write_more_and_d5_reads_nothing() {
    let mut town = Town::still("qjob-budget-sidecar").await;
    town.settings.wraps = false;
    let calls = counted(&mut town).await;
    let mut spec = spec("once", &pod(r#"sleep 2; echo '{"k": "v"}' > /mnt/quarks/o.json"#));
    for name in ["first", "second"] {
        spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": name}}}});
        calls.take();
        town.create(name, spec.clone()).await;
        assert_eq!(town.ended(name, 1).await["succeeded"], true);
        town.no_jobs().await;
        sleep(Duration::from_secs(1)).await;
        // The first has the agent brought into the namespace.
        if name == "second" {
            let expected = [
                "PATCH quarksjobs",
                "POST jobs",
                "PATCH pods",
                "POST secrets",
                "PATCH quarksjobs/status",
                "DELETE jobs",
            ];
            assert_eq!(calls.take(), expected);
        }
    }
    // Again, with other output: the most that a run with one output costs.
    let other = &pod(r#"sleep 2; echo '{"k": "w"}' > /mnt/quarks/o.json"#);
    let other = json!({"spec": {"template": super::harness::spec("once", other)["template"]}});
    town.patch("second", other).await;
    calls.take();
    town.trigger("second", "now").await;
    let expected = [
        "PATCH quarksjobs/status",
        "PATCH quarksjobs",
        "POST jobs",
        "PATCH pods",
        "PUT secrets",
        "PATCH quarksjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(cost(&town, &calls, ("second", 2), expected.len()).await, expected);
}

/// Waits until the first run of this is over, and counts nothing of it.
pub(super) async fn is_over(town: &Town, calls: &Calls, name: &str) {
    town.ended(name, 1).await;
    town.no_jobs().await;
    calls.settled(0).await;
}

/// What a run of this costs that begins by itself, so much or more, in the order of its calls.
pub(super) async fn cost(
    town: &Town,
    calls: &Calls,
    (name, run): (&str, u64),
    expected: usize,
) -> Vec<String> {
    town.ended(name, run).await;
    calls.settled(expected).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_by_a_change_costs_what_one_by_a_trigger_does() {
    let mut town = Town::still("qjob-budget-change").await;
    let calls = counted(&mut town).await;
    town.config_map("config", "1").await;
    let mut pod = pod("true");
    pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "config"}}]);
    let mut spec = spec("once", &pod);
    spec["updateOnConfigChange"] = json!(true);
    town.create("a", spec).await;
    is_over(&town, &calls, "a").await;
    town.config_map("config", "2").await;
    let expected = [
        "PATCH quarksjobs/status",
        "PATCH quarksjobs",
        "POST jobs",
        "PATCH quarksjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(cost(&town, &calls, ("a", 2), expected.len()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_further_output_costs_a_write_and_one_that_is_large_a_log_that_is_read() {
    let mut town = Town::still("qjob-budget-outputs").await;
    let calls = counted(&mut town).await;
    let small = r#"echo '{"k": "1", "l": "2"}' > /mnt/quarks/o.json"#;
    let keeps = |script: &str, options: Value| {
        let mut spec = spec("once", &pod(script));
        spec["output"] = json!({"outputMap": {"c": {"o.json": options}}});
        spec
    };
    // It has the agent brought into the namespace.
    town.create("first", keeps(small, json!({"name": "first"}))).await;
    is_over(&town, &calls, "first").await;
    let large = r#"echo "{\"k\": \"$(head -c 9000 /dev/urandom | od -An -tx1 | tr -d ' \n')\"}" > /mnt/quarks/o.json"#;
    for (name, script, options, kept) in [
        ("version", small, json!({"versioned": true}), vec!["POST secrets"]),
        (
            "fan-out",
            r#"echo '{"a": "{\"k\": \"1\"}", "b": "{\"k\": \"2\"}"}' > /mnt/quarks/o.json"#,
            json!({"persistencemethod": "fan-out"}),
            vec!["POST secrets", "POST secrets"],
        ),
        ("config-map", small, json!({"kind": "ConfigMap"}), vec!["POST configmaps"]),
        ("large", large, json!({}), vec!["GET pods/log", "POST secrets"]),
    ] {
        let mut options = options;
        options["name"] = json!(name);
        town.create(name, keeps(script, options)).await;
        let around = ["PATCH quarksjobs", "POST jobs", "PATCH quarksjobs/status", "DELETE jobs"];
        let expected = around.len() + kept.len();
        let mut found = cost(&town, &calls, (name, 1), expected).await;
        assert_eq!(found.len(), expected, "{name}: {found:?}");
        found.retain(|call| !around.contains(&call.as_str()));
        assert_eq!(found, kept, "{name}");
    }
}

/// What only the first run of a controller costs is behind it.
pub(super) async fn has_run(test: &str) -> (Town, Calls) {
    let mut town = Town::still(test).await;
    let calls = counted(&mut town).await;
    town.create("first", spec("once", &pod("true"))).await;
    is_over(&town, &calls, "first").await;
    (town, calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fails_costs_an_event_and_no_deletion() {
    let (town, calls) = has_run("qjob-budget-fails").await;
    town.create("a", spec("once", &pod("exit 1"))).await;
    let expected = ["PATCH quarksjobs", "POST jobs", "PATCH quarksjobs/status", "POST events"];
    assert_eq!(cost(&town, &calls, ("a", 1), expected.len()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_costs_a_deletion_for_what_is_beyond_the_limit() {
    let (town, calls) = has_run("qjob-budget-keeps").await;
    let mut spec = spec("once", &pod("true"));
    spec["successfulJobsHistoryLimit"] = json!(1);
    town.create("a", spec).await;
    let first = ["PATCH quarksjobs", "POST jobs", "PATCH quarksjobs/status"];
    assert_eq!(cost(&town, &calls, ("a", 1), first.len()).await, first);
    town.trigger("a", "now").await;
    let second = [
        "PATCH quarksjobs/status",
        "PATCH quarksjobs",
        "POST jobs",
        "PATCH quarksjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(cost(&town, &calls, ("a", 2), second.len()).await, second);
}

/// What a run of an ExtendedJob costs that prints its output, of which the agent is around the command or not.
async fn of_one_that_prints(test: &str, wraps: bool, expected: usize) -> Vec<String> {
    let mut town = Town::still(test).await;
    town.dialect = Dialect::ExtendedJob;
    town.settings.wraps = wraps;
    let calls = counted(&mut town).await;
    let mut found = Vec::new();
    // The first may have the agent brought into the namespace.
    for name in ["first", "second"] {
        calls.take();
        let spec = json!({
            "trigger": {"strategy": "once"}, "output": {"namePrefix": name},
            "template": {"spec": pod("echo '{\"k\": \"v\"}'")},
        });
        town.create(name, spec).await;
        found = cost(&town, &calls, (name, 1), expected).await;
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_an_extended_job_costs_the_same_and_no_log_is_read() {
    let expected = [
        "PATCH extendedjobs",
        "POST jobs",
        "POST secrets",
        "PATCH extendedjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(of_one_that_prints("ejob-budget", true, expected.len()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_extended_job_prints_into_a_log_costs_one_look_at_it() {
    let expected = [
        "PATCH extendedjobs",
        "POST jobs",
        "GET pods/log",
        "POST secrets",
        "PATCH extendedjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(of_one_that_prints("ejob-budget-log", false, expected.len()).await, expected);
}

/// It has a minute to come.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_schedule_costs_what_any_run_does() {
    let (town, calls) = has_run("qjob-budget-schedule").await;
    let mut spec = spec("manual", &pod("true"));
    spec["trigger"]["schedule"] = json!("* * * * *");
    town.create("a", spec).await;
    let expected = ["PATCH quarksjobs", "POST jobs", "PATCH quarksjobs/status", "DELETE jobs"];
    assert_eq!(cost(&town, &calls, ("a", 1), expected.len()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_beyond_the_limit_costs_its_deletion() {
    let mut town = Town::still("qjob-budget-versions").await;
    let calls = counted(&mut town).await;
    let prints = |value: &str| {
        spec("once", &pod(&format!("echo '{{\"k\": \"{value}\"}}' > /mnt/quarks/o.json")))
    };
    let mut first = prints("1");
    first["output"] = json!({
        "versionHistoryLimit": 1, "outputMap": {"c": {"o.json": {"name": "v", "versioned": true}}},
    });
    town.create("a", first).await;
    is_over(&town, &calls, "a").await;
    town.patch("a", json!({"spec": {"template": prints("2")["template"]}})).await;
    calls.settled(0).await;
    town.trigger("a", "now").await;
    let expected = [
        "PATCH quarksjobs/status",
        "PATCH quarksjobs",
        "POST jobs",
        "POST secrets",
        "DELETE secrets",
        "PATCH quarksjobs/status",
        "DELETE jobs",
    ];
    assert_eq!(cost(&town, &calls, ("a", 2), expected.len()).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_stays_for_a_time_costs_a_write_of_that_instead_of_its_deletion() {
    let (town, calls) = has_run("qjob-budget-ttl").await;
    let mut spec = spec("once", &pod("true"));
    spec["successfulJobsHistoryLimit"] = json!(1);
    spec["template"]["spec"]["ttlSecondsAfterFinished"] = json!(3600);
    town.create("a", spec).await;
    let expected = ["PATCH quarksjobs", "POST jobs", "PATCH quarksjobs/status", "PATCH jobs"];
    assert_eq!(cost(&town, &calls, ("a", 1), expected.len()).await, expected);
}
