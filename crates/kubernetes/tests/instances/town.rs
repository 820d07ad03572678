//! One schedule: what goes wrong, and what has to hold at the end.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PostParams};
use kubernetes::templates::names::{Kind, OWNER};
use kubernetes::templates::{Controller, DRIFT_INTERVAL, Drift, Requesters, Settings};
use kubernetes::{Client, Lead};
use serde_json::{Value, json};
use testkit::proxy::{Faults, Plan, Proxy};
use testkit::random::Random;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::led::until_led;
use crate::seeds::Sum;

/// For how long things go wrong, from when somebody leads.
const WRONG: Duration = Duration::from_secs(6);
/// How long all may take to come to its end, once all is well. A call that was not answered may take effect for a
/// minute, and a removal waits for that.
const CLEAN: Duration = Duration::from_secs(300);
/// How late what somebody has begun who died may take effect: calls take seconds where much else is done.
const LATE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(200);
const REPLICAS: u64 = 2;
/// How long a Lease lasts, so that not much is waited for.
const LEASE: Duration = Duration::from_secs(2);

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    deaths: u64,
    calls: u64,
    faults: Faults,
    made: u64,
    changed: u64,
    removed: u64,
}

/// One that was ordered.
struct Order {
    name: String,
    /// Counted from 1, by changes.
    version: u64,
    is_deleted: bool,
}

impl Sum for Tally {
    fn add(&mut self, other: &Self) {
        self.deaths += other.deaths;
        self.calls += other.calls;
        self.faults.add(&other.faults);
        self.made += other.made;
        self.changed += other.changed;
        self.removed += other.removed;
    }

    fn deaths(&self) -> u64 {
        self.deaths
    }

    fn is_of_everything(&self, _: usize) -> bool {
        let counted = [self.made, self.changed, self.removed];
        counted.iter().all(|&count| count > 0) && self.faults.are_of_all_kinds()
    }
}

struct Town {
    client: Client,
    namespace: String,
    instances: Api<DynamicObject>,
    /// What goes wrong between controllers and the API server.
    faults: Arc<Mutex<Faults>>,
}

pub(crate) async fn schedule(kubeconfig: PathBuf, seed: u64) -> Tally {
    let random = Random::new(seed);
    let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
    let namespace = format!("seed-{seed}");
    let object: Namespace =
        serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &object).await.unwrap();
    let resource = Kind::TemplateInstance.resource();
    let instances = Api::namespaced_with(client.clone(), &namespace, &resource);
    let town = Arc::new(Town { client, namespace, instances, faults: Arc::default() });
    let (calm, _) = watch::channel(false);
    let mut replicas = JoinSet::new();
    for number in 0..REPLICAS {
        let (town, random) = (Arc::clone(&town), random.part(number));
        replicas.spawn(replica(town, number, random, calm.subscribe()));
    }
    until_led(&town.client, &town.namespace).await;
    let orders = orders(&town, random.part(100)).await;
    calm.send_replace(true);
    let mut tally = Tally::default();
    for order in &orders {
        town.ends(order).await;
        tally.removed += u64::from(order.is_deleted);
        tally.made += u64::from(!order.is_deleted);
        tally.changed += order.version - 1;
    }
    town.is_clean(&orders).await;
    drop(calm);
    while let Some(ended) = replicas.join_next().await {
        tally.add(&ended.unwrap());
    }
    tally.faults = town.faults.lock().unwrap().clone();
    tally
}

/// Lives, dies at a call, and lives again, until all is calm; then to the end.
async fn replica(
    town: Arc<Town>,
    number: u64,
    mut random: Random,
    mut calm: watch::Receiver<bool>,
) -> Tally {
    let mut tally = Tally::default();
    loop {
        let is_calm = *calm.borrow_and_update();
        let plan = match is_calm {
            true => Plan::calm(),
            false => Plan {
                failing: 20 + random.below(100),
                delay: 40,
                watches: 3000,
                lag: 300,
                death: (random.below(3) > 0).then(|| 3 + random.below(60)),
                effect: None,
                random: random.part(tally.deaths),
                faults: Arc::clone(&town.faults),
            },
        };
        let _ = random.below(2);
        let proxy = Proxy::start(town.client.clone(), plan).await.unwrap();
        let life = live(&town, number, &proxy);
        let has_died = tokio::select! {
            () = life => false,
            () = proxy.died() => true,
            changed = calm.changed() => {
                if changed.is_err() {
                    return tally;
                }
                false
            }
        };
        tally.calls += proxy.calls();
        tally.deaths += u64::from(has_died);
    }
}

