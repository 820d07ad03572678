//! How far objects are.

use Readiness::{Failed, Ready, Waiting};
use serde_json::json;

use super::*;

fn waits(text: &str) -> Readiness {
    Waiting(text.to_owned())
}

fn fails(text: &str) -> Readiness {
    Failed(text.to_owned())
}

fn object(version: &str, kind: &str, spec: Value, status: Value) -> Value {
    let metadata = json!({"name": "a", "generation": 2});
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
    (object["spec"], object["status"]) = (spec, status);
    object
}

/// A status of the latest generation with conditions: type, status and reason.
fn status(conditions: &[(&str, &str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(kind, status, reason)| json!({"type": kind, "status": status, "reason": reason}))
        .collect();
    json!({"observedGeneration": 2, "conditions": conditions})
}

#[test]
fn annotations_say_what_is_awaited() {
    for (name, annotations, awaited) in [
        ("none", json!(null), false),
        ("true", json!({WAIT_FOR_READY: "true"}), true),
        ("in capitals", json!({WAIT_FOR_READY: "TRUE"}), true),
        ("false", json!({WAIT_FOR_READY: "false"}), false),
        ("yes", json!({WAIT_FOR_READY: "yes"}), false),
        ("an expression", json!({READY_WHEN: "true"}), true),
        ("both", json!({READY_WHEN: "true", WAIT_FOR_READY: "false"}), true),
    ] {
        assert_eq!(
            is_awaited(&json!({"metadata": {"annotations": annotations}})),
            awaited,
            "{name}"
        );
    }
}

#[test]
fn builds() {
    for (phase, expected) in [
        (json!("Complete"), Ready),
        (json!("New"), waits("the build is New: r")),
        (json!(null), waits("the build is New: r")),
        (json!("Running"), waits("the build is Running: r")),
        (json!("Failed"), fails("the build is Failed: r")),
        (json!("Error"), fails("the build is Error: r")),
        (json!("Cancelled"), fails("the build is Cancelled: r")),
    ] {
        for version in ["v1", "build.openshift.io/v1"] {
            let status = json!({"phase": phase, "reason": "r"});
            assert_eq!(
                readiness(&object(version, "Build", json!({}), status)),
                expected,
                "{phase}"
            );
        }
    }
    let of = |status| readiness(&object("v1", "BuildConfig", json!({}), status));
    assert_eq!(of(json!({"lastVersion": 0})), waits("it has no build yet"));
    assert_eq!(of(json!({"lastVersion": 3})), waits("its build 3 is not looked at"));
}

#[test]
fn rollouts() {
    let kinds = [
        ("apps/v1", "Deployment", "NewReplicaSetAvailable"),
        ("apps/v1beta1", "Deployment", "NewReplicaSetAvailable"),
        ("apps/v1beta2", "Deployment", "NewReplicaSetAvailable"),
        ("v1", "DeploymentConfig", "NewReplicationControllerAvailable"),
        ("apps.openshift.io/v1", "DeploymentConfig", "NewReplicationControllerAvailable"),
    ];
    for (version, kind, reason) in kinds {
        let done = ("Progressing", "True", reason);
        let mut behind = status(&[done, ("Available", "True", "")]);
        behind["observedGeneration"] = json!(1);
        for (name, status, expected) in [
            ("there", status(&[done, ("Available", "True", "")]), Ready),
            ("not seen", behind, waits("its controller has not seen the latest change yet")),
            ("no status", json!({}), waits("its controller has not seen the latest change yet")),
            ("none", status(&[]), waits("it has no condition Progressing yet")),
            ("at it", status(&[("Progressing", "True", "x")]), waits("Progressing is True: x")),
            (
                "unknown",
                status(&[("Progressing", "Unknown", "x")]),
                waits("Progressing is Unknown: x"),
            ),
            ("not said", status(&[done]), waits("it has no condition Available yet")),
            (
                "not available",
                status(&[done, ("Available", "False", "y")]),
                waits("Available is False: y"),
            ),
            (
                "too late",
                status(&[("Progressing", "False", "x"), ("Available", "True", "")]),
                fails("Progressing is False: x"),
            ),
        ] {
            let found = readiness(&object(version, kind, json!({}), status));
            assert_eq!(found, expected, "{version} {kind} {name}");
        }
    }
    let elsewhere = object("extensions/v1beta1", "Deployment", json!({}), json!({}));
    assert_eq!(readiness(&elsewhere), Ready, "the original knows no such version");
}

#[test]
fn jobs_and_sets_and_routes() {
    let unseen = "its controller has not seen the latest change yet";
    for (name, version, kind, spec, status, expected) in [
        ("done", "batch/v1", "Job", json!({}), json!({"completionTime": "t"}), Ready),
        (
            "at it",
            "batch/v1",
            "Job",
            json!({}),
            json!({"active": 2}),
            waits("it has not completed; pods at work: 2"),
        ),
        (
            "failed once",
            "batch/v1",
            "Job",
            json!({}),
            json!({"completionTime": "t", "failed": 1}),
            fails("pods that have failed: 1"),
        ),
        (
            "failed",
            "batch/v1",
            "Job",
            json!({}),
            json!({"failed": 1, "conditions": [
                {"type": "Failed", "status": "True", "reason": "r", "message": "m"},
            ]}),
            fails("pods that have failed: 1; Failed is True, r: m"),
        ),
        (
            "all pods",
            "apps/v1",
            "StatefulSet",
            json!({"replicas": 2}),
            json!({"observedGeneration": 2, "readyReplicas": 2}),
            Ready,
        ),
        (
            "one pod",
            "apps/v1",
            "StatefulSet",
            json!({}),
            json!({"observedGeneration": 2, "readyReplicas": 1}),
            Ready,
        ),
        (
            "no pod",
            "apps/v1beta2",
            "StatefulSet",
            json!({}),
            json!({"observedGeneration": 2}),
            waits("pods that are ready: 0 of 1"),
        ),
        (
            "too many",
            "apps/v1",
            "StatefulSet",
            json!({"replicas": 1}),
            json!({"observedGeneration": 2, "readyReplicas": 2}),
            waits("pods that are ready: 2 of 1"),
        ),
        (
            "not seen",
            "apps/v1",
            "StatefulSet",
            json!({}),
            json!({"readyReplicas": 1}),
            waits(unseen),
        ),
        ("host", "v1", "Route", json!({"host": "h"}), json!({}), Ready),
        (
            "no host",
            "route.openshift.io/v1",
            "Route",
            json!({"host": ""}),
            json!({}),
            waits("it has no host yet"),
        ),
    ] {
        assert_eq!(readiness(&object(version, kind, spec, status)), expected, "{kind} {name}");
    }
}

#[test]
fn the_conditions_of_any_kind() {
    let mut stale = status(&[("Ready", "True", "")]);
    stale["conditions"][0]["observedGeneration"] = json!(1);
    let unseen = "its controller has not seen the latest change yet";
    for (name, status, expected) in [
        ("no status", json!(null), Ready),
        ("no conditions", status(&[]), Ready),
        ("conditions of its own", status(&[("Odd", "False", "")]), Ready),
        ("behind", json!({"observedGeneration": 1}), waits(unseen)),
        ("a condition behind", stale, waits(unseen)),
        (
            "stalled",
            status(&[("Ready", "True", ""), ("Stalled", "True", "x")]),
            fails("Stalled is True: x"),
        ),
        (
            "reconciling",
            status(&[("Ready", "True", ""), ("Reconciling", "True", "x")]),
            waits("Reconciling is True: x"),
        ),
        (
            "failed",
            status(&[("Ready", "True", ""), ("Failed", "True", "x")]),
            fails("Failed is True: x"),
        ),
        ("ready", status(&[("Available", "False", ""), ("Ready", "True", "")]), Ready),
        ("not ready", status(&[("Ready", "False", "x")]), waits("Ready is False: x")),
        ("unknown", status(&[("Ready", "Unknown", "")]), waits("Ready is Unknown")),
        ("available", status(&[("Available", "True", "")]), Ready),
        ("complete", status(&[("Complete", "True", "")]), Ready),
        ("succeeded", status(&[("Succeeded", "True", "")]), Ready),
        ("not succeeded", status(&[("Succeeded", "False", "x")]), waits("Succeeded is False: x")),
        ("established", status(&[("Established", "True", "")]), Ready),
    ] {
        assert_eq!(readiness(&object("e.com/v1", "Thing", json!({}), status)), expected, "{name}");
    }
    let mut deleted = object("e.com/v1", "Thing", json!({}), json!({}));
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(readiness(&deleted), waits("it is being deleted"));
}

#[test]
fn kinds_without_conditions_that_tell() {
    let crash = json!({"phase": "Running", "containerStatuses": [
        {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}},
    ]});
    let pull = |reason: &str, image: &str| {
        let waiting = json!({"reason": reason, "message": "m"});
        json!({"phase": "Pending", "initContainerStatuses": [], "containerStatuses": [
            {"name": "c", "image": image, "state": {"waiting": waiting}},
        ]})
    };
    let full = json!({
        "observedGeneration": 2, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
        "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2,
    });
    let changed = |of: &str, count: i64| {
        let mut status = full.clone();
        status[of] = json!(count);
        status
    };
    let pods = json!({"replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1});
    let unseen = "its controller has not seen the latest change yet";
    let balanced = json!({"type": "LoadBalancer"});
    for (version, kind, spec, status, expected) in [
        ("v1", "Pod", json!({}), json!({"phase": "Succeeded"}), Ready),
        (
            "v1",
            "Pod",
            json!({}),
            json!({"phase": "Failed", "reason": "Evicted"}),
            fails("the pod is Failed: Evicted"),
        ),
        (
            "v1",
            "Pod",
            json!({}),
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
            Ready,
        ),
        (
            "v1",
            "Pod",
            json!({}),
            json!({"phase": "Running"}),
            waits("the pod is Running, not ready"),
        ),
        ("v1", "Pod", json!({}), crash, waits("the pod is Running; container c: CrashLoopBackOff")),
        (
            "v1",
            "Pod",
            json!({}),
            pull("ErrImagePull", "e.com/a:1"),
            waits("the pod is Pending; container c: image e.com/a:1: ErrImagePull"),
        ),
        (
            "v1",
            "Pod",
            json!({}),
            pull("InvalidImageName", ""),
            waits("the pod is Pending; container c: InvalidImageName"),
        ),
        (
            "v1",
            "Pod",
            json!({}),
            pull("CreateContainerConfigError", "e.com/a:1"),
            waits("the pod is Pending; container c: CreateContainerConfigError"),
        ),
        ("v1", "Pod", json!({}), json!({}), waits("the pod is Pending, not ready")),
        (
            "v1",
            "Pod",
            json!({}),
            json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"},
            ]}),
            waits("the pod is Pending; PodScheduled is False, Unschedulable: no nodes"),
        ),
        ("v1", "PersistentVolumeClaim", json!({}), json!({"phase": "Bound"}), Ready),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({}),
            json!({"phase": "Pending"}),
            waits("it is Pending, not Bound"),
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({}),
            json!({"phase": "Lost"}),
            fails("the claim has lost its volume"),
        ),
        ("v1", "Service", json!({"type": "ClusterIP"}), json!({}), Ready),
        (
            "v1",
            "Service",
            balanced.clone(),
            json!({"loadBalancer": {}}),
            waits("its load balancer has no address yet"),
        ),
        (
            "v1",
            "Service",
            balanced,
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
            Ready,
        ),
        ("v1", "Namespace", json!({}), json!({"phase": "Active"}), Ready),
        (
            "v1",
            "Namespace",
            json!({}),
            json!({"phase": "Terminating"}),
            waits("it is Terminating, not Active"),
        ),
        ("v1", "ConfigMap", json!(null), json!(null), Ready),
        ("apps/v1", "DaemonSet", json!({}), full.clone(), Ready),
        ("apps/v1", "DaemonSet", json!({}), json!({}), waits(unseen)),
        (
            "apps/v1",
            "DaemonSet",
            json!({}),
            changed("numberReady", 1),
            waits("numberReady: 1 of 2"),
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({}),
            changed("updatedNumberScheduled", 0),
            waits("updatedNumberScheduled: 0 of 2"),
        ),
        (
            "apps/v1",
            "DaemonSet",
            json!({"updateStrategy": {"type": "OnDelete"}}),
            changed("updatedNumberScheduled", 0),
            Ready,
        ),
        (
            "apps/v1",
            "ReplicaSet",
            json!({"replicas": 2}),
            pods.clone(),
            waits("availableReplicas: 1 of 2"),
        ),
        (
            "apps/v1",
            "ReplicaSet",
            json!({"replicas": 1}),
            pods,
            waits("pods that are still to go: 1"),
        ),
        ("apps/v1", "ReplicaSet", json!({"replicas": 0}), json!({}), Ready),
        (
            "apps/v1",
            "ReplicaSet",
            json!({}),
            status(&[("ReplicaFailure", "True", "Quota")]),
            waits("ReplicaFailure is True: Quota"),
        ),
    ] {
        let shown = status.to_string();
        assert_eq!(readiness(&object(version, kind, spec, status)), expected, "{kind} {shown}");
    }
    let defined = |status| {
        readiness(&object("apiextensions.k8s.io/v1", "CustomResourceDefinition", json!({}), status))
    };
    assert_eq!(defined(json!({})), waits("it has no condition Established yet"));
    assert_eq!(defined(status(&[("Established", "True", "")])), Ready);
    let refused = status(&[("NamesAccepted", "False", "Conflict"), ("Established", "False", "x")]);
    assert_eq!(defined(refused), fails("NamesAccepted is False: Conflict"));
    assert_eq!(
        defined(status(&[("Established", "False", "Installing")])),
        waits("Established is False: Installing")
    );
}

