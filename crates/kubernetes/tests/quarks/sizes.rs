//! How large an output may be: what a Secret holds, and not a byte more.

use kubernetes::quarks::Dialect;
use serde_json::{Value, json};

use super::harness::{Town, pod, spec};

/// What a Secret holds, in bytes.
const HELD: usize = 1024 * 1024;

/// Writes a JSON object of this size.
fn writes(bytes: usize) -> String {
    let value = bytes - r#"{"k":""}"#.len();
    format!(r#"printf '{{"k":"'; head -c {value} /dev/zero | tr '\0' x; printf '"}}'"#)
}

/// Of a file.
fn leaves(name: &str, bytes: usize) -> Value {
    let script = format!("{{ {}; }} > /mnt/quarks/o.json", writes(bytes));
    let mut spec = spec("once", &pod(&script));
    spec["output"] = json!({"outputMap": {"c": {"o.json": {"name": name}}}});
    spec
}

/// Of what is printed, by a command or by what only the image names.
fn prints(name: &str, bytes: usize, names_command: bool) -> Value {
    let mut pod = pod(&writes(bytes));
    if !names_command {
        pod["containers"][0].as_object_mut().unwrap().remove("command");
    }
    let prefix = name.strip_suffix("-c").unwrap();
    json!({
        "trigger": {"strategy": "once"}, "template": {"spec": pod},
        "output": {"namePrefix": prefix},
    })
}

/// Runs one of each size; what is too large is said to be, with what there is room for.
async fn of_each_size(town: &Town, of: impl Fn(&str, usize) -> Value) {
    for (name, bytes) in [("held-c", HELD), ("over-c", HELD + 1), ("far-c", 2_000_000)] {
        town.create(name, of(name, bytes)).await;
        let run = town.ended(name, 1).await;
        let object = town.get(name).await;
        if bytes <= HELD {
            assert_eq!((&run["reason"], &run["made"]), (&json!("Completed"), &json!([name])));
            let held = town.data(name).await;
            assert_eq!((held.len(), held["k"].len() + r#"{"k":""}"#.len()), (1, bytes));
            continue;
        }
        assert_eq!((&run["reason"], &run["made"]), (&json!("OutputTooLarge"), &Value::Null));
        let words = run["message"].as_str().unwrap();
        for part in ["container c", &bytes.to_string(), "of which a Secret holds 1048576"] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let succeeded = conditions.iter().find(|it| it["type"] == "Succeeded").unwrap();
        assert_eq!(
            (&succeeded["status"], &succeeded["reason"], &succeeded["message"]),
            (&json!("False"), &json!("OutputTooLarge"), &run["message"])
        );
        assert_eq!(object["status"]["completed"], false);
        assert!(town.secret(name).await.is_none(), "nothing of it is written");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_holds_what_a_secret_does_with_the_agent_around_the_command() {
    let town = Town::new("sizes").await;
    of_each_size(&town, leaves).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_holds_what_a_secret_does_with_the_agent_beside_the_command() {
    let mut town = Town::still("sizes-sidecar").await;
    town.settings.wraps = false;
    town.start().await;
    of_each_size(&town, leaves).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_holds_what_a_secret_does() {
    let mut town = Town::new("sizes-ejob").await;
    town.dialect = Dialect::ExtendedJob;
    of_each_size(&town, |name, bytes| prints(name, bytes, true)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_of_the_image_prints_holds_what_a_secret_does() {
    let mut town = Town::new("sizes-ejob-log").await;
    town.dialect = Dialect::ExtendedJob;
    of_each_size(&town, |name, bytes| prints(name, bytes, false)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_beyond_all_that_one_agent_brings_is_said_and_the_rest_is_kept() {
    const FILES: usize = 7;
    for wraps in [true, false] {
        let mut town = Town::either_way("sizes-all", wraps).await;
        town.start().await;
        let file = |number: usize| format!("{number}.json");
        let scripts =
            (0..FILES).map(|it| format!("{{ {}; }} > /mnt/quarks/{}", writes(HELD), file(it)));
        let mut spec = spec("once", &pod(&scripts.collect::<Vec<_>>().join("; ")));
        let options = |it: usize| (file(it), json!({"name": format!("of-{it}")}));
        let files: serde_json::Map<_, _> = (0..FILES).map(options).collect();
        spec["output"] = json!({"outputMap": {"c": files}});
        town.create("a", spec).await;
        let run = town.ended("a", 1).await;
        assert_eq!(run["reason"], "OutputTooLarge", "{run}");
        let made = run["made"].as_array().unwrap();
        assert!((4..FILES).contains(&made.len()), "{run}");
        let words = run["message"].as_str().unwrap();
        let each = "it has 1048576 bytes, and with the other output there is no room";
        assert_eq!(words.matches(each).count(), FILES - made.len(), "{words}");
        for name in made {
            assert_eq!(town.data(name.as_str().unwrap()).await["k"].len() + 8, HELD);
        }
    }
}
