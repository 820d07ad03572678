//! The real server before an API server of the test's own: killed by SIGKILL at its n-th call, with a clock
//! that is up to an hour wrong, upgraded while operations are in flight, and begun anew on a snapshot of etcd.
//!
//! `MANCIPLE_SCHEDULES=500` runs more schedules, `MANCIPLE_SEED=17` one; `MANCIPLE_IDLE=3600` lets what is settled rest for an hour.
//! `MANCIPLE_OLDER=/path/to/manciple` has replicas of another build upgraded to this one, and gone back to.

mod away;
#[path = "../support/clock.rs"]
mod clock;
mod killed;
mod restored;
mod rolled;
#[path = "../support/mod.rs"]
mod support;

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use kubernetes::resources::Kind;
use rustix::process::{Pid, Signal, kill_process};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::platform::Platform;
use support::{Served, Site, builds, http, order, within};
use testkit::attempts::Attempts;
use testkit::kubelet::{Act, Kubelet, Script};
use testkit::number;
use testkit::plane::ControlPlane;
use testkit::processor::Processor;
use testkit::proxy::{Plan, Proxy};
use testkit::random::Random;
use tokio::runtime::Runtime;

/// How many schedules run when nobody says otherwise, and how many at once: they wait most of the time.
const SCHEDULES: u64 = 4;
const AT_ONCE: u64 = 4;

/// So many, if nobody says otherwise.
fn seeds(usual: u64) -> Range<u64> {
    match number("MANCIPLE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("MANCIPLE_SCHEDULES").unwrap_or(usual) + 1,
    }
}

/// A namespace of a control plane, with a kubelet.
struct Town {
    runtime: Arc<Runtime>,
    client: Client,
    namespace: String,
    kubelet: Kubelet,
    attempts: Attempts,
    site: Site,
}

impl Town {
    /// Whose brokers all take so long.
    fn new(plane: &ControlPlane, runtime: &Arc<Runtime>, name: &str, lasts: Duration) -> Self {
        let script: Script = Arc::new(move |_| Act::well(Duration::from_millis(20), lasts));
        Self::of(plane, runtime, name, script)
    }

    fn of(plane: &ControlPlane, runtime: &Arc<Runtime>, name: &str, script: Script) -> Self {
        let kubeconfig = plane.kubeconfig();
        let client = runtime.block_on(kubernetes::client(Some(&kubeconfig))).unwrap();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        let namespaces = Api::<Namespace>::all(client.clone());
        runtime.block_on(namespaces.create(&PostParams::default(), &namespace)).unwrap();
        let _entered = runtime.enter();
        let kubelet = Kubelet::start(client.clone(), name, catalog(), script);
        let attempts = Attempts::watch(&client, name);
        let mut site = Site::new("");
        site.settings = json!({
            "auth": {"disabled": true},
            "log": {"level": "warn,manciple=info,kubernetes=info"},
            "operations": {"hold": {"bind": "5s"}},
            "kubernetes": {
                "namespace": name, "image": "broker", "keep_failed": "0s",
                "agent_delivery": "init-container", "agent_image": "agent",
            },
        })
        .to_string();
        Self {
            runtime: Arc::clone(runtime),
            client,
            namespace: name.to_owned(),
            kubelet,
            attempts,
            site,
        }
    }

    fn command(&self, kubeconfig: &str) -> Command {
        self.command_of(&builds::this(), kubeconfig)
    }

