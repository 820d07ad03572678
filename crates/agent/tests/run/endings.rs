//! How runs end, and that each end is told as what it is.

use std::fs;
use std::time::{Duration, Instant};

use agent::{KeyPair, KeySet, Message};
use engine::record::Reason;
use osb::jobs::contract::Capability;
use osb::{Action, FailureKind};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Pod, is_alive, run, run_with};

#[test]
fn a_success_comes_home_in_the_message() {
    let pod = Pod::new(r#"echo making it >&2; echo '{"dashboard_url": "https://d.example"}'"#);
    let ended = pod.run(&pod.order());
    assert_eq!(ended.output().dashboard_url.as_deref(), Some("https://d.example"));
    assert_eq!(ended.report().log, "making it\n");
    assert_eq!(ended.log, "making it\n", "nothing but what the broker printed");
    assert!(!ended.message.contains("d.example"));
}

#[test]
fn a_failure_has_the_end_of_stderr() {
    let ended = Pod::new("echo no disk left >&2; exit 3");
    let ended = ended.run(&ended.order());
    let said = ended.failed(Reason::ExitStatus);
    assert_eq!(said, "the broker exited with status 3: no disk left");
}

#[test]
fn a_signal_is_named() {
    let pod = Pod::new("kill -9 $$");
    assert!(pod.run(&pod.order()).failed(Reason::Killed).contains("SIGKILL"));
}

#[test]
fn junk_is_not_repeated() {
    let pod = Pod::new("echo 'made it: hunter22'");
    let said = pod.run(&pod.order()).failed(Reason::NotJson);
    assert!(!said.contains("hunter22"), "{said}");
}

#[test]
fn what_is_not_utf8_is_no_json_and_is_replaced_in_the_log() {
    let pod = Pod::new(r"printf '\377\376{}'; printf 'a\377b\n' >&2");
    let ended = pod.run(&pod.order());
    ended.failed(Reason::NotJson);
    assert_eq!(ended.log, "a\u{fffd}b\n");
}

#[test]
fn too_much_output_ends_the_broker() {
    let pod = Pod::new("head -c 11000000 /dev/zero; sleep 60");
    let begun = Instant::now();
    let said = pod.run(&pod.order()).failed(Reason::OutputTooLarge);
    assert!(said.contains("1048576 bytes"), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn too_much_output_of_one_that_ends_at_once_is_too_much_too() {
    let pod = Pod::new(r#"printf '{"a": "%01100d"}' 7"#);
    let order = agent::Order { output_limit: 1000, ..pod.order() };
    pod.run(&order).failed(Reason::OutputTooLarge);
}

#[test]
fn a_timeout_ends_the_broker() {
    let pod = Pod::new("echo waiting >&2; sleep 60");
    let order = agent::Order { timeout: Duration::from_secs(1), ..pod.order() };
    let said = pod.run(&order).failed(Reason::Timeout);
    assert_eq!(said, "provision took more than 1 s and was ended: waiting");
}

#[test]
fn sigterm_halts_the_broker_which_may_clean_up() {
    let pod = Pod::new(
        r#"trap 'echo cleaned up >&2; exit 0' TERM; touch "$PID"; echo $$ >"$PID"; while :; do sleep 0.05; done"#,
    );
    pod.key_file("config", "pid", pod.path("pid").to_str().unwrap());
    let order = agent::Order { grace: Duration::from_secs(20), ..pod.order() };
    let agent = pod.start(&order);
    pod.wait_for("pid");
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    let said = pod.ended(agent, &order).failed(Reason::Halted);
    assert!(said.contains("cleaned up"), "{said}");
}

#[test]
fn a_stubborn_broker_is_killed_after_its_grace() {
    let pod = Pod::new(r#"trap '' TERM; echo $$ >"$PID"; while :; do sleep 0.05; done"#);
    pod.key_file("config", "pid", pod.path("pid").to_str().unwrap());
    let order = pod.order();
    let agent = pod.start(&order);
    let pid = pod.wait_for("pid");
    let begun = Instant::now();
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    // The second is as good as the first.
    std::thread::sleep(Duration::from_millis(50));
    kill_process(Pid::from_child(&agent), Signal::TERM).unwrap();
    pod.ended(agent, &order).failed(Reason::Halted);
    assert!(begun.elapsed() >= order.grace);
    assert!(!is_alive(&pid));
}

#[test]
fn what_the_broker_leaves_is_ended() {
    let pod = Pod::new(
        r#"(trap '' TERM; exec sleep 300) & echo $! >"$PID"
           (sleep 300 >/dev/null 2>&1 &) ; echo '{}'"#,
    );
    pod.key_file("config", "pid", pod.path("pid").to_str().unwrap());
    let begun = Instant::now();
    pod.run(&pod.order()).output();
    assert!(begun.elapsed() < Duration::from_secs(20), "nobody waits for who holds the pipes");
    assert!(!is_alive(&pod.wait_for("pid")));
}

#[test]
fn an_image_without_a_broker_says_so() {
    let pod = Pod::new("");
    fs::remove_file(pod.path("image/broker")).unwrap();
    let said = pod.run(&pod.order()).failed(Reason::NotStarted);
    assert!(said.starts_with("the image has no /") && said.contains("/image/broker"), "{said}");
}

#[test]
fn a_broker_that_cannot_be_executed_says_why() {
    let cases: [(&str, &[u8], u32, &str); 4] = [
        ("no x", b"#!/bin/sh\n", 0o644, "make it executable"),
        ("no interpreter", b"#!/no/such/shell\n", 0o755, "what interprets it is not"),
        ("another machine", b"\x7fELF\x02\x01\x01\0garbage", 0o755, "for this machine (x86_64)"),
        ("no first line", b"\0\0\0\0", 0o755, "nor a script that begins with #!"),
    ];
    for (name, content, mode, expected) in cases {
        let pod = Pod::new("");
        pod.set_broker(content, mode);
        let ended = pod.run(&pod.order());
        let said = ended.failed(Reason::NotStarted);
        assert!(said.contains(expected), "{name}: {said}");
    }
}

#[test]
fn a_directory_that_the_order_names_must_be_there() {
    let pod = Pod::new("echo '{}'");
    let missing = Some(pod.path("missing"));
    let order = agent::Order { config_dir: missing.clone(), ..pod.order() };
    let said = pod.run(&order).failed(Reason::NotStarted);
    assert!(said.contains("the configuration in") && said.contains("missing"), "{said}");
    let other = Pod::new("echo '{}'");
    let order = agent::Order { secret_dir: missing, ..other.order() };
    assert!(other.run(&order).failed(Reason::NotStarted).contains("the secret in"));
    let third = Pod::new("echo '{}'");
    third.run(&agent::Order { config_dir: None, secret_dir: None, ..third.order() }).output();
}

#[test]
fn what_is_to_be_given_must_be_there() {
    let pod = Pod::new("echo '{}'");
    let request = serde_json::json!({"parameters": {"size": "very large"}});
    let (order, _) =
        pod.order_of(&run_with(Action::Provision, &[Capability::RequestFile], &request));
    let said = pod.run(&order).failed(Reason::NotStarted);
    assert!(said.contains("work.json is named by the order and is not there"), "{said}");
}

#[test]
fn a_container_that_is_started_again_starts_no_second_broker() {
    let pod = Pod::new(r#"echo once >>"$LEDGER"; echo '{}'"#);
    pod.key_file("config", "ledger", pod.path("ledger").to_str().unwrap());
    let order = pod.order();
    pod.run(&order).output();
    pod.run(&order).failed(Reason::Lost);
    assert_eq!(fs::read_to_string(pod.path("ledger")).unwrap(), "once\n");
}

#[test]
fn exit_codes_and_structured_errors_mean_what_the_contract_says() {
    let pod = Pod::new(r#"echo '{"description": "try later", "retry_after": 7}'; exit 75"#);
    let capabilities = [Capability::ExitCodes, Capability::StructuredErrors];
    let failure = pod.run_of(&run(Action::Provision, &capabilities)).failure().failure;
    assert_eq!((failure.kind, failure.retry_after), (FailureKind::Transient, Some(7)));
    assert_eq!(failure.description, "try later");
}

#[test]
fn an_order_that_cannot_be_read_is_told_in_the_open() {
    let pod = Pod::new("echo '{}'");
    let mut command = pod.command(&pod.order());
    let agent = command.env(agent::ORDER_VARIABLE, "{\"run\": 7}").spawn().unwrap();
    let ended = pod.ended(agent, &pod.order());
    assert_eq!(ended.code, Some(2));
    assert!(ended.log.contains("MANCIPLE_ORDER is no order of this version"), "{}", ended.log);
}

#[test]
fn a_report_that_cannot_be_left_is_said_so() {
    let pod = Pod::new("echo '{}'");
    let order = agent::Order { message: pod.path("nowhere"), ..pod.order() };
    let ended = pod.run(&order);
    assert_eq!(ended.code, Some(2));
    assert!(ended.log.contains("the report cannot be left: "), "{}", ended.log);
}

#[test]
fn old_keys_open_what_was_sealed_to_them() {
    let pod = Pod::new("echo '{}'");
    let ended = pod.run(&pod.order());
    let Ok(Message::Sealed(sealed)) = Message::parse(&ended.message) else { panic!() };
    let run = &pod.order().run;
    let rotated = KeySet::from_iter([KeyPair::generate(), pod.keys.clone()]);
    assert!(sealed.report(&rotated, run).is_ok());
    let too_soon = KeySet::from_iter([KeyPair::generate()]);
    let id = pod.keys.public().id();
    assert_eq!(sealed.report(&too_soon, run), Err(agent::Error::UnknownKey(id)));
    assert_eq!(sealed.report(&rotated, "another-run"), Err(agent::Error::NotOpened));
}
