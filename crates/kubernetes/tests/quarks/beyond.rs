//! What the original had not: schedules, inputs, dependence, limits, owners, ConfigMaps, Events.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, ResourceQuota};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{PATIENCE, Town, pod, spec};
use super::named::limit;
use super::support::wait;

/// Writes this as the output `o.json`.
fn writes(json: &str) -> Value {
    pod(&format!("echo '{json}' > /mnt/quarks/o.json"))
}

fn with_output(strategy: &str, pod: &Value, options: Value) -> Value {
    let mut spec = spec(strategy, pod);
    spec["output"] = json!({"outputMap": {"c": {"o.json": options}}});
    spec
}

fn waits(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let waiting = conditions.into_iter().flatten().find(|it| it["type"] == "Waiting");
    let message = waiting.filter(|it| it["status"] == "True").map(|it| it["message"].clone());
    message.and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
}

/// The reasons and messages of the events of one.
pub(super) async fn events(town: &Town, name: &str) -> Vec<(String, String)> {
    let events = town.list::<Event>().await.into_iter();
    let its = events.filter(|it| it.involved_object.name.as_deref() == Some(name));
    its.map(|it| (it.reason.unwrap_or_default(), it.message.unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_that_came_while_no_controller_ran_is_one_run_and_the_next_is_another() {
    let mut town = Town::still("schedule").await;
    let mut spec = spec("manual", &pod("true"));
    spec["trigger"]["schedule"] = json!("* * * * *");
    spec["trigger"]["timeZone"] = json!("Europe/Vienna");
    town.create("a", spec).await;
    let seconds = 60 - jiff::Timestamp::now().as_second() % 60;
    sleep(Duration::from_secs(u64::try_from(seconds).unwrap() + 2)).await;
    town.start().await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("schedule"), &json!(true)));
    assert_eq!(town.get("a").await["spec"]["trigger"]["strategy"], "manual");
    town.no_jobs().await;
    assert_eq!(town.runs("a").await, 1, "what was missed is one run");
    let run = town.ended("a", 2).await;
    let second = |time: &Value| time.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    // A busy machine comes to it later.
    assert!(second(&run["startedAt"]).as_second() % 60 < 20, "it runs when its time comes: {run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_says_no_time_is_named_and_can_be_mended() {
    let town = Town::new("no-time").await;
    let mut spec = spec("manual", &pod("true"));
    spec["trigger"]["schedule"] = json!("0 25 * * *");
    town.create("a", spec).await;
    let object = town.until("a", "told", |it| !waits(it).is_empty()).await;
    assert!(waits(&object).starts_with("spec.trigger.schedule: "), "{}", waits(&object));
    town.patch("a", json!({"spec": {"trigger": {"schedule": "0 5 1 1 *"}}})).await;
    town.until("a", "mended", |it| waits(it).is_empty()).await;
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 1).await["trigger"], "now", "its time has not come");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_told_what_its_trigger_says_and_the_next_is_not() {
    let town = Town::new("inputs").await;
    town.make_secret(json!({"metadata": {"name": "s"}, "stringData": {"k": "of-a-secret"}})).await;
    let script = r#"echo "{\"seen\": \"$TABLE $DEEP $KEPT\"}" > /mnt/quarks/o.json"#;
    let mut spec = with_output("manual", &pod(script), json!({"name": "seen"}));
    spec["template"]["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "TABLE", "value": "all"}, {"name": "KEPT", "value": "of $(TABLE)"}]);
    town.create("a", spec).await;
    let inputs = json!([
        {"name": "TABLE", "value": "users"},
        {"name": "DEEP", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]);
    town.patch("a", json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}})).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    assert_eq!(town.data("seen").await["seen"], "users of-a-secret of users");
    let object = town.get("a").await;
    assert_eq!(object["spec"]["trigger"], json!({"strategy": "manual"}), "they are taken");
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 2).await["succeeded"], true);
    assert_eq!(town.data("seen").await["seen"], "all  of all");
}

