//! What a run makes, as the API server has it: labels, owners, variables.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{Town, pod, spec};

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
    loop {
        if let Some(pod) = town.pods().await.pop() {
            let job = town.batch_jobs().await.remove(0);
            return (serde_json::to_value(job).unwrap(), serde_json::to_value(pod).unwrap());
        }
        sleep(Duration::from_millis(100)).await;
    }
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
