//! The same as `secrets.rs` on a real cluster, for a broker that uses every extension of the contract: what was planted
//! is in Secrets, and in nothing else that the API server, the server or a pod's log shows.

mod support;

use data_encoding::BASE64;
use serde_json::{Value, json};
use support::town::Town;
use support::{Served, http, order, within};

const BROKER_SECRET: &str = "planted-broker-secret";
const PARAMETER: &str = "planted-parameter";
const CONTEXT: &str = "planted-context";
const IDENTITY: &str = "planted-identity";
const STATE: &str = "planted-state";
const CREDENTIAL: &str = "planted-credential";
const DASHBOARD: &str = "planted-dashboard";
/// Of Secrets that the pod policy names.
const IN_A_VARIABLE: &str = "planted-in-a-variable";
const IN_A_VOLUME: &str = "planted-in-a-volume";
const PLANTED: [&str; 9] = [
    BROKER_SECRET,
    PARAMETER,
    CONTEXT,
    IDENTITY,
    STATE,
    CREDENTIAL,
    DASHBOARD,
    IN_A_VARIABLE,
    IN_A_VOLUME,
];

/// Says aloud whatever it knows: on stderr, as progress, in errors. Its own words are broken by quotes that the shell
/// takes away, for the ConfigMap that it is in is looked through, too.
const BROKER: &str = r#"#!/bin/sh
if [ "$1" = catalog ]; then
    echo '{"jobs":{"version":2,"capabilities":["request-file","update","progress","state","structured-errors"]},
        "services":[{"id":"s","name":"db","description":"d","bindable":true,"plan_updateable":true,
        "dashboard_client":{"id":"c","secret":"plan''ted-dashboard","redirect_uri":"https://d"},"plans":[
        {"id":"p","name":"small","description":"d"}]}]}'
    exit
fi
cat "$OSB_REQUEST_FILE" >&2
[ ! -s "$OSB_STATE_FILE" ] || cat "$OSB_STATE_FILE" >&2
echo "secret $DB_PASSWORD" >&2
asked=$(sed -n 's/.*"do":"\([a-z]*\)".*/\1/p' "$OSB_REQUEST_FILE")
case $1:$asked in
provision:wait)
    echo "{\"description\":\"with plan""ted-parameter and $DB_PASSWORD\",\"percent\":50}" >"$OSB_PROGRESS_FILE"
    until [ -e /ledger/go ]; do sleep 0.1; done
    echo '{"root":"plan''ted-state"}' >"$OSB_STATE_OUT_FILE"
    echo '{}' ;;
provision:report)
    echo "{\"description\":\"failed with $DB_PASSWORD and plan""ted-parameter\"}"
    exit 1 ;;
provision:garble) echo "plan""ted-credential $DB_PASSWORD"; exit ;;
bind:*) echo '{"credentials":{"password":"plan''ted-credential"}}' ;;
*) echo '{}' ;;
esac
"#;

fn town() -> Town {
    let mut town = Town::empty();
    town.config_map("script", &json!({"broker": BROKER}));
    town.secret("secrets", &json!({"db.password": BROKER_SECRET}));
    town.site.settings = json!({
        "auth": {"disabled": true},
        "log": {"level": "debug"},
        "kubernetes": {
            "namespace": town.namespace,
            "image": testkit::cluster::SHELL_IMAGE,
            "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
            "secret": "secrets",
            "keep_succeeded": "1h",
            "pod": town.pod("script"),
        },
    })
    .to_string();
    town
}

/// Orders what does this, in somebody's name.
fn ordered(server: &Served, instance: &str, does: &str) {
    let mut body = order::body("p");
    body["parameters"] = json!({"do": does, "password": PARAMETER});
    body["context"] = json!({"platform": "kubernetes", "namespace": "n", "key": CONTEXT});
    let identity = BASE64.encode(json!({"username": IDENTITY}).to_string().as_bytes());
    let header = format!("X-Broker-API-Originating-Identity: kubernetes {identity}\r\n");
    let path = format!("{}?accepts_incomplete=true", order::path(instance));
    let answer = http::send_with(&server.address, "PUT", &path, Some(&body), &header).unwrap();
    assert_eq!(answer.status, 202, "{answer:?}");
}

/// What was planted, plain and in base64, wherever it begins in it.
fn found(text: &str) -> Vec<&'static str> {
    let is_in = |planted: &str| {
        let encoded = (0..3).map(|before| {
            let padded = [vec![b' '; before], planted.as_bytes().to_vec()].concat();
            let encoded = BASE64.encode(&padded);
            let whole = padded.len() * 8 / 6;
            encoded[(before * 8).div_ceil(6)..whole].to_owned()
        });
        encoded.chain([planted.to_owned()]).any(|spelling| text.contains(&spelling))
    };
    PLANTED.into_iter().filter(|planted| is_in(planted)).collect()
}

