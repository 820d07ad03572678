//! A QuarksJob from its creation to its end: what it is edited to, what is shown of it, and what goes with it.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::DeleteParams;
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::harness::{Town, pod, spec};
use super::output::makes;

/// By now a further run would have begun.
const SOON: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn its_job_and_its_pods_are_marked_and_owned_as_the_originals_had_them() {
    let mut town = Town::new("marked").await;
    for (dialect, group, of_job, of_pod) in [
        (Dialect::QuarksJob, "quarks", ("qjob-name", "quarks-a"), ("qjob-name", "quarks-a")),
        (Dialect::ExtendedJob, "fissile", ("extendedjob", "true"), ("ejob-name", "fissile-a")),
    ] {
        town.dialect = dialect;
        let name = format!("{group}-a");
        town.create(
            &name,
            match dialect {
                Dialect::QuarksJob => spec("once", &pod("sleep 600")),
                Dialect::ExtendedJob => json!({
                    "trigger": {"strategy": "once"}, "template": {"spec": pod("sleep 600")},
                }),
            },
        )
        .await;
        let is_its = |it: &&Value| {
            it["metadata"]["ownerReferences"][0]["name"] == name.as_str()
                || it["metadata"]["name"].as_str().unwrap().starts_with(&name)
        };
        let jobs = timeout(Duration::from_secs(60), async {
            loop {
                let (jobs, pods) = (town.batch_jobs().await, town.pods().await);
                let all = json!([jobs, pods]);
                let of = |at: usize| all[at].as_array().unwrap().iter().find(is_its).cloned();
                match (of(0), of(1)) {
                    (Some(job), Some(pod)) => return [job, pod],
                    _ => sleep(Duration::from_millis(100)).await,
                }
            }
        });
        let [job, pod] = jobs.await.expect("it runs");
        let label = |of: &Value, label: &str| {
            of["metadata"]["labels"][format!("{group}.cloudfoundry.org/{label}")].clone()
        };
        assert_eq!(label(&job, of_job.0), of_job.1, "{job:#}");
        assert_eq!(label(&pod, of_pod.0), of_pod.1, "{pod:#}");
        let uid = town.jobs().get(&name).await.unwrap().metadata.uid;
        let owner = json!([{
            "apiVersion": dialect.api_version(), "kind": dialect.kind(), "name": name, "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(job["metadata"]["ownerReferences"], owner);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strategy_that_is_edited_is_a_trigger_if_it_is_one() {
    let town = Town::new("edited").await;
    for (name, edits, runs, left) in [
        ("told-after-once", &["once", "now"][..], 2, "manual"),
        ("once-after-manual", &["manual", "once"], 1, "done"),
        ("once-after-now", &["now", "once"], 2, "done"),
        ("now-after-done", &["done", "now"], 1, "manual"),
        ("once-after-once", &["once", "once"], 1, "done"),
        ("once-after-once-and-now", &["once", "now", "once"], 2, "done"),
        ("done-after-manual", &["manual", "done"], 0, "done"),
        ("manual-after-once", &["once", "manual"], 1, "manual"),
        ("now-and-now", &["now", "now"], 2, "manual"),
    ] {
        town.create(name, spec(edits[0], &pod("true"))).await;
        for edit in &edits[1..] {
            // Each was taken before the next is said.
            let taken = |it: &Value| {
                let strategy = &it["spec"]["trigger"]["strategy"];
                strategy != "now" && (strategy != "once" || it["status"]["completed"] == true)
            };
            town.until(name, "taken", taken).await;
            town.trigger(name, edit).await;
        }
        if runs > 0 {
            town.ended(name, runs).await;
        }
        let is = |it: &Value| it["spec"]["trigger"]["strategy"] == left;
        // Said again, it is done as soon as it writes anything: until then it says what somebody wrote.
        if !matches!(edits, ["once", "once"] | ["once", "now", "once"]) {
            town.until(name, "as it is left", is).await;
        }
        sleep(Duration::from_millis(500)).await;
        assert_eq!(town.runs(name).await as u64, runs, "{name}");
    }
    sleep(SOON).await;
    assert_eq!(town.batch_jobs().await.len(), 0);
}

/// One whose first run has left a version, and whose second goes on.
async fn in_mid_run(town: &Town) -> Value {
    let script = r#"echo '{"k": "v"}' > /mnt/quarks/o.json; [ -z "$LONG" ] || sleep 600"#;
    let mut spec = makes(script, json!({"name": "made", "versioned": true}));
    town.create("a", spec.clone()).await;
    town.ended("a", 1).await;
    let container = &mut spec["template"]["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "LONG", "value": "yes"}]);
    spec["trigger"]["strategy"] = json!("now");
    town.patch("a", json!({"spec": spec})).await;
    town.one_runs("a").await;
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_deleted_in_mid_run_takes_all_along_and_may_be_made_anew() {
    for (name, params, is_away, wraps) in [
        ("background", DeleteParams::background(), false, true),
        ("foreground", DeleteParams::foreground(), false, true),
        ("nobody-looks", DeleteParams::background(), true, true),
        ("beside-it", DeleteParams::background(), false, false),
    ] {
        let mut town = Town::still(&format!("deleted-{name}")).await;
        town.settings.wraps = wraps;
        town.start().await;
        let mut again = in_mid_run(&town).await;
        assert!(town.secret("made-v1").await.is_some());
        if is_away {
            town.kill();
        }
        town.jobs().delete("a", &params).await.unwrap();
        town.no_jobs().await;
        // Pods of runs that are over stay, for their logs.
        let goes_on = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let gone = async {
            while town.secret("made-v1").await.is_some() || town.pods().await.iter().any(goes_on) {
                sleep(Duration::from_millis(100)).await;
            }
        };
        let gone = timeout(Duration::from_secs(60), gone).await;
        assert!(gone.is_ok(), "{name}: something stays, {:#?}", town.pods().await);
        if is_away {
            town.start().await;
        }
        sleep(SOON).await;
        let left: Vec<Secret> = town.list().await;
        let left: Vec<_> = left.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
        assert!(!left.iter().any(|it| it.starts_with("made")), "{name}: {left:?}");
        // Another of its name has had no runs.
        again["trigger"]["strategy"] = json!("once");
        again["template"]["spec"]["template"]["spec"]["containers"][0]["env"] = json!([]);
        town.create("a", again).await;
        let run = town.ended("a", 1).await;
        assert_eq!(
            (&run["succeeded"], &run["made"]),
            (&json!(true), &json!(["made-v1"])),
            "{name}"
        );
    }
}

/// What `kubectl get qjob` shows: by column, of each by its name.
async fn shown(town: &Town) -> Value {
    let path = format!(
        "/apis/{}/namespaces/{}/quarksjobs",
        town.dialect.api_version(),
        town.cluster.namespace
    );
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let request = http::Request::get(path).header("accept", table).body(Vec::new()).unwrap();
    let table: Value = town.cluster.client.request(request).await.unwrap();
    let columns = table["columnDefinitions"].as_array().unwrap();
    let row = |row: &Value| {
        let cells = row["cells"].as_array().unwrap().iter();
        let named = columns.iter().zip(cells);
        let named = named
            .map(|(column, cell)| (column["name"].as_str().unwrap().to_lowercase(), cell.clone()));
        let named: serde_json::Map<String, Value> = named.collect();
        (row["object"]["metadata"]["name"].as_str().unwrap().to_owned(), Value::Object(named))
    };
    let rows = table["rows"].as_array().unwrap().iter().map(row);
    Value::Object(rows.collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_of_it_says_whether_it_ran_why_not_and_what_it_made() {
    let town = Town::new("shown").await;
    let well = r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#;
    town.create("well", makes(well, json!({"name": "made"}))).await;
    town.create("failed", spec("once", &pod("exit 3"))).await;
    let mut waits = pod("true");
    waits["containers"][0]["envFrom"] = json!([{"secretRef": {"name": "late"}}]);
    town.create("waits", spec("now", &waits)).await;
    town.create("errand", spec("manual", &pod("true"))).await;
    town.ended("well", 1).await;
    town.ended("failed", 1).await;
    town.until("waits", "told so", |it| it["status"].to_string().contains("secret/late")).await;
    let shown = shown(&town).await;
    for (name, completed, strategy, last, made, waits) in [
        ("well", json!(true), "done", json!("Completed"), json!("[\"made\"]"), Value::Null),
        ("failed", json!(false), "done", json!("BackoffLimitExceeded"), Value::Null, Value::Null),
        ("waits", Value::Null, "now", Value::Null, Value::Null, json!("it waits for secret/late")),
        ("errand", Value::Null, "manual", Value::Null, Value::Null, Value::Null),
    ] {
        let row = &shown[name];
        for (column, expected) in [
            ("completed", completed),
            ("strategy", json!(strategy)),
            ("last", last),
            ("made", made),
            ("waits", waits),
        ] {
            // A server shows nothing as nothing, or as an empty word.
            let found = &row[column];
            let same = *found == expected || expected.is_null() && found == "";
            assert!(same, "{name}, {column}: {found} for {expected}, {row:#}");
        }
    }
    let said = shown["failed"]["message"].as_str().unwrap();
    assert!(said.starts_with("container c exited with 3"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_is_counted() {
    let town = Town::new("counted").await;
    let counts = town.counts();
    assert_eq!((counts.known, counts.going, counts.started), (0, 0, 0));
    town.create("well", spec("once", &pod("true"))).await;
    town.create("failed", spec("once", &pod("exit 3"))).await;
    town.create("goes-on", spec("once", &pod("sleep 600"))).await;
    town.ended("well", 1).await;
    town.ended("failed", 1).await;
    town.one_runs("goes-on").await;
    let counts = town.counts();
    let found = (counts.known, counts.going, counts.started, counts.succeeded, counts.failed);
    assert_eq!(found, (3, 1, 3, 1, 1), "{counts:?}");
    assert_eq!(counts.calls_failed, 0, "{counts:?}");
    // A quota lets no Job in.
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"count/jobs.batch": "0"}}});
    let quota: k8s_openapi::api::core::v1::ResourceQuota = serde_json::from_value(quota).unwrap();
    let quotas = town.cluster.api::<k8s_openapi::api::core::v1::ResourceQuota>();
    quotas.create(&Default::default(), &quota).await.unwrap();
    town.create("refused", spec("once", &pod("true"))).await;
    let refused = async {
        while town.counts().calls_failed == 0 {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(60), refused).await.expect("a refused call is counted");
}
