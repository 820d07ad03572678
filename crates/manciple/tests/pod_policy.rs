//! On a real cluster: the pods of runs as the API server has them, restricted unless a policy says otherwise; how long
//! Jobs are kept; and the catalog, which is asked for by Jobs.

mod support;

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use support::brokers::{Brokers, order_of, script, sells};
use support::town::Town;
use support::{Served, http, order, within};

/// Without what somebody else wrote into it: the scheduler, admission.
fn of_ours(pod: &Value, members: &[&str]) -> Value {
    let spec = pod["spec"].as_object().unwrap();
    let ours = members.iter().map(|member| ((*member).to_owned(), spec[*member].clone()));
    Value::Object(ours.collect())
}

/// The pod of an instance's provision.
fn pod_of(town: &Town, instance: &str) -> Value {
    let pods = town.get("pods")["items"].as_array().unwrap().clone();
    let of = |pod: &&Value| pod["metadata"]["annotations"]["manciple.dev/instance-id"] == instance;
    pods.iter().find(of).unwrap_or_else(|| panic!("no pod of {instance}")).clone()
}

/// The Job of an instance's provision.
fn job_of(town: &Town, instance: &str) -> Value {
    let jobs = town.get("jobs")["items"].as_array().unwrap().clone();
    let of = |job: &&Value| job["metadata"]["annotations"]["manciple.dev/instance-id"] == instance;
    jobs.iter().find(of).unwrap_or_else(|| panic!("no Job of {instance}")).clone()
}

/// The instances that have one of these.
fn of_instances(town: &Town, what: &str) -> Vec<String> {
    let all = town.get(what)["items"].as_array().unwrap().clone();
    let of = |it: &Value| it["metadata"]["annotations"]["manciple.dev/instance-id"].clone();
    let mut of: Vec<String> =
        all.iter().filter_map(|it| of(it).as_str().map(str::to_owned)).collect();
    of.sort();
    of
}

#[test]
fn pods_are_restricted_without_a_token_and_as_the_policy_of_their_broker_says() {
    let town = Town::brokers("together");
    town.script("one", &script("s", &["small"], ""));
    town.account("runner", "");
    town.secret("registry", &json!({".dockerconfigjson": "{}"}));
    let mut broker = town.broker("one");
    broker["spec"]["keepSucceeded"] = json!("1h");
    broker["spec"]["grace"] = json!("2s");
    broker["spec"]["startTimeout"] = json!("4m");
    broker["spec"]["deadline"] = json!("7m");
    let pod = broker["spec"]["pod"].as_object_mut().unwrap();
    pod.extend(
        json!({
            "serviceAccountName": "runner",
            "imagePullSecrets": ["registry"],
            "imagePullPolicy": "IfNotPresent",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "resources": {"requests": {"cpu": "1m"}},
            "annotations": {"sidecar.istio.io/inject": "false"},
        })
        .as_object()
        .unwrap()
        .clone(),
    );
    town.make(&broker);
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    let made = order::provisioned(&server, "i", &order_of("s", "small"));
    assert_eq!(made["state"], "succeeded", "{made}\n{}", server.log());

    let pod = pod_of(&town, "i");
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let expected = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "imagePullSecrets": [{"name": "registry"}],
        // The agent of a ConfigMap is a program of one architecture, this machine's.
        "nodeSelector": {"kubernetes.io/arch": architecture, "kubernetes.io/os": "linux"},
        "restartPolicy": "Never",
        "securityContext": {
            "fsGroup": 65532, "runAsGroup": 65532, "runAsNonRoot": true, "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "serviceAccountName": "runner",
        // Two for the broker, five for its report.
        "terminationGracePeriodSeconds": 7,
    });
    let members: Vec<&str> = expected.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(of_ours(&pod, &members), expected);
    assert_eq!(pod["metadata"]["annotations"]["sidecar.istio.io/inject"], "false");
    let containers = pod["spec"]["containers"].as_array().unwrap();
    assert_eq!(containers.len(), 1);
    assert_eq!(
        containers[0]["securityContext"],
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}})
    );
    assert_eq!(containers[0]["imagePullPolicy"], "IfNotPresent");
    assert_eq!(containers[0]["resources"]["requests"]["cpu"], "1m");
    for volume in pod["spec"]["volumes"].as_array().unwrap() {
        let text = volume.to_string();
        assert!(!text.contains("token") && !text.contains("serviceAccount"), "{volume}");
    }

    let job = &job_of(&town, "i")["spec"];
    assert_eq!(job["backoffLimit"], 0, "an attempt is one pod");
    // The start, the deadline, the grace, and half a minute around them.
    assert_eq!(job["activeDeadlineSeconds"], 4 * 60 + 7 * 60 + 2 + 30);
}

