//! Beside the containers whose files it gathers, the agent waits for their end, however it is told.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use agent::{GATHERING_VARIABLE, Gathering};
use rustix::process::Signal;

use crate::harness::{Pod, is_allowed, signal, text, unshared, wait, wait_until_it_waits};

/// Bytes of a file.
const MANY: usize = 1_000_000;

fn start(pod: &Pod, arguments: &[&str]) -> Child {
    let agent = pod.agent(&pod.gathering(&["a"]), arguments).spawn().unwrap();
    wait_until_it_waits(&agent);
    agent
}

/// So long after it could have ended.
fn assert_waits(agent: &mut Child) {
    sleep(Duration::from_millis(350));
    assert!(agent.try_wait().unwrap().is_none(), "it does not wait");
}

#[test]
fn it_ends_when_it_is_asked_to_with_the_files_of_that_moment() {
    let stops = [Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP];
    let stops = stops.into_iter().chain([Signal::USR1, Signal::USR2, Signal::WINCH, Signal::POWER]);
    for asked in stops {
        let pod = Pod::new();
        let mut agent = start(&pod, &["gather"]);
        assert_waits(&mut agent);
        fs::write(pod.path("out/a"), "late").unwrap();
        signal(&agent, asked);
        let ended = pod.ended(&mut agent);
        assert_eq!(ended.code, Some(0));
        assert_eq!(ended.content("a"), text("late"));
        assert_eq!(ended.log(), "");
    }
}

/// User and system time of a process, in ticks of 10 ms.
fn cpu(agent: &Child) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", agent.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// The original's sidecar took a whole core until the other containers had ended.
#[test]
fn d4_d5_to_wait_takes_no_core() {
    let pod = Pod::new();
    let file = pod.path("never");
    for arguments in [vec!["gather"], vec!["gather", "--until", file.to_str().unwrap()]] {
        fs::write(pod.path("out/a"), "early").unwrap();
        let mut agent = start(&pod, &arguments);
        let before = cpu(&agent);
        // What it watches is there, and changes.
        for turn in 0..30 {
            fs::write(pod.path("out/a"), format!("written {turn} times")).unwrap();
            sleep(Duration::from_millis(100));
        }
        let ticks = cpu(&agent) - before;
        assert!(ticks <= 5, "{arguments:?}: {ticks} of 300 ticks");
        signal(&agent, Signal::TERM);
        assert_eq!(pod.ended(&mut agent).code, Some(0));
    }
}

/// The sockets that a process has open, by their numbers.
fn sockets(process: &str) -> BTreeSet<String> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    // Of this process some are closed while they are looked at.
    let links = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    let number = |link: PathBuf| {
        let number = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(number.to_owned())
    };
    links.filter_map(number).collect()
}

/// The sockets that stay on this machine and have no path, as those of a pair.
fn pairs() -> BTreeSet<String> {
    let all = fs::read_to_string("/proc/net/unix").unwrap();
    let fields = all.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields.filter(|fields| fields.len() == 7).map(|fields| fields[6].to_owned()).collect()
}

/// The original's sidecar asked the API server five times a second.
#[test]
fn d5_while_it_waits_no_connection_is_open() {
    // It hides its files together with its memory: who is root for it sees them.
    let unshare = ["--user", "--map-root-user"];
    if !is_allowed(&unshare) {
        return;
    }
    let pod = Pod::new();
    let file = pod.path("never");
    for arguments in [vec!["gather"], vec!["gather", "--until", file.to_str().unwrap()]] {
        let agent = pod.agent(&pod.gathering(&["a"]), &arguments);
        let mut agent = unshared(&unshare, &[], &agent, &pod).spawn().unwrap();
        wait_until_it_waits(&agent);
        // What it was begun with is none of its own.
        let before = sockets("self");
        for _ in 0..20 {
            let open = &sockets(&agent.id().to_string()) - &before;
            assert!(!open.is_empty(), "{arguments:?}: it hears of signals by pairs of sockets");
            assert!(open.is_subset(&pairs()), "{arguments:?}: {open:?}");
            sleep(Duration::from_millis(50));
        }
        signal(&agent, Signal::TERM);
        assert_eq!(pod.ended(&mut agent).code, Some(0));
    }
}

