//! What the chart makes of values about templates.

use super::*;

#[test]
fn templates_are_there_by_choice() {
    for (name, _) in chart(&json!({"controller": {"enabled": true}})).unwrap() {
        assert!(!name.starts_with("templates-"), "{name}");
    }
    let values = of_templates();
    assert_eq!(of_kind(&values, "CustomResourceDefinition").len(), 3);
    let broker = configuration(&values)["kubernetes"]["templates"].clone();
    assert_eq!(broker["namespaces"], json!(["templates"]));
    assert_eq!(broker["controller"], false, "the controller makes instances");
    assert!(!of_kind(&values, "Deployment")[1].to_string().contains("JOBS_IMAGE"));
    assert_eq!(variables(&values)["MANCIPLE_CONTROLLERS"], "templates");
    assert!(!variables(&values).contains_key("MANCIPLE_TRANSLATE"));
    let mut both = values;
    both["controller"] = json!({"enabled": true});
    assert_eq!(variables(&both)["MANCIPLE_CONTROLLERS"], "quarks,templates");
}

#[test]
fn definitions_of_templates_are_the_programs_and_stay() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/templates/crds.yaml");
    let mut printed = objects(&std::fs::read_to_string(root).unwrap()).unwrap();
    for definition in &mut printed {
        definition["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    }
    assert_eq!(of_kind(&of_templates(), "CustomResourceDefinition"), printed);
}

/// Definitions are there once in a cluster, and outlive the release that made them; roles go with it.
#[test]
fn people_have_rights_whoever_brought_the_definitions() {
    for (definitions, roles) in [(true, true), (true, false), (false, true), (false, false)] {
        let made = chart(&json!({"templates":
            {"enabled": true, "definitions": definitions, "userRoles": roles}}));
        let made = made.unwrap();
        assert_eq!(made.contains_key(DEFINITIONS), definitions);
        assert_eq!(made.contains_key(USERS), definitions || roles, "roles: {roles}");
    }
}

#[test]
fn the_settings_of_templates_are_the_programs() {
    let values = json!({"kubernetes": "keep_failed: 2h", "templates": {
        "enabled": true, "namespaces": ["a"], "instanceNamespaces": ["b", "c"], "ids": "name",
        "statusCodes": "original", "requesters": "trusted", "drift": "repair",
        "driftInterval": "5m", "allowChanges": true,
        "translate": {"enabled": true, "routeDomain": "apps.example", "ingressClass": "nginx"},
    }});
    let kubernetes = configuration(&values)["kubernetes"].clone();
    assert_eq!(kubernetes["keep_failed"], "2h");
    assert_eq!(
        kubernetes["templates"],
        json!({"namespaces": ["a"], "instance_namespaces": ["b", "c"], "controller": false,
               "ids": "name", "status_codes": "original"})
    );
    let variables = variables(&values);
    for (name, value) in [
        ("MANCIPLE_INSTANCE_NAMESPACES", "b,c"),
        ("MANCIPLE_REQUESTERS", "trusted"),
        ("MANCIPLE_DRIFT", "repair"),
        ("MANCIPLE_DRIFT_INTERVAL", "5m"),
        ("MANCIPLE_ALLOW_CHANGES", "true"),
        ("MANCIPLE_TRANSLATE", "true"),
        ("MANCIPLE_ROUTE_DOMAIN", "apps.example"),
        ("MANCIPLE_INGRESS_CLASS", "nginx"),
    ] {
        assert_eq!(variables[name], value, "{name}");
    }
}

#[test]
fn nothing_gets_around_the_webhook() {
    let values = of_templates();
    let found = of_kind(&values, "MutatingWebhookConfiguration").remove(0);
    let webhook = &found["webhooks"][0];
    assert_eq!(webhook["failurePolicy"], "Fail");
    for selector in ["namespaceSelector", "objectSelector", "matchConditions"] {
        assert_eq!(webhook.get(selector), None, "{selector}");
    }
    let annotations = &found["metadata"]["annotations"];
    assert_eq!(annotations["admissions.enforcer/disabled"], "true", "nor does Azure add any");
    let service = &webhook["clientConfig"]["service"];
    let services = of_kind(&values, "Service");
    let asked = services.iter().find(|it| it["metadata"]["name"] == service["name"]).unwrap();
    let controller = &of_kind(&values, "Deployment")[0];
    assert_eq!(asked["spec"]["selector"], controller["spec"]["template"]["metadata"]["labels"]);
    let pod = &controller["spec"]["template"]["spec"];
    assert_eq!(asked["spec"]["ports"][0]["targetPort"], pod["containers"][0]["ports"][1]["name"]);
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "manciple-webhook");
    let policies = of_kind(&values, "NetworkPolicy");
    assert!(policies[0].to_string().contains("8443"), "the API server has to reach it");
}