/// The private keys that reports are opened with, in base64.
fn keys(town: &Town) -> Vec<String> {
    let secrets = town.get("secrets");
    let is_of_keys =
        |it: &&Value| it["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("keys-"));
    let all = secrets["items"].as_array().unwrap().iter().filter(is_of_keys);
    let values = all.filter_map(|secret| secret["data"].as_object()).flatten();
    // Which is the newest is no secret.
    let values = values.filter(|(name, _)| *name != "newest").filter_map(|(_, it)| it.as_str());
    let keys: Vec<String> = values.map(|it| it.trim_end_matches('=').to_owned()).collect();
    assert!(!keys.is_empty(), "there are no keys");
    keys
}

/// Nothing that is shown has any of it.
fn nothing_is_shown(town: &Town, server: &Served) {
    let keys = keys(town);
    let found = |text: &str| {
        let keys = keys.iter().filter(|key| text.contains(*key)).map(|_| "a private key");
        found(text).into_iter().chain(keys).collect::<Vec<_>>()
    };
    // Every kind that may be listed, but Secrets.
    let kinds = town.kubectl(&["api-resources", "--namespaced", "--verbs=list", "-o", "name"]);
    for kind in kinds.lines().filter(|kind| *kind != "secrets") {
        let all = town.kubectl(&["get", kind, "-o", "json"]);
        assert_eq!(found(&all), [""; 0], "{kind}: {all}");
    }
    let pods = town.kubectl(&["get", "pods", "-o", "name"]);
    for pod in pods.lines() {
        let output = testkit::cluster::kubectl()
            .args(["-n", &town.namespace, "logs", pod, "--all-containers"])
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(found(&log), [""; 0], "the log of {pod}: {log}");
    }
    assert_eq!(found(&server.log()), [""; 0], "the server's log");
    for path in ["/metrics", "/readyz", "/admin/v1/operations", "/admin/v1/instances"] {
        let answer = format!("{:?}", http::get(&server.address, path));
        assert_eq!(found(&answer), [""; 0], "{path}: {answer}");
    }
}

#[test]
fn what_a_broker_of_version_2_is_given_and_makes_is_in_secrets_alone() {
    let town = town();
    let server = town.serve();
    assert_eq!(sold(&server), DASHBOARD);
    ordered(&server, "i", "wait");
    let progress = || {
        let last = order::last_operation(&server, "i");
        assert_eq!(found(&last.to_string()), [""; 0], "{last}");
        let said = last["description"].as_str()?.to_owned();
        said.contains("50%").then_some(said)
    };
    let said = within(30, progress);
    let said = said.unwrap_or_else(|| panic!("{}", order::last_operation(&server, "i")));
    assert_eq!(said.matches("[redacted]").count(), 2, "{said}");
    nothing_is_shown(&town, &server);
    // Who asked is kept for as long as the run may be given it: what is looked for can be found.
    let given = found(&decoded(&town.get("secrets")));
    assert!(given.contains(&IDENTITY), "{IDENTITY} is kept nowhere: {given:?}");
    std::fs::write(town.ledger.join("go"), "").unwrap();
    assert_eq!(order::settled(&server, "i")["state"], "succeeded", "{}", server.log());
    // The one says the password and a parameter, the other the password and its whole request.
    for (instance, does, least) in [("failed", "report", 2), ("garbled", "garble", 4)] {
        ordered(&server, instance, does);
        let last = order::settled(&server, instance);
        assert_eq!(
            (&last["state"], found(&last.to_string())),
            (&json!("failed"), vec![]),
            "{last}"
        );
        let said = last["description"].as_str().unwrap();
        assert!(said.matches("[redacted]").count() >= least, "{last}");
    }
    let ids = json!({"service_id": "s", "plan_id": "p", "parameters": {"password": PARAMETER}});
    let bound = order::bind(&server, "i", "b", &ids);
    assert_eq!(bound.body["credentials"]["password"], CREDENTIAL, "{bound:?}\n{}", server.log());
    let update = json!({"service_id": "s", "parameters": {"password": PARAMETER, "size": 2}});
    let path = format!("{}?accepts_incomplete=true", order::path("i"));
    let updated = http::send(&server.address, "PATCH", &path, Some(&update)).unwrap();
    assert_eq!(updated.status, 202, "{updated:?}");
    assert_eq!(order::settled(&server, "i")["state"], "succeeded", "{}", server.log());
    nothing_is_shown(&town, &server);

    // They are in Secrets: what is looked for can be found.
    let secrets: Value = town.get("secrets");
    let kept = found(&decoded(&secrets));
    for planted in [BROKER_SECRET, PARAMETER, CONTEXT, STATE, CREDENTIAL, DASHBOARD] {
        assert!(kept.contains(&planted), "{planted} is kept nowhere");
    }

    let others: Vec<&Value> =
        secrets["items"].as_array().unwrap().iter().filter(not_owned).collect();
    assert!(others.is_empty(), "what is confidential of a record is its own: {others:?}");

    // What is left of what is gone is shown, too.
    const IDS: &str = "service_id=s&plan_id=p&accepts_incomplete=true";
    for path in ["i/service_bindings/b", "i", "failed", "garbled"] {
        let gone = || {
            let path = format!("{}?{IDS}", order::path(path));
            (http::send(&server.address, "DELETE", &path, None)?.status == 410).then_some(())
        };
        assert!(within(60, gone).is_some(), "{path} stays:\n{}", server.log());
    }
    let tombstones = ["get", "configmaps", "-l", "manciple.dev/keeps=tombstone", "-o", "name"];
    let buried = || (town.kubectl(&tombstones).lines().count() == 4).then_some(());
    assert!(within(60, buried).is_some(), "{}", town.kubectl(&tombstones));
    nothing_is_shown(&town, &server);
    drop(server);
    assert_eq!(sold(&town.serve()), DASHBOARD, "as it was saved");
}

/// Says aloud what its pod holds beside its configuration.
const BESIDE: &str = r#"#!/bin/sh
if [ "$1" = catalog ]; then
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,"plans":[
        {"id":"p","name":"small","description":"d"}]}]}'
    exit
