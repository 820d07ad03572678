//! Several brokers in one server, on a real cluster: as one catalog, and each under its own path.

mod support;

use serde_json::{Value, json};
use support::brokers::{Brokers, delete, finds, order_of, prefix, script, sells};
use support::town::{Town, applied};
use support::{Served, http, order, within};

#[test]
fn two_brokers_are_one_catalog_and_a_broken_one_harms_neither() {
    let town = Town::brokers("together");
    for name in ["one", "two"] {
        town.script(name, &script(name, &["small"], ""));
        town.make(&town.broker(name));
    }
    let mut broken = town.broker("broken");
    broken["spec"]["image"] = json!("manciple.test/none:1");
    broken["spec"]["pod"] = json!({"imagePullPolicy": "Never"});
    town.make(&broken);
    let mut faulty = town.broker("faulty");
    faulty["spec"]["startTimeout"] = json!("20s");
    town.script("faulty", "#!/bin/sh\necho '{\"services\":[{\"id\":\"f\",\"name\":\"f\"}]}'\n");
    town.make(&faulty);

    let server = town.serve();
    sells(&server, "", &["one-name", "two-name"]);
    for name in ["one", "two"] {
        let ended = order::provisioned(&server, name, &order_of(name, "small"));
        assert_eq!(ended["state"], "succeeded", "{name}: {ended}\n{}", server.log());
        assert_eq!(town.effects(&format!("{name}: provision of {name}")), 1);
    }
    assert_eq!(town.said("one", "Serving", &server), "1 service can be ordered");
    let said = town.said("faulty", "CatalogInvalid", &server);
    assert!(said.contains("services[0].plans"), "{said}");
    let said = town.said("broken", "NotStarted", &server);
    assert!(said.contains("the image is not on the node"), "{said}");
    let shown = town.kubectl(&["get", "brokers"]);
    assert!(shown.contains("two-name") && shown.contains("NotStarted"), "{shown}");
    for name in ["one", "two"] {
        assert_eq!(delete(&server, "", name, name, "small"), 202);
        assert_eq!(order::settled(&server, name)["state"], "succeeded");
        assert_eq!(town.effects(&format!("{name}: deprovision of {name}")), 1);
    }
}

