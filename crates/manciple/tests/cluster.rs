//! The real binary on a real cluster: orders become resources and Jobs, and nothing that is killed is lost.

mod support;

use std::time::Duration;

use engine::names::RunName;
use osb::client::{Client, ClientSettings, Polling};
use osb::conformance::{Level, Options, Verdict};
use serde_json::{Value, json};
use support::town::Town;
use support::{Served, http, order, within};

/// Writes a line for each provision into its ledger; `slow` takes three seconds; `bind` shows what it was
/// given by the ConfigMap and by the Secret.
const BROKER: &str = r#"#!/bin/sh
case $1 in
catalog)
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
        "instances_retrievable":true,"bindings_retrievable":true,"plans":[
        {"id":"p","name":"small","description":"d"},
        {"id":"slow","name":"slow","description":"d"},
        {"id":"hangs","name":"hangs","description":"d"},
        {"id":"fails","name":"fails","description":"d"}]}]}'
    exit ;;
bind)
    printf '{"credentials": {"region": "%s", "in_a_file": "%s", "password": "%s"}}' \
        "$DB_REGION" "$(cat /config/db.region)" "$(cat /secret/db.password)" ;;
*) echo '{}' ;;
esac
echo "$1 of $7" >>/ledger/all
[ "$5" != slow ] || sleep 3
[ "$1 $5" != "provision hangs" ] || sleep 600
[ "$5" != fails ] || { echo 'no disk left' >&2; exit 3; }
"#;

const PLANTED: &str = "planted-pa55word";

/// A namespace with a broker's image, configuration and ledger.
fn town() -> Town {
    let mut town = Town::empty();
    town.config_map("script", &json!({"broker": BROKER}));
    town.config_map("settings", &json!({"db.region": "eu"}));
    town.secret("secrets", &json!({"db.password": PLANTED}));
    town.site.settings = json!({
        "auth": {"disabled": true},
        "kubernetes": {
            "namespace": town.namespace,
            "image": testkit::cluster::SHELL_IMAGE,
            "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
            "config_map": "settings",
            "secret": "secrets",
            "pod": town.pod("script"),
        },
    })
    .to_string();
    town
}

fn delete(server: &Served, path: &str) -> http::Answer {
    let path = format!("{path}?service_id=s&plan_id=p&accepts_incomplete=true");
    http::send(&server.address, "DELETE", &path, None).unwrap()
}

/// With schemas, and updates that fail where they are asked to.
const CONFORMING: &str = r#"#!/bin/sh
case $1 in
catalog)
    schema='{"parameters":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",
        "properties":{"size":{"type":"integer"}}}}'
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,"plan_updateable":true,
        "instances_retrievable":true,"bindings_retrievable":true,"allow_context_updates":true,"plans":[
        {"id":"p","name":"small","description":"d","schemas":{"service_instance":
            {"create":'"$schema"',"update":'"$schema"'}}},
        {"id":"q","name":"large","description":"d"}]}]}' ;;
bind) echo '{"credentials":{"password":"of-the-binding"}}' ;;
*)
    ! grep -q as-asked "$OSB_REQUEST_FILE" || { echo 'as asked' >&2; exit 3; }
    echo '{}' ;;
esac
"#;

