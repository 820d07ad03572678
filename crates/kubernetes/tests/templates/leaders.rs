//! A leader that is paused in the middle of something, as a process is when its machine sleeps: another leads, and ends
//! what was begun; then the first one goes on where it was, and does not know yet that it leads no more.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::Api;
use kube::client::{Body, Client};
use kubernetes::Lead;
use kubernetes::templates::{Controller, Drift, Settings};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::harness::{Town, password, template};
use super::support::wait;
use super::withstands::{Wide, administrator};

/// For how long a Lease is held without a word.
const LEASE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(180);
/// The name of the controllers here.
const NAME: &str = "templates";

/// Where a process stands still: nothing in it goes on, no timer either.
#[derive(Default)]
struct Pause {
    /// How many of its writes that make something, or change it, are sent before it stands still.
    writes: AtomicUsize,
    stands: watch::Sender<bool>,
    goes_on: Mutex<bool>,
    told: Condvar,
    /// What came of that write then; 0: nobody answered.
    answered: watch::Sender<Option<u16>>,
}

impl Pause {
    /// Before a call is sent. Whether it stood still.
    fn pass(&self, request: &http::Request<Body>) -> bool {
        let path = request.uri().path();
        let is_write = request.method() != http::Method::GET;
        let is_dry = request.uri().query().is_some_and(|query| query.contains("dryRun"));
        if !is_write || is_dry || path.contains("/leases") || path.contains("accessreviews") {
            return false;
        }
        // The last is zero again: it stands still once.
        let left = |left: usize| left.checked_sub(1);
        if self.writes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) != Ok(1) {
            return false;
        }
        self.stands.send_replace(true);
        let mut goes_on = self.goes_on.lock().unwrap();
        while !*goes_on {
            goes_on = self.told.wait(goes_on).unwrap();
        }
        true
    }

    fn go_on(&self) {
        *self.goes_on.lock().unwrap() = true;
        self.told.notify_all();
    }
}

