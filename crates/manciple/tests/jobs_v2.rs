//! What a broker may declare beyond the seed's contract, each capability once by the catalog's `jobs`
//! key and once by the configuration.

mod support;

use serde_json::{Value, json};
use support::{Served, Site, http, order, within};

const ALL: &str = r#"["request-file","update","progress","state","structured-errors","exit-codes","last-operation"]"#;

/// Does what the parameters in its request file say.
const BROKER: &str = r#"#!/bin/sh
here=${0%/*}
if [ "$1" = catalog ]; then
    jobs=$(cat "$here/declared" 2>/dev/null)
    echo "{$jobs\"services\":[{\"id\":\"s\",\"name\":\"db\",\"description\":\"d\",\"bindable\":true,
        \"plan_updateable\":true,\"plans\":[{\"id\":\"p\",\"name\":\"small\",\"description\":\"d\"},
        {\"id\":\"q\",\"name\":\"large\",\"description\":\"d\"}]}]}"
    exit
fi
echo "$*" >>"$here/calls"
cp "$OSB_REQUEST_FILE" "$here/$1.request"
tr '\0' '\n' </proc/$$/environ | grep ^OSB_ | sort >"$here/$1.environment"
[ ! -s "$OSB_STATE_FILE" ] || cp "$OSB_STATE_FILE" "$here/$1.state"
asked() { sed -n "s/.*\"$1\":\"\{0,1\}\([a-z0-9]*\).*/\1/p" "$OSB_REQUEST_FILE"; }
case $1:$(asked do) in
last-operation:*)
    [ -e "$here/finished" ] || { echo '{"state":"in progress","description":"two of three nodes"}'; exit; }
    echo '{"left":"elsewhere"}' >"$OSB_STATE_OUT_FILE"
    echo '{"state":"succeeded"}' ;;
*:async) echo '{"async":true,"operation":"job-7"}' ;;
*:wait)
    echo '{"description":"copying files","percent":40}' >"$OSB_PROGRESS_FILE.new"
    mv "$OSB_PROGRESS_FILE.new" "$OSB_PROGRESS_FILE"
    until [ -e "$here/go" ] || [ ! -d "$here" ]; do sleep 0.05; done
    echo '{"database":"d17"}' >"$OSB_STATE_OUT_FILE"
    echo '{}' ;;
*:report)
    echo '{"error":"Full","description":"all places are taken","instance_usable":true,"update_repeatable":false}'
    exit 1 ;;
*:later)
    [ "$OSB_ATTEMPT" -ge 2 ] || exit 75
    echo '{}' ;;
*:exit) echo "because of the code" >&2; exit "$(asked code)" ;;
*) echo '{}' ;;
esac
"#;

/// One server whose broker declares everything in its catalog, one whose configuration does.
fn each_way(check: impl Fn(&Site, &Served)) {
    for in_catalog in [true, false] {
        let mut site = Site::new(BROKER);
        for directory in ["config", "secret"] {
            std::fs::create_dir(site.path().join(directory)).unwrap();
        }
        let declared = if in_catalog {
            site.write("declared", &format!("\"jobs\":{{\"version\":2,\"capabilities\":{ALL}}},"));
            String::new()
        } else {
            format!(", capabilities: {ALL}")
        };
        site.settings = format!(
            "auth: {{disabled: true}}\nbroker: {{config_dir: config, secret_dir: secret{declared}}}\n"
        );
        let server = site.serve();
        order::ready(&server);
        check(&site, &server);
    }
}

fn with(plan: &str, parameters: Value) -> Value {
    let mut body = order::body(plan);
    body["parameters"] = parameters;
    body
}

fn update(server: &Served, parameters: Value) -> Value {
    let path = format!("{}?accepts_incomplete=true", order::path("i"));
    let body = json!({"service_id": "s", "plan_id": "q", "parameters": parameters});
    let answer = http::send(&server.address, "PATCH", &path, Some(&body)).unwrap();
    assert_eq!(answer.status, 202, "{answer:?}");
    order::settled(server, "i")
}

fn json_file(site: &Site, name: &str) -> Value {
    serde_json::from_str(&site.read(name)).unwrap_or_else(|_| panic!("{name}: {}", site.read(name)))
}

#[test]
fn its_declaration_is_not_served_to_platforms() {
    each_way(|_, server| {
        let catalog = http::get(&server.address, "/v2/catalog").unwrap();
        assert_eq!(catalog.body.get("jobs"), None);
        assert_eq!(catalog.body["services"][0]["plan_updateable"], true);
    });
}

