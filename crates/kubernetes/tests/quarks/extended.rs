use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Api, ListParams, LogParams, Patch, PatchParams};
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use testkit::proxy::Plan;

use super::harness::{Town, pod, spec};
use super::support::proxied;

async fn town(test: &str) -> Town {
    let mut town = Town::new(test).await;
    town.dialect = Dialect::ExtendedJob;
    town
}

/// As people wrote it: the pod at `spec.template`, what it prints into Secrets of this prefix.
fn prints(strategy: &str, script: &str) -> Value {
    json!({
        "trigger": {"strategy": strategy},
        "template": {"metadata": {"labels": {"ours": "kept"}}, "spec": pod(script)},
        "output": {"namePrefix": "foo", "outputType": "json", "secretLabels": {"key": "value"}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_its_containers_print_is_in_secrets_before_it_is_done() {
    let town = town("ejob").await;
    let mut spec = prints("once", r#"echo "{\"foo\": \"$AZ_INDEX-$REPLICAS-$POD_ORDINAL\"}""#);
    let containers = &mut spec["template"]["spec"]["containers"];
    let mut other = containers[0].clone();
    (other["name"], other["args"]) = (json!("other"), json!(["-c", "echo '{\"bar\": \"baz\"}'"]));
    other["env"] = json!([
        {"name": "INSTANCE_GROUP_NAME", "value": "group"}, {"name": "REPLICAS", "value": "9"},
    ]);
    containers.as_array_mut().unwrap().push(other);
    town.create("a", spec).await;
    let object = town.until("a", "completed", |it| it["status"]["completed"] == true).await;
    assert_eq!(object["spec"]["trigger"]["strategy"], "done");
    assert_eq!(object["status"]["lastRun"]["made"], json!(["foo-c", "foo-other"]));
    assert_eq!(town.data("foo-c").await["foo"], "1-1-0");
    let secret = town.secret("foo-other").await.unwrap();
    let labels = secret.metadata.labels.unwrap();
    assert_eq!(labels["fissile.cloudfoundry.org/container-name"], "other");
    assert_eq!(labels["fissile.cloudfoundry.org/instance-group"], "group");
    assert_eq!(labels["key"], "value");
    town.no_jobs().await;
    let pods = town.pods().await;
    let labels = pods[0].metadata.labels.as_ref().unwrap();
    assert_eq!(labels["fissile.cloudfoundry.org/ejob-name"], "a");
    assert_eq!(labels["ours"], "kept");
    let spec = pods[0].spec.as_ref().unwrap();
    assert_eq!(spec.containers.len(), 2, "nothing of ours is in it");
}

/// The original's code put no dash after a prefix, where its documentation has one.
#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_is_taken_as_it_is_where_that_is_set() {
    for (verbatim, expected) in [(false, "foo-c"), (true, "fooc")] {
        let mut town = Town::still(if verbatim { "verbatim" } else { "dashed" }).await;
        town.dialect = Dialect::ExtendedJob;
        town.settings.verbatim_prefixes = verbatim;
        town.start().await;
        town.create("a", prints("once", r#"echo '{"k": "v"}'"#)).await;
        assert_eq!(town.ended("a", 1).await["made"], json!([expected]));
        assert_eq!(town.data(expected).await["k"], "v");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extended_job_tries_again_twice_and_keeps_output_of_a_failure_where_asked() {
    let town = town("ejob-fails").await;
    let mut spec = prints("now", "echo '{\"k\": \"v\"}'; exit 1");
    spec["output"]["writeOnFailure"] = json!(true);
    spec["output"]["versioned"] = json!(true);
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(false), &json!(["foo-c-v1"])), "{run}");
    let secret = town.secret("foo-c-v1").await.unwrap();
    let labels = secret.metadata.labels.unwrap();
    assert_eq!(labels["fissile.cloudfoundry.org/secret-kind"], "versionedSecret");
    assert_eq!(labels["fissile.cloudfoundry.org/secret-version"], "1");
    let annotations = secret.metadata.annotations.unwrap();
    assert_eq!(
        annotations["fissile.cloudfoundry.org/source-description"],
        "created by extendedJob"
    );
    let job = town.batch_jobs().await.remove(0);
    assert_eq!(job.spec.unwrap().backoff_limit, Some(2));
    assert_eq!(job.metadata.labels.unwrap()["fissile.cloudfoundry.org/extendedjob"], "true");
}

/// Release 0.4.0 of the original made a version with each run.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_extended_job_prints_once_more_makes_no_new_version() {
    let town = town("ejob-same").await;
    let mut spec = prints("manual", r#"echo "{\"k\": \"$N\"}""#);
    spec["output"]["versioned"] = json!(true);
    town.create("a", spec).await;
    let versions = async || {
        let label = "fissile.cloudfoundry.org/secret-kind=versionedSecret";
        let all = ListParams::default().labels(label);
        town.cluster.api::<Secret>().list(&all).await.unwrap().items
    };
    let mut before = Vec::new();
    for (run, value, version) in [(1, "one", 1), (2, "one", 1), (3, "two", 2), (4, "two", 2)] {
        let inputs = json!([{"name": "N", "value": value}]);
        town.patch("a", json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}})).await;
        let ended = town.ended("a", run).await;
        let made = format!("foo-c-v{version}");
        assert_eq!(
            (&ended["succeeded"], &ended["made"]),
            (&json!(true), &json!([made])),
            "{ended}"
        );
        assert_eq!(town.data(&made).await["k"], value);
        let there = versions().await;
        assert_eq!(there.len(), version, "run {run}");
        if run % 2 == 0 {
            assert_eq!(there, before, "run {run} writes none of them");
        }
        before = there;
    }
}

/// The original wrote the labels of all its containers into one map, so the next had those of the one before.
#[tokio::test(flavor = "multi_thread")]
async fn the_instance_group_of_one_container_is_on_the_secret_of_no_other() {
    let town = town("ejob-groups").await;
    let mut spec = prints("once", r#"echo '{"k": "v"}'"#);
    let containers = spec["template"]["spec"]["containers"].as_array_mut().unwrap();
    let one = containers[0].clone();
    let of = |(name, group): (&str, Option<&str>)| {
        let mut one = one.clone();
        one["name"] = json!(name);
        if let Some(group) = group {
            one["env"] = json!([{"name": "INSTANCE_GROUP_NAME", "value": group}]);
        }
        one
    };
    let groups =
        [("a", None), ("b", Some("first")), ("c", None), ("d", Some("second")), ("e", None)];
    *containers = groups.map(of).into();
    town.create("a", spec).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    for (name, group) in groups {
        let labels = town.secret(&format!("foo-{name}")).await.unwrap().metadata.labels.unwrap();
        let found = labels.get("fissile.cloudfoundry.org/instance-group").map(String::as_str);
        assert_eq!(found, group, "{name}");
        assert_eq!(labels["fissile.cloudfoundry.org/container-name"], name);
        assert_eq!(labels["key"], "value", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stderr_is_no_output_and_output_is_in_no_log() {
    let town = town("ejob-stderr").await;
    let script = "echo working >&2; echo '{\"password\": \"planted\"}'; echo done >&2";
    town.create("a", prints("once", script)).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    assert_eq!(town.data("foo-c").await["password"], "planted");
    let pod = town.pods().await.remove(0);
    let pods = town.cluster.api::<Pod>();
    let log = pods.logs(&pod.metadata.name.clone().unwrap(), &LogParams::default()).await.unwrap();
    assert_eq!(log, "working\ndone\n");
    assert!(!serde_json::to_string(&pod.status).unwrap().contains("planted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_to_the_file_of_its_last_releases_is_kept() {
    let town = town("ejob-file").await;
    let script = "echo working; echo '{\"k\": \"from the file\"}' >> /mnt/quarks/output.json";
    town.create("a", prints("once", script)).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["foo-c"])), "{run}");
    assert_eq!(town.data("foo-c").await["k"], "from the file");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_program_that_only_the_image_names_the_log_is_read() {
    let town = town("ejob-entrypoint").await;
    let mut spec = prints("once", "");
    let container = &mut spec["template"]["spec"]["containers"][0];
    container.as_object_mut().unwrap().remove("command");
    container["args"] = json!(["-c", "echo '{\"k\": \"from the log\"}'"]);
    town.create("a", spec.clone()).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["succeeded"], true, "{run}");
    assert_eq!(town.data("foo-c").await["k"], "from the log");
    // What is no text, or is cut within a letter where no more is read, ends the run as what it is.
    let endless = "s=\u{fc}; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21; do s=$s$s; done; printf x%s \"$s\"";
    for (name, script, reason) in [
        ("no-text", "printf '{\"k\": \"\\377\"}'", "OutputInvalid"),
        ("endless", endless, "OutputTooLarge"),
    ] {
        spec["template"]["spec"]["containers"][0]["args"] = json!(["-c", script]);
        town.create(name, spec.clone()).await;
        let run = town.ended(name, 1).await;
        assert_eq!(run["reason"], reason, "{run}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_counts_is_what_a_container_prints_when_it_is_started_again() {
    let town = town("ejob-again").await;
    let script = "[ -e /kept/tried ] || { touch /kept/tried; echo '{\"k\": \"first\"}'; exit 3; }
        echo '{\"k\": \"second\"}'";
    let mut spec = prints("once", script);
    let pod = &mut spec["template"]["spec"];
    pod["restartPolicy"] = json!("OnFailure");
    pod["volumes"] = json!([{"name": "kept", "emptyDir": {}}]);
    pod["containers"][0]["volumeMounts"] = json!([{"name": "kept", "mountPath": "/kept"}]);
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["foo-c"])), "{run}");
    assert_eq!(town.data("foo-c").await["k"], "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_output_of_two_containers_comes_home_beside_each_other() {
    let town = town("ejob-large").await;
    let value = "head -c 300000 /dev/zero | tr '\\0' x";
    let script = format!("printf '{{\"k\": \"'; {value}; printf '\"}}'");
    let mut spec = prints("once", &script);
    let containers = &mut spec["template"]["spec"]["containers"];
    let mut other = containers[0].clone();
    other["name"] = json!("other");
    containers.as_array_mut().unwrap().push(other);
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["made"], json!(["foo-c", "foo-other"]), "{run}");
    for name in ["foo-c", "foo-other"] {
        assert_eq!(town.data(name).await["k"].len(), 300_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_and_is_not_json_is_said_and_not_shown() {
    let town = town("ejob-wrong").await;
    town.create("a", prints("once", "echo planted")).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["reason"], "OutputInvalid", "{run}");
    assert!(run["message"].as_str().unwrap().contains("not JSON (line 1"), "{run}");
    assert!(!town.get("a").await["status"].to_string().contains("planted"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_good_is_kept_though_another_container_prints_no_json() {
    let town = town("ejob-half").await;
    let mut spec = prints("once", "echo planted");
    let containers = &mut spec["template"]["spec"]["containers"];
    let mut good = containers[0].clone();
    (good["name"], good["args"]) = (json!("good"), json!(["-c", "echo '{\"k\": \"v\"}'"]));
    containers.as_array_mut().unwrap().push(good);
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["reason"], "OutputInvalid", "{run}");
    assert!(run["message"].as_str().unwrap().starts_with("container c: "), "{run}");
    assert_eq!(run["made"], json!(["foo-good"]), "{run}");
    assert_eq!(town.data("foo-good").await["k"], "v");
    assert!(town.secret("foo-c").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn both_kinds_may_have_the_same_name() {
    let mut town = town("ejob-both").await;
    town.create("a", prints("once", "echo '{\"of\": \"extended\"}'")).await;
    town.dialect = Dialect::QuarksJob;
    town.create("a", super::harness::spec("once", &pod("true"))).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    town.dialect = Dialect::ExtendedJob;
    assert_eq!(town.ended("a", 1).await["made"], json!(["foo-c"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_the_last_releases_has_a_job_at_its_template() {
    let town = town("ejob-of-job").await;
    let mut pods = pod("echo '{\"k\": \"v\"}' >> /mnt/quarks/output.json");
    pods["containers"][0]["name"] = json!("json");
    let spec = json!({
        "trigger": {"strategy": "once"},
        // As its examples had it, a number at the wrong level among it.
        "template": {"backoffLimit": 2, "spec": {
            "backoffLimit": 1, "template": {"metadata": {"labels": {"ours": "kept"}}, "spec": pods},
        }},
        "output": {"namePrefix": "foo-", "secretLabels": {"key": "value"}},
        "successfulJobsHistoryLimit": 1,
    });
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["foo-json"])), "{run}");
    let job = town.batch_jobs().await.remove(0);
    assert_eq!(job.metadata.labels.unwrap()["fissile.cloudfoundry.org/extendedjob"], "true");
    let spec = job.spec.unwrap();
    assert_eq!(spec.backoff_limit, Some(1), "what the Job's template says");
    let labels = spec.template.metadata.unwrap().labels.unwrap();
    assert_eq!(labels["fissile.cloudfoundry.org/ejob-name"], "a");
    assert_eq!(labels["ours"], "kept");
}

/// Nothing of that kind is there then, and nobody waits for a list of it.
#[tokio::test(flavor = "multi_thread")]
async fn where_its_definition_was_deleted_a_namespace_that_comes_to_be_monitored_runs_the_other_kind()
 {
    let mut town = Town::still("withdrawn").await;
    let (proxy, client) = proxied(&town.cluster, Plan::calm()).await;
    town.start_with(client).await;
    town.create("a", spec("once", &pod("true"))).await;
    town.ended("a", 1).await;

    proxy.forget_kinds(|path| path.contains("/extendedjobs"));
    let late = Town::still("withdrawn-late").await;
    let label = json!({"quarks.cloudfoundry.org/monitored": town.cluster.namespace});
    let label = Patch::Merge(json!({"metadata": {"labels": label}}));
    let namespaces = Api::<Namespace>::all(late.cluster.client.clone());
    namespaces.patch(&late.cluster.namespace, &PatchParams::default(), &label).await.unwrap();
    late.create("a", spec("once", &pod("true"))).await;
    let ended = late.ended("a", 1).await;
    assert_eq!(ended["succeeded"], true, "{ended}");
}
