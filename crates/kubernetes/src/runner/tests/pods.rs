//! How far a pod is.

use serde_json::{Value, json};

use super::super::reminding::reminder;
use super::super::report::{Untold, unread};
use super::super::seen::SeenPod;
use super::super::stage::{End, Stage};
use super::status::{ended, failed, installed, installing, of, running, waiting, with};
use super::{MADE, REPORT, deleted, pod};
use crate::calls::CallError;

/// In a word, and what is said of it.
fn stage(status: &Value) -> (&'static str, String) {
    let none = String::new;
    match pod("a", status).stage {
        Stage::Waiting(None) => ("waits", none()),
        Stage::Waiting(Some(waits)) if waits.for_ever => ("waits for ever", waits.why),
        Stage::Waiting(Some(waits)) => ("waits", waits.why),
        Stage::Running => ("runs", none()),
        Stage::NeverBegan(why) => ("never began", why),
        Stage::Failed(why) => ("failed", why),
        Stage::Ended(End { message: Some(message), .. }) => ("reported", message),
        Stage::Ended(End { reason, said, .. }) => {
            ("ended", format!("{reason} {}", said.unwrap_or_default()))
        }
    }
}

/// As newer kubelets end what they do not find.
fn unknown(when: &str) -> Value {
    let said = format!("The container could not be located when the pod was {when}");
    ended(137, "ContainerStatusUnknown", &said)
}

#[test]
fn a_pod_is_as_far_as_its_status_says() {
    let unschedulable = json!({"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity."}]});
    let disrupted = |reason: &str, message: &str| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]);
    let began = json!({"running": {"startedAt": "2026-11-21T18:00:05Z"}});
    let cases = [
        ("new", json!({"phase": "Pending"}), "waits", ""),
        ("unschedulable", unschedulable, "waits", "no node takes the pod: 0/1 nodes"),
        ("placed", installing(), "waits", ""),
        (
            "image refused",
            of("Pending", &installed(), &waiting("ErrImagePull", "rpc error: no such host")),
            "waits",
            "the image cannot be pulled: ErrImagePull: rpc error",
        ),
        (
            "agent's image refused",
            of(
                "Pending",
                &waiting("ImagePullBackOff", "Back-off pulling image \"manciple:1\""),
                &waiting("PodInitializing", ""),
            ),
            "waits",
            "the image cannot be pulled: ImagePullBackOff: Back-off pulling image \"manciple:1\"",
        ),
        (
            "image's name",
            of("Pending", &installed(), &waiting("InvalidImageName", "couldn't parse")),
            "waits for ever",
            "the name of the image is not one",
        ),
        (
            "root",
            of(
                "Pending",
                &installed(),
                &waiting(
                    "CreateContainerConfigError",
                    "container has runAsNonRoot and image will run as root",
                ),
            ),
            "waits for ever",
            "the container may not run as this user",
        ),
        (
            "key of a ConfigMap",
            of(
                "Pending",
                &installed(),
                &waiting("CreateContainerConfigError", "configmap \"c\" not found"),
            ),
            "waits",
            "the pod asks for something that is not there",
        ),
        ("runs", running(), "runs", ""),
        ("runs, nobody knows how", with(running(), "phase", json!("Unknown")), "runs", ""),
        (
            "reported",
            of("Succeeded", &installed(), &ended(0, "Completed", REPORT)),
            "reported",
            REPORT,
        ),
        ("killed", of("Failed", &installed(), &ended(137, "Error", "")), "ended", "Error "),
        ("memory", of("Failed", &installed(), &ended(137, "OOMKilled", "")), "ended", "OOMKilled "),
        (
            "memory of the broker alone",
            of("Failed", &installed(), &ended(1, "OOMKilled", REPORT)),
            "reported",
            REPORT,
        ),
        (
            "1.30: not to be found after the node came back",
            {
                let mut status = of("Failed", &installed(), &unknown("terminated"));
                status["containerStatuses"][0]["containerID"] = json!("containerd://1");
                status
            },
            "ended",
            "ContainerStatusUnknown The container could not be located",
        ),
        (
            "1.27: was seen to run, and is not to be found",
            {
                let mut status = of("Failed", &installed(), &unknown("terminated"));
                let last = unknown("deleted.  The container used to be Running");
                status["containerStatuses"][0]["lastState"] = last;
                status
            },
            "ended",
            "ContainerStatusUnknown The container could not be located",
        ),
        (
            "1.27: ended before its container was made",
            of("Failed", &installed(), &unknown("terminated")),
            "never began",
            "its pod was ended before the broker began",
        ),
        (
            "1.27: the same, by an eviction",
            with(
                of("Failed", &installed(), &unknown("terminated")),
                "message",
                json!("The node was low on resource: memory."),
            ),
            "never began",
            "its pod",
        ),
        (
            "agent cannot be executed",
            of(
                "Failed",
                &installed(),
                &ended(128, "StartError", "exec: \"/manciple/agent\": permission denied"),
            ),
            "never began",
            "the broker's container cannot run: exec: \"/manciple/agent\"",
        ),
        (
            "agent not installed",
            of("Failed", &ended(2, "Error", ""), &waiting("PodInitializing", "")),
            "never began",
            "the agent could not be installed: exit status 2: Error",
        ),
        (
            "not admitted",
            failed("OutOfcpu", "Pod Node didn't have enough resource: cpu, requested: 500000"),
            "never began",
            "its pod failed: OutOfcpu: Pod Node didn't have enough",
        ),
        (
            "1.30: not admitted",
            failed("NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"),
            "never began",
            "its pod failed: NodeAffinity",
        ),
        (
            "not admitted under pressure",
            failed("Evicted", "Pod The node had condition: [MemoryPressure]. "),
            "never began",
            "its pod failed: Evicted: Pod The node had condition",
        ),
        (
            "evicted, whatever it did",
            failed("Evicted", "The node was low on resource: memory. "),
            "failed",
            "its pod failed: Evicted: The node was low on resource: memory.",
        ),
        (
            "1.30: evicted with its end",
            with(
                of("Failed", &installed(), &ended(1, "Error", REPORT)),
                "reason",
                json!("Evicted"),
            ),
            "reported",
            REPORT,
        ),
        (
            "node shut down",
            failed("Shutdown", "Node is shutting, evicting pods"),
            "failed",
            "its pod failed: Shutdown",
        ),
        (
            "1.30: its node was deleted",
            with(
                of("Failed", &installed(), &began),
                "conditions",
                disrupted("DeletionByPodGC", "PodGC: node no longer exists"),
            ),
            "failed",
            "its pod failed: DeletionByPodGC: PodGC: node no longer exists",
        ),
        (
            "evicted before its agent was there",
            with(
                of("Failed", &waiting("PodInitializing", ""), &waiting("PodInitializing", "")),
                "reason",
                json!("Evicted"),
            ),
            "never began",
            "its pod failed: Evicted",
        ),
    ];
    for (name, status, expected, words) in cases {
        let (stage, said) = stage(&status);
        assert_eq!(stage, expected, "{name}: {said}");
        assert!(said.starts_with(words), "{name}: {said}");
        assert_eq!(words.is_empty(), said.is_empty(), "{name}: {said}");
    }
}