    fn command_of(&self, build: &Path, kubeconfig: &str) -> Command {
        let config = self.site.write("manciple.yaml", &self.site.settings);
        let kubeconfig = self.site.write("kubeconfig", kubeconfig);
        let mut command = Command::new(build);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--config"])
            .arg(config)
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// A server that is killed at its n-th call to the API server, and whose clock is so many seconds ahead;
    /// `None` if it died before it listened.
    fn mortal(&self, plan: Plan, ahead: i64) -> Option<(Served, Proxy)> {
        self.mortal_of(&builds::this(), plan, ahead)
    }

    fn mortal_of(&self, build: &Path, plan: Plan, ahead: i64) -> Option<(Served, Proxy)> {
        // Whom nobody answers as it begins may end by itself.
        let is_let = plan.failing > 0;
        let proxy = self.runtime.block_on(Proxy::start(self.client.clone(), plan)).unwrap();
        let mut command = self.command_of(build, &proxy.kubeconfig());
        let shim = clock::shim(self.site.path());
        command.env("LD_PRELOAD", shim).env("CLOCK_AHEAD_S", ahead.to_string());
        let child = command.spawn().unwrap();
        let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let died = proxy.died();
        let started = std::thread::scope(|scope| {
            let starting = scope.spawn(|| Served::begun(child, false));
            // Until it listens it may die unseen: nobody waits for it yet, so the id is its own.
            self.runtime.block_on(async {
                tokio::pin!(died);
                while !starting.is_finished() {
                    tokio::select! {
                        () = &mut died => {
                            let _ = kill_process(id, Signal::KILL);
                            break;
                        }
                        () = tokio::time::sleep(Duration::from_millis(20)) => {}
                    }
                }
            });
            starting.join().unwrap()
        });
        match started {
            Ok(server) => Some((server, proxy)),
            Err(log) => {
                let killed = async { tokio::time::timeout(Duration::ZERO, proxy.died()).await };
                let killed = self.runtime.block_on(killed).is_ok();
                assert!(
                    killed || is_let,
                    "it ended before it listened, and nobody killed it:\n{log}"
                );
                None
            }
        }
    }

    /// As if the time of its holder was over.
    fn free_lease(&self) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        self.runtime.block_on(async {
            let all = (DeleteParams::default(), ListParams::default());
            leases.delete_collection(&all.0, &all.1).await.unwrap();
        });
    }

    fn lease(&self) -> Lease {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut all = self.runtime.block_on(leases.list(&ListParams::default())).unwrap().items;
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// No attempt has had a Job after its Job; who asks for a catalog may ask again.
    fn has_one_job_each(&self) {
        self.attempts.assert_one_job_each(|job| !job.starts_with("catalog-"));
    }

    /// What should not be there once everything was deleted, and names of Jobs are not taken any more.
    fn left(&self) -> Vec<String> {
        // A question for the catalog is kept as long as somebody may wait for its answer.
        let mut left = self.names::<Job>(&["catalog-"]);
        left.extend(self.names::<Pod>(&["catalog-"]));
        // The tombstones of records have their names.
        let kept = ["catalog-", "kube-root-ca", "agent-", "instance-", "binding-"];
        left.extend(self.names::<ConfigMap>(&kept));
        left.extend(self.names::<Role>(&[]));
        left.extend(self.names::<RoleBinding>(&[]));
        left.extend(self.kept());
        left
    }

    /// What should not be there as soon as everything was deleted.
    fn kept(&self) -> Vec<String> {
        let mut left = self.names::<Secret>(&["keys-"]);
        for kind in Kind::ALL {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), &self.namespace, &kind.resource());
            let all = self.runtime.block_on(api.list(&Default::default())).unwrap();
            left.extend(all.into_iter().filter_map(|found| found.metadata.name));
        }
        left
    }

    /// Of this kind, but for those whose names begin so.
    fn names<K>(&self, but: &[&str]) -> Vec<String>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + DeserializeOwned + Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = self.runtime.block_on(api.list(&ListParams::default())).unwrap();
        let names = all.into_iter().map(|found| found.name_any());
        names.filter(|name| !but.iter().any(|prefix| name.starts_with(prefix))).collect()
    }
}

fn catalog() -> Value {
    json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": true, "plan_updateable": true,
        "plans": [
            {"id": "p", "name": "small", "description": "d", "binding_rotatable": true},
            {"id": "q", "name": "large", "description": "d", "binding_rotatable": true},
        ],
    }]})
}

fn runtime() -> Arc<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    Arc::new(runtime)
}

fn plane() -> ControlPlane {
    ControlPlane::start(&kubernetes::definitions()).unwrap()
}

#[test]
fn every_schedule_of_kills_at_calls_to_the_api_server_ends_well() {
    let seeds = seeds(SCHEDULES);
    let (plane, runtime) = (plane(), runtime());
    let of_seed = |seed: u64| {
        println!("seed {seed}");
        let town = Town::new(&plane, &runtime, &format!("kills-{seed}"), Duration::from_millis(50));
        schedule(&town, seed)
    };
    let next = AtomicU64::new(seeds.start);
    let one_by_one = || {
        let taken =
            || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| seeds.contains(seed));
        std::iter::from_fn(taken).map(of_seed).sum::<u32>()
    };
    let deaths: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(one_by_one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    println!("{} schedules, {deaths} deaths", seeds.end - seeds.start);
    assert!(deaths > 0, "no server died: the schedules test nothing");
}