#[test]
fn an_expression_decides_instead() {
    for (expression, expected) in [
        ("self.spec.go", Ready),
        ("!self.spec.go", waits("annotation template.manciple.dev/ready-when is not true yet")),
        (
            "self.status.phase == 'x'",
            waits(
                "annotation template.manciple.dev/ready-when cannot be decided yet: self.status.phase is not there",
            ),
        ),
        (
            "self.spec",
            fails(
                "annotation template.manciple.dev/ready-when: it gives a map: it must be true or false",
            ),
        ),
        (
            "self.",
            fails("annotation template.manciple.dev/ready-when: at the end: a name is expected"),
        ),
    ] {
        // By its kind, it would have failed.
        let mut object = object("batch/v1", "Job", json!({"go": true}), json!({"failed": 1}));
        object["metadata"]["annotations"] = json!({READY_WHEN: expression});
        assert_eq!(readiness(&object), expected, "{expression}");
    }
}

#[test]
fn texts_are_short() {
    let long = "\u{e9}".repeat(5000);
    let thing = object("e.com/v1", "Thing", json!({}), status(&[("Ready", "False", &long)]));
    let Waiting(text) = readiness(&thing) else { panic!("it is not ready") };
    assert_eq!(text.chars().count(), 257);
    let mut thing = thing;
    thing["metadata"]["annotations"] = json!({READY_WHEN: format!("self.{}", "a".repeat(4000))});
    let Waiting(text) = readiness(&thing) else { panic!("it is not there") };
    assert_eq!(text.chars().count(), 257);
}

#[test]
fn timeouts_are_written_as_people_write_them() {
    let of = |text: &str| timeout(&json!({READY_TIMEOUT: text}));
    for (text, millis) in [
        ("90s", 90_000),
        ("1h30m", 5_400_000),
        ("1.5h", 5_400_000),
        ("300ms", 300),
        ("1h 30m", 5_400_000),
        ("7d", 604_800_000),
    ] {
        assert_eq!(of(text), Ok(Some(Duration::from_millis(millis))), "{text}");
    }
    for text in
        ["", "soon", "5", "-5s", "1 fortnight", "999999999999999999999h", "99999999999999999d"]
    {
        let wrong = of(text).unwrap_err();
        assert!(wrong.contains(READY_TIMEOUT) && wrong.contains("is not a period"), "{wrong}");
    }
    assert!(of("0s").unwrap_err().contains("longer than nothing"));
    assert_eq!(timeout(&Value::Null), Ok(None));
    assert_eq!(timeout(&json!({"a": "b"})), Ok(None));
    assert!(timeout(&json!({READY_TIMEOUT: 5})).is_err());
}
