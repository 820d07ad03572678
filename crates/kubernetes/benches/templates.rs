//! What TemplateInstances cost, beside the same objects made barely in the same run; and what a catalog of 2,000
//! templates does.
//!
//! `cargo bench -p kubernetes --bench templates`: before an API server of its own.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic, reason = "a bench")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::in_process::InProcess;
use engine::ports::Store;
use engine::testing::MemoryStore;
use engine::{Engine, Policy, Ports, SystemClock};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::client::Body;
use kubernetes::templates::broker::{self, TemplateBroker};
use kubernetes::templates::names::Kind;
use kubernetes::templates::{
    Controller, DRIFT_INTERVAL, Drift, LONGEST_CALL, Requesters, Settings, WORKERS, definition,
    seal_key,
};
use kubernetes::{Client, Lead};
use osb::Backend as _;
use serde_json::{Value, json};
use testkit::plane::ControlPlane;
use tokio::task::JoinSet;
use tokio::time::sleep;

const NAMESPACE: &str = "bench";
const LOOK: Duration = Duration::from_millis(5);
/// How many instances of 7 objects.
const INSTANCES: usize = 100;
/// How many calls are under way at once for one instance.
const AT_ONCE: usize = 8;

#[derive(Default)]
struct Calls {
    writes: AtomicU64,
    reads: AtomicU64,
    reviews: AtomicU64,
}

impl Calls {
    fn count(self: &Arc<Self>, client: &Client) -> Client {
        let (base, calls) = (client.clone(), Arc::clone(self));
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let is_read = request.method() == http::Method::GET;
            let counter = match request.uri().path().contains("selfsubjectaccessreviews") {
                true => &calls.reviews,
                false if is_read => &calls.reads,
                false => &calls.writes,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            let base = base.clone();
            async move { base.send(request).await }
        });
        Client::new(service, NAMESPACE)
    }

    fn take(&self) -> [f64; 3] {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed) as f64;
        [take(&self.writes), take(&self.reads), take(&self.reviews)]
    }
}

fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

fn objects(prefix: &str, count: usize, filler: usize) -> Vec<Value> {
    let filler = "x".repeat(filler);
    (0..count)
        .map(|index| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("{prefix}-{index}")},
                "data": {"password": "${PASSWORD}", "filler": filler},
            })
        })
        .collect()
}

fn template(objects: Vec<Value>) -> Value {
    json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template", "metadata": {"name": "bench"},
        "objects": objects,
        "parameters": [{"name": "PASSWORD", "generate": "expression", "from": "[a-zA-Z0-9]{24}"}],
    })
}

struct Bench {
    client: Client,
    instances: Api<DynamicObject>,
}

