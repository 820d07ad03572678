//! What the chart makes of the values of charts before it.

use super::*;
use crate::manifests::schema::{NEWER, SECTIONS};

/// Takes a value out, if it is there.
fn take_out(values: &mut Value, place: &str) {
    let (section, name) = place.rsplit_once('.').unwrap_or(("", place));
    let mut names = section.split('.').filter(|name| !name.is_empty());
    let section = names.try_fold(values, |value, name| value.get_mut(name));
    if let Some(Value::Object(section)) = section {
        section.remove(name);
    }
}

/// `helm upgrade --reuse-values`: those of the chart that was installed, and of this one none.
fn are_taken_as(before: &Value, over: &Value, now: &Value) {
    let mut values = before.clone();
    merge(&mut values, over);
    assert_eq!(schema::faults(&values), [""; 0], "{over}");
    assert_eq!(of_values(HOME, as_helm(&values)).unwrap(), chart(now).unwrap(), "{over}");
}

fn are_taken_as_they_were(before: &Value, over: &Value) {
    are_taken_as(before, over, over);
}

#[test]
fn values_of_a_chart_before_make_what_they_made() {
    let mut before = values().unwrap();
    NEWER.iter().for_each(|place| take_out(&mut before, place));
    are_taken_as_they_were(&before, &json!({"controller": {"enabled": true}}));
    are_taken_as_they_were(&before, &json!({"templates": {"enabled": true}}));
    let without = json!({"templates": {"enabled": true, "definitions": false}});
    are_taken_as_they_were(&before, &without);
    SECTIONS.iter().for_each(|(section, _)| take_out(&mut before, section));
    are_taken_as_they_were(&before, &json!({}));
    // What is asked of the Secret by request now was asked of every Secret.
    let monitored = json!({"tls": {"secretName": "tls"}, "serviceMonitor": {"enabled": true}});
    let mut now = monitored.clone();
    now["tls"]["authorityKey"] = json!("ca.crt");
    are_taken_as(&before, &monitored, &now);

    for (member, fault) in
        [("templates", "templates.requesters: "), ("controller", "controller.monitoredID: ")]
    {
        let mut values = before.clone();
        values[member] = json!({"enabled": true});
        assert_eq!(schema::faults(&values), [""; 0], "the templates know better what to do");
        let error = format!("{:?}", of_values(HOME, as_helm(&values)).unwrap_err());
        assert!(error.contains(fault) && error.contains("--reset-then-reuse-values"), "{error}");
    }
}
