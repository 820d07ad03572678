//! `examples/templates/database.yaml` with a server in it: what a binding is told opens a database, and what is written
//! there stays where it belongs.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use testkit::cluster::POSTGRES_IMAGE;

use super::market::Market;
use super::support::town::{Town, applied};
use super::support::within;

const INSTANCE: &str = "33333333-3333-4333-8444-555555555555";
const BINDING: &str = "bbbbbbbb-bbbb-4ccc-8ddd-eeeeeeeeeeee";
/// What is selected by: the pod and the claim of the database.
const OF_DATABASE: [&str; 2] = ["-l", "app=db"];

#[test]
fn a_database_is_ordered_bound_and_written_to_and_its_data_outlives_its_pod() {
    let market = Market::new();
    let server = market.serve();
    let service = market.service("database");
    let parameters = json!({"NAME": "db", "IMAGE": POSTGRES_IMAGE, "SIZE": "64Mi"});
    let order = market.order(&service, parameters);
    let instance = format!("/service_instances/{INSTANCE}");
    let put = format!("{instance}?accepts_incomplete=true");
    assert_eq!(market.send(&server, "editor", "PUT", &put, Some(&order)).status, 202);
    let volume = Volume::for_the_claim_of(&market.town);
    let settled = market.settled(&server, INSTANCE);
    assert_eq!(
        settled["state"],
        "succeeded",
        "is {POSTGRES_IMAGE} loaded, by `cargo xtask images dev`? {settled}\n{}\n{}",
        market.town.kubectl(&["describe", "pod", OF_DATABASE[0], OF_DATABASE[1]]),
        server.log()
    );

    let bind = json!({"service_id": service, "plan_id": service});
    let binding = format!("{instance}/service_bindings/{BINDING}");
    let bound = market.send(&server, "editor", "PUT", &binding, Some(&bind));
    assert_eq!(bound.status, 201, "{bound:?}\n{}", server.log());
    let credentials = &bound.body["credentials"];
    let application = Application::with(&market.town, credentials);
    let (pod, address) = serving(&market.town, "");
    let wrong = application.psql(&address, &["PGPASSWORD=wrong"], "SELECT 1");
    assert!(!wrong.status.success(), "anybody is let in: {wrong:?}");
    application.sql(&address, "CREATE TABLE kept (word text); INSERT INTO kept VALUES ('written')");

    editor(&market.town, &["delete", "pod", "db-0", "--wait=false"], "");
    volume.is_left_by(&market.town, &pod);
    let (pod, address) = serving(&market.town, &pod);
    assert_eq!(application.sql(&address, "SELECT word FROM kept"), "written");

    let of = format!("?service_id={service}&plan_id={service}");
    let unbind = format!("{binding}{of}");
    assert_eq!(market.send(&server, "editor", "DELETE", &unbind, None).status, 200);
    assert_eq!(market.send(&server, "editor", "GET", &binding, None).status, 404);
    // What a binding is told is the instance's: it is taken back with the instance.
    assert_eq!(application.sql(&address, "SELECT word FROM kept"), "written");

    let made = market.town.get(&format!("templateinstance/{INSTANCE}"));
    let events = market.town.get("events").to_string();
    let remove = format!("{instance}{of}&accepts_incomplete=true");
    assert_eq!(market.send(&server, "editor", "DELETE", &remove, None).status, 202);
    volume.is_left_by(&market.town, &pod);
    assert_eq!(market.settled(&server, INSTANCE)["state"], "succeeded", "{}", server.log());
    let record = format!("template-instance-{}", made["metadata"]["uid"].as_str().unwrap());
    only_the_data_is_left(&market.town, &record);
    assert!(volume.holds("pgdata/PG_VERSION"), "the data is gone with the instance");
    let password = credentials["password"].as_str().unwrap();
    for (place, text) in
        [("the log", server.log()), ("the instance", made.to_string()), ("events", events)]
    {
        assert!(!text.contains(password), "a password is in {place}");
    }
}

/// The claim of a StatefulSet outlives it; all else that was made for an order is gone.
fn only_the_data_is_left(town: &Town, record: &str) {
    for kind in ["templateinstances", "statefulsets", "services", "endpoints"] {
        assert_eq!(town.count(kind), 0, "{kind}");
    }
    let names = |kind: &str| town.kubectl(&["get", kind, "-o", "name"]);
    assert!(!names("pods").contains("pod/db-"), "{}", names("pods"));
    assert!(!names("secrets").contains("secret/db\n"), "{}", names("secrets"));
    // What the instance and the order owned is collected when they are gone.
    let collected = || {
        let secrets = names("secrets");
        (!secrets.contains(INSTANCE) && !secrets.contains(record)).then_some(())
    };
    assert!(within(30, collected).is_some(), "{}", names("secrets"));
    assert!(!names("brokertemplateinstances").contains(INSTANCE));
    let claims = town.kubectl(&["get", "pvc", OF_DATABASE[0], OF_DATABASE[1], "-o", "name"]);
    assert_eq!(claims.lines().count(), 1, "{claims}");
}

