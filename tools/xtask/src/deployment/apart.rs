//! Two brokers apart, as the chart deploys them with all that takes a Role beside its own: their Jobs are in a
//! namespace beside the server's, and those may ask whom a Secret names, or the cluster. What the walk asks of them
//! there is what that namespace's rights are for, one by one.
//!
//! ```text
//! the server's namespace   Manciple ── Brokers one, two ── the Secret of who may ask
//!                              │
//! that of Jobs                 └─▶ what runs are given ── Jobs ── pods ── reports, in their logs if they are large
//! ```

use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::place::{PASSWORD, Place, manciple};
use crate::kubectl::{Cluster, OF_TEST};

/// A broker that is given its request in a file; for some instances it prints more than a pod's status holds, or takes
/// longer than anybody waits.
const BROKER: &str = r#"#!/bin/sh
case "$*" in
catalog*) echo '{"jobs": {"version": 2, "capabilities": ["request-file"]}, "services": [{"id": "files", "name": "files",
    "description": "d", "bindable": false, "plans": [{"id": "files-plain", "name": "plain", "description": "d"}]}]}'
    exit ;;
provision*large*) printf '{"dashboard_url": "https://dashboard.example/'
    head -c 20000 /dev/urandom | base64 -w0 | tr '+/' '-_'
    echo '"}'
    exit ;;
provision*taken* | provision*orphaned*) sleep 600 ;;
esac
echo '{}'
"#;
const BROKERS: [&str; 2] = ["one", "two"];
const RBAC: &str = "rbac.authorization.k8s.io";

/// The values with which the chart deploys this.
pub(super) fn values(jobs: &str) -> Value {
    json!({
        "replicas": 1, "brokers": "apart", "jobNamespaces": [jobs], "auth": super::access(),
    })
}

/// Runs the test, with Jobs in this namespace.
pub(super) fn test(cluster: &Cluster, jobs: &str) -> anyhow::Result<()> {
    cluster.run(&["create", "namespace", jobs])?;
    let result = Place::with(cluster, "apart", |place| {
        let result = Apart { cluster, place, jobs }.lives();
        let label = format!("{OF_TEST}={}", place.namespace());
        cluster.run(&["delete", "clusterrole,clusterrolebinding", "-l", &label])?;
        result
    });
    cluster.run(&["delete", "namespace", jobs, "--wait=false"])?;
    result
}

struct Apart<'p> {
    cluster: &'p Cluster,
    place: &'p Place<'p>,
    jobs: &'p str,
}

