//! The longest names that users may give: what derives from them is taken by the API server, and stays apart.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};

use super::harness::{PATIENCE, Town, pod, spec};
use super::support::wait;

/// Two of this length that differ in their last letter alone.
fn twins(length: usize) -> [String; 2] {
    ["a", "b"].map(|last| format!("{}{last}", "n".repeat(length - 1)))
}

fn is_label(text: &str) -> bool {
    let ends = |character: Option<char>| character.is_some_and(|it| it.is_ascii_alphanumeric());
    text.len() <= 63 && ends(text.chars().next()) && ends(text.chars().last())
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_and_jobs_of_the_longest_names_have_each_its_run_under_a_name_of_its_own() {
    let mut town = Town::new("long-pods").await;
    town.dialect = Dialect::ExtendedJob;
    let follows = json!({
        "trigger": {"strategy": "podstate", "podstate": {
            "when": "notready", "selector": {"matchLabels": {"app": "web"}},
        }},
        "template": {"spec": pod("true")},
    });
    let jobs: Vec<String> = twins(253).into_iter().chain(twins(63)).collect();
    for name in &jobs {
        town.create(name, follows.clone()).await;
    }
    for name in &jobs {
        knows_pods(&town, name).await;
    }
    let mut uids = BTreeSet::new();
    for name in twins(253) {
        // No node takes it: a kubelet has no room for such a name among its files.
        let mut spec = pod("true");
        spec["nodeSelector"] = json!({"there": "is-none"});
        let one = json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec});
        let one: Pod = serde_json::from_value(one).unwrap();
        uids.insert(made(&town, &one).await.metadata.uid.unwrap());
    }
    let mut names = BTreeSet::new();
    for name in &jobs {
        for id in 1..=2 {
            let run = town.ended(name, id).await;
            assert_eq!((&run["succeeded"], &run["trigger"]), (&json!(true), &json!("pod-state")));
            let job = run["job"].as_str().unwrap().to_owned();
            assert!(is_label(&job) && job.len() <= 56, "{job}");
            assert!(job.starts_with("nnnnnnnnnnnnnnnnnnn-nnnnnnnnnnnnnnnnnnn-"), "{job}");
            assert!(names.insert(job), "two runs of one name: {names:?}");
        }
    }
    let label = |pod: &Pod, name: &str| {
        let labels = pod.metadata.labels.as_ref();
        labels.and_then(|all| all.get(&format!("fissile.cloudfoundry.org/{name}")).cloned())
    };
    let pods = town.pods().await;
    let runs: Vec<&Pod> = pods.iter().filter(|pod| label(pod, "ejob-name").is_some()).collect();
    let of: BTreeSet<String> = runs.iter().filter_map(|pod| label(pod, "ejob-name")).collect();
    let by: BTreeSet<String> = runs.iter().filter_map(|pod| label(pod, "triggering-pod")).collect();
    assert_eq!((of.len(), by), (jobs.len(), uids), "{of:?}");
    assert!(of.iter().all(|name| is_label(name)), "{of:?}");
}

/// Waits until it has noted the pods that are there.
pub(super) async fn knows_pods(town: &Town, name: &str) {
    wait::until(&format!("{name} notes no pods"), PATIENCE, async || {
        let annotations = town.jobs().get(name).await.unwrap().metadata.annotations;
        let record = annotations.and_then(|all| all.get("manciple.dev/runs").cloned());
        let has_noted = record.as_ref().is_some_and(|record| record.contains("\"pods\""));
        if has_noted { Ok(()) } else { Err(record) }
    })
    .await;
}

/// Creates a pod as soon as its namespace has its service account with a token: until then it is refused.
pub(super) async fn made(town: &Town, pod: &Pod) -> Pod {
    wait::until("the pod is refused", PATIENCE, async || {
        match town.cluster.api::<Pod>().create(&PostParams::default(), pod).await {
            Ok(made) => Ok(made),
            Err(kube::Error::Api(status)) if status.message.contains("service account") => {
                Err(status)
            }
            Err(error) => panic!("the pod is refused: {error}"),
        }
    })
    .await
}

/// Of one container each.
fn containers(scripts: [&str; 2]) -> Value {
    let mut pod = pod("");
    let one = pod["containers"][0].clone();
    let of = |(name, script): (String, &str)| {
        let mut one = one.clone();
        (one["name"], one["args"]) = (json!(name), json!(["-c", script]));
        one
    };
    pod["containers"] = twins(63).into_iter().zip(scripts).map(of).collect();
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_of_the_longest_names_have_each_a_secret_of_its_own() {
    for wraps in [true, false] {
        let mut town = Town::either_way("long-outputs", wraps).await;
        town.start().await;
        town.dialect = Dialect::ExtendedJob;
        let [prefix, name] = twins(253);
        let scripts = [r#"echo '{"k": "first"}'"#, r#"echo '{"k": "second"}'"#];
        town.create(
            &name,
            json!({
                "trigger": {"strategy": "once"}, "template": {"spec": containers(scripts)},
                "output": {"namePrefix": prefix, "versioned": true},
            }),
        )
        .await;
        two_apart(&town, &name).await;
        town.dialect = Dialect::QuarksJob;
        let scripts = [
            r#"echo '{"k": "first"}' > /mnt/quarks/o.json"#,
            r#"echo '{"k": "second"}' > /mnt/quarks/o.json"#,
        ];
        let mut spec = spec("once", &containers(scripts));
        let secrets = twins(300);
        let of = |(container, secret)| (container, json!({"o.json": {"name": secret}}));
        let map: serde_json::Map<_, _> = twins(63).into_iter().zip(&secrets).map(of).collect();
        spec["output"] = json!({"outputMap": map});
        town.create(&name, spec).await;
        two_apart(&town, &name).await;
    }
}

/// A run of it has made two Secrets, one of each container.
async fn two_apart(town: &Town, name: &str) {
    let run = town.ended(name, 1).await;
    assert_eq!(run["succeeded"], true, "{run}");
    let made = run["made"].as_array().unwrap();
    assert_eq!(made.len(), 2, "{run}");
    let mut held = BTreeSet::new();
    for secret in made.iter().filter_map(Value::as_str) {
        assert!(secret.len() <= 253 && secret.starts_with("nnn"), "{secret}");
        held.insert(town.data(secret).await["k"].clone());
    }
    assert_eq!(held, ["first".to_owned(), "second".to_owned()].into());
}
