//! Somebody who believes what a status says: as soon as it says that a run has succeeded, what that has left is there.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use kubernetes::quarks::Dialect;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::objects::{history, record, recorded};

/// What was seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// How many successes had what they had left.
    pub(crate) good: usize,
    /// Those that had not, in words.
    pub(crate) early: Vec<String>,
    /// What runs found of what they refer to, as it is recorded, by the uid of what they are of and by their numbers.
    pub(crate) found: BTreeMap<(String, u64), Value>,
}

/// Looks until it is dropped.
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    _tasks: JoinSet<()>,
}

impl Witness {
    pub(crate) fn watch(client: &Client, namespace: &str) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let mut tasks = JoinSet::new();
        for dialect in Dialect::ALL {
            let look = Look {
                resources: Api::namespaced_with(client.clone(), namespace, &dialect.resource()),
                secrets: Api::namespaced(client.clone(), namespace),
                config_maps: Api::namespaced(client.clone(), namespace),
            };
            tasks.spawn(look.follow(Arc::clone(&seen)));
        }
        Self { seen, _tasks: tasks }
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

struct Look {
    resources: Api<DynamicObject>,
    secrets: Api<Secret>,
    config_maps: Api<ConfigMap>,
}

impl Look {
    async fn follow(self, seen: Arc<Mutex<Seen>>) {
        let events = watcher(self.resources.clone(), watcher::Config::default());
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    let found = self.judge(&object).await.unwrap_or_default();
                    let mut seen = seen.lock().unwrap();
                    seen.good += found.good;
                    seen.early.extend(found.early);
                    let uid = object.metadata.uid.clone().unwrap_or_default();
                    let references = record(&object)["references"].clone();
                    seen.found.insert((uid, recorded(&object)), references);
                }
                Ok(_) => {}
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Of its newest run, if that has succeeded: what is older may have been written over, or have gone. `None`: nobody
    /// answers.
    async fn judge(&self, object: &DynamicObject) -> Option<Seen> {
        let mut seen = Seen::default();
        let history = history(object);
        let Some(run) = newest(object, &history) else { return Some(seen) };
        for made in run["made"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let kept = self.kept(made).await?;
            // Beside others it may have been written over by one that was begun before and has ended after it.
            let beside = object.data["spec"]["concurrencyPolicy"] == "Allow";
            if kept.as_deref() == run["job"].as_str() || beside && kept.is_some() {
                seen.good += 1;
                continue;
            }
            let now = self.resources.get_opt(&object.name_any()).await.ok()?;
            // By now it may have gone, with all that was its, or run again.
            let is_same = |now: &DynamicObject| {
                now.metadata.uid == object.metadata.uid
                    && now.metadata.deletion_timestamp.is_none()
                    && recorded(now) == recorded(object)
            };
            if now.as_ref().is_some_and(is_same) {
                seen.early.push(format!("{made} had {kept:?} when {run:#} was told"));
            }
        }
        Some(seen)
    }

    /// The Job that has left this, by what it holds.
    async fn kept(&self, made: &str) -> Option<Option<String>> {
        let job = match made.strip_prefix("configmap/") {
            Some(name) => {
                let map = self.config_maps.get_opt(name).await.ok()?;
                map.and_then(|map| map.data.unwrap_or_default().remove("job"))
            }
            None => {
                let secret = self.secrets.get_opt(made).await.ok()?;
                let job = secret.and_then(|secret| secret.data.unwrap_or_default().remove("job"));
                job.and_then(|job| String::from_utf8(job.0).ok())
            }
        };
        Some(job)
    }
}

fn newest<'h>(object: &DynamicObject, history: &'h [Value]) -> Option<&'h Value> {
    let run = history.first()?;
    (run["succeeded"] == true && run["id"] == recorded(object)).then_some(run)
}
