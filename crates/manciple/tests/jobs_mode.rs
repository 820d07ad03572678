//! Jobs mode as Steward was deployed: a Deployment with its variables, its probes and its Service, and nothing that says
//! what Manciple is beyond that.

mod support;

use std::path::Path;

use data_encoding::BASE64;
use serde_json::{Value, json};
use support::town::Town;
use support::{http, within};
use testkit::cluster::{BROKER_IMAGE, SHELL_IMAGE, apply, packed_agent};

/// What the default account of a namespace may do: what ours may.
fn rights(town: &Town) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/base/role.yaml");
    let roles = std::fs::read_to_string(path).unwrap();
    let ours = "  - kind: ServiceAccount\n    name: manciple\n";
    assert!(roles.contains(ours), "{roles}");
    let roles = roles.replace(ours, "  - kind: ServiceAccount\n    name: default\n");
    let here = format!("namespace: {}", town.namespace);
    apply(&roles.replace("namespace: manciple", &here));
}

/// The program of this build, with the libraries of this machine, which is the node.
fn program() -> (Value, Value) {
    let program = Path::new(env!("CARGO_BIN_EXE_manciple")).parent().unwrap();
    let agent = packed_agent().unwrap_or_else(|why| panic!("{why}")).canonicalize().unwrap();
    let places = [
        ("program", program, "/usr/bin/manciple.test"),
        ("agent", &*agent, "/manciple-agent.packed"),
        ("lib", Path::new("/lib"), "/lib"),
        ("lib64", Path::new("/lib64"), "/lib64"),
    ];
    let there = |path: &Path| path.exists();
    let places = || places.iter().filter(|(_, path, _)| there(path));
    let volumes = places().map(|(name, path, _)| json!({"name": name, "hostPath": {"path": path}}));
    let mounts =
        places().map(|(name, _, at)| json!({"name": name, "mountPath": at, "readOnly": true}));
    (volumes.collect(), mounts.collect())
}

fn deploy(town: &Town) {
    let (volumes, mounts) = program();
    let probe = |failures: u32| {
        json!({
            "httpGet": {"path": "/healthz", "port": 8080}, "failureThreshold": failures,
            "initialDelaySeconds": 5, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 2,
        })
    };
    let labels = json!({"app": "sample-steward"});
    town.make(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "sample-steward", "labels": labels},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "containers": [{
                    "name": "sample-steward", "image": SHELL_IMAGE,
                    "command": ["/usr/bin/manciple.test/manciple", "serve"],
                    "env": [
                        {"name": "LOG_LEVEL", "value": "trace"},
                        {"name": "STEWARD_MODE", "value": "jobs"},
                        {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
                        {"name": "JOBS_IMAGE", "value": BROKER_IMAGE},
                        {"name": "JOBS_CONFIG_MAP", "value": "sample-config"},
                        {"name": "JOBS_SECRET", "value": "sample-secret"},
                    ],
                    "livenessProbe": probe(3), "readinessProbe": probe(1),
                    "volumeMounts": mounts,
                }],
                "volumes": volumes,
            }},
        },
    }));
    town.make(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "sample-steward", "labels": labels},
        "spec": {"ports": [{"port": 80, "targetPort": 8080}], "selector": labels},
    }));
}

/// The address of its only pod, once the Service has it.
fn address(town: &Town) -> String {
    let subset = || {
        let endpoints = town.get("endpoints/sample-steward");
        let subset = endpoints["subsets"][0].clone();
        let ip = subset["addresses"][0]["ip"].as_str()?.to_owned();
        Some(format!("{ip}:{}", subset["ports"][0]["port"]))
    };
    within(90, subset).unwrap_or_else(|| panic!("it never serves: {}", log(town)))
}

fn log(town: &Town) -> String {
    town.kubectl(&["logs", "deployment/sample-steward"])
}

/// The user that is made where nothing is said of any.
fn authorization(town: &Town) -> String {
    let admin = || {
        let secrets = town.get("secrets")["items"].as_array().unwrap().clone();
        let mut secrets = secrets.into_iter();
        secrets.find(|it| it["metadata"]["name"].as_str().unwrap().starts_with("admin-"))
    };
    let secret = within(60, admin).unwrap_or_else(|| panic!("there is no user: {}", log(town)));
    let password = secret["data"]["password"].as_str().unwrap();
    let password = String::from_utf8(BASE64.decode(password.as_bytes()).unwrap()).unwrap();
    let pair = BASE64.encode(format!("admin:{password}").as_bytes());
    format!("Authorization: Basic {pair}\r\n")
}

#[test]
fn a_deployment_as_stewards_serves_by_its_variables_alone() {
    let town = Town::empty();
    rights(&town);
    town.config_map("sample-config", &json!({"region": "eu"}));
    town.secret("sample-secret", &json!({"pg.password": "planted-pa55word", ".token": "t"}));
    deploy(&town);
    let (authorization, address) = (authorization(&town), address(&town));
    let ask = |path: &str| http::send_with(&address, "GET", path, None, &authorization);
    let send = |method: &str, path: &str, body: Option<&Value>| {
        let answer = http::send_with(&address, method, path, body, &authorization);
        answer.unwrap_or_else(|| panic!("{path}: no answer: {}", log(&town)))
    };
    // Not before it has found its configuration.
    let sold = || {
        let answer = ask("/v2/catalog")?;
        (answer.body["services"][0]["name"] == "s-name").then_some(())
    };
    assert!(within(60, sold).is_some(), "it sells nothing: {}", log(&town));

    let ends = |path: &str| {
        let ended = || {
            let answer = ask(&format!("{path}/last_operation"))?.body;
            (answer["state"] != "in progress").then_some(answer)
        };
        let ended = within(60, ended).unwrap_or_else(|| panic!("{path}: {}", log(&town)));
        assert_eq!(ended["state"], "succeeded", "{path}: {ended}");
    };
    let ids = json!({"service_id": "s", "plan_id": "s-small"});
    let order = json!({
        "service_id": "s", "plan_id": "s-small", "organization_guid": "o", "space_guid": "s",
    });
    let (instance, query) = ("/v2/service_instances/i", "?service_id=s&plan_id=s-small");
    let answer = send("PUT", &format!("{instance}?accepts_incomplete=true"), Some(&order));
    assert_eq!(answer.status, 202, "{answer:?}");
    ends(instance);
    let binding = format!("{instance}/service_bindings/b");
    let bound = send("PUT", &binding, Some(&ids));
    // It works where its image has it.
    let credentials =
        json!({"region": "eu", "password": "planted-pa55word", "token": "t", "folder": "/"});
    assert_eq!(bound.body["credentials"], credentials, "{bound:?}");
    let unbound = send("DELETE", &format!("{binding}{query}"), None);
    assert_eq!(unbound.status, 200, "{unbound:?}");
    let deleted = send("DELETE", &format!("{instance}{query}&accepts_incomplete=true"), None);
    assert_eq!(deleted.status, 202, "{deleted:?}");
    ends(instance);
    let log = log(&town);
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "LOG_LEVEL is not taken: {log}");
    for secret in ["planted-pa55word".to_owned(), BASE64.encode(b"planted-pa55word")] {
        assert!(!log.contains(&secret), "a password is in the log");
    }
}