/// What a platform sees is what it sees of one machine: the suite that we give to others, of the server, records that are
/// resources and runs that are Jobs.
#[test]
fn the_suite_that_we_give_to_others_passes_on_a_cluster() {
    let mut town = town();
    town.config_map("script", &json!({"broker": CONFORMING}));
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    settings["broker"] = json!({"capabilities": ["update", "request-file"]});
    town.site.settings = settings.to_string();
    let server = town.serve();
    order::ready(&server);
    let client = Client::new(ClientSettings::new(server.url())).unwrap();
    let object = |value: Value| value.as_object().cloned().map(Into::into);
    let options = Options {
        plan: Some("p".to_owned()),
        parameters: object(json!({"size": 1})),
        invalid_parameters: object(json!({"size": "large"})),
        failing_update_parameters: object(json!({"label": "as-asked"})),
        allow_mutation: true,
        polling: Polling { deadline: Duration::from_secs(120), ..Polling::default() },
        ..Options::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let report = runtime.block_on(osb::conformance::run(&client, options));
    assert!(report.conforms(Level::Recommended), "{report}\n{}", server.log());
    assert!(report.leftovers.is_empty(), "{report}");
    for check in ["deprovision", "deprovision-bound", "update-refused-whole", "update-failed"] {
        assert_eq!(report.verdict(check), Some(&Verdict::Pass), "{check}: {report}");
    }
}

#[test]
fn an_order_becomes_resources_and_jobs_and_goes_again() {
    let town = town();
    let server = town.serve();
    let mut body = order::body("p");
    body["parameters"] = json!({"admin": PLANTED});
    body["context"] = json!({"platform": "kubernetes", "namespace": PLANTED});
    assert_eq!(order::provisioned(&server, "i", &body)["state"], "succeeded");
    let again = order::provision(&server, "i", &body);
    assert_eq!(again.status, 200, "{again:?}");
    let bound = order::bind(&server, "i", "b", &json!({"service_id": "s", "plan_id": "p"}));
    assert_eq!(
        bound.body["credentials"],
        json!({"region": "eu", "in_a_file": "eu", "password": PLANTED}),
        "{bound:?}"
    );

    let instances = town.get("serviceinstances");
    let instance = &instances["items"][0];
    assert_eq!(instance["spec"]["instanceID"], "i");
    let ready = instance["status"]["conditions"].as_array().unwrap();
    assert!(ready.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"), "{ready:?}");
    for what in ["serviceinstances", "servicebindings", "jobs", "pods", "events"] {
        assert!(!town.get(what).to_string().contains(PLANTED), "{what}");
    }
    let owned = town.get("secrets");
    let of_instance =
        |it: &&Value| it["metadata"]["ownerReferences"][0]["kind"] == "ServiceInstance";
    assert!(owned["items"].as_array().unwrap().iter().any(|it| of_instance(&it)), "{owned}");
    assert!(!server.log().contains(PLANTED));

    let unbound = delete(&server, "/v2/service_instances/i/service_bindings/b");
    assert!([200, 202].contains(&unbound.status), "{unbound:?}");
    let gone = || (town.count("servicebindings") == 0).then_some(());
    assert!(within(30, gone).is_some(), "the binding's resource stays:\n{}", server.log());
    assert_eq!(delete(&server, "/v2/service_instances/i").status, 202);
    let gone = || (town.count("serviceinstances") == 0).then_some(());
    assert!(within(30, gone).is_some(), "the instance's resource stays:\n{}", server.log());
    assert_eq!(order::last_operation(&server, "i")["state"], "succeeded");
    assert_eq!(delete(&server, "/v2/service_instances/i").status, 410);
    // Their names are taken for a minute.
    let left = || (town.count("jobs") == 0).then_some(());
    assert!(within(120, left).is_some(), "{}", town.kubectl(&["get", "jobs"]));
    let ours = |it: &&Value| it["metadata"]["ownerReferences"][0]["kind"] == "ServiceInstance";
    let left = || {
        let secrets = town.get("secrets");
        (!secrets["items"].as_array().unwrap().iter().any(|it| ours(&it))).then_some(())
    };
    assert!(within(30, left).is_some(), "{}", town.kubectl(&["get", "secrets"]));
}

/// Writes down which ids it was given, as they are: no id has a control character.
const WRITES_DOWN: &str = r#"#!/bin/sh
case $1 in
catalog)
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
        "instances_retrievable":true,"bindings_retrievable":true,"plans":[
        {"id":"p","name":"small","description":"d"}]}]}'
    exit ;;
bind) echo '{"credentials":{"password":"of-the-binding"}}' ;;
*) echo '{}' ;;
esac
printf '%s\t%s\t%s\n' "$1" "$7" "$9" >>/ledger/given
"#;

/// As it stands in a URL. Of a dot nobody is to think that it leads out of a folder.
fn encoded(id: &str) -> String {
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    id.bytes().map(byte).collect()
}

