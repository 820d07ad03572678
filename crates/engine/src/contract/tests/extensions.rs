use osb::FailureKind;
use serde_json::json;

use super::*;

#[test]
fn exit_codes_mean_what_they_mean_when_declared() {
    for (status, kind, reason) in [
        (8, FailureKind::Unsupported, Reason::Unsupported),
        (11, FailureKind::Conflict, Reason::Conflict),
        (12, FailureKind::Gone, Reason::Reported),
        (13, FailureKind::Invalid, Reason::Invalid),
        (14, FailureKind::Busy, Reason::Busy),
        (15, FailureKind::Unsupported, Reason::Unsupported),
        (75, FailureKind::Transient, Reason::Reported),
        (1, FailureKind::Failed, Reason::ExitStatus),
        (137, FailureKind::Failed, Reason::ExitStatus),
        (256, FailureKind::Failed, Reason::ExitStatus),
        (-1, FailureKind::Failed, Reason::ExitStatus),
    ] {
        let case = Case::of(Action::Provision, "").exit(status).with(&[ExitCodes]);
        assert_eq!(case.fails(reason).kind, kind, "{status}");
    }
}

#[test]
fn exists_is_a_success_with_or_without_output() {
    let case = Case::of(Action::Provision, "").exit(10).with(&[ExitCodes]);
    assert_eq!(case.good(), Output::default());
    let stdout = r#"{"credentials": {"user": "u"}}"#;
    let output = Case::of(Action::Bind, stdout).exit(10).with(&[ExitCodes]).good();
    assert!(output.binding.unwrap().credentials.is_some());
    Case::of(Action::Bind, "[]").exit(10).with(&[ExitCodes]).fails(Reason::WrongShape);
}

#[test]
fn gone_is_a_success_of_what_removes() {
    for action in [Action::Unbind, Action::Deprovision] {
        let case = Case::of(action, "whatever").exit(12).with(&[ExitCodes]);
        assert_eq!(case.good(), Output::default());
        let poll = Case { external: Some("x"), ..case };
        assert_eq!(poll.good(), Output::default());
    }
}

#[test]
fn a_structured_error_says_everything() {
    let stdout = r#"{"error": "Quota", "description": "no more disks", "instance_usable": true,
                     "update_repeatable": false, "retry_after": 30}"#;
    let expected = osb::Failure {
        kind: FailureKind::Failed,
        description: "no more disks".to_owned(),
        instance_usable: Some(true),
        update_repeatable: Some(false),
        retry_after: Some(30),
    };
    let case = Case::of(Action::Update, stdout).exit(1).with(&[StructuredErrors]);
    assert_eq!(case.fails(Reason::Reported), expected);
    let case = Case::of(Action::Update, stdout).exit(75).with(V2);
    let transient = osb::Failure { kind: FailureKind::Transient, ..expected };
    assert_eq!(case.fails(Reason::Reported), transient);
}

#[test]
fn words_of_the_specification_mean_their_kind() {
    for (word, reason, kind) in [
        ("ConcurrencyError", Reason::Busy, FailureKind::Busy),
        ("RequiresApp", Reason::Invalid, FailureKind::Invalid),
        ("Whatever", Reason::Reported, FailureKind::Failed),
    ] {
        let case = Case::of(Action::Bind, json!({"error": word})).exit(1).with(&[StructuredErrors]);
        let failure = case.fails(reason);
        assert_eq!((failure.kind, failure.description.as_str()), (kind, word));
    }
}

#[test]
fn a_structured_error_that_is_none_leaves_the_exit_status() {
    for stdout in ["", "oops", "{}", "[]", r#"{"description": ""}"#, r#"{"description": 5}"#] {
        let case = Case::of(Action::Bind, stdout).exit(4).with(&[StructuredErrors]);
        case.fails_saying(Reason::ExitStatus, "status 4");
    }
    let odd = r#"{"description": "d", "instance_usable": "yes", "retry_after": -1}"#;
    let case = Case::of(Action::Bind, odd).exit(4).with(&[StructuredErrors]);
    assert_eq!(case.fails(Reason::Reported), osb::Failure::failed("d"));
}

#[test]
fn work_that_goes_on_elsewhere_is_named() {
    let stdout = r#"{"operation": "x-1", "async": true, "dashboard_url": "https://d"}"#;
    let output = Case::of(Action::Provision, stdout).with(V2).good();
    assert_eq!(output.external_operation.as_deref(), Some("x-1"));
    assert_eq!(output.dashboard_url.as_deref(), Some("https://d"));
    for action in Action::ALL {
        let output = Case::of(action, stdout).with(&[LastOperation]).good();
        assert_eq!(output.external_operation.as_deref(), Some("x-1"));
    }
}

#[test]
fn work_that_goes_on_elsewhere_without_a_name_fails() {
    let long = "x".repeat(10_001);
    for operation in [json!(null), json!(5), json!(""), json!(long)] {
        let stdout = json!({"operation": operation, "async": true});
        Case::of(Action::Unbind, stdout).with(V2).fails_saying(Reason::WrongShape, "operation");
    }
}

#[test]
fn whether_work_goes_on_elsewhere_is_not_guessed() {
    for said in [json!("yes"), json!("true"), json!(1), json!({})] {
        let stdout = json!({"operation": "x-1", "async": said});
        Case::of(Action::Unbind, stdout).with(V2).fails_saying(Reason::WrongShape, "async must be");
    }
    for said in [json!(false), json!(null)] {
        let stdout = json!({"operation": "x-1", "async": said});
        assert_eq!(Case::of(Action::Unbind, stdout).with(V2).good().external_operation, None);
    }
}