/// Until it is dropped; returns where it cannot begin.
async fn live(town: &Town, number: u64, proxy: &Proxy) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, proxy.kubeconfig()).unwrap();
    let client = kubernetes::client(Some(&file)).await.unwrap();
    let settings = Settings {
        namespace: town.namespace.clone(),
        name: "templates".to_owned(),
        requesters: Requesters::Trusted,
        watched: vec![town.namespace.clone()],
        workers: 8,
        drift: Drift::Ignore,
        drift_interval: DRIFT_INTERVAL,
        translation: None,
        longest_call: LATE,
    };
    let Ok(controller) = Controller::open(client, settings).await else { return };
    // With a Lease for each both lead all the time.
    let lease = match std::env::var_os("MANCIPLE_BOTH_LEAD") {
        Some(_) => format!("templates-{number}"),
        None => "templates".to_owned(),
    };
    let identity = format!("replica-{number}");
    let lead = Lead::new(town.client.clone(), &town.namespace, &lease, &identity);
    let lead = Arc::new(lead.lasting(LEASE));
    let keeps = Arc::clone(&lead);
    tokio::join!(async move { keeps.keep().await }, controller.run(lead));
}

/// Instances, some changed or deleted after a while.
async fn orders(town: &Town, mut random: Random) -> Vec<Order> {
    let begin = Instant::now();
    let mut ordered: Vec<Order> = Vec::new();
    let mut count = 0;
    while begin.elapsed() < WRONG {
        if random.below(2) == 0 && ordered.len() < 6 {
            let name = format!("{}-{count}", town.namespace);
            count += 1;
            town.order(&name).await;
            ordered.push(Order { name, version: 1, is_deleted: false });
        } else if let Some(order) = ordered.iter_mut().filter(|it| !it.is_deleted).last() {
            match random.below(6) {
                0 | 1 => {
                    let name = &order.name;
                    town.instances.delete(name, &DeleteParams::default()).await.unwrap();
                    order.is_deleted = true;
                }
                2 | 3 => {
                    order.version += 1;
                    town.change(order).await;
                }
                _ => {}
            }
        }
        sleep(Duration::from_millis(random.below(600))).await;
    }
    ordered
}

/// What is ordered. Its role has another name in each second version, and but for the first there is a map of the version.
fn spec(name: &str, version: u64) -> Value {
    let map = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"password": "${PASSWORD}", "version": version.to_string()},
        })
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": if version.is_multiple_of(2) { format!("{name}-r") } else { name.to_owned() }},
        "rules": [],
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"password": "${PASSWORD}"},
    });
    let generated = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": format!("{name}-g")},
        "data": {"password": "${PASSWORD}", "version": version.to_string()},
    });
    let mut objects = vec![role, map(name), map(&format!("{name}-b")), secret, generated];
    if version > 1 {
        objects.push(map(&format!("{name}-v{version}")));
    }
    json!({
        "requester": {"username": "admin", "groups": ["system:masters"]},
        "template": {
            "metadata": {"name": "sample"},
            "objects": objects,
            "parameters": [{"name": "PASSWORD", "generate": "expression", "from": "[a-zA-Z0-9]{24}"}],
        },
    })
}

