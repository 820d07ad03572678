//! What `osb::jobs` prints is what is read here: one contract, written on one side and read on the other.

use osb::jobs::contract::{ErrorReport, exit_code, output_document, standing_document};
use osb::{Failure, FailureKind, Standing};
use serde_json::json;

use super::*;

fn outputs() -> Vec<(Action, Value)> {
    let elsewhere = json!({"external_operation": "task", "retry_after": 7, "description": "on 3"});
    let instance = json!({
        "dashboard_url": "http://d", "metadata": {"labels": {"a": "b"}, "attributes": {"c": [1]}},
    });
    let bound = |body: Value| json!({"binding": body, "description": "on node 3"});
    let whole = json!({
        "credentials": {"uri": "u", "nested": {"deep": [1.5, null, -0.1]}},
        "syslog_drain_url": "s", "route_service_url": "r",
        "volume_mounts": [
            {"driver": "d", "container_dir": "/x", "mode": "rw", "device_type": "shared",
             "device": {"volume_id": "v"}},
            {"driver": "d", "container_dir": "/y", "mode": "r", "device_type": "shared",
             "device": {"volume_id": "w", "mount_config": {"key": "value"}}}],
        "endpoints": [{"host": "h", "ports": ["443", "9000-9010"], "protocol": "udp"},
                      {"host": "i", "ports": []}],
        "metadata": {"expires_at": "2030-01-01T00:00:00.0Z", "renew_before": "2029-01-01T00:00:00.0Z"},
    });
    vec![
        (Action::Provision, json!({})),
        (Action::Provision, instance.clone()),
        (Action::Provision, elsewhere.clone()),
        (Action::Update, json!({"description": "resized", "metadata": {}})),
        (Action::Update, instance),
        (Action::Bind, bound(json!({}))),
        (Action::Bind, bound(whole)),
        (Action::Unbind, json!({})),
        (Action::Unbind, elsewhere.clone()),
        (Action::Deprovision, json!({"description": "gone for good"})),
        (Action::Deprovision, elsewhere),
    ]
}

fn output(value: Value) -> Output {
    serde_json::from_value(value).unwrap()
}

#[test]
fn an_output_is_read_as_it_was_made() {
    for (action, made) in outputs() {
        let made = output(made);
        let printed = output_document(action, &made);
        assert_eq!(Case::of(action, &printed).with(V2).good(), made, "{printed}");
        let state =
            Case { state: Some(br#"{"node": 3}"#.to_vec()), ..Case::of(action, &printed).with(V2) };
        assert_eq!(state.good(), Output { state: Some(json!({"node": 3}).into()), ..made });
    }
}

#[test]
fn a_standing_is_read_as_it_was_made() {
    for (action, made) in outputs() {
        let made = Output { external_operation: None, retry_after: None, ..output(made) };
        let printed = standing_document(action, &Standing::Succeeded(Box::new(made.clone())));
        assert_eq!(Case { action, ..poll(&printed) }.good(), made, "{printed}");
    }
    let said = Some("half".to_owned());
    for (description, retry_after) in [(None, None), (said.clone(), None), (said, Some(5))] {
        for action in Action::ALL {
            let standing = Standing::InProgress { description: description.clone(), retry_after };
            let expected = Output {
                external_operation: Some("x-1".to_owned()),
                description: description.clone(),
                retry_after,
                ..Output::default()
            };
            let case = Case { action, ..poll(standing_document(action, &standing)) };
            assert_eq!(case.good(), expected);
        }
    }
}

#[test]
fn a_failure_is_read_as_it_was_meant() {
    let kinds = [
        (FailureKind::Failed, Reason::Reported),
        (FailureKind::Unsupported, Reason::Unsupported),
        (FailureKind::Invalid, Reason::Invalid),
        (FailureKind::Conflict, Reason::Conflict),
        (FailureKind::Gone, Reason::Reported),
        (FailureKind::Busy, Reason::Busy),
        (FailureKind::Transient, Reason::Reported),
    ];
    let told = [(None, None, None), (Some(true), Some(false), Some(9))];
    for ((kind, reason), action) in
        kinds.into_iter().flat_map(|kind| Action::ALL.map(|action| (kind, action)))
    {
        for (instance_usable, update_repeatable, retry_after) in told {
            let meant = Failure {
                instance_usable,
                update_repeatable,
                retry_after,
                ..Failure::new(kind, "no room")
            };
            let printed = json!(ErrorReport::from(&meant));
            let case = Case::of(action, printed).exit(exit_code(kind).into()).with(V2);
            let removes = matches!(action, Action::Unbind | Action::Deprovision);
            if kind == FailureKind::Gone && removes {
                assert_eq!(case.good(), Output::default(), "what is gone is removed");
            } else {
                assert_eq!(case.fails(reason), meant, "{action}");
            }
        }
    }
}
