use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::AsyncReadExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testkit::proxy::Plan;

use super::harness::{Town, pod, spec};
use super::support::proxied;

/// Once, with what the script leaves as `o.json` in this Secret.
pub(super) fn makes(script: &str, options: Value) -> Value {
    let mut spec = spec("once", &pod(script));
    spec["output"] = json!({"outputMap": {"c": {"o.json": options}}});
    spec
}

/// One in which the agent is around commands, and one in which it is beside them.
pub(super) async fn both_ways(test: &str) -> [Town; 2] {
    let mut towns = [Town::either_way(test, true).await, Town::either_way(test, false).await];
    for town in &mut towns {
        town.start().await;
    }
    towns
}

const NO_TEXT: &str = r#"printf '{"k": "\377"}' > /mnt/quarks/o.json"#;
pub(super) const WELL: &str = r#"echo '{"foo": "1", "bar": "baz"}' > /mnt/quarks/o.json"#;

#[tokio::test(flavor = "multi_thread")]
async fn output_is_in_its_secret_before_it_is_completed() {
    let town = Town::new("output").await;
    let mut spec = makes(WELL, json!({"name": "made", "secretLabels": {"tier": "One"}}));
    spec["output"]["secretLabels"] = json!({"key": "value"});
    town.create("a", spec).await;
    let object = town.until("a", "completed", |it| it["status"]["completed"] == true).await;
    let data = town.data("made").await;
    assert_eq!(data, BTreeMap::from([("foo".into(), "1".into()), ("bar".into(), "baz".into())]));
    assert_eq!(object["status"]["lastRun"]["made"], json!(["made"]));
    let secret = town.secret("made").await.unwrap();
    assert_eq!(secret.metadata.owner_references, None, "it stays when its maker goes");
    let labels = secret.metadata.labels.unwrap();
    let expected =
        [("key", "value"), ("quarks.cloudfoundry.org/container-name", "c"), ("tier", "one")];
    assert_eq!(labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>(), expected);
    // Again: what is there is replaced.
    let mut changed = makes(r#"echo '{"new": "2"}' > /mnt/quarks/o.json"#, json!({"name": "made"}));
    changed["trigger"]["strategy"] = json!("now");
    town.patch("a", json!({"spec": changed})).await;
    assert_eq!(town.ended("a", 2).await["succeeded"], true);
    assert_eq!(town.data("made").await, BTreeMap::from([("new".into(), "2".into())]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_written_over_with_its_labels_and_annotations() {
    let town = Town::new("whole").await;
    let marked = json!({
        "name": "made", "secretLabels": {"old": "label"}, "secretAnnotations": {"old": "note"},
    });
    town.create("a", makes(WELL, marked)).await;
    town.ended("a", 1).await;
    let mut other = makes(WELL, json!({"name": "made", "secretLabels": {"new": "label"}}));
    let gone = json!({"old": null, "new": "label"});
    let options = &mut other["output"]["outputMap"]["c"]["o.json"];
    (options["secretLabels"], options["secretAnnotations"]) = (gone, Value::Null);
    other["trigger"]["strategy"] = json!("now");
    town.patch("a", json!({"spec": other})).await;
    assert_eq!(town.ended("a", 2).await["succeeded"], true);
    let metadata = town.secret("made").await.unwrap().metadata;
    let (labels, annotations) =
        (metadata.labels.unwrap(), metadata.annotations.unwrap_or_default());
    assert_eq!((labels.get("old"), &*labels["new"]), (None, "label"));
    assert_eq!(annotations.get("old"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_files_for_one_secret_the_last_is_kept_and_it_is_labelled_by_the_remote_id() {
    let town = Town::new("two-files").await;
    let script =
        r#"echo '{"k": "first"}' > /mnt/quarks/o.json; echo '{"k": "last"}' > /mnt/quarks/p.json"#;
    let mut spec = makes(script, json!({"name": "made"}));
    spec["output"]["outputMap"]["c"]["p.json"] = json!({"name": "made"});
    let container = &mut spec["template"]["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "REMOTE_ID", "value": "there"}]);
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["made"])), "{run}");
    assert!(run["message"].as_str().unwrap().contains("the last is kept"), "{run}");
    assert_eq!(town.data("made").await["k"], "last");
    let labels = town.secret("made").await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels["quarks.cloudfoundry.org/remote-id"], "there");
}

/// Fails at first, and leaves its output when it is started again in the same pod.
fn restarted() -> Value {
    let script =
        format!("[ -e /mnt/quarks/tried ] || {{ touch /mnt/quarks/tried; exit 3; }}; {WELL}");
    let mut spec = makes(&script, json!({"name": "restarted"}));
    spec["template"]["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    spec["template"]["spec"]["backoffLimit"] = json!(3);
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_started_again_leaves_what_it_left_last() {
    for wraps in [true, false] {
        let mut town = Town::either_way("again", wraps).await;
        town.start().await;
        town.create("a", restarted()).await;
        let run = town.ended("a", 1).await;
        assert_eq!(
            (&run["succeeded"], &run["made"]),
            (&json!(true), &json!(["restarted"])),
            "{run}"
        );
        assert_eq!(town.data("restarted").await["bar"], "baz");
        assert_eq!(town.pods().await.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_started_again_in_vain_is_told_by_its_code() {
    let town = Town::new("vain").await;
    let mut spec = restarted();
    let pod = &mut spec["template"]["spec"]["template"]["spec"];
    pod["containers"][0]["args"] = json!(["-c", "exit 7"]);
    spec["template"]["spec"]["backoffLimit"] = json!(1);
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["succeeded"], false);
    let message = run["message"].as_str().unwrap();
    assert!(message.contains("container c exited with 7"), "{run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_fans_out_into_a_secret() {
    let town = Town::new("fan-out").await;
    let script =
        r#"echo '{"one": "{\"k\": \"1\"}", "two": "{\"k\": \"2\"}"}' > /mnt/quarks/o.json"#;
    town.create("a", makes(script, json!({"name": "f", "persistencemethod": "fan-out"}))).await;
    assert_eq!(town.ended("a", 1).await["made"], json!(["f-one", "f-two"]));
    assert_eq!(town.data("f-two").await["k"], "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_reads_what_it_fans_out_itself_does_not_run_for_it() {
    let town = Town::new("fan-in").await;
    // Other each time: whoever runs for it runs for ever.
    let script = r#"echo "{\"one\": \"{\\\"k\\\": \\\"$(date +%s%N)\\\"}\"}" > /mnt/quarks/o.json"#;
    let mut spec = makes(script, json!({"name": "f", "persistencemethod": "fan-out"}));
    spec["updateOnConfigChange"] = json!(true);
    spec["template"]["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"secretRef": {"name": "f-one", "optional": true}}]);
    town.create("a", spec).await;
    assert_eq!(town.ended("a", 1).await["made"], json!(["f-one"]));
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(town.runs("a").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_containers_outside_the_map_hang_nothing() {
    for town in both_ways("d1").await {
        let mut spec = makes(WELL, json!({"name": "made"}));
        let containers = &mut spec["template"]["spec"]["template"]["spec"]["containers"];
        let mut other = containers[0].clone();
        let script = r#"echo '{"bar": "other"}' > /mnt/quarks/o.json"#;
        (other["name"], other["args"]) = (json!("other"), json!(["-c", script]));
        containers.as_array_mut().unwrap().push(other);
        town.create("a", spec).await;
        let run = town.ended("a", 1).await;
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["made"])), "{run}");
        assert_eq!(town.data("made").await["bar"], "baz");
        // Whatever is kept of a container is labelled with its name.
        let kept = ListParams::default().labels("quarks.cloudfoundry.org/container-name");
        let kept = town.cluster.api::<Secret>().list(&kept).await.unwrap();
        let names: Vec<_> = kept.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
        assert_eq!(names, ["made"]);
    }
}

/// As in the original: output is what the others leave.
#[tokio::test(flavor = "multi_thread")]
async fn containers_of_the_beginning_have_no_folder_for_output() {
    for town in both_ways("first").await {
        let mut spec = makes(WELL, json!({"name": "made"}));
        let pod = &mut spec["template"]["spec"]["template"]["spec"];
        let mut first = pod["containers"][0].clone();
        (first["name"], first["args"]) = (json!("first"), json!(["-c", "test ! -e /mnt/quarks"]));
        pod["initContainers"] = json!([first]);
        town.create("a", spec).await;
        let run = town.ended("a", 1).await;
        assert_eq!(run["succeeded"], true, "{run}");
        assert_eq!(town.data("made").await["bar"], "baz");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_what_dies_before_it_has_written_fails() {
    for town in both_ways("d2").await {
        town.create("a", makes("exit 1", json!({"name": "made"}))).await;
        let run = town.ended("a", 1).await;
        assert_eq!(
            (&run["succeeded"], &run["reason"]),
            (&json!(false), &json!("BackoffLimitExceeded"))
        );
        assert!(town.secret("made").await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d3_files_may_come_in_pieces_or_be_renamed_into_place() {
    for town in both_ways("d3").await {
        let pieces =
            r#"cd /mnt/quarks; printf '{"k"' > o.json; sleep 1; printf ': "v"}' >> o.json"#;
        let renamed = r#"cd /mnt/quarks; echo '{"k": "v"}' > .new; sleep 1; mv .new o.json"#;
        town.create("pieces", makes(pieces, json!({"name": "pieces"}))).await;
        town.create("renamed", makes(renamed, json!({"name": "renamed"}))).await;
        for name in ["pieces", "renamed"] {
            let run = town.ended(name, 1).await;
            assert_eq!(run["succeeded"], true, "{run}");
            assert!(run["seconds"].as_u64().is_some_and(|it| (1..60).contains(&it)), "{run}");
            assert_eq!(town.data(name).await["k"], "v");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_output_of_any_failure_is_kept_where_that_is_asked_for() {
    for town in both_ways("d6").await {
        for code in [1, 2, 137] {
            let name = format!("exit-{code}");
            let mut spec = makes(&format!("{WELL}; exit {code}"), json!({"name": name}));
            spec["output"]["writeOnFailure"] = json!(true);
            town.create(&name, spec).await;
        }
        town.create("not", makes(&format!("{WELL}; exit 1"), json!({"name": "not"}))).await;
        for code in [1, 2, 137] {
            let name = format!("exit-{code}");
            let run = town.ended(&name, 1).await;
            assert_eq!((&run["succeeded"], &run["made"]), (&json!(false), &json!([name])), "{run}");
            assert_eq!(town.data(&name).await["foo"], "1");
        }
        town.ended("not", 1).await;
        assert!(town.secret("not").await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d6_output_is_kept_of_what_kubernetes_takes_away_when_it_gives_up() {
    for town in both_ways("d6-away").await {
        // A sidecar is told to end as the container is, and reads what is there by then.
        let trap = match town.settings.wraps {
            true => format!("ends() {{ {WELL}; exit 3; }}; trap ends TERM; sleep 80 & wait"),
            false => format!("{WELL}; trap 'exit 3' TERM; sleep 80 & wait"),
        };
        let again = format!("{WELL}; exit 1");
        for (name, script, policy, limits) in [
            ("again", &again, "OnFailure", json!({"backoffLimit": 1})),
            ("late", &trap, "Never", json!({"backoffLimit": 0, "activeDeadlineSeconds": 4})),
        ] {
            let mut spec = makes(script, json!({"name": name}));
            spec["output"]["writeOnFailure"] = json!(true);
            let job = &mut spec["template"]["spec"];
            let pod = &mut job["template"]["spec"];
            pod["restartPolicy"] = json!(policy);
            pod["terminationGracePeriodSeconds"] = json!(10);
            job.as_object_mut().unwrap().extend(limits.as_object().unwrap().clone());
            town.create(name, spec).await;
        }
        // A kubelet of 1.20 that is busy removes a container before it has said how it ended: then nobody can know. And the
        // time may be over before anything began.
        let says = |run: &Value, words: &str| {
            run["message"].as_str().is_some_and(|message| message.contains(words))
        };
        for (name, reason) in [("again", "BackoffLimitExceeded"), ("late", "DeadlineExceeded")] {
            let mut run = town.ended(name, 1).await;
            for next in 2..9 {
                let never_began = name == "late" && says(&run, "no pod that ended is there");
                if never_began {
                    let spec = json!({"template": {"spec": {"activeDeadlineSeconds": 4 * next}}});
                    town.patch(name, json!({ "spec": spec })).await;
                }
                if never_began || says(&run, "ContainerStatusUnknown") {
                    town.trigger(name, "now").await;
                    run = town.ended(name, next).await;
                }
            }
            assert_eq!((&run["reason"], &run["made"]), (&json!(reason), &json!([name])), "{run}");
            assert_eq!(town.data(name).await["foo"], "1");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_an_output_is_said_and_the_job_is_kept() {
    let town = Town::new("wrong").await;
    for (name, script, reason, words) in [
        ("missing", "true", "OutputMissing", "o.json"),
        ("broken", "echo '{' > /mnt/quarks/o.json", "OutputInvalid", "not JSON"),
        ("typed", "echo '{\"k\": 1}' > /mnt/quarks/o.json", "OutputInvalid", "a number"),
        ("large", "head -c 2097152 /dev/zero > /mnt/quarks/o.json", "OutputTooLarge", "2097152"),
    ] {
        town.create(name, makes(script, json!({"name": name}))).await;
        let run = town.ended(name, 1).await;
        assert_eq!((&run["succeeded"], &run["reason"]), (&json!(false), &json!(reason)), "{run}");
        let message = run["message"].as_str().unwrap();
        assert!(message.contains("container c: o.json") && message.contains(words), "{run}");
        assert!(town.secret(name).await.is_none());
    }
    assert_eq!(town.batch_jobs().await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_strings_or_null_and_others_become_their_json_where_the_spec_says_so() {
    let town = Town::new("values").await;
    let script = r#"echo '{"s": "t", "none": null}' > /mnt/quarks/o.json"#;
    town.create("null", makes(script, json!({"name": "null"}))).await;
    let script = r#"echo '{"n": 12345678901234567890.10, "l": [1, "a"]}' > /mnt/quarks/o.json"#;
    let mut others = makes(script, json!({"name": "others"}));
    others["output"]["stringifyValues"] = json!(true);
    town.create("others", others).await;
    for (name, expected) in [
        ("null", [("none", ""), ("s", "t")]),
        ("others", [("l", r#"[1, "a"]"#), ("n", "12345678901234567890.10")]),
    ] {
        let run = town.ended(name, 1).await;
        assert_eq!(run["succeeded"], true, "{run}");
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(town.data(name).await, expected.into(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_floods_or_is_no_text_or_no_program_ends_as_what_it_is() {
    let flood = format!(
        "head -c 11000000 /dev/zero | tr '\\0' x; head -c 3000000 /dev/zero | tr '\\0' y >&2; {WELL}"
    );
    for town in both_ways("floods").await {
        for (name, script, reason, words) in [
            ("flood", &*flood, "Completed", ""),
            ("no-text", NO_TEXT, "OutputInvalid", "not UTF-8"),
        ] {
            town.create(name, makes(script, json!({"name": name}))).await;
            let run = town.ended(name, 1).await;
            assert_eq!(run["reason"], reason, "{run}");
            assert!(run["message"].as_str().unwrap_or_default().contains(words), "{run}");
        }
        let mut spec = makes("", json!({"name": "made"}));
        let container = &mut spec["template"]["spec"]["template"]["spec"]["containers"][0];
        container["command"] = json!(["/no/such/program"]);
        town.create("no-program", spec).await;
        let begun = town.until("no-program", "named", |it| {
            let said = it["status"].to_string();
            said.contains("/no/such/program") || it["status"]["lastRun"]["succeeded"] == false
        });
        let said = begun.await["status"].to_string();
        assert!(said.contains("container c"), "{said}");
        let long = "n".repeat(253);
        town.create(&long, makes(WELL, json!({"name": long}))).await;
        assert_eq!(town.ended(&long, 1).await["made"], json!([long]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_somebody_else_is_left_alone_and_that_is_said() {
    let town = Town::new("foreign").await;
    town.config_map("owner", "1").await;
    let owner = town.cluster.api::<ConfigMap>().get("owner").await.unwrap();
    town.make_secret(json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"theirs": "1"},
        "metadata": {"name": "owned", "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "controller": true,
            "uid": owner.metadata.uid,
        }]},
    }))
    .await;
    // As most write it by hand, and many operators.
    town.make_secret(json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"theirs": "1"},
        "metadata": {"name": "beside", "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid,
        }]},
    }))
    .await;
    town.make_secret(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fixed"},
        "immutable": true, "stringData": {"theirs": "1"},
    }))
    .await;
    let another = "belongs to another";
    for (name, words) in [("owned", another), ("beside", another), ("fixed", "immutable")] {
        town.create(name, makes(WELL, json!({"name": name}))).await;
        let run = town.ended(name, 1).await;
        assert_eq!(run["reason"], "SecretRefused", "{run}");
        assert!(run["message"].as_str().unwrap().contains(words), "{run}");
        assert_eq!(town.data(name).await["theirs"], "1");
    }
}

/// What is known of a Secret may be old: it is written as it was judged, or judged again.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_became_somebody_elses_just_before_it_is_written_is_left_alone() {
    let mut town = Town::still("adopted").await;
    town.config_map("owner", "1").await;
    let owner = town.cluster.api::<ConfigMap>().get("owner").await.unwrap().metadata.uid.unwrap();
    town.make_secret(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "made"},
        "stringData": {"theirs": "1"},
    }))
    .await;
    let (base, secrets) = (town.cluster.client.clone(), town.cluster.api::<Secret>());
    let adopted = Arc::new(tokio::sync::OnceCell::new());
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (base, secrets, adopted) = (base.clone(), secrets.clone(), Arc::clone(&adopted));
        let owner = owner.clone();
        async move {
            if request.method() == "PUT" && request.uri().path().ends_with("/secrets/made") {
                let adopt = || async {
                    let owners = json!([{
                        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner,
                        "controller": true,
                    }]);
                    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
                    secrets.patch("made", &PatchParams::default(), &patch).await.unwrap()
                };
                adopted.get_or_init(adopt).await;
            }
            base.send(request).await
        }
    });
    let namespace = town.cluster.namespace.clone();
    town.start_with(kube::Client::new(service, namespace)).await;
    town.create("a", makes(WELL, json!({"name": "made"}))).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["reason"], "SecretRefused", "{run}");
    assert!(run["message"].as_str().unwrap().contains("belongs to another"), "{run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_comes_by_the_log_and_nobody_can_read_it_there() {
    let town = Town::new("large").await;
    let script = r#"p=$(head -c 300000 /dev/zero | tr '\0' p)
        echo "{\"k\": \"planted-$p\"}" > /mnt/quarks/o.json; echo done; printf '\377\n'; seq 1 3000"#;
    town.create("a", makes(script, json!({"name": "large"}))).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["succeeded"], true, "{run}");
    assert_eq!(town.data("large").await["k"].len(), 300_008);
    let pod = town.pods().await.remove(0);
    let log = town.cluster.api::<k8s_openapi::api::core::v1::Pod>();
    // What is printed may be no text.
    let mut read = Vec::new();
    let name = pod.metadata.name.clone().unwrap();
    let mut log = Box::pin(log.log_stream(&name, &Default::default()).await.unwrap());
    log.read_to_end(&mut read).await.unwrap();
    assert!(read.starts_with(b"done\n"), "{:?}", &read[..200]);
    assert!(read.contains(&0xff), "the runtime keeps what is no text");
    assert!(!String::from_utf8_lossy(&read).contains("planted"));
    assert!(!serde_json::to_string(&pod.status).unwrap().contains("planted"));
}

/// A kubelet that has just begun says of each pod that there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_is_waited_for_where_a_kubelet_does_not_know_of_the_pod_yet() {
    let mut town = Town::still("large-late").await;
    let (proxy, client) = proxied(&town.cluster, Plan::calm()).await;
    proxy.lose_logs(true);
    town.start_with(client).await;
    let script =
        r#"p=$(head -c 300000 /dev/zero | tr '\0' p); echo "{\"k\": \"$p\"}" > /mnt/quarks/o.json"#;
    town.create("a", makes(script, json!({"name": "large"}))).await;
    let said = "its kubelet may have just begun";
    town.until("a", "told of", |it| it["status"].to_string().contains(said)).await;
    proxy.lose_logs(false);
    let run = town.ended("a", 1).await;
    assert_eq!(run["succeeded"], true, "{run}");
    assert_eq!(town.data("large").await["k"].len(), 300_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_edited_in_mid_run_is_of_the_next() {
    let town = Town::new("edited").await;
    let begun = makes(&format!("sleep 4; {WELL}"), json!({"name": "first"}));
    town.create("a", begun.clone()).await;
    town.has_a_pod().await;
    let mut edited = begun;
    edited["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = json!("renamed");
    edited["output"]["outputMap"] =
        json!({"c": null, "renamed": {"more.json": {"name": "second"}}});
    edited["trigger"]["strategy"] = json!("done");
    town.patch("a", json!({"spec": edited})).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["first"])), "{run}");
    assert_eq!(town.data("first").await["bar"], "baz");
}