/// What a Job was made for, as [`WRITES_DOWN`] has it; `None`: for the catalog.
fn made_for(job: &Value) -> Option<String> {
    let annotations = &job["metadata"]["annotations"];
    let instance = annotations["manciple.dev/instance-id"].as_str()?;
    let binding = annotations["manciple.dev/binding-id"].as_str().unwrap_or_default();
    let (action, _) = job["metadata"]["name"].as_str()?.split_once('-')?;
    Some(format!("{action}\t{instance}\t{binding}"))
}

fn is_valid_name(object: &Value) -> bool {
    object["metadata"]["name"].as_str().and_then(RunName::parse).is_some()
}

/// Waits for the end of what goes on at each of these paths.
fn succeed(server: &Served, paths: &[String]) {
    for path in paths {
        let ended = || {
            let last = http::get(&server.address, &format!("{path}/last_operation"))?.body;
            (last["state"] != "in progress").then_some(last)
        };
        let last = within(90, ended);
        let last = last.unwrap_or_else(|| panic!("{path} never ends:\n{}", server.log()));
        assert_eq!(last["state"], "succeeded", "{path}: {last}\n{}", server.log());
    }
}

#[test]
fn any_id_of_a_url_reaches_the_broker_as_it_is_and_nothing_of_it_stays() {
    let mut town = town();
    town.config_map("script", &json!({"broker": WRITES_DOWN}));
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    // Each Job is to be seen in the end.
    settings["kubernetes"]["keep_succeeded"] = json!("1h");
    town.site.settings = settings.to_string();
    let server = town.serve();
    let long = "\u{1F980}".repeat(255);
    let ids = [
        long.as_str(),
        "../../etc/passwd",
        "a%2Fb",
        " $(id) `id` $HOME %s \\n \"' ",
        "\u{202E}\u{1F980} \u{e4}?#&",
        "$(POD_IP) $$(HOME)",
        "--plan-id",
    ];
    // Each binding is called as another's instance.
    let others = ids.into_iter().cycle().skip(1);
    let pairs: Vec<(&str, &str)> = ids.into_iter().zip(others).collect();
    let instances: Vec<String> = ids.iter().map(|id| order::path(&encoded(id))).collect();
    let binding = |(instance, (_, id)): (&String, &(&str, &str))| {
        format!("{instance}/service_bindings/{}", encoded(id))
    };
    let bindings: Vec<String> = instances.iter().zip(&pairs).map(binding).collect();

    let put = |paths: &[String], body: &Value| {
        for path in paths {
            let asked = format!("{path}?accepts_incomplete=true");
            let answer = http::send(&server.address, "PUT", &asked, Some(body)).unwrap();
            assert_eq!(answer.status, 202, "{path}: {answer:?}");
        }
        succeed(&server, paths);
    };
    put(&instances, &order::body("p"));
    for path in &instances {
        let found = http::get(&server.address, path).unwrap();
        assert_eq!(found.body["plan_id"], "p", "{path}: {found:?}");
    }
    put(&bindings, &json!({"service_id": "s", "plan_id": "p"}));
    for path in &bindings {
        let found = http::get(&server.address, path).unwrap();
        assert_eq!(found.body["credentials"]["password"], "of-the-binding", "{path}: {found:?}");
    }
    let mut sorted = ids;
    sorted.sort_unstable();
    for (kind, id) in [("serviceinstances", "instanceID"), ("servicebindings", "bindingID")] {
        let all = town.get(kind)["items"].as_array().unwrap().clone();
        assert!(all.iter().all(is_valid_name), "{kind}: {all:?}");
        let mut found: Vec<&str> = all.iter().map(|it| it["spec"][id].as_str().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, sorted, "{kind}");
    }

    for (kind, paths) in [("servicebindings", &bindings), ("serviceinstances", &instances)] {
        for path in paths {
            let answer = delete(&server, path);
            assert_eq!(answer.status, 202, "{path}: {answer:?}");
        }
        succeed(&server, paths);
        let gone = || (town.count(kind) == 0).then_some(());
        assert!(within(30, gone).is_some(), "{kind} stay:\n{}", server.log());
        for path in paths {
            assert_eq!(delete(&server, path).status, 410, "{path}");
        }
    }
    let secrets = || {
        let names = town.kubectl(&["get", "secrets", "-o", "name"]);
        let of = ["instance", "binding", "provision", "bind", "unbind", "deprovision"];
        let is_of = |name: &str| of.iter().any(|of| name.starts_with(&format!("secret/{of}-")));
        names.lines().filter(|name| is_of(name)).map(str::to_owned).collect::<Vec<_>>()
    };
    let gone = || secrets().is_empty().then_some(());
    assert!(within(60, gone).is_some(), "{:?}", secrets());

    let runs = |&(instance, binding): &(&str, &str)| {
        [("provision", ""), ("bind", binding), ("unbind", binding), ("deprovision", "")]
            .map(|(action, binding)| format!("{action}\t{instance}\t{binding}"))
    };
    let mut expected: Vec<String> = pairs.iter().flat_map(runs).collect();
    expected.sort_unstable();
    let given = std::fs::read_to_string(town.ledger.join("given")).unwrap();
    let mut given: Vec<&str> = given.lines().collect();
    given.sort_unstable();
    assert_eq!(given, expected);
    let jobs = town.get("jobs")["items"].as_array().unwrap().clone();
    assert!(jobs.iter().all(is_valid_name), "{jobs:?}");
    let mut made: Vec<String> = jobs.iter().filter_map(made_for).collect();
    made.sort_unstable();
    assert_eq!(made, expected);
}