#[test]
fn apart_each_has_its_own_path_records_and_end() {
    let town = Town::brokers("apart");
    for name in ["one", "two"] {
        town.script(name, &script("s", &["small"], &format!("echo {name} >>/ledger/who")));
    }
    town.make(&town.broker("one"));
    let server = town.serve();
    sells(&server, "/brokers/one", &["s-name"]);
    // The same ids are other things at another broker, which comes while the server runs.
    town.make(&town.broker("two"));
    sells(&server, "/brokers/two", &["s-name"]);
    for name in ["one", "two"] {
        let path = format!("/brokers/{name}/v2/service_instances/i");
        let put = format!("{path}?accepts_incomplete=true");
        let body = order_of("s", "small");
        let answer = http::send(&server.address, "PUT", &put, Some(&body)).unwrap();
        assert_eq!(answer.status, 202, "{answer:?}");
        let ended = || {
            let last = http::get(&server.address, &format!("{path}/last_operation"))?.body;
            (last["state"] == "succeeded").then_some(())
        };
        assert!(within(20, ended).is_some(), "{}", server.log());
    }
    let who = std::fs::read_to_string(town.ledger.join("who")).unwrap();
    assert_eq!(who, "one\ntwo\n");
    assert_eq!(town.count("serviceinstances"), 2);

    // What is said for all of it is at the root; what is of one is below it.
    for (path, status) in [
        ("/readyz", 200),
        ("/metrics", 200),
        ("/brokers/one/openapi.json", 200),
        ("/brokers/one/admin/v1/instances", 200),
        ("/v2/catalog", 404),
        ("/brokers/none/v2/catalog", 404),
        ("/brokers/one", 404),
        ("/brokers/one/nothing", 404),
    ] {
        assert_eq!(http::get(&server.address, path).unwrap().status, status, "{path}");
    }
    let url = format!("{}/brokers/two", server.url());
    for arguments in [&["catalog"][..], &["instances"], &["status", "i"], &["operations"]] {
        let output = town.site.client(&url, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    // One that goes is served to the end of its last instance, and by nobody after.
    town.kubectl(&["delete", "broker", "two"]);
    let kept = || {
        let answer = http::send(
            &server.address,
            "PUT",
            "/brokers/two/v2/service_instances/j?accepts_incomplete=true",
            Some(&order_of("s", "small")),
        )?;
        (answer.status == 400).then_some(())
    };
    assert!(within(20, kept).is_some(), "it is still sold\n{}", server.log());
    assert_eq!(
        http::get(&server.address, "/brokers/two/v2/service_instances/i").unwrap().status,
        200
    );
    town.make(&town.broker("two"));
    let sold = || (town.ready("two")["reason"] == "Serving").then_some(());
    assert!(within(20, sold).is_some(), "{}\n{}", town.ready("two"), server.log());
    assert_eq!(delete(&server, "/brokers/two", "i", "s", "small"), 202);
    let gone = || {
        let path = "/brokers/two/v2/service_instances/i/last_operation";
        (http::get(&server.address, path)?.body["state"] == "succeeded").then_some(())
    };
    assert!(within(20, gone).is_some(), "{}", server.log());
    // One that has records is there for those who ask; one that never had any is gone.
    town.script("three", &script("t", &["small"], ""));
    town.make(&town.broker("three"));
    sells(&server, "/brokers/three", &["t-name"]);
    town.kubectl(&["delete", "brokers", "two", "three"]);
    let closed =
        || (http::get(&server.address, "/brokers/three/v2/catalog")?.status == 404).then_some(());
    // Another replica may hear late that it is withdrawn, and be heard of late.
    sells(&server, "/brokers/three", &[]);
    assert!(within(200, closed).is_some(), "{}", server.log());
    sells(&server, "/brokers/two", &[]);
    let kept = || town.get("configmaps").to_string().contains("broker/three");
    assert!(within(20, || (!kept()).then_some(())).is_some(), "its catalog stays");
}

/// Two of one image have nothing of each other's: neither under the keys that both have, nor under those that one has.
fn each_finds_its_own_configuration(how: &str) {
    let town = Town::brokers(how);
    let names = ["one", "two"];
    for name in names {
        town.script(name, &finds(name));
        let own = format!("own-{name}");
        let only = format!("of.{name}");
        town.config_map(&own, &json!({"region": format!("region-{name}"), (only): name}));
        town.secret(&own, &json!({"password": format!("planted-{name}")}));
        let mut broker = town.broker(name);
        broker["spec"]["configMap"] = json!(own);
        broker["spec"]["secret"] = json!(own);
        broker["spec"]["pod"]["env"] = json!([{"name": "WHOSE", "value": name}]);
        town.make(&broker);
    }
    let server = town.serve();
    let all = ["one-name", "two-name"];
    for (name, alone) in names.iter().zip(all.chunks(1)) {
        let sold = if how == "together" { &all[..] } else { alone };
        sells(&server, &prefix(how, name), sold);
    }
    let path = |name: &str| format!("{}{}", prefix(how, name), order::path(name));
    let get = |path: &str| http::get(&server.address, path).expect("an answer").body;
    let put = |path: &str, body: &Value| {
        http::send(&server.address, "PUT", path, Some(body)).expect("an answer")
    };
    // Both go on at once: what is another's is at hand.
    for name in names {
        let path = format!("{}?accepts_incomplete=true", path(name));
        let answer = put(&path, &order_of(name, "small"));
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    for name in names {
        let ended = || {
            let last = get(&format!("{}/last_operation", path(name)));
            (last["state"] != "in progress").then_some(last)
        };
        let ended = within(30, ended).unwrap_or_else(|| panic!("{name}:\n{}", server.log()));
        assert_eq!(ended["state"], "succeeded", "{name}: {ended}\n{}", server.log());
        let catalog = get(&format!("{}/v2/catalog", prefix(how, name)));
        let mut services = catalog["services"].as_array().unwrap().iter();
        let service = services.find(|service| service["id"] == name).unwrap();
        assert_eq!(service["description"], format!("in region-{name}"));
        assert_eq!(get(&path(name))["dashboard_url"], format!("https://region-{name}.example"));
        let ids = json!({"service_id": name, "plan_id": format!("{name}-small")});
        let bound = put(&format!("{}/service_bindings/b", path(name)), &ids);
        let found = json!({
            "region": format!("region-{name}"),
            "password": format!("planted-{name}"),
            "files": format!("/config/of.{name} /config/region /secret/password"),
            "variables": format!("region-{name} planted-{name} {name} {name}"),
        });
        assert_eq!(bound.body["credentials"], found, "{bound:?}\n{}", server.log());
    }
}

#[test]
fn together_each_broker_finds_its_own_configuration() {
    each_finds_its_own_configuration("together");
}

#[test]
fn apart_each_broker_finds_its_own_configuration() {
    each_finds_its_own_configuration("apart");
}

#[test]
fn a_broker_is_edited_removed_and_created_again() {
    let town = Town::brokers("together");
    for (map, does) in [("one", "echo old >>/ledger/who"), ("newer", "echo new >>/ledger/who")] {
        town.script(map, &script("one", &["small"], does));
    }
    town.script("both", &script("two", &["small"], ""));
    town.make(&town.broker("one"));
    let mut server = town.serve();
    let who = || std::fs::read_to_string(town.ledger.join("who")).unwrap_or_default();
    assert_eq!(order::provisioned(&server, "a", &order_of("one", "small"))["state"], "succeeded");

    let mut newer = town.broker("one");
    newer["spec"]["pod"] = town.pod("newer");
    town.make(&newer);
    let generation = || (town.ready("one")["observedGeneration"] == 2).then_some(());
    assert!(within(20, generation).is_some(), "{}\n{}", town.ready("one"), server.log());
    assert_eq!(order::provisioned(&server, "b", &order_of("one", "small"))["state"], "succeeded");
    assert_eq!(who(), "old\nnew\n");

    // Edited into what cannot be: its instances stay, and so does its catalog.
    let refused = {
        let mut wrong = newer.clone();
        wrong["spec"]["deadline"] = json!("soon");
        wrong["metadata"]["namespace"] = json!(town.namespace);
        applied(&wrong).unwrap_err()
    };
    assert!(refused.contains("spec.deadline"), "{refused}");
    let mut wrong = newer.clone();
    wrong["spec"]["pod"]["securityContext"] = json!({"runAsUsr": 7});
    town.make(&wrong);
    let said = town.said("one", "SpecInvalid", &server);
    assert!(said.contains("spec.pod.securityContext.runAsUsr"), "{said}");
    sells(&server, "", &["one-name"]);

    town.kubectl(&["delete", "broker", "one"]);
    town.make(&json!({
        "apiVersion": "manciple.dev/v1alpha1", "kind": "Broker", "metadata": {"name": "two"},
        "spec": {"image": testkit::cluster::SHELL_IMAGE, "pod": town.pod("both")},
    }));
    // Kept for its instances, and no longer sold; also by a server that begins without it.
    sells(&server, "", &["two-name", "one-name"]);
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().is_some(), "it does not end");
    server = town.serve();
    assert_eq!(order::provision(&server, "c", &order_of("one", "small")).status, 400);
    assert_eq!(delete(&server, "", "a", "one", "small"), 202);
    let ended = order::settled(&server, "a");
    assert_eq!(ended["state"], "failed", "{ended}");
    let said = ended["description"].as_str().unwrap();
    assert!(said.contains("create the Broker again"), "{said}");

    town.make(&newer);
    town.said("one", "Serving", &server);
    assert_eq!(delete(&server, "", "a", "one", "small"), 202);
    assert_eq!(order::settled(&server, "a")["state"], "succeeded", "{}", server.log());
    assert_eq!(town.effects("one: deprovision of a"), 1);
}

#[test]
fn a_service_stays_with_the_broker_that_has_it() {
    let town = Town::brokers("together");
    town.script("first", &script("s", &["small"], "echo first >>/ledger/who"));
    town.script("later", &script("s", &["small"], "echo later >>/ledger/who"));
    town.make(&town.broker("first"));
    let server = town.serve();
    town.make(&town.broker("later"));
    let said = town.said("later", "ServiceTaken", &server);
    assert!(said.contains("services[0].id: is taken by Broker first"), "{said}");
    assert_eq!(order::provisioned(&server, "a", &order_of("s", "small"))["state"], "succeeded");
    // Free again, it is the other's without being asked for.
    town.kubectl(&["delete", "broker", "first"]);
    town.said("later", "Serving", &server);
    assert_eq!(order::provisioned(&server, "b", &order_of("s", "small"))["state"], "succeeded");
    let who = std::fs::read_to_string(town.ledger.join("who")).unwrap();
    assert_eq!(who, "first\nlater\n");
}

#[test]
fn a_plan_has_pods_and_a_namespace_has_jobs_of_their_own() {
    let mut town = Town::brokers("together");
    let jobs = Town::empty();
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    settings["kubernetes"]["job_namespaces"] = json!([jobs.namespace]);
    town.site.settings = settings.to_string();
    let does = "[ $5 != s-slow ] || sleep 60";
    jobs.config_map("one", &json!({"broker": script("s", &["small", "large", "slow"], does)}));
    let mut broker = town.broker("one");
    let pod = town.pod("one");
    broker["spec"]["namespace"] = json!(jobs.namespace);
    broker["spec"]["keepSucceeded"] = json!("1h");
    broker["spec"]["pod"]["resources"] =
        json!({"requests": {"cpu": "1m"}, "limits": {"memory": "64Mi"}});
    broker["spec"]["pod"]["env"] = json!([{"name": "WHOSE", "value": "broker"}]);
    broker["spec"]["plans"] = json!([
        {
            "planID": "s-large",
            "deadline": "7m",
            "pod": {
                "resources": {"limits": {"memory": "96Mi"}},
                "securityContext": {"runAsUser": 7, "runAsNonRoot": true},
                "env": [],
                "tolerations": [{"key": "large", "operator": "Exists"}],
                "labels": {"size": "large"},
            },
        },
        {"planID": "s-slow", "deadlines": {"provision": "2s"}, "keepFailed": "0s"},
    ]);
    town.make(&broker);
    let mut elsewhere = town.broker("elsewhere");
    elsewhere["spec"]["namespace"] = json!("kube-system");
    town.make(&elsewhere);
    let server = town.serve();
    sells(&server, "", &["s-name"]);
    let said = town.said("elsewhere", "SpecInvalid", &server);
    assert!(said.contains("spec.namespace") && said.contains("job_namespaces"), "{said}");

    for (instance, plan) in [("a", "small"), ("b", "large")] {
        let ended = order::provisioned(&server, instance, &order_of("s", plan));
        assert_eq!(ended["state"], "succeeded", "{ended}\n{}", server.log());
    }
    let of = |instance: &str| {
        let all = jobs.get("pods")["items"].as_array().unwrap().clone();
        let of =
            |pod: &&Value| pod["metadata"]["annotations"]["manciple.dev/instance-id"] == instance;
        all.iter().find(of).unwrap_or_else(|| panic!("no pod of {instance}")).clone()
    };
    let (small, large) = (of("a"), of("b"));
    let container = |pod: &Value| pod["spec"]["containers"][0].clone();
    assert_eq!(container(&small)["resources"]["limits"]["memory"], "64Mi");
    assert_eq!(small["spec"]["securityContext"]["runAsUser"], 65532);
    assert!(container(&small)["env"].to_string().contains("WHOSE"));
    // Given, a member is replaced whole; the volumes of the broker stay.
    assert_eq!(
        container(&large)["resources"],
        json!({"limits": {"memory": "96Mi"}, "requests": {"memory": "96Mi"}})
    );
    assert_eq!(large["spec"]["securityContext"], json!({"runAsUser": 7, "runAsNonRoot": true}));
    assert!(!container(&large)["env"].to_string().contains("WHOSE"));
    assert_eq!(large["metadata"]["labels"]["size"], "large");
    assert!(large["spec"]["tolerations"].to_string().contains("large"));
    assert!(container(&large)["securityContext"].to_string().contains("ALL"), "restricted");
    for volume in pod["volumes"].as_array().unwrap() {
        assert!(
            large["spec"]["volumes"]
                .as_array()
                .unwrap()
                .iter()
                .any(|it| it["name"] == volume["name"])
        );
    }
    assert_eq!(town.count("jobs"), 0, "its Jobs are elsewhere");

    let ended = order::provisioned(&server, "c", &order_of("s", "slow"));
    assert_eq!(ended["state"], "failed", "{ended}");
    let failed = || town.kubectl(&["get", "serviceinstances", "-o", "json"]);
    assert!(failed().contains("Timeout"), "{}", failed());
}

/// Together they are one catalog; templates have a path of their own beside it, and their own orders.
#[test]
fn templates_are_one_broker_among_others() {
    let mut town = Town::brokers("together");
    let crds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/templates/crds.yaml");
    town.kubectl(&["apply", "-f", crds]);
    let established =
        ["wait", "--for=condition=Established", "crd/templates.template.openshift.io"];
    town.kubectl(&established);
    town.make(&json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template",
        "metadata": {"name": "page"}, "objects": [],
    }));
    town.script("one", &script("one", &["small"], ""));
    town.make(&town.broker("one"));
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    let namespaces = json!([town.namespace]);
    settings["kubernetes"]["templates"] = json!({
        "namespaces": namespaces, "instance_namespaces": namespaces, "controller": false,
    });
    town.site.settings = settings.to_string();
    let server = town.serve();
    sells(&server, "", &["one-name"]);
    sells(&server, "/brokers/template.openshift.io", &["page"]);
    let ended = order::provisioned(&server, "one", &order_of("one", "small"));
    assert_eq!(ended["state"], "succeeded", "{ended}\n{}", server.log());
    // What one of them knows is nobody's business at the other.
    let id = "55555555-2222-4333-8444-555555555555";
    for (path, status) in [
        ("/v2/service_instances/one".to_owned(), 200),
        (format!("/v2/service_instances/{id}"), 404),
        ("/brokers/template.openshift.io/v2/service_instances/one".to_owned(), 400),
    ] {
        assert_eq!(http::get(&server.address, &path).unwrap().status, status, "{path}");
    }
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
            let catalog = http::get(&server.address, "/v2/catalog")?.body;
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
    assert!(said.contains("The catalog from before stays in force"), "{said}");
    offers(&["large", "new"]);
    plans(&["large", "new", "small"]);
    assert_eq!(town.said("one", "Serving", &server), "1 service can be ordered");
}

