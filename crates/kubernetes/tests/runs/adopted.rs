//! Definitions that the originals have installed, of apiextensions v1beta1, are replaced in place by ours: what there
//! is of these kinds stays readable as it is, and runs.

use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kubernetes::quarks::{Dialect, definition};
use serde_json::{Value, json};
use testkit::kubelet::JobAct;
use testkit::plane::ControlPlane;
use testkit::proxy::{Plan, Proxy};

use crate::objects::{history, resources, sure, until};
use crate::place::Place;
use crate::seeds;
use crate::town::{Town, controller};

/// As the original's operator installed it: what its schema does not know is dropped.
fn original_quarks_job() -> Value {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let any = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut trigger =
        object(json!({"strategy": {"type": "string", "enum": ["manual", "once", "now", "done"]}}));
    trigger["required"] = json!(["strategy"]);
    let mut output = object(json!({
        "outputMap": any(), "outputType": {"type": "string"},
        "secretLabels": any(), "writeOnFailure": {"type": "boolean"},
    }));
    output["required"] = json!(["outputMap"]);
    let schema = object(json!({
        "spec": object(json!({
            "output": output, "template": any(), "trigger": trigger,
            "updateOnConfigChange": {"type": "boolean"},
        })),
        "status": object(json!({
            "completed": {"type": "boolean"},
            "lastReconcile": {"type": "string", "nullable": true},
        })),
    }));
    let column = |name: &str, kind: &str, priority: u32, path: &str| json!({"name": name, "type": kind, "priority": priority, "JSONPath": path});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "quarksjobs.quarks.cloudfoundry.org"},
        "spec": {
            "group": "quarks.cloudfoundry.org", "version": "v1alpha1", "scope": "Namespaced",
            "versions": [{"name": "v1alpha1", "served": true, "storage": true}],
            "names": {
                "kind": "QuarksJob", "listKind": "QuarksJobList", "plural": "quarksjobs",
                "singular": "quarksjob", "shortNames": ["qjob", "qjobs"],
            },
            "subresources": {"status": {}},
            "preserveUnknownFields": false,
            "validation": {"openAPIV3Schema": schema},
            "additionalPrinterColumns": [
                column("completed", "boolean", 0, ".status.completed"),
                column("strategy", "string", 10, ".spec.trigger.strategy"),
                column("updateOnConfigChange", "boolean", 20, ".spec.updateOnConfigChange"),
            ],
        },
    })
}

/// As a chart installed it, without a schema: nothing is dropped.
fn original_extended_job() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1beta1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "extendedjobs.fissile.cloudfoundry.org"},
        "spec": {
            "group": "fissile.cloudfoundry.org", "version": "v1alpha1", "scope": "Namespaced",
            "names": {
                "kind": "ExtendedJob", "plural": "extendedjobs", "singular": "extendedjob",
                "shortNames": ["ejob", "ejobs"],
            },
            "subresources": {"status": {}},
        },
    })
}

fn kubectl(plane: &ControlPlane, arguments: &[&str], input: &Value) -> (bool, String) {
    let mut kubectl = plane.kubectl();
    kubectl.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = kubectl.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8(said).unwrap());
    (ended.status.success(), said.concat())
}

/// How a definition is put into the place of another.
#[derive(Debug, Clone, Copy)]
enum How {
    Apply,
    Replace,
    /// As `--apply-crd` does.
    Install,
}

async fn replace(plane: &ControlPlane, town: &Town, how: How) {
    let arguments: &[&str] = match how {
        How::Apply => &["apply", "-f", "-"],
        How::Replace => &["replace", "-f", "-"],
        How::Install => {
            kubernetes::quarks::install(town.client.clone()).await.unwrap();
            return;
        }
    };
    for dialect in [Dialect::QuarksJob, Dialect::ExtendedJob] {
        let (went_well, said) = kubectl(plane, arguments, &definition(dialect));
        assert!(went_well, "{how:?}: {said}");
    }
}

/// One as the original has left it: with its strategy, and a status.
async fn left(town: &Town, dialect: Dialect, name: &str, strategy: &str, status: Value) -> Value {
    let pod = json!({
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "none", "command": ["none"]}],
    });
    let template = match dialect {
        Dialect::QuarksJob => json!({"backoffLimit": 2, "spec": {"template": {"spec": pod}}}),
        Dialect::ExtendedJob => json!({"spec": pod}),
    };
    let output = match dialect {
        Dialect::QuarksJob => json!({"outputMap": {"c": {"o.json": {"name": name}}}}),
        Dialect::ExtendedJob => json!({"namePrefix": name}),
    };
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": dialect.api_version(), "kind": dialect.kind(), "metadata": {"name": name},
        "spec": {"trigger": {"strategy": strategy}, "template": template, "output": output},
    }))
    .unwrap();
    let api: Api<DynamicObject> = resources(town, dialect);
    let params = PostParams::default();
    sure(|| api.create(&params, &object)).await;
    let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"status": status})));
    sure(|| api.patch_status(name, &params, &patch)).await.data
}