impl Town {
    async fn order(&self, name: &str) {
        let resource = Kind::TemplateInstance.resource();
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name},
            "spec": spec(name, 1),
        }))
        .unwrap();
        self.instances.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn change(&self, order: &Order) {
        let spec = spec(&order.name, order.version);
        let patch = Patch::Merge(json!({"spec": spec}));
        self.instances.patch(&order.name, &Default::default(), &patch).await.unwrap();
    }

    /// Waits until it is ready with all it is of, or gone.
    async fn ends(&self, Order { name, version, is_deleted }: &Order) {
        let begin = Instant::now();
        let object = loop {
            let found = self.instances.get_opt(name).await.unwrap();
            let is_observed = found.as_ref().is_some_and(|it| {
                it.data["status"]["observedGeneration"] == json!(it.metadata.generation)
            });
            match &found {
                None if *is_deleted => return,
                Some(found) if !is_deleted && is_observed && holds(&found.data, "Ready") => {
                    break found.data.clone();
                }
                _ => {}
            }
            let failed = found.as_ref().is_some_and(|it| holds(&it.data, "InstantiateFailure"));
            assert!(!failed || *is_deleted, "{name} has failed: {found:#?}");
            assert!(begin.elapsed() < CLEAN, "{name} comes to no end: {found:#?}");
            sleep(LOOK).await;
        };
        let objects = object["status"]["objects"].as_array().unwrap();
        let uids: BTreeSet<String> =
            objects.iter().map(|it| it["ref"]["uid"].to_string()).collect();
        assert_eq!(uids.len(), if *version == 1 { 5 } else { 6 }, "{name}: {object:#}");
    }

    /// Each object is there once and of one that is there; each instance has one password.
    async fn is_clean(&self, orders: &[Order]) {
        let begin = Instant::now();
        loop {
            let wrong = self.wrong(orders).await;
            if wrong.is_empty() {
                return;
            }
            assert!(begin.elapsed() < CLEAN, "{wrong:#?}");
            sleep(LOOK).await;
        }
    }

    async fn wrong(&self, orders: &[Order]) -> Vec<String> {
        let mut wrong = Vec::new();
        let all = ListParams::default();
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        let (maps, secrets) = (maps.list(&all).await.unwrap(), secrets.list(&all).await.unwrap());
        let ours = all.labels(OWNER);
        let roles = roles.list_metadata(&ours).await.unwrap();
        let kept = orders.iter().filter(|order| !order.is_deleted);
        for Order { name, version, .. } in kept.clone() {
            let is_of = |it: &Option<String>| {
                it.as_deref().is_some_and(|it| it == name || it.starts_with(&format!("{name}-")))
            };
            let mut passwords: Vec<String> = Vec::new();
            for map in maps.items.iter().filter(|it| is_of(&it.metadata.name)) {
                let mut data = map.data.clone().unwrap_or_default();
                passwords.extend(data.remove("password"));
                if data.remove("version") != Some(version.to_string()) {
                    wrong.push(format!("{:?}: is not of version {version}", map.metadata.name));
                }
            }
            for secret in secrets.items.iter().filter(|it| is_of(&it.metadata.name)) {
                let held = secret.data.clone().unwrap_or_default().remove("password");
                passwords.extend(held.map(|it| String::from_utf8(it.0).unwrap()));
            }
            let different: BTreeSet<&String> = passwords.iter().collect();
            let objects = if *version == 1 { 4 } else { 5 };
            if (passwords.len(), different.len()) != (objects, 1) {
                wrong.push(format!(
                    "{name}: {} objects, {} passwords",
                    passwords.len(),
                    different.len()
                ));
            }
        }
        let changed = kept.clone().filter(|order| order.version > 1).count();
        let count = kept.count();
        let labelled = |labels: &Option<std::collections::BTreeMap<String, String>>| {
            labels.as_ref().is_some_and(|labels| labels.contains_key(OWNER))
        };
        let of_maps = maps.items.iter().filter(|it| labelled(&it.metadata.labels)).count();
        let prefix = format!("{}-", self.namespace);
        let roles = roles.items.iter();
        let roles =
            roles.filter(|it| it.metadata.name.as_ref().is_some_and(|it| it.starts_with(&prefix)));
        let records = secrets.items.iter();
        let records = records.filter(|it| {
            it.metadata.name.as_ref().is_some_and(|it| it.starts_with("template-instance-"))
        });
        let records: Vec<&ObjectMeta> = records.map(|it| &it.metadata).collect();
        for (what, found, expected) in [
            ("ConfigMaps", of_maps, 3 * count + changed),
            ("ClusterRoles", roles.count(), count),
            ("records", records.len(), count),
        ] {
            if found != expected {
                wrong.push(format!("{found} {what} of {count} instances"));
            }
        }
        if records.len() != count {
            wrong.push(format!("{records:#?}"));
        }
        wrong
    }
}

fn holds(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|it| it["type"] == condition && it["status"] == "True")
}
