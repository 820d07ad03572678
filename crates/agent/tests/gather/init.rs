//! As the first process of a container.

use std::process::Command;

use agent::{GATHERING_VARIABLE, Message};

use crate::harness::{Pod, is_allowed, text, unshared};

const FIRST: [&str; 5] = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];

/// `None` where that is not allowed.
fn first(pod: &Pod, files: &[&str], script: &str) -> Option<Command> {
    let agent = pod.wrapping(files, script);
    is_allowed(&FIRST).then(|| unshared(&FIRST, &[], &agent, pod))
}

#[test]
fn orphans_are_reaped() {
    let pod = Pod::new();
    let script = r#"i=0; while [ $i -lt 50 ]; do (true &); i=$((i+1)); done; sleep 0.1
        [ "$(grep -l 'State:.Z' /proc/[0-9]*/status | wc -l)" = 0 ] || exit 9
        [ $PPID = 1 ] || exit 8; echo >a"#;
    let Some(agent) = first(&pod, &["a"], script) else { return };
    let ended = pod.run(agent);
    assert_eq!((ended.code, ended.content("a")), (Some(0), text("\n")), "{}", ended.stderr);
}

#[test]
fn what_the_command_leaves_does_not_print_into_the_report() {
    let pod = Pod::new();
    let script = r"(trap '' TERM HUP; while :; do printf between; done) &
        head -c 900000 /dev/zero | tr '\0' x >a; exit 4";
    let Some(agent) = first(&pod, &["a"], script) else { return };
    let ended = pod.run(agent);
    assert_eq!(ended.code, Some(4));
    assert_eq!(ended.content("a"), text(&"x".repeat(900_000)));
    let (_, report) = ended.stdout.split_once("#MANCIPLE1").unwrap();
    assert!(!report.contains("between"));
}

#[test]
fn who_is_not_told_what_to_gather_says_so_in_the_message() {
    const OWN_MOUNTS: [&str; 3] = ["--user", "--map-root-user", "--mount"];
    let in_dev = "mount -t tmpfs none /dev && : >/dev/termination-log && \"$@\"; code=$?
        cat /dev/termination-log >../message; exit $code";
    if !is_allowed(&OWN_MOUNTS) {
        return;
    }
    let pod = Pod::new();
    let mut agent = pod.wrapping(&["a"], "echo it ran; exit 7");
    agent.env(GATHERING_VARIABLE, "{}");
    let ended = pod.run(unshared(&OWN_MOUNTS, &["sh", "-c", in_dev, "sh"], &agent, &pod));
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "it ran\n"), "{}", ended.stderr);
    let Ok(Message::Broken(why)) = Message::parse(&ended.message) else {
        panic!("{}", ended.message)
    };
    assert!(why.contains("MANCIPLE_GATHERING is no gathering of this version"), "{why}");
}