async fn get(town: &Town, dialect: Dialect, name: &str) -> DynamicObject {
    let api = resources(town, dialect);
    sure(|| api.get(name)).await
}

/// The last run of one that has had so many.
async fn ran(town: &Town, dialect: Dialect, name: &str, runs: usize) -> Value {
    let last = || async {
        let history = history(&get(town, dialect, name).await);
        (history.len() == runs).then(|| history[0].clone())
    };
    until(&format!("{name} has run"), last).await
}

async fn adopt(how: How) {
    seeds::log();
    let originals = [original_quarks_job(), original_extended_job()];
    let plane = ControlPlane::start(&originals).unwrap();
    let script = Arc::new(|_: &str| JobAct {
        begins: Duration::ZERO,
        lasts: Duration::from_millis(30),
        ends: Duration::ZERO,
        code: 0,
        output: json!({"k": "v"}).to_string(),
    });
    let town = Town::new(&Place::of(&plane), "adopted", script).await;
    let both = [Dialect::QuarksJob, Dialect::ExtendedJob];
    let time = "2021-01-01T00:00:00Z";
    let states = [
        ("errand", "manual", json!({"completed": true, "lastReconcile": time})),
        ("over", "done", json!({"completed": true, "lastReconcile": time})),
        ("fresh", "once", json!({"lastReconcile": null})),
    ];
    let mut before = Vec::new();
    for dialect in both {
        for (name, strategy, status) in &states {
            before.push(left(&town, dialect, name, strategy, status.clone()).await);
        }
    }
    replace(&plane, &town, how).await;
    // Ours is served when it has a column that the original's has not.
    let is_served = || async {
        let shown = kubectl(&plane, &["-n", "adopted", "get", "qjob"], &Value::Null).1;
        shown.lines().next().is_some_and(|head| head.contains("WAITS")).then_some(())
    };
    until("served", is_served).await;
    let mut after = Vec::new();
    for dialect in both {
        for (name, ..) in &states {
            after.push(get(&town, dialect, name).await.data);
        }
    }
    assert_eq!(after, before, "they are as they were");
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let leader = controller(&town, &calm, "lease");
    for dialect in both {
        let run = ran(&town, dialect, "fresh", 1).await;
        assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("once"), &json!(true)), "{run}");
        let api = resources(&town, dialect);
        let now = Patch::Merge(json!({"spec": {"trigger": {"strategy": "now"}}}));
        let params = PatchParams::default();
        sure(|| api.patch("errand", &params, &now)).await;
        let run = ran(&town, dialect, "errand", 1).await;
        assert_eq!(run["made"].as_array().map(Vec::len), Some(1), "{run}");
        let over = get(&town, dialect, "over").await.data;
        assert_eq!((&over["status"]["completed"], history_len(&over)), (&json!(true), 0));
        assert_eq!(over["spec"]["trigger"]["strategy"], "done");
    }
    calm.die();
    leader.shutdown_background();
}

fn history_len(data: &Value) -> usize {
    data["status"]["history"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_the_originals_are_replaced_by_kubectl_apply_and_what_there_is_goes_on() {
    adopt(How::Apply).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_the_originals_are_replaced_by_kubectl_replace_and_what_there_is_goes_on() {
    adopt(How::Replace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_the_originals_are_replaced_by_the_controller_and_what_there_is_goes_on() {
    adopt(How::Install).await;
}

/// Who forgets it is told what to do, and nothing is lost by it.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_under_the_originals_definition_is_over_once_ours_is_in_its_place() {
    seeds::log();
    let plane = ControlPlane::start(&[original_quarks_job()]).unwrap();
    let script = Arc::new(|_: &str| JobAct {
        begins: Duration::ZERO,
        lasts: Duration::from_millis(30),
        ends: Duration::ZERO,
        code: 0,
        output: json!({"k": "v"}).to_string(),
    });
    let town = Town::new(&Place::of(&plane), "forgotten", script).await;
    let calm = Proxy::start(town.client.clone(), Plan::calm()).await.unwrap();
    let leader = controller(&town, &calm, "lease");
    left(&town, Dialect::QuarksJob, "fresh", "once", json!({"lastReconcile": null})).await;
    let has_ended = || async { town.ledger().values().any(|it| it.end.is_some()).then_some(()) };
    until("at its end", has_ended).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let object = get(&town, Dialect::QuarksJob, "fresh").await.data;
    assert_eq!(history_len(&object), 0, "the original's definition drops it: {object:#}");
    let (went_well, said) = kubectl(&plane, &["apply", "-f", "-"], &definition(Dialect::QuarksJob));
    assert!(went_well, "{said}");
    let run = ran(&town, Dialect::QuarksJob, "fresh", 1).await;
    assert_eq!((&run["trigger"], &run["made"]), (&json!("once"), &json!(["fresh"])), "{run}");
    assert_eq!(town.begun(), 1, "it ran once");
    calm.die();
    leader.shutdown_background();
}
