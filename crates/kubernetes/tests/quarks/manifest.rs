//! What a run makes, as the API server has it: labels, owners, variables.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Container;
use kube::api::DeleteParams;
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};

use super::harness::{PATIENCE, Town, pod, spec};
use super::support::wait;

/// The strings of an object.
fn map(object: Value) -> BTreeMap<String, String> {
    serde_json::from_value(object).unwrap()
}

/// As `spec.template` of each kind has it, with one label and one variable of the user's.
fn of(dialect: Dialect, mut pod: Value) -> Value {
    let first =
        json!({"name": "first", "image": testkit::cluster::SHELL_IMAGE, "command": ["true"]});
    pod["initContainers"] = json!([first]);
    pod["containers"][0]["env"] = json!([{"name": "REPLICAS", "value": "9"}]);
    let labels = json!({"labels": {"ours": "kept"}});
    match dialect {
        Dialect::QuarksJob => {
            let mut spec = spec("once", &pod);
            spec["template"]["metadata"] = labels.clone();
            spec["template"]["spec"]["template"]["metadata"] = labels;
            spec
        }
        Dialect::ExtendedJob => json!({
            "trigger": {"strategy": "once"}, "template": {"metadata": labels, "spec": pod},
        }),
    }
}

/// The one Job of a town, and the first of its pods.
async fn begun(town: &Town) -> (Value, Value) {
    let pod =
        wait::until("there is no pod", PATIENCE, async || town.pods().await.pop().ok_or("not one"))
            .await;
    let job = town.batch_jobs().await.remove(0);
    (serde_json::to_value(job).unwrap(), serde_json::to_value(pod).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_and_its_pods_are_labelled_and_it_is_owned_as_in_the_original() {
    for (dialect, test, of_job, of_pod) in [
        (
            Dialect::QuarksJob,
            "marks",
            json!({"quarks.cloudfoundry.org/qjob-name": "a", "ours": "kept"}),
            json!({"quarks.cloudfoundry.org/qjob-name": "a", "ours": "kept"}),
        ),
        (
            Dialect::ExtendedJob,
            "marks-ejob",
            json!({"fissile.cloudfoundry.org/extendedjob": "true"}),
            json!({"fissile.cloudfoundry.org/ejob-name": "a", "ours": "kept"}),
        ),
    ] {
        let mut town = Town::new(test).await;
        town.dialect = dialect;
        town.create("a", of(dialect, pod("sleep 600"))).await;
        let (job, pod) = begun(&town).await;
        let owner = town.jobs().get("a").await.unwrap().metadata.uid;
        let expected = json!([{
            "apiVersion": dialect.api_version(), "kind": dialect.kind(), "name": "a", "uid": owner,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(job["metadata"]["ownerReferences"], expected, "{test}");
        assert_eq!(job["metadata"]["finalizers"], Value::Null, "{test}");
        let ours = |object: &Value| {
            let mut labels = map(object["metadata"]["labels"].clone());
            let triggered = labels.remove("manciple.dev/triggered");
            assert_eq!(triggered.as_deref(), Some(dialect.kind()), "{test}");
            labels.retain(|name, _| name != "controller-uid" && name != "job-name");
            labels
        };
        assert_eq!(ours(&job), map(of_job), "{test}: its Job");
        assert_eq!(ours(&pod), map(of_pod), "{test}: its pod");
        let owners = &pod["metadata"]["ownerReferences"];
        assert_eq!(owners[0]["uid"], job["metadata"]["uid"], "{test}");
        assert_eq!(owners.as_array().unwrap().len(), 1, "{test}: of the Job alone");
    }
}

/// The original's digits were of chance: a Job that was made twice had two names.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_named_by_39_letters_of_its_quarksjob_and_16_digits_of_that_one_and_of_the_run() {
    let town = Town::new("job-names").await;
    let stem = "n".repeat(39);
    let twins = ["-one", "-two"].map(|rest| format!("{stem}{rest}"));
    let mut spec = spec("manual", &pod("true"));
    // They stay, to be looked at.
    spec["successfulJobsHistoryLimit"] = json!(2);
    let mut names = BTreeSet::new();
    for (name, begins) in [("short", "short"), (&*twins[0], &*stem), (&*twins[1], &*stem)] {
        town.create(name, spec.clone()).await;
        for run in 1..=2 {
            town.trigger(name, "now").await;
            let job = named(&town.ended(name, run).await, begins);
            assert!(names.insert(job), "two runs of one name: {names:?}");
        }
    }
    let there = town.batch_jobs().await.into_iter().filter_map(|job| job.metadata.name);
    assert_eq!(there.collect::<BTreeSet<_>>(), names, "as the status says");
    // Another under the name of one that is gone counts its runs from the first, too.
    town.jobs().delete("short", &DeleteParams::default()).await.unwrap();
    town.create("short", spec).await;
    town.trigger("short", "now").await;
    let job = named(&town.ended("short", 1).await, "short");
    assert!(names.insert(job), "it has the name of a Job of the one before: {names:?}");
}

/// The name of the Job of a run, which begins so and has its digits.
fn named(run: &Value, begins: &str) -> String {
    let job = run["job"].as_str().unwrap();
    let (stem, digits) = job.rsplit_once('-').unwrap();
    assert_eq!(stem, begins, "{run}");
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    assert!(digits.len() == 16 && digits.bytes().all(is_digit), "{run}");
    job.to_owned()
}

fn variables(containers: &[Container]) -> Value {
    let of = |container: &Container| {
        let env = container.env.iter().flatten();
        env.map(|it| format!("{}={}", it.name, it.value.as_deref().unwrap_or_default())).collect()
    };
    let all: Vec<Vec<String>> = containers.iter().map(of).collect();
    json!(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_variables_of_one_of_one_are_in_all_containers_of_an_extended_job_and_in_no_others() {
    let one_of_one = ["AZ_INDEX=1", "REPLICAS=1", "POD_ORDINAL=0"];
    for (dialect, test, first, work) in [
        (Dialect::QuarksJob, "told", json!([[]]), json!([["REPLICAS=9"]])),
        (
            Dialect::ExtendedJob,
            "told-ejob",
            json!([one_of_one]),
            // Where it stands it is replaced: nothing is there twice.
            json!([["AZ_INDEX=1", "POD_ORDINAL=0", "REPLICAS=1"]]),
        ),
    ] {
        let mut town = Town::new(test).await;
        town.dialect = dialect;
        town.create("a", of(dialect, pod("true"))).await;
        assert_eq!(town.ended("a", 1).await["succeeded"], true, "{test}");
        let pod = town.pods().await.remove(0).spec.unwrap();
        assert_eq!(variables(&pod.init_containers.unwrap()), first, "{test}");
        assert_eq!(variables(&pod.containers), work, "{test}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_of_the_beginning_has_the_values_of_these_variables() {
    let mut town = Town::new("told-first").await;
    town.dialect = Dialect::ExtendedJob;
    let mut spec = of(Dialect::ExtendedJob, pod("echo '{\"k\": \"v\"}'"));
    let first = &mut spec["template"]["spec"]["initContainers"][0];
    first["command"] = json!(["/bin/sh", "-c", "test $AZ_INDEX-$REPLICAS-$POD_ORDINAL = 1-1-0"]);
    // With output: what that brings into the pod takes none of them away.
    spec["output"] = json!({"namePrefix": "foo"});
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["foo-c"])), "{run}");
}