#[test]
fn a_node_is_silent_where_its_controller_says_so() {
    let conditions = |ready: &str, containers: &str| json!([{"type": "Ready", "status": ready}, {"type": "ContainersReady", "status": containers}]);
    let gated = json!([
        {"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"},
        {"type": "ContainersReady", "status": "True"},
    ]);
    let cases = [
        ("waits for somebody's gate", with(running(), "conditions", gated), false),
        ("runs", with(running(), "conditions", conditions("True", "True")), false),
        ("ends", with(running(), "conditions", conditions("False", "False")), false),
        ("not heard of", with(running(), "conditions", conditions("False", "True")), true),
        ("before 1.20", with(running(), "reason", json!("NodeLost")), true),
    ];
    for (name, status, silent) in cases {
        assert_eq!(pod("a", &status).silent, silent, "{name}");
    }
}

#[test]
fn what_a_status_forgets_is_kept() {
    let evicted = failed("Evicted", "The node was low on resource: memory. ");
    let unknown = of("Failed", &installed(), &ended(137, "ContainerStatusUnknown", "not located"));
    let reported = of("Succeeded", &installed(), &ended(0, "Completed", REPORT));
    for newer in [evicted, unknown] {
        let mut seen = pod("a", &reported);
        seen.update(pod("a", &newer));
        assert_eq!(seen.stage, pod("a", &reported).stage);
    }
    let mut seen = pod("a", &running());
    seen.update(pod("a", &installing()));
    assert!(seen.began);

    let pulls = |reason: &str| of("Pending", &installed(), &waiting(reason, reason));
    let mut seen = pod("a", &pulls("ErrImagePull"));
    seen.update(pod("a", &pulls("ImagePullBackOff")));
    assert_eq!(seen.stage, pod("a", &pulls("ErrImagePull")).stage, "one word for one fault");
    seen.update(pod("a", &installing()));
    assert_eq!(seen.stage, Stage::Waiting(None));
}

