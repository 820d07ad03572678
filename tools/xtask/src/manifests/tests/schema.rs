//! What Helm refuses of values before it renders anything.

use super::*;

fn faults(given: &Value) -> Vec<String> {
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
    let mut all = values().unwrap();
    assert_eq!(faults(&all), [""; 0], "its own");
    for over in [
        json!({}),
        json!({"broker": {"configMap": 1, "settings": "grace: 5s"}, "replicas": null}),
        json!({"brokers": "apart", "jobNamespaces": ["a"], "kubernetes": "keep_failed: 2h"}),
        json!({"auth": {"secrets": [{"name": "a", "role": "operator"}]}}),
        json!({"controller": {"env": [{"name": "LOG_LEVEL", "value": "debug"}], "monitored": "all"}}),
        json!({"controller": {"agentResources": {"limits": {"cpu": "1"}}}}),
        json!({"podLabels": {"example.org/tier": "1"}, "nodeSelector": {"example.org/ssd": true}}),
        json!({"networkPolicy": {"extraEgress": [{"ports": [{"port": 16443}]}]}}),
        json!({"tolerations": [{"operator": "Exists"}], "podAnnotations": null}),
        json!({"templates": {"webhook": {"certManager": {"issuer": {"kind": "ClusterIssuer"}}}}}),
        json!({"global": {"registry": "of a chart that this one is part of"}, "enabled": true}),
        json!({"global": null, "enabled": null}),
        json!({"x-labels": {"team": "data"}}),
    ] {
        assert_eq!(faults(&over), [""; 0], "{over}");
        merge(&mut all, &over);
        assert_eq!(faults(&all), [""; 0], "{over}");
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
        (json!({"tolerations": {"operator": "Exists"}}), "/tolerations"),
        (json!({"broker": {"image": {"repository": "b"}}}), "/broker/image"),
        (json!({"kubernetes": {"keep_failed": "2h"}}), "/kubernetes"),
        (json!({"templates": {"namespaces": "templates"}}), "/templates/namespaces"),
    ] {
        let faults = faults(&values);
        assert!(faults.len() == 1 && faults[0].contains(name), "{values}: {faults:?}");
    }
}
