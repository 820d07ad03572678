use super::*;
use crate::ready::{Readiness, is_awaited, readiness};

pub(super) fn route() -> Value {
    json!({
        "apiVersion": "route.openshift.io/v1", "kind": "Route",
        "metadata": {"name": "web", "labels": {"app": "a"}},
        "spec": {
            "host": "www.example.com", "to": {"kind": "Service", "name": "web", "weight": 100},
            "port": {"targetPort": "http"}, "wildcardPolicy": "None",
        },
        "status": {"ingress": []},
    })
}

fn service(ports: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": ports}})
}

#[test]
fn a_route_becomes_an_ingress() {
    let (found, said) = one(route());
    assert_eq!(
        found,
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "web", "labels": {"app": "a"}},
            "spec": {"rules": [{"host": "www.example.com", "http": {"paths": [{
                "path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "web", "port": {"name": "http"}}},
            }]}}]},
        })
    );
    assert_eq!(said, [""; 0]);
    let mut route = with(route(), "/spec/path", json!("/api"));
    route["apiVersion"] = json!("v1");
    let classed = Translation { ingress_class: Some("nginx".to_owned()), ..means() };
    let found = translate(vec![route], &classed).unwrap().objects.remove(0);
    assert_eq!(found["spec"]["ingressClassName"], "nginx");
    assert_eq!(found["spec"]["rules"][0]["http"]["paths"][0]["path"], "/api");
}

#[test]
fn a_host_is_made_as_on_openshift() {
    let bare = with(route(), "/spec/host", json!(null));
    let mut dotted = bare.clone();
    dotted["metadata"] = json!({"name": "a.b", "namespace": "other"});
    for (name, route, host) in [
        ("said", route(), "www.example.com"),
        ("made", bare.clone(), "web-shop.apps.example.com"),
        ("empty", with(bare.clone(), "/spec/host", json!("")), "web-shop.apps.example.com"),
        ("subdomain", with(bare.clone(), "/spec/subdomain", json!("x")), "x.apps.example.com"),
        ("subdomain beside", with(route(), "/spec/subdomain", json!("x")), "www.example.com"),
        ("dots", dotted, "a-b-other.apps.example.com"),
        ("wildcard", with(route(), "/spec/wildcardPolicy", json!("Subdomain")), "*.example.com"),
    ] {
        assert_eq!(one(route).0["spec"]["rules"][0]["host"], host, "{name}");
    }
    for (name, means, words) in [
        ("no domain", Translation { domain: None, ..means() }, "say the domain of Routes"),
        ("empty", Translation { domain: Some(String::new()), ..means() }, "say the domain"),
        ("no namespace", Translation { namespace: None, ..means() }, "say the namespace"),
    ] {
        let said = refused(json!([bare]), &means);
        assert!(said[0].starts_with("spec.host: Required value: is empty, "), "{name}: {said:?}");
        assert!(said.len() == 1 && said[0].ends_with(words) || name == "empty", "{name}: {said:?}");
    }
}

#[test]
fn a_host_that_would_be_too_long_is_made_shorter_and_stays_its_own() {
    let host = |name: &str| {
        let bare = with(route(), "/spec/host", json!(null));
        let (ingress, said) = one(with(bare, "/metadata/name", json!(name)));
        assert_eq!(said, [""; 0]);
        let host = ingress["spec"]["rules"][0]["host"].as_str().unwrap().to_owned();
        let (label, domain) = host.split_once('.').unwrap();
        assert_eq!(domain, "apps.example.com");
        label.to_owned()
    };
    let (most, long) = ("a".repeat(58), "a".repeat(59));
    assert_eq!(host(&most), format!("{most}-shop"), "63 characters");
    assert_eq!(host(&long), format!("{}-c24f590c", "a".repeat(54)));
    assert_eq!(host(&long), host(&long));
    assert_ne!(host(&long), host(&format!("{long}b")), "what is left out counts");
    let dotted = host(&format!("{}.{}", "a".repeat(53), "b".repeat(100)));
    assert!(dotted.len() < 63 && dotted.starts_with(&format!("{}-", "a".repeat(53))), "{dotted}");
    assert!(!dotted.contains("--"), "{dotted}");
}

