//! A namespace, a server over it, and what the API server counts.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use engine::ports::Store;
use engine::testing::store_contract::sample;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kubernetes::resources::Kind;
use kubernetes::{Client, KubernetesStore, StoreSettings};
use osb::Sensitive;
use serde_json::{Value, json};
use testkit::cluster::{apply, kubectl};

const BROKER: &str = r#"#!/bin/sh
case $1 in
catalog) echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
    "plans":[{"id":"p","name":"small","description":"d"}]}]}' ;;
*) echo '{}' ;;
esac
"#;

/// How often it is asked whether an order is carried out, which costs the API server nothing.
const POLL: Duration = Duration::from_millis(5);

/// How many writes are under way at once.
const WRITERS: usize = 32;

/// A namespace with a broker, removed at the end.
pub(crate) struct Town {
    pub(crate) namespace: String,
    folder: tempfile::TempDir,
}

impl Town {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("bench-{}-{count}", std::process::id());
        apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        kubernetes::definitions().iter().for_each(apply);
        apply(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "script", "namespace": namespace},
            "data": {"broker": BROKER},
        }));
        let town = Self { namespace, folder: tempfile::tempdir().unwrap() };
        let script = json!({"name": "script", "defaultMode": 0o555});
        let mount = json!({"name": "script", "mountPath": "/bin/broker", "subPath": "broker"});
        let settings = json!({
            "listen": "127.0.0.1:0",
            "auth": {"disabled": true},
            "log": {"format": "json"},
            "kubernetes": {
                "namespace": town.namespace,
                "image": testkit::cluster::SHELL_IMAGE,
                "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
                "pod": {"volumes": [{"name": "script", "configMap": script}], "volumeMounts": [mount]},
            },
        });
        std::fs::write(town.folder.path().join("manciple.yaml"), settings.to_string()).unwrap();
        town
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        // The finalizers go first: nobody serves here any more.
        let_go(&self.namespace);
        let gone =
            kubectl().args(["delete", "namespace", &self.namespace, "--wait=false"]).status();
        assert!(gone.unwrap().success());
    }
}

/// Writes settled instances as a server would have.
pub(crate) fn fill(namespace: &str, count: usize) {
    if count == 0 {
        return;
    }
    with_client(async |client| {
        let broker = "broker".to_owned();
        let settings = StoreSettings { namespace: namespace.to_owned(), broker };
        let store = KubernetesStore::open(client, settings).await.unwrap();
        let write = async |n| {
            let mut record = sample(&format!("settled-{n}"));
            let parameters = json!({"size": n}).as_object().unwrap().clone();
            record.ordered.parameters = Sensitive::new(parameters);
            store.write(Arc::new(record), None).await.unwrap();
        };
        stream::iter(0..count).for_each_concurrent(WRITERS, write).await;
    });
}

/// Takes the finalizers from all instances.
fn let_go(namespace: &str) {
    with_client(async |client| {
        let kind = Kind::ServiceInstance.resource();
        let instances: Api<DynamicObject> = Api::namespaced_with(client, namespace, &kind);
        let found = instances.list_metadata(&ListParams::default()).await.unwrap();
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let let_go = async |name: String| {
            instances.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        };
        let names = found.items.into_iter().filter_map(|found| found.metadata.name);
        stream::iter(names).for_each_concurrent(WRITERS, let_go).await;
    });
}