#[test]
fn it_ends_when_the_file_has_something_in_it() {
    let pod = Pod::new();
    // As the kubelet has it: a link, by which the whole is replaced.
    let mount = pod.path("mount");
    for (version, content) in [("..1", ""), ("..2", "true")] {
        fs::create_dir_all(mount.join(version)).unwrap();
        fs::write(mount.join(version).join("ended"), content).unwrap();
    }
    let file = mount.join("ended");
    let mut agent = start(&pod, &["gather", "--until", file.to_str().unwrap()]);
    assert_waits(&mut agent);
    symlink("..1", mount.join("..data")).unwrap();
    symlink("..data/ended", &file).unwrap();
    assert_waits(&mut agent);
    fs::write(pod.path("out/a"), "late").unwrap();
    symlink("..2", mount.join("..new")).unwrap();
    fs::rename(mount.join("..new"), mount.join("..data")).unwrap();
    let ended = pod.ended(&mut agent);
    assert_eq!(ended.code, Some(0));
    assert_eq!(ended.content("a"), text("late"));
}

#[test]
fn it_ends_at_once_if_the_file_is_there() {
    let pod = Pod::new();
    fs::write(pod.path("ended"), "true").unwrap();
    fs::write(pod.path("out/a"), "early").unwrap();
    let file = pod.path("ended");
    let ended =
        pod.run(pod.agent(&pod.gathering(&["a"]), &["gather", "--until", file.to_str().unwrap()]));
    assert_eq!((ended.code, ended.content("a")), (Some(0), text("early")));
}

/// A kubelet begins a native sidecar again whenever it has ended.
#[test]
fn a_native_one_that_is_begun_again_leaves_nothing_and_waits_for_sigterm() {
    let pod = Pod::new();
    let file = pod.path("ended");
    let left = pod.path("left");
    let native = ["gather", "--once", left.to_str().unwrap(), "--until", file.to_str().unwrap()];
    fs::write(pod.path("out/a"), "early").unwrap();
    let mut killed = start(&pod, &native);
    assert_waits(&mut killed);
    signal(&killed, Signal::KILL);
    assert_eq!(pod.ended(&mut killed).code, None);
    // It was told while it was away, and has left nothing yet.
    fs::write(&file, "true").unwrap();
    let mut first = start(&pod, &native);
    let ended = pod.ended(&mut first);
    assert_eq!((ended.code, ended.content("a")), (Some(0), text("early")));
    fs::write(pod.path("message"), "").unwrap();
    let mut again = start(&pod, &native);
    assert_waits(&mut again);
    signal(&again, Signal::TERM);
    let ended = pod.ended(&mut again);
    assert_eq!((ended.code, &*ended.message, &*ended.log()), (Some(0), "", ""));
}

/// A node that goes down in order ends it, and begins the pod's containers anew when it is up: on the same disk.
#[test]
fn a_native_one_that_was_ended_before_it_was_told_leaves_what_is_there_the_second_time() {
    let pod = Pod::new();
    let file = pod.path("ended");
    let left = pod.path("left");
    let native = ["gather", "--once", left.to_str().unwrap(), "--until", file.to_str().unwrap()];
    fs::write(pod.path("out/a"), "half").unwrap();
    let mut first = start(&pod, &native);
    assert_waits(&mut first);
    signal(&first, Signal::TERM);
    assert_eq!(pod.ended(&mut first).content("a"), text("half"));
    fs::write(pod.path("message"), "").unwrap();
    fs::write(pod.path("out/a"), "whole").unwrap();
    let mut second = start(&pod, &native);
    assert_waits(&mut second);
    fs::write(&file, "true").unwrap();
    let ended = pod.ended(&mut second);
    assert_eq!((ended.code, ended.content("a")), (Some(0), text("whole")));
}

