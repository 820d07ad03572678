use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::quarks::output::report;
use crate::quarks::state::pod::SeenPod;

/// A pod whose containers have ended with these codes, or go on; a native sidecar is among the first.
pub(in crate::quarks) fn pod(
    containers: &[(&str, Option<i32>)],
    sidecar: Option<(bool, Option<i32>)>,
) -> SeenPod {
    seen(&object(containers, sidecar))
}

fn seen(object: &Value) -> SeenPod {
    let pod: Pod = serde_json::from_value(object.clone()).unwrap();
    SeenPod::of(&pod).unwrap()
}

fn object(containers: &[(&str, Option<i32>)], sidecar: Option<(bool, Option<i32>)>) -> Value {
    let status = |(name, code): (&str, Option<i32>)| {
        let state = match code {
            Some(code) => json!({"terminated": {"exitCode": code, "reason": "r"}}),
            None => json!({"running": {}}),
        };
        json!({
            "name": name, "image": "i", "imageID": "i", "restartCount": 0, "ready": false,
            "state": state,
        })
    };
    let mut main: Vec<(&str, Option<i32>)> = containers.to_vec();
    let mut first = Vec::new();
    if let Some((native, code)) = sidecar {
        if native { &mut first } else { &mut main }.push(("output-persist", code));
    }
    let names = |all: &[(&str, Option<i32>)]| -> Vec<Value> {
        all.iter().map(|(name, _)| json!({"name": name})).collect()
    };
    let counted: Vec<&str> =
        main.iter().chain(&first).map(|(name, _)| *name).filter(|name| *name != "mesh").collect();
    json!({
        "metadata": {
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "1",
            "annotations": {"manciple.dev/containers": counted.join(",")},
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true,
            }],
        },
        "spec": {
            "restartPolicy": "Never", "containers": names(&main), "initContainers": names(&first),
        },
        "status": {
            "phase": "Running",
            "containerStatuses": main.iter().copied().map(status).collect::<Vec<_>>(),
            "initContainerStatuses": first.iter().copied().map(status).collect::<Vec<_>>(),
        },
    })
}

#[test]
fn a_pod_is_over_when_what_counts_in_it_is() {
    for (name, containers, sidecar, succeeded, waits) in [
        ("it goes on", vec![("c", None)], None, false, false),
        ("it is over, and its phase late", vec![("c", Some(0))], None, true, false),
        ("it failed, and its phase is late", vec![("c", Some(1))], None, false, false),
        ("a mesh goes on", vec![("c", Some(0)), ("mesh", None)], None, true, false),
        ("a classic sidecar waits", vec![("c", Some(0))], Some((false, None)), false, true),
        ("the same of one that failed", vec![("c", Some(1))], Some((false, None)), false, true),
        ("not yet", vec![("c", Some(0)), ("d", None)], Some((false, None)), false, false),
        ("a classic sidecar has ended", vec![("c", Some(0))], Some((false, Some(0))), true, false),
        ("a native one reads still", vec![("c", Some(0))], Some((true, None)), false, false),
        ("a native one has ended", vec![("c", Some(0))], Some((true, Some(0))), true, false),
    ] {
        let pod = pod(&containers, sidecar);
        assert_eq!((pod.has_succeeded(), pod.waits_for_us), (succeeded, waits), "{name}");
        assert_eq!(pod.sidecar, sidecar.is_some(), "{name}");
        assert_eq!(pod.lingers(), name == "a mesh goes on", "{name}");
    }
}

#[test]
fn a_pod_that_failed_is_over_though_a_mesh_goes_on() {
    let pod = pod(&[("c", Some(1)), ("mesh", None)], None);
    assert_eq!((pod.has_succeeded(), pod.is_over(), pod.lingers()), (false, true, true));
}

/// A kubelet ends a native sidecar after all containers; a mesh's would be waited for for ever.
#[test]
fn a_native_sidecar_is_told_where_a_mesh_goes_on_and_counts_as_it_ended_first() {
    let waits = |containers: &[(&str, Option<i32>)]| pod(containers, Some((true, None)));
    let both = [("c", Some(0)), ("mesh", None)];
    let waiting = waits(&both);
    assert!(waiting.waits_for_us && !waiting.is_over());
    assert!(!waits(&[("c", Some(0))]).waits_for_us, "the kubelet ends it");
    assert!(!waits(&[("c", None), ("mesh", None)]).waits_for_us, "not yet");
    let mut object = object(&both, Some((true, None)));
    object["metadata"]["annotations"]["manciple.dev/ended"] = json!("true");
    let told = seen(&object);
    assert!(!told.waits_for_us && !told.is_over(), "it reads still");
    let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed", "message": "m"}});
    let again = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let statuses = |state: &Value, last: &Value| {
        let mut object = object.clone();
        let sidecar = &mut object["status"]["initContainerStatuses"][0];
        (sidecar["state"], sidecar["lastState"]) = (state.clone(), last.clone());
        seen(&object)
    };
    for (name, state, last) in [
        ("it has ended", &ended, &json!({})),
        ("it waits to begin anew", &again, &ended),
        ("it was begun anew", &json!({"running": {}}), &ended),
    ] {
        let pod = statuses(state, last);
        assert!(
            pod.is_over() && pod.has_succeeded() && pod.lingers() && !pod.waits_for_us,
            "{name}: {pod:?}"
        );
        assert_eq!(pod.containers["output-persist"].message, "m", "{name}");
        assert_eq!(pod.anew, name != "it has ended", "{name}");
    }
}

