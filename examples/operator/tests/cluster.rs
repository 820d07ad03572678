//! The seed's flow on a real cluster: an order becomes a ServiceInstance, a controller in the broker's own
//! process carries it out and sets its condition, and deletion cleans up.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kubernetes::resources::Kind;
use osb::client::{Auth, ClientSettings, FollowOptions, Polling, Removed};
use osb::server::{Authentication, Credentials};
use osb::{BindingId, InstanceId, Sensitive};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

const PASSWORD: &str = "planted-password";
/// Good as well, while platforms go over to the other.
const FORMER: &str = "former-password";

/// A namespace for the length of a test.
struct Town {
    client: Client,
    namespace: String,
}

/// A replica; dropped, it is gone without a word.
struct Replica {
    runtime: Option<tokio::runtime::Runtime>,
    osb: osb::client::Client,
    _end: oneshot::Sender<()>,
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Town {
    async fn new(test: &str) -> Self {
        let kubeconfig = testkit::cluster::kubeconfig().unwrap_or_else(|why| panic!("{why}"));
        let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
        for definition in kubernetes::definitions() {
            testkit::cluster::apply(&definition);
        }
        let namespace = format!("{test}-{}", std::process::id());
        let object = from(json!({"metadata": {"name": namespace}}));
        let namespaces = Api::<Namespace>::all(client.clone());
        namespaces.create(&PostParams::default(), &object).await.unwrap();
        Self { client, namespace }
    }

    async fn replica(&self, identity: &str) -> Replica {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (namespace, identity) = (self.namespace.clone(), identity.to_owned());
        let (address, listening) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        runtime.spawn(async move {
            let kubeconfig = testkit::cluster::kubeconfig().unwrap();
            let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address.send(listener.local_addr().unwrap()).unwrap();
            let credentials = Credentials::new().user("platform", PASSWORD, "platform");
            let authentication = Authentication::fixed(credentials);
            let replica = operator::Replica { namespace, identity, authentication, tls: None };
            let end = async {
                let _ = ended.await;
            };
            operator::serve(client, replica, listener, end).await.unwrap();
        });
        let address = listening.await.unwrap();
        let mut settings = ClientSettings::new(format!("http://{address}"));
        let (user, password) = ("platform".to_owned(), Sensitive::new(PASSWORD.to_owned()));
        settings.auth = Auth::Basic { user, password };
        let osb = osb::client::Client::new(settings).unwrap();
        within("a catalog", async || osb.catalog(None).await.ok()).await;
        Replica { runtime: Some(runtime), osb, _end: end }
    }

    async fn instances(&self) -> Vec<DynamicObject> {
        let kind = Kind::ALL[0].resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        api.list(&ListParams::default()).await.unwrap().items
    }

    async fn settings(&self) -> Vec<ConfigMap> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut all = api.list(&ListParams::default()).await.unwrap().items;
        all.retain(|map| map.metadata.name.as_ref().unwrap().starts_with("settings-"));
        all
    }
}

impl Drop for Town {
    /// A resource that nobody answers for any more would keep the namespace.
    fn drop(&mut self) {
        let kubectl = |arguments: &[&str]| {
            testkit::cluster::kubectl().args(["-n", &self.namespace]).args(arguments).output()
        };
        let names = kubectl(&["get", "serviceinstances,servicebindings", "-o", "name"]);
        let names = names.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        for name in names.unwrap_or_default().lines() {
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            let _ = kubectl(&["patch", name, "--type=merge", "-p", patch]);
        }
        let _ = kubectl(&["delete", "namespace", &self.namespace, "--wait=false"]);
    }
}

fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

async fn within<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1800 {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("no {what} within three minutes");
}

fn following() -> FollowOptions {
    let often = Duration::from_millis(100);
    let polling = Polling { first_interval: often, max_interval: often, ..Polling::default() };
    FollowOptions { polling, mitigation: None }
}

fn order(plan: &str, values: &Value) -> Value {
    json!({
        "service_id": "7d0c6a52-settings", "plan_id": plan,
        "organization_guid": "o", "space_guid": "s", "parameters": {"values": values},
    })
}