fi
echo "the variable has $BESIDE, the volume $(cat /beside/password)" >&2
exit 1
"#;

#[test]
fn what_the_pod_policy_gives_of_secrets_is_masked_wherever_its_broker_tells_it() {
    let mut town = town();
    town.config_map("script", &json!({"broker": BESIDE}));
    town.secret("variable", &json!({"password": IN_A_VARIABLE}));
    town.secret("volume", &json!({"password": IN_A_VOLUME}));
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    let pod = &mut settings["kubernetes"]["pod"];
    let key = json!({"secretKeyRef": {"name": "variable", "key": "password"}});
    pod["env"] = json!([{"name": "BESIDE", "valueFrom": key}]);
    for (member, beside) in [
        ("volumes", json!({"name": "beside", "secret": {"secretName": "volume"}})),
        ("volumeMounts", json!({"name": "beside", "mountPath": "/beside"})),
    ] {
        pod[member].as_array_mut().unwrap().push(beside);
    }
    town.site.settings = settings.to_string();
    let server = town.serve();
    ordered(&server, "i", "tell");
    let last = order::settled(&server, "i");
    assert_eq!(last["state"], "failed", "{last}");
    // It has both: nothing at all would be masked as nothing.
    let masked = "the variable has [redacted], the volume [redacted]";
    let said = last["description"].as_str().unwrap();
    assert!(said.ends_with(masked), "{said}");
    for kind in ["serviceinstances", "events"] {
        let is_told = || town.get(kind).to_string().contains(masked).then_some(());
        assert!(within(20, is_told).is_some(), "{kind}: {}", town.get(kind));
    }
    let pods = town.get("pods")["items"].as_array().unwrap().clone();
    let of = |pod: &&Value| pod["metadata"]["annotations"]["manciple.dev/instance-id"] == "i";
    let pod = pods.iter().find(of).unwrap()["metadata"]["name"].as_str().unwrap();
    let log = town.kubectl(&["logs", pod]);
    assert!(log.contains(masked), "{log}");
    nothing_is_shown(&town, &server);
}

/// What dashboards are told to say who they are.
fn sold(server: &Served) -> String {
    let client = || {
        let catalog = http::get(&server.address, "/v2/catalog")?.body;
        Some(catalog["services"][0]["dashboard_client"]["secret"].as_str()?.to_owned())
    };
    within(60, client).unwrap_or_else(|| panic!("{}", server.log()))
}

/// Whether it has something of a record, and belongs to none.
fn not_owned(secret: &&Value) -> bool {
    let kept = found(&decoded(&json!({"items": [secret]})));
    let owners = secret["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten().map(|owner| &owner["kind"]);
    let is_owned = owners.any(|kind| kind == "ServiceInstance" || kind == "ServiceBinding");
    kept.iter().any(|planted| ![BROKER_SECRET, DASHBOARD].contains(planted)) && !is_owned
}

/// The contents of all Secrets, as text.
fn decoded(secrets: &Value) -> String {
    let all = secrets["items"].as_array().unwrap().iter();
    let values = all.filter_map(|secret| secret["data"].as_object()).flat_map(|data| data.values());
    let bytes = values.filter_map(|value| BASE64.decode(value.as_str()?.as_bytes()).ok());
    bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
}
