//! What is seen and what it means, by what API servers wrote: 1.20 where nothing else is said.

mod asked;
mod kinds;
mod known;
mod logs;
mod manifests;
mod mounts;
mod pods;
mod several;
mod standings;
mod states;

use engine::names::RunName;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::{Value, json};

use super::seen::{Deletion, SeenJob, SeenPod, Warning};

/// When the Job was made: 2026-11-21T18:00:00Z.
const MADE: i64 = 1_795_284_000;
const REPORT: &str = "MANCIPLE1 sealed a5f0123456789abc AAAA";

fn job(more: &Value) -> SeenJob {
    SeenJob::of(&serde_json::from_value::<Job>(job_object(more)).unwrap()).unwrap()
}

fn job_object(more: &Value) -> Value {
    let mut job = json!({
        "metadata": {
            "name": "run-1", "namespace": "n", "uid": "job", "resourceVersion": "10",
            "creationTimestamp": "2026-11-21T18:00:00Z",
            "labels": {"manciple.dev/run": "run-1"},
        },
        "spec": {"activeDeadlineSeconds": 600, "template": {}},
        "status": {"active": 1, "startTime": "2026-11-21T18:00:00Z"},
    });
    merge(&mut job, more);
    job
}

/// A pod with this status, called after its age: `a` is older than `b`.
fn pod(name: &str, status: &Value) -> SeenPod {
    SeenPod::of(&serde_json::from_value::<Pod>(pod_object(name, status)).unwrap()).unwrap()
}

fn pod_object(name: &str, status: &Value) -> Value {
    let second = u32::from(name.as_bytes()[0] - b'a');
    json!({
        "metadata": {
            "name": format!("run-1-{name}"), "namespace": "n", "uid": name, "resourceVersion": "20",
            "creationTimestamp": format!("2026-11-21T18:00:0{second}Z"),
            "labels": {"manciple.dev/run": "run-1"},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "run-1", "uid": "job", "controller": true,
            }],
        },
        "spec": {"nodeName": "node-1", "containers": []},
        "status": status,
    })
}

fn deleted(mut pod: SeenPod) -> SeenPod {
    pod.deletion = Some(Deletion { asked: MADE + 14, until: MADE + 20 });
    pod
}

fn gone(pod: SeenPod) -> SeenPod {
    SeenPod { gone: true, ..deleted(pod) }
}

fn warning(kind: &str, uid: &str, reason: &str, said: &str) -> Option<Warning> {
    let name = if kind == "Job" { "run-1" } else { "run-1-a" };
    let event: Event = serde_json::from_value(json!({
        "metadata": {"name": "e"}, "type": "Warning", "reason": reason, "message": said,
        "involvedObject": {"kind": kind, "name": name, "uid": uid},
    }))
    .unwrap();
    let warning = Warning::of_event(&event)?;
    assert_eq!(warning.run, RunName::parse("run-1").unwrap());
    Some(warning)
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// The statuses of pods.
mod status {
    use serde_json::{Value, json};

    pub(super) fn of(phase: &str, agent: &Value, broker: &Value) -> Value {
        let status = |name: &str, state: &Value| {
            json!([{
                "name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            }])
        };
        json!({
            "phase": phase,
            "startTime": "2026-11-21T18:00:00Z",
            "conditions": [{"type": "PodScheduled", "status": "True"}],
            "initContainerStatuses": status("agent", agent),
            "containerStatuses": status("broker", broker),
        })
    }

    pub(super) fn waiting(reason: &str, message: &str) -> Value {
        json!({"waiting": {"reason": reason, "message": message}})
    }

    pub(super) fn ended(exit_code: i32, reason: &str, message: &str) -> Value {
        json!({"terminated": {"exitCode": exit_code, "reason": reason, "message": message}})
    }

    pub(super) fn installed() -> Value {
        ended(0, "Completed", "")
    }

    pub(super) fn running() -> Value {
        of("Running", &installed(), &json!({"running": {"startedAt": "2026-11-21T18:00:05Z"}}))
    }

    pub(super) fn installing() -> Value {
        let waits = waiting("PodInitializing", "");
        of("Pending", &waits, &waits)
    }

    /// The whole pod, without a word of its containers.
    pub(super) fn failed(reason: &str, message: &str) -> Value {
        json!({"phase": "Failed", "reason": reason, "message": message})
    }

    pub(super) fn with(mut status: Value, name: &str, value: Value) -> Value {
        status[name] = value;
        status
    }
}
