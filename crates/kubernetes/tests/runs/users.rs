//! What users do, through a client that nothing goes wrong with but that the API server may be away: each trigger
//! is one that it has taken, and none is said again before the one before was taken up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use testkit::random::Random;
use tokio::time::{Instant, sleep};

use crate::town::Town;

const LOOK: Duration = Duration::from_millis(500);
/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS: u64 = 4;

/// Asks again while nobody answers.
pub(crate) async fn sure<T, F: Future<Output = kube::Result<T>>>(ask: impl Fn() -> F) -> T {
    let begun = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "nobody answers: {error}"),
        }
        sleep(LOOK).await;
    }
}

/// Waits until there is what is asked for.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, ask: impl Fn() -> F) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = ask().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "never {what}");
        sleep(LOOK).await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Told to run, again and again.
    Errand,
    /// Changes what it refers to, again and again.
    Follower,
    /// The same, and somebody takes Jobs and pods away by hand.
    Robbed,
    /// Runs once, for something that comes late.
    Late,
}

pub(crate) struct User {
    town: Arc<Town>,
    random: Random,
    manner: Manner,
    pub(crate) name: String,
    /// How many runs there have to be.
    pub(crate) triggers: u64,
}

pub(crate) fn resources(town: &Town) -> Api<DynamicObject> {
    let resource = Dialect::QuarksJob.resource();
    Api::namespaced_with(town.client.clone(), &town.namespace, &resource)
}

/// The number of the last run that is recorded.
fn recorded(object: &DynamicObject) -> u64 {
    let record = object.metadata.annotations.as_ref().and_then(|all| all.get("manciple.dev/runs"));
    let record: Value = serde_json::from_str(record.map_or("{}", String::as_str)).unwrap();
    record["last"].as_u64().unwrap_or_default()
}

impl User {
    pub(crate) fn all(town: &Arc<Town>, random: &Random, robs: bool) -> Vec<Self> {
        let of = |(number, manner)| Self {
            town: Arc::clone(town),
            random: random.part(number),
            manner,
            name: format!("{manner:?}-{number}").to_lowercase(),
            triggers: 0,
        };
        let second = if robs { Manner::Robbed } else { Manner::Errand };
        let manners = [Manner::Errand, second, Manner::Follower, Manner::Late];
        (0..).zip(manners).map(of).collect()
    }

    /// One whose QuarksJob runs for what changes, again and again.
    pub(crate) fn who_changes_things(town: &Arc<Town>, random: Random) -> Self {
        Self {
            town: Arc::clone(town),
            random,
            manner: Manner::Follower,
            name: "follower".to_owned(),
            triggers: 0,
        }
    }

    /// One who tells a QuarksJob to run.
    pub(crate) fn who_tells(town: &Arc<Town>) -> Self {
        let (manner, random) = (Manner::Errand, Random::new(0));
        Self { town: Arc::clone(town), random, manner, name: "errand".to_owned(), triggers: 0 }
    }

    pub(crate) async fn run(mut self) -> Self {
        self.pause(600).await;
        match self.manner {
            Manner::Errand | Manner::Robbed => self.errand().await,
            Manner::Follower => self.follower().await,
            Manner::Late => self.late().await,
        }
        self
    }

