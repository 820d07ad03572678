//! Jobs in a namespace beside the server's own, with the rights that the chart gives there and no others.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::brokers::{Brokers, delete, order_of, script, sells};
use support::heard::Heard;
use support::town::Town;
use support::{Served, for_seconds, http, order, within};
use testkit::cluster::apply;

/// The chart's roles, as they are for a release `manciple` in a namespace, with Jobs in a further one.
fn roles(home: &str, jobs: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/manciple/templates/role.yaml");
    let mut roles = std::fs::read_to_string(path).unwrap();
    // There are brokers: what is said where there are none is left out.
    while let Some((before, rest)) = roles.split_once("{{- else }}") {
        let (_, after) = rest.split_once("{{- end }}").expect("the end of it");
        roles = format!("{before}{after}");
    }
    for (asked, said) in [
        (
            "{{- $isServed := ternary .Values.broker.enabled true (hasKey .Values.broker \"enabled\") -}}",
            "",
        ),
        ("{{- if $isServed -}}", ""),
        ("{{- if or .Values.broker.image .Values.brokers }}", ""),
        ("{{- range default list .Values.jobNamespaces }}", ""),
        ("{{- end }}", ""),
        ("{{ quote . }}", jobs),
        ("{{ quote .Release.Name }}", "manciple"),
        ("{{ quote $.Release.Name }}", "manciple"),
        ("{{ $.Release.Name }}", "manciple"),
        ("{{ quote .Release.Namespace }}", home),
        ("{{ quote $.Release.Namespace }}", home),
        ("{{ $.Release.Namespace }}", home),
    ] {
        assert!(roles.contains(asked), "the template does not ask for {asked} any more");
        roles = roles.replace(asked, said);
    }
    assert!(!roles.contains("{{"), "the template asks for more than is known here: {roles}");
    roles
}

/// The test cluster, for whoever has this token.
fn kubeconfig(token: &str) -> Value {
    let view = ["config", "view", "--raw", "--minify", "--flatten", "-o", "json"];
    let output = testkit::cluster::kubectl().args(view).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut config: Value = serde_json::from_slice(&output.stdout).unwrap();
    config["users"][0]["user"] = json!({"token": token});
    config
}

/// All there is of what a run needs, by kind and name; without the agent, which belongs to no run and stays.
fn there(town: &Town) -> BTreeSet<String> {
    let all = town.kubectl(&["get", "jobs,pods,secrets,configmaps", "-o", "name"]);
    all.lines().filter(|name| !name.starts_with("configmap/agent-")).map(str::to_owned).collect()
}

/// Has a server's brokers have their Jobs in a further namespace too; its agent comes as this says, if it says so.
fn may_have_jobs_in(town: &mut Town, further: &Town, delivery: &Value) {
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    let cluster = settings["kubernetes"].as_object_mut().unwrap();
    cluster.insert("job_namespaces".to_owned(), json!([further.namespace]));
    let delivery = delivery.as_object().unwrap();
    if !delivery.is_empty() {
        cluster.remove("agent_file");
    }
    cluster.extend(delivery.clone());
    town.site.settings = settings.to_string();
}

/// A server that has what this token may, once it sells.
fn served(town: &Town, token: &str) -> Served {
    let mut command = town.command();
    let kubeconfig = town.site.write("kubeconfig", &kubeconfig(token).to_string());
    command.env("KUBECONFIG", kubeconfig);
    let server = Served::start(&mut command).unwrap_or_else(|log| panic!("no server: {log}"));
    order::ready(&server);
    sells(&server, "", &["s-name"]);
    server
}

