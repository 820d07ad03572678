//! What users do, through a client that nothing goes wrong with: each trigger is one that the API server has
//! taken, and none is said again before the one before was taken up.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};
use testkit::random::Random;
use tokio::time::{Instant, sleep};

use crate::town::Town;

const LOOK: Duration = Duration::from_millis(40);
/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
const ROUNDS: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Told to run, again and again.
    Errand,
    /// Changes what it refers to, again and again.
    Follower,
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

impl User {
    pub(crate) fn all(town: &Arc<Town>, random: &Random) -> Vec<Self> {
        let of = |(number, manner)| Self {
            town: Arc::clone(town),
            random: random.part(number),
            manner,
            name: format!("{manner:?}-{number}").to_lowercase(),
            triggers: 0,
        };
        let manners = [Manner::Errand, Manner::Errand, Manner::Follower, Manner::Late];
        (0..).zip(manners).map(of).collect()
    }

    pub(crate) async fn run(mut self) -> Self {
        self.pause(600).await;
        match self.manner {
            Manner::Errand => self.errand().await,
            Manner::Follower => self.follower().await,
            Manner::Late => self.late().await,
        }
        self
    }

    async fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.random.below(most))).await;
    }

    async fn create(&self, strategy: &str, follows: bool) {
        let mut container = json!({"name": "c", "image": "none", "command": ["none"]});
        if self.manner != Manner::Errand {
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
        resources(&self.town).create(&PostParams::default(), &object).await.unwrap();
    }

    async fn config(&self, value: u64) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": self.name}, "data": {"k": value.to_string()},
        });
        let maps: Api<ConfigMap> = Api::namespaced(self.town.client.clone(), &self.town.namespace);
        let params = PatchParams::apply("user").force();
        maps.patch(&self.name, &params, &Patch::Apply(&map)).await.unwrap();
    }

    async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> DynamicObject {
        let begun = Instant::now();
        loop {
            let object = resources(&self.town).get(&self.name).await.unwrap();
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
                if patched.is_ok() {
                    break;
                }
            }
            self.triggers += 1;
            self.pause(1200).await;
        }
        self.until("manual", |it| it["spec"]["trigger"]["strategy"] == "manual").await;
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
