//! What Helm refuses of values before it renders anything.

use super::*;

/// What is wrong with values that are complete.
pub(super) fn faults(given: &Value) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(SCHEMA)).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(schema, super::super::schema::of(&values().unwrap()), "run `cargo xtask manifests`");
    let validator = jsonschema::draft7::new(&schema).unwrap();
    validator
        .iter_errors(given)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect()
}

#[test]
fn what_the_chart_has_and_what_is_given_for_it_is_let_in() {
    let mut all = json!({});
    for over in [
        json!({}),
        json!({"broker": {"configMap": true, "settings": "grace: 5s"}}),
        json!({"brokers": "apart", "jobNamespaces": ["a"], "kubernetes": "keep_failed: 2h"}),
        json!({"auth": {"secrets": [{"name": "a", "role": "operator"}]}}),
        json!({"controller": {"env": [{"name": "LOG_LEVEL", "value": "debug"}], "monitored": "all"}}),
        json!({"controller": {"agentResources": {"limits": {"cpu": "1"}}}}),
        json!({"podLabels": {"example.org/tier": "1"}, "nodeSelector": {"example.org/ssd": true}}),
        json!({"networkPolicy": {"extraEgress": [{"ports": [{"port": 16443}]}]}}),
        json!({"tolerations": [{"operator": "Exists"}], "podAnnotations": null}),
        json!({"imagePullSecrets": ["registry", {"name": "other"}]}),
        json!({"replicas": 0, "runAs": 0, "controller": {"replicas": 0}}),
        json!({"templates": {"webhook": {"certManager": {"issuer": {"kind": "ClusterIssuer"}}}}}),
        json!({"global": {"registry": "of a chart that this one is part of"}, "enabled": true}),
        json!({"global": null, "enabled": null}),
        json!({"x-labels": {"team": "data"}}),
    ] {
        assert_eq!(faults(&given(&over)), [""; 0], "{over}");
        merge(&mut all, &over);
        assert_eq!(faults(&given(&all)), [""; 0], "{over}");
    }
}

/// Those of the charts that people come from, among others.
#[test]
fn what_the_chart_would_pass_over_is_refused_by_its_name() {
    for (values, name) in [
        (
            json!({"image": {"org": "cfcontainerization", "repository": "quarks-job", "tag": "1"}}),
            "/image",
        ),
        (json!({"logLevel": "debug"}), "logLevel"),
        (json!({"broker": {"x-labels": {}}}), "x-labels"),
        (json!({"maxWorkers": 5}), "maxWorkers"),
        (json!({"applyCRD": true}), "applyCRD"),
        (json!({"fullnameOverride": "quarks-job"}), "fullnameOverride"),
        (json!({"nameOverride": "quarks-job"}), "nameOverride"),
        (json!({"serviceAccount": {"create": true}}), "serviceAccount"),
        (json!({"persistOutputClusterRole": {"create": true}}), "persistOutputClusterRole"),
        (json!({"singleNamespace": {"createNamespace": true}}), "singleNamespace"),
        (json!({"operator": {"webhookUseServiceReference": true}}), "operator"),
        (json!({"replicaCount": 3}), "replicaCount"),
        (json!({"controller": {"monitoredId": "cf"}}), "monitoredId"),
        (json!({"controller": {"monitored": "everywhere"}}), "/controller/monitored"),
        (json!({"networkPolicy": {"enabled": "false"}}), "/networkPolicy/enabled"),
        (json!({"networkPolicy": {"extraIngress": {"ports": []}}}), "/networkPolicy/extraIngress"),
        (json!({"podLabels": {"example": {"org/tier": "1"}}}), "/podLabels/example"),
        (json!({"podLabels": {"tier": 1000000}}), "/podLabels/tier"),
        (json!({"replicas": -1}), "/replicas"),
        (json!({"replicas": 1.5}), "/replicas"),
        (json!({"controller": {"replicas": -1}}), "/controller/replicas"),
        (json!({"runAs": -1}), "/runAs"),
        (json!({"runAs": 4_294_967_296_i64}), "/runAs"),
        (json!({"broker": {"name": 20240101}}), "/broker/name"),
        (json!({"controller": {"monitoredID": 1}}), "/controller/monitoredID"),
        (json!({"credentials": {"secretName": 20240101}}), "/credentials/secretName"),
        (json!({"tolerations": {"operator": "Exists"}}), "/tolerations"),
        (json!({"broker": {"image": {"repository": "b"}}}), "/broker/image"),
        (json!({"kubernetes": {"keep_failed": "2h"}}), "/kubernetes"),
        (json!({"templates": {"namespaces": "templates"}}), "/templates/namespaces"),
        (json!({"jobNamespaces": [""]}), "/jobNamespaces/0"),
        (json!({"jobNamespaces": ["jobs", 20240101]}), "/jobNamespaces/1"),
        (json!({"controller": {"namespaces": [{"name": "a"}]}}), "/controller/namespaces/0"),
        (json!({"templates": {"instanceNamespaces": [""]}}), "/templates/instanceNamespaces/0"),
        (json!({"templates": {"webhook": {"apiServers": [1]}}}), "/templates/webhook/apiServers/0"),
        (json!({"imagePullSecrets": [{"nam": "registry"}]}), "/imagePullSecrets/0"),
        (json!({"imagePullSecrets": [{"name": ""}]}), "/imagePullSecrets/0"),
        (json!({"auth": {"secrets": ["cf"]}}), "/auth/secrets/0"),
        (json!({"auth": {"secrets": [{"name": "", "role": "platform"}]}}), "/auth/secrets/0/name"),
        (json!({"auth": {"secrets": [{"role": "platform"}]}}), "/auth/secrets/0: \"name\""),
        (json!({"auth": {"secrets": [{"name": "a", "role": "admin"}]}}), "/auth/secrets/0/role"),
        (json!({"controller": {"env": ["LOG_LEVEL=debug"]}}), "/controller/env/0"),
        (
            json!({"controller": {"env": [{"name": "MAX_WORKERS", "value": 5}]}}),
            "/controller/env/0/value",
        ),
        (json!({"tolerations": ["gpu"]}), "/tolerations/0"),
        (json!({"networkPolicy": {"extraEgress": [16443]}}), "/networkPolicy/extraEgress/0"),
    ] {
        let faults = faults(&given(&values));
        assert!(faults.len() == 1 && faults[0].contains(name), "{values}: {faults:?}");
    }
}