impl Apart<'_> {
    fn lives(&self) -> anyhow::Result<()> {
        self.install()?;
        let pods = self.place.run_out(1)?;
        let forward = self.place.forward(&pods[0])?;
        for broker in BROKERS {
            self.place.until(&format!("the Broker {broker} is served"), |place| {
                let broker = place.get(&format!("brokers.manciple.dev/{broker}"))?;
                Ok(broker["status"]["conditions"][0]["reason"] == "Serving")
            })?;
        }
        let url = format!("{}/brokers/one", forward.url);
        for name in ["shop", "large"] {
            order(&url, name, &[])?;
            let state = operation(&url, name)?["state"].take();
            ensure!(state == "succeeded", "{name}: {state}");
        }
        self.a_pod_is_taken_away(&url)?;
        self.a_job_is_taken_away_and_its_pod_stays(&url)?;
        for name in ["shop", "large", "taken"] {
            manciple(&url, &["deprovision", name])?;
        }
        self.is_asked_by_others(&url)?;
        self.place.until("nothing is left of what ran", |_| {
            let all = self.there(&["get", "jobs,pods", "-o", "name"])?;
            let ours = "app.kubernetes.io/managed-by=manciple";
            let given = self.there(&["get", "secrets", "-l", ours, "-o", "name"])?;
            Ok(all.trim().is_empty() && given.trim().is_empty())
        })?;
        let log = self.place.run(&["logs", "deployment/manciple", "--tail=-1"])?;
        let missing = log.lines().find(|line| line.contains("is forbidden"));
        ensure!(missing.is_none(), "it has not all the rights that it needs: {missing:?}");
        Ok(())
    }

    fn install(&self) -> anyhow::Result<()> {
        let home = self.place.namespace();
        let secret = |name: &str, data: Value| {
            json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": home},
                "stringData": data,
            })
        };
        let passwords = json!({"platform.password": PASSWORD, "operator.password": PASSWORD});
        let script = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "script", "namespace": self.jobs}, "data": {"broker": BROKER},
        });
        let mut all = vec![
            secret("manciple-credentials", passwords),
            secret("cf", json!({"username": "cf", "password": PASSWORD})),
            script,
        ];
        all.extend(super::objects_in(home, &values(self.jobs))?);
        all.extend(BROKERS.map(|name| broker(home, name, self.jobs)));
        all.extend(client(home));
        self.cluster.install(home, all.into_iter())
    }

    /// kubectl, in the namespace of Jobs.
    fn there(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.cluster.run(&[&["-n", self.jobs], arguments].concat())
    }

    /// The pod that works for an instance.
    fn worker(&self, instance: &str) -> anyhow::Result<Option<Value>> {
        let found = self.there(&["get", "pods", "-o", "json"])?;
        let found: Value = serde_json::from_str(&found)?;
        let mut pods = found["items"].as_array().into_iter().flatten();
        let works = |pod: &&Value| {
            pod["metadata"]["annotations"]["manciple.dev/instance-id"] == instance
                && pod["status"]["phase"] == "Running"
        };
        Ok(pods.find(works).cloned())
    }

    /// Orders an instance that takes its time, and waits until a pod works for it.
    fn works(&self, url: &str, instance: &str) -> anyhow::Result<Value> {
        order(url, instance, &["--no-wait"])?;
        let what = format!("a pod works for {instance}");
        self.place.until(&what, |_| Ok(self.worker(instance)?.is_some()))?;
        self.worker(instance)?.with_context(|| format!("the pod of {instance} is gone"))
    }

    /// Tests a pod that is taken away: the server looks whether its whole namespace is deleted, and the Job makes no
    /// other pod.
    fn a_pod_is_taken_away(&self, url: &str) -> anyhow::Result<()> {
        let pod = self.works(url, "taken")?;
        let name = pod["metadata"]["name"].as_str().context("a pod has a name")?;
        self.there(&["delete", "pod", name, "--wait=false"])?;
        self.place.until("an order whose pod is taken away has failed", |_| {
            Ok(operation(url, "taken")?["state"] == "failed")
        })
    }

    /// Tests a Job that is taken away while its pod stays: there is no Job that could be told to end the pod.
    fn a_job_is_taken_away_and_its_pod_stays(&self, url: &str) -> anyhow::Result<()> {
        let pod = self.works(url, "orphaned")?;
        let job = pod["metadata"]["labels"]["job-name"].as_str().context("a pod has a Job")?;
        self.there(&["delete", "job", job, "--cascade=orphan"])?;
        ensure!(self.worker("orphaned")?.is_some(), "the pod has gone with its Job");
        manciple(url, &["deprovision", "orphaned"]).map(drop)
    }

    /// Tests requests of users that a Secret names, and of those whom the cluster lets ask, by a token that it knows.
    fn is_asked_by_others(&self, url: &str) -> anyhow::Result<()> {
        let catalog = format!("{url}/v2/catalog");
        let status = asked(&catalog, &["--user", &format!("cf:{PASSWORD}")])?;
        ensure!(status == "200", "whom a Secret names is answered {status}");
        let bearer = format!("Authorization: Bearer {}", self.token()?);
        // Rights are heard of a moment late, and a refusal holds for a while.
        self.place.until("whom the cluster lets ask is answered", |_| {
            Ok(asked(&catalog, &["--header", &bearer])? == "200")
        })?;
        let status = asked(&format!("{url}/admin/v1/instances"), &["--header", &bearer])?;
        ensure!(status == "403", "what the cluster lets nobody ask is answered {status}");
        Ok(())
    }

    /// A token of the account `client`.
    fn token(&self) -> anyhow::Result<String> {
        let home = self.place.namespace();
        let path = format!("/api/v1/namespaces/{home}/serviceaccounts/client/token");
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {},
        });
        let file = crate::built("token-request.json")?;
        std::fs::write(&file, request.to_string())?;
        let file = file.to_str().context("the name of a file")?;
        let made = self.cluster.run(&["create", "--raw", &path, "-f", file])?;
        let made: Value = serde_json::from_str(&made)?;
        Ok(made["status"]["token"].as_str().context("a token")?.to_owned())
    }
}

/// A `Broker` with its executable in a ConfigMap beside its Jobs.
fn broker(home: &str, name: &str, jobs: &str) -> Value {
    let pod = json!({
        "volumes": [{"name": "script", "configMap": {"name": "script", "defaultMode": 0o555}}],
        "volumeMounts": [{"name": "script", "mountPath": "/bin/broker", "subPath": "broker"}],
    });
    json!({
        "apiVersion": "manciple.dev/v1alpha1", "kind": "Broker",
        "metadata": {"name": name, "namespace": home},
        "spec": {
            "image": testkit::cluster::SHELL_IMAGE, "namespace": jobs, "grace": "1s",
            "keepFailed": "0s", "pod": pod,
        },
    })
}

/// An account that may read the catalogs of brokers, by the cluster's word.
fn client(home: &str) -> [Value; 3] {
    let (name, version) = (format!("{home}-client"), format!("{RBAC}/v1"));
    [
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "client", "namespace": home},
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"nonResourceURLs": ["/brokers/one/v2/*"], "verbs": ["get"]}],
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "client", "namespace": home}],
        }),
    ]
}

/// Orders an instance with parameters, which go into a file of its run.
fn order(url: &str, name: &str, further: &[&str]) -> anyhow::Result<()> {
    let order = ["provision", "files", "plain", name, "--parameters", r#"{"size": 1}"#];
    manciple(url, &[&order[..], further].concat()).map(drop)
}

fn operation(url: &str, name: &str) -> anyhow::Result<Value> {
    let said = manciple(url, &["status", name, "-o", "json"])?;
    Ok(serde_json::from_str::<Value>(&said)?["operation"].take())
}

/// The status of the answer to a request with these credentials.
fn asked(url: &str, who: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("curl")
        .args(["--silent", "--output", "/dev/null", "--write-out", "%{http_code}"])
        .args(["--max-time", "60", "--header", "X-Broker-API-Version: 2.17"])
        .args(who)
        .arg(url)
        .output()?;
    Ok(String::from_utf8(output.stdout)?)
}
