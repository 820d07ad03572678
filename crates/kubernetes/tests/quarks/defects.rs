//! Defects of the original that no other test is named after: what brought its controller or its sidecar down, or
//! hung a pod, does nothing here.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::gate::{Gate, WAITS};
use super::harness::{PATIENCE, Town, before, pod, spec};
use super::support::wait;

const WELL: &str = r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#;

/// Once, with output into the Secret `made`.
fn makes(pod: &Value) -> Value {
    let mut spec = spec("once", pod);
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": "made"}}}});
    spec
}

/// Every member of `before` that `after` has not, or has as something else, by its path.
fn lost(before: &Value, after: &Value, path: &str) -> Vec<String> {
    match (before, after) {
        (Value::Object(members), Value::Object(_)) => members
            .iter()
            .flat_map(|(name, value)| lost(value, &after[name], &format!("{path}.{name}")))
            .collect(),
        (Value::Array(items), Value::Array(others)) if items.len() == others.len() => items
            .iter()
            .zip(others)
            .enumerate()
            .flat_map(|(index, (item, other))| lost(item, other, &format!("{path}[{index}]")))
            .collect(),
        (before, after) if before == after => Vec::new(),
        _ => vec![format!("{path}: {before} became {after}")],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d13_what_we_do_not_know_survives_each_write_of_ours() {
    let town = Town::new("d13").await;
    let mut pod = pod(WELL);
    // Of newer servers, of none, and where the official examples have it by mistake.
    pod["initContainers"] = json!([{
        "name": "beside", "image": testkit::cluster::SHELL_IMAGE, "command": ["true"],
        "restartPolicy": "Always", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    }]);
    pod["schedulingGates"] = json!([]);
    pod["ofNobody"] = json!({"deep": [1, {"er": null}]});
    let mut spec = makes(&pod);
    spec["trigger"]["strategy"] = json!("now");
    spec["trigger"]["ofNobody"] = json!("kept");
    spec["output"]["ofNobody"] = json!(["kept"]);
    spec["template"]["spec"]["podFailurePolicy"] = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]});
    spec["ofNobody"] = json!({"kept": true});
    town.create("a", spec).await;
    let before = town.jobs().get("a").await.unwrap().data["spec"].clone();
    assert_eq!(before["ofNobody"]["kept"], true, "the definition keeps it: {before:#}");
    for run in 1..=2 {
        assert_eq!(town.ended("a", run).await["made"], json!(["made"]));
        let settled = town.until("a", "manual", |it| it["spec"]["trigger"]["strategy"] == "manual");
        let mut expected = before.clone();
        expected["trigger"]["strategy"] = json!("manual");
        let lost = lost(&expected, &settled.await["spec"], "spec");
        assert!(lost.is_empty(), "{lost:#?}");
        if run == 1 {
            town.trigger("a", "now").await;
        }
    }
}

/// The metadata of what somebody else has made, with these owners, that looks like one of ours: by the label of the
/// original, or by all that ours are watched and told by.
fn foreign(name: &str, owners: &Value, is_watched: bool) -> Value {
    let mut metadata = json!({
        "name": name, "ownerReferences": owners, "annotations": {},
        "labels": {"quarks.cloudfoundry.org/qjob-name": "a"},
    });
    if is_watched {
        metadata["labels"]["manciple.dev/triggered"] = json!("QuarksJob");
        metadata["annotations"]["manciple.dev/run-id"] = json!("2");
    }
    metadata
}

