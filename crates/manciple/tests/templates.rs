//! Templates as services, on a real cluster: ordered by people who may edit a namespace, and refused to those who may
//! only look.

mod support;

use serde_json::{Value, json};
use support::http::{self, Answer};
use support::town::Town;
use support::{Served, within};

const INSTANCE: &str = "11111111-2222-4333-8444-555555555555";
const BINDING: &str = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee";

/// Where the broker is, as the original's.
const ROOT: &str = "/brokers/template.openshift.io/v2";

/// A namespace with an editor, a viewer and the templates of the examples.
struct Market {
    town: Town,
}

impl Market {
    fn new() -> Self {
        let mut town = Town::empty();
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        for file in ["deploy/templates/crds.yaml", "deploy/templates/users.yaml"] {
            town.kubectl(&["apply", "-f", &format!("{root}{file}")]);
        }
        town.kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd/templateinstances.template.openshift.io",
        ]);
        for template in ["web", "database"] {
            town.kubectl(&["apply", "-f", &format!("{root}examples/templates/{template}.yaml")]);
        }
        for (user, role) in [("editor", "edit"), ("viewer", "view")] {
            town.make(&json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": {"name": user},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
            }));
        }
        town.site.settings = json!({
            "auth": {"disabled": true},
            "kubernetes": {"namespace": town.namespace, "templates": {
                "namespaces": [town.namespace], "instance_namespaces": [town.namespace],
            }},
        })
        .to_string();
        Self { town }
    }

    /// Sends as a user; nobody, if it is empty.
    fn send(
        &self,
        server: &Served,
        user: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let identity = json!({"Username": user, "Groups": ["system:authenticated"]}).to_string();
        let identity = data_encoding::BASE64.encode(identity.as_bytes());
        let header = match user {
            "" => String::new(),
            _ => format!("X-Broker-API-Originating-Identity: Kubernetes {identity}\r\n"),
        };
        let path = format!("{ROOT}{path}");
        let body = body.map(ToOwned::to_owned);
        http::send_with(&server.address, method, &path, body.as_ref(), &header).unwrap()
    }

    /// The id of a template's service.
    fn service(&self, name: &str) -> String {
        let path = "jsonpath={.metadata.uid}";
        self.town.kubectl(&["get", "templates.template.openshift.io", name, "-o", path])
    }

    fn order(&self, service: &str, parameters: Value) -> Value {
        json!({
            "service_id": service, "plan_id": service,
            "organization_guid": "o", "space_guid": "s", "parameters": parameters,
            "context": {"platform": "kubernetes", "namespace": self.town.namespace},
        })
    }

    /// How the last operation of an instance ends.
    fn settled(&self, server: &Served) -> Value {
        let path = format!("/service_instances/{INSTANCE}/last_operation");
        let settled = within(90, || {
            let last = self.send(server, "editor", "GET", &path, None);
            (last.body["state"] != "in progress").then_some(last.body)
        });
        settled.unwrap_or_else(|| panic!("never ends\n{}", server.log()))
    }
}

fn parameters() -> Value {
    json!({"NAME": "page", "IMAGE": testkit::cluster::SHELL_IMAGE})
}

