//! What may stand in a spec, and which settings follow from it.

use std::time::Duration;

use osb::{Action, PlanId};
use serde_json::{Value, json};

use super::super::check::spec;
use super::super::policy::period;
use crate::runner::JobSettings;

fn with(more: &Value) -> Value {
    let mut all = json!({"image": "broker:1"});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

fn volume(name: &str) -> Value {
    json!({"name": name, "emptyDir": {}})
}

fn mount(name: &str, path: &str) -> Value {
    json!({"name": name, "mountPath": path})
}

#[test]
fn what_is_wrong_is_refused_with_the_path_and_the_remedy() {
    for (more, path, words) in [
        (json!({"image": ""}), "spec.image", "registry.example/broker:1"),
        (json!({"image": "a b"}), "spec.image", "registry.example/broker:1"),
        (json!({"imag": "x"}), "spec.imag", "known are image"),
        (json!({"configMap": "Upper"}), "spec.configMap", "small letters"),
        (json!({"secret": 7}), "spec.secret", "small letters"),
        (json!({"namespace": "-x"}), "spec.namespace", "small letters"),
        (json!({"namespace": "a.b"}), "spec.namespace", "at most 63"),
        (json!({"configMap": "a..b"}), "spec.configMap", "in parts with ."),
        (
            json!({"plans": [{"planID": "p", "namespace": "Jobs"}]}),
            "spec.plans[0].namespace",
            "small letters",
        ),
        (json!({"grace": "10"}), "spec.grace", "30s"),
        (json!({"grace": 10}), "spec.grace", "30s"),
        (json!({"startTimeout": "0s"}), "spec.startTimeout", "at least 1s"),
        (json!({"startTimeout": "999ms"}), "spec.startTimeout", "leave it out"),
        (
            json!({"plans": [{"planID": "p", "startTimeout": "1ms"}]}),
            "spec.plans[0].startTimeout",
            "at least 1s",
        ),
        (json!({"keepFailed": "1w"}), "spec.keepFailed", "7d"),
        (json!({"deadline": "0s"}), "spec.deadlines.provision", "at least 1s"),
        (json!({"deadlines": {"bind": "999ms"}}), "spec.deadlines.bind", "at least 1s"),
        (json!({"deadlines": {"rotate": "1s"}}), "spec.deadlines.rotate", "known are provision"),
        (json!({"deadlines": "1s"}), "spec.deadlines", "an object"),
        (json!({"pod": []}), "spec.pod", "an object"),
        (json!({"pod": {"hostNetwork": true}}), "spec.pod.hostNetwork", "known are"),
        (
            json!({"pod": {"serviceAccountName": "A"}}),
            "spec.pod.serviceAccountName",
            "small letters",
        ),
        (
            json!({"pod": {"automountServiceAccountToken": "true"}}),
            "spec.pod.automountServiceAccountToken",
            "without quotes",
        ),
        (json!({"pod": {"enableServiceLinks": 1}}), "spec.pod.enableServiceLinks", "true or false"),
        (json!({"pod": {"imagePullSecrets": ["a", "B"]}}), "spec.pod.imagePullSecrets[1]", "small"),
        (json!({"pod": {"imagePullPolicy": "always"}}), "spec.pod.imagePullPolicy", "IfNotPresent"),
        (json!({"pod": {"resources": {"limit": {}}}}), "spec.pod.resources.limit", "spelling"),
        (json!({"pod": {"resources": []}}), "spec.pod.resources", "as in a pod"),
        (
            json!({"pod": {"securityContext": {"runAsUser": "root"}}}),
            "spec.pod.securityContext",
            "as in a pod",
        ),
        (
            json!({"pod": {"containerSecurityContext": {"capabilities": {"dorp": ["ALL"]}}}}),
            "spec.pod.containerSecurityContext.capabilities.dorp",
            "spelling",
        ),
        (json!({"pod": {"nodeSelector": {"ssd": true}}}), "spec.pod.nodeSelector", "in quotes"),
        (json!({"pod": {"env": [{"name": "A", "val": "x"}]}}), "spec.pod.env[0].val", "spelling"),
        (
            json!({"pod": {"env": [{"name": "OSB_X"}, {"name": "OSB_DEADLINE", "value": "1"}]}}),
            "spec.pod.env[1].name",
            "OSB_DEADLINE is for Manciple itself; choose another name",
        ),
        (
            json!({"plans": [{"planID": "p", "pod": {"env": [{"name": "MANCIPLE_ORDER"}]}}]}),
            "spec.plans[0].pod.env[0].name",
            "choose another name",
        ),
        (
            json!({"pod": {"labels": {"manciple.dev/run": "x"}}}),
            "spec.pod.labels",
            "another prefix",
        ),
        (
            json!({"pod": {"annotations": {"manciple.dev/kept": "x"}}}),
            "spec.pod.annotations",
            "another prefix",
        ),
        (json!({"plans": {}}), "spec.plans", "an array"),
        (json!({"plans": [{}]}), "spec.plans[0].planID", "is required"),
        (json!({"plans": [{"planID": "p", "image": "x"}]}), "spec.plans[0].image", "known are"),
        (
            json!({"plans": [{"planID": "p"}, {"planID": "p"}]}),
            "spec.plans[1].planID",
            "more than once",
        ),
        (
            json!({"plans": [{"planID": "p", "pod": {"env": {}}}]}),
            "spec.plans[0].pod.env",
            "as in a pod",
        ),
        (
            json!({"pod": {"volumes": [{"name": "manciple", "emptyDir": {}}]}}),
            "spec.pod.volumes[0].name",
            "manciple is for Manciple itself; choose another name",
        ),
        (
            json!({"configMap": "c", "pod": {"volumes": [{"name": "config", "emptyDir": {}}]}}),
            "spec.pod.volumes[0].name",
            "choose another name",
        ),
        (
            json!({"pod": {"volumes": [volume("a"), volume("b"), volume("a")]}}),
            "spec.pod.volumes[2].name",
            "more than once",
        ),
        (
            json!({"pod": {"volumes": [volume("a")], "volumeMounts": [mount("b", "/b")]}}),
            "spec.pod.volumeMounts[0].name",
            "\"b\" is not among volumes; add it there",
        ),
        (
            json!({"pod": {"volumes": [volume("a")], "volumeMounts": [mount("a", "/a"), mount("a", "/a")]}}),
            "spec.pod.volumeMounts[1].mountPath",
            "/a is there more than once",
        ),
        (
            json!({"pod": {"volumes": [volume("a")], "volumeMounts": [mount("a", "/manciple-agent")]}}),
            "spec.pod.volumeMounts[0].mountPath",
            "choose another path",
        ),
        (
            json!({"secret": "s", "pod": {"volumes": [volume("a")]}, "plans": [
                {"planID": "o"}, {"planID": "p", "pod": {"volumeMounts": [mount("a", "/secret/")]}},
            ]}),
            "spec.plans[1].pod.volumeMounts[0].mountPath",
            "/secret is for Manciple itself",
        ),
        (
            json!({"pod": {"volumes": [volume("a")], "volumeMounts": [mount("a", "/a")]}, "plans": [
                {"planID": "p", "pod": {"volumes": [volume("b")]}},
            ]}),
            "spec.plans[0].pod.volumeMounts[0].name",
            "not among volumes",
        ),
    ] {
        let faults = spec(&with(&more)).expect_err(&more.to_string());
        assert!(faults.iter().all(|it| it.path.starts_with("spec.")), "{more}: {faults:?}");
        assert_eq!(faults[0].path, path, "{more}: {faults:?}");
        assert!(faults[0].message.contains(words), "{more}: {faults:?}");
    }
    assert_eq!(spec(&Value::Null).unwrap_err()[0].path, "spec.image");
    assert!(spec(&with(&json!({"startTimeout": "1s"}))).is_ok());
    for more in [
        json!({"pod": {"volumes": [volume("config")], "volumeMounts": [mount("config", "/config")]}}),
        json!({"configMap": "c", "pod": {"volumeMounts": [mount("config", "/etc/broker")]}}),
        json!({"pod": {"volumes": [volume("a")], "volumeMounts": [mount("a", "/a"), mount("a", "/b")]}}),
        // As Kubernetes has it.
        json!({"pod": {"volumes": [volume("a")], "volumeMounts": [mount("a", "/a"), mount("a", "/a/")]}}),
    ] {
        assert!(spec(&with(&more)).is_ok(), "{more}");
    }
    let many = json!({"grace": "x", "pod": {"x": 1}, "plans": [{"grace": "x"}]});
    assert_eq!(spec(&many).unwrap_err().len(), 5, "all at once");
}

#[test]
fn a_plan_replaces_what_it_gives_and_nothing_else() {
    let spec = spec(&with(&json!({
        "configMap": "settings",
        "namespace": "jobs",
        "startTimeout": "1m",
        "deadlines": {"provision": "10m", "bind": "1m"},
        "keepFailed": "2h",
        "pod": {
            "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}},
            "env": [{"name": "A", "value": "1"}],
            "labels": {"a": "1"},
            "priorityClassName": "low",
            "affinity": null,
            "serviceAccountName": "of-all",
            "nodeSelector": {"disk": "slow", "zone": "a"},
        },
        "plans": [
            {"planID": "all", "deadline": "1h", "grace": "20s", "keepFailed": "0s"},
            {"planID": "some", "deadlines": {"provision": "2h"}, "namespace": "others"},
            {"planID": "pods", "pod": {
                "resources": {"limits": {"memory": "2Gi"}}, "env": [], "labels": {"b": "2"},
                "serviceAccountName": "of-plan", "nodeSelector": {"disk": "fast"},
                "imagePullSecrets": ["registry"],
            }},
        ],
    })))
    .unwrap();
    let base = JobSettings::new("home", "group", "none", "agent:1");
    let of = |plan: &str| spec.settings(&base, "pg", Some(&PlanId::new(plan).unwrap()));
    let seconds = |plan: &str, action| of(plan).deadlines.of(action).map(|it| it.as_secs());

    let other = of("other");
    assert_eq!((&*other.namespace, &*other.image), ("jobs", "broker:1"));
    assert_eq!([&*of("all").namespace, &*of("some").namespace], ["jobs", "others"]);
    assert_eq!(spec.settings(&base, "pg", None).namespace, "jobs", "its catalog is of no plan");
    assert_eq!(other.resource.as_deref(), Some("pg"));
    assert_eq!(other.config_map.as_deref(), Some("settings"));
    assert_eq!(other.start_timeout, Duration::from_secs(60));
    assert_eq!(other.grace, base.grace, "left open, it is as for all");
    assert_eq!(other.pod.priority_class_name.as_deref(), Some("low"));
    for (plan, provision, bind, unbind) in [
        ("other", Some(600), Some(60), None),
        ("all", Some(3600), Some(3600), Some(3600)),
        ("some", Some(7200), Some(60), None),
    ] {
        let of = [Action::Provision, Action::Bind, Action::Unbind].map(|it| seconds(plan, it));
        assert_eq!(of, [provision, bind, unbind], "{plan}");
    }
    assert_eq!((of("all").grace, of("all").keep_failed), (Duration::from_secs(20), Duration::ZERO));
    let pods = of("pods").pod;
    assert_eq!(pods.resources, Some(json!({"limits": {"memory": "2Gi"}})), "whole");
    assert!(pods.env.is_empty(), "given as none");
    assert_eq!(Value::Object(pods.labels), json!({"b": "2"}));
    assert_eq!(pods.priority_class_name.as_deref(), Some("low"), "not given");
    assert_eq!(pods.service_account_name.as_deref(), Some("of-plan"));
    assert_eq!(pods.node_selector, Some(json!({"disk": "fast"})));
    assert_eq!(pods.image_pull_secrets, ["registry"]);
    let other = other.pod;
    assert_eq!(other.service_account_name.as_deref(), Some("of-all"));
    assert_eq!(other.node_selector, Some(json!({"disk": "slow", "zone": "a"})));
}

#[test]
fn periods_are_numbers_with_units() {
    for (text, millis) in [
        ("30s", Some(30_000)),
        ("1h30m", Some(5_400_000)),
        ("250ms", Some(250)),
        ("7d", Some(604_800_000)),
        ("0s", Some(0)),
        ("", None),
        ("s", None),
        ("10", None),
        ("1w", None),
        ("-1s", None),
        ("1.5h", Some(5_400_000)),
        ("1 h", Some(3_600_000)),
        ("PT15M", Some(900_000)),
        ("1d12h", Some(129_600_000)),
        ("99999999999999999999s", None),
        ("4000d", None),
    ] {
        assert_eq!(period(text), millis.map(Duration::from_millis), "{text:?}");
    }
}