/// Runs one schedule; how many servers died.
fn schedule(town: &Town, seed: u64) -> u32 {
    let mut random = Random::new(seed);
    let mut platform = Platform::default();
    let mut deaths = 0;
    for _ in 0..2 + random.below(2) {
        let death = 1 + random.below(70);
        let plan = Plan { death: Some(death), random: random.part(death), ..around(seed) };
        // Of a life that was too short for its death nothing is counted.
        deaths += 1;
        if let Some((mut server, proxy)) = town.mortal(plan, ahead(&mut random)) {
            let killer = {
                let id = Pid::from_raw(i32::try_from(server.id()).unwrap()).unwrap();
                let died = async move {
                    proxy.died().await;
                    let _ = kill_process(id, Signal::KILL);
                    // Its connections are held until it is gone.
                    std::future::pending::<()>().await;
                };
                town.runtime.spawn(died)
            };
            for _ in 0..4 + random.below(8) {
                platform.act(&server, &mut random);
                if server.has_ended() {
                    break;
                }
            }
            killer.abort();
            deaths -= u32::from(!server.has_ended());
            server.kill();
        }
        town.free_lease();
    }
    let ahead = ahead(&mut random);
    let (server, proxy) =
        town.mortal(Plan::calm(), ahead).expect("a server that nothing happens to");
    order::ready(&server);
    let corrected = server.log().contains("it is corrected");
    assert!(corrected || ahead.abs() < 10, "seed {seed}: nobody noticed a clock {ahead} s ahead");
    ends_well(town, &server, &mut platform, seed);
    is_clean(&server, seed, || town.left());
    drop(server);
    drop(proxy);
    deaths
}

/// What goes wrong beside the deaths: in each other schedule calls fail, get lost or are late, watches lag and break.
fn around(seed: u64) -> Plan {
    match seed.is_multiple_of(2) {
        true => Plan { failing: 30, delay: 200, watches: 1500, lag: 300, ..Plan::calm() },
        false => Plan::calm(),
    }
}

/// What was ordered of a server has ended as it should, by one run each, and lets itself be removed.
fn ends_well(town: &Town, server: &Served, platform: &mut Platform, seed: u64) {
    platform.settle(server, seed);
    platform.order_surely(server, seed);
    let ledger = town.kubelet.ledger();
    let begun = |operation: &str| ledger.keys().any(|run| run.starts_with(operation));
    platform.check(server, begun, seed);
    for (run, entry) in &ledger {
        assert!(entry.begun.len() <= 1, "seed {seed}: {run} ran twice: {entry:?}");
    }
    town.has_one_job_each();
    for instance in 0..4 {
        let path = order::path(&format!("i{instance}"));
        let ids = "service_id=s&plan_id=p&accepts_incomplete=true";
        let gone = |path: &str| {
            let answer = http::send(&server.address, "DELETE", &format!("{path}?{ids}"), None)?;
            (answer.status == 410).then_some(())
        };
        for binding in 0..3 {
            let binding = format!("{path}/service_bindings/b{binding}");
            assert!(within(120, || gone(&binding)).is_some(), "seed {seed}: {binding} stays");
        }
        assert!(within(120, || gone(&path)).is_some(), "seed {seed}: {path} stays");
    }
}

/// Kubernetes takes away what was owned by a record that is gone; where it is behind, whoever leads does, a minute after.
fn is_clean(server: &Served, seed: u64, left: impl Fn() -> Vec<String>) {
    let clean = within(120, || left().is_empty().then_some(()));
    assert!(clean.is_some(), "seed {seed}: left behind: {:?}\n{}", left(), server.log());
}

/// How many seconds a server's clock is wrong: up to an hour either way, for two of three.
fn ahead(random: &mut Random) -> i64 {
    match random.below(3) {
        0 => 0,
        1 => i64::try_from(random.below(3600)).unwrap(),
        _ => -i64::try_from(random.below(3600)).unwrap(),
    }
}