#[test]
fn of_every_list_is_said_what_is_in_it() {
    let mut all = values().unwrap();
    for place in places_of("", &values().unwrap()) {
        let value = at(&mut all, &place);
        if value.is_array() {
            *value = json!([null]);
            let faults = faults(&all);
            assert!(faults.iter().any(|it| it.starts_with(&format!("{place}/0"))), "{faults:?}");
        }
    }
}

/// The places of all values of the chart, of sections too.
fn places_of(path: &str, value: &Value) -> Vec<String> {
    let below = |(name, value): (&String, &Value)| {
        let place = format!("{path}/{name}");
        [vec![place.clone()], places_of(&place, value)].concat()
    };
    value.as_object().into_iter().flatten().flat_map(below).collect()
}

fn at<'v>(values: &'v mut Value, place: &str) -> &'v mut Value {
    place.split('/').skip(1).fold(values, |value, name| &mut value[name])
}

#[test]
fn what_null_takes_away_is_refused_by_its_name_or_is_as_by_default() {
    let switched_on = json!({
        "controller": {"enabled": true}, "templates": {"enabled": true},
        "podDisruptionBudget": {"enabled": true}, "serviceMonitor": {"enabled": true},
    });
    let of_kubernetes = ["/resources/", "/controller/resources/"];
    for place in places_of("", &values().unwrap()) {
        let mut over = switched_on.clone();
        *at(&mut over, &place) = Value::Null;
        let left = given(&over);
        let (section, name) = place.rsplit_once('/').unwrap();
        let refused = faults(&left);
        if !refused.is_empty() {
            let named = refused.iter().any(|it| it.starts_with(section) && it.contains(name));
            assert!(named, "{place}: {refused:?}");
            continue;
        }
        match of_values(HOME, as_helm(&left)) {
            Err(error) => {
                let (error, path) = (format!("{error:?}"), place[1..].replace('/', "."));
                assert!(
                    error.contains(&path) && error.contains("is not there"),
                    "{place}: {error}"
                );
            }
            // Members of another's object may go.
            Ok(_) if of_kubernetes.iter().any(|of| place.starts_with(of)) => {}
            Ok(made) => {
                let mut without = switched_on.clone();
                if let Some(Value::Object(section)) = without.pointer_mut(section) {
                    section.remove(name);
                }
                let expected = of_values(HOME, as_helm(&given(&without))).unwrap();
                assert_eq!(made, expected, "{place}");
            }
        }
    }
}

/// Which of them these are is known by the sections that every chart has had.
#[test]
fn what_has_been_there_from_the_beginning_cannot_be_taken_away() {
    for (values, fault) in [
        (json!({"networkPolicy": {"enabled": null}}), "/networkPolicy: \"enabled\""),
        (json!({"networkPolicy": null}), ": \"networkPolicy\""),
        (json!({"replicas": null}), ": \"replicas\""),
        (json!({"controller": {"replicas": null}}), "/controller: \"replicas\""),
        (json!({"templates": {"webhook": null}}), "/templates: \"webhook\""),
        (
            json!({"templates": {"webhook": {"certManager": {"enabled": null}}}}),
            "/templates/webhook/certManager: \"enabled\"",
        ),
    ] {
        let faults = faults(&given(&values));
        assert!(faults.len() == 1 && faults[0].starts_with(fault), "{values}: {faults:?}");
    }
}