#[test]
fn an_editor_orders_binds_unbinds_and_removes_what_a_viewer_may_not() {
    let market = Market::new();
    let server = market.town.serve();
    let service = market.service("web");
    let catalog = within(20, || {
        let catalog = market.send(&server, "", "GET", "/catalog", None);
        (catalog.body["services"].as_array().map(Vec::len) == Some(2)).then_some(catalog.body)
    });
    let catalog = catalog.unwrap_or_else(|| panic!("no catalog\n{}", server.log()));
    let offered = catalog["services"].as_array().unwrap();
    let web = offered.iter().find(|it| it["name"] == "web").unwrap();
    assert_eq!((&web["id"], &web["plans"][0]["id"]), (&json!(service), &json!(service)));
    assert_eq!(web["metadata"]["displayName"], "Web page");

    let instance = format!("/service_instances/{INSTANCE}");
    let put = format!("{instance}?accepts_incomplete=true");
    let order = market.order(&service, parameters());
    for (user, path, body, status, words) in [
        ("", &put, &order, 400, "couldn't parse X-Broker-API-Originating-Identity header"),
        ("viewer", &put, &order, 403, "\"viewer\" may not create templateinstances"),
        ("editor", &instance, &order, 422, "AsyncRequired"),
        ("editor", &put, &market.order(&service, json!({"UNKNOWN": "x"})), 400, "UNKNOWN"),
        ("editor", &put, &market.order(&service, json!({"NAME": 7})), 400, "NAME"),
    ] {
        let answer = market.send(&server, user, "PUT", path, Some(body));
        assert_eq!(answer.status, status, "{answer:?}\n{}", server.log());
        assert!(answer.body.to_string().replace('\\', "").contains(words), "{answer:?}");
    }
    assert_eq!(market.town.count("templateinstances"), 0, "nothing was begun");

    let answer = market.send(&server, "editor", "PUT", &put, Some(&order));
    assert_eq!(answer.status, 202, "{answer:?}\n{}", server.log());
    assert_eq!(market.settled(&server)["state"], "succeeded", "{}", server.log());
    assert_eq!(market.send(&server, "editor", "PUT", &put, Some(&order)).status, 200);
    let other = market.order(&service, json!({"NAME": "other"}));
    assert_eq!(market.send(&server, "editor", "PUT", &put, Some(&other)).status, 409);
    let made = market.town.get(&format!("templateinstance/{INSTANCE}"));
    assert_eq!(made["spec"]["requester"]["username"], "editor");
    assert_eq!(made["status"]["conditions"][0]["type"], "Ready");

    let binding = format!("{instance}/service_bindings/{BINDING}");
    let bind = json!({"service_id": service, "plan_id": service});
    assert_eq!(market.send(&server, "", "PUT", &binding, Some(&bind)).status, 400);
    let bound = market.send(&server, "editor", "PUT", &binding, Some(&bind));
    assert_eq!(bound.status, 201, "{bound:?}\n{}", server.log());
    let credentials = &bound.body["credentials"];
    assert_eq!(credentials["password"].as_str().map(str::len), Some(24), "{bound:?}");
    assert_eq!(credentials["user"], "reader");
    let again = market.send(&server, "editor", "PUT", &binding, Some(&bind));
    assert_eq!((again.status, &again.body["credentials"]), (200, credentials));
    let read = market.send(&server, "editor", "GET", &binding, None);
    assert_eq!((read.status, &read.body["credentials"]), (200, credentials));
    let claim = || market.town.get(&format!("brokertemplateinstance/{INSTANCE}"));
    assert_eq!(claim()["spec"]["bindingIDs"], json!([BINDING]));

    let of = format!("?service_id={service}&plan_id={service}");
    let unbind = format!("{binding}{of}");
    assert_eq!(market.send(&server, "viewer", "DELETE", &unbind, None).status, 403);
    assert_eq!(market.send(&server, "editor", "DELETE", &unbind, None).status, 200);
    assert_eq!(market.send(&server, "editor", "DELETE", &unbind, None).status, 410);
    assert_eq!(claim()["spec"]["bindingIDs"], json!([]));
    let remove = format!("{instance}{of}&accepts_incomplete=true");
    assert_eq!(market.send(&server, "viewer", "DELETE", &remove, None).status, 403);
    assert_eq!(market.send(&server, "editor", "DELETE", &remove, None).status, 202);
    assert_eq!(market.settled(&server)["state"], "succeeded", "{}", server.log());
    assert_eq!(market.send(&server, "editor", "DELETE", &remove, None).status, 410);
    for kind in ["templateinstances", "deployments", "services"] {
        assert_eq!(market.town.count(kind), 0, "{kind}");
    }
    let claims = market.town.get("brokertemplateinstances")["items"].to_string();
    assert!(!claims.contains(INSTANCE), "{claims}");
    let password = credentials["password"].as_str().unwrap();
    assert!(!server.log().contains(password), "a password is in the log");
}