/// The kubelet of a node that went down in order begins all containers of a pod anew.
#[test]
fn what_a_native_sidecar_left_before_the_others_ended_is_of_a_try_before() {
    let mut object = object(&[("c", Some(0)), ("mesh", None)], Some((true, None)));
    object["metadata"]["annotations"]["manciple.dev/ended"] = json!("true");
    let at = |second: u8| {
        let at = format!("2026-01-01T00:00:{second:02}Z");
        json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": at, "message": "m"}})
    };
    object["status"]["containerStatuses"][0]["state"] = at(30);
    for (name, second, is_over) in
        [("before", 29, false), ("in the same second", 30, true), ("after", 31, true)]
    {
        object["status"]["initContainerStatuses"][0]["lastState"] = at(second);
        let pod = seen(&object);
        assert_eq!((pod.is_over(), pod.anew), (is_over, is_over), "{name}");
    }
}

#[test]
fn each_container_of_a_pod_has_its_share_whoever_has_put_it_there() {
    let both = [("c", Some(0)), ("mesh", None)];
    let mut debugged = object(&both, None);
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "shell"}]);
    for (name, object, sharers) in [
        ("a mesh's", object(&both, None), 2),
        ("our sidecar", object(&both, Some((false, None))), 3),
        ("our sidecar, among the first", object(&both, Some((true, None))), 3),
        ("one to debug it", debugged, 3),
    ] {
        assert_eq!(seen(&object).sharers, sharers, "{name}");
    }
}

#[test]
fn of_a_pod_that_was_evicted_the_outcome_says_so() {
    let mut object = object(&[], None);
    object["status"] = json!({
        "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
    });
    let pod = seen(&object);
    assert!(pod.is_over() && !pod.has_succeeded());
    assert_eq!(report::ends(&pod), "Evicted: The node was low on resource: memory.");
}

#[test]
fn why_a_container_could_not_run_is_told_in_the_words_of_its_runtime() {
    let ends = |reason: &str, message: &str| {
        let mut object = object(&[("c", Some(128))], None);
        let ended = json!({"exitCode": 128, "reason": reason, "message": message});
        object["status"]["containerStatuses"][0]["state"]["terminated"] = ended;
        report::ends(&seen(&object))
    };
    let said = "exec: \"/no/such/program\": no such file";
    let told = format!("container c cannot run: {said}");
    for (reason, message, expected) in [
        ("StartError", said, &*told),
        ("ContainerCannotRun", said, &told),
        ("StartError", "", "container c exited with 128 (StartError)"),
        // What a container leaves is its own.
        ("Error", said, "container c exited with 128"),
    ] {
        assert_eq!(ends(reason, message), expected, "{reason}");
    }
    assert!(ends("StartError", &"é".repeat(1000)).len() < 600);
    for (code, words) in [(126, "cannot be executed"), (127, "is not found"), (1, "exited with 1")]
    {
        let mut object = object(&[("c", Some(code))], None);
        object["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] = json!("Error");
        assert!(report::ends(&seen(&object)).contains(words), "{code}");
    }
}

#[test]
fn how_a_container_ended_before_it_was_started_again_is_known() {
    let mut object = object(&[("c", None)], None);
    let ended = json!({"terminated": {"exitCode": 3, "reason": "Error", "message": "m"}});
    let container = &mut object["status"]["containerStatuses"][0];
    (container["state"], container["lastState"]) =
        (json!({"waiting": {"reason": "CrashLoopBackOff"}}), ended.clone());
    let waiting = seen(&object);
    assert!(!waiting.is_over());
    assert_eq!(waiting.before["c"].message, "m");
    assert_eq!(report::ends(&waiting), "container c exited with 3");
    assert!(report::left([waiting].iter()).is_some());
    let container = &mut object["status"]["containerStatuses"][0];
    container["state"] = json!({"terminated": {"exitCode": 137, "reason": "Error"}});
    let killed = seen(&object);
    assert_eq!(report::ends(&killed), "container c exited with 137", "the last one counts");
}

#[test]
fn what_ended_well_because_its_pod_was_ended_has_not_done_its_work() {
    for (name, phase, reason, succeeded) in [
        ("it ended, and the phase is late", "Running", None, true),
        ("what was put into it failed", "Failed", None, true),
        ("its time was up", "Failed", Some("DeadlineExceeded"), false),
        ("it was evicted", "Failed", Some("Evicted"), false),
        ("its node was shut down", "Failed", Some("Terminated"), false),
        ("its node was lost after its end", "Succeeded", Some("NodeLost"), true),
    ] {
        let mut object = object(&[("c", Some(0)), ("mesh", Some(1))], None);
        (object["status"]["phase"], object["status"]["reason"]) = (json!(phase), json!(reason));
        let pod = seen(&object);
        assert_eq!((pod.is_over(), pod.has_succeeded()), (true, succeeded), "{name}");
    }
}

/// Kubelets from 1.27 on say of a container that they never made, as they end its pod, that it ended with 137.
#[test]
fn what_never_began_has_not_ended() {
    let mut object = object(&[("c", Some(137))], None);
    object["status"]["phase"] = json!("Failed");
    let told = json!({"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated"}});
    object["status"]["containerStatuses"][0]["state"] = told;
    let never = seen(&object);
    assert!(never.is_over() && !never.began && never.containers.is_empty());
    assert_eq!(report::ends(&never), "container c never began");
    object["status"]["containerStatuses"][0]["containerID"] = json!("containerd://1");
    let lost = seen(&object);
    assert!(lost.is_over() && lost.began);
    assert_eq!(report::ends(&lost), "container c exited with 137 (ContainerStatusUnknown)");
}

