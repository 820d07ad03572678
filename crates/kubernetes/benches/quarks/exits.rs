//! From the end of a container on real pods to the Secret with what it has left, one at a time; and how much of that it
//! is until Kubernetes says so of the container, and of one of a bare Job.
//!
//! Each writes when it ends, by the clock that the machine has for all of its containers, in hundredths of a second.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Namespace, Pod, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::process::{Process, create, load, median};
use crate::started::{Seen, seen, watch};
use crate::support::Cluster;

const TIMES: usize = 20;

pub(crate) async fn bench() {
    println!("ends of containers on real pods, one at a time, {TIMES} times; load {}", load());
    let cluster = Cluster::new("quarks-exits").await;
    let labels = json!({"metadata": {"labels": {
        "quarks.cloudfoundry.org/monitored": cluster.namespace,
    }}});
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    let params = PatchParams::default();
    namespaces.patch(&cluster.namespace, &params, &Patch::Merge(labels)).await.unwrap();
    let watches = Watches::of(&cluster);
    tokio::time::sleep(Duration::from_secs(1)).await;
    bare(&cluster, &watches).await;
    for sidecar in [false, true] {
        with_output(&cluster, &watches, sidecar).await;
    }
    cluster.remove().await;
}

/// When they were seen, by name.
struct Watches {
    ended: Seen,
    secrets: Seen,
}

impl Watches {
    fn of(cluster: &Cluster) -> Self {
        let (client, namespace) = (&cluster.client, &cluster.namespace);
        let ended = watch::<Pod>(client, namespace, |pod| {
            end(pod)?;
            pod.metadata.labels.as_ref()?.get("bench").cloned()
        });
        let secrets = watch::<Secret>(client, namespace, |secret| secret.metadata.name.clone());
        Self { ended, secrets }
    }
}

/// How the container of the template has ended.
fn end(pod: &Pod) -> Option<&ContainerStateTerminated> {
    let mut containers = pod.status.as_ref()?.container_statuses.iter().flatten();
    containers.find(|it| it.name == "c")?.state.as_ref()?.terminated.as_ref()
}

fn template(name: &str, script: &str) -> Value {
    json!({
        "metadata": {"labels": {"bench": name}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "c", "image": testkit::cluster::SHELL_IMAGE,
                "command": ["/bin/sh", "-c", format!("read up rest < /proc/uptime; {script}")],
            }],
        },
    })
}

/// How long the machine had run then.
fn uptime_at(then: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/uptime").unwrap();
    let now: f64 = text.split_whitespace().next().unwrap().parse().unwrap();
    Duration::from_secs_f64(now).saturating_sub(then.elapsed())
}

fn since(ended: &str, then: Instant) -> Duration {
    uptime_at(then).saturating_sub(Duration::from_secs_f64(ended.parse().unwrap()))
}

fn say(what: &str, times: Vec<Duration>) {
    let (median, most) = median(times);
    println!("  {what}: {median:.0?} at the median, {most:.0?} at most");
}

async fn bare(cluster: &Cluster, watches: &Watches) {
    let mut told = Vec::new();
    for count in 0..TIMES {
        let name = format!("bare-{count}");
        let job = json!({
            "metadata": {"name": name},
            "spec": {"template": template(&name, "printf %s $up > /dev/termination-log")},
        });
        let job: Job = serde_json::from_value(job).unwrap();
        cluster.api::<Job>().create(&PostParams::default(), &job).await.unwrap();
        let at = seen(&watches.ended, &name).await;
        let pods = cluster.api::<Pod>();
        let pods =
            pods.list(&kube::api::ListParams::default().labels(&format!("bench={name}"))).await;
        let ended = end(&pods.unwrap().items[0]).unwrap().message.clone().unwrap();
        told.push(since(&ended, at));
    }
    say("a bare one, until Kubernetes says so", told);
}

async fn with_output(cluster: &Cluster, watches: &Watches, sidecar: bool) {
    let (client, namespace) = (&cluster.client, &cluster.namespace);
    let kubeconfig = testkit::cluster::kubeconfig().unwrap();
    let process = Process::start_with(&kubeconfig, namespace, namespace, sidecar).await;
    let (mut told, mut kept) = (Vec::new(), Vec::new());
    for count in 0..TIMES {
        let name = format!("{}-{count}", if sidecar { "beside" } else { "wrapped" });
        let script = r#"echo "{\"up\": \"$up\"}" > /mnt/quarks/o.json"#;
        let spec = json!({
            "trigger": {"strategy": "once"},
            "template": {"spec": {"template": template(&name, script)}},
            "output": {"outputMap": {"c": {"o.json": {"name": name}}}},
        });
        create(client, namespace, &name, spec).await;
        let at = seen(&watches.secrets, &name).await;
        let secret = cluster.api::<Secret>().get(&name).await.unwrap();
        let ended = String::from_utf8(secret.data.unwrap().remove("up").unwrap().0).unwrap();
        kept.push(since(&ended, at));
        told.push(since(&ended, seen(&watches.ended, &name).await));
    }
    let how = if sidecar { "with a sidecar" } else { "wrapped" };
    say(&format!("{how}, until Kubernetes says so"), told);
    say(&format!("{how}, until its Secret is there"), kept);
    drop(process);
}