impl Bench {
    async fn order(&self, name: &str, template: Value) {
        let resource = Kind::TemplateInstance.resource();
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name},
            "spec": {"template": template, "requester": {"username": "admin", "groups": ["system:masters"]}},
        }))
        .unwrap();
        self.instances.create(&PostParams::default(), &object).await.unwrap();
    }

    async fn change(&self, name: &str, template: Value) {
        let patch = Patch::Merge(json!({"spec": {"template": template}}));
        self.instances.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until what is ordered now is ready.
    async fn ready(&self, name: &str) {
        loop {
            let object = self.instances.get_status(name).await.unwrap();
            let observed = &object.data["status"]["observedGeneration"];
            if *observed != json!(object.metadata.generation) {
                sleep(LOOK).await;
                continue;
            }
            let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
            let mut holding = conditions.filter(|it| it["status"] == "True");
            if let Some(condition) = holding.next() {
                assert_eq!(condition["type"], "Ready", "{condition}");
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// The same objects, as many at once, without anything around them.
    async fn bare(&self, objects: Vec<Value>) -> Duration {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let begin = Instant::now();
        let params = PostParams::default();
        let calls = objects.into_iter().map(|object| {
            let (maps, params) = (maps.clone(), params.clone());
            async move {
                let object = serde_json::from_value(object).unwrap();
                maps.create(&params, &object).await.unwrap()
            }
        });
        stream::iter(calls).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
        begin.elapsed()
    }
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

#[tokio::main]
async fn main() {
    let definitions: Vec<Value> = Kind::ALL.map(definition).to_vec();
    let plane = ControlPlane::start(&definitions).unwrap();
    let client = kubernetes::client(Some(&plane.kubeconfig())).await.unwrap();
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let resource = Kind::TemplateInstance.resource();
    let instances = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let bench = Bench { client: client.clone(), instances };

    let calls = Arc::<Calls>::default();
    let settings = Settings {
        namespace: NAMESPACE.to_owned(),
        name: "templates".to_owned(),
        requesters: Requesters::Trusted,
        watched: Vec::new(),
        workers: WORKERS,
        drift: Drift::Ignore,
        drift_interval: DRIFT_INTERVAL,
        longest_call: LONGEST_CALL,
        translation: None,
    };
    let lead = Arc::new(Lead::new(client.clone(), NAMESPACE, "templates", "bench"));
    let controller = Controller::open(calls.count(&client), settings).await.unwrap();
    let mut tasks = JoinSet::new();
    let keeps = Arc::clone(&lead);
    tasks.spawn(async move { keeps.keep().await });
    tasks.spawn(controller.run(lead));
    bench.order("warm", template(objects("warm", 1, 0))).await;
    bench.ready("warm").await;
    calls.take();

    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for index in 0..40 {
        bare.push(bench.bare(objects(&format!("bare-{index}"), 7, 100)).await);
        let begin = Instant::now();
        let name = format!("one-{index}");
        bench.order(&name, template(objects(&name, 7, 100))).await;
        bench.ready(&name).await;
        ours.push(begin.elapsed());
    }
    let [writes, reads, reviews] = calls.take().map(|count| count / 40.0);
    let (ours, bare) = (median(ours), median(bare));
    println!("7 objects, one instance after another: {ours:.1?} to ready, {bare:.1?} bare");
    println!("calls of one: {writes:.2} writes, {reads:.2} reads, {reviews:.2} reviews");

    for (what, filler) in [("first", 101), ("further", 102)] {
        let mut changed = Vec::new();
        for index in 0..40 {
            let name = format!("one-{index}");
            let begin = Instant::now();
            bench.change(&name, template(objects(&name, 7, filler))).await;
            bench.ready(&name).await;
            changed.push(begin.elapsed());
        }
        let [writes, reads, reviews] = calls.take().map(|count| count / 40.0);
        let changed = median(changed);
        println!(
            "a {what} change of 7 objects: {changed:.1?} to ready; {writes:.2} writes, {reads:.2} reads, \
             {reviews:.2} reviews"
        );
    }

    let begin = (Instant::now(), cpu());
    let names: Vec<String> = (0..INSTANCES).map(|index| format!("many-{index}")).collect();
    for name in &names {
        bench.order(name, template(objects(name, 7, 100))).await;
    }
    for name in &names {
        bench.ready(name).await;
    }
    let each = (cpu() - begin.1) / u32::try_from(INSTANCES).unwrap();
    println!(
        "{INSTANCES} at once: all ready after {:.2?}, {each:.1?} CPU each, this bench's with it",
        begin.0.elapsed()
    );

    let bare = bench.bare(objects("bare", 1000, 850)).await;
    let begin = Instant::now();
    bench.order("large", template(objects("large", 1000, 850))).await;
    bench.ready("large").await;
    println!("1,000 objects of 1 MB: {:.2?} to ready, {bare:.2?} bare", begin.elapsed());
    calls.take();
    let begin = cpu();
    sleep(Duration::from_secs(10)).await;
    let [writes, reads, _] = calls.take();
    println!("at rest for 10 s: {writes} writes, {reads} reads, {:.0?} CPU", cpu() - begin);

    catalog(&client).await;
}

/// 2,000 templates of 7 parameters.
async fn catalog(client: &Client) {
    let templates: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), NAMESPACE, &Kind::Template.resource());
    let parameters: Vec<Value> = (0..7)
        .map(|index| json!({"name": format!("P{index}"), "description": "What it is for", "value": "a value"}))
        .collect();
    let made = (0..2000).map(|index| {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "template.openshift.io/v1", "kind": "Template",
            "metadata": {"name": format!("t-{index}"), "annotations": {"description": "One of many"}},
            "objects": [], "parameters": parameters,
        }))
        .unwrap();
        let templates = templates.clone();
        async move { templates.create(&PostParams::default(), &object).await.unwrap() }
    });
    stream::iter(made).buffer_unordered(16).collect::<Vec<_>>().await;
    let calls = Arc::<Calls>::default();
    let counted = calls.count(client);
    let seal = seal_key(counted.clone(), NAMESPACE, "templates").await.unwrap();
    let settings = broker::Settings {
        namespace: NAMESPACE.to_owned(),
        offered: vec![NAMESPACE.to_owned()],
        ..broker::Settings::default()
    };
    let broker = TemplateBroker::new(&counted, settings, seal);
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let ports = Ports {
        store: TemplateBroker::store(store),
        runner: Arc::new(InProcess::new(broker.clone())),
        clock: Arc::new(SystemClock),
        observer: Arc::new(()),
    };
    let engine = Engine::new(Policy::default(), ports);
    let begin = (Instant::now(), cpu());
    let keeps = tokio::spawn(broker.keep(engine.clone()));
    let size = |engine: &Engine| engine.catalog().map_or(0, |it| it.catalog().services.len());
    while size(&engine) < 2000 {
        sleep(LOOK).await;
    }
    let bytes = engine.catalog().map_or(0, |catalog| catalog.body().len());
    println!(
        "catalog of 2,000 templates: served after {:.2?} ({:.0?} CPU), {} KB",
        begin.0.elapsed(),
        cpu() - begin.1,
        bytes / 1024
    );
    calls.take();
    let begin = (Instant::now(), cpu());
    let params = kube::api::DeleteParams::default();
    templates.delete("t-7", &params).await.unwrap();
    while size(&engine) != 1999 {
        sleep(LOOK).await;
    }
    let [writes, reads, _] = calls.take();
    println!(
        "one that goes: after {:.0?} ({:.0?} CPU), {writes} writes, {reads} reads",
        begin.0.elapsed(),
        cpu() - begin.1
    );
    keeps.abort();
}
