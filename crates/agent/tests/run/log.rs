//! What stands in the log.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use agent::{KeySet, Line, Message, Purpose, Sealed};
use osb::Action;
use osb::jobs::contract::Capability;

use crate::harness::{Pod, run};

#[test]
fn a_flood_on_stderr_is_kept_at_both_ends() {
    let pod = Pod::new(
        r#"echo the very beginning >&2; yes 0123456789abcdef | head -c 100000000 >&2
           echo the very end >&2; exit 1"#,
    );
    let begun = Instant::now();
    let ended = pod.run(&pod.order());
    let said = ended.failure().failure.description;
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(ended.log.len() < 400 * 1024, "{}", ended.log.len());
    assert!(ended.log.starts_with("the very beginning\n"));
    assert!(ended.log.ends_with("the very end\n"));
    assert!(ended.log.contains("bytes left out]\n"));
    assert!(said.ends_with("the very end"), "{said}");
    assert!(ended.report().log.ends_with("the very end\n"));
}

#[test]
fn a_flood_of_empty_lines_does_not_fill_the_file_of_a_container_runtime() {
    let pod = Pod::new("yes '' | head -c 10000000 >&2; echo the very end >&2; echo '{}'");
    let order = agent::Order { log_limit: 20_000_000, ..pod.order() };
    let ended = pod.run(&order);
    ended.output();
    assert!(ended.log.lines().count() < 40_000);
    assert!(ended.log.contains("\n[some of it left out]\n"));
    assert!(ended.log.ends_with("\nthe very end\n"));
}

/// What comes first takes no room from the end, whether it is shown as it comes or when the broker has ended.
#[test]
fn both_ends_are_shown_whatever_lines_are_between() {
    const USUAL: usize = 256 * 1024;
    const LARGEST: usize = 2 * 1024 * 1024;
    let ordinary = format!("yes {}", "o".repeat(60));
    for (name, prints, bytes, limit) in [
        ("empty lines", "yes ''", 10_000_000, USUAL),
        ("empty lines, all of which are kept", "yes ''", 200_000, USUAL),
        ("lines of one character", "yes x", 10_000_000, USUAL),
        ("lines of three characters", "yes abc", 10_000_000, USUAL),
        ("empty lines at the largest limit", "yes ''", 10_000_000, LARGEST),
        ("ordinary lines at the largest limit", &ordinary, 10_000_000, LARGEST),
        ("ordinary lines, all of which are kept", &ordinary, 1_500_000, LARGEST),
        ("one line without an end", "yes x | tr -d '\\n'", 10_000_000, LARGEST),
    ] {
        for action in [Action::Provision, Action::Bind] {
            let pod = Pod::new(&format!(
                "echo the very beginning >&2; {prints} | head -c {bytes} >&2
                 echo >&2; echo the very end >&2; exit 1"
            ));
            let (order, _) = pod.order_of(&run(action, &[]));
            let ended = pod.run(&agent::Order { log_limit: limit, ..order });
            ended.failure();
            let (log, lines) = (&ended.log, ended.log.lines().count());
            assert!(log.starts_with("the very beginning\n"), "{name}, {action}");
            assert!(log.ends_with("\nthe very end\n"), "{name}, {action}");
            assert!(log.contains("left out]\n"), "{name}, {action}");
            // The newline of each line is among the 64 bytes that it is taken to cost.
            let taken = log.len() + 63 * lines;
            assert!(taken < LARGEST + 1024, "{name}, {action}: {taken}");
        }
    }
}

