//! Tests the deployments on a cluster: the overlays are what the chart renders and each is applied, those of the
//! examples are in no other installation's way, the rights are those that are written down and each is used, one
//! replica serves, two answer for each other and are monitored, each example of databases knows what it sells, an
//! instance lives through `examples/kubernetes`, another, of a broker that is a server of its own, through
//! `examples/operator`, another, of a template, through `examples/templates`, others by Jobs in a namespace beside
//! their brokers', Helm installs the chart and changes it, and the jobs of `examples/quarks-jobs` run, under the
//! controller's rights everywhere and in one namespace.

mod apart;
mod ha;
mod helm;
mod killed;
mod minimal;
mod monitoring;
mod place;
mod roll;
mod several;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use serde_json::{Value, json};

use self::place::Place;
use crate::images::{self, Kind};
use crate::kubectl::{self, Cluster, OF_TEST};
use crate::rights::used::{self, Install, Log};
use crate::{manifests, rights};

/// The namespaces of the controller and of its jobs, as in `examples/quarks-jobs/walk.sh`.
const WALK: [&str; 2] = ["manciple-quarks-walk", "quarks-jobs-walk"];
const QUARKS_JOBS: &str = "examples/quarks-jobs";
const OVERLAYS: &str = "deploy/overlays";

/// An overlay, the values with which the chart renders the same, and the test that applies it.
struct Overlay {
    name: &'static str,
    values: Value,
    applied: Applied,
}