/// For brokers that ask the API server, and for those that find others by the variables of their Services.
#[test]
fn a_broker_has_a_token_and_the_variables_of_services_where_its_policy_says_so() {
    let town = Town::brokers("together");
    let does = "[ $5 != s-loud ] || { cat /var/run/secrets/kubernetes.io/serviceaccount/token >&2; exit 1; }
                [ $1 != bind ] || { token=/var/run/secrets/kubernetes.io/serviceaccount/token; \
                echo \"{\\\"credentials\\\": {\\\"token\\\": $(wc -c <$token), \
                \\\"port\\\": \\\"$OTHER_SERVICE_PORT\\\"}}\"; exit; }";
    town.script("one", &script("s", &["small", "loud"], does));
    town.account("runner", "");
    town.make(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"},
        "spec": {"ports": [{"port": 4711}]},
    }));
    let mut broker = town.broker("one");
    let pod = &mut broker["spec"]["pod"];
    pod["serviceAccountName"] = json!("runner");
    pod["automountServiceAccountToken"] = json!(true);
    pod["enableServiceLinks"] = json!(true);
    town.make(&broker);
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    let made = order::provisioned(&server, "i", &order_of("s", "small"));
    assert_eq!(made["state"], "succeeded", "{made}\n{}", server.log());
    let ids = json!({"service_id": "s", "plan_id": "s-small"});
    let bound = order::bind(&server, "i", "b", &ids);
    let credentials = &bound.body["credentials"];
    assert!(credentials["token"].as_u64() > Some(100), "{bound:?}\n{}", server.log());
    assert_eq!(credentials["port"], "4711", "{bound:?}");

    // What it is given so is as confidential as a Secret of its own.
    let failed = order::provisioned(&server, "l", &order_of("s", "loud"));
    assert_eq!(failed["state"], "failed", "{failed}");
    let name = pod_of(&town, "l")["metadata"]["name"].as_str().unwrap().to_owned();
    for said in [failed.to_string(), town.kubectl(&["logs", &name]), town.get("events").to_string()]
    {
        assert!(!said.contains("eyJ"), "a token is told: {said}");
    }
}

#[test]
fn jobs_are_kept_for_as_long_as_is_said_and_go_with_their_pods() {
    let town = Town::brokers("together");
    let does = "[ $5 != s-fails ] || { echo 'no luck' >&2; exit 3; }";
    town.script("one", &script("s", &["small", "fails"], does));
    let mut broker = town.broker("one");
    // Longer than their names are taken for, a minute, and than it takes until somebody looks, half of one.
    broker["spec"]["keepSucceeded"] = json!("150s");
    broker["spec"]["keepFailed"] = json!("150s");
    town.make(&broker);
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    for (instance, plan, state) in [("a", "small", "succeeded"), ("b", "fails", "failed")] {
        let ended = order::provisioned(&server, instance, &order_of("s", plan));
        assert_eq!(ended["state"], state, "{ended}\n{}", server.log());
        let left = of_instances(&town, "jobs");
        assert!(left.contains(&instance.to_owned()), "{instance}: gone at once");
    }
    let run = pod_of(&town, "b")["metadata"]["labels"]["manciple.dev/run"].clone();
    let logs = town.site.client(&server.url(), &["logs", run.as_str().unwrap()]).output().unwrap();
    assert!(String::from_utf8_lossy(&logs.stdout).contains("no luck"), "{logs:?}");
    std::thread::sleep(Duration::from_secs(110));
    for what in ["jobs", "pods"] {
        assert_eq!(of_instances(&town, what), ["a", "b"], "{what}: gone before their time");
    }
    for what in ["jobs", "pods"] {
        let gone = || of_instances(&town, what).is_empty().then_some(());
        assert!(within(150, gone).is_some(), "{what} stay: {:?}", of_instances(&town, what));
    }
}

/// The label of a node by its name.
const HOST: &str = "kubernetes.io/hostname";

