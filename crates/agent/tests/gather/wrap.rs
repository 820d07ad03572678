//! A container's command does not notice that it is wrapped, and neither does who looks at the container.

use std::fs;
use std::io::Read;

use agent::{GATHERING_VARIABLE, Gathering};
use rustix::process::Signal;

use crate::harness::{NOBODY, Pod, is_allowed, signal, text, unshared};

#[test]
fn an_exit_code_passes_through() {
    for code in [0, 1, 2, 42, 255] {
        let pod = Pod::new();
        let ended = pod.wrap(&["a"], &format!("echo {code} >a; exit {code}"));
        assert_eq!(ended.code, Some(code));
        assert_eq!(ended.content("a"), text(&format!("{code}\n")));
    }
}

#[test]
fn a_signal_becomes_a_code_as_in_a_shell() {
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("PIPE", 141)] {
        let pod = Pod::new();
        let ended = pod.wrap(&["a"], &format!("echo >a; kill -{signal} $$"));
        assert_eq!(ended.code, Some(code), "{signal}");
        assert_eq!(ended.content("a"), text("\n"));
    }
}

#[test]
fn what_the_command_prints_and_reads_is_its_own() {
    let pod = Pod::new();
    fs::write(pod.path("stdin"), "from stdin").unwrap();
    let script =
        "cat; printf ' #MANCIPLE1 report x\\0\\n#MANCIPLE1 no end'; printf err >&2; echo >a";
    let mut agent = pod.wrapping(&["a"], script);
    let ended = pod.run({
        agent.stdin(fs::File::open(pod.path("stdin")).unwrap());
        agent
    });
    assert_eq!(ended.stdout, "from stdin #MANCIPLE1 report x\0\n#MANCIPLE1 no end");
    assert_eq!(ended.stderr, "err");
    assert_eq!(ended.content("a"), text("\n"));
}

#[test]
fn arguments_are_handed_on_as_they_are() {
    let pod = Pod::new();
    let gathering = pod.gathering(&[]);
    for before in [&["wrap"][..], &["wrap", "--"]] {
        let _ = fs::remove_file(pod.path("stdout"));
        let words = ["printf", "%s|", "--", "--until", "a b", "", "$HOME"];
        let ended = pod.run(pod.agent(&gathering, &[before, &words].concat()));
        assert_eq!(ended.stdout, "--|--until|a b||$HOME|");
    }
}

#[test]
fn variables_are_handed_on_but_for_our_own() {
    let pod = Pod::new();
    let mut agent = pod.wrapping(&[], "env");
    agent
        .env("MANCIPLE_AGENT", "/manciple/agent")
        .env("MANCIPLE_OTHER", "theirs")
        .env("ODD", "a=b\nc");
    let ended = pod.run(agent);
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains("\nODD=a=b\nc\n") || ended.stdout.starts_with("ODD=a=b\nc\n"));
    assert!(ended.stdout.contains("MANCIPLE_OTHER=theirs\n"));
    for ours in [GATHERING_VARIABLE, "MANCIPLE_AGENT"] {
        assert!(!ended.stdout.contains(ours), "{}", ended.stdout);
    }
}

#[test]
fn a_command_is_looked_for_in_path() {
    let pod = Pod::new();
    fs::create_dir(pod.path("bin")).unwrap();
    let script = "#!/bin/sh\necho found\n";
    let made = std::process::Command::new("sh")
        .args(["-c", "printf \"$1\" >mine; chmod +x mine", "sh", script])
        .current_dir(pod.path("bin"))
        .status();
    assert!(made.unwrap().success());
    let mut agent = pod.agent(&pod.gathering(&[]), &["wrap", "mine"]);
    let path = format!("/nowhere:{}:{}", pod.path("bin").display(), std::env::var("PATH").unwrap());
    agent.env("PATH", path);
    assert_eq!(pod.run(agent).stdout, "found\n");
}

#[test]
fn a_command_that_cannot_be_started_is_told_as_shells_do() {
    let pod = Pod::new();
    fs::write(pod.path("out/plain"), "left by an earlier one").unwrap();
    let plain = pod.path("out/plain");
    let cases =
        [("no-such-command", 127), ("/no/such/command", 127), (plain.to_str().unwrap(), 126)];
    for (command, code) in cases {
        let ended = pod.run(pod.agent(&pod.gathering(&["plain"]), &["wrap", command]));
        assert_eq!(ended.code, Some(code), "{command}");
        assert!(ended.stderr.contains(&format!("{command} cannot be run: ")), "{}", ended.stderr);
        assert_eq!(ended.content("plain"), text("left by an earlier one"));
    }
}

#[test]
fn signals_are_forwarded() {
    let cases = [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::POWER, "PWR"),
        (Signal::CONT, "CONT"),
    ];
    for (sent, name) in cases {
        let pod = Pod::new();
        let script = format!(
            "trap 'echo {name} >a; exit 42' {name}; echo >../ready; while :; do sleep 0.02; done"
        );
        let mut agent = pod.wrapping(&["a"], &script).spawn().unwrap();
        pod.wait_for("ready");
        signal(&agent, sent);
        let ended = pod.ended(&mut agent);
        assert_eq!(ended.code, Some(42), "{name}");
        assert_eq!(ended.content("a"), text(&format!("{name}\n")));
    }
}