/// The test that applies an overlay to the cluster, by `kubectl apply -k`.
enum Applied {
    /// This test applies the overlay in a namespace of its own.
    Alone(fn(&Place<'_>) -> anyhow::Result<()>),
    /// The walk through an example applies it: the example is an overlay on it.
    Under(&'static str),
}

fn overlays() -> Vec<Overlay> {
    let of = |name, values, applied| Overlay { name, values, applied };
    let ha = json!({"antiAffinity": true, "podDisruptionBudget": {"enabled": true}});
    let monitoring = json!({"serviceMonitor": {"enabled": true}});
    let templates = manifests::of_templates();
    vec![
        of("minimal", json!({"replicas": 1}), Applied::Alone(minimal::test)),
        of("monitoring", monitoring, Applied::Alone(monitoring::test)),
        of("ha", ha, Applied::Alone(ha::test)),
        of("controller", controller(&json!({})), Applied::Under(QUARKS_JOBS)),
        of("templates", templates, Applied::Under("examples/templates")),
    ]
}

/// Runs all tests of deployments, with programs that are built.
pub(crate) fn test(kubeconfig: &Path, kind: Kind) -> anyhow::Result<()> {
    let overlays = overlays();
    each_is_applied(&overlays)?;
    images::deployment(kind)?;
    let cluster = Cluster::of(kubeconfig);
    cluster.run(&["apply", "-k", "deploy/crds"])?;
    let namespace = format!("manciple-deployment-{}", std::process::id());
    cluster.run(&["create", "namespace", &namespace])?;
    let result = are_of_the_chart(&cluster, &namespace, &overlays)
        .and_then(|()| variants(&cluster, &namespace))
        .and_then(|()| examples(&cluster, &namespace))
        .and_then(|()| rights(&cluster, &namespace));
    cluster.run(&["delete", "namespace", &namespace, "--wait=false"])?;
    result?;
    let beside = format!("manciple-jobs-{}", std::process::id());
    let installed = installed(&cluster, &beside)?;
    used::are_given(&installed)?;
    let done = Log::of(kubeconfig);
    // Whoever waits for pods needs no core: what runs beside the brokers is shown after them.
    let log = crate::built("quarks-jobs-walk.log")?;
    let said = File::create(&log)?;
    let (brokers, apart, jobs) = std::thread::scope(|scope| {
        let jobs = scope.spawn(|| quarks_jobs(&cluster, &said));
        let apart = scope.spawn(|| apart::test(&cluster, &beside));
        (brokers(&cluster, &overlays), apart.join(), jobs.join())
    });
    print!("{}", std::fs::read_to_string(&log)?);
    jobs.map_err(|_| anyhow::anyhow!("the walk through QuarksJobs panicked"))?.and(brokers)?;
    apart.map_err(|_| anyhow::anyhow!("the walk through brokers apart panicked"))??;
    match done {
        Some(done) => done.covers(&installed),
        None => {
            eprintln!(
                "what rights are needed is not looked at: the log of this API server is not known"
            );
            Ok(())
        }
    }
}

/// Checks that each existing overlay will be applied, and that an example is built on the overlay that it stands for.
fn each_is_applied(overlays: &[Overlay]) -> anyhow::Result<()> {
    for folder in std::fs::read_dir(OVERLAYS)? {
        let name = folder?.file_name().to_string_lossy().into_owned();
        ensure!(overlays.iter().any(|it| it.name == name), "nothing applies the overlay {name}");
    }
    for Overlay { name, applied, .. } in overlays {
        let Applied::Under(example) = applied else { continue };
        let text = std::fs::read_to_string(format!("{example}/kustomization.yaml"))?;
        let folder = format!("/{OVERLAYS}/{name}");
        let is_it = |base: &Value| base.as_str().is_some_and(|base| base.ends_with(&folder));
        let is_on = |it: &Value| it["bases"].as_array().is_some_and(|all| all.iter().any(is_it));
        ensure!(manifests::objects(&text)?.iter().any(is_on), "{example} is not on {name}");
    }
    Ok(())
}

fn brokers(cluster: &Cluster, overlays: &[Overlay]) -> anyhow::Result<()> {
    for overlay in overlays {
        match overlay.applied {
            Applied::Alone(tried) => Place::with(cluster, overlay.name, tried)?,
            // Beside all of these.
            Applied::Under(QUARKS_JOBS) => {}
            Applied::Under(example) => crate::run(&mut walk(cluster, example))?,
        }
    }
    Place::with(cluster, "helm", helm::test)?;
    Place::with(cluster, "several", |place| several::together(cluster, place))?;
    Place::with(cluster, "postgres", |place| several::postgres(cluster, place))?;
    crate::run(&mut walk(cluster, "examples/kubernetes"))?;
    crate::run(&mut walk(cluster, "examples/operator"))
}

/// The command of the walk through an example.
fn walk(cluster: &Cluster, example: &str) -> Command {
    let mut walk = cluster.command(&format!("{example}/walk.sh"));
    walk.env("IMAGE", testkit::cluster::SHELL_IMAGE);
    walk
}

/// The objects of all that the walk installs, which give rights. What has no entry of its own is the chart's, with Jobs
/// in this namespace, too: no overlay gives a right to the server that this does not.
fn installed(cluster: &Cluster, jobs: &str) -> anyhow::Result<Vec<Install>> {
    let rendered = |folder: &str| manifests::objects(&cluster.run(&["kustomize", folder])?);
    let [home, _] = WALK;
    Ok(vec![
        Install { name: "base", namespace: None, objects: objects_of(&apart::values(jobs))? },
        Install { name: "controller", namespace: Some(home), objects: rendered(QUARKS_JOBS)? },
        Install {
            name: "templates",
            namespace: Some("manciple-templates-walk"),
            objects: rendered("examples/templates")?,
        },
        Install {
            name: "operator",
            namespace: Some("settings-broker"),
            objects: rendered("examples/operator/kubernetes")?,
        },
    ])
}

/// Runs the walk through QuarksJobs: with an operator's overlay, and with rights in one namespace only.
fn quarks_jobs(cluster: &Cluster, said: &File) -> anyhow::Result<()> {
    let walk = || -> anyhow::Result<Command> {
        let mut walk = walk(cluster, QUARKS_JOBS);
        walk.env("PROGRAM", crate::built("manciple")?);
        walk.stdout(said.try_clone()?).stderr(said.try_clone()?);
        Ok(walk)
    };
    crate::run(&mut walk()?)?;
    let [home, jobs] = WALK;
    let narrow = controller(&json!({"monitoredID": jobs, "namespaces": [jobs]}));
    let made = manifests::list(objects_in(home, &narrow)?.into_iter());
    let file = crate::built("quarks-jobs-walk.json")?;
    std::fs::write(&file, made.to_string())?;
    crate::run(walk()?.env("CONTROLLER", &file))
}

/// The values of a controller without a broker, with further ones of its own.
fn controller(with: &Value) -> Value {
    let mut controller = json!({"enabled": true});
    for (name, value) in with.as_object().into_iter().flatten() {
        controller[name] = value.clone();
    }
    json!({"broker": {"enabled": false}, "controller": controller})
}

/// Checks that each overlay is what the chart renders from its values, and that the server accepts it.
fn are_of_the_chart(
    cluster: &Cluster,
    namespace: &str,
    overlays: &[Overlay],
) -> anyhow::Result<()> {
    for Overlay { name: overlay, values, .. } in overlays {
        let made = cluster.run(&["kustomize", &format!("{OVERLAYS}/{overlay}")])?;
        let made = by_name(manifests::objects(&made)?);
        let said = by_name(objects_of(values)?);
        for (name, object) in &said {
            ensure!(
                made.get(name) == Some(object),
                "overlay {overlay}: {name} is not what the chart makes of {values}"
            );
        }
        ensure!(made.len() == said.len(), "overlay {overlay}: there are objects without a chart");
        cluster.takes(namespace, made.into_values())?;
    }
    Ok(())
}

/// Checks that the server accepts what the chart renders from other values.
fn variants(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let all = json!({
        "controller": {"enabled": true},
        "podLabels": {"team": "data"},
        "podAnnotations": {"example.org/scrape": "false"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        "priorityClassName": "system-cluster-critical",
        "serviceAccountAnnotations": {"example.org/account": "broker"},
        "networkPolicy": {
            "extraIngress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 8080}]}],
            "extraEgress": [{"ports": [{"port": 16443, "protocol": "TCP"}]}],
        },
        "tls": {"secretName": "certificate"},
        "broker": {"configMap": "settings", "secret": "secrets"},
        "imagePullSecrets": ["registry"],
        "config": "operations: {max_runs: 4}",
        "auth": access(),
    });
    cluster.takes(namespace, objects_of(&all)?.into_iter())?;
    for webhook in [
        json!({"caBundle": "QQ==", "apiServers": ["10.0.0.1/32"]}),
        json!({"certManager": {"enabled": true}}),
    ] {
        let templates = json!({"enabled": true, "webhook": webhook});
        let values = json!({"templates": templates, "controller": {"enabled": true}});
        cluster.takes(namespace, objects_of(&values)?.into_iter())?;
    }
    let several = json!({"brokers": "apart", "jobNamespaces": ["jobs-a", "jobs-b"]});
    let several = objects_of(&several)?;
    let roles = several.iter().filter(|object| object["kind"] == "Role").count();
    ensure!(roles == 3, "a Role for each namespace with Jobs, and Manciple's own: {roles}");
    cluster.takes(namespace, several.into_iter())
}

/// Checks the overlays of the examples: the server accepts them, and none of their cluster-wide objects has the name
/// that it has in an installation, but for those that exist once for all.
fn examples(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let of_cluster = |folder: &str| -> anyhow::Result<BTreeSet<String>> {
        let mut objects = manifests::objects(&cluster.run(&["kustomize", folder])?)?;
        objects.retain(kubectl::is_of_cluster);
        Ok(by_name(objects).into_keys().collect())
    };
    let mut installed = of_cluster("deploy/overlays/controller")?;
    installed.extend(of_cluster("deploy/overlays/templates")?);
    let shared = of_cluster("deploy/templates")?;
    for example in [
        "examples/kubernetes",
        "examples/kubernetes/brokers",
        "examples/operator/kubernetes",
        "examples/postgres/kubernetes",
        "examples/quarks-jobs",
        "examples/templates",
    ] {
        let own = of_cluster(example)?;
        let taken: Vec<_> =
            own.intersection(&installed).filter(|it| !shared.contains(*it)).collect();
        ensure!(taken.is_empty(), "{example} takes what is another installation's: {taken:?}");
        let made = cluster.run(&["kustomize", example])?;
        cluster.takes(namespace, manifests::objects(&made)?.into_iter())?;
    }
    Ok(())
}

/// The values of authentication with everything that needs a right of its own.
fn access() -> Value {
    json!({"secrets": [{"name": "cf", "role": "platform"}], "kubernetes": "access_review: true"})
}

fn objects_of(values: &Value) -> anyhow::Result<Vec<Value>> {
    objects_in(manifests::RELEASE, values)
}

/// The chart's objects in a namespace of its own, where cluster-wide objects have names of their own, too.
fn objects_in(namespace: &str, values: &Value) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for text in manifests::chart_in(namespace, values)?.into_values() {
        objects.extend(manifests::objects(&text)?);
    }
    Ok(objects)
}

/// Objects by kind and name, in a form for comparison: lists of named things in the order of the names, which does not
/// matter, and without what is meant for Helm only.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let named = objects.into_iter().map(|mut object| {
        if object["kind"] == "CustomResourceDefinition" {
            let metadata = object["metadata"].as_object_mut();
            metadata.and_then(|metadata| metadata.remove("annotations"));
        }
        manifests::in_order(&mut object);
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
        (format!("{} {}", word("/kind"), word("/metadata/name")), object)
    });
    named.collect()
}

