//! A kubelet that runs nothing: pods of runs begin, go on and end in their status alone.
//!
//! ```text
//! Pending ──bound──▶ given is there? ──▶ Running ──▶ report, sealed ──▶ Succeeded, Failed
//!                                        └ written into the ledger: who did what, and how often
//! ```
//!
//! The reports are real ones: the order is read from the pod, the confidential part from its Secret.

mod acts;
mod said;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::{Line, Order, Purpose, Sealed};
use engine::ports::Offer;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use osb::jobs::contract::Capability;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

pub use self::acts::{Act, End, Entry, JobAct, JobScript, Ledger, Offers, Script};
pub use self::said::{Logs, elsewhere, left, progress};
use self::said::{image, order, report, report_of, terminated, variable};

/// The label of pods that are runs of brokers.
const RUN: &str = "manciple.dev/run";
/// The label of pods of Jobs.
const JOB: &str = "job-name";
/// The sidecar of a QuarksJob's pod, and the annotation that tells it that the others have ended.
const SIDECAR: &str = "output-persist";
const ENDED: &str = "manciple.dev/ended";
/// The container that runs the broker.
const CONTAINER: &str = "broker";
/// The variable by which the pod of a QuarksJob is told something.
pub const INPUT: &str = "INPUT";
/// The node of its pods, if a test makes one of that name.
pub const NODE: &str = "of-a-test";
/// The pause between two tries to tell the API server something.
const AGAIN: Duration = Duration::from_millis(100);
/// How long a broker takes to end when it is told to.
const GRACE: Duration = Duration::from_millis(30);

/// Makes the node [`NODE`], with a fresh heartbeat.
///
/// # Errors
/// If the API server does not take it.
pub async fn make_node(client: &Client) -> kube::Result<()> {
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(client.clone());
    let metadata = kube::api::ObjectMeta { name: Some(NODE.to_owned()), ..Default::default() };
    let node = k8s_openapi::api::core::v1::Node { metadata, ..Default::default() };
    nodes.create(&PostParams::default(), &node).await?;
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let ready = json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}});
    nodes.patch_status(NODE, &PatchParams::default(), &Patch::Merge(ready)).await.map(drop)
}

enum Plays {
    Brokers { offers: Offers, script: Script },
    Jobs(JobScript),
}

/// A kubelet that plays the pods of a namespace. When it is dropped its pods stand still.
pub struct Kubelet {
    ledger: Arc<Mutex<Ledger>>,
    logs: Logs,
    tasks: JoinSet<()>,
}

impl Kubelet {
    /// Starts a kubelet whose brokers offer `catalog`.
    pub fn start(client: Client, namespace: &str, catalog: Value, script: Script) -> Self {
        let capabilities = vec![Capability::Update, Capability::RequestFile];
        let offer = Offer { catalog, capabilities, ..Offer::default() };
        Self::start_offering(client, namespace, Arc::new(move |_| offer.clone()), script)
    }

    /// Does as [`Self::start`] for brokers that offer different catalogs.
    pub fn start_offering(client: Client, namespace: &str, offers: Offers, script: Script) -> Self {
        Self::play(client, namespace, Plays::Brokers { offers, script })
    }

    /// Starts a kubelet for the pods of QuarksJobs: in the ledger a run has the name of its Job.
    pub fn start_jobs(client: Client, namespace: &str, script: JobScript) -> Self {
        Self::play(client, namespace, Plays::Jobs(script))
    }