#[test]
fn a_command_that_does_not_catch_sigterm_is_ended_by_it() {
    let pod = Pod::new();
    let script = "echo before >a; echo >../ready; exec sleep 60";
    let mut agent = pod.wrapping(&["a"], script).spawn().unwrap();
    pod.wait_for("ready");
    signal(&agent, Signal::TERM);
    let ended = pod.ended(&mut agent);
    assert_eq!(ended.code, Some(143));
    assert_eq!(ended.content("a"), text("before\n"));
}

#[test]
fn signals_are_to_the_command_as_if_nobody_had_touched_them() {
    let pod = Pod::new();
    let wrapped = pod.wrapping(&[], "grep -E '^Sig(Blk|Ign)' /proc/self/status");
    let mut agent = std::process::Command::new("sh");
    agent.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    agent.arg(wrapped.get_program()).args(wrapped.get_args());
    agent.envs(wrapped.get_envs().filter_map(|(name, value)| Some((name, value?))));
    agent.stdout(pod.open("stdout")).stderr(pod.open("stderr"));
    let ended = pod.run(agent);
    let masks: Vec<_> = ended.stdout.lines().filter_map(|line| line.split_once('\t')).collect();
    assert_eq!(masks.len(), 2);
    for (name, mask) in masks {
        // Beyond the standard ones, libraries keep some for themselves.
        let standard = u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff;
        assert_eq!(standard, 0, "{name}");
    }
}

#[test]
fn a_command_runs_whatever_the_agent_is_told() {
    let no_gathering = "MANCIPLE_GATHERING is no gathering of this version (line 1, column ";
    for (told, why) in [
        (None, "MANCIPLE_GATHERING is not set"),
        (Some("{\"run\": \"planted-value\"}"), no_gathering),
        (Some("planted-value"), no_gathering),
    ] {
        let pod = Pod::new();
        let mut agent = pod.wrapping(&["a"], "echo it ran; exit 7");
        match told {
            Some(told) => agent.env(GATHERING_VARIABLE, told),
            None => agent.env_remove(GATHERING_VARIABLE),
        };
        let ended = pod.run(agent);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "it ran\n"), "{told:?}");
        assert!(
            ended.stderr.contains(why) && !ended.stderr.contains("planted"),
            "{}",
            ended.stderr
        );
    }
}

#[test]
fn a_report_that_cannot_be_left_changes_no_code() {
    for code in [0, 7] {
        let pod = Pod::new();
        let gathering = Gathering { message: pod.path("nowhere"), ..pod.gathering(&["a"]) };
        let script = format!("echo it ran; exit {code}");
        let ended = pod.run(pod.agent(&gathering, &["wrap", "sh", "-c", &script]));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), "it ran\n"));
        assert!(ended.stderr.contains("the report cannot be left: "), "{}", ended.stderr);
    }
}

#[test]
fn without_a_command_there_is_nothing_to_wrap() {
    let pod = Pod::new();
    for arguments in [
        &["wrap"][..],
        &["wrap", "--"],
        &["gather", "--until"],
        &["gather", "a", "b"],
        &["gather", "--once", "a"],
    ] {
        let ended = pod.run(pod.agent(&pod.gathering(&[]), arguments));
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("usage: "), "{}", ended.stderr);
    }
}

/// In a container that is `/proc/1/fd/1`.
#[test]
fn a_command_can_print_where_the_first_process_does() {
    if !is_allowed(&NOBODY) {
        return;
    }
    let pod = Pod::new();
    let agent = pod.wrapping(&["a"], "echo starting >/proc/$PPID/fd/1 && echo >a");
    let ended = pod.run(unshared(&NOBODY, &[], &agent, &pod));
    assert_eq!((ended.code, &*ended.stdout), (Some(0), "starting\n"), "{}", ended.stderr);
    assert_eq!(ended.content("a"), text("\n"));
}

#[test]
fn the_agents_memory_is_closed_once_the_command_has_ended() {
    if !is_allowed(&NOBODY) {
        return;
    }
    let pod = Pod::new();
    // The report takes the log. While nobody reads that the agent stays, and so does what the command has left: here
    // the agent is not the first process.
    let script = r#"cat /proc/$PPID/environ >/dev/null || exit 9
        head -c 900000 /dev/zero | tr '\0' x >a; export agent=$PPID
        setsid sh -c 'while cat /proc/$agent/environ; do sleep 0.02; done
            ls -d /proc/$agent >../closed' >/dev/null 2>&1 &"#;
    let (mut log, stdout) = std::io::pipe().unwrap();
    let mut agent = unshared(&NOBODY, &[], &pod.wrapping(&["a"], script), &pod);
    let mut running = agent.stdout(stdout).spawn().unwrap();
    // Its own end of the pipe, which the end of the log waits for.
    drop(agent);
    assert_eq!(pod.wait_for("closed"), format!("/proc/{}\n", running.id()), "it is there still");
    let mut stdout = String::new();
    log.read_to_string(&mut stdout).unwrap();
    let mut ended = pod.ended(&mut running);
    ended.stdout = stdout;
    assert_eq!((ended.code, ended.content("a")), (Some(0), text(&"x".repeat(900_000))));
}