#[test]
fn a_plan_has_pods_and_jobs_as_it_says_and_another_as_its_broker_does() {
    let town = Town::brokers("together");
    let does = "case $7 in bad-*) echo 'no luck' >&2; exit 3 ;; esac";
    town.script("one", &script("s", &["small", "large"], does));
    town.account("runner", "");
    town.secret("registry", &json!({".dockerconfigjson": "{}"}));
    // The agent of a ConfigMap chooses nodes by their kind, whatever is said here.
    let host = town.get("nodes")["items"][0]["metadata"]["labels"][HOST].clone();
    let mut broker = town.broker("one");
    broker["spec"]["plans"] = json!([{
        "planID": "s-large",
        "keepSucceeded": "1h",
        "keepFailed": "0s",
        "pod": {
            "serviceAccountName": "runner",
            "imagePullSecrets": ["registry"],
            "nodeSelector": {HOST: host},
        },
    }]);
    town.make(&broker);
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    // Of its pod the API server has filled in what the Job leaves open.
    let said = |job: &Value| {
        let pod = &job["spec"]["template"]["spec"];
        let kept = job["metadata"]["annotations"]["manciple.dev/kept"].as_str().unwrap();
        let kept: Value = serde_json::from_str(kept).unwrap();
        json!({
            "serviceAccountName": pod["serviceAccountName"],
            "imagePullSecrets": pod["imagePullSecrets"],
            HOST: pod["nodeSelector"][HOST],
            "keepSucceeded": kept["succeeded"],
            "keepFailed": kept["failed"],
        })
    };
    let large = json!({
        "serviceAccountName": "runner",
        "imagePullSecrets": [{"name": "registry"}],
        HOST: host,
        "keepSucceeded": 3600,
        "keepFailed": 0,
    });
    let small = json!({
        "serviceAccountName": null,
        "imagePullSecrets": null,
        HOST: null,
        "keepSucceeded": 0,
        "keepFailed": 3600,
    });
    for (plan, expected) in [("large", large), ("small", small)] {
        for (kind, state) in [("good", "succeeded"), ("bad", "failed")] {
            let instance = format!("{kind}-{plan}");
            let ended = order::provisioned(&server, &instance, &order_of("s", plan));
            assert_eq!(ended["state"], state, "{instance}: {ended}\n{}", server.log());
            assert_eq!(said(&job_of(&town, &instance)), expected, "{instance}");
        }
    }
    // The names of the others are taken for a minute, and somebody looks each half of one.
    let are_left = || (of_instances(&town, "jobs") == ["bad-small", "good-large"]).then_some(());
    assert!(within(120, are_left).is_some(), "{:?}", of_instances(&town, "jobs"));
}

/// Answers what stands in its ledger, or fails; says each time that it was asked.
const ASKED: &str = r#"#!/bin/sh
[ "$1" != catalog ] || { echo asked >>/ledger/all; cat /ledger/catalog; exit; }
echo '{}'
"#;

fn catalog(plans: &[&str]) -> String {
    let plans: Vec<Value> =
        plans.iter().map(|plan| json!({"id": plan, "name": plan, "description": "d"})).collect();
    json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": false, "plans": plans,
    }]})
    .to_string()
}

/// The names of plans that are sold.
fn plans(server: &Served) -> Vec<String> {
    let catalog = http::get(&server.address, "/v2/catalog").unwrap().body;
    let plans = catalog["services"][0]["plans"].as_array().cloned().unwrap_or_default();
    plans.iter().map(|plan| plan["name"].as_str().unwrap().to_owned()).collect()
}

fn become_plans(server: &Served, expected: &[&str]) {
    let are = || (plans(server) == expected).then_some(());
    assert!(within(60, are).is_some(), "{:?}, not {expected:?}\n{}", plans(server), server.log());
}

/// A server whose one broker answers what the test writes, read again as often as this.
fn asked(refresh: &str) -> (Town, Served) {
    let mut town = Town::empty();
    town.config_map("script", &json!({"broker": ASKED}));
    std::fs::write(town.ledger.join("catalog"), catalog(&["small", "large"])).unwrap();
    town.site.settings = json!({
        "auth": {"disabled": true},
        "catalog": {"refresh": refresh},
        "kubernetes": {
            "namespace": town.namespace,
            "image": testkit::cluster::SHELL_IMAGE,
            "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
            "pod": town.pod("script"),
        },
    })
    .to_string();
    let server = town.serve();
    (town, server)
}

