//! What the chart makes of values for a Prometheus, and of budgets.

use super::*;

#[test]
fn whoever_asks_for_figures_knows_the_authority_of_the_secret_or_by_itself() {
    for (key, expected) in [
        (json!({}), Value::Null),
        (json!({"authorityKey": "ca.crt"}), json!({"name": "certificate", "key": "ca.crt"})),
        (json!({"authorityKey": "root.pem"}), json!({"name": "certificate", "key": "root.pem"})),
    ] {
        let mut values = json!({"serviceMonitor": {"enabled": true}, "tls": key});
        values["tls"]["secretName"] = json!("certificate");
        let monitor = of_kind(&values, "ServiceMonitor").remove(0);
        let tls = &monitor["spec"]["endpoints"][0]["tlsConfig"];
        assert_eq!(tls["serverName"], "manciple.manciple.svc");
        assert_eq!(tls["ca"]["secret"], expected, "{values}");
    }
}

#[test]
fn whoever_asks_for_figures_is_told_whom_the_certificate_is_for() {
    let monitor = json!({"enabled": true, "serverName": "manciple.example"});
    let values = json!({"serviceMonitor": monitor, "tls": {"secretName": "certificate"}});
    let monitor = of_kind(&values, "ServiceMonitor").remove(0);
    let tls = &monitor["spec"]["endpoints"][0]["tlsConfig"];
    assert_eq!(*tls, json!({"serverName": "manciple.example"}));
}

#[test]
fn monitors_have_the_labels_that_a_prometheus_takes_them_by() {
    let with = |labels: Value| {
        json!({"controller": {"enabled": true},
            "serviceMonitor": {"enabled": true, "labels": labels}})
    };
    for kind in ["ServiceMonitor", "PodMonitor"] {
        let mut expected = of_kind(&with(json!({})), kind)[0].clone();
        expected["metadata"]["labels"]["release"] = json!("kube-prometheus-stack");
        let made = of_kind(&with(json!({"release": "kube-prometheus-stack"})), kind);
        assert_eq!(made, [expected]);
    }
}

/// Members that are not there in `known` below the same place, by their paths. `"*"`: any text.
fn unknown(object: &Value, known: &Value, path: &str) -> Vec<String> {
    match (object, known) {
        (Value::Object(members), Value::Object(known)) => {
            let any = known.get("*");
            let below = |(name, value): (&String, &Value)| {
                let path = format!("{path}.{name}");
                match known.get(name).or(any) {
                    Some(known) => unknown(value, known, &path),
                    None => vec![path],
                }
            };
            members.iter().flat_map(below).collect()
        }
        (Value::Array(items), Value::Array(known)) => {
            items.iter().flat_map(|item| unknown(item, &known[0], path)).collect()
        }
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) => Vec::new(),
        (other, _) => vec![format!("{path}: {other}")],
    }
}

/// The Prometheus operator's documentation of its API, as far as it is used: it is no part of a cluster that can be
/// asked.
#[test]
fn monitors_and_budgets_have_only_members_that_their_kinds_have() {
    let metadata = json!({"name": "", "namespace": "", "labels": {"*": ""}});
    let selector = json!({"matchLabels": {"*": ""}});
    let key = json!({"name": "", "key": ""});
    let service = json!({
        "apiVersion": "", "kind": "", "metadata": metadata,
        "spec": {"selector": selector, "endpoints": [{
            "port": "", "path": "", "scheme": "",
            "tlsConfig": {"serverName": "", "ca": {"secret": key, "configMap": key}},
        }]},
    });
    let pods = json!({
        "apiVersion": "", "kind": "", "metadata": metadata,
        "spec": {"selector": selector, "podMetricsEndpoints": [{"port": "", "path": ""}]},
    });
    let budget = json!({
        "apiVersion": "", "kind": "", "metadata": metadata,
        "spec": {"selector": selector, "maxUnavailable": 0, "unhealthyPodEvictionPolicy": ""},
    });
    let by_tls = json!({"secretName": "certificate", "authorityKey": "ca.crt"});
    for (tls, policy) in [(json!({}), ""), (by_tls, "AlwaysAllow")] {
        let budgets = json!({"enabled": true, "unhealthyPodEvictionPolicy": policy});
        let values = json!({
            "serviceMonitor": {"enabled": true}, "podDisruptionBudget": budgets, "tls": tls,
            "controller": {"enabled": true},
        });
        for budget in of_kind(&values, "PodDisruptionBudget") {
            let said = budget["spec"].get("unhealthyPodEvictionPolicy").cloned();
            assert_eq!(said, (!policy.is_empty()).then(|| json!(policy)), "{budget}");
        }
        for (kind, version, known, count) in [
            ("ServiceMonitor", "monitoring.coreos.com/v1", &service, 1),
            ("PodMonitor", "monitoring.coreos.com/v1", &pods, 1),
            ("PodDisruptionBudget", "policy/v1", &budget, 2),
        ] {
            let made = of_kind(&values, kind);
            assert_eq!(made.len(), count, "{kind}");
            for object in made {
                assert_eq!(object["apiVersion"], version);
                assert_eq!(unknown(&object, known, kind), [""; 0]);
                // What it selects is there: the labels are those of some pod or Service of the chart.
                let wanted = object["spec"]["selector"]["matchLabels"].as_object().unwrap();
                let selected =
                    ["Service", "Deployment"].into_iter().flat_map(|kind| of_kind(&values, kind));
                let is_selected = |object: &Value| {
                    let template = &object["spec"]["template"]["metadata"]["labels"];
                    let labels = [&object["metadata"]["labels"], template];
                    labels
                        .iter()
                        .any(|labels| wanted.iter().all(|(name, value)| labels[name] == *value))
                };
                let selected: Vec<Value> = selected.filter(is_selected).collect();
                assert!(!selected.is_empty(), "{kind} selects nothing: {object}");
                let ports = selected.iter().map(Value::to_string).collect::<String>();
                for endpoint in ["endpoints", "podMetricsEndpoints"] {
                    let Some(endpoints) = object["spec"][endpoint].as_array() else { continue };
                    for endpoint in endpoints {
                        let port = format!("\"name\":{}", endpoint["port"]);
                        assert!(ports.contains(&port), "{kind}: nothing has the port {port}");
                    }
                }
            }
        }
    }
}