#[test]
fn a_port_that_cannot_be_is_refused() {
    let words = "has to be the name of a port, or its number, from 1 to 65535";
    for target in [json!(99999), json!("99999"), json!(0), json!(-1), json!(8080.5), json!("")] {
        let route = with(route(), "/spec/port/targetPort", target.clone());
        for objects in [json!([route]), json!([route, service(json!([{"port": 80}]))])] {
            let said = refused(objects, &means());
            assert!(said.len() == 1 && said[0].starts_with("spec.port.targetPort: "), "{said:?}");
            assert!(said[0].ends_with(words), "{target}: {said:?}");
        }
    }
}

#[test]
fn a_port_is_looked_for_in_the_service() {
    let two = json!([
        {"name": "web", "port": 80, "targetPort": 8080}, {"name": "admin", "port": 81, "targetPort": "adm"},
    ]);
    let nameless = json!([{"port": 80, "targetPort": 8080}]);
    let theirs = json!([{"port": 80, "targetPort": "http"}]);
    let same = json!([{"port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]);
    for (name, ports, target, port) in [
        ("by name", &two, json!("admin"), json!({"name": "admin"})),
        ("by the number in the pods", &two, json!(8080), json!({"name": "web"})),
        ("as text", &two, json!("8080"), json!({"name": "web"})),
        ("without a name", &nameless, json!(8080), json!({"number": 80})),
        ("the only one", &nameless, json!(null), json!({"number": 80})),
        ("the pods know it", &theirs, json!(8080), json!({"number": 80})),
        ("one number", &same, json!(80), json!({"number": 80})),
        ("over TCP", &same, json!(null), json!({"number": 80})),
    ] {
        let port_of = if target.is_null() { target } else { json!({"targetPort": target}) };
        let route = with(route(), "/spec/port", port_of);
        let found = translated(json!([route, service(ports.clone())]));
        let backend = &found.objects[0]["spec"]["rules"][0]["http"]["paths"][0]["backend"];
        assert_eq!(backend["service"]["port"], port, "{name}");
        assert_eq!(found.warnings, [], "{name}");
    }
    for (name, ports, target) in [
        ("the Service's own number", &two, json!(80)),
        ("the name of the pods", &two, json!("adm")),
        ("the number of another", &nameless, json!(80)),
        ("a name of the pods alone", &theirs, json!("http")),
        ("which of two", &two, json!(null)),
        ("none", &json!([]), json!(null)),
        ("no list", &json!("x"), json!("x")),
    ] {
        let port_of = if target.is_null() { target } else { json!({"targetPort": target}) };
        let route = with(route(), "/spec/port", port_of);
        let said = refused(json!([route, service(ports.clone())]), &means());
        assert!(said.len() == 1 && said[0].starts_with("spec.port"), "{name}: {said:?}");
    }
}

#[test]
fn a_port_of_an_unknown_service_is_taken_as_it_is() {
    let number = with(route(), "/spec/port/targetPort", json!(8080));
    let (found, said) = one(number.clone());
    let backend = &found["spec"]["rules"][0]["http"]["paths"][0]["backend"];
    assert_eq!(backend["service"]["port"], json!({"number": 8080}));
    assert!(said[0].starts_with("spec.port.targetPort: Questionable: is a number in"), "{said:?}");
    let mut elsewhere = service(json!([{"port": 80, "targetPort": 8080}]));
    elsewhere["metadata"]["namespace"] = json!("other");
    assert_eq!(translated(json!([number, elsewhere])).warnings.len(), 1);
}

#[test]
fn tls_ends_at_the_edge() {
    let of = |tls: Value| with(route(), "/spec/tls", tls);
    let hosts = json!(["www.example.com"]);
    for (name, tls, found) in [
        ("edge", json!({"termination": "edge"}), json!([{"hosts": hosts}])),
        ("by default", json!({}), json!([{"hosts": hosts}])),
        ("none", json!(null), json!(null)),
        (
            "by name",
            json!({"externalCertificate": {"name": "s"}}),
            json!([{"hosts": hosts, "secretName": "s"}]),
        ),
    ] {
        let (ingress, said) = one(of(tls));
        assert_eq!((&ingress["spec"]["tls"], said.len()), (&found, 0), "{name}");
    }
    let (_, said) = one(of(json!({"insecureEdgeTerminationPolicy": "Redirect"})));
    assert!(said[0].contains("is up to the controller of the Ingress"), "{said:?}");
    let wildcard = with(of(json!({})), "/spec/wildcardPolicy", json!("Subdomain"));
    assert_eq!(one(wildcard).0["spec"]["tls"][0]["hosts"][0], "*.example.com");
}

#[test]
fn a_certificate_goes_into_a_secret() {
    let tls =
        json!({"termination": "edge", "certificate": "C\n", "key": "K", "caCertificate": "A"});
    let route = with(route(), "/spec/tls", tls);
    let found = translated(json!([route])).objects;
    assert_eq!(
        found[0],
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "web-tls", "labels": {"app": "a"}},
            "stringData": {"tls.crt": "C\nA", "tls.key": "K"},
        })
    );
    assert_eq!(found[1]["spec"]["tls"][0]["secretName"], "web-tls");
    let other = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web-tls"}});
    let said = refused(json!([route, other]), &means());
    assert!(said[0].contains("is the Secret that it becomes"), "{said:?}");
    let secret = |name: &str| {
        let route = with(route.clone(), "/metadata/name", json!(name));
        let found = translated(json!([route])).objects;
        assert_eq!(found[1]["spec"]["tls"][0]["secretName"], found[0]["metadata"]["name"]);
        found[0]["metadata"]["name"].as_str().unwrap().to_owned()
    };
    let (most, long) = ("a".repeat(249), "a".repeat(250));
    assert_eq!(secret(&most), format!("{most}-tls"), "253 characters");
    assert_eq!(secret(&long).len(), 253);
    assert_ne!(secret(&long), secret(&format!("{long}b")), "what is left out counts");
}

