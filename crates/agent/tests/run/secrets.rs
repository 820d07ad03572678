//! No secret is anywhere that others look: the log, the message, a command line, the volume.

use agent::Order;
use osb::Action;
use osb::jobs::contract::Capability;
use serde_json::json;

use crate::harness::{Ended, Pod, run_with};

const GIVEN: [&str; 6] = [
    "secret-directory-1aX",
    "parameter-value-2bY",
    "context-value-3cZ",
    "identity-value-4dW",
    "removed-binding-5eV",
    "earlier-state-6fU",
];
const MADE: [&str; 2] = ["made-credential-7gT", "later-state-8hS"];

/// Everything that leaves the container in the open.
fn assert_nothing_planted(ended: &Ended) {
    for planted in GIVEN.iter().chain(&MADE) {
        assert!(!ended.log.contains(planted), "{planted} is in the log: {}", ended.log);
        assert!(!ended.message.contains(planted), "{planted} is in the message");
        let report = ended.report();
        let failure = format!("{:?}", report.answer.failure());
        assert!(!report.log.contains(planted), "{planted} is in the report's log");
        assert!(!failure.contains(planted), "{planted} is in the failure");
        assert!(!format!("{report:?}").contains(planted), "{planted} is in Debug");
    }
}

fn pod(script: &str, action: Action) -> (Pod, Order, agent::Given) {
    let pod = Pod::new(script);
    pod.key_file("secret", "token", GIVEN[0]);
    let request = json!({
        "parameters": {"password": GIVEN[1]},
        "context": {"name": GIVEN[2]},
        "originating_identity": {"platform": "kubernetes", "value": {"user": GIVEN[3]}},
        "state": {"key": GIVEN[5]},
    });
    let mut run = run_with(action, &[Capability::RequestFile, Capability::State], &request);
    let removes = json!({"credentials": {"password": GIVEN[4]}});
    run.removes = Some(serde_json::from_value(removes).unwrap());
    let (order, given) = pod.order_of(&run);
    (pod, order, given)
}

/// Prints all it has in several ways.
const TELLS: &str = r#"
    tell() { echo "it is $1" >&2; printf '%s' "$1" | base64 >&2; printf '%9000s%s%9000s\n' '' "$1" '' >&2; }
    tell "$TOKEN"; cat "$OSB_REQUEST_FILE" "$OSB_STATE_FILE" >&2; echo >&2
    tell removed-binding-5eV
    tell made-credential-7gT; tell later-state-8hS
    ps -eo args >&2 || cat /proc/[0-9]*/cmdline >&2
    for n in $(seq 1 40); do printf '%*s%s' $((n * 97)) '' "$TOKEN" >&2; done; echo >&2
    echo '{"key": "later-state-8hS"}' >"$OSB_STATE_OUT_FILE"
"#;

#[test]
fn nothing_planted_is_seen_of_a_success() {
    let script =
        format!(r#"{TELLS} echo '{{"credentials": {{"password": "made-credential-7gT"}}}}'"#);
    let (pod, order, given) = pod(&script, Action::Bind);
    pod.install(&given);
    let ended = pod.run(&order);
    let binding = ended.output().binding.unwrap();
    assert_eq!(binding.credentials.unwrap().expose()["password"], MADE[0]);
    assert_nothing_planted(&ended);
    assert!(ended.log.contains("it is [redacted]"));
}

#[test]
fn nothing_planted_is_seen_of_a_failure() {
    let fails = r#" echo '{"credentials": {"password": "made-credential-7gT"}}'; exit 3"#;
    let (pod, order, given) = pod(&format!("{TELLS}{fails}"), Action::Bind);
    pod.install(&given);
    let ended = pod.run(&order);
    ended.failed(engine::record::Reason::ExitStatus);
    assert_nothing_planted(&ended);
}

/// What an operator has given to the pod beside the configuration: a variable, a mounted Secret, one file of another.
#[test]
fn what_a_pod_holds_beside_its_configuration_is_masked_too() {
    let planted = ["in-a-variable-9iR", "in-a-volume-1jQ", "below-a-path-2kP", "in-one-file-3lO"];
    let script = r#"echo "$FURTHER" >&2; cd "$(dirname "$0")/.."
        for file in volume-of-theirs/key volume-of-theirs/path/of/it one; do cat $file; echo; done >&2
        exit 3"#;
    let pod = Pod::new(script);
    let mount = pod.path("volume-of-theirs");
    std::fs::create_dir_all(mount.join("..data/path/of")).unwrap();
    std::fs::write(mount.join("..data/key"), planted[1]).unwrap();
    std::fs::write(mount.join("..data/path/of/it"), planted[2]).unwrap();
    for key in ["key", "path"] {
        std::os::unix::fs::symlink(format!("..data/{key}"), mount.join(key)).unwrap();
    }
    std::fs::write(pod.path("one"), planted[3]).unwrap();
    let order = Order {
        secret_variables: vec!["FURTHER".to_owned(), "MISSING".to_owned()],
        secret_paths: vec![mount, pod.path("one"), pod.path("not-there")],
        ..pod.order()
    };
    let agent = {
        let mut command = pod.command(&order);
        command.env("FURTHER", planted[0]).spawn().unwrap()
    };
    let ended = pod.ended(agent, &order);
    assert_eq!(ended.log.matches("[redacted]").count(), 4, "{}", ended.log);
    let failure = format!("{:?}", ended.failed(engine::record::Reason::ExitStatus));
    for planted in planted {
        assert!(!ended.log.contains(planted), "{planted}: {}", ended.log);
        assert!(!failure.contains(planted), "{planted}: {failure}");
        assert!(!ended.report().log.contains(planted), "{planted}");
    }
}

#[test]
fn a_secret_at_the_cut_of_a_log_is_masked() {
    for shift in 0..20 {
        let script = format!(
            r#"printf '%{}s' '' >&2; i=0
               while [ $i -lt 400 ]; do printf '%s' "$TOKEN" >&2; i=$((i+1)); done; exit 1"#,
            100 + shift
        );
        let pod = Pod::new(&script);
        pod.key_file("secret", "token", GIVEN[0]);
        let order = Order { log_limit: 1000, ..pod.order() };
        let ended = pod.run(&order);
        ended.failure();
        let seen = ended.log.replace("[redacted]", "");
        for part in ["secret", "directory", "-1aX", "ecret-d"] {
            assert!(!seen.contains(part), "{shift}: {part} in {seen}");
        }
    }
}

#[test]
fn the_volume_holds_no_secret_of_ours_once_the_broker_runs() {
    let script = r#"grep -rl removed-binding "$(dirname "$OSB_REQUEST_FILE")/.." >&2; echo '{}'"#;
    let (pod, order, given) = pod(script, Action::Provision);
    pod.install(&given);
    let ended = pod.run(&order);
    ended.output();
    assert_eq!(ended.log, "", "no file of the volume has it");
}