#[test]
fn request_progress_and_state_go_by_files_and_update_is_a_subcommand() {
    each_way(|site, server| {
        let mut body = with("p", json!({"do": "wait", "size": 3}));
        body["context"] = json!({"platform": "kubernetes", "namespace": "n"});
        assert_eq!(order::provision(server, "i", &body).status, 202);
        let shown = || {
            let description = order::last_operation(server, "i")["description"].clone();
            (description == "copying files (40%)").then_some(())
        };
        assert!(within(10, shown).is_some(), "{}", order::last_operation(server, "i"));
        site.write("go", "");
        let ended = order::settled(server, "i");
        assert_eq!(ended["state"], "succeeded", "{ended}");

        let request = json_file(site, "provision.request");
        assert_eq!(request["parameters"], json!({"do": "wait", "size": 3}), "{request}");
        assert_eq!(request["context"]["namespace"], "n", "{request}");
        assert!(!site.read("calls").contains("namespace"), "the command line has ids only");
        let environment = site.read("provision.environment");
        let names: Vec<_> = environment.lines().filter_map(|line| line.split('=').next()).collect();
        let mut every = osb::jobs::contract::variable::ALL;
        every.sort_unstable();
        assert_eq!(names, every);

        let ended = update(server, json!({"size": 4}));
        assert_eq!(ended["state"], "succeeded", "{ended}");
        assert_eq!(json_file(site, "update.state"), json!({"database": "d17"}));
        let request = json_file(site, "update.request");
        assert_eq!(request["plan_id"], "q", "{request}");
        assert_eq!(request["previous_values"]["plan_id"], "p", "{request}");
    });
}

#[test]
fn a_structured_error_is_passed_on_with_what_it_says_of_the_instance() {
    each_way(|_, server| {
        order::provisioned(server, "i", &with("p", json!({})));
        let ended = update(server, json!({"do": "report"}));
        assert_eq!(ended["state"], "failed");
        assert_eq!(ended["description"], "all places are taken");
        assert_eq!(ended["instance_usable"], true, "{ended}");
        assert_eq!(ended["update_repeatable"], false, "{ended}");
    });
}

#[test]
fn each_exit_code_has_its_meaning() {
    each_way(|_, server| {
        order::provisioned(server, "i", &with("p", json!({})));
        for (code, status, words) in [
            (8, 422, "does not support this"),
            (10, 201, ""),
            (11, 409, "taken by something else"),
            (12, 500, "does not exist"),
            (13, 400, "something impossible"),
            (14, 422, "something else is being done"),
            (15, 422, "cannot make this change"),
            (99, 500, "exited with status 99"),
        ] {
            let body = json!({"service_id": "s", "plan_id": "p",
                "parameters": {"do": "exit", "code": code}});
            let answer = order::bind(server, "i", &format!("b{code}"), &body);
            let description = answer.body["description"].as_str().unwrap_or_default();
            assert_eq!(answer.status, status, "{code}: {answer:?}");
            assert!(description.contains(words), "{code}: {answer:?}");
            let tail = status == 201 || description.contains("because of the code");
            assert!(tail, "{code}: {answer:?}");
            let word = if code == 14 { json!("ConcurrencyError") } else { Value::Null };
            assert!(code != 14 || answer.body["error"] == word, "{answer:?}");
        }
    });
}

#[test]
fn what_is_gone_already_is_deprovisioned() {
    each_way(|site, server| {
        order::provisioned(server, "i", &with("p", json!({"do": "exit", "code": 10})));
        // A deprovision has no parameters of its own: make the broker say 12 to it.
        site.script(&BROKER.replace(
            "case $1:$(asked do) in",
            "case $1:$(asked do) in\ndeprovision:*) exit 12 ;;",
        ));
        let path = format!("{}?service_id=s&plan_id=p&accepts_incomplete=true", order::path("i"));
        assert_eq!(http::send(&server.address, "DELETE", &path, None).unwrap().status, 202);
        let ended = order::settled(server, "i");
        assert_eq!(ended["state"], "succeeded", "{ended}");
        assert_eq!(http::get(&server.address, &order::path("i")).unwrap().status, 404);
    });
}

#[test]
fn a_passing_fault_is_tried_again() {
    each_way(|site, server| {
        let ended = order::provisioned(server, "i", &with("p", json!({"do": "later"})));
        assert_eq!(ended["state"], "succeeded", "{ended}");
        let calls = site.read("calls");
        assert_eq!(calls.lines().filter(|call| call.starts_with("provision ")).count(), 2);
    });
}

#[test]
fn long_external_work_is_asked_after_until_it_ends() {
    each_way(|site, server| {
        assert_eq!(order::provision(server, "i", &with("p", json!({"do": "async"}))).status, 202);
        let shown = || {
            let description = order::last_operation(server, "i")["description"].clone();
            (description == "two of three nodes").then_some(())
        };
        assert!(within(10, shown).is_some(), "{}", order::last_operation(server, "i"));
        site.write("finished", "");
        let ended = order::settled(server, "i");
        assert_eq!(ended["state"], "succeeded", "{ended}");
        let calls = site.read("calls");
        let polls: Vec<_> = calls.lines().filter(|c| c.starts_with("last-operation ")).collect();
        assert!(polls.iter().all(|call| call.ends_with("--operation job-7")), "{polls:?}");
        update(server, json!({"size": 1}));
        assert_eq!(json_file(site, "update.state"), json!({"left": "elsewhere"}));
    });
}

