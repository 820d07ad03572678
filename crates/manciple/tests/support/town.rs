//! A namespace of the test cluster, and a server for it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::{Served, Site, order};

/// A namespace that is removed when the test is over, and a folder that all its brokers write into.
pub(crate) struct Town {
    pub(crate) namespace: String,
    /// The server's folder, with its settings.
    pub(crate) site: Site,
    pub(crate) ledger: PathBuf,
}

impl Town {
    /// With our kinds, and nothing in it.
    pub(crate) fn empty() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("town-{}-{count}", std::process::id());
        apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}));
        kubernetes::definitions().iter().for_each(apply);
        let ledger = tempfile::Builder::new().prefix("ledger-").tempdir().unwrap().keep();
        std::fs::set_permissions(&ledger, std::fs::Permissions::from_mode(0o777)).unwrap();
        Self { namespace, site: Site::new(""), ledger }
    }

    pub(crate) fn config_map(&self, name: &str, data: &Value) {
        self.make(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}));
    }

    pub(crate) fn secret(&self, name: &str, data: &Value) {
        self.make(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}));
    }

    /// Applies an object in this namespace.
    pub(crate) fn make(&self, object: &Value) {
        let mut object = object.clone();
        object["metadata"]["namespace"] = json!(self.namespace);
        apply(&object);
    }

    /// A service account: its user, and a token for an audience; without one, for the API server.
    pub(crate) fn account(&self, name: &str, audience: &str) -> (String, String) {
        self.make(
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}),
        );
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{name}/token", self.namespace);
        let spec = match audience {
            "" => json!({}),
            audience => json!({"audiences": [audience]}),
        };
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec,
        });
        let request = self.site.write("token-request.json", &request.to_string());
        let made = self.kubectl(&["create", "--raw", &path, "-f", request.to_str().unwrap()]);
        let made: Value = serde_json::from_str(&made).unwrap();
        let token = made["status"]["token"].as_str().unwrap().to_owned();
        (format!("system:serviceaccount:{}:{name}", self.namespace), token)
    }

    /// The pods of a broker whose executable is in a ConfigMap, and whose ledger is ours.
    pub(crate) fn pod(&self, script: &str) -> Value {
        json!({
            "volumes": [
                {"name": "script", "configMap": {"name": script, "defaultMode": 0o555}},
                {"name": "ledger", "hostPath": {"path": self.ledger}},
            ],
            "volumeMounts": [
                {"name": "script", "mountPath": "/bin/broker", "subPath": "broker"},
                {"name": "ledger", "mountPath": "/ledger"},
            ],
        })
    }

    pub(crate) fn command(&self) -> Command {
        let config = self.site.write("manciple.yaml", &self.site.settings);
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--config"])
            .arg(config)
            .env("KUBECONFIG", testkit::cluster::kubeconfig().unwrap_or_else(|why| panic!("{why}")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// A server that listens; it may have no catalog yet.
    pub(crate) fn start(&self) -> Served {
        Served::start(&mut self.command()).unwrap_or_else(|log| panic!("no server: {log}"))
    }

    pub(crate) fn serve(&self) -> Served {
        let server = self.start();
        order::ready(&server);
        server
    }

    /// `kubectl get … -o json`.
    pub(crate) fn get(&self, what: &str) -> Value {
        let output = self.kubectl(&["get", what, "-o", "json"]);
        serde_json::from_str(&output).unwrap()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.get(what)["items"].as_array().map_or(0, Vec::len)
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output =
            testkit::cluster::kubectl().args(["-n", &self.namespace]).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn effects(&self, line: &str) -> usize {
        let all = std::fs::read_to_string(self.ledger.join("all")).unwrap_or_default();
        all.lines().filter(|found| *found == line).count()
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.ledger);
        for kind in ["serviceinstances", "servicebindings"] {
            let names = testkit::cluster::kubectl()
                .args(["-n", &self.namespace, "get", kind, "-o", "name"])
                .output()
                .map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            for name in names.unwrap_or_default().lines() {
                let patch = r#"{"metadata":{"finalizers":null}}"#;
                let _ = testkit::cluster::kubectl()
                    .args(["-n", &self.namespace, "patch", name, "--type=merge", "-p", patch])
                    .output();
            }
        }
        let delete = ["delete", "namespace", &self.namespace, "--wait=false"];
        let _ = testkit::cluster::kubectl().args(delete).output();
    }
}

/// Applies an object, or says what the server said.
pub(crate) fn applied(object: &Value) -> Result<(), String> {
    let mut kubectl = testkit::cluster::kubectl()
        .args(["apply", "--validate=false", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    kubectl.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
    let output = kubectl.wait_with_output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn apply(object: &Value) {
    applied(object).unwrap_or_else(|said| panic!("{said}: {object}"));
}
