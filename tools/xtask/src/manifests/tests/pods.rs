//! What the chart makes of values about its own pods, and of who they are to others.

use super::*;

#[test]
fn the_pods_of_both_deployments_are_as_whoever_installs_them_says() {
    let tolerations = json!([
        {"key": "example.org/for", "operator": "Equal", "value": "it", "effect": "NoSchedule"},
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
    ]);
    let values = json!({
        "controller": {"enabled": true},
        "podLabels": {"team": "data", "example.org/tier": "1"},
        "podAnnotations": {"example.org/scrape": true, "said": "\"a: b\" # c"},
        "nodeSelector": {"kubernetes.io/os": "linux", "example.org/ssd": "true"},
        "tolerations": tolerations,
        "priorityClassName": "brokers",
        "serviceAccountAnnotations": {"example.org/role": "arn:aws:iam::1:role/broker"},
    });
    let deployments = of_kind(&values, "Deployment");
    assert_eq!(deployments.len(), 2);
    for deployment in deployments {
        let selected = &deployment["spec"]["selector"]["matchLabels"];
        let mut labels = selected.clone();
        merge(&mut labels, &json!({"team": "data", "example.org/tier": "1"}));
        let pod = &deployment["spec"]["template"];
        assert_eq!(pod["metadata"]["labels"], labels);
        let annotations = json!({"example.org/scrape": "true", "said": "\"a: b\" # c"});
        assert_eq!(pod["metadata"]["annotations"], annotations);
        let nodes = json!({"kubernetes.io/os": "linux", "example.org/ssd": "true"});
        assert_eq!(pod["spec"]["nodeSelector"], nodes);
        assert_eq!(pod["spec"]["tolerations"], tolerations);
        assert_eq!(pod["spec"]["priorityClassName"], "brokers");
    }
    let accounts = of_kind(&values, "ServiceAccount");
    assert_eq!(accounts.len(), 2);
    for account in accounts {
        let annotations = json!({"example.org/role": "arn:aws:iam::1:role/broker"});
        assert_eq!(account["metadata"]["annotations"], annotations);
    }
}

#[test]
fn secrets_of_registries_are_named_or_given_as_in_a_pod() {
    let values = json!({
        "controller": {"enabled": true}, "imagePullSecrets": ["registry", {"name": "other"}],
    });
    for deployment in of_kind(&values, "Deployment") {
        let given = &deployment["spec"]["template"]["spec"]["imagePullSecrets"];
        assert_eq!(*given, json!([{"name": "registry"}, {"name": "other"}]));
    }
}

#[test]
fn further_rules_are_the_servers_and_let_nobody_reach_runs() {
    let from = json!({"from": [{"namespaceSelector": {}}], "ports": [{"port": 8081}]});
    let to = json!({"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 16443}]});
    let with = |rules: Value| {
        let values = json!({"controller": {"enabled": true}, "brokers": "apart", "jobNamespaces": ["jobs"],
            "templates": {"enabled": true}, "networkPolicy": rules});
        of_kind(&values, "NetworkPolicy")
    };
    let own = with(json!({}));
    let made = with(json!({"extraIngress": [from], "extraEgress": [to, to]}));
    assert_eq!((own.len(), made.len()), (4, 4));
    for (mut expected, policy) in own.into_iter().zip(made) {
        let spec = &mut expected["spec"];
        if spec["ingress"] != json!([]) {
            spec["ingress"].as_array_mut().unwrap().push(from.clone());
            spec["egress"].as_array_mut().unwrap().extend([to.clone(), to.clone()]);
        }
        assert_eq!(policy, expected);
    }
}