#[test]
fn the_webhooks_certificate_is_a_secrets_or_cert_managers() {
    let with = |webhook: Value| json!({"templates": {"enabled": true, "webhook": webhook}});
    let own =
        with(json!({"secretName": "mine", "caBundle": "QQ==", "apiServers": ["10.0.0.1/32"]}));
    assert!(of_kind(&own, "Certificate").is_empty());
    let configuration = of_kind(&own, "MutatingWebhookConfiguration").remove(0);
    assert_eq!(configuration["webhooks"][0]["clientConfig"]["caBundle"], "QQ==");
    let from = configuration["metadata"]["annotations"].get("cert-manager.io/inject-ca-from");
    assert_eq!(from, None);
    let policy = &of_kind(&own, "NetworkPolicy")[0];
    assert_eq!(policy["spec"]["ingress"][1]["from"][0]["ipBlock"]["cidr"], "10.0.0.1/32");

    let managed = with(json!({"certManager": {"enabled": true}}));
    let certificate = named(&managed, "Certificate", "manciple-webhook");
    assert_eq!(certificate["spec"]["secretName"], "manciple-webhook");
    assert_eq!(certificate["spec"]["dnsNames"], json!(["manciple-webhook.manciple.svc"]));
    let configuration = of_kind(&managed, "MutatingWebhookConfiguration").remove(0);
    let from = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    assert_eq!(*from, "manciple/manciple-webhook");
    assert_eq!(configuration["webhooks"][0]["clientConfig"].get("caBundle"), None);

    let issuer = json!({"kind": "ClusterIssuer", "name": "internal"});
    let by = with(json!({"certManager": {"enabled": true, "issuer": issuer.clone()}}));
    assert!(of_kind(&by, "Issuer").is_empty());
    let certificates = of_kind(&by, "Certificate");
    assert_eq!(certificates.len(), 1);
    assert_eq!(certificates[0]["spec"]["issuerRef"], issuer);
}

/// Two releases in a namespace have a Secret each: cert-manager would write the certificates of both into one.
#[test]
fn the_webhooks_secret_is_the_releases_own_or_has_the_name_that_is_given() {
    let release = Release { name: "second", namespace: RELEASE };
    for (name, expected) in [(json!(""), "second-webhook"), (json!("mine"), "mine")] {
        let webhook = json!({"secretName": name, "certManager": {"enabled": true}});
        let values = json!({"templates": {"enabled": true, "webhook": webhook}});
        let made = chart_of(release, &values).unwrap();
        let all: Vec<_> = made.values().flat_map(|text| objects(text).unwrap()).collect();
        let at = |kind: &str, name: &str, place: &str| {
            let is_it = |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == name;
            all.iter().find(is_it).unwrap().pointer(place).unwrap().clone()
        };
        assert_eq!(at("Certificate", "second-webhook", "/spec/secretName"), expected);
        let mounted = "/spec/template/spec/volumes/0/secret/secretName";
        assert_eq!(at("Deployment", "second-controller", mounted), expected);
    }
}

fn named(values: &Value, kind: &str, name: &str) -> Value {
    let mut found = of_kind(values, kind);
    found.retain(|object| object["metadata"]["name"] == name);
    assert_eq!(found.len(), 1, "{kind} {name}");
    found.remove(0)
}

#[test]
fn what_the_api_server_trusts_outlives_the_webhooks_certificate() {
    let managed =
        json!({"templates": {"enabled": true, "webhook": {"certManager": {"enabled": true}}}});
    let spec = |kind: &str, name: &Value| {
        let mut found = named(&managed, kind, name.as_str().unwrap());
        assert_eq!(found["metadata"]["namespace"], "manciple", "an Issuer is of one namespace");
        found["spec"].take()
    };
    let leaf = spec("Certificate", &json!("manciple-webhook"));
    assert_eq!(leaf.get("isCA"), None);
    let by = spec("Issuer", &leaf["issuerRef"]["name"]);
    let authority = spec("Certificate", &by["ca"]["secretName"]);
    assert_eq!(authority["secretName"], by["ca"]["secretName"]);
    assert_ne!(authority["secretName"], leaf["secretName"]);
    assert_eq!((&authority["isCA"], &authority["duration"]), (&json!(true), &json!("87600h")));
    assert_eq!(authority["privateKey"]["rotationPolicy"], "Never", "a renewed one is the same");
    let root = spec("Issuer", &authority["issuerRef"]["name"]);
    assert_eq!(root, json!({"selfSigned": {}}));
}

#[test]
fn on_openshift_the_broker_is_alone() {
    let values = json!({"broker": {"image": ""}, "templates":
        {"enabled": true, "definitions": false, "controller": false}});
    assert_eq!(places(&values, "Deployment"), ["manciple/manciple"]);
    assert!(!chart(&values).unwrap().contains_key(USERS));
    for kind in ["CustomResourceDefinition", "MutatingWebhookConfiguration", "Secret"] {
        assert!(of_kind(&values, kind).is_empty(), "{kind}");
    }
    let bound = of_kind(&values, "ClusterRoleBinding");
    assert_eq!(bound.len(), 2);
    for binding in bound {
        assert_eq!(binding["subjects"][0]["name"], "manciple", "{binding}");
    }
}

#[test]
fn only_the_controller_answers_where_no_namespace_is_offered() {
    let values =
        json!({"broker": {"enabled": false}, "templates": {"enabled": true, "namespaces": []}});
    assert_eq!(places(&values, "Deployment"), ["manciple/manciple-controller"]);
    for binding in of_kind(&values, "ClusterRoleBinding") {
        assert_eq!(binding["subjects"][0]["name"], "manciple-controller", "{binding}");
    }
}
