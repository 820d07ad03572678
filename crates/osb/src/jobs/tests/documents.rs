use serde_json::{Value, json};

use crate::broker::{Action, Failure, FailureKind, Output, Standing};
use crate::jobs::contract::{
    ErrorReport, exit, exit_code, failure_kind, output_document, standing_document, variable,
};

fn output(value: Value) -> Output {
    serde_json::from_value(value).unwrap()
}

#[test]
fn what_is_printed_is_the_response_of_the_specification() {
    let elsewhere = json!({"external_operation": "task", "retry_after": 7});
    let going_on = json!({"async": true, "operation": "task", "retry_after": 7});
    let instance = json!({
        "dashboard_url": "http://d", "metadata": {"labels": {"a": "b"}, "attributes": {"c": [1]}},
    });
    let binding = json!({
        "credentials": {"uri": "u"}, "syslog_drain_url": "s", "route_service_url": "r",
        "volume_mounts": [{
            "driver": "d", "container_dir": "/x", "mode": "rw", "device_type": "shared",
            "device": {"volume_id": "v"},
        }],
        "endpoints": [{"host": "h", "ports": ["443"], "protocol": "tcp"}],
        "metadata": {"expires_at": "2030-01-01T00:00:00.0Z"},
    });
    let said = json!({"description": "on node 3"});
    let cases = [
        (Action::Provision, instance.clone(), instance.clone()),
        (Action::Provision, elsewhere.clone(), going_on.clone()),
        (Action::Update, instance.clone(), instance),
        (Action::Bind, json!({"binding": binding}), binding),
        (Action::Unbind, json!({}), json!({})),
        (Action::Unbind, said.clone(), said),
        (Action::Deprovision, elsewhere, going_on),
    ];
    for (action, made, mut expected) in cases {
        let made = output(made);
        assert_eq!(output_document(action, &made), expected);
        expected["state"] = json!("succeeded");
        assert_eq!(standing_document(action, &Standing::Succeeded(Box::new(made))), expected);
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
fn a_standing_in_progress_says_what_it_knows() {
    for (description, retry_after, expected) in [
        (None, None, json!({"state": "in progress"})),
        (Some("half"), None, json!({"state": "in progress", "description": "half"})),
        (None, Some(5), json!({"state": "in progress", "retry_after": 5})),
    ] {
        let description = description.map(str::to_owned);
        let standing = Standing::InProgress { description, retry_after };
        assert_eq!(standing_document(Action::Update, &standing), expected);
    }
}

#[test]
fn a_report_leaves_out_what_is_not_known() {
    let report = ErrorReport::from(&Failure::failed("no room"));
    assert_eq!(json!(report), json!({"error": "Failed", "description": "no room"}));
    assert_eq!(json!(ErrorReport::default()), json!({}));
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
fn reserved_variables_have_the_prefix() {
    assert!(variable::ALL.iter().all(|name| name.starts_with("OSB_")));
}
