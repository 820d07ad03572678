//! Reports that do not fit into the message.

use std::fs;
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use agent::{Content, Error, Gathering, KeySet, Message};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use crate::harness::{Pod, RUN, signal, text, wait};

const LARGE: &str = "head -c 200000 /dev/zero | tr '\\0' x >a";

fn wrapping(pod: &Pod, gathering: &Gathering, script: &str) -> Command {
    pod.agent(gathering, &["wrap", "sh", "-c", script])
}

#[test]
fn a_large_report_is_read_back_from_the_log() {
    let pod = Pod::new();
    let ended = pod.wrap(&["a"], &format!("echo first; {LARGE}; printf 'no end'; exit 5"));
    assert_eq!(ended.code, Some(5));
    assert!(ended.message.contains(" logged ") && ended.message.len() < 122, "{}", ended.message);
    assert!(ended.stdout.starts_with("first\nno end\n#MANCIPLE1 report "));
    assert!(ended.stdout.lines().all(|line| line.len() < 16 * 1024));
    assert_eq!(ended.content("a"), text(&"x".repeat(200_000)));
}

#[test]
fn a_message_is_no_longer_than_the_kubelet_takes() {
    for (limit, bytes) in [(122, 0), (122, 5_000_000), (1200, 600), (1200, 601), (4096, 2900)] {
        let pod = Pod::new();
        fs::write(pod.path("out/a"), "x".repeat(bytes)).unwrap();
        let gathering =
            Gathering { message_limit: limit, file_limit: 6_000_000, ..pod.gathering(&["a"]) };
        let ended = pod.run(wrapping(&pod, &gathering, "true"));
        assert!(ended.message.len() <= limit, "{limit}: {}", ended.message);
        assert_eq!(ended.content("a"), text(&"x".repeat(bytes)), "{limit}, {bytes}");
        let logged = ended.message.contains(" logged ");
        assert_eq!(logged, limit == 122, "{limit}, {bytes}: {}", ended.message);
    }
}

#[test]
fn what_no_log_holds_is_left_out_from_the_largest_on() {
    let pod = Pod::new();
    let sizes = [
        ("a", 900_000),
        ("b", 1_000_000),
        ("c", 800_000),
        ("d", 1_000_001),
        ("e", 10),
        ("f", 950_000),
        ("g", 950_000),
        ("h", 950_000),
    ];
    for (name, bytes) in sizes {
        fs::write(pod.path("out").join(name), name.repeat(bytes)).unwrap();
    }
    let names: Vec<_> = sizes.iter().map(|(name, _)| *name).chain(["missing"]).collect();
    let ended = pod.run(wrapping(&pod, &pod.gathering(&names), "exit 0"));
    assert!(ended.stdout.len() < 8 * 1024 * 1024);
    let found = ended.report();
    let found = &found.outputs["app"];
    assert_eq!(found["missing"], Content::Missing);
    for (name, bytes) in sizes {
        match name {
            "b" | "d" => assert_eq!(found[name], Content::TooLarge(bytes as u64)),
            _ => assert_eq!(found[name], text(&name.repeat(bytes)), "{name}"),
        }
    }
}

#[test]
fn a_pipe_that_the_command_has_made_not_to_wait_is_waited_for() {
    let pod = Pod::new();
    let (mut log, stdout) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&stdout).unwrap();
    fcntl_setfl(&stdout, flags | OFlags::NONBLOCK).unwrap();
    let mut command = pod.wrapping(&["a"], LARGE);
    command.stdout(stdout);
    let mut agent = command.spawn().unwrap();
    // Its own end of the pipe, which the end of the log waits for.
    drop(command);
    std::thread::sleep(Duration::from_millis(300));
    let mut read = String::new();
    log.read_to_string(&mut read).unwrap();
    let mut ended = pod.ended(&mut agent);
    ended.stdout = read;
    assert_eq!(ended.stderr, "");
    assert_eq!(ended.content("a"), text(&"x".repeat(200_000)));
}

#[test]
fn a_runtime_that_takes_nothing_is_waited_for_but_briefly_after_sigterm() {
    for (asked, least, most) in [(Signal::USR1, 2000, 30_000), (Signal::TERM, 500, 1900)] {
        let pod = Pod::new();
        // Fits into a pipe, whose other end nobody reads.
        let script = r"trap 'exit 3' TERM USR1; head -c 9000 /dev/zero | tr '\0' x >a; echo >../ready
            while :; do sleep 0.02; done";
        let (_log, stdout) = std::io::pipe().unwrap();
        let mut agent = pod.wrapping(&["a"], script).stdout(stdout).spawn().unwrap();
        pod.wait_for("ready");
        let since = Instant::now();
        signal(&agent, asked);
        assert_eq!(wait(&mut agent).code(), Some(3));
        let took = since.elapsed().as_millis();
        assert!((least..most).contains(&took), "{asked:?}: {took} ms");
        assert!(fs::read_to_string(pod.path("message")).unwrap().contains(" logged "));
    }
}

#[test]
fn what_was_sealed_for_another_run_or_purpose_does_not_open() {
    let pod = Pod::new();
    let ended = pod.wrap(&["a"], "echo >a");
    let Ok(Message::Sealed(sealed)) = Message::parse(&ended.message) else { panic!() };
    let keys = KeySet::from_iter([pod.keys.clone()]);
    assert!(sealed.gathered(&keys, RUN).is_ok());
    assert_eq!(sealed.gathered(&keys, "another-run"), Err(Error::NotOpened));
    assert_eq!(sealed.report(&keys, RUN), Err(Error::NotOpened));
    assert_eq!(sealed.progress(&keys, RUN), Err(Error::NotOpened));
    let other = KeySet::from_iter([agent::KeyPair::generate()]);
    assert!(matches!(sealed.gathered(&other, RUN), Err(Error::UnknownKey(_))));
}