#[test]
fn what_a_removed_broker_left_is_opened_as_soon_as_it_can_be() {
    let town = Town::brokers("apart");
    town.script("one", &script("s", &["small"], ""));
    town.make(&town.broker("one"));
    let mut server = town.serve();
    sells(&server, "/brokers/one", &["s-name"]);
    let path = "/brokers/one/v2/service_instances/i";
    let ordered = http::send(
        &server.address,
        "PUT",
        &format!("{path}?accepts_incomplete=true"),
        Some(&order_of("s", "small")),
    );
    assert_eq!(ordered.unwrap().status, 202);
    let last = format!("{path}/last_operation");
    let ended = |server: &Served| {
        within(30, || {
            (http::get(&server.address, &last)?.body["state"] == "succeeded").then_some(())
        })
    };
    assert!(ended(&server).is_some(), "{}", server.log());
    town.kubectl(&["delete", "broker", "one"]);
    server.kill();

    // Its keys cannot be read when the next server begins.
    let keys = town.kubectl(&["get", "secrets", "-o", "name"]);
    let keys = keys.lines().find(|name| name.starts_with("secret/keys-")).expect("its keys");
    let sound = town.get(keys);
    let spoilt = r#"{"data": null}"#;
    town.kubectl(&["patch", keys, "--type=merge", "-p", spoilt]);
    let server = town.start();
    server.says("it cannot be served yet");
    // What is there is not denied, and what is ordered not refused for good.
    for (method, path) in [("GET", path), ("GET", &last), ("PUT", path), ("DELETE", path)] {
        let answer = http::send(&server.address, method, path, None).unwrap();
        assert_eq!(answer.status, 503, "{method} {path}: {answer:?}");
        assert!(answer.head.contains("retry-after: "), "{method} {path}: {answer:?}");
    }
    let nobodys = "/brokers/none/v2/service_instances/i";
    assert_eq!(http::get(&server.address, nobodys).unwrap().status, 404);
    let sound = json!({"data": sound["data"]}).to_string();
    town.kubectl(&["patch", keys, "--type=merge", "-p", &sound]);
    assert!(ended(&server).is_some(), "{}", server.log());
}
