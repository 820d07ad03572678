//! Containers that end badly with some of their files written: the original waited for the others for ever.

use serde_json::json;

use super::output::{WELL, both_ways, makes};

#[tokio::test(flavor = "multi_thread")]
async fn d2_what_dies_halfway_fails_and_what_was_whole_is_kept_where_that_is_asked_for() {
    for town in both_ways("d2-halfway").await {
        // Beside it the command is the first of its container, and cannot kill itself. Of `$$` Kubernetes makes `$`.
        let killed = match town.settings.wraps {
            true => "kill -9 $$$$",
            false => "sh -c 'kill -9 $$$$'; exit $?",
        };
        let crashes = format!("{WELL}; exit 1");
        let killed = format!(r#"{WELL}; printf '{{"k"' > /mnt/quarks/p.json; {killed}"#);
        for (name, script, code, fault) in [
            ("crashes", crashes, 1, "container c: p.json: it was not there"),
            ("killed", killed, 137, "container c: p.json: it is not JSON"),
        ] {
            for keeps in [false, true] {
                let name = if keeps { format!("{name}-kept") } else { name.to_owned() };
                let second = format!("{name}-second");
                let mut spec = makes(&script, json!({"name": name}));
                spec["output"]["outputMap"]["c"]["p.json"] = json!({"name": second});
                spec["output"]["writeOnFailure"] = json!(keeps);
                town.create(&name, spec).await;
                let run = town.ended(&name, 1).await;
                let told = (&run["succeeded"], &run["reason"]);
                assert_eq!(told, (&json!(false), &json!("BackoffLimitExceeded")), "{name}: {run}");
                let message = run["message"].as_str().unwrap();
                assert!(message.starts_with(&format!("container c exited with {code}")), "{run}");
                assert_eq!(message.contains(fault), keeps, "{name}: {run}");
                assert_eq!(run["made"] == json!([name]), keeps, "{name}: {run}");
                assert_eq!(town.secret(&name).await.is_some(), keeps, "{name}");
                if keeps {
                    assert_eq!(town.data(&name).await["bar"], "baz");
                }
                assert!(town.secret(&second).await.is_none(), "{name}");
                let status = town.get(&name).await["status"].clone();
                assert_eq!(status["lastRun"]["reason"], run["reason"], "{status:#}");
                assert_ne!(status["completed"], true, "{status:#}");
            }
        }
    }
}
