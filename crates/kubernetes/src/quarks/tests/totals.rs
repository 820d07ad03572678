use std::collections::BTreeMap;

use agent::Content;
use serde_json::{Value, json};

use crate::quarks::Dialect;
use crate::quarks::output::bounds::{Beyond, MAX_RUN_BYTES, MAX_RUN_OBJECTS, Taken};
use crate::quarks::output::objects::{Kept, kept};

/// What is kept of a container that leaves each of these texts in a file, with this annotation of what each becomes.
fn of(files: &[String], fans_out: bool, note: &str) -> Kept {
    let method = if fans_out { "fan-out" } else { "" };
    let options = |index: usize| -> Value {
        json!({"name": format!("s{index}"), "persistencemethod": method, "secretAnnotations": {"note": note}})
    };
    let name = |index: usize| format!("f{index}.json");
    let map: BTreeMap<String, Value> =
        (0..files.len()).map(|index| (name(index), options(index))).collect();
    let spec = json!({
        "template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}},
        "output": {"outputMap": {"c": map}},
    });
    let left = files.iter().enumerate();
    let left = left.map(|(index, text)| (name(index), Content::Text(text.clone()))).collect();
    kept(Dialect::QuarksJob, &spec, false, &BTreeMap::from([("c".to_owned(), left)]))
}

fn keys(count: usize) -> String {
    let keys: BTreeMap<String, &str> = (0..count).map(|key| (format!("k{key}"), "{}")).collect();
    serde_json::to_string(&keys).unwrap()
}

#[test]
fn of_a_run_whose_output_is_beyond_its_limits_nothing_is_kept() {
    let large = json!({"k": "x".repeat(1_000_000)}).to_string();
    let note = "n".repeat(100_000);
    for (name, files, fans_out, note, expected) in [
        ("a few small files", vec![keys(3); 100], false, "", Ok(100)),
        ("large files", vec![large.clone(); 16], false, "", Ok(16)),
        ("too many large files", vec![large; 17], false, "", Err("more than 16 MiB in all")),
        ("as many objects as may be", vec![keys(1000); 2], true, "", Ok(2000)),
        (
            "one more",
            vec![keys(1000), keys(1000), keys(1)],
            true,
            "",
            Err("more than 2000 objects"),
        ),
        ("objects with a long annotation", vec![keys(100)], true, &*note, Ok(100)),
        ("too many of those", vec![keys(1000)], true, &*note, Err("more than 16 MiB in all")),
    ] {
        let kept = of(&files, fans_out, note);
        match expected {
            Ok(count) => assert_eq!((kept.wanted.len(), kept.faults), (count, vec![]), "{name}"),
            Err(words) => {
                assert_eq!(kept.wanted, [], "{name}");
                let [("OutputTooLarge", why)] = &*kept.faults else { panic!("{name}: {kept:?}") };
                assert!(why.contains(words) && why.contains("none of it is kept"), "{name}: {why}");
            }
        }
    }
}

#[test]
fn what_is_taken_is_counted_up_to_the_limit() {
    let mut taken = Taken::default();
    assert_eq!(taken.bytes(MAX_RUN_BYTES), Ok(()));
    assert_eq!(taken.bytes(1), Err(Beyond::Bytes));
    assert_eq!(taken.bytes(usize::MAX), Err(Beyond::Bytes));
    assert_eq!(taken.objects(MAX_RUN_OBJECTS), Ok(()));
    assert_eq!(taken.objects(1), Err(Beyond::Objects));
}
