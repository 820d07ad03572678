//! `Broker` resources of a test, and what is asked of those who serve them.

use serde_json::{Value, json};

use super::town::Town;
use super::{Served, http, within};

/// A broker with one service; its ledger says whose runs these were.
pub(crate) fn script(service: &str, plans: &[&str], does: &str) -> String {
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

/// A broker with one service that tells what it finds of its configuration: the region of its ConfigMap in its catalog
/// and in dashboards, the rest in credentials, with the names of all files and some variables.
pub(crate) fn finds(service: &str) -> String {
    const FINDS: &str = r#"#!/bin/sh
case $1 in
catalog)
    cat <<END
{"services": [{"id": "SERVICE", "name": "SERVICE-name", "description": "in $REGION", "bindable": true,
    "plans": [{"id": "SERVICE-small", "name": "small", "description": "d"}]}]}
END
    ;;
provision)
    echo "{\"dashboard_url\": \"https://$REGION.example\"}"
    ;;
bind)
    cat <<END
{"credentials": {"region": "$(cat /config/region)", "password": "$(cat /secret/password)",
    "files": "$(echo /config/* /secret/*)", "variables": "$REGION $PASSWORD $WHOSE $OF_ONE$OF_TWO"}}
END
    ;;
*)
    echo '{}'
    ;;
esac
"#;
    FINDS.replace("SERVICE", service)
}

/// A town whose server has `Broker` resources.
pub(crate) trait Brokers {
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
                "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
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

/// The order of an instance of a plan of [`script`].
pub(crate) fn order_of(service: &str, plan: &str) -> Value {
    json!({
        "service_id": service, "plan_id": format!("{service}-{plan}"),
        "organization_guid": "o", "space_guid": "s",
    })
}

/// Where a broker is served, together with others or apart.
pub(crate) fn prefix(how: &str, broker: &str) -> String {
    if how == "apart" { format!("/brokers/{broker}") } else { String::new() }
}

/// The names of services that a catalog has.
pub(crate) fn services(server: &Served, prefix: &str) -> Vec<String> {
    let catalog = http::get(&server.address, &format!("{prefix}/v2/catalog")).unwrap().body;
    let services = catalog["services"].as_array().cloned().unwrap_or_default();
    services.iter().map(|service| service["name"].as_str().unwrap().to_owned()).collect()
}

/// Waits until these services, and no others, are in the catalog.
pub(crate) fn sells(server: &Served, prefix: &str, expected: &[&str]) {
    let as_expected = || (services(server, prefix) == expected).then_some(());
    assert!(
        within(20, as_expected).is_some(),
        "{prefix}: {:?}, not {expected:?}\n{}",
        services(server, prefix),
        server.log()
    );
}

/// Asks for a deprovision, and gives the status.
pub(crate) fn delete(
    server: &Served,
    prefix: &str,
    instance: &str,
    service: &str,
    plan: &str,
) -> u16 {
    let path = format!(
        "{prefix}/v2/service_instances/{instance}?service_id={service}&plan_id={service}-{plan}\
         &accepts_incomplete=true"
    );
    http::send(&server.address, "DELETE", &path, None).unwrap().status
}