#[test]
fn a_catalog_of_a_file_needs_no_broker() {
    let mut town = town();
    let catalog = json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": true,
        "plans": [{"id": "p", "name": "small", "description": "d"}],
    }]});
    let file = town.site.write("catalog.json", &catalog.to_string());
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    settings["catalog"] = json!({"file": file});
    settings["kubernetes"]["image"] = json!("manciple.test/absent:1");
    town.site.settings = settings.to_string();
    let server = town.serve();
    let sold = http::get(&server.address, "/v2/catalog").expect("an answer").body;
    assert_eq!(sold["services"][0]["id"], "s", "{sold}");
    assert_eq!(town.count("jobs"), 0, "nobody was asked");
    // And what stops an order is told while it goes on.
    assert_eq!(order::provision(&server, "i", &order::body("p")).status, 202);
    let said = || {
        let last = order::last_operation(&server, "i");
        let said = last["description"].as_str().unwrap_or_default().to_owned();
        said.contains("the image cannot be pulled").then_some(())
    };
    assert!(within(20, said).is_some(), "{}", order::last_operation(&server, "i"));
}

#[test]
fn deleting_the_resource_is_a_deprovision() {
    let town = town();
    let server = town.serve();
    assert_eq!(order::provisioned(&server, "i", &order::body("p"))["state"], "succeeded");
    town.kubectl(&["delete", "serviceinstances", "--all", "--timeout=180s"]);
    assert_eq!(town.effects("deprovision of i"), 1);
    assert_eq!(town.count("serviceinstances"), 0);
    // The id can be used again.
    let mut body = order::body("p");
    body["parameters"] = json!({"kept": "in a Secret"});
    assert_eq!(order::provisioned(&server, "i", &body)["state"], "succeeded");
    assert_eq!(town.effects("provision of i"), 2);
    // Somebody has Kubernetes leave behind what belongs to it: nobody would find the credentials again.
    let kept = || town.kubectl(&["get", "secrets", "-o", "name"]).contains("secret/instance-");
    assert!(kept(), "the Secret of the record");
    town.kubectl(&["delete", "serviceinstances", "--all", "--cascade=orphan", "--timeout=180s"]);
    assert_eq!(town.effects("deprovision of i"), 2);
    let gone = || (!kept()).then_some(());
    assert!(within(60, gone).is_some(), "{}", town.kubectl(&["get", "secrets", "-o", "wide"]));
}