#[test]
fn what_an_ingress_cannot_say_is_refused() {
    let backends = json!([{"kind": "Service", "name": "b", "weight": 1}]);
    for (pointer, value, said) in [
        ("/spec/alternateBackends", backends, "spec.alternateBackends: Invalid value: a list: an"),
        (
            "/spec/to",
            json!({"name": "s", "weight": 0}),
            "spec.to.weight: Invalid value: a number: is 0",
        ),
        (
            "/spec/to",
            json!({"kind": "Pod", "name": "p"}),
            "spec.to.kind: Invalid value: a string: has",
        ),
        ("/spec/to", json!({}), "spec.to.name: Required value"),
        ("/spec/path", json!("api"), "spec.path: Invalid value: a string: has to begin with a /"),
        ("/spec/host", json!(5), "spec.host: Invalid value: a number: has to be a string"),
        ("/spec/port", json!({"targetPort": {}}), "spec.port.targetPort: Invalid value: a map"),
        ("/spec/port", json!({}), "spec.port.targetPort: Invalid value: null"),
        ("/spec/port", json!(null), "spec.port: Required value: an Ingress names a port"),
        ("/spec/wildcardPolicy", json!("All"), "spec.wildcardPolicy: Invalid value: a string"),
        ("/spec/tls", json!({"termination": "passthrough"}), "spec.tls.termination: Invalid value"),
        ("/spec/tls", json!({"termination": "reencrypt"}), "spec.tls.termination: Invalid value"),
        (
            "/spec/tls",
            json!({"destinationCACertificate": "C"}),
            "spec.tls.destinationCACertificate: ",
        ),
        (
            "/spec/tls",
            json!({"certificate": "C"}),
            "spec.tls.key: Required value: a certificate has",
        ),
        ("/spec/tls", json!({"key": "K"}), "spec.tls.certificate: Required value: a certificate"),
        (
            "/spec/tls",
            json!({"certificate": "C", "key": "K", "externalCertificate": {"name": "s"}}),
            "spec.tls.externalCertificate: Invalid value",
        ),
        ("/spec/httpHeaders", json!({"actions": {}}), "spec.httpHeaders: Invalid value: a map"),
        ("/spec", json!([]), "spec: Invalid value: a list: has to be a map"),
    ] {
        let found = refused(json!([with(route(), pointer, value)]), &means());
        assert!(found[0].starts_with(said), "{pointer}: {found:?}");
    }
    let mut wildcard = with(route(), "/spec/wildcardPolicy", json!("Subdomain"));
    for host in ["localhost", "", "{.a}.b"] {
        wildcard["spec"]["host"] = json!(host);
        assert!(refused(json!([wildcard]), &means())[0].starts_with("spec.host: "), "{host}");
    }
}