/// A volume on the node: the test cluster has nobody who makes one.
struct Volume {
    name: String,
    folder: tempfile::TempDir,
}

impl Volume {
    /// Waits for the claim, and makes what it claims: nobody else's claim is to take it.
    fn for_the_claim_of(town: &Town) -> Self {
        let claim = within(30, || {
            let claims = town.kubectl(&["get", "pvc", "-l", "app=db", "-o", "json"]);
            let claims: Value = serde_json::from_str(&claims).unwrap();
            claims["items"].get(0).cloned()
        });
        let claim = claim.expect("a StatefulSet claims its volume");
        let folder = tempfile::Builder::new().prefix("volume-").tempdir().unwrap();
        // A volume of this kind is given to nobody's group.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let name = format!("manciple-{}", town.namespace);
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "accessModes": claim["spec"]["accessModes"],
                "capacity": claim["spec"]["resources"]["requests"],
                "storageClassName": claim["spec"]["storageClassName"],
                // With the uid it is found at once, without it at the next look at all claims, after 15 s.
                "claimRef": {
                    "namespace": town.namespace,
                    "name": claim["metadata"]["name"],
                    "uid": claim["metadata"]["uid"],
                },
                "hostPath": {"path": folder.path()},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        });
        applied(&volume).unwrap_or_else(|said| panic!("{said}: {volume}"));
        Self { name, folder }
    }

    /// Waits for the server to end in order, and lets its pod, which is deleted, go at once: a kubelet does that as
    /// much as a minute later.
    fn is_left_by(&self, town: &Town, pod: &str) {
        let ended = within(30, || (!self.holds("pgdata/postmaster.pid")).then_some(()));
        assert!(ended.is_some(), "the server does not end when its pod is deleted");
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod}}).to_string();
        let path = format!("/api/v1/namespaces/{}/pods/db-0", town.namespace);
        // It may be gone, and another in its place.
        run(town, &["delete", "--raw", &path, "-f", "-"], &options);
    }

    fn holds(&self, path: &str) -> bool {
        self.folder.path().join(path).is_file()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let delete = ["delete", "persistentvolume", &self.name, "--wait=false"];
        let _ = testkit::cluster::kubectl().args(delete).output();
    }
}

/// What somebody deploys who was given credentials, and nothing else.
struct Application<'t> {
    town: &'t Town,
}

impl<'t> Application<'t> {
    fn with(town: &'t Town, credentials: &Value) -> Self {
        let told: Vec<&String> = credentials.as_object().unwrap().keys().collect();
        assert_eq!(told, ["database", "host", "password", "port", "username"]);
        assert_eq!(credentials["host"], format!("db.{}", town.namespace));
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "binding"},
            "stringData": credentials,
        });
        let variables = [
            ("PGHOST", "host"),
            ("PGPORT", "port"),
            ("PGUSER", "username"),
            ("PGPASSWORD", "password"),
            ("PGDATABASE", "database"),
        ];
        let variables = variables.map(|(name, key)| {
            json!({"name": name, "valueFrom": {"secretKeyRef": {"name": "binding", "key": key}}})
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "application"},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [{
                "name": "application", "image": POSTGRES_IMAGE, "command": ["sleep", "600"],
                "env": variables,
            }]},
        });
        for object in [secret, pod] {
            editor(town, &["create", "-f", "-"], &object.to_string());
        }
        editor(town, &["wait", "--for=condition=Ready", "--timeout=180s", "pod/application"], "");
        Self { town }
    }

    /// What a statement selects.
    fn sql(&self, address: &str, statement: &str) -> String {
        let output = self.psql(address, &[], statement);
        assert!(output.status.success(), "{statement}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a statement at the address of the host, which the test cluster has no names for.
    fn psql(&self, address: &str, variables: &[&str], statement: &str) -> Output {
        let address = format!("PGHOSTADDR={address}");
        let mut line = vec!["exec", "application", "--", "env", &address];
        line.extend(variables);
        line.extend(["psql", "-XtAq", "-v", "ON_ERROR_STOP=1", "-c", statement]);
        run(self.town, &line, "")
    }
}

/// The pod, by its uid, and the address that the database's host stands for; another pod than the one before.
fn serving(town: &Town, before: &str) -> (String, String) {
    let found = within(60, || {
        let endpoints = town.get("endpoints/db");
        let address = &endpoints["subsets"][0]["addresses"][0];
        let uid = address["targetRef"]["uid"].as_str()?;
        (uid != before).then(|| (uid.to_owned(), address["ip"].as_str().unwrap().to_owned()))
    });
    found.expect("the service has a pod that is ready")
}

/// kubectl, by somebody who may edit the namespace.
fn editor(town: &Town, arguments: &[&str], input: &str) {
    let output = run(town, arguments, input);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

fn run(town: &Town, arguments: &[&str], input: &str) -> Output {
    let mut kubectl = testkit::cluster::kubectl()
        .args(["--as=editor", "-n", &town.namespace])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    kubectl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    kubectl.wait_with_output().unwrap()
}
