//! A namespace where templates are offered, and a server with the rights that an operator gives it.

use std::process::Command;

use serde_json::{Value, json};

use super::support::http::{self, Answer};
use super::support::town::Town;
use super::support::{Served, order, within};

/// The project's folder.
const ROOT_FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
/// Where the broker is, as the original's.
const ROOT: &str = "/brokers/template.openshift.io/v2";
/// The longest that anything here takes on a busy machine, in seconds.
const PATIENCE: u64 = 90;

/// A namespace with an editor, a viewer and the templates of the examples.
pub(crate) struct Market {
    pub(crate) town: Town,
    /// That of the server's account.
    kubeconfig: std::path::PathBuf,
}

impl Market {
    pub(crate) fn new() -> Self {
        let mut town = Town::empty();
        for file in ["deploy/templates/crds.yaml", "deploy/templates/users.yaml"] {
            town.kubectl(&["apply", "-f", &format!("{ROOT_FOLDER}{file}")]);
        }
        town.kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd/templateinstances.template.openshift.io",
        ]);
        for template in ["web", "database"] {
            town.kubectl(&[
                "apply",
                "-f",
                &format!("{ROOT_FOLDER}examples/templates/{template}.yaml"),
            ]);
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
        let kubeconfig = account(&town);
        Self { town, kubeconfig }
    }

    /// Servers sell, and somebody else makes instances: they are in a namespace of their own, and have the rights of the
    /// broker alone.
    pub(crate) fn makes_nothing(&mut self) {
        self.set("controller", json!(false));
        let (namespace, home) = (&self.town.namespace, self.home());
        self.make_global(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": home}}),
        );
        let role = std::fs::read_to_string(format!("{ROOT_FOLDER}deploy/base/role.yaml")).unwrap();
        let role = role
            .replace("\n  namespace: manciple", &format!("\n  namespace: {home}"))
            .replace("\n    namespace: manciple", &format!("\n    namespace: {namespace}"));
        let file = self.town.site.write("home.yaml", &role);
        let apply = ["apply", "-f", file.to_str().unwrap()];
        let applied = testkit::cluster::kubectl().args(apply).output().unwrap();
        assert!(applied.status.success(), "{applied:?}");
        self.town.kubectl(&["delete", "rolebinding", "manciple"]);
        for of in ["requesters-controller", "controller"] {
            let name = format!("{}-{of}", of_cluster(namespace));
            self.town.kubectl(&["delete", "clusterrolebinding", &name]);
        }
        let mut settings: Value = serde_json::from_str(&self.town.site.settings).unwrap();
        settings["kubernetes"]["namespace"] = json!(home);
        self.town.site.settings = settings.to_string();
    }

    fn home(&self) -> String {
        format!("{}-home", self.town.namespace)
    }

    /// How many instances are recorded.
    pub(crate) fn records(&self) -> usize {
        let get = ["-n", &self.home(), "get", "serviceinstances", "-o", "name"];
        let listed = testkit::cluster::kubectl().args(get).output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        String::from_utf8_lossy(&listed.stdout).lines().count()
    }

    pub(crate) fn has_the_status_codes_of_the_original(&mut self) {
        self.set("status_codes", json!("original"));
    }

    pub(crate) fn names_services(&mut self) {
        self.set("ids", json!("name"));
    }

    fn set(&mut self, member: &str, value: Value) {
        let mut settings: Value = serde_json::from_str(&self.town.site.settings).unwrap();
        settings["kubernetes"]["templates"][member] = value;
        self.town.site.settings = settings.to_string();
    }

    /// A server that has read the templates.
    pub(crate) fn serve(&self) -> Served {
        self.serve_offering(2)
    }

    /// The same, of so many templates.
    pub(crate) fn serve_offering(&self, templates: usize) -> Served {
        let mut command = self.command();
        let server = Served::start(&mut command).unwrap_or_else(|log| panic!("no server: {log}"));
        order::ready(&server);
        let offered = || {
            let catalog = self.send(&server, "", "GET", "/catalog", None).body;
            (catalog["services"].as_array().map(Vec::len) == Some(templates)).then_some(())
        };
        assert!(within(20, offered).is_some(), "no catalog\n{}", server.log());
        server
    }

    fn command(&self) -> Command {
        let mut command = self.town.command();
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Sends as a user; nobody, if it is empty.
    pub(crate) fn send(
        &self,
        server: &Served,
        user: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        let identity = json!({
            "Username": user, "Groups": ["system:authenticated"],
            "Extra": {"scopes.authorization.openshift.io": ["user:full"]},
        })
        .to_string();
        let identity = data_encoding::BASE64.encode(identity.as_bytes());
        let header = match user {
            "" => String::new(),
            _ => format!("X-Broker-API-Originating-Identity: Kubernetes {identity}\r\n"),
        };
        let path = format!("{ROOT}{path}");
        let body = body.map(ToOwned::to_owned);
        http::send_with(&server.address, method, &path, body.as_ref(), &header).unwrap()
    }

    /// Says how an instance stands, as its controller would: again where the broker has written it in between.
    pub(crate) fn status(&self, instance: &str, status: &Value) {
        let namespace = &self.town.namespace;
        let path = format!(
            "/apis/template.openshift.io/v1/namespaces/{namespace}/templateinstances/{instance}/status"
        );
        loop {
            let mut there = self.town.get(&format!("templateinstance/{instance}"));
            there["status"] = status.clone();
            let file = self.town.site.write("status.json", &there.to_string());
            let mut replace = testkit::cluster::kubectl();
            replace.args(["-n", namespace, "replace", "--raw", &path, "-f"]).arg(file);
            let said = replace.output().unwrap();
            if said.status.success() {
                return;
            }
            let why = String::from_utf8_lossy(&said.stderr);
            assert!(why.contains("(Conflict)"), "{why}");
        }
    }

    /// Makes an object of the whole cluster.
    pub(crate) fn make_global(&self, object: &Value) {
        let file = self.town.site.write("global.json", &object.to_string());
        self.town.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    /// The id of a template's service.
    pub(crate) fn service(&self, name: &str) -> String {
        let path = "jsonpath={.metadata.uid}";
        self.town.kubectl(&["get", "templates.template.openshift.io", name, "-o", path])
    }

    pub(crate) fn order(&self, service: &str, parameters: Value) -> Value {
        json!({
            "service_id": service, "plan_id": service,
            "organization_guid": "o", "space_guid": "s", "parameters": parameters,
            "context": {"platform": "kubernetes", "namespace": self.town.namespace},
        })
    }

    /// How the last operation of an instance ends.
    pub(crate) fn settled(&self, server: &Served, instance: &str) -> Value {
        let path = format!("/service_instances/{instance}/last_operation");
        let settled = within(PATIENCE, || {
            let last = self.send(server, "editor", "GET", &path, None);
            // While the API server is busy it may not be known.
            (last.status < 500 && last.body["state"] != "in progress").then_some(last.body)
        });
        settled.unwrap_or_else(|| panic!("never ends\n{}", server.log()))
    }
}

impl Drop for Market {
    fn drop(&mut self) {
        for of in
            ["requesters", "requesters-broker", "requesters-controller", "broker", "controller"]
        {
            let name = format!("{}-{of}", of_cluster(&self.town.namespace));
            let what = [format!("clusterrolebinding/{name}"), format!("clusterrole/{name}")];
            let delete = ["delete", "--ignore-not-found", &what[0], &what[1]];
            let _ = testkit::cluster::kubectl().args(delete).output();
        }
        let home = ["delete", "namespace", "--ignore-not-found", "--wait=false", &self.home()];
        let _ = testkit::cluster::kubectl().args(home).output();
        // Of the whole cluster.
        let of_it = |claim: &&Value| {
            claim["spec"]["templateInstance"]["namespace"] == self.town.namespace.as_str()
        };
        let claims = testkit::cluster::kubectl()
            .args(["get", "brokertemplateinstances", "-o", "json"])
            .output()
            .map(|output| serde_json::from_slice(&output.stdout).unwrap_or(Value::Null));
        let claims = claims.unwrap_or_default();
        for claim in claims["items"].as_array().into_iter().flatten().filter(of_it) {
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            let delete = ["delete", "--wait=false", "brokertemplateinstance", name];
            let _ = testkit::cluster::kubectl().args(delete).output();
        }
        let instances = testkit::cluster::kubectl()
            .args(["-n", &self.town.namespace, "get", "templateinstances,secrets", "-o", "name"])
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        for name in instances.unwrap_or_default().lines() {
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            let _ = testkit::cluster::kubectl()
                .args(["-n", &self.town.namespace, "patch", name, "--type=merge", "-p", patch])
                .output();
        }
    }
}

/// How the names begin of what is of the whole cluster, and not that of another test.
fn of_cluster(namespace: &str) -> String {
    format!("manciple-templates-{namespace}")
}

/// The kubeconfig of an account with the rights that are written down for operators, those of the broker and of the
/// controller, and no others.
fn account(town: &Town) -> std::path::PathBuf {
    let (_, token) = town.account("manciple", "");
    let namespace = &town.namespace;
    for file in ["deploy/base/role.yaml", "deploy/overlays/templates/templates-role.yaml"] {
        let text = std::fs::read_to_string(format!("{ROOT_FOLDER}{file}")).unwrap();
        let text = text
            .replace("namespace: manciple", &format!("namespace: {namespace}"))
            .replace(
                "name: manciple-manciple-templates",
                &format!("name: {}", of_cluster(namespace)),
            )
            .replace("    name: manciple-controller\n", "    name: manciple\n");
        let file = town.site.write("rights.yaml", &text);
        town.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }
    let shown = town.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"]);
    let mut config: Value = serde_json::from_str(&shown).unwrap();
    config["users"][0]["user"] = json!({"token": token});
    town.site.write("account.kubeconfig", &config.to_string())
}