    fn play(client: Client, namespace: &str, plays: Plays) -> Self {
        let (ledger, logs) = (Arc::<Mutex<Ledger>>::default(), Logs::default());
        let node = Arc::new(Node {
            pods: Api::namespaced(client.clone(), namespace),
            secrets: Api::namespaced(client.clone(), namespace),
            config_maps: Api::namespaced(client, namespace),
            plays,
            ledger: Arc::clone(&ledger),
            logs: logs.clone(),
            placed: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(node.follow());
        Self { ledger, logs, tasks }
    }

    /// Stops the kubelet: its pods stand still.
    pub fn stop(&mut self) {
        self.tasks.abort_all();
    }

    /// The logs of its pods, as long as it is there.
    pub fn logs(&self) -> Logs {
        self.logs.clone()
    }

    /// The ledger of what happened until now.
    pub fn ledger(&self) -> Ledger {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The signals to a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Word {
    /// Whether the pod has to go.
    goes: bool,
    /// Whether its sidecar was told that the other containers have ended.
    ended: bool,
}

struct Node {
    pods: Api<Pod>,
    secrets: Api<Secret>,
    config_maps: Api<ConfigMap>,
    plays: Plays,
    ledger: Arc<Mutex<Ledger>>,
    logs: Logs,
    /// The runs of which a pod has a node and has not ended: no other pod of such a run gets one. For pods that do not
    /// keep away from each other, their uids.
    placed: Mutex<HashSet<String>>,
}

/// A guard for a pod that has a node, until it has ended.
struct Place<'n> {
    node: &'n Node,
    run: String,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.node.placed().remove(&self.run);
    }
}

impl Node {
    async fn follow(self: Arc<Self>) {
        let mut pods: HashMap<String, watch::Sender<Word>> = HashMap::new();
        let mut lives = JoinSet::new();
        // Asked again at once when the API server is back.
        let label = match &self.plays {
            Plays::Brokers { .. } => RUN,
            Plays::Jobs(_) => JOB,
        };
        let events = watcher(self.pods.clone(), watcher::Config::default().labels(label));
        pin_mut!(events);
        loop {
            while lives.try_join_next().is_some() {}
            let pod = match events.next().await {
                Some(Ok(Event::Apply(pod) | Event::InitApply(pod))) => pod,
                // By force.
                Some(Ok(Event::Delete(pod))) => {
                    let told = pod.metadata.uid.and_then(|uid| pods.get(&uid));
                    told.into_iter().for_each(|it| it.send_modify(|word| word.goes = true));
                    continue;
                }
                Some(Ok(_)) => continue,
                _ => {
                    sleep(AGAIN).await;
                    continue;
                }
            };
            let Some(uid) = pod.metadata.uid.clone() else { continue };
            let annotations = pod.metadata.annotations.as_ref();
            let word = Word {
                goes: pod.metadata.deletion_timestamp.is_some(),
                ended: annotations.is_some_and(|all| all.contains_key(ENDED)),
            };
            let told = pods.entry(uid).or_insert_with(|| {
                let (told, going) = watch::channel(Word::default());
                let node = Arc::clone(&self);
                lives.spawn(async move {
                    match &node.plays {
                        Plays::Brokers { offers, script } => {
                            node.live(&pod, offers, script, going).await
                        }
                        Plays::Jobs(script) => node.live_job(&pod, script, going).await,
                    };
                });
                told
            });
            told.send_if_modified(|was| {
                let now = Word { goes: was.goes || word.goes, ended: was.ended || word.ended };
                std::mem::replace(was, now) != now
            });
        }
    }

    /// Plays the life of a broker's pod, from the scheduler to the end.
    async fn live(
        &self,
        pod: &Pod,
        offers: &Offers,
        script: &Script,
        mut going: watch::Receiver<Word>,
    ) -> Option<()> {
        let (name, uid) = (pod.metadata.name.as_deref()?, pod.metadata.uid.as_deref()?);
        if is_over(pod) {
            let _ = going.wait_for(|word| word.goes).await;
            return self.remove(name).await;
        }
        let order = order(pod)?;
        let image = image(pod).unwrap_or_default();
        let act = script(&order);
        let affinity = pod.spec.as_ref()?.affinity.as_ref();
        let keeps_apart = affinity.is_some_and(|it| it.pod_anti_affinity.is_some());
        let place = if keeps_apart { &order.run } else { uid };
        let Some(place) = self.place(place, &mut going).await else {
            return self.remove(name).await;
        };
        self.bind(name).await;
        if told(&mut going, act.begins).await {
            self.write(&order.run, |entry| entry.halted = true);
            return self.remove(name).await;
        }
        if !self.mounts(pod, &mut going).await {
            return self.remove(name).await;
        }
        let (given, state) = match order.given.is_empty() {
            true => (None, None),
            false => match self.given(&order.run, &mut going).await {
                Some((given, state)) => (Some(given), state),
                None => return self.remove(name).await,
            },
        };
        let began = Instant::now();
        self.write(&order.run, |entry| {
            entry.begun.push(uid.to_owned());
            entry.ran.get_or_insert((began, began));
            entry.order = Some(order.clone());
            image.clone_into(&mut entry.image);
            (entry.given, entry.state) = (given, state);
        });
        self.report_progress(name, &order);
        self.say(name, CONTAINER, "Running", &json!({"running": {}})).await;
        let end = match told(&mut going, act.lasts).await {
            true => None,
            false => Some(act.end),
        };
        if end.is_none() {
            sleep(GRACE).await;
        }
        let message = report(&order, end.as_ref(), act.again, &offers(image));
        // As the agent ends, which exits with 1 where the run has failed.
        let code = match (&message, &end) {
            (None, _) => 137,
            (Some(_), Some(End::Well | End::Elsewhere(_))) => 0,
            (Some(_), _) => 1,
        };
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.write(&order.run, |entry| {
            entry.halted |= end.is_none();
            entry.end = end.or(entry.end.take());
            entry.ran = entry.ran.map(|(began, _)| (began, Instant::now()));
            entry.again = act.again;
        });
        let state = json!({"terminated": {"exitCode": code, "reason": reason, "message": message}});
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.say(name, CONTAINER, phase, &state).await;
        drop(place);
        let _ = going.wait_for(|word| word.goes).await;
        self.remove(name).await
    }

    fn placed(&self) -> MutexGuard<'_, HashSet<String>> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a pod a node, as the scheduler does for a pod that keeps away from others of its run. `None` if it has to
    /// go first.
    async fn place(&self, run: &str, going: &mut watch::Receiver<Word>) -> Option<Place<'_>> {
        while !self.placed().insert(run.to_owned()) {
            if told(going, AGAIN).await {
                return None;
            }
        }
        Some(Place { node: self, run: run.to_owned() })
    }

    /// Waits for the agent that the pod mounts, if it mounts one; returns whether it came before the pod was told to
    /// go.
    async fn mounts(&self, pod: &Pod, going: &mut watch::Receiver<Word>) -> bool {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let named = volumes.filter_map(|volume| Some(&volume.config_map.as_ref()?.name));
        for agent in named.filter(|name| name.starts_with("agent-")) {
            while self.config_maps.get(agent).await.is_err() {
                if told(going, AGAIN).await {
                    return false;
                }
            }
        }
        true
    }

    /// Plays the life of a QuarksJob's pod, as [`Self::live`] does for a broker's.
    async fn live_job(
        &self,
        pod: &Pod,
        script: &JobScript,
        mut going: watch::Receiver<Word>,
    ) -> Option<()> {
        let (name, uid) = (pod.metadata.name.as_deref()?, pod.metadata.uid.as_deref()?);
        let job = &pod.metadata.owner_references.as_ref()?.first()?.name;
        let containers = &pod.spec.as_ref()?.containers;
        let sidecar = containers.iter().any(|container| container.name == SIDECAR);
        let act = script(job);
        self.bind(name).await;
        if told(&mut going, act.begins).await || !self.mounts(pod, &mut going).await {
            self.write(job, |entry| entry.halted = true);
            return self.remove(name).await;
        }
        let began = Instant::now();
        let input = variable(containers, INPUT).map(|input| json!(input));
        self.write(job, |entry| {
            entry.begun.push(uid.to_owned());
            entry.ran.get_or_insert((began, began));
            entry.given = input;
        });
        // Of each: what works, and our sidecar beside it.
        let states = |worked: bool, sidecar: bool, code: i32| -> Vec<(&str, Value)> {
            let of = |container: &Container| match container.name == SIDECAR {
                true if sidecar => terminated(0, &report_of(container, &act), pod),
                false if worked => terminated(code, &report_of(container, &act), pod),
                _ => json!({"running": {}}),
            };
            containers.iter().map(|it| (it.name.as_str(), of(it))).collect()
        };
        self.say_of(name, "Running", &states(false, false, 0)).await;
        let halted = told(&mut going, act.lasts).await;
        if halted {
            sleep(act.ends).await;
        }
        let code = if halted { 137 } else { act.code };
        let end = if code == 0 { End::Well } else { End::Fails(code.to_string()) };
        self.write(job, |entry| {
            entry.halted |= halted;
            entry.end = (!halted).then_some(end).or(entry.end.take());
            entry.ran = entry.ran.map(|(began, _)| (began, Instant::now()));
            entry.told_early |= going.borrow().ended;
        });
        if sidecar && !halted {
            self.say_of(name, "Running", &states(true, false, code)).await;
            let _ = going.wait_for(|word| word.goes || word.ended).await;
        }
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        self.say_of(name, phase, &states(true, true, code)).await;
        let _ = going.wait_for(|word| word.goes).await;
        self.remove(name).await
    }

    async fn bind(&self, name: &str) {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        });
        let params = PostParams::default();
        let bind = || self.pods.create_subresource::<_, Value>("binding", name, &params, &binding);
        // Refused, it has a node, or is gone.
        while !matches!(bind().await, Ok(_) | Err(kube::Error::Api(_))) {
            sleep(AGAIN).await;
        }
    }

    fn report_progress(&self, pod: &str, order: &Order) {
        if !order.can(Capability::Progress) {
            return;
        }
        let said = progress(&order.run);
        let sealed = Sealed::seal(&order.key, Purpose::Progress, &order.run, said.as_bytes());
        sealed.into_iter().for_each(|sealed| self.logs.write(pod, &Line::Progress(sealed)));
    }

    /// Waits for the Secret that a pod mounts, as a real kubelet does, and reads it: the request, and the state. `None`
    /// if the pod has to go first.
    async fn given(
        &self,
        run: &str,
        going: &mut watch::Receiver<Word>,
    ) -> Option<(Value, Option<Value>)> {
        loop {
            let found = self.secrets.get_opt(run).await.ok().flatten();
            if let Some(data) = found.and_then(|secret| secret.data) {
                let file = |name| serde_json::from_slice(&data.get(name)?.0).ok();
                return Some((file("work.json").unwrap_or_default(), file("state.json")));
            }
            if told(going, AGAIN).await {
                return None;
            }
        }
    }

    fn write(&self, run: &str, change: impl FnOnce(&mut Entry)) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let times = ledger.values().map(|entry| entry.times.0.max(entry.times.1)).max();
        let now = times.unwrap_or_default() + 1;
        let entry = ledger.entry(run.to_owned()).or_default();
        change(entry);
        match entry.times.0 {
            0 => entry.times.0 = now,
            _ => entry.times.1 = now,
        }
    }

    async fn say(&self, pod: &str, container: &str, phase: &str, state: &Value) {
        self.say_of(pod, phase, &[(container, state.clone())]).await;
    }

    /// Writes the states of all containers into a pod's status.
    async fn say_of(&self, pod: &str, phase: &str, states: &[(&str, Value)]) {
        let is_running = |state: &Value| state.get("running").is_some();
        let running = states.iter().all(|(_, state)| is_running(state));
        let is_ready = if running { "True" } else { "False" };
        let conditions =
            ["Ready", "ContainersReady"].map(|type_| json!({"type": type_, "status": is_ready}));
        let of = |(container, state): &(&str, Value)| {
            json!({
                "name": container, "image": "none", "imageID": "none", "restartCount": 0,
                "ready": is_running(state), "started": is_running(state), "state": state,
            })
        };
        let statuses: Vec<Value> = states.iter().map(of).collect();
        let status = Patch::Merge(json!({"status": {
            "phase": phase,
            "conditions": conditions,
            "containerStatuses": statuses,
        }}));
        loop {
            match self.pods.patch_status(pod, &PatchParams::default(), &status).await {
                Ok(_) => return,
                Err(kube::Error::Api(said)) if said.code == 404 => return,
                Err(_) => sleep(AGAIN).await,
            }
        }
    }

    async fn remove(&self, pod: &str) -> Option<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        loop {
            match self.pods.delete(pod, &now).await {
                Ok(_) => return Some(()),
                Err(kube::Error::Api(said)) if said.code == 404 => return Some(()),
                Err(_) => sleep(AGAIN).await,
            }
        }
    }
}

/// Whether a pod has ended, under a kubelet before this one: it is not begun again.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Waits for `within`; returns whether the pod was told to go.
async fn told(going: &mut watch::Receiver<Word>, within: Duration) -> bool {
    matches!(timeout(within, going.wait_for(|word| word.goes)).await, Ok(Ok(_)))
}
