//! What thousands of QuarksJobs take, while there is much outside of their namespace, and what a change of a
//! configuration costs.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kubernetes::Client;
use kubernetes::quarks::Dialect;
use serde_json::json;
use testkit::plane::ControlPlane;

use crate::process::{Process, create, load, median, namespace};

const OUTSIDE: usize = 5000;
const BYTES: usize = 10 * 1024;
/// Fewer first, to see what does not depend on how many there are.
const JOBS: [usize; 2] = [500, 5000];
/// So many refer to each configuration.
const REFER: usize = 10;
/// Configurations that are changed to others refer to.
const USED: usize = 5;
const CHANGES: usize = 300;
const AT_ONCE: usize = 16;
/// As many runs as a status has.
const HISTORY: usize = 10;

pub(crate) async fn bench() {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
    for (name, monitored) in
        [("home", false), ("outside", false), ("inside", true), ("empty", true)]
    {
        namespace(&client, name, monitored).await;
    }
    let process = Process::start(&plane.kubeconfig(), "home", "empty").await;
    let nothing = process.memory();
    drop(process);
    fill_outside(&client).await;
    println!(
        "of no QuarksJob {:.1} MB; {} objects of {BYTES} bytes elsewhere",
        nothing.0,
        2 * OUTSIDE
    );
    let mut there = 0;
    for jobs in JOBS {
        fill(&client, there..jobs).await;
        measure(&client, &plane, jobs).await;
        there = jobs;
    }
    have_run(&client, there).await;
    let process = Process::start(&plane.kubeconfig(), "home", "inside").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (now, most) = process.memory();
    println!(
        "{there} QuarksJobs, each with the last {HISTORY} of its runs in its status: resident {now:.1} MB, at most {most:.1}"
    );
}

/// Writes what the status of each says after many runs.
async fn have_run(client: &Client, jobs: usize) {
    let write = |n: usize| async move {
        let ended = (1..=HISTORY).rev().map(|id| {
            json!({
                "id": id, "trigger": "config-change", "job": format!("job-{n}-0123456789abcdef"),
                "succeeded": true, "reason": "Completed", "message": "all of it is done",
                "startedAt": "2026-01-01T00:00:00Z", "endedAt": "2026-01-01T00:00:10Z", "seconds": 10,
                "made": [format!("s-{n}")], "template": "0123456789abcdef",
            })
        });
        let history: Vec<_> = ended.collect();
        let last = history[0].clone();
        let status = json!({"completed": true, "lastRun": last, "history": history});
        let resources: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), "inside", &Dialect::QuarksJob.resource());
        let (name, params) = (format!("job-{n}"), PatchParams::default());
        let patch = Patch::Merge(json!({"status": status}));
        resources.patch_status(&name, &params, &patch).await.unwrap();
    };
    stream::iter(0..jobs).for_each_concurrent(AT_ONCE, write).await;
}

/// With so many there; those of before have had their Jobs.
async fn measure(client: &Client, plane: &ControlPlane, there: usize) {
    let begun = Instant::now();
    let process = Process::start(&plane.kubeconfig(), "home", "inside").await;
    let ready = begun.elapsed();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (now, most) = process.memory();
    println!("{there} QuarksJobs; load {}", load());
    println!("  known after {ready:.1?}; resident {now:.1} MB, at most {most:.1}");
    let idle = cost(&process, async { tokio::time::sleep(Duration::from_secs(10)).await }).await;
    let unused = cost(&process, change(client, "unused")).await;
    println!("  10 s of nothing: {:.0} ms CPU", idle * 1000.0);
    println!("  a change that nobody refers to: {:.3} ms CPU", unused * 1000.0 / CHANGES as f64);
    let mut took = Vec::new();
    let used = cost(&process, async {
        // The last ones: nobody has changed them before.
        for config in (there / REFER - USED)..(there / REFER) {
            let before = jobs(client).await;
            set(client, &format!("config-{config}"), "new").await;
            let begun = Instant::now();
            while jobs(client).await < before + REFER {
                assert!(begun.elapsed() < Duration::from_secs(60), "it has not had its Jobs");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            took.push(begun.elapsed());
        }
    })
    .await;
    let (took, most) = median(took);
    println!(
        "  a change that {REFER} refer to, {USED} times: {:.1} ms CPU; all Jobs after {took:.1?}, {most:.1?} at most",
        used * 1000.0 / USED as f64
    );
}

async fn jobs(client: &Client) -> usize {
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(client.clone(), "inside");
    jobs.list_metadata(&Default::default()).await.unwrap().items.len()
}

async fn cost(process: &Process, work: impl Future<Output = ()>) -> f64 {
    let before = process.cpu();
    work.await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    process.cpu() - before
}

async fn fill_outside(client: &Client) {
    let text = "x".repeat(BYTES);
    let outside = |n: usize| {
        let text = text.clone();
        async move {
            let name = format!("o-{n}");
            let map = json!({"metadata": {"name": name}, "data": {"k": text}});
            let map: ConfigMap = serde_json::from_value(map).unwrap();
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "outside");
            maps.create(&PostParams::default(), &map).await.unwrap();
            let secret = json!({"metadata": {"name": name}, "stringData": {"k": text}});
            let secret: Secret = serde_json::from_value(secret).unwrap();
            let secrets: Api<Secret> = Api::namespaced(client.clone(), "outside");
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        }
    };
    stream::iter(0..OUTSIDE).for_each_concurrent(AT_ONCE, outside).await;
}

async fn fill(client: &Client, jobs: Range<usize>) {
    let configs = jobs.start / REFER..jobs.end / REFER;
    stream::iter(configs)
        .for_each_concurrent(
            AT_ONCE,
            |n| async move { set(client, &format!("config-{n}"), "0").await },
        )
        .await;
    let job = |n: usize| async move {
        let pod = json!({
            "restartPolicy": "Never",
            "containers": [{
                "name": "c", "image": "none", "command": ["/bin/sh", "-c", "echo something to do"],
                "envFrom": [{"configMapRef": {"name": format!("config-{}", n / REFER)}}],
            }],
        });
        let spec = json!({
            "trigger": {"strategy": "done"},
            "updateOnConfigChange": true,
            "template": {"spec": {"template": {"spec": pod}}},
            "output": {"outputMap": {"c": {"o.json": {"name": format!("s-{n}")}}}},
        });
        create(client, "inside", &format!("job-{n}"), spec).await;
    };
    stream::iter(jobs).for_each_concurrent(AT_ONCE, job).await;
}

async fn set(client: &Client, name: &str, value: &str) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value},
    });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "inside");
    let params = PatchParams::apply("bench").force();
    maps.patch(name, &params, &Patch::Apply(&map)).await.unwrap();
}

async fn change(client: &Client, name: &str) {
    for value in 0..CHANGES {
        set(client, name, &value.to_string()).await;
    }
}