#[test]
fn why_a_pod_does_not_begin_is_told_in_words_that_stay() {
    let waits = |reason: &str| {
        let mut object = object(&[("c", None)], None);
        let waiting = json!({"waiting": {"reason": reason, "message": "m"}});
        object["status"]["containerStatuses"][0]["state"] = waiting;
        seen(&object).trouble
    };
    let image = Some("container c: the image i cannot be pulled".to_owned());
    for reason in [
        "ErrImagePull",
        "ImagePullBackOff",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "ErrImageNeverPull",
        "InvalidImageName",
    ] {
        assert_eq!(waits(reason), image, "{reason}");
    }
    for reason in ["", "ContainerCreating", "PodInitializing"] {
        assert_eq!(waits(reason), None, "{reason}");
    }
    for reason in ["CreateContainerError", "PostStartHookError", "OfAKubeletToCome"] {
        assert_eq!(waits(reason), Some(format!("container c: {reason}: m")), "{reason}");
    }
}

/// From Kubernetes 1.34 on a container may say of itself whether it is begun again.
#[test]
fn a_container_that_its_kubelet_begins_again_is_not_over() {
    // What was put into the pod goes on.
    let ended = |code: i32, own: &Value| {
        let mut object = object(&[("c", Some(code)), ("mesh", None)], None);
        let container = object["spec"]["containers"][0].as_object_mut().unwrap();
        container.extend(own.as_object().unwrap().clone());
        seen(&object)
    };
    let rules = |operator: &str, code: i32| json!([{"action": "Restart", "exitCodes": {"operator": operator, "values": [code]}}]);
    for (own, is_over) in [
        (json!({}), true),
        (json!({"restartPolicy": "Never"}), true),
        (json!({"restartPolicy": "OnFailure"}), false),
        (json!({"restartPolicy": "Never", "restartPolicyRules": rules("In", 1)}), false),
        (json!({"restartPolicy": "Never", "restartPolicyRules": rules("In", 2)}), true),
        (json!({"restartPolicy": "Never", "restartPolicyRules": rules("NotIn", 2)}), false),
        (json!({"restartPolicy": "OnFailure", "restartPolicyRules": rules("In", 2)}), false),
    ] {
        assert_eq!(ended(1, &own).is_over(), is_over, "{own}");
    }
    for (own, is_over) in [
        (json!({}), true),
        (json!({"restartPolicy": "OnFailure"}), true),
        (json!({"restartPolicy": "Always"}), false),
        (json!({"restartPolicy": "Never", "restartPolicyRules": rules("In", 0)}), false),
        (json!({"restartPolicy": "Never", "restartPolicyRules": rules("NotIn", 0)}), true),
    ] {
        let pod = ended(0, &own);
        assert_eq!((pod.is_over(), pod.has_succeeded()), (is_over, is_over), "{own}");
    }
    // What counts of a sidecar of ours is that it has ended, though its kubelet always begins it again.
    let mut both = object(&[("c", Some(0)), ("mesh", None)], Some((true, Some(0))));
    both["spec"]["restartPolicy"] = json!("OnFailure");
    both["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
    assert!(seen(&both).has_succeeded());
}
