//! Waits until objects are ready: those that say that they are to be waited for.
//!
//! One watch for each kind and namespace of them, as the requester, for as long as one is waited for. From time to
//! time each is asked for as well: what a watch has missed, and what somebody has removed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, pin_mut, stream};
use kube::Client;
use kube::api::{Api, DynamicObject, WatchEvent, WatchParams};
use serde_json::Value;
use template::ready::{Readiness, readiness};
use tokio::task::JoinSet;

use super::Controller;
use super::kinds::Place;
use super::make::AT_ONCE;
use super::names::OWNER;
use super::resource::{Instance, Key};
use super::status::{self, Made, Stand, State};
use super::step::Came;
use super::trouble::Trouble;
use crate::calls::{Again, call, find};

/// How often what is waited for is asked for, beside the watch.
const LOOK: Duration = Duration::from_secs(20);
/// A watch ends by itself, as those of others do: a dead connection is noticed then.
const WATCH_SECONDS: u32 = 290;

/// What was seen of an object that is waited for.
type Seen = Arc<Mutex<HashMap<String, Readiness>>>;

/// Follows the objects of one instance.
pub(super) struct Follower {
    seen: Seen,
    looked: Instant,
    _watches: JoinSet<()>,
}

impl Controller {
    /// Whether what is waited for is ready.
    pub(super) async fn await_ready(&self, instance: &Arc<Instance>) -> Result<Came, Trouble> {
        let requester = instance.requester().map_err(Trouble::Final)?;
        let client = requester.client(&self.client, &instance.key.namespace);
        let mut made: Vec<Made> = instance.objects().iter().filter_map(Made::of).collect();
        let mut seen = self.seen(instance, &client, &made).await?;
        let is_due = match self.table().work(&instance.key).and_then(|it| it.follower.as_mut()) {
            Some(follower) if follower.looked.elapsed() >= LOOK => {
                follower.looked = Instant::now();
                true
            }
            _ => false,
        };
        if is_due {
            seen.extend(self.look(&client, &made).await?);
        }
        let mut failed = Vec::new();
        for made in made.iter_mut().filter(|made| made.state == State::Waiting) {
            let words = format!("{} {}", made.kind, made.name);
            match seen.remove(&made.uid) {
                Some(Readiness::Ready) => {
                    (made.state, made.message) = (State::Ready, String::new());
                }
                Some(Readiness::Waiting(why)) => made.message = why,
                Some(Readiness::Failed(why)) => {
                    failed.push(format!("{words}: {why}"));
                    (made.state, made.message) = (State::Failed, why);
                }
                None => {}
            }
        }
        let waits = made.iter().any(|made| made.state == State::Waiting);
        let stand = match (failed.is_empty(), waits) {
            (false, _) => Stand::Failed(failed.join("\n"), true),
            (true, false) => Stand::Ready,
            (true, true) => {
                // What is waited for is said where it is for long.
                if is_due {
                    let stand = Stand::Waiting(status::WAITING.to_owned());
                    self.say(&instance.key, &stand, Some(made)).await?;
                }
                return Ok(Came::Later(self.next_look(instance)));
            }
        };
        Ok(Came::Stands(stand, Some(made)))
    }

    fn next_look(&self, instance: &Instance) -> Duration {
        let left = instance.deadline().map(|deadline| deadline.duration_since(self.now()));
        left.ok().and_then(|left| Duration::try_from(left).ok()).unwrap_or_default().min(LOOK)
    }

    /// What was seen so far; begins to follow them, if nobody does.
    async fn seen(
        &self,
        instance: &Instance,
        client: &Client,
        made: &[Made],
    ) -> Result<HashMap<String, Readiness>, Trouble> {
        let known = |follower: &Follower| {
            follower.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        let key = &instance.key;
        if let Some(follower) = self.table().work(key).and_then(|work| work.follower.as_ref()) {
            return Ok(known(follower));
        }
        let mut places = BTreeSet::new();
        for made in made.iter().filter(|made| made.state == State::Waiting) {
            places.insert((&made.api_version, &made.kind, &made.namespace));
        }
        let seen = Seen::default();
        let mut watches = JoinSet::new();
        for (api_version, kind, namespace) in places {
            let place = self.kinds.find(api_version, kind).await;
            let place = place.map_err(|error| Trouble::from(error).of(api_version))?;
            // A kind that is gone is found out by the look.
            let Some(place) = place else { continue };
            let api = of_place(client, &place, namespace);
            let (seen, woken) = (Arc::clone(&seen), self.woken(key));
            watches.spawn(watch(api, format!("{OWNER}={}", instance.uid), seen, woken));
        }
        let follower = Follower { seen, looked: Instant::now(), _watches: watches };
        if let Some(work) = self.table().work(key) {
            work.follower = Some(follower);
        }
        Ok(HashMap::new())
    }

    /// Has this one looked at.
    fn woken(&self, key: &Key) -> impl Fn() + Send + use<> {
        let (queue, key) = (Arc::clone(&self.queue), key.clone());
        move || queue.push([key.clone()])
    }

    /// How those that are waited for are now.
    async fn look(
        &self,
        client: &Client,
        made: &[Made],
    ) -> Result<HashMap<String, Readiness>, Trouble> {
        let waiting = made.iter().filter(|made| made.state == State::Waiting);
        let looks = waiting.map(|made| async move {
            let place = self.kinds.find(&made.api_version, &made.kind).await?;
            let found = match place {
                Some(place) => {
                    find(of_place(client, &place, &made.namespace).get(&made.name)).await?
                }
                None => None,
            };
            let gone = || Readiness::Failed("it was removed".to_owned());
            let found = found.filter(|it| it.metadata.uid.as_deref() == Some(&made.uid));
            let readiness = found.map_or_else(gone, |found| readiness(&whole(&found)));
            Ok::<_, Trouble>((made.uid.clone(), readiness))
        });
        let looks: Vec<_> = looks.collect();
        stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await
    }
}

/// Where objects of a kind are.
pub(super) fn of_place(client: &Client, place: &Place, namespace: &str) -> Api<DynamicObject> {
    match place.is_namespaced {
        true => Api::namespaced_with(client.clone(), namespace, &place.resource),
        false => Api::all_with(client.clone(), &place.resource),
    }
}

fn whole(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

/// Follows the objects with this label, for ever.
async fn watch(api: Api<DynamicObject>, label: String, seen: Seen, woken: impl Fn()) {
    let params = WatchParams::default().labels(&label).timeout(WATCH_SECONDS);
    for pause in Again::default() {
        // From what the API server has at hand: a list beforehand would say no more.
        match call(api.watch(&params, "0")).await {
            Ok(events) => {
                pin_mut!(events);
                while let Some(Ok(event)) = events.next().await {
                    let (object, readiness) = match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                            let readiness = readiness(&whole(&object));
                            (object, readiness)
                        }
                        WatchEvent::Deleted(object) => {
                            (object, Readiness::Failed("it was removed".to_owned()))
                        }
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(_) => break,
                    };
                    let Some(uid) = object.metadata.uid else { continue };
                    seen.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, readiness);
                    woken();
                }
            }
            Err(error) => tracing::debug!(%error, "objects that are waited for cannot be watched"),
        }
        tokio::time::sleep(pause).await;
    }
}
