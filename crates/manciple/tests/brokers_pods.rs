//! The pods and Jobs of a `Broker`, as the API server has them, and its catalog over time: on a real cluster.

mod support;

use serde_json::{Value, json};
use support::brokers::{Brokers, order_of, script, sells};
use support::town::Town;
use support::{order, within};

/// The object of the run of an instance.
fn of_instance(town: &Town, kind: &str, instance: &str) -> Value {
    let all = town.get(kind);
    let of = |it: &&Value| it["metadata"]["annotations"]["manciple.dev/instance-id"] == instance;
    let found = all["items"].as_array().unwrap().iter().find(of);
    found.unwrap_or_else(|| panic!("no {kind} of {instance}: {all}")).clone()
}

/// What holds where nobody says otherwise: no token, no capabilities, nothing of the node.
fn assert_restricted(pod: &Value) {
    let spec = &pod["spec"];
    assert_eq!(spec["automountServiceAccountToken"], false, "{spec}");
    assert!(!spec.to_string().contains("serviceaccount/token"), "{spec}");
    assert!(!spec.to_string().contains("/var/run/secrets"), "a token is mounted: {spec}");
    assert_eq!(spec["enableServiceLinks"], false, "{spec}");
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!([Value::Null, json!(false)].contains(&spec[host]), "{host}: {spec}");
    }
    let containers = ["initContainers", "containers"].map(|of| spec[of].as_array().cloned());
    for container in containers.into_iter().flatten().flatten() {
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false, "{container}");
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}), "{container}");
    }
}

