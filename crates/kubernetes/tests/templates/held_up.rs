//! A leader whose calls are held up on their way, until another leads and has removed the instance: what they make then
//! is known to nobody but the first one.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::Api;
use kubernetes::templates::Controller;
use kubernetes::{Client, Lead};
use serde_json::{Value, json};
use testkit::proxy::{Plan, Proxy};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::harness::{PATIENCE, Town, template};
use super::support::wait;
use super::withstands::{Wide, administrator};

/// For how long a Lease is held without a word.
const LEASE: Duration = Duration::from_secs(3);
/// For how long a call may take effect that was given up.
const LONGEST_CALL: Duration = Duration::from_secs(20);
/// How long after it was made a call has been given up.
const GIVEN_UP: Duration = Duration::from_secs(23);
/// The name of the controllers here.
const NAME: &str = "templates";

/// A controller that asks for everything by this client, for its Lease too.
async fn leader(town: &Town, client: &Client, identity: &'static str) -> (Arc<Lead>, JoinSet<()>) {
    let lead = Lead::new(client.clone(), &town.cluster.namespace, NAME, identity).lasting(LEASE);
    let lead = Arc::new(lead);
    let controller = Controller::open(client.clone(), town.settings.clone()).await.unwrap();
    let (mut tasks, keeps) = (JoinSet::new(), Arc::clone(&lead));
    tasks.spawn(async move { keeps.keep().await });
    tasks.spawn(controller.run(Arc::clone(&lead)));
    (lead, tasks)
}

async fn until_it_leads(lead: &Lead, leads: bool) {
    let mut held = lead.held();
    let told = tokio::time::timeout(PATIENCE, held.wait_for(|held| *held == leads)).await;
    assert!(told.is_ok(), "it is never so that it leads: {leads}");
}

/// A template of one role of the whole cluster.
fn role(name: &str) -> Value {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name}, "rules": [],
    });
    template(json!([role]), json!([]))
}

/// Waits until the role is there, or is not.
async fn until_there(town: &Town, role: &str, is_there: bool) {
    let roles: Api<ClusterRole> = Api::all(town.cluster.client.clone());
    wait::until(&format!("it is never so that it is there: {is_there}"), PATIENCE, async || {
        let found = roles.get_opt(role).await.unwrap();
        if found.is_some() == is_there { Ok(()) } else { Err(found) }
    })
    .await;
}

/// An instance that one leader was making when another took over, which has made and removed it.
struct Overtaken {
    town: Town,
    role: String,
    record: String,
    /// Before the first leader, and before its calls that are held up.
    proxy: Proxy,
    _leaders: [JoinSet<()>; 2],
    _wide: [Wide; 2],
}

/// As a call is written: which of the first leader's are held up when it begins, and so is its Lease then.
struct HeldUp {
    at_first: fn(&str) -> bool,
    then: fn(&str) -> bool,
}

/// Until the first leader has given up what was held up.
async fn overtaken(test: &str, calls: HeldUp) -> Overtaken {
    let mut town = Town::still(test).await;
    town.settings.longest_call = LONGEST_CALL;
    let (user, may_all) = administrator(&town).await;
    let name = format!("role-{}", town.cluster.namespace);
    let wide = [Wide::of(&[&["clusterrole", &name]]), may_all];
    let proxy = Proxy::start(town.cluster.client.clone(), Plan::calm()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, proxy.kubeconfig()).unwrap();
    let client = kubernetes::client(Some(&file)).await.unwrap();
    proxy.hold_up(calls.at_first);
    let (first, tasks) = leader(&town, &client, "first").await;
    until_it_leads(&first, true).await;
    town.order("i", &user, role(&name)).await;
    wait::until("it is never called", PATIENCE, async || {
        let made = proxy.made();
        if made.iter().any(|call| (calls.at_first)(call)) { Ok(()) } else { Err(made) }
    })
    .await;
    let given_up = Instant::now() + GIVEN_UP;
    proxy.hold_up(calls.then);
    until_it_leads(&first, false).await;
    let (second, others) = leader(&town, &town.cluster.client, "second").await;
    until_it_leads(&second, true).await;
    let instance = town.ready("i").await;
    let record = format!("template-instance-{}", instance["metadata"]["uid"].as_str().unwrap());
    town.delete("i").await;
    town.gone("i").await;
    town.until_gone("v1", "Secret", &record).await;
    until_there(&town, &name, false).await;
    sleep_until(given_up).await;
    Overtaken { town, role: name, record, proxy, _leaders: [tasks, others], _wide: wide }
}

/// Nothing owns the role, and no record says any more that it was to be made.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_made_by_a_call_that_was_held_up_until_the_instance_was_gone_goes() {
    fn makes_a_role(call: &str) -> bool {
        call.starts_with("POST ") && call.ends_with("/clusterroles")
    }
    let then = |call: &str| makes_a_role(call) || call.contains("/leases");
    let at = overtaken("held-up-role", HeldUp { at_first: makes_a_role, then }).await;
    at.proxy.hold_up(|_| false);
    until_there(&at.town, &at.role, true).await;
    until_there(&at.town, &at.role, false).await;
    at.town.remove().await;
}

/// It has a finalizer, so that nobody else removes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_held_up_until_its_instance_was_gone_goes() {
    fn makes_a_secret(call: &str) -> bool {
        call.starts_with("POST ") && call.ends_with("/secrets")
    }
    let then = |call: &str| makes_a_secret(call) || call.contains("/leases");
    let at = overtaken("held-up-record", HeldUp { at_first: makes_a_secret, then }).await;
    at.proxy.hold_up(|_| false);
    at.town.until_there("v1", "Secret", &at.record).await;
    at.town.until_gone("v1", "Secret", &at.record).await;
    at.town.remove().await;
}
