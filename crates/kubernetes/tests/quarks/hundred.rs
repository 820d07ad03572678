//! Many containers in a pod, with output of one or of each, and a hundred outputs of one container.
//!
//! `MANCIPLE_CONTAINERS=100` has so many in a pod: a node of two cores takes minutes for them, in which other pods wait. A
//! hundred wrapped ones are in `beside.rs`.

use serde_json::{Value, json};

use super::harness::{Town, pod, spec};

const HUNDRED: usize = 100;
/// How many there are in a pod when nobody says otherwise.
const MANY: usize = 20;
const WELL: &str = r#"echo '{"k": "v"}' > /mnt/quarks/o.json"#;

fn many() -> usize {
    let said = std::env::var("MANCIPLE_CONTAINERS").ok();
    said.map_or(MANY, |said| said.parse().expect("a number"))
}

/// The script of a container that leaves its number.
pub(super) fn numbered(number: usize) -> String {
    format!(r#"echo '{{"k": "{number}"}}' > /mnt/quarks/o.json"#)
}

/// Once, in many containers: each runs the script of its number.
fn containers(script: impl Fn(usize) -> String) -> Value {
    let mut pod = pod("");
    let one = pod["containers"][0].clone();
    let of = |number: usize| {
        let mut one = one.clone();
        one["name"] = json!(format!("c{number}"));
        one["args"] = json!(["-c", script(number)]);
        one
    };
    pod["containers"] = (0..many()).map(of).collect();
    spec("once", &pod)
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_containers_beside_one_sidecar_each_has_its_output_kept() {
    let mut town = Town::either_way("many", false).await;
    town.start().await;
    let mut spec = containers(numbered);
    let of = |number| (format!("c{number}"), json!({"o.json": {"name": format!("made-{number}")}}));
    spec["output"] = json!({"outputMap": (0..many()).map(of).collect::<serde_json::Map<_, _>>()});
    town.create("a", spec).await;
    let run = town.ended("a", 1).await;
    assert_eq!(run["made"].as_array().map(Vec::len), Some(many()), "{run}");
    for number in [0, many() / 2, many() - 1] {
        assert_eq!(town.data(&format!("made-{number}")).await["k"], number.to_string());
    }
    let pod = town.pods().await.remove(0).spec.unwrap();
    // Since Kubernetes 1.29 a sidecar is one of the init containers.
    let all = pod.containers.len() + pod.init_containers.as_ref().map_or(0, Vec::len);
    assert_eq!(all, many() + 1, "one sidecar for all");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_among_many_containers_the_output_is_kept() {
    let mut towns = Vec::new();
    for wraps in [true, false] {
        let mut town = Town::either_way("one-of-many", wraps).await;
        town.start().await;
        let mut spec = containers(|_| "true".to_owned());
        spec["template"]["spec"]["template"]["spec"]["containers"][17]["args"] =
            json!(["-c", WELL]);
        spec["output"] = json!({"outputMap": {"c17": {"o.json": {"name": "made"}}}});
        town.create("a", spec).await;
        towns.push(town);
    }
    for town in &towns {
        let run = town.ended("a", 1).await;
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &json!(["made"])), "{run}");
        assert_eq!(town.data("made").await["k"], "v");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_outputs_of_one_container_are_kept() {
    let mut towns = Vec::new();
    for wraps in [true, false] {
        let mut town = Town::either_way("hundred-files", wraps).await;
        town.start().await;
        let script = r#"for number in $(seq 0 99); do
            echo "{\"k\": \"$number\"}" > /mnt/quarks/$number.json; done"#;
        let mut spec = spec("once", &pod(script));
        let of = |number| (format!("{number}.json"), json!({"name": format!("made-{number}")}));
        let files: serde_json::Map<_, _> = (0..HUNDRED).map(of).collect();
        spec["output"] = json!({"outputMap": {"c": files}});
        town.create("a", spec).await;
        towns.push(town);
    }
    for town in &towns {
        let run = town.ended("a", 1).await;
        assert_eq!(run["made"].as_array().map(Vec::len), Some(HUNDRED), "{run}");
        for number in [0, 42, 99] {
            assert_eq!(town.data(&format!("made-{number}")).await["k"], number.to_string());
        }
    }
}
