//! Containers of ExtendedJobs that print eleven megabytes: more than a node keeps of a log.

use kubernetes::quarks::Dialect;
use serde_json::{Value, json};

use super::harness::{Town, pod};

const FLOOD: &str = "head -c 11534336 /dev/zero | tr '\\0' x";
const HELD: &str = "of which a Secret holds 1048576";
const GOOD: &str = r#"echo '{"k": "v"}'"#;

/// Prints by a command that the template names, or by what only the image does.
fn prints(script: &str, names_command: bool) -> Value {
    let mut pod = pod(script);
    if !names_command {
        pod["containers"][0].as_object_mut().unwrap().remove("command");
    }
    json!({
        "trigger": {"strategy": "once"}, "template": {"spec": pod}, "output": {"namePrefix": "foo"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_stdout_is_said_to_be_one_and_on_stderr_it_is_no_output() {
    let object = format!(r#"printf '{{"k": "'; {FLOOD}; printf '"}}'"#);
    let text = format!("{FLOOD}; {GOOD}");
    let stderr = format!("{{ {FLOOD}; }} >&2; {GOOD}");
    let too_large = |words: &'static [&'static str]| ("OutputTooLarge", words);
    // Of a log that is itself the output no more is read than would be too much; and where its node has begun another file
    // meanwhile, only what came after that is there, or nothing yet.
    let in_log = [
        too_large(&[HELD]),
        ("OutputInvalid", &["stdout: it is not JSON (line 1, "][..]),
        ("OutputMissing", &["stdout: it was not there"][..]),
    ];
    let mut town = Town::new("ejob-flood").await;
    town.dialect = Dialect::ExtendedJob;
    let cases = [
        ("object", &object, true, vec![too_large(&["11534345 bytes", HELD])]),
        ("text", &text, true, vec![too_large(&["bytes or more", HELD])]),
        ("stderr", &stderr, true, vec![("Completed", &[][..])]),
        ("object-in-log", &object, false, in_log.to_vec()),
        ("stderr-in-log", &stderr, false, in_log.to_vec()),
    ];
    for (name, script, names_command, _) in &cases {
        town.create(name, prints(script, *names_command)).await;
    }
    for (name, _, _, expected) in cases {
        let run = town.ended(name, 1).await;
        let message = run["message"].as_str().unwrap_or_default();
        let says = |words: &[&str]| words.iter().all(|words| message.contains(words));
        let is_as = |(reason, words): &(&str, &[&str])| run["reason"] == **reason && says(words);
        assert!(expected.iter().any(is_as), "{name}: {run}");
        let is_good = run["reason"] == "Completed";
        assert!(is_good || message.starts_with("container c: stdout: "), "{name}: {run}");
        let object = town.get(name).await;
        let conditions = object["status"]["conditions"].as_array().unwrap();
        let succeeded = conditions.iter().find(|it| it["type"] == "Succeeded").unwrap();
        assert_eq!(
            (&succeeded["reason"], &succeeded["message"]),
            (&run["reason"], &run["message"])
        );
        assert_eq!(
            (&run["succeeded"], &object["status"]["completed"]),
            (&json!(is_good), &json!(is_good))
        );
        assert_eq!(run["made"].is_array(), is_good, "{name}: {run}");
    }
    assert_eq!(town.data("foo-c").await["k"], "v");
}