/// A server with the chart's rights, whose broker has its Jobs in a further namespace, and what is there.
fn deployed(delivery: &Value) -> (Town, Town, BTreeSet<String>, Served) {
    let mut town = Town::brokers("together");
    let jobs = Town::empty();
    may_have_jobs_in(&mut town, &jobs, delivery);

    let does = "[ $1 != bind ] || { echo \"{\\\"credentials\\\": {\\\"region\\\": \\\"$DB_REGION\\\", \
                \\\"password\\\": \\\"$(cat /secret/db.password)\\\"}}\"; exit; }";
    let does = format!("case \"$*\" in 'provision '*slow*) sleep 300 ;; esac; {does}");
    jobs.config_map("one", &json!({"broker": script("s", &["small"], &does)}));
    jobs.config_map("settings", &json!({"db.region": "eu"}));
    jobs.secret("secrets", &json!({"db.password": "planted-pa55word"}));
    let mut broker = town.broker("one");
    broker["spec"]["namespace"] = json!(jobs.namespace);
    broker["spec"]["configMap"] = json!("settings");
    broker["spec"]["secret"] = json!("secrets");
    town.make(&broker);
    let (_, token) = town.account("manciple", "");
    apply(&roles(&town.namespace, &jobs.namespace));
    let tokens = || there(&jobs).iter().any(|name| name.contains("default-token")).then_some(());
    // Made by the cluster, before 1.24.
    let _ = for_seconds(3, tokens);
    let before = there(&jobs);

    let server = served(&town, &token);
    (town, jobs, before, server)
}

/// An instance and a binding come and go by Jobs in a further namespace.
fn lives(delivery: &Value) {
    let (town, jobs, before, server) = deployed(delivery);
    let ended = order::provisioned(&server, "i", &order_of("s", "small"));
    assert_eq!(ended["state"], "succeeded", "{ended}\n{}", server.log());
    let ids = json!({"service_id": "s", "plan_id": "s-small"});
    let bound = order::bind(&server, "i", "b", &ids);
    assert_eq!(
        bound.body["credentials"],
        json!({"region": "eu", "password": "planted-pa55word"}),
        "{bound:?}\n{}",
        server.log()
    );
    let unbind = "/v2/service_instances/i/service_bindings/b?service_id=s&plan_id=s-small";
    let unbound = http::send(&server.address, "DELETE", unbind, None).unwrap();
    assert_eq!(unbound.status, 200, "{unbound:?}\n{}", server.log());
    assert_eq!(delete(&server, "", "i", "s", "small"), 202);
    assert_eq!(order::settled(&server, "i")["state"], "succeeded", "{}", server.log());
    for action in ["provision", "bind", "unbind", "deprovision"] {
        assert_eq!(town.effects(&format!("s: {action} of i")), 1, "{action}");
    }

    // The names of Jobs are taken for a minute.
    let clean = || (there(&jobs) == before).then_some(());
    assert!(within(120, clean).is_some(), "{:?}, not {before:?}\n{}", there(&jobs), server.log());
    for what in ["jobs", "pods", "serviceinstances", "servicebindings"] {
        let gone = || (town.count(what) == 0).then_some(());
        assert!(within(30, gone).is_some(), "{what} stay:\n{}", server.log());
    }
    assert!(!server.log().contains("forbidden"), "a right is missing:\n{}", server.log());
}

#[test]
fn an_instance_lives_by_the_rights_of_a_further_namespace() {
    let agent_file = testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}"));
    lives(&json!({"agent_file": agent_file}));
}

#[test]
fn with_an_init_container_it_does_too() {
    let image = testkit::cluster::AGENT_IMAGE;
    lives(&json!({"agent_delivery": "init-container", "agent_image": image}));
}

/// Its executable leaves its work to others.
const ELSEWHERE: &str = r#"#!/bin/sh
case $1 in
catalog) echo '{"jobs": {"version": 2, "capabilities": ["last-operation"]}, "services": [{
    "id": "s", "name": "s-name", "description": "d", "bindable": true, "plans": [
    {"id": "s-small", "name": "small", "description": "d"},
    {"id": "s-large", "name": "large", "description": "d"}]}]}' ;;
provision) echo '{"operation": "work", "async": true}' ;;
last-operation) echo '{"state": "succeeded"}' ;;
*) echo '{}' ;;
esac
"#;