#[test]
fn a_pod_is_as_its_broker_and_its_plan_say_and_else_restricted() {
    let town = Town::brokers("together");
    town.account("db", "");
    town.script("one", &script("s", &["small", "large"], ""));
    let node = town.get("nodes")["items"][0]["metadata"]["name"].as_str().unwrap().to_owned();
    let mut broker = town.broker("one");
    broker["spec"]["keepSucceeded"] = json!("1h");
    broker["spec"]["startTimeout"] = json!("2m");
    broker["spec"]["deadline"] = json!("7m");
    for (name, value) in [
        ("serviceAccountName", json!("db")),
        ("imagePullSecrets", json!(["registry"])),
        ("nodeSelector", json!({"kubernetes.io/os": "linux"})),
        ("resources", json!({"requests": {"cpu": "1m"}, "limits": {"memory": "64Mi"}})),
    ] {
        broker["spec"]["pod"][name] = value;
    }
    broker["spec"]["plans"] = json!([{
        "planID": "s-large",
        "deadlines": {"provision": "9m"},
        "pod": {
            "imagePullSecrets": ["other"],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "resources": {"requests": {"cpu": "2m"}},
        },
    }]);
    town.make(&broker);
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    let mut lifetimes = Vec::new();
    for (plan, secret, selector, resources) in [
        (
            "small",
            "registry",
            json!({"kubernetes.io/os": "linux"}),
            json!({"requests": {"cpu": "1m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}}),
        ),
        (
            "large",
            "other",
            json!({"kubernetes.io/hostname": node}),
            json!({"requests": {"cpu": "2m"}}),
        ),
    ] {
        let ended = order::provisioned(&server, plan, &order_of("s", plan));
        assert_eq!(ended["state"], "succeeded", "{ended}\n{}", server.log());
        let pod = of_instance(&town, "pods", plan);
        assert_restricted(&pod);
        let spec = &pod["spec"];
        assert_eq!(
            spec["securityContext"],
            json!({
                "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532,
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
            "{plan}"
        );
        assert_eq!(spec["serviceAccountName"], "db", "{plan}");
        assert_eq!(spec["imagePullSecrets"], json!([{"name": secret}]), "{plan}");
        assert_eq!(spec["nodeSelector"], selector, "{plan}");
        assert_eq!(spec["containers"][0]["resources"], resources, "{plan}");
        let job = of_instance(&town, "jobs", plan);
        assert_eq!(job["spec"]["backoffLimit"], 0, "{job}");
        lifetimes.push(job["spec"]["activeDeadlineSeconds"].as_u64().unwrap());
    }
    // Until it begins, its time, the grace of a second, and half a minute to report.
    assert_eq!(lifetimes, [120 + 7 * 60 + 31, 120 + 9 * 60 + 31]);
}

/// Jobs that are kept go when their time is up; those that are not kept go at once.
#[test]
fn a_job_is_kept_as_long_as_its_broker_says_and_no_longer() {
    let town = Town::brokers("together");
    let does = "[ $5 != s-fails ] || exit 3";
    town.script("one", &script("s", &["kept", "fails", "gone"], does));
    let mut broker = town.broker("one");
    broker["spec"]["keepSucceeded"] = json!("3s");
    broker["spec"]["keepFailed"] = json!("5s");
    broker["spec"]["plans"] = json!([{"planID": "s-gone", "keepSucceeded": "0s"}]);
    town.make(&broker);
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    for (plan, state, kept) in
        [("gone", "succeeded", false), ("kept", "succeeded", true), ("fails", "failed", true)]
    {
        let ended = order::provisioned(&server, plan, &order_of("s", plan));
        assert_eq!(ended["state"], state, "{ended}\n{}", server.log());
        let released = || {
            let jobs = town.get("jobs").to_string();
            (jobs.contains("manciple.dev/released-until") || !jobs.contains(plan)).then_some(())
        };
        assert!(within(10, released).is_some(), "{}", town.get("jobs"));
        let is_kept = || {
            let jobs = town.get("jobs");
            let mut jobs = jobs["items"].as_array().unwrap().iter();
            jobs.any(|job| job["metadata"]["annotations"]["manciple.dev/instance-id"] == plan)
        };
        if kept {
            assert!(is_kept(), "{plan}: its log is gone with it");
        } else {
            assert!(within(10, || (!is_kept()).then_some(())).is_some(), "{plan} stays");
        }
    }
    // Looked for each half minute.
    let gone = || (town.count("jobs") == 0).then_some(());
    assert!(within(60, gone).is_some(), "{}\n{}", town.get("jobs"), server.log());
    assert_eq!(order::last_operation(&server, "fails")["state"], "failed");
}

/// A Job of its own asks each time; the script says what it is sold.
#[test]
fn a_catalog_is_asked_for_at_intervals_the_last_good_one_kept_and_no_plan_in_use_dropped() {
    let mut town = Town::brokers("together");
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    settings["catalog"] = json!({"refresh": "1s"});
    town.site.settings = settings.to_string();
    let offers = |plans: &[&str]| {
        let script = script("s", plans, "");
        town.script("one", &script.replacen("catalog)", "catalog) echo asked >>/ledger/all;", 1));
    };
    offers(&["small", "unused"]);
    town.make(&town.broker("one"));
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    let asked = |more: usize| {
        let before = town.effects("asked");
        let more = || (town.effects("asked") >= before + more).then_some(());
        assert!(within(20, more).is_some(), "nobody asks the broker\n{}", server.log());
    };
    let plans = |expected: &[&str]| {
        let sold = || {
            let catalog = support::http::get(&server.address, "/v2/catalog")?.body;
            let plans = catalog["services"][0]["plans"].as_array()?.clone();
            Some(plans.iter().map(|plan| plan["name"].clone()).collect::<Vec<_>>())
        };
        let as_expected = || (sold()? == expected).then_some(());
        assert!(within(20, as_expected).is_some(), "{:?}\n{}", sold(), server.log());
    };
    plans(&["small", "unused"]);
    asked(2);
    assert_eq!(order::provisioned(&server, "i", &order_of("s", "small"))["state"], "succeeded");
    offers(&["large"]);
    plans(&["large", "small"]);
    assert_eq!(order::provision(&server, "j", &order_of("s", "unused")).status, 400);
    assert_eq!(order::provisioned(&server, "k", &order_of("s", "large"))["state"], "succeeded");
    // What is no catalog changes nothing, and is asked for again.
    town.script("one", "#!/bin/sh\necho asked >>/ledger/all\necho nothing\n");
    asked(2);
    plans(&["large", "small"]);
    let said = town.said("one", "NotJson", &server);
    assert!(said.contains("The catalog before stays in force"), "{said}");
    offers(&["large", "new"]);
    plans(&["large", "new", "small"]);
    assert_eq!(town.said("one", "Serving", &server), "1 service can be ordered");
}