#[test]
fn it_ends_at_sigterm_though_the_file_does_not_come() {
    let pod = Pod::new();
    let mut agent = start(&pod, &["gather", "--until", pod.path("ended").to_str().unwrap()]);
    assert_waits(&mut agent);
    fs::write(pod.path("out/a"), "late").unwrap();
    signal(&agent, Signal::TERM);
    let ended = pod.ended(&mut agent);
    assert_eq!((ended.code, ended.content("a")), (Some(0), text("late")));
}

#[test]
fn much_is_brought_home_within_the_time_of_a_pod() {
    let pod = Pod::new();
    let names = ["a", "b", "c"];
    for name in names {
        fs::write(pod.path("out").join(name), name.repeat(MANY)).unwrap();
    }
    let mut agent = pod.agent(&pod.gathering(&names), &["gather"]);
    let (mut log, stdout) = std::io::pipe().unwrap();
    let mut running = agent.stdout(stdout).spawn().unwrap();
    // Its own end of the pipe, which the end of the log waits for.
    drop(agent);
    let runtime = std::thread::spawn(move || {
        let mut read = String::new();
        log.read_to_string(&mut read).map(|_| read)
    });
    wait_until_it_waits(&running);
    let asked = Instant::now();
    signal(&running, Signal::TERM);
    let mut ended = pod.ended(&mut running);
    // Not optimised, it takes a second; a pod's usual time is thirty.
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    ended.stdout = runtime.join().unwrap().unwrap();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.len() > 3 * MANY);
    assert!(ended.stdout.lines().all(|line| line.len() < 16 * 1024));
    let found = ended.report();
    for name in names {
        assert_eq!(found.outputs["app"][name], text(&name.repeat(MANY)));
    }
}

#[test]
fn a_runtime_that_takes_nothing_is_not_waited_for_in_a_hurry() {
    let pod = Pod::new();
    // Fits into a pipe, whose other end nobody reads.
    fs::write(pod.path("out/a"), "x".repeat(30_000)).unwrap();
    let (_log, stdout) = std::io::pipe().unwrap();
    let mut agent = pod.agent(&pod.gathering(&["a"]), &["gather"]);
    let mut agent = agent.stdout(stdout).spawn().unwrap();
    wait_until_it_waits(&agent);
    let asked = Instant::now();
    signal(&agent, Signal::TERM);
    assert_eq!(wait(&mut agent).code(), Some(0));
    let took = asked.elapsed();
    assert!(took < Duration::from_millis(1900), "{took:?}");
    assert!(took > Duration::from_millis(500), "{took:?}: it waits a little");
    assert!(fs::read_to_string(pod.path("message")).unwrap().contains(" logged "));
}

#[test]
fn what_cannot_be_left_is_the_only_failure() {
    let pod = Pod::new();
    let gathering = Gathering { message: pod.path("nowhere"), ..pod.gathering(&["a"]) };
    let mut agent = pod.agent(&gathering, &["gather"]).spawn().unwrap();
    wait_until_it_waits(&agent);
    signal(&agent, Signal::TERM);
    let ended = pod.ended(&mut agent);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("the report cannot be left: "), "{}", ended.stderr);
}

#[test]
fn without_being_told_what_to_gather_it_waits_all_the_same() {
    let pod = Pod::new();
    let mut agent = pod.agent(&pod.gathering(&["a"]), &["gather"]);
    let mut agent = agent.env_remove(GATHERING_VARIABLE).spawn().unwrap();
    wait_until_it_waits(&agent);
    assert_waits(&mut agent);
    signal(&agent, Signal::TERM);
    let ended = pod.ended(&mut agent);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("MANCIPLE_GATHERING is not set"), "{}", ended.stderr);
}