#[tokio::test(flavor = "multi_thread")]
async fn inputs_that_can_be_none_wait_until_they_are_mended_and_end_no_run() {
    let town = Town::new("bad-inputs").await;
    let mut spec = spec("now", &pod("sleep 5"));
    spec["concurrencyPolicy"] = json!("Replace");
    town.create("a", spec).await;
    town.until("a", "taken", |it| it["spec"]["trigger"]["strategy"] == "manual").await;
    let say = async |inputs: Value| {
        town.patch("a", json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}})).await;
    };
    for (inputs, words) in [
        (json!([{"name": "not=a-name", "value": "x"}]), "spec.trigger.inputs[0].name: has to be"),
        (json!([{"name": "A"}, {"name": "B", "value": 5}]), "spec.trigger.inputs[1].value: has to"),
        (json!([{"name": "A", "value": "x".repeat(70_000)}]), "spec.trigger.inputs: has 70"),
        (
            json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]),
            "it waits for secret/late",
        ),
    ] {
        say(inputs).await;
        town.until("a", "told", |it| waits(it).starts_with(words)).await;
    }
    assert_eq!(town.ended("a", 1).await["succeeded"], true, "nothing can take its place");
    // By now nothing else happens: it is the Secret that wakes it.
    sleep(Duration::from_secs(2)).await;
    town.make_secret(json!({"metadata": {"name": "late"}, "stringData": {"k": "v"}})).await;
    assert_eq!(town.ended("a", 2).await["succeeded"], true);
}

/// A quota holds up its Job, and what would take its place is nothing that can be run.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_without_a_job_is_begun_where_that_which_would_take_its_place_cannot_be() {
    let town = Town::new("bad-replacement").await;
    limit(&town, "count/jobs.batch", "0").await;
    let mut spec = spec("now", &pod("true"));
    spec["concurrencyPolicy"] = json!("Replace");
    town.create("a", spec).await;
    town.until("a", "held up", |it| waits(it).contains("exceeded quota")).await;
    let inputs = json!([{"name": "not=a-name", "value": "x"}]);
    town.patch("a", json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}})).await;
    // The quota is all that is said of it while that is in force.
    sleep(Duration::from_secs(2)).await;
    let quotas = town.cluster.api::<ResourceQuota>();
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    town.until("a", "told", |it| waits(it).contains("spec.trigger.inputs[0].name")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_has_had_no_runs() {
    let town = Town::new("copy").await;
    town.create("a", spec("manual", &pod("true"))).await;
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
    town.no_jobs().await;
    // As somebody restores it who kept all that was there.
    let mut copy = town.jobs().get("a").await.unwrap();
    town.jobs().delete("a", &DeleteParams::default()).await.unwrap();
    (copy.metadata.uid, copy.metadata.resource_version) = (None, None);
    copy.metadata.creation_timestamp = None;
    copy.metadata.managed_fields = None;
    assert!(copy.metadata.annotations.as_ref().unwrap().contains_key("manciple.dev/runs"));
    town.jobs().create(&PostParams::default(), &copy).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    assert_eq!((town.runs("a").await, town.batch_jobs().await.len()), (0, 0));
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 1).await["trigger"], "now");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_writes_itself_is_no_change_to_it() {
    let town = Town::new("self").await;
    let mut pod = pod(r#"echo "{\"k\": \"$(date +%s%N)\"}" > /mnt/quarks/o.json"#);
    pod["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "s", "optional": true}}]);
    let mut spec = with_output("once", &pod, json!({"name": "s"}));
    spec["updateOnConfigChange"] = json!(true);
    town.create("a", spec).await;
    town.ended("a", 1).await;
    sleep(Duration::from_secs(4)).await;
    assert_eq!(town.runs("a").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_the_success_of_those_that_it_depends_on() {
    let town = Town::new("depends").await;
    let mut second = spec("once", &pod("true"));
    second["dependsOn"] = json!(["first"]);
    second["updateOnConfigChange"] = json!(true);
    town.create("second", second).await;
    let words = "it waits for quarksjob/first to succeed, and there is none of this name";
    town.until("second", "waiting", |it| waits(it) == words).await;
    town.create("first", spec("once", &pod("test -n \"$GOOD\""))).await;
    assert_eq!(town.ended("first", 1).await["succeeded"], false);
    let words = "quarksjob/first to succeed, whose last run failed (BackoffLimitExceeded): mend";
    town.until("second", "told", |it| waits(it).contains(words)).await;
    assert_eq!(town.runs("second").await, 0, "what it depends on has failed");
    let inputs = json!([{"name": "GOOD", "value": "yes"}]);
    let again = json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}});
    town.patch("first", again.clone()).await;
    let (first, run) = (town.ended("first", 2).await, town.ended("second", 1).await);
    assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("once"), &json!(true)));
    assert!(run["startedAt"].as_str() >= first["endedAt"].as_str(), "{first} {run}");
    // A further success is a change of what it follows.
    town.patch("first", again).await;
    town.ended("first", 3).await;
    assert_eq!(town.ended("second", 2).await["trigger"], "config-change");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_wait_for_each_other_are_told_so() {
    let town = Town::new("circle").await;
    for (name, on) in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "d")] {
        let mut spec = spec("once", &pod("true"));
        spec["dependsOn"] = json!([on]);
        town.create(name, spec).await;
    }
    for (name, on) in [("a", "b"), ("d", "d")] {
        let words = format!("it waits for quarksjob/{on} to succeed, which waits for this one");
        town.until(name, "told", |it| waits(it) == words).await;
    }
    // And those that have run: each success would be the next one's trigger.
    for (name, on) in [("e", Value::Null), ("f", json!(["e"]))] {
        let mut spec = spec("once", &pod("true"));
        spec["updateOnConfigChange"] = json!(true);
        if !on.is_null() {
            spec["dependsOn"] = on;
        }
        town.create(name, spec).await;
        town.ended(name, 1).await;
    }
    town.patch("e", json!({"spec": {"dependsOn": ["f"]}})).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!((town.runs("e").await, town.runs("f").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_jobs_are_kept_with_their_pods_as_the_limits_say() {
    let town = Town::new("limits").await;
    let mut spec = spec("manual", &pod("test -z \"$BAD\""));
    spec["successfulJobsHistoryLimit"] = json!(1);
    spec["failedJobsHistoryLimit"] = json!(1);
    town.create("a", spec).await;
    let fails = json!([{"name": "BAD", "value": "yes"}]);
    for (run, inputs) in [(1, json!([])), (2, fails.clone()), (3, json!([])), (4, fails)] {
        town.patch("a", json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}})).await;
        assert_eq!(town.ended("a", run).await["succeeded"], run % 2 == 1);
    }
    let mut left = Vec::new();
    for _ in 0..600 {
        left = town.batch_jobs().await.iter().map(|it| it.metadata.name.clone().unwrap()).collect();
        if left.len() == 2 && town.pods().await.len() == 2 {
            break;
        }
        sleep(Duration::from_millis(300)).await;
    }
    let history = town.get("a").await["status"]["history"].clone();
    let mut expected = [&history[0]["job"], &history[1]["job"]].map(|it| it.as_str().unwrap());
    expected.sort_unstable();
    left.sort();
    assert_eq!(left, expected, "the newest of each");
    assert_eq!(town.pods().await.len(), 2, "pods go with their Jobs");
}

