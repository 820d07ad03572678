//! What a command prints, where that is its output.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use agent::{Content, Gathering, Outputs};
use rustix::process::Signal;

use crate::harness::{Ended, NOBODY, Pod, is_allowed, signal, text, unshared};

fn taking(pod: &Pod) -> Gathering {
    let gathering = pod.gathering(&["a"]);
    let outputs = gathering.outputs.into_iter();
    let outputs: BTreeMap<String, Outputs> = outputs
        .map(|(name, it)| (name, Outputs { stdout: Some("stdout".to_owned()), ..it }))
        .collect();
    Gathering { outputs, ..gathering }
}

fn taken(pod: &Pod, script: &str) -> Ended {
    pod.run(pod.agent(&taking(pod), &["wrap", "--", "sh", "-c", script]))
}

#[test]
fn an_object_comes_home_and_is_not_in_the_log() {
    let print = r#"echo working >&2; printf '\n {"password":'; sleep 0.1; printf '"planted"}\n'"#;
    for code in [0, 3] {
        let pod = Pod::new();
        let ended = taken(&pod, &format!("echo file >a; {print}; exit {code}"));
        assert_eq!(ended.code, Some(code));
        assert_eq!(ended.content("stdout"), text("\n {\"password\":\"planted\"}\n"));
        assert_eq!(ended.content("a"), text("file\n"), "files beside it come home as ever");
        assert_eq!((&*ended.stdout, &*ended.stderr), ("", "working\n"));
    }
}

#[test]
fn what_is_no_object_is_in_the_log_for_people() {
    for (script, printed) in [
        ("echo starting; echo '{}'", "starting\n{}\n"),
        ("printf '{ not json'; exit 1", "{ not json"),
        ("echo '[1]'", "[1]\n"),
        ("echo '{} {}'", "{} {}\n"),
    ] {
        let ended = taken(&Pod::new(), script);
        assert_eq!(ended.stdout, printed, "{script}");
        assert_eq!(ended.content("stdout"), text(printed), "{script}");
    }
    for nothing in ["true", "echo", "exec >&-; sleep 0.1"] {
        let ended = taken(&Pod::new(), nothing);
        assert_eq!(ended.content("stdout"), Content::Missing, "{nothing}");
    }
    let ended = taken(&Pod::new(), r#"printf '{"a": "\377"}'"#);
    assert_eq!(ended.content("stdout"), Content::NotText);
}

#[test]
fn what_begins_as_no_object_is_seen_as_it_is_printed() {
    let pod = Pod::new();
    let script = "echo early; while [ ! -e a ]; do sleep 0.02; done; echo late";
    let mut agent = pod.agent(&taking(&pod), &["wrap", "sh", "-c", script]).spawn().unwrap();
    assert_eq!(pod.wait_for("stdout"), "early\n");
    fs::write(pod.path("out/a"), "").unwrap();
    let ended = pod.ended(&mut agent);
    assert_eq!(ended.stdout, "early\nlate\n");
    assert_eq!(ended.content("stdout"), text("early\nlate\n"));
}

#[test]
fn what_is_too_large_is_counted_and_shown() {
    let pod = Pod::new();
    let gathering = Gathering { file_limit: 1000, ..taking(&pod) };
    for (bytes, fits) in [(1000 - 8, true), (1000 - 7, false), (300_000, false)] {
        let _ = fs::remove_file(pod.path("stdout"));
        let script =
            format!(r#"printf '{{"a":"'; head -c {bytes} /dev/zero | tr '\0' x; printf '"}}'"#);
        let ended = pod.run(pod.agent(&gathering, &["wrap", "sh", "-c", &script]));
        let all = bytes + 8;
        match (fits, ended.content("stdout")) {
            (true, Content::Text(text)) => assert_eq!((text.len(), &*ended.stdout), (all, "")),
            (false, Content::TooLarge(known)) => {
                assert_eq!((known, ended.stdout.len()), (all as u64, all));
            }
            (_, other) => panic!("{bytes}: {other:?}"),
        }
    }
}

#[test]
fn a_report_that_takes_the_log_is_behind_what_was_printed() {
    let ended = taken(&Pod::new(), "echo no object; head -c 200000 /dev/zero | tr '\\0' x");
    assert!(ended.message.contains(" logged "), "{}", ended.message);
    let printed = format!("no object\n{}", "x".repeat(200_000));
    assert!(ended.stdout.starts_with(&format!("{printed}\n#MANCIPLE1 report ")));
    assert_eq!(ended.content("stdout"), text(&printed));
}

#[test]
fn who_goes_on_printing_after_the_command_is_not_waited_for() {
    let pod = Pod::new();
    let began = Instant::now();
    let ended = taken(&pod, "echo '{}'; setsid sleep 60 & exit 0");
    assert!(began.elapsed() < Duration::from_secs(30));
    assert_eq!(ended.content("stdout"), text("{}\n"));
    // In a container nobody goes on.
    let unshare = ["--fork", "--pid", "--kill-child"];
    if !is_allowed(&unshare) {
        println!("passed over: namespaces are not allowed here");
        return;
    }
    let pod = Pod::new();
    let agent = pod.agent(&taking(&pod), &["wrap", "sh", "-c", "echo '{}'; yes >&2 & exit 0"]);
    let ended = pod.run(unshared(&unshare, &[], &agent, &pod));
    assert_eq!(ended.content("stdout"), text("{}\n"));
}

#[test]
fn what_was_printed_until_it_is_ended_comes_home() {
    let pod = Pod::new();
    let script = "trap 'echo }; exit 4' TERM; echo {; echo >a; while :; do sleep 0.02; done";
    let mut agent = pod.agent(&taking(&pod), &["wrap", "sh", "-c", script]).spawn().unwrap();
    pod.wait_for("out/a");
    signal(&agent, Signal::TERM);
    let ended = pod.ended(&mut agent);
    assert_eq!(ended.code, Some(4));
    assert_eq!(ended.content("stdout"), text("{\n}\n"));
}

#[test]
fn the_agents_memory_is_closed_to_a_command_whose_output_is_in_it() {
    if !is_allowed(&NOBODY) {
        return;
    }
    let pod = Pod::new();
    let script = "cat /proc/$$/environ >a && ! cat /proc/$PPID/environ 2>/dev/null";
    let agent = pod.agent(&taking(&pod), &["wrap", "sh", "-c", script]);
    let ended = pod.run(unshared(&NOBODY, &[], &agent, &pod));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(matches!(ended.content("a"), Content::Text(_)));
}