#[test]
fn the_catalog_is_asked_for_again_the_last_good_one_is_kept_and_a_plan_in_use_stays() {
    let (town, server) = asked("1s");
    become_plans(&server, &["small", "large"]);
    let made = order::provisioned(&server, "i", &order::body("small"));
    assert_eq!(made["state"], "succeeded", "{made}\n{}", server.log());

    // Neither junk nor a catalog with faults takes the place of what is served.
    for bad in ["no catalog", r#"{"services":[{"id":"s"}]}"#] {
        std::fs::write(town.ledger.join("catalog"), bad).unwrap();
        let before = town.effects("asked");
        let again = || (town.effects("asked") >= before + 2).then_some(());
        assert!(within(60, again).is_some(), "it is not asked again");
        assert_eq!(plans(&server), ["small", "large"]);
        assert_eq!(http::get(&server.address, "/readyz").unwrap().status, 200);
    }
    assert!(server.log().contains("the catalog was not refreshed"), "{}", server.log());

    // One plan goes that is in use, one that is not; another comes.
    std::fs::write(town.ledger.join("catalog"), catalog(&["tiny"])).unwrap();
    become_plans(&server, &["tiny", "small"]);
    let refused = order::provision(&server, "j", &order::body("small"));
    assert_eq!(refused.status, 400, "it is no longer sold: {refused:?}");
    let path = "/v2/service_instances/i?service_id=s&plan_id=small&accepts_incomplete=true";
    assert_eq!(http::send(&server.address, "DELETE", path, None).unwrap().status, 202);
    assert_eq!(order::settled(&server, "i")["state"], "succeeded", "{}", server.log());
    become_plans(&server, &["tiny"]);
}

#[test]
fn the_last_good_catalog_outlives_its_server_whatever_its_broker_answers_then() {
    let (town, mut server) = asked("1s");
    become_plans(&server, &["small", "large"]);
    for (bad, ends) in
        [("no catalog", Signal::TERM), (r#"{"services":[{"id":"s"}]}"#, Signal::KILL)]
    {
        std::fs::write(town.ledger.join("catalog"), bad).unwrap();
        server.signal(ends);
        assert!(server.wait().is_some(), "it does not end");
        server = town.serve();
        assert_eq!(plans(&server), ["small", "large"], "{bad}: at first");
        server.says("the catalog was not refreshed");
        assert_eq!(plans(&server), ["small", "large"], "{bad}");
        let ready = http::get(&server.address, "/readyz").unwrap();
        assert_eq!(ready.status, 200, "{bad}: {ready:?}");
    }
    let made = order::provisioned(&server, "i", &order::body("small"));
    assert_eq!(made["state"], "succeeded", "{made}\n{}", server.log());
}

#[test]
fn the_catalog_is_asked_for_on_demand_where_it_is_not_at_intervals() {
    let (town, server) = asked("0s");
    become_plans(&server, &["small", "large"]);
    std::fs::write(town.ledger.join("catalog"), catalog(&["tiny"])).unwrap();
    let before = town.effects("asked");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!((town.effects("asked"), plans(&server).len()), (before, 2), "nobody asked for it");
    let output = town.site.client(&server.url(), &["catalog", "--refresh"]).output().unwrap();
    assert!(output.status.success(), "{output:?}\n{}", server.log());
    assert_eq!(plans(&server), ["tiny"]);
    assert_eq!(town.effects("asked"), before + 1);
}

/// Each replica may be asked for it: the others hear of what it has saved, whether they lead or not.
#[test]
fn a_catalog_that_one_replica_has_asked_for_is_that_of_all_at_once() {
    let (town, leader) = asked("0s");
    become_plans(&leader, &["small", "large"]);
    let other = town.serve();
    for (asked, expected) in [(&other, ["tiny"]), (&leader, ["huge"])] {
        std::fs::write(town.ledger.join("catalog"), catalog(&expected)).unwrap();
        let output = town.site.client(&asked.url(), &["catalog", "--refresh"]).output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", asked.log());
        for server in [&leader, &other] {
            let are = || (plans(server) == expected).then_some(());
            assert!(within(20, are).is_some(), "{:?}, not {expected:?}", plans(server));
        }
    }
}