/// A namespace that was deleted has taken all rights in it along.
#[test]
fn a_namespace_of_jobs_without_rights_keeps_no_other_from_serving_and_is_named() {
    let mut town = Town::brokers("together");
    let gone = Town::empty();
    may_have_jobs_in(&mut town, &gone, &json!({}));
    town.script("one", ELSEWHERE);
    let mut broker = town.broker("one");
    broker["spec"]["plans"] = json!([{"planID": "s-large", "namespace": gone.namespace}]);
    town.make(&broker);
    let (_, token) = town.account("manciple", "");
    // Of a namespace that nothing is in.
    let none = Town::empty();
    apply(&roles(&town.namespace, &none.namespace));
    let server = served(&town, &token);

    let heard = Heard::of(&[&server], "large");
    let answer = order::provision(&server, "large", &order_of("s", "large"));
    assert_eq!(answer.status, 202, "{answer:?}");
    let known = SystemTime::now();
    heard.says("the API server forbids it", known);
    // Its questions are looked for in all namespaces.
    let ended = order::provisioned(&server, "small", &order_of("s", "small"));
    assert_eq!(ended["state"], "succeeded", "{ended}\n{}", server.log());
    let said = format!("\"namespace\":\"{}\"", gone.namespace);
    let log = server.log();
    let mut lines = log.lines().filter(|line| line.contains("cannot be looked into"));
    assert!(lines.next().is_some_and(|line| line.contains(&said)), "{log}");
    assert!(lines.next().is_none(), "it is said more than once: {log}");
}

/// Who leads asks for Jobs in each namespace, and pods have what is there under the names that their broker gives.
#[test]
fn a_plan_has_its_jobs_and_what_they_mount_in_a_namespace_of_its_own() {
    let mut town = Town::brokers("together");
    let further = Town::empty();
    may_have_jobs_in(&mut town, &further, &json!({}));
    let does = "[ $1 != bind ] || { echo \"{\\\"credentials\\\": {\\\"region\\\": \\\"$DB_REGION\\\"}}\"; exit; }";
    let does = format!("[ $1 != provision ] || sleep 2; {does}");
    for (place, region) in [(&town, "here"), (&further, "there")] {
        place.config_map("one", &json!({"broker": script("s", &["small", "large"], &does)}));
        place.config_map("settings", &json!({"db.region": region}));
    }
    let mut broker = town.broker("one");
    broker["spec"]["configMap"] = json!("settings");
    broker["spec"]["plans"] = json!([{"planID": "s-large", "namespace": further.namespace}]);
    // Seen until the end.
    broker["spec"]["keepSucceeded"] = json!("1h");
    town.make(&broker);
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    // What asks for the catalog goes a minute later.
    let made = |place: &Town| {
        let jobs = place.get("jobs")["items"].as_array().unwrap().clone();
        let names = jobs.iter().map(|job| job["metadata"]["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("provision-")).count()
    };
    for (plan, region, places) in [("small", "here", [1, 0]), ("large", "there", [1, 1])] {
        let answer = order::provision(&server, plan, &order_of("s", plan));
        assert_eq!(answer.status, 202, "{answer:?}");
        let as_expected = || ([made(&town), made(&further)] == places).then_some(());
        assert!(within(20, as_expected).is_some(), "{plan}: {} {}", made(&town), made(&further));
        assert_eq!(order::settled(&server, plan)["state"], "succeeded", "{}", server.log());
        let ids = json!({"service_id": "s", "plan_id": format!("s-{plan}")});
        let bound = order::bind(&server, plan, "b", &ids);
        assert_eq!(bound.body["credentials"], json!({"region": region}), "{bound:?}");
        for action in ["provision", "bind"] {
            assert_eq!(town.effects(&format!("s: {action} of {plan}")), 1);
        }
    }
}

#[test]
fn a_further_namespace_that_is_deleted_is_named_though_rights_go_with_it() {
    let agent_file = testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}"));
    let (town, jobs, _, server) = deployed(&json!({"agent_file": agent_file}));
    let heard = Heard::of(&[&server], "slow");
    let answer = order::provision(&server, "slow", &order_of("s", "small"));
    assert_eq!(answer.status, 202, "{answer:?}");
    let works = || (town.effects("s: provision of slow") == 1).then_some(());
    assert!(within(60, works).is_some(), "it never begins\n{}", server.log());
    // Kubernetes begins with what is in a namespace five seconds after it was deleted, and then knows of the pod.
    let known = SystemTime::now() + Duration::from_secs(5);
    let delete = ["delete", "namespace", &jobs.namespace, "--wait=false"];
    assert!(testkit::cluster::kubectl().args(delete).output().unwrap().status.success());
    heard.says(&format!("the namespace {}", jobs.namespace), known);
    let ended = order::settled(&server, "slow");
    assert_eq!(ended["state"], "failed", "{ended}");
    assert!(!ended["description"].as_str().unwrap_or_default().contains("time was up"), "{ended}");
}
