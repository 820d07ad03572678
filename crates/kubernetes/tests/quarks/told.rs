//! Why a run came to nothing, as `kubectl describe` shows it.

use k8s_openapi::api::core::v1::Event;
use serde_json::json;

use super::harness::{PATIENCE, Town, pod, spec};
use super::output::{WELL, makes};
use super::support::wait;

/// What is told of the QuarksJob of this name, but for what it waits for, once there is anything.
async fn told(town: &Town, name: &str) -> Vec<Event> {
    wait::until(&format!("nothing is told of {name}"), PATIENCE, async || {
        let mut events = town.list::<Event>().await;
        events.retain(|it| {
            let of = &it.involved_object;
            let is_its =
                of.kind.as_deref() == Some("QuarksJob") && of.name.as_deref() == Some(name);
            // A busy kubelet may say of any pod that it waits for what it mounts.
            is_its && it.reason.as_deref() != Some("Waiting")
        });
        if events.is_empty() { Err(events) } else { Ok(events) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_way_to_come_to_nothing_is_one_event_of_the_quarksjob() {
    let town = Town::new("told").await;
    town.make_secret(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fixed"},
        "immutable": true, "stringData": {"theirs": "1"},
    }))
    .await;
    let mut refused = pod("true");
    refused["restartPolicy"] = json!("Always");
    let leaves = |name: &str, script: &str| makes(script, json!({"name": name}));
    let large = "head -c 2097152 /dev/zero > /mnt/quarks/o.json";
    for (name, spec, reason, words) in [
        ("refused", spec("once", &refused), "JobRefused", "restartPolicy"),
        (
            "empty",
            json!({"trigger": {"strategy": "once"}}),
            "TemplateInvalid",
            "spec.template.spec",
        ),
        ("missing", leaves("missing", "true"), "OutputMissing", "container c: o.json: it was not"),
        (
            "broken",
            leaves("broken", "echo '{' > /mnt/quarks/o.json"),
            "OutputInvalid",
            "container c: o.json: it is not JSON",
        ),
        ("large", leaves("large", large), "OutputTooLarge", "container c: o.json: it has 2097152"),
        ("fixed", leaves("fixed", WELL), "SecretRefused", "fixed is there and immutable"),
    ] {
        town.create(name, spec).await;
        let run = town.ended(name, 1).await;
        assert_eq!(run["reason"], reason, "{run}");
        let uid = town.jobs().get(name).await.unwrap().metadata.uid;
        let events = told(&town, name).await;
        let [event] = events.as_slice() else { panic!("{name}: {events:#?}") };
        let marks = (event.reason.as_deref(), event.type_.as_deref());
        assert_eq!(marks, (Some(reason), Some("Warning")), "{event:#?}");
        assert_eq!(event.involved_object.uid, uid, "{name}");
        let message = event.message.as_deref().unwrap();
        assert!(message.starts_with("run 1: ") && message.contains(words), "{name}: {message}");
        let said = run["message"].as_str().unwrap();
        assert!(said.contains(words), "{name}: as the status has it: {said}");
    }
}