#[test]
fn the_log_is_written_as_it_comes() {
    let pod = Pod::new(r#"echo begun >&2; while [ ! -e "$GO" ]; do sleep 0.05; done; echo '{}'"#);
    pod.key_file("config", "go", pod.path("go").to_str().unwrap());
    let order = pod.order();
    let agent = pod.start(&order);
    assert_eq!(pod.wait_for("log"), "begun\n");
    fs::write(pod.path("go"), "").unwrap();
    pod.ended(agent, &order).output();
}

#[test]
fn long_lines_are_split_between_characters() {
    let pod = Pod::new(r#"printf '%s\n' "$LONG" >&2; echo '{}'"#);
    let long = "aä€🦀".repeat(3000);
    pod.key_file("config", "long", &long);
    let ended = pod.run(&pod.order());
    ended.output();
    assert_eq!(ended.log.replace('\n', ""), long);
    assert!(ended.log.lines().all(|line| line.len() <= 8 * 1024));
    assert!(ended.log.lines().count() > 1);
}

#[test]
fn a_large_output_comes_home_in_the_log() {
    let script = r#"yes 'interleaved on stderr' | head -100 >&2
        printf '{"credentials": {"bundle": "'; head -c 900000 /dev/zero | tr '\0' x; echo '"}}'"#;
    let pod = Pod::new(script);
    let ended = pod.run_of(&run(Action::Bind, &[]));
    let binding = ended.output().binding.unwrap();
    let credentials = binding.credentials.unwrap();
    assert_eq!(credentials.expose()["bundle"].as_str().unwrap().len(), 900_000);
    assert!(ended.message.len() < 200 && ended.message.contains(" logged "), "{}", ended.message);
    assert!(ended.log.lines().all(|line| line.len() < 16 * 1024));
    // Four of them are in base64 of such a length by chance.
    assert!(!ended.log.contains(&"x".repeat(20)));
}

#[test]
fn forged_lines_are_not_taken_for_the_agents() {
    let script = r#"for fd in 1 2; do
            echo '#MANCIPLE1 report 0000000000000000 0 AAAA' >&2
            echo '#MANCIPLE1 progress 0000000000000000 AAAA' >&2
            echo '#MANCIPLE9 anything' >&2
        done
        printf 'x%5000s#MANCIPLE1 report 0000000000000000 0 AAAA\n' ' ' >&2
        printf '#MANCIPLE1 report 0000000000000000 0 AAAA\n{"dashboard_url": "'
        head -c 20000 /dev/zero | tr '\0' x; echo '"}'"#;
    let pod = Pod::new(script);
    let ended = pod.run(&pod.order());
    ended.failed(engine::record::Reason::NotJson);
    assert!(ended.log.lines().all(|line| Line::parse(line).is_none()), "{}", ended.log);
    assert!(ended.log.contains("\n #MANCIPLE1 report"));

    let good = script.replace("printf '#MANCIPLE1 report 0000000000000000 0 AAAA\\n{", "printf '{");
    let pod = Pod::new(&good);
    let ended = pod.run(&pod.order());
    assert_eq!(ended.output().dashboard_url.unwrap().len(), 20_000);
    let lines = ended.log.lines().filter_map(Line::parse).map(Result::unwrap);
    let digests = lines.map(|line| match line {
        Line::Report { digest, .. } => digest,
        Line::Progress(_) => panic!("forged progress"),
    });
    assert_eq!(digests.collect::<BTreeSet<_>>().len(), 1, "those of the report");
}

/// The last of a log that opens for this run.
fn last_progress(log: &str, keys: &KeySet, run: &str) -> Option<String> {
    log.lines().rev().find_map(|line| match Line::parse(line)?.ok()? {
        Line::Progress(sealed) => sealed.progress(keys, run).ok(),
        Line::Report { .. } => None,
    })
}

#[test]
fn progress_is_a_sealed_line_for_each_change() {
    let pod = Pod::new(
        r#"echo '{"description": "half way", "percent": 50}' >"$OSB_PROGRESS_FILE"
           while [ ! -e "$GO" ]; do sleep 0.05; done
           echo almost there >"$OSB_PROGRESS_FILE.new"; mv "$OSB_PROGRESS_FILE.new" "$OSB_PROGRESS_FILE"
           sleep 0.7; echo '{}'"#,
    );
    pod.key_file("config", "go", pod.path("go").to_str().unwrap());
    let (order, _) = pod.order_of(&run(Action::Provision, &[Capability::Progress]));
    let agent = pod.start(&order);
    let keys = KeySet::from_iter([pod.keys.clone()]);
    let log = pod.wait_for("log");
    assert!(!log.contains("half way"));
    assert_eq!(last_progress(&log, &keys, &order.run).unwrap(), "half way (50%)");
    assert_eq!(last_progress(&log, &keys, "another-run"), None);
    fs::write(pod.path("go"), "").unwrap();
    let ended = pod.ended(agent, &order);
    ended.output();
    assert_eq!(last_progress(&ended.log, &keys, &order.run).unwrap(), "almost there");
    assert_eq!(ended.log.lines().count(), 2);
}

#[test]
fn a_report_and_progress_cannot_stand_for_each_other() {
    let pod = Pod::new("");
    let keys = KeySet::from_iter([pod.keys.clone()]);
    let sealed = Sealed::seal(pod.keys.public(), Purpose::Progress, "a", b"half way").unwrap();
    assert_eq!(sealed.progress(&keys, "a").unwrap(), "half way");
    assert_eq!(sealed.report(&keys, "a"), Err(agent::Error::NotOpened));
    assert!(matches!(Message::of(&sealed), Message::Sealed(_)));
}
