use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kubernetes::quarks::Monitored;
use serde_json::{Value, json};
use testkit::processor::Processor;
use tokio::time::sleep;

use super::harness::{PATIENCE, Town, pod, spec};
use super::support::wait;

/// How late a Job may be on a busy machine, in whole seconds; the original's comes after ten.
const LATE: i64 = 7;

fn is_completed(object: &Value) -> bool {
    object["status"]["completed"] == true
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_to_run_once_runs_at_once_and_is_done() {
    let town = Town::new("once").await;
    town.create("a", spec("once", &pod("echo hello"))).await;
    let object = town.until("a", "completed", is_completed).await;
    assert_eq!(object["spec"]["trigger"]["strategy"], "done");
    let last = &object["status"]["lastRun"];
    assert_eq!(
        (&last["id"], &last["trigger"], &last["reason"]),
        (&json!(1), &json!("once"), &json!("Completed"))
    );
    // RFC 3339, in whole seconds.
    let reconciled = object["status"]["lastReconcile"].as_str().unwrap();
    assert!(
        reconciled.parse::<jiff::Timestamp>().is_ok() && reconciled.len() == 20,
        "{reconciled}"
    );
    assert_eq!(object["spec"]["template"]["backoffLimit"], 2, "what is not known stays");
    town.no_jobs().await;
    let pods = town.pods().await;
    assert_eq!(pods.len(), 1, "it stays, for its log");
    assert_eq!(pods[0].metadata.labels.as_ref().unwrap()["quarks.cloudfoundry.org/qjob-name"], "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_has_its_job_at_once() {
    let town = Town::new("at-once").await;
    let mut spec = spec("once", &pod("true"));
    // It stays, and says when it was made.
    spec["successfulJobsHistoryLimit"] = json!(1);
    town.create("a", spec).await;
    town.until("a", "completed", is_completed).await;
    let job = town.batch_jobs().await.pop().unwrap().metadata.creation_timestamp.unwrap();
    let resource = town.jobs().get("a").await.unwrap().metadata.creation_timestamp.unwrap();
    let seconds = job.0.as_second() - resource.0.as_second();
    assert!(seconds <= LATE, "it began after {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_errand_runs_each_time_that_it_is_told_to() {
    let town = Town::new("errand").await;
    town.create("a", spec("manual", &pod("true"))).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(town.batch_jobs().await.len(), 0, "nobody has told it to");
    for run in 1..=2 {
        town.trigger("a", "now").await;
        assert_eq!(town.ended("a", run).await["succeeded"], true);
        let object = town
            .until("a", "manual again", |it| it["spec"]["trigger"]["strategy"] == "manual")
            .await;
        assert!(is_completed(&object));
    }
    town.no_jobs().await;
    assert_eq!(town.pods().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_in_whatever_way_its_strategy_comes_to_be() {
    let town = Town::new("ways").await;
    town.create("created-now", spec("now", &pod("true"))).await;
    town.create("done-once", spec("done", &pod("true"))).await;
    town.create("done-now", spec("done", &pod("true"))).await;
    town.create("stays-done", spec("done", &pod("true"))).await;
    town.trigger("done-once", "once").await;
    town.trigger("done-now", "now").await;
    for (name, strategy) in
        [("created-now", "manual"), ("done-once", "done"), ("done-now", "manual")]
    {
        assert_eq!(town.ended(name, 1).await["succeeded"], true, "{name}");
        assert_eq!(town.get(name).await["spec"]["trigger"]["strategy"], strategy, "{name}");
    }
    assert_eq!(town.runs("stays-done").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_fails_is_kept_and_says_why() {
    let town = Town::new("fails").await;
    town.create("a", spec("once", &pod("exit 3"))).await;
    let run = town.ended("a", 1).await;
    assert_eq!(
        (&run["succeeded"], &run["reason"]),
        (&json!(false), &json!("BackoffLimitExceeded"))
    );
    assert!(run["message"].as_str().unwrap().starts_with("container c exited with 3; "), "{run}");
    let object = town.get("a").await;
    assert!(!is_completed(&object));
    let jobs = town.batch_jobs().await;
    assert_eq!(jobs.len(), 1, "for somebody to look at");
    assert_eq!(jobs[0].metadata.name.as_deref(), run["job"].as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_one_that_was_completed_takes_that_back() {
    let town = Town::new("again").await;
    town.create("a", spec("once", &pod("true"))).await;
    town.until("a", "completed", is_completed).await;
    let script = json!({"spec": {"template": {"spec": {"template": {"spec": pod("sleep 2")}}}}});
    town.patch("a", script).await;
    town.trigger("a", "now").await;
    let object =
        town.until("a", "triggered", |it| it["spec"]["trigger"]["strategy"] == "manual").await;
    assert!(!is_completed(&object), "{object:#}");
    let succeeded = |object: &Value| {
        let mut conditions = object["status"]["conditions"].as_array().unwrap().iter();
        conditions.find(|it| it["type"] == "Succeeded").unwrap()["status"].clone()
    };
    assert_eq!(succeeded(&object), "Unknown", "whoever waits for it waits for this run");
    let object = town.until("a", "completed", is_completed).await;
    assert_eq!(succeeded(&object), "True");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_pods_go_with_a_job_that_says_so() {
    let town = Town::new("pods-go").await;
    let mut spec = spec("once", &pod("true"));
    spec["template"]["spec"]["template"]["metadata"] = json!({"labels": {"delete": "pod"}});
    town.create("a", spec).await;
    town.until("a", "completed", is_completed).await;
    town.no_jobs().await;
    // The original's own tests look at once, and once.
    assert_eq!(town.pods().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn d12_a_job_of_several_completions_ends_with_the_last() {
    let town = Town::new("d12").await;
    let mut spec = spec("once", &pod("true"));
    spec["template"]["spec"]["completions"] = json!(3);
    town.create("a", spec).await;
    town.until("a", "completed", is_completed).await;
    assert_eq!(town.pods().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn d17_long_and_dotted_names_run() {
    let town = Town::new("d17").await;
    let dotted = format!("{}.{}", "a".repeat(38), "b".repeat(60));
    town.create(&dotted, spec("once", &pod("true"))).await;
    town.until(&dotted, "completed", is_completed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_is_none_is_said_to_be_none() {
    let town = Town::new("refused").await;
    let mut refused = pod("true");
    refused["restartPolicy"] = json!("Always");
    town.create("refused", spec("once", &refused)).await;
    town.create("empty", json!({"trigger": {"strategy": "once"}})).await;
    town.create("typed", spec("once", &json!({"containers": [{"name": 1}]}))).await;
    town.create("text", json!({"trigger": {"strategy": "once"}, "template": {"spec": "x"}})).await;
    let mut kept = spec("once", &pod("true"));
    kept["template"]["spec"]["ttlSecondsAfterFinished"] = json!("x");
    town.create("kept", kept).await;
    for (name, reason, words) in [
        ("text", "TemplateInvalid", "spec.template.spec: has to be an object"),
        ("kept", "TemplateInvalid", "ttlSecondsAfterFinished: has to be a whole number"),
        ("refused", "JobRefused", "restartPolicy"),
        ("empty", "TemplateInvalid", "spec.template.spec"),
        ("typed", "TemplateInvalid", "spec.template"),
    ] {
        let run = town.ended(name, 1).await;
        assert_eq!(run["reason"], reason, "{run}");
        assert!(run["message"].as_str().unwrap().contains(words), "{run}");
    }
    // Applied again as it was, nothing runs; mended, it does; and then it has run.
    let told = |word: &str| json!({"trigger": {"strategy": word}});
    town.patch("refused", json!({"spec": told("once")})).await;
    town.patch("refused", json!({"spec": told("now")})).await;
    let run = town.ended("refused", 2).await;
    assert_eq!((&run["trigger"], &run["reason"]), (&json!("now"), &json!("JobRefused")));
    let mut mended = told("once");
    mended["template"]["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    town.patch("refused", json!({"spec": mended})).await;
    let run = town.ended("refused", 3).await;
    assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("once"), &json!(true)));
    // Whoever mends the template alone need not say it again: `once` has not run.
    let mut mended = json!({"template": {"spec": {"ttlSecondsAfterFinished": null}}});
    mended["trigger"]["inputs"] = json!([{"name": "TOLD", "value": "anew"}]);
    town.patch("kept", json!({"spec": mended})).await;
    let run = town.ended("kept", 2).await;
    assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("once"), &json!(true)));
    let kept = town.get("kept").await;
    let trigger = json!({"strategy": "done"});
    assert_eq!(kept["spec"]["trigger"], trigger, "what it was told was for that run: {kept}");
    let other = json!({"template": {"spec": {"backoffLimit": 1}}});
    town.patch("kept", json!({"spec": other})).await;
    town.patch("refused", json!({"spec": told("once")})).await;
    town.patch("refused", json!({"spec": told("now")})).await;
    assert_eq!(town.ended("refused", 4).await["trigger"], "now");
    let kept = town.get("kept").await;
    assert_eq!(kept["status"]["lastRun"]["id"], 2, "it has run for once: {kept}");
}

/// As Helm renders what has no value.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_with_null_where_a_value_would_be_runs() {
    let town = Town::new("nulls").await;
    let mut pod = pod("true");
    pod["nodeSelector"] = json!(null);
    pod["containers"][0]["resources"] = json!({"limits": {"cpu": null}, "requests": null});
    pod["containers"][0]["env"] = json!([{"name": "A", "value": null}]);
    let mut spec = spec("once", &pod);
    let annotations = json!({"annotations": {"checksum": null}, "labels": null});
    spec["template"]["metadata"] = annotations.clone();
    spec["template"]["spec"]["template"]["metadata"] = annotations;
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["succeeded"], true, "{run}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_replaced_in_mid_run_is_not_run_again_for_once() {
    let town = Town::new("replaced").await;
    town.create("a", spec("once", &pod("sleep 4"))).await;
    town.until("a", "triggered", |it| it["spec"]["trigger"]["strategy"] == "done").await;
    town.has_a_pod().await;
    // As `kubectl replace` does with the manifest: what is not in it is gone.
    let bare =
        json!({"metadata": {"annotations": null}, "spec": {"trigger": {"strategy": "once"}}});
    town.patch("a", bare).await;
    let run = town.ended("a", 1).await;
    assert_eq!((&run["succeeded"], &run["trigger"]), (&json!(true), &json!("once")), "{run}");
    assert_ne!(run["startedAt"], json!(null), "{run}");
    town.no_jobs().await;
    assert_eq!(town.runs("a").await, 1);
}

/// As clients do that write back what they know of it: no annotation of ours, and then what it refers to.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_mid_run_is_run_for_though_the_record_was_removed_with_it() {
    let town = Town::new("rewritten").await;
    town.config_map("m", "1").await;
    let mut pod = pod("sleep 10");
    pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "m"}}]);
    let mut spec = spec("once", &pod);
    spec["updateOnConfigChange"] = json!(true);
    town.create("a", spec).await;
    town.has_a_pod().await;
    town.config_map("m", "2").await;
    town.patch("a", json!({"metadata": {"annotations": null}})).await;
    let second = town.ended("a", 2).await;
    assert_eq!(second["trigger"], "config-change", "{second}");
    town.no_jobs().await;
    assert_eq!(town.runs("a").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_somebody_deletes_is_lost_and_not_run_again() {
    let town = Town::new("lost").await;
    town.create("a", spec("once", &pod("sleep 600"))).await;
    town.has_a_pod().await;
    let job = town.batch_jobs().await.remove(0).metadata.name.unwrap();
    let jobs = town.cluster.api::<k8s_openapi::api::batch::v1::Job>();
    jobs.delete(&job, &DeleteParams::background()).await.unwrap();
    assert_eq!(town.ended("a", 1).await["reason"], "Lost");
    // By now another would have been begun.
    sleep(Duration::from_secs(3)).await;
    assert_eq!(town.batch_jobs().await.len(), 0);
    assert_eq!(town.runs("a").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn triggers_that_meet_a_run_do_as_the_policy_says() {
    let town = Town::new("policy").await;
    for policy in ["Allow", "Forbid", "Queue", "Replace"] {
        let name = policy.to_lowercase();
        let mut spec = spec("now", &pod("sleep 4"));
        spec["concurrencyPolicy"] = json!(policy);
        town.create(&name, spec).await;
        town.until(&name, "triggered", |it| it["spec"]["trigger"]["strategy"] == "manual").await;
        town.trigger(&name, "now").await;
    }
    let queues = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut messages = conditions.into_iter().flatten().map(|it| &it["message"]);
        messages.any(|message| message == "it waits for the end of run 1")
    };
    town.until("queue", "told", queues).await;
    // How the runs ended, the newest first, and whether the second was begun before the first had ended.
    for (name, expected, is_beside) in [
        ("allow", vec!["Completed", "Completed"], true),
        ("forbid", vec!["Completed"], false),
        ("queue", vec!["Completed", "Completed"], false),
        ("replace", vec!["Completed", "Replaced"], false),
    ] {
        town.ended(name, expected.len() as u64).await;
        let object = town.until(name, "completed", is_completed).await;
        let history = object["status"]["history"].as_array().unwrap();
        let reasons: Vec<_> = history.iter().map(|run| run["reason"].as_str().unwrap()).collect();
        assert_eq!(reasons, expected, "{name}");
        if let [second, first] = history.as_slice() {
            let (begun, ended) = (second["startedAt"].as_str(), first["endedAt"].as_str());
            assert_eq!(begun.unwrap() < ended.unwrap(), is_beside, "{name}: {object:#}");
        }
        assert_eq!(object["spec"]["trigger"]["strategy"], "manual", "{name}");
    }
    town.no_jobs().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_cannot_begin_is_said_to_be_one_and_waited_for() {
    let town = Town::new("trouble").await;
    let mut pod = pod("true");
    pod["containers"][0]["image"] = json!("manciple.test/there-is-none:1");
    pod["containers"][0]["imagePullPolicy"] = json!("Never");
    town.create("a", spec("once", &pod)).await;
    let waits = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut waiting = conditions.into_iter().flatten().filter(|it| it["type"] == "Waiting");
        waiting.any(|it| {
            it["message"]
                .as_str()
                .unwrap_or_default()
                .ends_with("container c: the image manciple.test/there-is-none:1 cannot be pulled")
        })
    };
    town.until("a", "in trouble", waits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_says_how_long_it_is_kept_is_kept_until_its_run_is_settled() {
    let mut town = Town::new("ttl").await;
    let mut spec = spec("once", &pod("exit 1"));
    spec["template"]["spec"]["ttlSecondsAfterFinished"] = json!(0);
    town.create("a", spec).await;
    while town.batch_jobs().await.is_empty() {
        sleep(Duration::from_millis(50)).await;
    }
    town.kill();
    sleep(Duration::from_secs(4)).await;
    town.start().await;
    assert_eq!(town.ended("a", 1).await["reason"], "BackoffLimitExceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_applied_again_and_says_once_runs_once() {
    let town = Town::new("applied").await;
    town.create("a", spec("once", &pod("true"))).await;
    town.until("a", "completed", is_completed).await;
    town.trigger("a", "once").await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(town.runs("a").await, 1);
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 2).await["trigger"], "now");
    // One that ran under the original operator, of which nothing is left but its status.
    town.create("before", spec("done", &pod("true"))).await;
    let status = kube::api::Patch::Merge(json!({"status": {"completed": true}}));
    town.jobs().patch_status("before", &Default::default(), &status).await.unwrap();
    town.trigger("before", "once").await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(town.runs("before").await, 0);
}

/// The original wants both labels; with a setting the first will do.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_monitored_by_both_labels_or_where_that_is_set_by_one() {
    let mut town = Town::still("labels").await;
    let id = town.cluster.namespace.clone();
    let without =
        json!({"metadata": {"labels": {"quarks.cloudfoundry.org/qjob-service-account": null}}});
    let namespaces = Api::<Namespace>::all(town.cluster.client.clone());
    namespaces.patch(&id, &PatchParams::default(), &Patch::Merge(without)).await.unwrap();
    town.create("a", spec("once", &pod("true"))).await;
    town.start().await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(town.get("a").await["spec"]["trigger"]["strategy"], "once", "one label is missing");
    town.kill();
    town.settings.monitored = Monitored::Marked(id);
    town.start().await;
    assert_eq!(town.ended("a", 1).await["succeeded"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_loses_its_label_is_left_as_it_is_until_it_has_it_again() {
    let town = Town::new("unlabelled").await;
    let id = town.cluster.namespace.clone();
    let namespaces = Api::<Namespace>::all(town.cluster.client.clone());
    let label = async |value: Value| {
        let labels = json!({"metadata": {"labels": {"quarks.cloudfoundry.org/monitored": value}}});
        namespaces.patch(&id, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    };
    town.create("a", spec("once", &pod("true"))).await;
    town.ended("a", 1).await;
    label(Value::Null).await;
    // It hears of that by a watch.
    wait::until("it never hears of it", PATIENCE, async || {
        let counts = town.counts();
        if counts.known == 0 { Ok(()) } else { Err(counts) }
    })
    .await;
    town.trigger("a", "now").await;
    town.create("b", spec("once", &pod("true"))).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(town.get("a").await["spec"]["trigger"]["strategy"], "now", "it is not looked at");
    assert_eq!(town.get("b").await["status"], Value::Null);
    label(json!(id)).await;
    assert_eq!(town.ended("a", 2).await["trigger"], "now");
    assert_eq!(town.ended("b", 1).await["trigger"], "once");
}

/// The original came to it after ten seconds at the earliest.
#[tokio::test(flavor = "multi_thread")]
async fn what_says_now_or_once_starts_at_once() {
    let town = Town::new("at-once").await;
    // So that it leads, and knows what there is.
    town.create("first", spec("once", &pod("true"))).await;
    town.ended("first", 1).await;
    town.no_jobs().await;
    for (count, strategy) in [(1, "once"), (2, "now")] {
        let begun = Processor::now();
        town.create(strategy, spec(strategy, &pod("sleep 60"))).await;
        while town.batch_jobs().await.len() < count {
            sleep(Duration::from_millis(20)).await;
        }
        let took = begun.elapsed();
        println!("{strategy}: {took:?}");
        assert!(took < Duration::from_secs(3), "{strategy}: {took:?}");
    }
}

/// What is there goes with the namespace, and the controller gets on with the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_deleted_under_a_run_takes_it_along_and_nothing_else() {
    let town = Town::new("leaves").await;
    let name = format!("{}-leaves", town.cluster.namespace);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
        "quarks.cloudfoundry.org/monitored": town.cluster.namespace,
        "quarks.cloudfoundry.org/qjob-service-account": "default",
    }}});
    let namespaces = Api::<Namespace>::all(town.cluster.client.clone());
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let mut long = spec("once", &pod("sleep 600"));
    long["output"] = json!({"outputMap": {"c": {"o.json": {"name": "made"}}}});
    let object = json!({
        "apiVersion": town.dialect.api_version(), "kind": town.dialect.kind(),
        "metadata": {"name": "a"}, "spec": long,
    });
    let resource = town.dialect.resource();
    let there =
        Api::<DynamicObject>::namespaced_with(town.cluster.client.clone(), &name, &resource);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    there.create(&PostParams::default(), &object).await.unwrap();
    let pods = Api::<Pod>::namespaced(town.cluster.client.clone(), &name);
    let runs =
        |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
    wait::until("it never runs", PATIENCE, async || {
        let pods = pods.list(&ListParams::default()).await.unwrap().items;
        if pods.iter().any(runs) { Ok(()) } else { Err(pods) }
    })
    .await;
    namespaces.delete(&name, &DeleteParams::default()).await.unwrap();
    town.create("b", spec("once", &pod("true"))).await;
    assert_eq!(town.ended("b", 1).await["succeeded"], true, "while the other namespace goes");
    wait::until("the namespace stays", PATIENCE, async || {
        namespaces.get_opt(&name).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
    town.create("c", spec("once", &pod("true"))).await;
    assert_eq!(town.ended("c", 1).await["succeeded"], true, "after it went");
}