/// Checks that the service accounts may do what their roles say, what every service account may, and no more: with the
/// defaults, and with all options, in a namespace beside their own, too.
fn rights(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    let beside = format!("{namespace}-jobs");
    cluster.run(&["create", "namespace", &beside])?;
    let result = are_as_said(cluster, namespace, &beside);
    cluster.run(&["delete", "namespace", &beside, "--wait=false"])?;
    result
}

fn are_as_said(cluster: &Cluster, namespace: &str, beside: &str) -> anyhow::Result<()> {
    for (account, values) in [
        ("manciple", json!({})),
        ("manciple", json!({"auth": access()})),
        ("manciple", apart::values(beside)),
        ("manciple", manifests::of_templates()),
        ("manciple-controller", controller(&json!({}))),
        ("manciple-controller", controller(&json!({"namespaces": [beside]}))),
        ("manciple-controller", manifests::of_templates()),
    ] {
        let result = rights::compare(cluster, namespace, account, objects_in(namespace, &values)?);
        let label = format!("{OF_TEST}={namespace}");
        cluster.run(&["delete", "clusterrole,clusterrolebinding", "-l", &label])?;
        for there in [namespace, beside] {
            cluster.run(&["-n", there, "delete", "role,rolebinding", "--all"])?;
        }
        result?;
    }
    Ok(())
}