/// As a platform's delete does: it waits for nothing that is being made.
#[test]
fn deleting_the_resource_while_it_is_being_made_halts_that() {
    let town = town();
    let server = town.serve();
    assert_eq!(order::provision(&server, "i", &order::body("hangs")).status, 202);
    let begun = || (town.effects("provision of i") == 1).then_some(());
    assert!(within(60, begun).is_some(), "{}", server.log());
    town.kubectl(&["delete", "serviceinstances", "--all", "--timeout=180s"]);
    assert_eq!(town.effects("deprovision of i"), 1, "{}", server.log());
    assert_eq!(town.count("serviceinstances"), 0);
}

#[test]
fn the_finalizer_of_another_is_left_on_a_resource_and_an_id_is_free_when_it_is_gone() {
    let town = town();
    let server = town.serve();
    assert_eq!(order::provisioned(&server, "i", &order::body("p"))["state"], "succeeded");
    let name = town.kubectl(&["get", "serviceinstances", "-o", "name"]);
    let finalizers = |add: &str, remove: &str| {
        let found = town.get("serviceinstances")["items"][0]["metadata"]["finalizers"].clone();
        let mut all: Vec<String> = serde_json::from_value(found).unwrap();
        all.retain(|finalizer| finalizer != remove);
        all.extend((!add.is_empty()).then(|| add.to_owned()));
        let patch = json!({"metadata": {"finalizers": all}}).to_string();
        town.kubectl(&["patch", name.trim(), "--type=merge", "-p", &patch]);
    };
    finalizers("example.com/theirs", "");
    assert_eq!(delete(&server, "/v2/service_instances/i").status, 202);
    let theirs = || {
        let found = town.get("serviceinstances")["items"][0]["metadata"]["finalizers"].clone();
        (found == json!(["example.com/theirs"])).then_some(())
    };
    assert!(within(60, theirs).is_some(), "{}", town.get("serviceinstances"));
    assert_eq!(town.effects("deprovision of i"), 1);
    assert_eq!(delete(&server, "/v2/service_instances/i").status, 410, "what it stood for is gone");
    finalizers("", "example.com/theirs");
    let gone = || (town.count("serviceinstances") == 0).then_some(());
    assert!(within(20, gone).is_some(), "{}", server.log());
    assert_eq!(order::provisioned(&server, "i", &order::body("p"))["state"], "succeeded");
}

#[test]
fn a_deleted_resource_that_has_bindings_says_why_it_stays_and_goes_after_them() {
    let town = town();
    let server = town.serve();
    assert_eq!(order::provisioned(&server, "i", &order::body("p"))["state"], "succeeded");
    order::bind(&server, "i", "b", &json!({"service_id": "s", "plan_id": "p"}));
    town.kubectl(&["delete", "serviceinstances", "--all", "--wait=false"]);
    let said = || town.kubectl(&["describe", "serviceinstances"]);
    let words = "it was deleted, and stays for now: the service instance has bindings";
    let told = || said().contains(words).then_some(());
    assert!(within(20, told).is_some(), "{}", said());
    // Events are forgotten: it is told again with the next try.
    town.kubectl(&["delete", "events", "--all"]);
    assert!(within(120, told).is_some(), "{}", said());
    town.kubectl(&["delete", "servicebindings", "--all", "--timeout=180s"]);
    let gone = || (town.count("serviceinstances") == 0).then_some(());
    assert!(within(60, gone).is_some(), "its resource stays:\n{}", server.log());
}

