use serde_json::{Value, json};

use crate::broker::{Action, Failure, FailureKind, Output, Standing};
use crate::jobs::contract::{
    Capability, ErrorReport, Extension, exit, exit_code, failure_kind, output_document,
    read_output, read_standing, standing_document, variable,
};

fn output(value: Value) -> Output {
    serde_json::from_value(value).unwrap()
}

#[test]
fn what_is_printed_is_what_is_read() {
    let elsewhere = json!({"external_operation": "task"});
    let instance = json!({
        "dashboard_url": "http://d", "metadata": {"labels": {"a": "b"}, "attributes": {"c": [1]}},
    });
    let binding = json!({"binding": {
        "credentials": {"uri": "u"}, "syslog_drain_url": "s", "route_service_url": "r",
        "volume_mounts": [{
            "driver": "d", "container_dir": "/x", "mode": "rw", "device_type": "shared",
            "device": {"volume_id": "v"},
        }],
        "endpoints": [{"host": "h", "ports": ["443"], "protocol": "tcp"}],
        "metadata": {"expires_at": "2030-01-01T00:00:00.0Z"},
    }});
    let cases = [
        (Action::Provision, instance.clone()),
        (Action::Provision, elsewhere.clone()),
        (Action::Update, instance),
        (Action::Bind, binding),
        (Action::Unbind, json!({})),
        (Action::Deprovision, elsewhere),
    ];
    for (action, made) in cases {
        let made = output(made);
        let printed = output_document(action, &made);
        assert_eq!(read_output(action, printed.to_string().as_bytes()).unwrap(), made, "{printed}");
        let standing = Standing::Succeeded(Box::new(made));
        let printed = standing_document(action, &standing).to_string();
        assert_eq!(read_standing(action, printed.as_bytes()).unwrap(), standing, "{printed}");
    }
}

#[test]
fn the_response_is_the_specifications_and_nothing_is_null() {
    let made = output(json!({"state": "hunter2", "binding": {"credentials": {"a": 1}}}));
    assert_eq!(output_document(Action::Provision, &made), json!({}));
    assert_eq!(output_document(Action::Bind, &made), json!({"credentials": {"a": 1}}));
    assert_eq!(output_document(Action::Bind, &Output::default()), json!({}));
}

#[test]
fn the_output_of_old_brokers_is_read_as_it_was_meant() {
    let none = Output::default();
    let cases = [
        // The sample broker printed an operation beside a synchronous success.
        (Action::Provision, r#"{"operation": "create"}"#, Some(none.clone())),
        (Action::Provision, r#"{"operation": "create", "async": false}"#, Some(none.clone())),
        (
            Action::Provision,
            r#"{"operation": "create", "async": true}"#,
            Some(output(json!({"external_operation": "create"}))),
        ),
        (Action::Provision, r#"{"async": true}"#, None),
        (Action::Provision, r#"{"dashboard_url": null, "unknown": 1}"#, Some(none.clone())),
        (Action::Provision, "", None),
        (Action::Provision, "[]", None),
        (Action::Provision, "Done!", None),
        (
            Action::Bind,
            r#"{"credentials": {}}"#,
            Some(output(json!({"binding": {"credentials": {}}}))),
        ),
        (Action::Bind, r#"{"credentials": "hunter2"}"#, None),
        (Action::Unbind, "", Some(none.clone())),
        (Action::Unbind, "Done!", Some(none.clone())),
        (Action::Deprovision, r#"{"operation": "destroy"}"#, Some(none)),
    ];
    for (action, stdout, expected) in cases {
        match (read_output(action, stdout.as_bytes()), expected) {
            (Ok(read), Some(expected)) => assert_eq!(read, expected, "{stdout}"),
            (Err(failure), None) => {
                assert_eq!(failure.kind, FailureKind::Failed);
                assert!(!failure.description.contains("hunter2"), "{failure}");
            }
            (read, _) => panic!("{action} {stdout}: {read:?}"),
        }
    }
}

#[test]
fn a_standing_may_be_failed_or_unusable() {
    let failed = r#"{"state": "failed", "description": "no room", "instance_usable": true}"#;
    let expected = Failure { instance_usable: Some(true), ..Failure::failed("no room") };
    assert_eq!(read_standing(Action::Update, failed.as_bytes()).unwrap_err(), expected);
    let silent = read_standing(Action::Update, br#"{"state": "failed"}"#).unwrap_err();
    assert_eq!(silent.description, "update failed, and the broker does not say why");
    for stdout in ["", "{}", r#"{"state": "hunter2"}"#] {
        let failure = read_standing(Action::Update, stdout.as_bytes()).unwrap_err();
        assert!(failure.description.contains("unusable"), "{failure}");
        assert!(!failure.description.contains("hunter2"), "{failure}");
    }
}

#[test]
fn exit_codes_tell_failures_apart() {
    let cases = [
        (0, None),
        (10, None),
        (1, Some(FailureKind::Failed)),
        (8, Some(FailureKind::Unsupported)),
        (11, Some(FailureKind::Conflict)),
        (12, Some(FailureKind::Gone)),
        (13, Some(FailureKind::Invalid)),
        (14, Some(FailureKind::Busy)),
        (15, Some(FailureKind::Unsupported)),
        (75, Some(FailureKind::Transient)),
        (2, Some(FailureKind::Failed)),
        (137, Some(FailureKind::Failed)),
        (256, Some(FailureKind::Failed)),
        (-1, Some(FailureKind::Failed)),
    ];
    for (code, kind) in cases {
        assert_eq!(failure_kind(code), kind, "{code}");
        if let Some(kind) = kind {
            assert_eq!(failure_kind(i32::from(exit_code(kind))), Some(kind));
        }
    }
    assert_eq!(exit_code(FailureKind::Failed), exit::FAILED);
}

#[test]
fn a_declaration_is_taken_out_of_the_catalog() {
    let all = |words: &[Capability]| Extension { version: 2, capabilities: words.to_vec() };
    let cases = [
        (json!({"services": []}), Ok(None)),
        (json!({"services": [], "jobs": {"version": 1}}), Ok(None)),
        (json!({"services": [], "jobs": {"version": 2}}), Ok(Some(all(&[])))),
        (
            json!({"services": [], "jobs": {"version": 2, "capabilities": ["levitation", "update"]}}),
            Ok(Some(all(&[Capability::Update]))),
        ),
        (
            json!({"services": [], "jobs": {"version": 3, "capabilities": ["state"]}}),
            Ok(Some(Extension { version: 3, capabilities: vec![Capability::State] })),
        ),
        (json!({"services": [], "jobs": {}}), Err("jobs: missing field `version`".to_owned())),
        (json!({"services": [], "jobs": true}), Err("jobs: expected an object".to_owned())),
    ];
    for (mut catalog, expected) in cases {
        assert_eq!(Extension::take(&mut catalog), expected);
        assert_eq!(catalog, json!({"services": []}));
    }
    assert_eq!(Extension::take(&mut json!([])), Ok(None));
}

#[test]
fn a_report_may_say_nothing() {
    for report in [json!({}), json!({"description": " "}), json!({"error": "E", "extra": 1})] {
        let report: ErrorReport = serde_json::from_value(report).unwrap();
        assert_eq!(report.into_failure(FailureKind::Gone, "gone").description, "gone");
    }
}

#[test]
fn reserved_variables_have_the_prefix() {
    assert!(variable::ALL.iter().all(|name| name.starts_with("OSB_")));
}
