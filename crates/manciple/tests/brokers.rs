//! Several brokers in one server, on a real cluster: as one catalog, and each under its own path.

mod support;

use serde_json::{Value, json};
use support::town::{Town, applied};
use support::{Served, http, order, within};

/// A broker with one service; its ledger says whose runs these were.
fn script(service: &str, plans: &[&str], does: &str) -> String {
    let plans: Vec<Value> = plans
        .iter()
        .map(|plan| json!({"id": format!("{service}-{plan}"), "name": plan, "description": "d"}))
        .collect();
    let catalog = json!({"services": [{
        "id": service, "name": format!("{service}-name"), "description": "d", "bindable": true,
        "plans": plans,
    }]});
    format!(
        "#!/bin/sh\ncase $1 in catalog) echo '{catalog}'; exit ;; esac\n\
         echo \"{service}: $1 of $7\" >>/ledger/all\n{does}\necho '{{}}'\n"
    )
}

trait Brokers {
    fn brokers(how: &str) -> Self;
    fn script(&self, name: &str, script: &str);
    fn broker(&self, name: &str) -> Value;
    fn ready(&self, name: &str) -> Value;
    fn said(&self, name: &str, reason: &str, server: &Served) -> String;
}

impl Brokers for Town {
    /// A server of `Broker`s, of which there are none yet.
    fn brokers(how: &str) -> Self {
        let mut town = Self::empty();
        town.site.settings = json!({
            "auth": {"disabled": true},
            "kubernetes": {
                "namespace": town.namespace,
                "brokers": how,
                "agent_image": testkit::cluster::AGENT_IMAGE,
            },
        })
        .to_string();
        town
    }

    fn script(&self, name: &str, script: &str) {
        self.config_map(name, &json!({"broker": script}));
    }

    /// A `Broker` whose executable is in the ConfigMap of the same name.
    fn broker(&self, name: &str) -> Value {
        json!({
            "apiVersion": "manciple.dev/v1alpha1",
            "kind": "Broker",
            "metadata": {"name": name},
            "spec": {"image": testkit::cluster::SHELL_IMAGE, "grace": "1s", "pod": self.pod(name)},
        })
    }

    /// The condition of a `Broker`.
    fn ready(&self, name: &str) -> Value {
        let all = self.get("brokers");
        let mut all = all["items"].as_array().unwrap().iter();
        let broker = all.find(|broker| broker["metadata"]["name"] == name);
        broker.map(|broker| broker["status"]["conditions"][0].clone()).unwrap_or_default()
    }

    /// Waits for a reason, and gives the words.
    fn said(&self, name: &str, reason: &str, server: &Served) -> String {
        let said = || {
            let ready = self.ready(name);
            (ready["reason"] == reason).then(|| ready["message"].as_str().unwrap().to_owned())
        };
        within(20, said).unwrap_or_else(|| {
            panic!("{name} is never {reason}: {}\n{}", self.ready(name), server.log())
        })
    }
}

fn order_of(service: &str, plan: &str) -> Value {
    json!({
        "service_id": service, "plan_id": format!("{service}-{plan}"),
        "organization_guid": "o", "space_guid": "s",
    })
}

/// The names of services that a catalog has.
fn services(server: &Served, prefix: &str) -> Vec<String> {
    let catalog = http::get(&server.address, &format!("{prefix}/v2/catalog")).unwrap().body;
    let services = catalog["services"].as_array().cloned().unwrap_or_default();
    services.iter().map(|service| service["name"].as_str().unwrap().to_owned()).collect()
}

fn sells(server: &Served, prefix: &str, expected: &[&str]) {
    let as_expected = || (services(server, prefix) == expected).then_some(());
    assert!(
        within(20, as_expected).is_some(),
        "{prefix}: {:?}, not {expected:?}\n{}",
        services(server, prefix),
        server.log()
    );
}

fn delete(server: &Served, prefix: &str, instance: &str, service: &str, plan: &str) -> u16 {
    let path = format!(
        "{prefix}/v2/service_instances/{instance}?service_id={service}&plan_id={service}-{plan}\
         &accepts_incomplete=true"
    );
    http::send(&server.address, "DELETE", &path, None).unwrap().status
}

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
