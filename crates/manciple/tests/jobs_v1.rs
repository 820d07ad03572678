//! A broker written for the seed's contract sees that contract and nothing else, and each way in
//! which it can fail is told apart (seed "Jobs Mode").

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use support::{Site, http, order};

/// Writes down what it was given; fails by plan.
const BROKER: &str = r#"#!/bin/sh
here=${0%/*}
if [ "$1" = catalog ]; then
    plans=
    for plan in good exit silent text after shape slow killed; do
        plans="$plans${plans:+,}{\"id\":\"$plan\",\"name\":\"$plan\",\"description\":\"d\"}"
    done
    echo "{\"services\":[{\"id\":\"s\",\"name\":\"db\",\"description\":\"d\",\"bindable\":true,\"plans\":[$plans]}]}"
    exit
fi
printf '%s\n' "$@" >"$here/$1.arguments"
tr '\0' '\n' </proc/$$/environ >"$here/$1.environment"
[ "$5" = good ] || echo "cannot log in with $PG_ADMIN_PASSWORD" >&2
case $1:$5 in
provision:good) echo '{"operation":"create"}' ;;
deprovision:*) echo '{"operation":"destroy"}' ;;
bind:*) echo '{"credentials":{"user":"u"},"operation":"bind"}' ;;
*:exit) exit 8 ;;
*:silent) ;;
*:text) echo Created. ;;
*:after) echo '{} Created.' ;;
*:shape) echo '{"dashboard_url":7}' ;;
*:slow) sleep 60 ;;
*:killed) kill -9 $$ ;;
esac
"#;

fn site() -> Site {
    let mut site = Site::new(BROKER);
    site.settings = "auth: {disabled: true}\noperations: {timeouts: {provision: 3s}}\n\
                     broker: {config_dir: config, secret_dir: secret, grace: 1s}\n"
        .to_owned();
    site.write("config/pg.host", "db.example");
    site.write("config/osb.request.file", "a key that may not shadow ours");
    site.write("secret/pg.admin.password", "planted-admin-password");
    site
}

fn environment(site: &Site, subcommand: &str) -> BTreeMap<String, String> {
    site.read(&format!("{subcommand}.environment"))
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn it_is_given_the_seeds_flags_and_environment_and_nothing_else() {
    let mut site = site();
    site.settings = site.settings.replace("provision: 3s", "provision: 60s");
    let mut command = site.command();
    command.env("AWS_SECRET_ACCESS_KEY", "the server's own").env("OSB_ATTEMPT", "9");
    let server = support::Served::start(&mut command).unwrap();
    order::ready(&server);
    let mut body = order::body("good");
    body["parameters"] = json!({"size": "a parameter"});
    body["context"] = json!({"platform": "a platform"});
    order::provisioned(&server, "i", &body);
    let bound = order::bind(&server, "i", "b", &json!({"service_id": "s", "plan_id": "good"}));
    assert_eq!(bound.status, 201, "{bound:?}");
    let ids = "service_id=s&plan_id=good&accepts_incomplete=true";
    for path in ["/service_bindings/b", ""] {
        let path = format!("{}{path}?{ids}", order::path("i"));
        let removed = http::send(&server.address, "DELETE", &path, None).unwrap();
        assert_eq!(removed.status, 202, "{removed:?}");
        let gone = || {
            let path = "/admin/v1/bindings?state=busy";
            let busy = http::get(&server.address, path)?.body["items"].as_array()?.len();
            (busy == 0).then_some(())
        };
        support::within(10, gone).unwrap();
    }
    order::settled(&server, "i");
    let instance = ["--service-id", "s", "--plan-id", "good", "--instance-id", "i"];
    let binding = ["--binding-id", "b"];
    for (subcommand, of_binding) in
        [("provision", false), ("bind", true), ("unbind", true), ("deprovision", false)]
    {
        let mut expected = vec![subcommand];
        expected.extend(instance);
        expected.extend(binding.iter().filter(|_| of_binding));
        let given = site.read(&format!("{subcommand}.arguments"));
        assert_eq!(given.lines().collect::<Vec<_>>(), expected);

        let mut environment = environment(&site, subcommand);
        assert_eq!(environment.remove("PG_HOST").as_deref(), Some("db.example"), "{subcommand}");
        let password = environment.remove("PG_ADMIN_PASSWORD");
        assert_eq!(password.as_deref(), Some("planted-admin-password"), "{subcommand}");
        for name in ["PATH", "HOME", "LANG", "TZ", "TMPDIR"] {
            environment.remove(name);
        }
        assert_eq!(environment, BTreeMap::new(), "{subcommand} is given more");
    }
}

#[test]
fn an_operation_in_its_output_never_means_that_work_goes_on() {
    let site = site();
    let server = site.serve();
    order::ready(&server);
    let ended = order::provisioned(&server, "i", &order::body("good"));
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let instance = http::get(&server.address, &order::path("i")).unwrap();
    assert_eq!(instance.status, 200, "{instance:?}");
}

#[test]
fn each_way_to_fail_is_told_in_its_own_words_with_the_redacted_end_of_stderr() {
    let site = site();
    let server = site.serve();
    order::ready(&server);
    let cases = [
        ("exit", "exited with status 8"),
        ("silent", "printed nothing on stdout"),
        ("text", "not JSON (line 1, column 1)"),
        ("after", "text after the JSON on stdout"),
        ("slow", "took more than 3 s and was ended"),
        ("killed", "signal 9 (SIGKILL"),
    ];
    for (plan, _) in cases {
        assert_eq!(order::provision(&server, plan, &order::body(plan)).status, 202);
    }
    for (plan, words) in cases {
        let ended = order::settled(&server, plan);
        let description = ended["description"].as_str().unwrap_or_default();
        assert_eq!(ended["state"], "failed", "{ended}");
        assert!(description.contains(words), "{plan}: {description}");
        let tail = "cannot log in with [redacted]";
        assert!(description.contains(tail), "{plan}: {description}");
    }
    let ended = order::provisioned(&server, "shape", &order::body("shape"));
    let description = ended["description"].as_str().unwrap();
    assert!(description.contains("dashboard_url must be a string, not a number"), "{ended}");
}

#[test]
fn an_executable_that_cannot_be_executed_is_named_with_the_remedy() {
    let site = site();
    let server = site.serve();
    order::ready(&server);
    let broker = site.path().join("broker");
    std::fs::set_permissions(&broker, std::fs::Permissions::from_mode(0o644)).unwrap();
    let ended = order::provisioned(&server, "i", &order::body("good"));
    assert_eq!(ended["state"], "failed", "{ended}");
    let description = ended["description"].as_str().unwrap();
    assert!(description.contains("chmod +x"), "{description}");
    assert!(description.contains("broker"), "{description}");
}
