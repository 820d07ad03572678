//! `manciple template instance` on a cluster, with a controller: people compare, change and roll back what a template was
//! made into, and no value of a parameter is told.

mod support;

use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde_json::{Value, json};
use support::said::Said;
use support::town::Town;
use support::{Served, within};
use testkit::cluster;

/// A value of a parameter, and what nobody may be told.
const PLANTED: &str = "hunter2-hunter2";
const PLANTED_LATER: &str = "hunter3-hunter3";

/// A namespace with a controller of its own.
struct Shop {
    town: Town,
    _controller: Served,
    /// All that was ever printed.
    said: Mutex<String>,
}

impl Shop {
    fn new() -> Self {
        Self::with(&[])
    }

    /// The controller has further arguments.
    fn with(arguments: &[&str]) -> Self {
        let town = Town::empty();
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.args(["controller", "--controllers=templates", "--requesters=trusted"]);
        command.args(["--apply-crd", "--instance-namespaces", &town.namespace]).args(arguments);
        command.env_clear().stdout(Stdio::null()).stderr(Stdio::piped());
        for (name, value) in [
            ("KUBECONFIG", cluster::kubeconfig().unwrap().display().to_string()),
            ("POD_NAMESPACE", town.namespace.clone()),
            ("MANCIPLE_LISTEN", "127.0.0.1:0".to_owned()),
            ("MANCIPLE_LOG_FORMAT", "json".to_owned()),
        ] {
            command.env(name, value);
        }
        let controller = Served::start(&mut command).unwrap_or_else(|log| panic!("{log}"));
        town.kubectl(&["create", "rolebinding", "alice", "--clusterrole=edit", "--user=alice"]);
        Self { town, _controller: controller, said: Mutex::default() }
    }

    /// Orders an instance with the planted value, and waits until it is ready.
    fn order(&self, name: &str, template: &Value) {
        self.town.secret("parameters", &json!({"PLANTED": PLANTED}));
        self.town.make(&json!({
            "apiVersion": "template.openshift.io/v1", "kind": "TemplateInstance",
            "metadata": {"name": name},
            "spec": {
                "template": template,
                "secret": {"name": "parameters"},
                "requester": {"username": "alice"},
            },
        }));
        let ready = || {
            let instance = self.town.get(&format!("templateinstance/{name}"));
            let conditions = instance["status"]["conditions"].as_array()?.clone();
            conditions
                .iter()
                .any(|it| it["type"] == "Ready" && it["status"] == "True")
                .then_some(())
        };
        assert!(within(60, ready).is_some(), "{:#}", self.town.get("templateinstances"));
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.args(["template", "instance"]).args(arguments);
        command.args(["-n", &self.town.namespace]).env_clear().stdin(Stdio::null());
        command.env("KUBECONFIG", cluster::kubeconfig().unwrap());
        let said = Said::from(command.output().unwrap());
        let mut all = self.said.lock().unwrap();
        all.push_str(&said.stdout);
        all.push_str(&said.stderr);
        said
    }

    /// A template in a file.
    fn file(&self, name: &str, template: &Value) -> String {
        self.town.site.write(name, &template.to_string()).display().to_string()
    }

    fn data(&self, what: &str) -> Value {
        self.town.get(what)["data"].clone()
    }

    /// That no value was ever told.
    fn has_kept_quiet(&self, further: &str) {
        let said = self.said.lock().unwrap();
        for value in [PLANTED, PLANTED_LATER, further] {
            assert!(!said.contains(value), "{value}:\n{said}");
        }
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let delete = ["delete", "templateinstances", "--all", "--timeout=180s"];
        let namespace = ["-n", &self.town.namespace];
        let _ = cluster::kubectl().args(namespace).args(delete).output();
    }
}

/// A Secret with a generated password and the planted value, and a ConfigMap with them.
fn template(version: &str, data: Value, more: &[Value]) -> Value {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data,
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"},
        "stringData": {"password": "${PASSWORD}", "planted": "${PLANTED}"},
    });
    let objects: Vec<Value> = [map, secret].into_iter().chain(more.iter().cloned()).collect();
    json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template",
        "metadata": {"name": "shop", "annotations": {"template.manciple.dev/version": version}},
        "parameters": [
            {"name": "PASSWORD", "generate": "expression", "from": "[a-zA-Z0-9]{24}"},
            {"name": "PLANTED", "required": true},
            {"name": "COLOUR", "value": "blue"},
        ],
        "objects": objects,
    })
}

fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[test]
fn an_instance_is_compared_changed_and_rolled_back_and_no_value_is_told() {
    let shop = Shop::new();
    let first = template(
        "1.0",
        json!({"colour": "${COLOUR}", "leaves": "yes", "both": "${PASSWORD} ${PLANTED}"}),
        &[map("goes")],
    );
    shop.order("i", &first);
    let keys = shop.data("secret/keys");
    let run = shop.run(&["history", "i"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let rows: Vec<Vec<&str>> =
        run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["REVISION", "RECORDED", "REQUESTER", "TEMPLATE", "CHANGES"]);
    assert_eq!((rows.len(), rows[1][0]), (2, "1"), "{run:?}");
    for word in ["alice", "shop", "1.0", "objects"] {
        assert!(rows[1].contains(&word), "{word}: {run:?}");
    }
    let run = shop.run(&["diff", "i"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
    assert!(run.stderr.contains("no differences"), "{run:?}");

    // What a change would do is told, and not done.
    let second = template(
        "2.0",
        json!({"colour": "${COLOUR}", "both": "${PASSWORD} and ${PLANTED}"}),
        &[map("comes"), map("foreign")],
    );
    let second = shop.file("second.json", &second);
    shop.town.config_map("foreign", &json!({"a": "theirs"}));
    let before = shop.town.get("configmaps,secrets,templateinstances");
    let change = ["i", "-f", &second, "-p", "COLOUR=red"];
    for command in [&["diff"][..], &["change", "--dry-run"]] {
        let run = shop.run(&[command, &change[..]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        for line in [
            "~ configmap/settings",
            "    data.colour: \"blue\" → \"red\"",
            "    data.leaves: \"yes\" → nothing",
            "+ configmap/comes",
            "- configmap/goes",
            "! configmap/foreign exists, and is not of this instance",
        ] {
            assert!(run.stdout.lines().any(|it| it == line), "{line}: {run:?}");
        }
        assert!(!run.stdout.contains("secret/keys"), "{run:?}");
    }
    let run = shop.run(&["diff", "i", "-f", &second, "-o", "json"]);
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    let fates: Vec<&Value> =
        said["items"].as_array().unwrap().iter().map(|it| &it["fate"]).collect();
    assert_eq!(fates, ["changed", "made", "in-the-way", "removed"], "{said:#}");
    let values = shop.town.site.write("values", &format!("PLANTED={PLANTED_LATER}\n"));
    let values = values.display().to_string();
    let run = shop.run(&["diff", "i", "--param-file", &values]);
    assert!(run.stdout.contains("~ secret/keys\n    data.planted: (not shown)"), "{run:?}");
    assert_eq!(shop.town.get("configmaps,secrets,templateinstances"), before, "nothing is written");

    // What is in the way fails it, in the controller's words.
    let run = shop.run(&[&["change"], &change[..]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("\"foreign\" already exists"), "{run:?}");
    shop.town.kubectl(&["delete", "configmap", "foreign"]);
    let run = shop.run(&["change", "i", "-f", &second, "--param-file", &values]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("Revision:  3"), "{run:?}");
    let settings = shop.data("configmap/settings");
    assert_eq!((&settings["colour"], &settings["leaves"]), (&json!("red"), &Value::Null));
    assert_ne!(shop.data("secret/keys")["planted"], keys["planted"]);
    assert_eq!(shop.data("secret/keys")["password"], keys["password"], "no second password");

    assert_eq!(shop.run(&["history", "i", "-q"]).stdout, "3\n2\n1\n");
    let run = shop.run(&["history", "i", "-o", "json"]);
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(said["items"][0]["parameters_changed"], json!(["PLANTED"]), "{said:#}");
    assert_eq!(said["items"][1]["changes"], json!({"new": 2, "gone": 1, "changed": 1}));
    assert_eq!(said["items"][2]["template"], json!({"name": "shop", "version": "1.0"}));

    // Somebody writes what was made: that is drift.
    let theirs = r#"{"data": {"colour": "green", "theirs": "1"}}"#;
    shop.town.kubectl(&["patch", "configmap", "settings", "--type=merge", "-p", theirs]);
    let run = shop.run(&["diff", "i"]);
    assert_eq!(
        run.stdout, "~ configmap/settings\n    data.colour: \"green\" → \"red\"\n",
        "{run:?}"
    );

    let run = shop.run(&["diff", "i", "--to-revision", "1"]);
    assert!(run.stdout.contains("+ configmap/goes") && run.stdout.contains("- configmap/comes"));
    let run = shop.run(&["rollback", "i", "--to-revision", "1", "-q"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "4\n"), "{run:?}");
    assert_eq!(shop.data("secret/keys"), keys, "all values are what they were");
    let settings = shop.data("configmap/settings");
    assert_eq!((&settings["colour"], &settings["leaves"]), (&json!("blue"), &json!("yes")));
    let run = shop.run(&["rollback", "i", "-q"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "5\n"), "{run:?}");
    assert_eq!(shop.data("configmap/settings")["colour"], "red", "the one before");
    let run = shop.run(&["rollback", "i", "--to-revision", "99"]);
    assert_eq!(run.code, Some(6), "{run:?}");
    assert!(run.stderr.contains("those that are kept: 5, 4, 3, 2, 1"), "{run:?}");

    let run = shop.run(&["change", "i", "-p", &format!("UNKNOWN={PLANTED_LATER}")]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert_eq!(shop.run(&["change", "i"]).code, Some(2));
    let run = shop.run(&["history", "absent"]);
    let hint = format!("looked for in namespace {}; -n names another", shop.town.namespace);
    assert!(run.code == Some(6) && run.stderr.contains(&hint), "{run:?}");
    let password = keys["password"].as_str().unwrap();
    let password = data_encoding::BASE64.decode(password.as_bytes()).unwrap();
    shop.has_kept_quiet(&String::from_utf8(password).unwrap());
}

/// Whoever may write Secrets gives an earlier revision another template, for somebody to roll back to it.
#[test]
fn a_revision_that_somebody_else_has_written_is_not_rolled_back_to() {
    let shop = Shop::new();
    let first = template("1.0", json!({"colour": "blue"}), &[]);
    let evil = template("2.0", json!({"colour": "evil"}), &[map("evil")]);
    let third = template("3.0", json!({"colour": "red"}), &[]);
    shop.order("i", &first);
    for file in [shop.file("evil.json", &evil), shop.file("third.json", &third)] {
        let run = shop.run(&["change", "i", "-f", &file]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    let uid = shop.town.get("templateinstance/i")["metadata"]["uid"].as_str().unwrap().to_owned();
    let name = format!("template-instance-{uid}");
    let data = shop.data(&format!("secret/{name}"));
    let decoded = |key: &str| {
        let bytes = data_encoding::BASE64.decode(data[key].as_str().unwrap().as_bytes()).unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let mut record = decoded("record.1");
    record["spec"] = decoded("record.2")["spec"].clone();
    let record = data_encoding::BASE64.encode(record.to_string().as_bytes());
    let patch = json!({"data": {"record.1": record, "spec.1": data["spec.2"]}}).to_string();
    shop.town.kubectl(&["patch", "secret", &name, "--type=merge", "-p", &patch]);
    let run = shop.run(&["rollback", "i", "--to-revision", "1"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("is not what was recorded as that revision"), "{run:?}");
    let maps = shop.town.get("configmaps").to_string();
    assert!(!maps.contains("\"evil\""), "nothing of it is made: {maps}");
    assert_eq!(shop.data("configmap/settings")["colour"], "red");
    let run = shop.run(&["rollback", "i", "--to-revision", "2"]);
    assert_eq!(run.code, Some(0), "what was recorded is believed: {run:?}");
}

/// How the controller translates it has written down: whoever compares need not know.
#[test]
fn what_the_controller_translates_is_compared_as_it_is_translated() {
    let shop = Shop::with(&["--translate", "--route-domain", "apps.example.com"]);
    let with_path = |path: &str| {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"ports": [{"name": "web", "port": 80}], "selector": {"app": "web"}},
        });
        let route = json!({
            "apiVersion": "v1", "kind": "Route", "metadata": {"name": "web"},
            "spec": {"path": path, "to": {"kind": "Service", "name": "web"}},
        });
        template("1.0", json!({}), &[service, route])
    };
    shop.order("i", &with_path("/old"));
    let run = shop.run(&["diff", "i"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{run:?}");
    let newer = shop.file("newer.json", &with_path("/new"));
    for command in [&["diff"][..], &["change", "--dry-run"]] {
        let run = shop.run(&[command, &["i", "-f", &newer]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stdout.starts_with("~ ingress.networking.k8s.io/web\n"), "{run:?}");
        assert!(run.stdout.contains("\"/old\" → \"/new\""), "{run:?}");
        assert_eq!(run.stdout.lines().count(), 2, "{run:?}");
    }
    let run = shop.run(&[
        "diff",
        "i",
        "-f",
        &shop.file("without.json", &template("2.0", json!({}), &[])),
    ]);
    for line in ["- service/web", "- ingress.networking.k8s.io/web"] {
        assert!(run.stdout.lines().any(|it| it == line), "{line}: {run:?}");
    }
}