/// Makes a Job of this metadata, and waits until it is complete.
async fn completed(town: &Town, metadata: &Value) {
    let jobs: Api<Job> = town.cluster.api();
    let marks = json!({"labels": metadata["labels"], "annotations": metadata["annotations"]});
    let job = json!({
        "metadata": metadata, "spec": {"template": {"metadata": marks, "spec": pod("true")}},
    });
    let job: Job = serde_json::from_value(job).unwrap();
    let name = metadata["name"].as_str().unwrap();
    jobs.create(&PostParams::default(), &job).await.unwrap();
    let is_complete = |job: &Job| job.status.as_ref().and_then(|it| it.succeeded) == Some(1);
    wait::until(&format!("{name} is never complete"), PATIENCE, async || {
        let job = jobs.get(name).await.unwrap();
        if is_complete(&job) { Ok(()) } else { Err(job) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_a_job_whose_owner_is_no_controller_brings_nothing_down_and_is_left_alone() {
    let mut town = Town::new("d14").await;
    town.create("a", makes(&pod(WELL))).await;
    assert_eq!(town.ended("a", 1).await["made"], json!(["made"]));
    town.no_jobs().await;
    let uid = town.jobs().get("a").await.unwrap().metadata.uid.unwrap();
    let owner = |more: Value| {
        let mut owner = json!({
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob", "name": "a", "uid": uid,
        });
        owner.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        owner
    };
    town.config_map("owner", "1").await;
    let another = town.cluster.api::<ConfigMap>().get("owner").await.unwrap().metadata.uid;
    let another = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": another, "controller": true,
    });
    let (jobs, pods): (Api<Job>, Api<Pod>) = (town.cluster.api(), town.cluster.api());
    let (mut made, mut bare) = (Vec::new(), Vec::new());
    for (name, owners) in [
        ("no-owner", json!([])),
        ("no-controller", json!([owner(json!({}))])),
        ("not-controlled", json!([owner(json!({"controller": false}))])),
        ("of-another-kind", json!([another])),
    ] {
        for (suffix, is_watched) in [("", false), ("-watched", true)] {
            let name = format!("{name}{suffix}");
            completed(&town, &foreign(&name, &owners, is_watched)).await;
            made.push(name);
        }
        let name = format!("{name}-pod");
        let alone = json!({"metadata": foreign(&name, &owners, true), "spec": pod("true")});
        let alone: Pod = serde_json::from_value(alone).unwrap();
        pods.create(&PostParams::default(), &alone).await.unwrap();
        bare.push(name);
    }
    for run in 2..=3 {
        town.trigger("a", "now").await;
        assert_eq!(town.ended("a", run).await["succeeded"], true, "it goes on");
        assert_eq!(town.runs("a").await, run, "none of these was a run");
        town.until("a", "manual", |it| it["spec"]["trigger"]["strategy"] == "manual").await;
        // The next controller finds all of them in its first list.
        town.kill();
        town.start().await;
    }
    let left = jobs.list(&ListParams::default()).await.unwrap();
    let left: Vec<_> = left.into_iter().filter_map(|job| job.metadata.name).collect();
    for name in made {
        assert!(left.contains(&name), "{name} is not ours to delete: {left:?}");
    }
    for name in bare {
        assert!(pods.get_opt(&name).await.unwrap().is_some(), "{name} is not ours to delete");
    }
}

/// Servers since 1.24 make no Secret for an account; and nothing in a pod needs one.
#[tokio::test(flavor = "multi_thread")]
async fn d15_an_account_without_a_token_secret_and_one_that_is_not_there_are_no_obstacle() {
    let town = Town::still("d15").await;
    let accounts: Api<ServiceAccount> = town.cluster.api();
    let bare: ServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "bare"}})).unwrap();
    accounts.create(&PostParams::default(), &bare).await.unwrap();
    let mut town = town;
    for account in ["bare", "nobody"] {
        // The controller of tokens gives each account a Secret on 1.20, again and again.
        let without = Patch::Merge(json!({"secrets": null}));
        let _ = accounts.patch(account, &PatchParams::default(), &without).await;
        let label = json!({"metadata": {"labels": {"quarks.cloudfoundry.org/qjob-service-account": account}}});
        let namespaces = Api::<Namespace>::all(town.cluster.client.clone());
        let name = town.cluster.namespace.clone();
        namespaces.patch(&name, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
        town.start().await;
        town.create(account, makes(&pod(WELL))).await;
        assert_eq!(town.ended(account, 1).await["made"], json!(["made"]), "{account}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d16_a_pod_whose_host_has_another_name_than_the_pod_keeps_its_output() {
    for wraps in [true, false] {
        let mut town = Town::either_way("d16", wraps).await;
        town.start().await;
        for (name, member, value) in
            [("named", "hostname", json!("elsewhere")), ("as-its-node", "hostNetwork", json!(true))]
        {
            let mut pod = pod(&format!("[ $(hostname) != $POD ] && {WELL}"));
            pod["containers"][0]["env"] = json!([{
                "name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
            }]);
            pod[member] = value;
            town.create(name, makes(&pod)).await;
            let run = town.ended(name, 1).await;
            assert_eq!(run["made"], json!(["made"]), "{name}, wrapped: {wraps}: {run}");
            assert_eq!(town.data("made").await["k"], "v");
        }
    }
}

/// Whether an account may do this with Secrets of the namespace.
async fn may(town: &Town, verb: &str) -> bool {
    let namespace = &town.cluster.namespace;
    let review: SubjectAccessReview = serde_json::from_value(json!({"spec": {
        "user": format!("system:serviceaccount:{namespace}:default"),
        "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{namespace}"), "system:authenticated"],
        "resourceAttributes": {"namespace": namespace, "verb": verb, "resource": "secrets"},
    }}))
    .unwrap();
    let reviews = Api::<SubjectAccessReview>::all(town.cluster.client.clone());
    let said = reviews.create(&PostParams::default(), &review).await.unwrap();
    said.status.unwrap().allowed
}

/// The original mounted the token of an account that could do anything with any Secret of the namespace.
#[tokio::test(flavor = "multi_thread")]
async fn d18_nothing_in_a_pod_may_read_or_write_secrets_and_no_token_is_put_there() {
    for wraps in [true, false] {
        let mut town = Town::either_way("d18", wraps).await;
        town.start().await;
        let gate = Gate::new();
        let mut pod = before(&gate, pod(&format!("{WAITS}; {WELL}")));
        pod["automountServiceAccountToken"] = json!(false);
        town.create("a", makes(&pod)).await;
        let is_running = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Running")
        };
        let pod = wait::until("it never runs", PATIENCE, async || match town.pods().await.pop() {
            Some(pod) if is_running(&pod) => Ok(pod),
            pod => Err(pod),
        })
        .await;
        let made = serde_json::to_value(pod.spec.as_ref().unwrap()).unwrap();
        assert_eq!(made["serviceAccountName"], "default", "its account is as the template has it");
        let text = made.to_string();
        for word in ["token", "/var/run/secrets"] {
            assert!(
                !text.replace("automountServiceAccountToken", "").contains(word),
                "{word}: {made:#}"
            );
        }
        for verb in ["get", "list", "create", "update", "delete"] {
            assert!(!may(&town, verb).await, "its account may {verb} Secrets");
        }
        assert_eq!(town.list::<RoleBinding>().await.len(), 0);
        gate.open();
        assert_eq!(town.ended("a", 1).await["made"], json!(["made"]), "wrapped: {wraps}");
    }
}

