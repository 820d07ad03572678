use osb::FailureKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn provision_and_update_keep_dashboard_and_metadata() {
    for action in [Action::Provision, Action::Update] {
        let output = Case::of(
            action,
            json!({"dashboard_url": "https://d", "unknown": [1],
                   "metadata": {"labels": {"a": "b"}, "attributes": {"n": 1}}}),
        )
        .good();
        assert_eq!(output.dashboard_url.as_deref(), Some("https://d"));
        let metadata = output.metadata.unwrap();
        assert_eq!(metadata.labels.unwrap()["a"], "b");
        assert_eq!(metadata.attributes.unwrap()["n"], 1);
        assert_eq!(output.binding, None);
    }
}

#[test]
fn an_empty_object_is_a_good_output_of_everything() {
    for action in Action::ALL {
        let output = Case::of(action, "{}").good();
        assert_eq!(output.binding.is_some(), action == Action::Bind);
    }
}

#[test]
fn null_is_as_good_as_absent() {
    for stdout in
        [r#"{"dashboard_url": null, "metadata": null}"#, r#"{"dashboard_url": null, "unknown": 1}"#]
    {
        assert_eq!(Case::of(Action::Provision, stdout).good(), Output::default());
    }
    // Of a document, too: it was read into a structure, and left that as it was.
    for action in Action::ALL {
        let output = Case::of(action, "null").good();
        assert_eq!(output.binding.is_some(), action == Action::Bind);
    }
}

/// Steward read them so, and programs in Go print them so that give their members no names.
#[test]
fn members_in_capitals_are_read_where_there_is_none_as_it_is_spelt() {
    let binding = |stdout: Value| Case::of(Action::Bind, &stdout).good().binding.unwrap();
    for (stdout, user) in [
        (json!({"Credentials": {"User": "u"}}), json!({"User": "u"})),
        (json!({"CREDENTIALS": {"User": "u"}, "credentials": null}), json!({"User": "u"})),
        (json!({"CREDENTIALS": null, "Credentials": {"User": "u"}}), json!({"User": "u"})),
        (json!({"Credentials": {"User": "v"}, "credentials": {"User": "u"}}), json!({"User": "u"})),
    ] {
        let found = binding(stdout.clone()).credentials;
        assert_eq!(serde_json::to_value(found).unwrap(), user, "{stdout}");
    }
    let provisioned = Case::of(Action::Provision, json!({"Dashboard_URL": "https://d"})).good();
    assert_eq!(provisioned.dashboard_url.as_deref(), Some("https://d"));
    Case::of(Action::Bind, json!({"Credentials": "x"}))
        .fails_saying(Reason::WrongShape, "credentials must be an object, not a string");
    let huge = r#"{"Credentials": {"pin": 18446744073709551616}}"#;
    Case::of(Action::Bind, huge).fails_saying(Reason::WrongShape, "Credentials.pin");
    // Of what is passed over nothing is asked.
    let other = r#"{"credentials": {}, "Credentials": {"pin": 18446744073709551616}}"#;
    Case::of(Action::Bind, other).good();
    Case::of(Action::Provision, r#"{"MetadataVersion": 18446744073709551616}"#).good();
}

#[test]
fn what_is_secret_is_so_in_capitals_too() {
    for stdout in [
        r#"{"Credentials": {"p": "hunter22"}}"#,
        r#"{"Credentials": {"p": "hunter22"}, "credentials": {"p": "other-one"}}"#,
        r#"log {"Credentials": {"p": "hunter22"}}"#,
        r#"{"Volume_Mounts": [{"Device": {"Mount_Config": {"p": "hunter22"}}}]}"#,
        r#"{"volume_mounts": [], "Volume_Mounts": [{"device": {"mount_config": {"p": "hunter22"}}}]}"#,
    ] {
        let secrets = secrets::of_output(stdout.as_bytes());
        assert!(secrets.iter().any(|secret| secret == b"hunter22"), "{stdout}");
    }
}

/// As many brokers print them, of services that do not require them.
#[test]
fn empty_addresses_and_mounts_are_none() {
    let stdout = json!({
        "credentials": {}, "syslog_drain_url": "", "route_service_url": "", "volume_mounts": [],
    });
    let binding = Case::of(Action::Bind, stdout).good().binding.unwrap();
    assert_eq!(serde_json::to_value(binding).unwrap(), json!({"credentials": {}}));
    let provisioned = Case::of(Action::Provision, json!({"dashboard_url": ""})).good();
    assert_eq!(provisioned.dashboard_url, None);
}

#[test]
fn bind_keeps_every_member_of_the_specification() {
    let body = json!({
        "credentials": {"uri": "u", "nested": {"deep": [1, null]}},
        "syslog_drain_url": "syslog://x", "route_service_url": "https://r",
        "volume_mounts": [{"driver": "nfs", "container_dir": "/data", "mode": "rw",
            "device_type": "shared", "device": {"volume_id": "v", "mount_config": {"k": "s"}}}],
        "endpoints": [{"host": "h", "ports": ["443"], "protocol": "tcp"},
                      {"host": "i", "ports": []}],
        "metadata": {"expires_at": "2030-01-01T00:00:00.0Z"}
    });
    let binding = Case::of(Action::Bind, &body).good().binding.unwrap();
    assert_eq!(serde_json::to_value(binding).unwrap(), body);
}

#[test]
fn operation_never_means_asynchrony_in_version_1() {
    for action in Action::ALL {
        let stdout = r#"{"operation": "create", "async": true}"#;
        assert_eq!(Case::of(action, stdout).good().external_operation, None);
        for stdout in [r#"{"operation": "create"}"#, r#"{"operation": "create", "async": false}"#] {
            assert_eq!(Case::of(action, stdout).with(V2).good().external_operation, None);
        }
    }
}

#[test]
fn nothing_is_a_good_output_of_what_removes_only() {
    for stdout in ["", " \n"] {
        for action in [Action::Unbind, Action::Deprovision] {
            assert_eq!(Case::of(action, stdout).good(), Output::default());
        }
        for action in [Action::Provision, Action::Update, Action::Bind] {
            let case = Case { log: "no disk", ..Case::of(action, stdout) };
            case.fails_saying(Reason::NotJson, "printed nothing on stdout");
            case.fails_saying(Reason::NotJson, "no disk");
        }
    }
}

#[test]
fn a_byte_order_mark_before_the_json_is_passed_over() {
    let marked = |json: &str| format!("\u{feff}{json}\r\n");
    let output =
        Case::of(Action::Provision, marked(r#"{"dashboard_url": "https://d"}"#).as_str()).good();
    assert_eq!(output.dashboard_url.as_deref(), Some("https://d"));
    let huge = marked(r#"{"credentials": {"pin": 18446744073709551616}}"#);
    Case::of(Action::Bind, huge.as_str()).fails_saying(Reason::WrongShape, "credentials.pin");
    Case::of(Action::Provision, "\u{feff}").fails_saying(Reason::NotJson, "printed nothing");
    Case::of(Action::Provision, "{} \u{feff}").fails_saying(Reason::NotJson, "text after the JSON");
}

#[test]
fn anything_is_a_good_output_of_unbind_only() {
    for stdout in ["done", "[]", "{\"a\"", "{} trailing"] {
        assert_eq!(Case::of(Action::Unbind, stdout).good(), Output::default());
    }
    Case::of(Action::Deprovision, "done").fails(Reason::NotJson);
    Case::of(Action::Deprovision, "[]").fails(Reason::WrongShape);
}

#[test]
fn what_is_not_json_is_told_apart() {
    for (stdout, says) in [
        ("connecting…\n{}", "not JSON (line 1, column 1)"),
        ("{}\ndone", "text after the JSON"),
        ("{} {}", "text after the JSON"),
        ("{\"a\": ", "ends too early"),
        ("{'a': 1}", "not JSON (line 1, column 2)"),
    ] {
        let case = Case::of(Action::Provision, stdout);
        case.fails_saying(Reason::NotJson, says);
        case.fails_saying(Reason::NotJson, "stdout must carry JSON only");
    }
}

fn mounted(mode: Value) -> Value {
    json!({"volume_mounts": [{"driver": "nfs", "container_dir": "/data", "mode": mode,
        "device_type": "shared", "device": {"volume_id": "v"}}]})
}

#[test]
fn item_39_a_volume_is_mounted_to_read_or_to_read_and_write() {
    use osb::VolumeMode::{R, Rw};
    for (word, mode) in [("r", R), ("rw", Rw)] {
        let output = Case::of(Action::Bind, mounted(json!(word))).good();
        assert_eq!(output.binding.unwrap().volume_mounts.unwrap()[0].mode, mode);
    }
    let one_of = "volume_mounts[0].mode must be one of \"r\", \"rw\"";
    for (mode, says) in [
        (json!("w"), one_of),
        (json!("RW"), one_of),
        (json!("r "), one_of),
        (json!(""), one_of),
        (json!(["r"]), "volume_mounts[0].mode must be a string, not an array"),
        (json!(null), "volume_mounts[0].mode is missing"),
    ] {
        Case::of(Action::Bind, mounted(mode)).fails_saying(Reason::WrongShape, says);
    }
}

#[test]
fn members_of_a_wrong_type_are_named_by_path() {
    use Action::{Bind, Provision};
    for (action, stdout, says) in [
        (Provision, json!([]), "a JSON object is expected, not an array"),
        (Provision, json!("text"), "a JSON object is expected, not a string"),
        (Provision, json!({"dashboard_url": 5}), "dashboard_url must be a string, not a number"),
        (Provision, json!({"metadata": []}), "metadata must be an object, not an array"),
        (
            Provision,
            json!({"metadata": {"labels": {"env": 1}}}),
            "metadata.labels.env must be a string, not a number",
        ),
        (Bind, json!({"credentials": "x"}), "credentials must be an object, not a string"),
        (Bind, json!({"endpoints": {}}), "endpoints must be an array, not an object"),
        (
            Bind,
            json!({"endpoints": [{"host": "h", "ports": [443]}]}),
            "endpoints[0].ports[0] must be a string, not a number",
        ),
        (
            Bind,
            json!({"endpoints": [{"host": "h", "ports": [], "protocol": "icmp"}]}),
            "endpoints[0].protocol must be one of \"tcp\", \"udp\", \"all\"",
        ),
        (Bind, json!({"volume_mounts": [{}]}), "volume_mounts[0].device is missing"),
        (Bind, json!({"volume_mounts": [1]}), "volume_mounts[0] must be an object, not a number"),
        (Bind, json!({"metadata": {"expires_at": true}}), "metadata.expires_at must be a string"),
    ] {
        Case::of(action, stdout).fails_saying(Reason::WrongShape, says);
    }
}

#[test]
fn every_end_of_a_process_has_a_reason_of_its_own() {
    for (exit, reason, says) in [
        (Exit::Status(3), Reason::ExitStatus, "the broker exited with status 3: first\nlast words"),
        (Exit::Status(8), Reason::ExitStatus, "status 8"),
        (Exit::Status(10), Reason::ExitStatus, "status 10"),
        (Exit::Signal(9), Reason::Killed, "signal 9 (SIGKILL, which is"),
        (Exit::Signal(64), Reason::Killed, "signal 64"),
        (Exit::TimedOut(30), Reason::Timeout, "provision took more than 30 s"),
        (Exit::Halted, Reason::Halted, "provision was halted"),
        (Exit::Stopped, Reason::Killed, "SIGTERM"),
        (Exit::TooMuchOutput(1024), Reason::OutputTooLarge, "more than 1024 bytes"),
    ] {
        let case = Case::of(Action::Provision, "{}");
        let case = Case { exit, log: "first\nlast words\n\n", ..case };
        case.fails_saying(reason, says);
        case.fails_saying(reason, "last words");
        assert_eq!(case.fails(reason).kind, FailureKind::Failed);
    }
    let silent = Case::of(Action::Provision, "{}").exit(1);
    assert_eq!(silent.fails(Reason::ExitStatus).description, "the broker exited with status 1");
}

#[test]
fn a_structured_error_of_version_1_is_not_read() {
    let stdout = r#"{"description": "hunter22"}"#;
    let failure = Case::of(Action::Provision, stdout).exit(1).fails(Reason::ExitStatus);
    assert!(!failure.description.contains("hunter22"));
}

#[test]
fn the_log_is_shown_from_its_end_without_control_characters() {
    let log: String = (0..500).map(|n| format!("\u{1b}[31mline {n} é\u{7}\n")).collect();
    let case = Case::of(Action::Provision, "").exit(1);
    let case = Case { log: Box::leak(log.into_boxed_str()), ..case };
    let description = case.fails(Reason::ExitStatus).description;
    assert!(description.ends_with("line 499 é"), "{description}");
    assert!(description.contains("status 1: … [31mline"), "{description}");
    assert!(description.len() < 1100);
    assert!(!description.contains(['\u{1b}', '\u{7}']));
}

#[test]
fn what_is_nested_too_deep_to_be_kept_is_refused() {
    let nested = |levels| (1..levels).fold(json!({}), |inner, _| json!({"a": inner}));
    let attributes = |levels| json!({"metadata": {"attributes": nested(levels)}});
    Case::of(Action::Provision, attributes(osb::MAX_DEPTH - 2)).good();
    for levels in [osb::MAX_DEPTH - 1, 100, 125] {
        let case = Case::of(Action::Provision, attributes(levels));
        case.fails_saying(Reason::WrongShape, "64 levels");
    }
    let with_state = |levels| {
        let case = Case::of(Action::Provision, "{}").with(&[State]);
        Case { state: Some(nested(levels).to_string().into_bytes()), ..case }
    };
    with_state(osb::MAX_DEPTH).good();
    with_state(osb::MAX_DEPTH + 1).fails_saying(Reason::WrongShape, "OSB_STATE_OUT_FILE");
}

#[test]
fn an_integer_that_would_be_rounded_is_refused_where_it_is_kept() {
    let huge = "{\"pin\": [0, 18446744073709551616]}";
    let bound = format!("{{\"credentials\": {huge}}}");
    let case = Case::of(Action::Bind, bound.as_str());
    case.fails_saying(
        Reason::WrongShape,
        "credentials.pin[1] must be an integer of at most 64 bits",
    );
    let made = format!("{{\"metadata\": {{\"attributes\": {huge}}}}}");
    let case = Case::of(Action::Provision, made.as_str());
    case.fails_saying(Reason::WrongShape, "metadata.attributes.pin[1]");
    let case = Case::of(Action::Provision, "{}").with(&[State]);
    Case { state: Some(huge.as_bytes().to_vec()), ..case }
        .fails_saying(Reason::WrongShape, "OSB_STATE_OUT_FILE: pin[1]");
    let stdout = "{\"\\u001b[31mplans\": [18446744073709551616]}".as_bytes();
    let (exit, redactor) = (Exit::Status(0), &Redactor::default());
    let failure = offer(&Ended { exit, stdout, log: "", state: None, redactor }).unwrap_err();
    let said = failure.failure.description;
    assert!(said.contains("plans[0] must be an integer"), "{said}");
    assert!(!said.contains(char::is_control), "{said:?}");
    // Nothing of these is read.
    let other = format!("{{\"debug\": {huge}}}");
    Case::of(Action::Provision, other.as_str()).good();
    Case::of(Action::Unbind, bound.as_str()).good();
}

fn any_json() -> impl Strategy<Value = Value> {
    let secret = Just(Value::from("hunter22"));
    let leaf = prop_oneof![secret, Just(json!(null)), Just(json!(1)), Just(json!(true))];
    let name = prop_oneof![
        Just("credentials"),
        Just("metadata"),
        Just("labels"),
        Just("endpoints"),
        Just("ports"),
        Just("host"),
        Just("protocol"),
        Just("volume_mounts"),
        Just("mode"),
        Just("device"),
        Just("dashboard_url"),
        Just("operation"),
        Just("async"),
        Just("state"),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn any_asked() -> impl Strategy<Value = (Action, bool, Vec<Capability>)> {
    (
        prop::sample::select(Action::ALL.to_vec()),
        any::<bool>(),
        prop::sample::subsequence(V2.to_vec(), 0..=V2.len()),
    )
}

fn reads(asked: &(Action, bool, Vec<Capability>), stdout: &[u8]) -> Result<Output, RunFailure> {
    let (action, poll, capabilities) = asked;
    let external = poll.then_some("x");
    let (exit, state, redactor) = (Exit::Status(0), Some(stdout), &Redactor::default());
    let ended = Ended { exit, stdout, log: "", state, redactor };
    interpret(&Asked { action: Some(*action), external, capabilities }, &ended)
}

proptest! {
    #[test]
    fn no_failure_repeats_what_was_printed(
        asked in any_asked(), json in any_json(), after in "[ -~]{0,3}",
    ) {
        if let Err(failure) = reads(&asked, format!("{json}{after}").as_bytes()) {
            prop_assert!(!failure.failure.description.contains("hunter22"), "{failure:?}");
        }
    }

    #[test]
    fn any_output_is_read_without_a_panic(
        asked in any_asked(), stdout in prop::collection::vec(any::<u8>(), 0..64), text in "\\PC*",
        status in 0..80,
    ) {
        let _ = reads(&asked, &stdout);
        let redactor = &Redactor::default();
        let _ = progress(&text, redactor);
        let (exit, log) = (Exit::Status(status), &text);
        let ended = Ended { exit, stdout: &stdout, log, state: None, redactor };
        let _ = offer(&ended);
        let asked = Asked { action: Some(asked.0), external: None, capabilities: V2 };
        let _ = interpret(&asked, &ended);
    }
}