#[test]
fn what_is_left_out_is_said() {
    let mut route = with(route(), "/spec/dnsName", json!("x"));
    route["metadata"]["annotations"] =
        json!({"haproxy.router.openshift.io/timeout": "5s", "a": "b"});
    let (found, said) = one(route.clone());
    assert_eq!(found["metadata"], route["metadata"]);
    assert_eq!(
        said,
        [
            "spec: Questionable: members that nobody knows are left out: 1",
            "metadata.annotations: Questionable: only OpenShift's router reads those of its own: they do nothing",
        ]
    );
}

/// What bindings are given by objects.
fn exposed(objects: &[Value]) -> std::collections::BTreeMap<String, String> {
    crate::expose(objects).unwrap()
}

#[test]
fn bindings_are_given_the_same() {
    let path = with(route(), "/spec/path", json!("/api"));
    let number = with(route(), "/spec/port/targetPort", json!(8080));
    let wildcard = with(route(), "/spec/wildcardPolicy", json!("Subdomain"));
    let no_port = with(route(), "/spec/port", json!(null));
    let services =
        [json!([{"name": "http", "port": 80, "targetPort": 8080}]), json!([{"port": 8080}])];
    for (name, route, service_at) in [
        ("plain", route(), None),
        ("a path", path, None),
        ("a number", number.clone(), None),
        ("another name of the port", number.clone(), Some(0)),
        ("the same number", number, Some(1)),
        ("a wildcard", wildcard, None),
        ("no port", no_port, Some(1)),
    ] {
        let annotations = json!({
            "template.openshift.io/expose-uri": "http://{.spec.host}{.spec.path}/{ $.spec['to'].name }\n",
            "template.openshift.io/base64-expose-host": "{@.spec.host}",
            "template.openshift.io/expose-port": "{.spec.port.targetPort}",
            "template.openshift.io/expose-of": "{.metadata.name}{\"\\n\"}{.metadata.labels.app}{.metadata.labels.no}",
            "template.openshift.io/expose-note": "{.metadata.annotations.example\\.com/a-note}",
            "template.openshift.io/expose-text": "text",
            "example.com/a-note": "{.spec.tls",
        });
        let route = with(route, "/metadata/annotations", annotations);
        let service_of = service_at.map(|at: usize| service(services[at].clone()));
        let objects: Vec<_> = [route].into_iter().chain(service_of).collect();
        let found = translate(objects.clone(), &means()).unwrap().objects;
        assert_eq!(found[0]["kind"], "Ingress");
        let given = exposed(&objects);
        assert_eq!((exposed(&found), given.len()), (given, 6), "{name}");
    }
}

#[test]
fn a_made_host_is_exposed() {
    let mut route = with(route(), "/spec/host", json!(null));
    route["metadata"]["annotations"] = json!({"template.openshift.io/expose-host": "{.spec.host}"});
    let (ingress, _) = one(route);
    assert_eq!(exposed(&[ingress])["host"], "web-shop.apps.example.com");
}

#[test]
fn what_else_is_exposed_is_refused() {
    for path in [
        "{.spec.tls.termination}",
        "{.spec.to}",
        "{.status.ingress[0].host}",
        "{.kind}",
        "{.metadata}",
        "{..host}",
        "{range .spec.host}{end}",
        "{.spec.host.x}",
        "{.metadata.annotations.template\\.openshift\\.io/expose-k}",
        "{.metadata. .x}",
        "{}",
        "{.spec",
    ] {
        let mut route = route();
        route["metadata"]["annotations"] = json!({"template.openshift.io/expose-k": path});
        let said = refused(json!([route]), &means());
        assert!(
            said[0].starts_with("metadata.annotations: Invalid value: a string: exposes something"),
            "{path}: {said:?}"
        );
    }
}

#[test]
fn whoever_waits_for_a_route_does_not_wait_for_its_ingress() {
    let mut route = route();
    route["metadata"]["annotations"] =
        json!({"template.alpha.openshift.io/wait-for-ready": "true"});
    let (ingress, _) = one(route.clone());
    for object in [route, ingress] {
        assert!(is_awaited(&object));
        assert_eq!(readiness(&object), Readiness::Ready);
    }
}