fn condition(object: &DynamicObject, kind: &str) -> Value {
    let all = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == kind);
    found.map(|condition| condition["status"].clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_lives_as_the_seed_has_it() {
    let town = Town::new("operator-flow").await;
    let replica = town.replica("one").await;
    let (id, follow) = (InstanceId::new("i/1").unwrap(), following());
    let ordered = from(order("e2b1-at-once", &json!({"colour": "green"})));
    replica.osb.provision_and_wait(&id, &ordered, &follow).await.unwrap();
    let instances = town.instances().await;
    assert_eq!(instances.len(), 1);
    assert_eq!(condition(&instances[0], "Ready"), "True", "{:?}", instances[0].data);
    assert_eq!(town.settings().await[0].data.as_ref().unwrap()["colour"], "green");
    let update = json!({
        "service_id": "7d0c6a52-settings", "parameters": {"values": {"colour": "red"}},
    });
    replica.osb.update_and_wait(&id, &from(update), &follow).await.unwrap();
    let names = json!({"service_id": "7d0c6a52-settings", "plan_id": "e2b1-at-once"});
    let binding = BindingId::new("b").unwrap();
    let bound =
        replica.osb.bind_and_wait(&id, &binding, &from(names.clone()), &follow).await.unwrap();
    assert_eq!(bound.credentials.unwrap().expose()["values"]["colour"], "red");
    let unbound = replica.osb.unbind_and_wait(&id, &binding, &from(names.clone()), &follow).await;
    assert_eq!(unbound.unwrap(), Removed::Deleted);
    let gone = replica.osb.deprovision_and_wait(&id, &from(names), &follow).await;
    assert_eq!(gone.unwrap(), Removed::Deleted);
    within("end of the resource", async || town.instances().await.is_empty().then_some(())).await;
    assert_eq!(town.settings().await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_the_resource_is_a_deprovision() {
    let town = Town::new("operator-delete").await;
    let replica = town.replica("one").await;
    let id = InstanceId::new("i").unwrap();
    let ordered = from(order("e2b1-at-once", &json!({})));
    replica.osb.provision_and_wait(&id, &ordered, &following()).await.unwrap();
    assert_eq!(town.settings().await.len(), 1);
    let name = town.instances().await.remove(0).metadata.name.unwrap();
    let kind = Kind::ALL[0].resource();
    let api: Api<DynamicObject> = Api::namespaced_with(town.client.clone(), &town.namespace, &kind);
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    within("end of the resource", async || town.instances().await.is_empty().then_some(())).await;
    assert_eq!(town.settings().await.len(), 0, "what it stood for went first");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_replica_goes_on_where_one_was_lost() {
    let town = Town::new("operator-lost").await;
    let first = town.replica("one").await;
    let second = town.replica("two").await;
    let id = InstanceId::new("i").unwrap();
    let ordered = order("e2b1-later", &json!({"kept": "yes"}));
    first.osb.provision(&id, &from(ordered.clone())).await.unwrap();
    drop(first);
    // The same order to the replica that is left: it is in progress, and ends.
    second.osb.provision_and_wait(&id, &from(ordered), &following()).await.unwrap();
    let settings = town.settings().await;
    assert_eq!(settings.len(), 1);
    assert_eq!(settings[0].data.as_ref().unwrap()["kept"], "yes");
    let names = json!({"service_id": "7d0c6a52-settings", "plan_id": "e2b1-later"});
    let gone = second.osb.deprovision_and_wait(&id, &from(names), &following()).await;
    assert_eq!(gone.unwrap(), Removed::Deleted);
}

/// The program in a process of its own, which is gone however the test goes.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_speaks_tls_and_does_not_end_at_once() {
    let town = Town::new("operator-program").await;
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_operator"));
    command
        // Without the line that says where it listens, the test waits for ever.
        .env_remove("RUST_LOG")
        .env("KUBECONFIG", testkit::cluster::kubeconfig().unwrap())
        .env("POD_NAMESPACE", &town.namespace)
        .env("POD_NAME", "one")
        .env("PLATFORM_PASSWORD_FILE", write("password", &format!("{PASSWORD}\n{FORMER}\n")))
        .env("TLS_CERTIFICATE_FILE", write("tls.crt", &made.cert.pem()))
        .env("TLS_KEY_FILE", write("tls.key", &made.signing_key.serialize_pem()))
        .env("LISTEN", "127.0.0.1:0");
    let mut program = Program(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(program.0.stderr.take().unwrap()).lines();
    let port = lines.by_ref().find_map(|line| {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        Some(event["address"].as_str()?.rsplit_once(':')?.1.to_owned())
    });
    let port = port.unwrap();
    // Whoever writes to a pipe that nobody reads waits, in the end.
    std::thread::spawn(move || lines.for_each(drop));
    let asked = |password: &str| {
        let mut settings = ClientSettings::new(format!("https://localhost:{port}"));
        settings.ca_certificates = Some(made.cert.pem().into_bytes());
        let (user, password) = ("platform".to_owned(), Sensitive::new(password.to_owned()));
        settings.auth = Auth::Basic { user, password };
        osb::client::Client::new(settings).unwrap()
    };
    let knows = asked(PASSWORD);
    within("a catalog", async || knows.catalog(None).await.ok()).await;
    asked(FORMER).catalog(None).await.unwrap();
    let stranger = asked("guessed").catalog(None).await.unwrap_err().to_string();
    assert!(stranger.contains("401"), "{stranger}");
    let id = program.0.id().to_string();
    let (told, lingers) = (Instant::now(), Duration::from_secs(5));
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let still = asked(PASSWORD).catalog(None).await;
    // On a machine that stood still, it may be over.
    assert!(still.is_ok() || told.elapsed() >= lingers, "it takes what still comes: {still:?}");
    let ended = within("end", async || program.0.try_wait().unwrap()).await;
    assert!(ended.success(), "{ended}");
    assert!(told.elapsed() >= lingers, "it takes what still comes");
}
