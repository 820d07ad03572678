//! What the chart refuses of values that fit its schema.

use super::*;

fn refusal(values: &Value) -> String {
    format!("{:?}", chart(values).unwrap_err())
}

#[test]
fn labels_that_are_the_charts_own_are_refused_and_named() {
    for name in ["app.kubernetes.io/name", "app.kubernetes.io/instance"] {
        for (values, place) in [
            (json!({"podLabels": {name: "mine"}}), "podLabels: "),
            (
                json!({"podLabels": {name: "mine"}, "broker": {"enabled": false},
                    "controller": {"enabled": true}}),
                "podLabels: ",
            ),
            (json!({"serviceMonitor": {"labels": {name: "mine"}}}), "serviceMonitor.labels: "),
        ] {
            let error = refusal(&values);
            assert!(error.contains(place) && error.contains(name), "{values}: {error}");
        }
    }
}

/// Each of them had rights given for nothing, or had no effect, and nothing said so.
#[test]
fn values_that_do_not_go_together_are_refused_and_named() {
    let templates = |of: Value| {
        let mut templates = json!({"enabled": true});
        merge(&mut templates, &of);
        json!({"templates": templates})
    };
    let by_both = json!({"caBundle": "QQ==", "certManager": {"enabled": true}});
    for (values, named) in [
        (json!({"jobNamespaces": ["jobs"]}), "jobNamespaces: "),
        (json!({"broker": {"image": ""}}), "broker.image: "),
        (
            json!({"broker": {"image": ""}, "templates": {"enabled": true, "namespaces": []}}),
            "broker.image: ",
        ),
        (
            json!({"controller": {"enabled": true, "monitored": "all", "namespaces": ["a"]}}),
            "controller.namespaces: ",
        ),
        (
            templates(json!({"allowChanges": true, "webhook": {"enabled": false}})),
            "templates.allowChanges: ",
        ),
        (templates(json!({"allowChanges": true, "controller": false})), "templates.allowChanges: "),
        (templates(json!({"webhook": by_both})), "templates.webhook.caBundle: "),
    ] {
        let error = refusal(&values);
        assert!(error.contains(named), "{values}: {error}");
    }
}

#[test]
fn values_that_go_together_are_not_refused() {
    for values in [
        json!({"broker": {"image": ""}, "brokers": "together", "jobNamespaces": ["jobs"]}),
        json!({"broker": {"image": ""}, "templates": {"enabled": true}}),
        json!({"broker": {"image": "", "enabled": false}, "controller": {"enabled": true}}),
        json!({"controller": {"enabled": true, "monitored": "all"}}),
        json!({"controller": {"enabled": true, "monitored": "marked", "namespaces": ["a"]}}),
        json!({"templates": {"enabled": true, "allowChanges": true}}),
    ] {
        assert!(!chart(&values).unwrap().is_empty(), "{values}");
    }
}