#[test]
fn what_is_settled_costs_no_call() {
    let (plane, runtime) = (plane(), runtime());
    let mut town = Town::new(&plane, &runtime, "settled", Duration::from_millis(50));
    let mut settings: Value = serde_json::from_str(&town.site.settings).unwrap();
    // Every ten minutes by default.
    settings["catalog"] = json!({"refresh": "0s"});
    town.site.settings = settings.to_string();
    let (server, proxy) = town.mortal(Plan::calm(), 0).unwrap();
    order::ready(&server);
    for n in 0..20 {
        let instance = format!("i{n}");
        let made = order::provisioned(&server, &instance, &order::body("p"));
        assert_eq!(made["state"], "succeeded", "{made}");
        order::bind(&server, &instance, "b", &json!({"service_id": "s", "plan_id": "p"}));
    }
    // A watch of which nothing was heard for as long as the server remembers begins anew with a list: of what no
    // settled instance has.
    let of_watches =
        ["GET /api/v1/namespaces/settled/events", "GET /api/v1/namespaces/settled/configmaps"];
    let rest = number("MANCIPLE_IDLE").unwrap_or(15);
    let of_a_settled =
        |call: &String| !call.contains("/leases/") && !of_watches.contains(&call.as_str());
    let idle = || {
        // What is cleaned up after an outcome, and what a server looks at once it leads.
        let quiet = within(60, || {
            std::thread::sleep(Duration::from_secs(3));
            proxy.made().iter().all(|call| !of_a_settled(call)).then_some(())
        });
        assert!(quiet.is_some(), "it is never quiet: {:?}", proxy.made());
        std::thread::sleep(Duration::from_secs(rest));
        proxy.made()
    };
    let mut made = idle();
    // Jobs go after a minute. Where it took as long to make all of these, they go at three looks, or four.
    for _ in 0..5 {
        // And whoever had no answer for a third of a Lease looks who has it.
        let is_late = |call: &String| {
            call.starts_with("DELETE ") || call.starts_with("GET ") && call.contains("/leases/")
        };
        if made.iter().any(is_late) {
            made = idle();
        }
    }
    let leases: Vec<_> = made.extract_if(.., |call| call.contains("/leases/")).collect();
    assert!(!leases.is_empty(), "the Lease is renewed");
    assert!(leases.iter().all(|call| call.starts_with("PUT ")), "by a write alone: {leases:?}");
    println!("{} calls for the Lease", leases.len());
    // A third of its 15 s.
    assert!(leases.len() as u64 <= 2 + rest / 5, "{} in {rest} s", leases.len());
    for watch in of_watches {
        let lists = made.iter().filter(|call| *call == watch).count();
        assert!(lists as u64 <= 1 + rest / 60, "{lists} times in {rest} s: {watch}");
    }
    made.retain(of_a_settled);
    assert_eq!(made, [""; 0]);
}

#[test]
fn the_loss_of_who_leads_costs_the_time_of_its_lease_and_no_more() {
    let (plane, runtime) = (plane(), runtime());
    let town = Town::new(&plane, &runtime, "lost", Duration::from_millis(50));
    let kubeconfig = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    let mut first = Served::start(&mut town.command(&kubeconfig)).unwrap();
    order::ready(&first);
    let second = Served::start(&mut town.command(&kubeconfig)).unwrap();
    order::ready(&second);
    assert_eq!(order::provisioned(&second, "before", &order::body("p"))["state"], "succeeded");
    first.kill();
    let (lost, killed, processor) = (Instant::now(), SystemTime::now(), Processor::now());
    assert_eq!(order::provisioned(&second, "after", &order::body("p"))["state"], "succeeded");
    println!("it took {:?}, where a Lease is for 15 s", lost.elapsed());
    let taken = town.lease().spec.unwrap().acquire_time.unwrap().0;
    let lasted = processor.between(killed, taken.into());
    // Its holder may just have renewed it, the other sees that two seconds later and its end as much later again: 19 s, and
    // what its looks take where the API server is busy. One that waits for a second Lease would need 34 s.
    assert!(lasted < Duration::from_secs(30), "another leads after {lasted:?}");
}
