//! How much output may be.

use kubernetes::quarks::Dialect;
use serde_json::{Value, json};

use super::harness::{Town, pod};
use super::output::makes;

/// What a Secret holds, in bytes.
const MOST: usize = 1_048_576;

/// Prints a JSON object whose one value has so many bytes.
fn prints(bytes: usize) -> String {
    format!(r#"printf '{{"k": "'; head -c {bytes} /dev/zero | tr '\0' x; printf '"}}'"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_secret_holds_comes_home_and_what_is_more_is_told_with_the_limit() {
    for (way, dialect, wraps) in [
        ("wrapped", Dialect::QuarksJob, true),
        ("sidecar", Dialect::QuarksJob, false),
        ("printed", Dialect::ExtendedJob, true),
    ] {
        let mut town = Town::still(&format!("limits-{way}")).await;
        (town.settings.wraps, town.dialect) = (wraps, dialect);
        town.start().await;
        // The file is a little more than what it holds.
        for (name, bytes, made) in [("all", MOST - 1_000, true), ("more", 2_000_000, false)] {
            let secret = format!("{name}-c");
            let spec: Value = match dialect {
                Dialect::QuarksJob => {
                    let script = format!("{{ {}; }} > /mnt/quarks/o.json", prints(bytes));
                    makes(&script, json!({"name": secret}))
                }
                Dialect::ExtendedJob => json!({
                    "trigger": {"strategy": "once"}, "template": {"spec": pod(&prints(bytes))},
                    "output": {"namePrefix": name},
                }),
            };
            town.create(name, spec).await;
            let run = town.ended(name, 1).await;
            assert_eq!(run["succeeded"], made, "{way}: {run:#}");
            if made {
                assert_eq!(town.data(&secret).await["k"].len(), bytes, "{way}");
                continue;
            }
            assert_eq!(run["reason"], "OutputTooLarge", "{way}: {run:#}");
            let message = run["message"].as_str().unwrap();
            assert!(message.contains(&MOST.to_string()), "{way}: {message}");
            assert!(town.secret(&secret).await.is_none(), "{way}");
        }
    }
}