/// A controller that is a process of its own, as far as can be: a thread with a clock and connections of its own.
struct Process {
    pause: Arc<Pause>,
    leads: watch::Receiver<bool>,
    ends: Arc<watch::Sender<bool>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Process {
    /// One that stands still at this write.
    fn start(settings: Settings, identity: &'static str, at: usize) -> Self {
        let pause = Arc::new(Pause { writes: AtomicUsize::new(at), ..Pause::default() });
        let (led, leads) = watch::channel(false);
        let ends = Arc::new(watch::Sender::new(false));
        let (held, ended) = (Arc::clone(&pause), ends.subscribe());
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(run(settings, identity, held, led, ended));
        });
        Self { pause, leads, ends, thread: Some(thread) }
    }

    /// Waits until it stands still.
    async fn stands(&self) {
        let mut stands = self.pause.stands.subscribe();
        let stood = tokio::time::timeout(PATIENCE, stands.wait_for(|stands| *stands)).await;
        assert!(stood.is_ok(), "it writes less often");
    }

    /// Lets it go on: what came of the write at which it stood still.
    async fn goes_on(&self) -> u16 {
        let mut answered = self.pause.answered.subscribe();
        self.pause.go_on();
        let told = tokio::time::timeout(PATIENCE, answered.wait_for(Option::is_some)).await;
        told.expect("it was never sent").unwrap().unwrap()
    }

    /// Waits until it leads, or does not any more.
    async fn until(&mut self, leads: bool) {
        let told = tokio::time::timeout(PATIENCE, self.leads.wait_for(|it| *it == leads)).await;
        assert!(told.is_ok(), "it is never so that it leads: {leads}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.ends.send_replace(true);
        self.pause.go_on();
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

async fn run(
    settings: Settings,
    identity: &str,
    pause: Arc<Pause>,
    led: watch::Sender<bool>,
    mut ended: watch::Receiver<bool>,
) {
    let kubeconfig = testkit::cluster::kubeconfig().unwrap();
    let base = kubernetes::client(Some(&kubeconfig)).await.unwrap();
    let namespace = settings.namespace.clone();
    let service = tower::service_fn({
        let base = base.clone();
        move |request: http::Request<Body>| {
            let (base, pause) = (base.clone(), Arc::clone(&pause));
            async move {
                if !pause.pass(&request) {
                    return base.send(request).await;
                }
                // It was on its way already: whoever made it may have given it up by now.
                let sent = tokio::spawn(async move {
                    let answer = base.send(request).await;
                    let code = answer.as_ref().map_or(0, |it| it.status().as_u16());
                    pause.answered.send_replace(Some(code));
                    answer
                });
                sent.await.unwrap()
            }
        }
    });
    let client = Client::new(service, namespace.clone());
    let lead = Arc::new(Lead::new(base, &namespace, NAME, identity).lasting(LEASE));
    let controller = Controller::open(client, settings).await.unwrap();
    let (mut tasks, mut held) = (JoinSet::new(), lead.held());
    let keeps = Arc::clone(&lead);
    tasks.spawn(async move { keeps.keep().await });
    tasks.spawn(controller.run(lead));
    tasks.spawn(async move {
        while held.changed().await.is_ok() {
            led.send_replace(*held.borrow_and_update());
        }
    });
    let _ = ended.wait_for(|ended| *ended).await;
}

/// Waits until nothing of this name is left, removed by whom it may be.
async fn nothing_is_left(town: &Town, name: &str) {
    let begin = Instant::now();
    for kind in ["Secret", "ConfigMap", "Service"] {
        while let Some(object) = town.object("v1", kind, name).await {
            assert!(begin.elapsed() < PATIENCE, "it stays: {object:#}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Waits until there is no record of an instance.
async fn no_record_is_left(town: &Town) {
    wait::until("they stay", PATIENCE, async || {
        let secrets =
            town.objects("v1", "Secret").list_metadata(&Default::default()).await.unwrap();
        let names = secrets.items.into_iter().filter_map(|it| it.metadata.name);
        let records: Vec<String> =
            names.filter(|it| it.starts_with("template-instance-")).collect();
        if records.is_empty() { Ok(()) } else { Err(records) }
    })
    .await;
}

/// What a whole life has come to: three objects, as the instance has them, with one password.
async fn is_whole(town: &Town) {
    let instance = town.ready("i").await;
    let objects = instance["status"]["objects"].as_array().unwrap();
    let uids: BTreeSet<String> = objects.iter().map(|it| it["ref"]["uid"].to_string()).collect();
    let mut there = BTreeSet::new();
    for kind in ["Secret", "ConfigMap", "Service"] {
        let object = town.object("v1", kind, "sample").await.unwrap();
        there.insert(object["metadata"]["uid"].to_string());
    }
    assert_eq!(uids, there, "{instance:#}");
    let map = town.object("v1", "ConfigMap", "sample").await.unwrap();
    let made = town.secret("sample", "password").await.unwrap();
    assert_eq!(map["data"]["twice"], json!(made), "one password");
}

/// Makes an instance with a leader that stands still at this write, and another that takes over and ends it.
async fn taken_over(test: &str, at: usize) -> (Town, Process, Process) {
    let town = Town::still(test).await;
    let (first, second) = two(&town, "editor", password(), at).await;
    is_whole(&town).await;
    (town, first, second)
}

/// A leader that stands still in the middle of making this, and another that has taken over.
async fn two(town: &Town, user: &str, template: Value, at: usize) -> (Process, Process) {
    let first = Process::start(town.settings.clone(), "first", at);
    town.order("i", user, template).await;
    first.stands().await;
    let mut second = Process::start(town.settings.clone(), "second", 0);
    second.until(true).await;
    (first, second)
}

/// It writes that it is held, its record, three objects, and how it stands: at each of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_paused_makes_nothing_twice() {
    let mut all = JoinSet::new();
    for at in 1..=6 {
        all.spawn(async move {
            let (town, mut first, _second) = taken_over(&format!("paused-make-{at}"), at).await;
            assert_ne!(first.goes_on().await, 0, "nobody answered");
            first.until(false).await;
            is_whole(&town).await;
            town.delete("i").await;
            town.gone("i").await;
            nothing_is_left(&town, "sample").await;
            town.remove().await;
        });
    }
    while let Some(ended) = all.join_next().await {
        ended.unwrap();
    }
}

/// The instance is removed while its first leader stands still: what that one makes afterwards goes, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_paused_leader_makes_after_its_instance_is_gone_goes() {
    let mut all = JoinSet::new();
    for at in 1..=6 {
        all.spawn(async move {
            let (town, mut first, _second) = taken_over(&format!("paused-gone-{at}"), at).await;
            town.delete("i").await;
            town.gone("i").await;
            assert_ne!(first.goes_on().await, 0, "nobody answered");
            first.until(false).await;
            nothing_is_left(&town, "sample").await;
            no_record_is_left(&town).await;
            town.remove().await;
        });
    }
    while let Some(ended) = all.join_next().await {
        ended.unwrap();
    }
}

/// The same of what nothing owns, so that nobody but a controller removes it.
#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_owns_and_a_paused_leader_makes_too_late_goes() {
    let town = Town::still("paused-wide").await;
    let (user, _user) = administrator(&town).await;
    let role = format!("role-{}", town.cluster.namespace);
    let _wide = Wide::of(&[&["clusterrole", &role]]);
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role}, "rules": [],
    });
    // That it is held, its record, and the role.
    let template = template(json!([object]), json!([]));
    let (mut first, _second) = two(&town, &user, template, 3).await;
    town.ready("i").await;
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(first.goes_on().await, 201, "it makes it");
    first.until(false).await;
    it_goes(&town, &role).await;
    town.remove().await;
}

async fn it_goes(town: &Town, role: &str) {
    let roles: Api<ClusterRole> = Api::all(town.cluster.client.clone());
    wait::until("it stays", PATIENCE, async || {
        roles.get_opt(role).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
}

/// And of what is made anew, because somebody had removed it.
#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_owns_and_a_paused_leader_repairs_too_late_goes() {
    let mut town = Town::still("paused-repair").await;
    town.settings.drift = Drift::Repair;
    town.settings.drift_interval = Duration::from_millis(500);
    let (user, _user) = administrator(&town).await;
    let role = format!("role-{}", town.cluster.namespace);
    let _wide = Wide::of(&[&["clusterrole", &role]]);
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": role}, "rules": [],
    });
    let mut first = Process::start(town.settings.clone(), "first", 0);
    town.order("i", &user, template(json!([object]), json!([]))).await;
    town.ready("i").await;
    first.pause.writes.store(1, Ordering::SeqCst);
    let roles: Api<ClusterRole> = Api::all(town.cluster.client.clone());
    roles.delete(&role, &Default::default()).await.unwrap();
    first.stands().await;
    let mut second = Process::start(town.settings.clone(), "second", 0);
    second.until(true).await;
    town.delete("i").await;
    town.gone("i").await;
    assert_eq!(first.goes_on().await, 201, "it makes it");
    first.until(false).await;
    it_goes(&town, &role).await;
    town.remove().await;
}