#[test]
fn a_broker_begins_next_once_nothing_has_to_end_before_it() {
    let begins = |spec: &Value, status: &Value| {
        let pod = json!({
            "metadata": {"name": "run-1-a", "labels": {"manciple.dev/run": "run-1"}},
            "spec": spec,
            "status": status,
        });
        SeenPod::of(&serde_json::from_value(pod).unwrap()).unwrap().begins
    };
    let mounted = json!({"nodeName": "n", "containers": []});
    let installed_by =
        json!({"nodeName": "n", "containers": [], "initContainers": [{"name": "agent"}]});
    let waits = waiting("ContainerCreating", "");
    let made = json!({"phase": "Pending", "containerStatuses": [{
        "name": "broker", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": waits,
    }]});
    let pending = json!({"phase": "Pending"});
    let after = of("Pending", &installed(), &waiting("PodInitializing", ""));
    let cases = [
        ("no node has it", json!({"containers": []}), &pending, false),
        ("a node has it", mounted.clone(), &pending, true),
        ("its container is made", mounted.clone(), &made, true),
        ("it runs", mounted, &running(), false),
        ("a node has it, of two containers", installed_by.clone(), &pending, false),
        ("the first of two runs", installed_by.clone(), &installing(), false),
        ("the first of two has ended", installed_by, &after, true),
    ];
    for (name, spec, status, expected) in cases {
        assert_eq!(begins(&spec, status), expected, "{name}");
    }
}

#[test]
fn a_pod_is_deleted_for_good_only_where_it_cannot_begin() {
    // It was told at 14 to be gone at 20.
    let told = |status| deleted(pod("a", &status));
    let begins = || told(of("Pending", &installed(), &waiting("ContainerCreating", "")));
    let is_made = || told(installing());
    let runs = || told(running());
    let nowhere = || SeenPod { node: None, begins: false, ..told(json!({"phase": "Pending"})) };
    for (name, pod, after, kubelets_forget, kubelets_do_not) in [
        ("not told", pod("a", &running()), 100, None, None),
        ("runs, in time", runs(), 22, None, None),
        ("runs, late", runs(), 23, Some(1), Some(1)),
        ("runs, later", runs(), 100, Some(1), Some(1)),
        ("about to begin, in time", begins(), 22, None, None),
        ("about to begin, late", begins(), 23, Some(1), Some(1)),
        ("never began", begins(), 29, Some(0), Some(1)),
        ("cannot have begun, in time", is_made(), 16, None, None),
        ("cannot have begun", is_made(), 17, Some(0), None),
        ("cannot have begun, late", is_made(), 23, Some(0), Some(1)),
        ("has no node", nowhere(), 17, Some(0), Some(0)),
        ("is gone", SeenPod { gone: true, ..runs() }, 100, None, None),
        ("is silent", SeenPod { silent: true, ..runs() }, 100, None, None),
    ] {
        assert_eq!(reminder(&pod, MADE + after, true), kubelets_forget, "{name}");
        assert_eq!(reminder(&pod, MADE + after, false), kubelets_do_not, "{name}");
    }
}

#[test]
fn a_report_in_a_log_that_nobody_can_read_is_waited_for_and_not_for_ever() {
    let (refused, forbidden) = (CallError::Failed("tls".into()), CallError::Forbidden("no".into()));
    let silent = CallError::NoAnswer("waited for 20 s".into());
    let overloaded = CallError::Overloaded("try again".into());
    for (error, after, expected) in [
        (&refused, 0, "yet: the API server cannot read it from the node"),
        (&refused, 300, "yet: the API server cannot read it from the node"),
        (&forbidden, 300, "yet: the right to read it is missing (pods/log: get)"),
        (&silent, 300, "yet: it does not come; its node may be out of reach"),
        (&overloaded, 300, "yet: the API server has too much to do to read it"),
        (
            &CallError::NotFound,
            300,
            "yet: its node does not know of the pod; its kubelet may have just begun",
        ),
        (&CallError::NotFound, 301, "never: not found"),
        (&refused, 301, "never: the API server refused: tls"),
        (&silent, 301, "never: no answer from the API server: waited for 20 s"),
        (&forbidden, 301, "never: the API server forbids it: no"),
        (&overloaded, 301, "never: the API server has too much to do: try again"),
    ] {
        let said = match unread(error, after) {
            Untold::Yet(said) => {
                said.replace("it has ended, and its report is in its pod's log", "yet")
            }
            Untold::Ever(why) => why.replace(
                "it has ended, and its report in its pod's log was not to be had",
                "never",
            ),
        };
        assert_eq!(said, expected, "{error}, {after} s");
    }
}