    async fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.random.below(most))).await;
    }

    pub(crate) async fn create(&self, strategy: &str, follows: bool) {
        let mut container = json!({"name": "c", "image": "none", "command": ["none"]});
        if !matches!(self.manner, Manner::Errand | Manner::Robbed) {
            container["envFrom"] = json!([{"configMapRef": {"name": self.name}}]);
        }
        let pod = json!({"restartPolicy": "Never", "containers": [container]});
        let options = json!({"name": format!("out-{}", self.name), "versioned": true});
        let object = json!({
            "apiVersion": Dialect::QuarksJob.api_version(), "kind": Dialect::QuarksJob.kind(),
            "metadata": {"name": self.name},
            "spec": {
                "trigger": {"strategy": strategy},
                "updateOnConfigChange": follows,
                "template": {"spec": {"backoffLimit": 0, "template": {"spec": pod}}},
                "output": {"outputMap": {"c": {"o.json": options}}},
            },
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let made = || async {
            let params = PostParams::default();
            match resources(&self.town).create(&params, &object).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
                made => made.map(drop),
            }
        };
        sure(made).await;
    }

    async fn config(&self, value: u64) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.name}, "data": {"k": value.to_string()},
        });
        let maps: Api<ConfigMap> = Api::namespaced(self.town.client.clone(), &self.town.namespace);
        let (params, patch) = (PatchParams::apply("user").force(), Patch::Apply(&map));
        sure(|| maps.patch(&self.name, &params, &patch)).await;
    }

    pub(crate) async fn get(&self) -> DynamicObject {
        let resources = resources(&self.town);
        sure(|| resources.get(&self.name)).await
    }

    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> DynamicObject {
        let begun = Instant::now();
        loop {
            let object = self.get().await;
            if holds(&object.data) {
                return object;
            }
            assert!(begun.elapsed() < PATIENCE, "{} is never {what}: {object:#?}", self.name);
            sleep(LOOK).await;
        }
    }

    async fn errand(&mut self) {
        self.create("manual", false).await;
        for _ in 0..ROUNDS {
            loop {
                let object =
                    self.until("manual", |it| it["spec"]["trigger"]["strategy"] == "manual").await;
                let patch = json!({
                    "metadata": {"resourceVersion": object.metadata.resource_version},
                    "spec": {"trigger": {"strategy": "now"}},
                });
                let params = PatchParams::default();
                let patched =
                    resources(&self.town).patch(&self.name, &params, &Patch::Merge(patch)).await;
                match patched {
                    Ok(_) => break,
                    Err(kube::Error::Api(status)) if status.is_conflict() => {}
                    // The API server went with the answer: it may have taken it.
                    Err(_) => {
                        let now = self.get().await;
                        let is_said = now.data["spec"]["trigger"]["strategy"] == "now";
                        if is_said || recorded(&now) > recorded(&object) {
                            break;
                        }
                    }
                }
            }
            self.triggers += 1;
            if self.manner == Manner::Robbed {
                self.pause(600).await;
                self.rob().await;
            }
            self.pause(1200).await;
        }
        self.until("manual", |it| it["spec"]["trigger"]["strategy"] == "manual").await;
    }

    /// Deletes its Jobs with their pods, or its pods.
    async fn rob(&mut self) {
        let (client, namespace) = (self.town.client.clone(), &self.town.namespace);
        let all = ListParams::default()
            .labels(&format!("quarks.cloudfoundry.org/qjob-name={}", self.name));
        if self.random.below(2) == 0 {
            let jobs: Api<Job> = Api::namespaced(client, namespace);
            for job in sure(|| jobs.list(&all)).await {
                let name = job.metadata.name.unwrap_or_default();
                let _ = jobs.delete(&name, &DeleteParams::background()).await;
            }
        } else {
            let pods: Api<Pod> = Api::namespaced(client, namespace);
            for pod in sure(|| pods.list(&all)).await {
                let name = pod.metadata.name.unwrap_or_default();
                let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
            }
        }
    }

    pub(crate) fn is_robbed(&self) -> bool {
        self.manner == Manner::Robbed
    }

    /// Whether each run has one Job with one pod. Of one that is robbed, one that was taken while no controller
    /// ran is begun again, and one that was taken at once has none. Whoever makes pods of Jobs makes another, if an
    /// `outage` kept the answer to the first.
    pub(crate) fn may_have(&self, pods: &BTreeMap<&str, usize>, runs: usize, outage: bool) -> bool {
        match self.manner {
            Manner::Robbed => pods.len() <= runs,
            _ => pods.len() == runs && (outage || pods.values().all(|pods| *pods == 1)),
        }
    }

    async fn follower(&mut self) {
        self.config(0).await;
        self.create("once", true).await;
        self.triggers = 1;
        for round in 1..ROUNDS {
            let runs = self.triggers;
            let has_run = |object: &Value| {
                let history = object["status"]["history"].as_array();
                history.is_some_and(|all| all.iter().any(|run| run["id"] == runs))
            };
            self.until("that far", has_run).await;
            self.pause(500).await;
            self.config(round).await;
            self.triggers += 1;
        }
        let runs = self.triggers;
        self.until("that far", |object| {
            let history = object["status"]["history"].as_array();
            history.is_some_and(|all| all.iter().any(|run| run["id"] == runs))
        })
        .await;
    }

    async fn late(&mut self) {
        self.create("once", false).await;
        self.triggers = 1;
        self.pause(3000).await;
        self.config(0).await;
        self.until("done", |it| it["spec"]["trigger"]["strategy"] == "done").await;
    }
}