/// Killed from without, as a machine that has no memory left does, and not by an exit code that looks like it.
#[tokio::test(flavor = "multi_thread")]
async fn d6_output_of_a_container_that_was_killed_is_kept() {
    for (test, wraps, killed) in [
        // Around it the agent is the first process of the container, and the command can be killed.
        ("d6-killed", true, "sh -c 'kill -9 $PPID'; sleep 9"),
        // Beside it the command is the first, which only the kernel can kill.
        ("d6-killed-sidecar", false, "exec tail /dev/zero"),
    ] {
        let mut town = Town::still(test).await;
        town.settings.wraps = wraps;
        town.start().await;
        let mut pod = pod(&format!("{WELL}; {killed}"));
        pod["containers"][0]["resources"] = json!({"limits": {"memory": "24Mi"}});
        let mut spec = makes(&pod);
        spec["output"]["writeOnFailure"] = json!(true);
        town.create("a", spec).await;
        let run = town.ended("a", 1).await;
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(false), &json!(["made"])), "{run}");
        assert!(run["message"].as_str().unwrap().contains("137"), "{test}: {run}");
        assert_eq!(town.data("made").await["k"], "v");
    }
}

/// Ends well, with output, when it is told to end.
fn ends_well() -> String {
    format!("ends() {{ {WELL}; exit 0; }}; trap ends TERM; sleep 600 & wait")
}

/// A kubelet that is busy may take a pod away before it has looked how its container ended: then nobody knows what it left,
/// and another one is tried. A sidecar is told to end just when it is, and may be the first; Kubernetes takes the pod away
/// when it has ended.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_leaves_that_is_given_up_is_kept() {
    let town = Town::new("given-up-kept").await;
    let mut spec = makes(&pod(&ends_well()));
    spec["output"]["writeOnFailure"] = json!(true);
    spec["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(10);
    // It has to have begun by then.
    spec["template"]["spec"]["activeDeadlineSeconds"] = json!(20);
    for attempt in 0..3 {
        let name = format!("kept-{attempt}");
        spec["output"]["outputMap"]["c"]["o.json"]["name"] = json!(name);
        town.create(&name, spec.clone()).await;
        let run = town.ended(&name, 1).await;
        assert_eq!(run["reason"], "DeadlineExceeded", "{run}");
        let message = run["message"].as_str().unwrap_or_default();
        if !message.contains("exited with 137 (ContainerStatusUnknown)") {
            assert_eq!(run["made"], json!([name]), "{run}");
            return;
        }
        assert_eq!(run["made"], json!(null), "{run}");
    }
    panic!("none was kept");
}

/// As many programs do: they end well when they are told to end, with their work undone.
#[tokio::test(flavor = "multi_thread")]
async fn what_ends_well_because_its_pod_or_its_job_is_given_up_has_failed() {
    for (test, wraps, is_away) in [
        ("given-up", true, false),
        ("given-up-sidecar", false, false),
        ("given-up-away", true, true),
    ] {
        let mut town = Town::still(test).await;
        town.settings.wraps = wraps;
        town.start().await;
        for (name, of_pod) in [("pod", true), ("job", false)] {
            for has_output in [true, false] {
                let mut pod = pod(&ends_well());
                pod["terminationGracePeriodSeconds"] = json!(10);
                let mut spec = if has_output { makes(&pod) } else { spec("once", &pod) };
                let job = &mut spec["template"]["spec"];
                let limited = if of_pod { &mut job["template"]["spec"] } else { job };
                limited["activeDeadlineSeconds"] = json!(5);
                town.create(&format!("{name}-{has_output}"), spec).await;
            }
        }
        if is_away {
            // All of it is over, its containers too, before anybody looks.
            wait::until("not all four have a pod", PATIENCE, async || {
                let pods = town.pods().await;
                if pods.len() < 4 { Err(pods) } else { Ok(()) }
            })
            .await;
            town.kill();
            tokio::time::sleep(std::time::Duration::from_secs(12)).await;
            town.start().await;
        }
        for (name, reason) in [("pod", "BackoffLimitExceeded"), ("job", "DeadlineExceeded")] {
            for has_output in [true, false] {
                let run = town.ended(&format!("{name}-{has_output}"), 1).await;
                assert_eq!(run["reason"], reason, "{test}: {run}");
            }
        }
        assert!(town.secret("made").await.is_none());
    }
}