#[test]
fn a_poll_goes_on_ends_well_or_ends_badly() {
    let output = poll(r#"{"state": "in progress", "description": "half"}"#).good();
    assert_eq!(output.external_operation.as_deref(), Some("x-1"));
    assert_eq!(output.description.as_deref(), Some("half"));

    let output = poll(r#"{"state": "succeeded", "dashboard_url": "https://d"}"#).good();
    assert_eq!(output.external_operation, None);
    assert_eq!(output.dashboard_url.as_deref(), Some("https://d"));

    let bind = poll(r#"{"state": "succeeded", "credentials": {"a": "b"}}"#);
    let bind = Case { action: Action::Bind, ..bind };
    assert!(bind.good().binding.unwrap().credentials.is_some());

    let failed = poll(r#"{"state": "failed", "description": "no", "instance_usable": false}"#);
    let failure = failed.fails(Reason::Reported);
    assert_eq!((failure.description.as_str(), failure.instance_usable), ("no", Some(false)));
    poll(r#"{"state": "failed"}"#).fails_saying(Reason::Reported, "does not say");
}

#[test]
fn a_pause_is_asked_for_in_whole_seconds_or_not_at_all() {
    for (asked, read) in [
        (json!(5), Some(5)),
        (json!(u64::MAX), Some(u64::MAX)),
        (json!(-1), None),
        (json!("5"), None),
    ] {
        let going_on = json!({"state": "in progress", "retry_after": asked});
        assert_eq!(poll(going_on).good().retry_after, read);
        let begun = json!({"async": true, "operation": "x", "retry_after": asked});
        assert_eq!(Case::of(Action::Bind, begun).with(V2).good().retry_after, read);
    }
    let done = json!({"retry_after": 5});
    assert_eq!(Case::of(Action::Bind, done).with(V2).good().retry_after, None);
}

#[test]
fn a_poll_without_a_state_fails() {
    for stdout in ["{}", r#"{"state": "done"}"#, r#"{"state": null}"#, r#"{"state": "hunter2"}"#] {
        let case = poll(stdout);
        case.fails_saying(Reason::WrongShape, "\"in progress\", \"succeeded\" or");
        assert!(!case.fails(Reason::WrongShape).description.contains("hunter2"));
    }
    poll(r#"{"state": 1}"#).fails_saying(Reason::WrongShape, "state must be a string");
    for action in [Action::Unbind, Action::Deprovision] {
        Case { action, ..poll("") }.fails(Reason::NotJson);
        Case { action, ..poll("done") }.fails(Reason::NotJson);
    }
}

#[test]
fn a_failed_poll_is_named_as_what_it_was() {
    poll("").exit(1).fails(Reason::ExitStatus);
    poll("").fails_saying(Reason::NotJson, "last-operation printed nothing");
}

#[test]
fn state_is_read_if_declared() {
    let with_state = |left: &[u8], capabilities| {
        let case = Case::of(Action::Provision, "{}").with(capabilities);
        Case { state: Some(left.to_vec()), ..case }
    };
    let state = with_state(br#"{"node": 3}"#, V2).good().state.unwrap();
    assert_eq!(state.expose(), &json!({"node": 3}));
    assert_eq!(with_state(b"{}", &[]).good().state, None);
    for nothing in [&b" \n"[..], b"null", b"\"\""] {
        assert_eq!(with_state(nothing, V2).good().state, None, "{nothing:?}");
    }
    with_state(b"{", V2).fails_saying(Reason::NotJson, "OSB_STATE_OUT_FILE");
    let large = vec![b' '; MAX_STATE_BYTES].into_iter().chain(*b"{}").collect::<Vec<_>>();
    with_state(&large, V2).fails_saying(Reason::OutputTooLarge, "OSB_STATE_OUT_FILE");
}

#[test]
fn state_that_can_be_read_is_kept_however_a_run_ends() {
    for (exit, stdout) in [
        (Exit::Status(0), "not JSON"),
        (Exit::Status(1), ""),
        (Exit::Status(75), ""),
        (Exit::Signal(9), "{}"),
        (Exit::TimedOut(5), ""),
        (Exit::Halted, ""),
        (Exit::TooMuchOutput(5), ""),
    ] {
        let ended = |left: &[u8], capabilities| {
            let case = Case::of(Action::Provision, stdout).with(capabilities);
            Case { exit, state: Some(left.to_vec()), ..case }.read().unwrap_err()
        };
        let kept = ended(br#"{"node": 3}"#, V2).state;
        assert_eq!(kept, Some(json!({"node": 3}).into()), "{exit:?}");
        // It was ended while it wrote.
        assert_eq!(ended(br#"{"node": "#, V2).state, None, "{exit:?}");
        assert_eq!(ended(br#"{"node": 3}"#, &[]).state, None, "{exit:?}");
    }
}

#[test]
fn a_description_is_read_if_anything_is_declared() {
    let stdout = r#"{"description": "on node 3"}"#;
    assert_eq!(Case::of(Action::Provision, stdout).good().description, None);
    let output = Case::of(Action::Provision, stdout).with(&[Progress]).good();
    assert_eq!(output.description.as_deref(), Some("on node 3"));
}
