//! Jobs that somebody has made to look like a run's: whoever may make Jobs in a namespace may not thereby have Secrets
//! written, runs counted, or the work of a run taken away.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::harness::{PATIENCE, Town, pod, spec};
use super::support::wait;

const WELL: &str = r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#;

/// A run's Job, made again under another name with these annotations changed.
async fn copied(town: &Town, job: &Job, name: &str, annotations: &Value) {
    let mut copy = serde_json::to_value(job).unwrap();
    let metadata = &job.metadata;
    copy["metadata"] = json!({
        "name": name, "labels": metadata.labels, "annotations": metadata.annotations,
        "ownerReferences": metadata.owner_references,
    });
    let noted = copy["metadata"]["annotations"].as_object_mut().unwrap();
    noted.extend(annotations.as_object().unwrap().clone());
    // What a server sets itself.
    copy["status"].take();
    copy["spec"]["selector"].take();
    let labels = copy["spec"]["template"]["metadata"]["labels"].as_object_mut().unwrap();
    labels.retain(|label, _| label != "controller-uid" && label != "job-name");
    let copy: Job = serde_json::from_value(copy).unwrap();
    town.cluster.api::<Job>().create(&PostParams::default(), &copy).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_looks_like_the_job_of_a_run_is_none_unless_it_was_made_as_one() {
    let town = Town::new("forged").await;
    let mut spec = spec("once", &pod(WELL));
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "made"}}}});
    spec["successfulJobsHistoryLimit"] = json!(5);
    town.create("a", spec).await;
    assert_eq!(town.ended("a", 1).await["made"], json!(["made"]));
    town.make_secret(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "victim"},
        "stringData": {"password": "p"},
    }))
    .await;
    let jobs: Api<Job> = town.cluster.api();
    let job = jobs.list(&ListParams::default()).await.unwrap().items.remove(0);
    let written_to = json!({"outputMap": {"c": {"o.json": {"name": "victim"}}}}).to_string();
    let forgeries = [
        ("by-hand", json!({})),
        (
            "next",
            json!({"manciple.dev/run-id": "2", "manciple.dev/spec": "x", "manciple.dev/output": written_to}),
        ),
        ("last", json!({"manciple.dev/run-id": "9223372036854775807"})),
        ("inherited", json!({"manciple.dev/run-id": "3", "manciple.dev/inherited": "true"})),
    ];
    for (name, annotations) in &forgeries {
        copied(&town, &job, name, annotations).await;
    }
    for (name, _) in &forgeries {
        wait::until(&format!("{name} is never over"), PATIENCE, async || {
            let status = jobs.get(name).await.unwrap().status;
            let ended = status.as_ref().and_then(|it| it.succeeded.or(it.failed));
            if ended.is_some() { Ok(()) } else { Err(status) }
        })
        .await;
    }
    town.trigger("a", "now").await;
    assert_eq!(town.ended("a", 2).await["succeeded"], true, "it goes on");
    assert_eq!(town.runs("a").await, 2, "none of these was a run");
    assert_eq!(town.data("victim").await, [("password".to_owned(), "p".to_owned())].into());
    for (name, _) in &forgeries {
        assert!(jobs.get_opt(name).await.unwrap().is_some(), "{name} is not ours to delete");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_jobs_name_is_taken_fails_and_says_so() {
    let mut town = Town::still("taken").await;
    town.create("a", spec("manual", &pod("true"))).await;
    town.start().await;
    town.trigger("a", "now").await;
    let first = town.ended("a", 1).await["job"].as_str().unwrap().to_owned();
    town.no_jobs().await;
    // Whoever knows the uid knows the next name.
    let uid = town.jobs().get("a").await.unwrap().metadata.uid.unwrap();
    let owner = json!([{
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob", "name": "a",
        "uid": uid, "controller": true,
    }]);
    let next = next_name(&first, &uid);
    let foreign = json!({
        "metadata": {
            "name": next, "ownerReferences": owner,
            "labels": {"manciple.dev/triggered": "QuarksJob"},
            "annotations": {"manciple.dev/run-id": "2"},
        },
        "spec": {"template": {"spec": pod("true")}},
    });
    let foreign: Job = serde_json::from_value(foreign).unwrap();
    town.cluster.api::<Job>().create(&PostParams::default(), &foreign).await.unwrap();
    town.trigger("a", "now").await;
    let end = town.ended("a", 2).await;
    assert_eq!(end["reason"], "JobTaken", "{end}");
    let said = end["message"].as_str().unwrap();
    assert!(said.contains(&next) && said.contains("not ours: delete it"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_goes_on_when_its_key_is_lost_ends_and_says_so() {
    let mut town = Town::new("proofless").await;
    town.create("a", spec("once", &pod("sleep 600"))).await;
    let jobs: Api<Job> = town.cluster.api();
    wait::until("it has no run", PATIENCE, async || {
        town.batch_jobs().await.pop().map(drop).ok_or("no Job")
    })
    .await;
    town.kill();
    let secrets: Api<Secret> = town.cluster.api();
    for secret in secrets.list(&ListParams::default()).await.unwrap() {
        let name = secret.metadata.name.unwrap();
        if name.starts_with("digests-") {
            secrets.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    }
    town.start().await;
    let end = town.ended("a", 1).await;
    assert_eq!(end["reason"], "JobTaken", "{end}");
    let name = jobs.list(&ListParams::default()).await.unwrap().items.remove(0).metadata.name;
    assert!(end["message"].as_str().unwrap().contains(&name.unwrap()), "{end}");
    // It has run for `once`, for all that anybody knows.
    town.patch("a", json!({"spec": {"trigger": {"strategy": "once"}}})).await;
    town.patch("a", json!({"spec": {"trigger": {"strategy": "now"}}})).await;
    let record = async || {
        let annotations = town.jobs().get("a").await.unwrap().metadata.annotations;
        annotations.unwrap_or_default().remove("manciple.dev/runs").unwrap_or_default()
    };
    wait::until("its second run is not recorded", PATIENCE, async || {
        let record = record().await;
        if record.contains(r#""id":2"#) { Ok(()) } else { Err(record) }
    })
    .await;
    assert!(record().await.contains(r#""id":2,"trigger":"now""#), "{}", record().await);
}

/// The name of the Job of the second run, from that of the first.
fn next_name(first: &str, uid: &str) -> String {
    let (stem, hash) = first.rsplit_once('-').unwrap();
    let of = |run: &str| {
        let mut digest = ring::digest::Context::new(&ring::digest::SHA256);
        for part in [uid, run] {
            digest.update(&(part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        data_encoding::HEXLOWER.encode(&digest.finish().as_ref()[..8])
    };
    assert_eq!(of("1"), hash, "the rule of names");
    format!("{stem}-{}", of("2"))
}