/// How long a Job takes that runs the broker's script as it is, from its creation until it is complete.
pub(crate) fn bare(namespace: &str, name: &str) -> Duration {
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": {"spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "broker",
                "image": testkit::cluster::SHELL_IMAGE,
                "command": ["/bin/broker", "provision"],
                "volumeMounts": [{"name": "script", "mountPath": "/bin/broker", "subPath": "broker"}],
            }],
            "volumes": [{"name": "script", "configMap": {"name": "script", "defaultMode": 0o555}}],
        }}},
    }))
    .unwrap();
    with_client(async |client| {
        let jobs: Api<Job> = Api::namespaced(client, namespace);
        let begun = Instant::now();
        let made = jobs.create(&PostParams::default(), &job).await.unwrap();
        let of = WatchParams::default().fields(&format!("metadata.name={name}"));
        let version = made.metadata.resource_version.unwrap();
        let mut events = jobs.watch(&of, &version).await.unwrap().boxed();
        while let Some(event) = events.next().await {
            let WatchEvent::Modified(job) = event.unwrap() else { continue };
            let conditions = job.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|it| it.type_ == "Complete" && it.status == "True") {
                break;
            }
        }
        let took = begun.elapsed();
        jobs.delete(name, &DeleteParams::background()).await.unwrap();
        took
    })
}

fn with_client<T>(work: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let kubeconfig = testkit::cluster::kubeconfig().unwrap_or_else(|why| panic!("{why}"));
        work(kubernetes::client(Some(&kubeconfig)).await.unwrap()).await
    })
}

/// A server process.
pub(crate) struct Server {
    child: Child,
    address: String,
}

impl Server {
    pub(crate) fn start(town: &Town) -> Self {
        let binary = std::env::var_os("SERVE_BINARY");
        let mut command =
            Command::new(binary.unwrap_or_else(|| env!("CARGO_BIN_EXE_manciple").into()));
        command.args(["serve", "--config"]).arg(town.folder.path().join("manciple.yaml"));
        command.env("KUBECONFIG", testkit::cluster::kubeconfig().unwrap());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = String::new();
        let address = loop {
            let Some(Ok(line)) = lines.next() else { panic!("the server ended: {said}") };
            said += &line;
            if let Some((_, rest)) = line.split_once(r#""address":""#) {
                break rest.split('"').next().unwrap().to_owned();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// Waits until it is ready.
    pub(crate) fn ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !self.ask("GET", "/readyz", "").starts_with("HTTP/1.1 200") {
            assert!(Instant::now() < deadline, "never ready");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Provisions an instance, and waits for it.
    pub(crate) fn order(&self, instance: &str, body: &Value) {
        let path = format!("/v2/service_instances/{instance}");
        let answer = self.ask("PUT", &format!("{path}?accepts_incomplete=true"), &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let body: Value = serde_json::from_str(body).unwrap();
        // With its token, as a platform has to: without, what was asked for last is looked up.
        let last =
            format!("{path}/last_operation?operation={}", body["operation"].as_str().unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.ask("GET", &last, "").contains("succeeded") {
            assert!(Instant::now() < deadline, "{instance} was not made");
            std::thread::sleep(POLL);
        }
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-broker-api-version: 2.17\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A line of `/proc/PID/status`, in MB: millions of bytes.
    pub(crate) fn memory(&self, line: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let kib = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
        kib.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<f64>().unwrap()
            * 1.024e-3
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often the API server was asked what Manciple asks, by verb and resource. What its own controllers and
/// the kubelet ask too (reading pods, Secrets and Jobs, writing their status) is left out.
pub(crate) fn calls() -> BTreeMap<String, u64> {
    let output = kubectl().args(["get", "--raw", "/metrics"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut calls = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
        let label = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name}=\""))?;
            Some(rest.split('"').next()?.to_owned())
        };
        let (Some(verb), Some(resource)) = (label("verb"), label("resource")) else { continue };
        // Kubernetes' own controllers look at all kinds, and have their answers in protobuf; ours are JSON.
        if label("contentType").is_some_and(|spoken| spoken.contains("protobuf")) {
            continue;
        }
        let ours = match resource.as_str() {
            "serviceinstances" | "servicebindings" | "brokers" | "secrets" | "configmaps"
            | "jobs" | "pods" | "events" => verb != "WATCH",
            _ => false,
        };
        if ours {
            let part = label("subresource").filter(|part| !part.is_empty());
            let what = part.map_or(resource.clone(), |part| format!("{resource}/{part}"));
            let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            *calls.entry(format!("{verb} {what}")).or_default() += count as u64;
        }
    }
    calls
}
