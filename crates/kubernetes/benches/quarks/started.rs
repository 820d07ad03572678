//! From a trigger to its Job, from the end of a pod to its Secret, and a thousand at once; pods run nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, pin_mut, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kubernetes::Client;
use serde_json::{Value, json};
use testkit::kubelet::{JobAct, Kubelet};
use testkit::plane::ControlPlane;

use crate::process::{
    Process, create, is_completed, load, median, namespace, resources, until_over,
};

const ONE_AT_A_TIME: usize = 40;
const MANY: usize = 1000;
const AT_ONCE: usize = 16;

/// When something was first seen, by name.
pub(crate) type Seen = Arc<Mutex<HashMap<String, Instant>>>;

pub(crate) async fn bench() {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
    namespace(&client, "home", false).await;
    namespace(&client, "bench", true).await;
    namespace(&client, "bare", false).await;
    let script = |_: &str| JobAct {
        begins: Duration::ZERO,
        lasts: Duration::from_millis(50),
        ends: Duration::ZERO,
        code: 0,
        output: r#"{"k": "v"}"#.to_owned(),
    };
    let _kubelet = Kubelet::start_jobs(client.clone(), "bench", Arc::new(script));
    let process = Process::start(&plane.kubeconfig(), "home", "bench").await;
    one_at_a_time(&client).await;
    again(&client).await;
    let before = process.cpu();
    many(&client).await;
    println!(
        "  CPU of the controller: {:.2} ms a run",
        (process.cpu() - before) * 1000.0 / MANY as f64
    );
}

async fn one_at_a_time(client: &Client) {
    let jobs = watch::<Job>(client, "bench", |job| Some(stem(job.metadata.name.as_deref()?)));
    let pods = watch::<Pod>(client, "bench", |pod| {
        let ended = pod.status.as_ref()?.phase.as_deref()? == "Succeeded";
        let name = pod.metadata.labels.as_ref()?.get("quarks.cloudfoundry.org/qjob-name")?;
        ended.then(|| name.clone())
    });
    let secrets = watch::<Secret>(client, "bench", |secret| secret.metadata.name.clone());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (mut triggered, mut kept) = (Vec::new(), Vec::new());
    for count in 0..ONE_AT_A_TIME {
        let name = format!("one{count}");
        let begun = Instant::now();
        create(client, "bench", &name, spec(&name)).await;
        triggered.push(seen(&jobs, &name).await.saturating_duration_since(begun));
        let secret = seen(&secrets, &name).await;
        kept.push(secret.saturating_duration_since(seen(&pods, &name).await));
    }
    let ((first, first_most), (last, last_most)) = (median(triggered), median(kept));
    println!("one at a time, {ONE_AT_A_TIME} times; load {}", load());
    println!("  creation to Job: {first:.1?} at the median, {first_most:.1?} at most");
    println!("  end of the pod to Secret: {last:.1?} at the median, {last_most:.1?} at most");
}

/// Each of them once more: it is completed, and told to run now.
async fn again(client: &Client) {
    // Of the Jobs that are there, too, something is heard when they go.
    let jobs = watch::<Job>(client, "bench", |job| {
        let is_new = job.status.as_ref().is_none_or(|status| status.start_time.is_none());
        (is_new && job.metadata.deletion_timestamp.is_none())
            .then(|| stem(job.metadata.name.as_deref().unwrap_or_default()))
    });
    let resources = resources(client, "bench");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut triggered = Vec::new();
    for count in 0..ONE_AT_A_TIME {
        let name = format!("one{count}");
        let now = Patch::Merge(json!({"spec": {"trigger": {"strategy": "now"}}}));
        let begun = Instant::now();
        resources.patch(&name, &PatchParams::default(), &now).await.unwrap();
        triggered.push(seen(&jobs, &name).await.saturating_duration_since(begun));
        while !is_completed(&resources.get(&name).await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let (first, most) = median(triggered);
    println!(
        "  `now` of one that is completed to its Job: {first:.1?} at the median, {most:.1?} at most"
    );
}

async fn many(client: &Client) {
    let bare = Instant::now();
    let job = |n: usize| async move {
        let job = json!({
            "metadata": {"name": format!("bare-{n}")},
            "spec": {"template": {"spec": pod()}},
        });
        let job: Job = serde_json::from_value(job).unwrap();
        let jobs: Api<Job> = Api::namespaced(client.clone(), "bare");
        jobs.create(&PostParams::default(), &job).await.unwrap();
    };
    stream::iter(0..MANY).for_each_concurrent(AT_ONCE, job).await;
    let bare = bare.elapsed();
    let made = watch::<Job>(client, "bench", |job| Some(stem(job.metadata.name.as_deref()?)));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    let order = |n: usize| async move {
        let name = format!("many{n}");
        create(client, "bench", &name, spec(&name)).await;
    };
    stream::iter(0..MANY).for_each_concurrent(AT_ONCE, order).await;
    let created = begun.elapsed();
    let started = loop {
        let jobs = made.lock().unwrap().keys().filter(|name| name.starts_with("many")).count();
        if jobs == MANY {
            break begun.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    until_over(&resources(client, "bench"), MANY + ONE_AT_A_TIME, is_completed).await;
    let ended = begun.elapsed();
    println!("{MANY} of `once`; load {}", load());
    println!("  bare Jobs created: {bare:.1?}; QuarksJobs created: {created:.1?}");
    println!("  all have their Jobs: {started:.1?}; all completed, output kept: {ended:.1?}");
}

fn pod() -> Value {
    json!({
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "none", "command": ["none"]}],
    })
}

fn spec(secret: &str) -> Value {
    json!({
        "trigger": {"strategy": "once"},
        "template": {"spec": {"backoffLimit": 0, "template": {"spec": pod()}}},
        "output": {"outputMap": {"c": {"o.json": {"name": secret}}}},
    })
}

fn stem(job: &str) -> String {
    job.rsplit_once('-').map_or(job, |(stem, _)| stem).to_owned()
}

pub(crate) fn watch<K>(client: &Client, namespace: &str, name: fn(&K) -> Option<String>) -> Seen
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    let seen = Seen::default();
    let (tell, api) = (Arc::clone(&seen), Api::<K>::namespaced(client.clone(), namespace));
    tokio::spawn(async move {
        let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version;
        let events = api.watch(&WatchParams::default(), &version.unwrap()).await.unwrap();
        pin_mut!(events);
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event
                && let Some(name) = name(&object)
            {
                tell.lock().unwrap().entry(name).or_insert_with(Instant::now);
            }
        }
    });
    seen
}

pub(crate) async fn seen(seen: &Seen, name: &str) -> Instant {
    loop {
        if let Some(at) = seen.lock().unwrap().get(name) {
            return *at;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