/// Which capabilities the broker sees in force: `OSB_REQUEST_FILE` is there with `request-file` only.
#[test]
fn the_configuration_wins_over_the_catalog_of_a_file_as_over_that_of_the_broker() {
    let script = BROKER.replace("cp \"$OSB_REQUEST_FILE\" \"$here/$1.request\"", "");
    for in_file in [true, false] {
        for (declared, configured, in_force) in [
            (r#"["request-file"]"#, None, true),
            (r#"["request-file"]"#, Some("[state]"), false),
            (r#"["request-file"]"#, Some("[]"), false),
            (r#"["state"]"#, Some("[request-file]"), true),
        ] {
            let mut site = Site::new(&script);
            let jobs = format!("\"jobs\":{{\"version\":2,\"capabilities\":{declared}}},");
            site.settings = "auth: {disabled: true}\n".to_owned();
            if let Some(configured) = configured {
                site.settings.push_str(&format!("broker: {{capabilities: {configured}}}\n"));
            }
            if in_file {
                let catalog = format!(
                    r#"{{{jobs}"services":[{{"id":"s","name":"db","description":"d","bindable":true,
                    "plans":[{{"id":"p","name":"small","description":"d"}}]}}]}}"#
                );
                site.write("catalog.json", &catalog);
                site.settings.push_str("catalog: {file: catalog.json}\n");
            } else {
                site.write("declared", &jobs);
            }
            let server = site.serve();
            order::ready(&server);
            let ended = order::provisioned(&server, "i", &order::body("p"));
            assert_eq!(ended["state"], "succeeded", "{ended}");
            assert!(site.path().join("provision.environment").exists(), "it has not run");
            let given = site.read("provision.environment").contains("OSB_REQUEST_FILE=");
            assert_eq!(given, in_force, "file: {in_file}, {declared}, {configured:?}");
        }
    }
}

fn catalog_of(plans: &[(&str, &str)]) -> String {
    let plans = plans.iter().map(|(id, name)| json!({"id": id, "name": name, "description": "d"}));
    let service = json!({"id": "s", "name": "db", "description": "d", "bindable": true,
                         "plan_updateable": true, "plans": plans.collect::<Vec<_>>()});
    json!({"services": [service]}).to_string()
}

fn sold(server: &Served) -> Vec<(String, String)> {
    let catalog = http::get(&server.address, "/v2/catalog").unwrap().body;
    let plans = catalog["services"][0]["plans"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    plans.map(|plan| (text(&plan["id"]), text(&plan["name"]))).collect()
}

/// The broker's own catalog is never asked for; a plan that leaves the file while it is in use stays
/// for its instances, stands in the way of nothing and is not sold, before and after a restart.
#[test]
fn the_catalog_of_a_file_is_read_again_on_demand_and_plans_in_use_are_kept() {
    let mut site = Site::new(BROKER);
    site.settings = "auth: {disabled: true}\ncatalog: {file: catalog.json}\n".to_owned();
    site.write("catalog.json", &catalog_of(&[("old", "fast")]));
    let mut server = site.serve();
    order::ready(&server);
    assert_eq!(order::provisioned(&server, "i", &order::body("old"))["state"], "succeeded");
    site.write("catalog.json", &catalog_of(&[("new", "fast")]));
    let refresh = http::send(&server.address, "POST", "/admin/v1/catalog/refresh", None).unwrap();
    assert_eq!(refresh.status, 200, "{refresh:?}");
    for when in ["refreshed", "restarted"] {
        let pair = |id: &str, name: &str| (id.to_owned(), name.to_owned());
        let expected = [pair("new", "fast"), pair("old", "fast-withdrawn")];
        assert_eq!(sold(&server), expected, "{when}");
        let refused = order::provision(&server, when, &order::body("old"));
        assert_eq!(refused.status, 400, "{when}: {refused:?}");
        let said = refused.body["description"].as_str().unwrap();
        assert!(said.contains("plan_id") && said.contains("withdrawn"), "{when}: {said}");
        let again = order::provision(&server, "i", &order::body("old"));
        assert_eq!(again.status, 200, "{when}: {again:?}");
        let plan = json!({"service_id": "s", "plan_id": "old"});
        let bound = order::bind(&server, "i", when, &plan);
        assert!(bound.status == 201, "{when}: {bound:?}");
        drop(server);
        server = site.serve();
        order::ready(&server);
    }
    site.write("catalog.json", "{");
    let refresh = http::send(&server.address, "POST", "/admin/v1/catalog/refresh", None).unwrap();
    assert!(refresh.body["description"].as_str().unwrap().contains("catalog.json"), "{refresh:?}");
    assert_eq!(sold(&server).len(), 2, "the one before stays");
}
