//! Names of files in `outputMap`: paths within the directory of output.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::harness::{Town, pod, spec};

/// Of two containers: what is kept of the first, and the second has something beside its own output.
fn keeps(script: &str, files: &Value) -> Value {
    let mut pod = pod(script);
    let mut other = pod["containers"][0].clone();
    let beside = r#"echo '{"k": "own"}' > /mnt/quarks/own.json
        echo '{"k": "planted"}' > /mnt/quarks/planted.json"#;
    (other["name"], other["args"]) = (json!("d"), json!(["-c", beside]));
    pod["containers"].as_array_mut().unwrap().push(other);
    let mut spec = spec("once", &pod);
    spec["output"] = json!({"outputMap": {"c": files, "d": {"own.json": {"name": "own"}}}});
    spec
}

/// The names of what a run has made.
fn made(run: &Value) -> BTreeSet<&str> {
    run["made"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The agent is around the command, or beside it, where the directories of both containers are.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_of_a_file_is_a_path_within_the_directory_and_one_with_dots_that_lead_up_is_refused()
{
    for wraps in [true, false] {
        let mut town = Town::either_way("paths", wraps).await;
        town.start().await;
        let script = r#"mkdir /mnt/quarks/sub
            for name in plain dotted rooted sub/below; do
                echo "{\"k\": \"$name\"}" > /mnt/quarks/$name.json
            done"#;
        let files = json!({
            "plain.json": {"name": "plain"}, "./dotted.json": {"name": "dotted"},
            "/rooted.json": {"name": "rooted"}, "//sub/./below.json": {"name": "below"},
        });
        town.create("joined", keeps(script, &files)).await;
        // Where they would lead to there is something, whichever way they are read.
        let script = r#"mkdir /mnt/quarks/sub /mnt/d
            for place in /mnt /mnt/d /mnt/quarks /; do
                echo '{"k": "planted"}' > $place/planted.json
            done
            echo '{"k": "good"}' > /mnt/quarks/good.json"#;
        let up = [
            "../planted.json",
            "../d/planted.json",
            "/../planted.json",
            "sub/../../d/planted.json",
            "sub/../planted.json",
        ];
        let mut files = json!({"good.json": {"name": "good"}});
        for (place, name) in up.iter().enumerate() {
            files[name] = json!({"name": format!("up-{place}")});
        }
        town.create("up", keeps(script, &files)).await;

        let run = town.ended("joined", 1).await;
        assert_eq!(run["succeeded"], true, "{run}");
        let all = ["below", "dotted", "own", "plain", "rooted"];
        assert_eq!(made(&run), all.into(), "{run}");
        for (secret, value) in
            [("plain", "plain"), ("dotted", "dotted"), ("rooted", "rooted"), ("below", "sub/below")]
        {
            assert_eq!(town.data(secret).await["k"], value);
        }

        let run = town.ended("up", 1).await;
        assert_eq!(
            (&run["succeeded"], &run["reason"]),
            (&json!(false), &json!("OutputUnreadable"))
        );
        assert_eq!(made(&run), ["good", "own"].into(), "{run}");
        let message = run["message"].as_str().unwrap();
        for (place, name) in up.iter().enumerate() {
            let words = format!("container c: {name}: its name is no path within the directory");
            assert!(message.contains(&words), "{name}: {run}");
            assert!(town.secret(&format!("up-{place}")).await.is_none(), "{name}");
        }
    }
}