#[test]
fn a_record_whose_secret_is_lost_hides_no_other_and_can_be_purged() {
    let town = town();
    let mut server = town.serve();
    for id in ["kept", "lost"] {
        assert_eq!(order::provisioned(&server, id, &order::body("p"))["state"], "succeeded");
    }
    order::bind(&server, "lost", "b", &json!({"service_id": "s", "plan_id": "p"}));
    let binding = town.get("servicebindings")["items"][0]["metadata"]["name"].clone();
    town.kubectl(&["delete", "secret", binding.as_str().unwrap()]);
    // What this process has read it knows.
    server.kill();
    server = town.serve();
    let get = |path: &str| http::send(&server.address, "GET", path, None).unwrap();
    let listed = get("/admin/v1/bindings");
    assert_eq!((listed.status, &listed.body["items"]), (200, &json!([])), "{listed:?}");
    assert_eq!(listed.body["unreadable"][0]["binding_id"], "b", "{listed:?}");
    let listed = get("/admin/v1/instances");
    assert_eq!(listed.body["items"].as_array().unwrap().len(), 2, "{listed:?}");
    assert_eq!(get("/admin/v1/operations").status, 200);
    let purge =
        |body: Value| http::send(&server.address, "POST", "/admin/v1/purge", Some(&body)).unwrap();
    let refused = purge(json!({"instance_id": "lost"}));
    assert_eq!(refused.status, 422, "it has a binding, though that cannot be read: {refused:?}");
    assert_eq!(purge(json!({"instance_id": "lost", "binding_id": "b"})).status, 200);
    assert_eq!(get("/admin/v1/bindings").body["unreadable"], Value::Null);
    let gone = || (town.count("servicebindings") == 0).then_some(());
    assert!(within(30, gone).is_some(), "its resource stays:\n{}", server.log());
    assert_eq!(delete(&server, "/v2/service_instances/lost").status, 202);
}

#[test]
fn describe_explains_a_failure() {
    let town = town();
    let server = town.serve();
    let last = order::provisioned(&server, "i", &order::body("fails"));
    assert_eq!(last["state"], "failed");
    let said = last["description"].as_str().unwrap();
    assert!(said.contains("no disk left"), "{said}");
    let explained = || {
        let described = town.kubectl(&["describe", "serviceinstances"]);
        let event = described.contains("ProvisionFailed") && described.contains("ExitStatus");
        (event && described.matches("no disk left").count() >= 3).then_some(())
    };
    let described = || town.kubectl(&["describe", "serviceinstances"]);
    assert!(within(20, explained).is_some(), "{}", described());
    // What failed can be deleted.
    assert_eq!(delete(&server, "/v2/service_instances/i").status, 202);
}

#[test]
fn a_killed_server_loses_nothing_and_does_nothing_twice() {
    let town = town();
    let mut server = town.serve();
    for (n, pause) in [0, 700, 1500].into_iter().enumerate() {
        let id = format!("i{n}");
        assert_eq!(order::provision(&server, &id, &order::body("slow")).status, 202);
        std::thread::sleep(Duration::from_millis(pause));
        server.kill();
        server = town.serve();
        assert_eq!(order::settled(&server, &id)["state"], "succeeded", "{}", server.log());
        assert_eq!(town.effects(&format!("provision of {id}")), 1);
    }
}

#[test]
fn any_replica_answers_and_any_may_die() {
    let town = town();
    let mut leader = town.serve();
    leader.says("leading");
    let other = town.serve();
    for (server, leads) in [(&leader, "\nmanciple_leading 1\n"), (&other, "\nmanciple_leading 0\n")]
    {
        let metrics = http::get(&server.address, "/metrics").unwrap().body;
        assert!(metrics.as_str().is_some_and(|text| text.contains(leads)), "{metrics}");
    }
    assert_eq!(order::provision(&other, "i", &order::body("p")).status, 202);
    assert_eq!(order::settled(&leader, "i")["state"], "succeeded");
    assert_eq!(order::settled(&other, "i")["state"], "succeeded");
    // A held request, at the replica that does not carry it out.
    let bound = order::bind(&other, "i", "b", &json!({"service_id": "s", "plan_id": "p"}));
    assert_eq!(bound.status, 201, "{bound:?}");
    assert_eq!(order::provision(&other, "late", &order::body("slow")).status, 202);
    std::thread::sleep(Duration::from_millis(500));
    leader.kill();
    assert_eq!(order::settled(&other, "late")["state"], "succeeded", "{}", other.log());
    assert_eq!(town.effects("provision of late"), 1);
}