#[tokio::test(flavor = "multi_thread")]
async fn so_many_versions_are_kept_as_the_limit_says() {
    let town = Town::new("version-limit").await;
    let options = json!({"name": "v", "versioned": true});
    let mut spec =
        with_output("manual", &pod(r#"echo "{\"k\": \"$N\"}" > /mnt/quarks/o.json"#), options);
    spec["output"]["versionHistoryLimit"] = json!(2);
    town.create("a", spec).await;
    for run in 1..=4 {
        let inputs = json!([{"name": "N", "value": run.to_string()}]);
        town.patch("a", json!({"spec": {"trigger": {"strategy": "now", "inputs": inputs}}})).await;
        assert_eq!(town.ended("a", run).await["made"], json!([format!("v-v{run}")]));
    }
    for (version, is_there) in [(1, false), (2, false), (3, true), (4, true)] {
        let found = town.secret(&format!("v-v{version}")).await;
        assert_eq!(found.is_some(), is_there, "v-v{version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_secret_goes_with_its_quarksjob_where_the_spec_says_so() {
    let town = Town::new("owned").await;
    town.create("a", with_output("once", &writes(r#"{"k": "v"}"#), json!({"name": "s"}))).await;
    town.ended("a", 1).await;
    let owners = || async { town.secret("s").await.unwrap().metadata.owner_references };
    assert_eq!(owners().await, None, "as in the original");
    town.patch("a", json!({"spec": {"output": {"setOwnerReference": true}}})).await;
    town.trigger("a", "now").await;
    town.ended("a", 2).await;
    assert_eq!(owners().await.unwrap()[0].name, "a", "though it holds what it held");
    town.patch("a", json!({"spec": {"output": {"setOwnerReference": false}}})).await;
    town.trigger("a", "now").await;
    town.ended("a", 3).await;
    assert_eq!(owners().await, None);
    town.patch("a", json!({"spec": {"output": {"setOwnerReference": true}}})).await;
    town.trigger("a", "now").await;
    town.ended("a", 4).await;
    town.jobs().delete("a", &DeleteParams::default()).await.unwrap();
    wait::until("the Secret stays", PATIENCE, async || {
        town.secret("s").await.map(|secret| secret.metadata).map_or(Ok(()), Err)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_made_by_hand_is_not_made_to_go_with_a_quarksjob() {
    let town = Town::new("by-hand").await;
    town.make_secret(json!({"metadata": {"name": "s"}, "stringData": {"k": "theirs"}})).await;
    let mut spec = with_output("once", &writes(r#"{"k": "v"}"#), json!({"name": "s"}));
    spec["output"]["setOwnerReference"] = json!(true);
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["reason"], "SecretRefused");
    assert!(run["message"].as_str().unwrap().contains("was not made by a run"), "{run}");
    assert_eq!(town.data("s").await["k"], "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_becomes_a_config_map_and_others_follow_it() {
    let town = Town::new("config-map").await;
    let mut reader = spec("once", &pod("true"));
    reader["updateOnConfigChange"] = json!(true);
    reader["template"]["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "o"}}]);
    town.create("reader", reader).await;
    let options = json!({"name": "o", "kind": "ConfigMap", "secretLabels": {"a": "b"}});
    let mut maker = with_output("once", &writes(r#"{"n": 7, "s": "t"}"#), options);
    maker["output"]["stringifyValues"] = json!(true);
    town.create("maker", maker).await;
    let run = town.ended("maker", 1).await;
    assert_eq!((&run["made"], &run["reason"]), (&json!(["configmap/o"]), &json!("Completed")));
    let map = town.cluster.api::<ConfigMap>().get("o").await.unwrap();
    let data = map.data.unwrap();
    assert_eq!((data["n"].as_str(), data["s"].as_str()), ("7", "t"));
    assert_eq!(map.metadata.labels.unwrap()["a"], "b");
    assert_eq!(town.ended("reader", 1).await["trigger"], "once");
    let script = json!(["-c", r#"echo '{"n": 8}' > /mnt/quarks/o.json"#]);
    let mut containers =
        town.get("maker").await["spec"]["template"]["spec"]["template"]["spec"]["containers"]
            .clone();
    containers[0]["args"] = script;
    let template = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    town.patch("maker", json!({"spec": {"trigger": {"strategy": "now"}, "template": template}}))
        .await;
    assert_eq!(town.ended("maker", 2).await["made"], json!(["configmap/o"]));
    assert_eq!(town.ended("reader", 2).await["trigger"], "config-change");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_of_somebody_else_is_not_written_over() {
    let town = Town::new("config-map-taken").await;
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": {"name": "o"}, "data": {"k": "theirs"}, "immutable": true,
    }))
    .unwrap();
    town.cluster.api::<ConfigMap>().create(&PostParams::default(), &map).await.unwrap();
    let options = json!({"name": "o", "kind": "ConfigMap"});
    town.create("a", with_output("once", &writes(r#"{"k": "v"}"#), options)).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["reason"], "SecretRefused");
    assert!(run["message"].as_str().unwrap().starts_with("configmap/o is there and immutable"));
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_strict_a_spec_with_faults_waits_until_they_are_mended() {
    let mut town = Town::still("strict").await;
    town.settings.strict = true;
    town.start().await;
    // With a member at the wrong level, as the official examples have it.
    town.create("a", spec("once", &pod("true"))).await;
    let words = "spec.template.backoffLimit: does nothing here: it belongs to spec.template.spec.backoffLimit";
    let object = town.until("a", "told", |it| waits(it) == words).await;
    assert_eq!(object["spec"]["trigger"]["strategy"], "once", "its trigger is not taken");
    town.patch("a", json!({"spec": {"template": {"backoffLimit": null}}})).await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_to_nothing_is_an_event() {
    let town = Town::new("events").await;
    town.create("fails", spec("once", &pod("exit 3"))).await;
    town.ended("fails", 1).await;
    let mut busy = spec("now", &pod("sleep 6"));
    busy["concurrencyPolicy"] = json!("Forbid");
    town.create("busy", busy).await;
    town.until("busy", "taken", |it| it["spec"]["trigger"]["strategy"] == "manual").await;
    town.trigger("busy", "now").await;
    let mut late = spec("once", &pod("true"));
    late["template"]["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"secretRef": {"name": "late"}}]);
    town.create("late", late).await;
    town.create("good", spec("once", &pod("true"))).await;
    assert_eq!(town.ended("good", 1).await["succeeded"], true);
    town.ended("busy", 1).await;
    let expected = [
        ("fails", "BackoffLimitExceeded", "run 1: container c exited with 3"),
        ("busy", "PassedOver", "run 1 goes on, and concurrencyPolicy is Forbid: no run for now"),
        ("late", "Waiting", "it waits for secret/late"),
    ];
    // A busy kubelet may say of any pod that it waits for what it mounts.
    let told = async |name: &str| {
        let mut told = events(&town, name).await;
        told.retain(|(_, message)| !message.starts_with("its pod does not begin"));
        told
    };
    for (name, reason, words) in expected {
        let told = told(name).await;
        let [(found, message)] = told.as_slice() else { panic!("{name}: {told:?}") };
        assert!(found == reason && message.starts_with(words), "{name}: {told:?}");
    }
    assert_eq!(told("good").await, [], "what goes well costs no call");
    assert_eq!(town.runs("busy").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn why_a_run_does_not_begin_is_said_while_it_does_not() {
    let town = Town::new("begins").await;
    town.config_map("map", "v").await;
    let mut nobody = spec("once", &pod("true"));
    nobody["template"]["spec"]["template"]["spec"]["serviceAccountName"] = json!("nobody");
    let mut keyless = spec("once", &pod("true"));
    let keyless_pod = &mut keyless["template"]["spec"]["template"]["spec"];
    let items = json!([{"key": "absent", "path": "p"}]);
    keyless_pod["volumes"] = json!([{"name": "v", "configMap": {"name": "map", "items": items}}]);
    keyless_pod["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    let mut paused = spec("once", &pod("true"));
    paused["template"]["spec"]["parallelism"] = json!(0);
    for (name, spec) in [("nobody", nobody), ("keyless", keyless), ("paused", paused)] {
        town.create(name, spec).await;
    }
    for (name, words) in [
        ("nobody", ["Kubernetes makes no pod for it", "serviceaccount \"nobody\" not found"]),
        ("keyless", ["its pod does not begin: the pod waits for what it mounts", "absent"]),
        ("paused", ["its Job does not begin: parallelism is 0", ""]),
    ] {
        let said = |object: &Value| words.iter().all(|words| waits(object).contains(words));
        town.until(name, "told", said).await;
    }
    let account = json!({"metadata": {"name": "nobody"}});
    let account = serde_json::from_value(account).unwrap();
    let accounts = town.cluster.api::<k8s_openapi::api::core::v1::ServiceAccount>();
    accounts.create(&Default::default(), &account).await.unwrap();
    let run = town.ended("nobody", 1).await;
    assert_eq!(run["succeeded"], true, "{run}");
    town.until("nobody", "quiet", |object| waits(object).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_failed_ends_though_something_that_was_put_into_its_pod_goes_on() {
    let town = Town::new("lingers").await;
    let mut pod = pod("echo '{\"why\": \"so\"}' > /mnt/quarks/o.json; exit 3");
    let mut proxy = pod["containers"][0].clone();
    (proxy["name"], proxy["args"]) = (json!("proxy"), json!(["-c", "sleep 600"]));
    pod["containers"].as_array_mut().unwrap().push(proxy);
    let mut spec = with_output("once", &pod, json!({"name": "s"}));
    spec["output"]["writeOnFailure"] = json!(true);
    // As if it had been put in on the way to the node: it is none of those that count.
    spec["template"]["spec"]["template"]["metadata"] =
        json!({"annotations": {"manciple.dev/containers": "c"}});
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["reason"]), (&json!(false), &json!("Failed")));
    assert_eq!(run["message"], "container c exited with 3");
    assert_eq!(town.data("s").await["why"], "so", "what it left is kept");
    wait::until("its Job never ends", PATIENCE, async || {
        let jobs = town.batch_jobs().await;
        let ended =
            jobs[0].status.as_ref().and_then(|it| it.conditions.clone()).unwrap_or_default();
        let has_failed = ended.iter().any(|it| it.type_ == "Failed" && it.status == "True");
        if has_failed { Ok(()) } else { Err(ended) }
    })
    .await;
}
