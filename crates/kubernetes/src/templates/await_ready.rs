//! Waits until the objects of an instance are ready: those annotated to be waited for.
//!
//! There is one watch for each kind and namespace of them, in the requester's name, for as long as one is waited for.
//! From time to time each object is read as well, to notice what a watch has missed, and objects that were removed.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::redact::Redactor;
use futures_util::{StreamExt, TryStreamExt, pin_mut, stream};
use kube::api::{Api, DynamicObject, GetParams, WatchEvent, WatchParams};
use kube::{Client, Resource as _};
use serde_json::Value;
use template::ready::{Readiness, readiness};
use tokio::task::JoinSet;

use super::Controller;
use super::kinds::{Kinds, ServedKind};
use super::make::AT_ONCE;
use super::names::OWNER;
use super::objects::{Answered, asked, object_now, requests};
use super::ours::Ours;
use super::pods;
use super::record::Record;
use super::record_store::removed;
use super::requester::Requester;
use super::resource::{Instance, Key};
use super::status::{self, Made, Stand, State};
use super::step::Came;
use super::table::{Work, is_newer};
use super::trouble::Trouble;
use super::values::{defaults, secrets};
use crate::calls::{Again, CallError, call, there};
use crate::deep::{Object, Unread, head};
use crate::text::Text;

/// How often awaited objects are read, beside the watch.
const LOOK: Duration = Duration::from_secs(20);
/// How often, and how long after each other, it is tried to write what is waited for.
const TELLS: u32 = 3;
const TELL_AGAIN: Duration = Duration::from_millis(500);
/// After how many seconds a watch ends by itself, as other clients' do: a dead connection is noticed then.
const WATCH_SECONDS: u32 = 290;

/// What was seen of the awaited objects.
#[derive(Default)]
struct Readings {
    /// The readiness of the awaited objects, by their uids.
    of: HashMap<String, Option<Readiness>>,
    /// Whether an object may be gone, so that all are to be read.
    is_doubtful: bool,
    /// The `resourceVersion` to which objects were changed, by uid: an older state says nothing.
    changed: HashMap<String, String>,
}

type Seen = Arc<Mutex<Readings>>;

/// The follower of the awaited objects of one instance.
pub(super) struct Follower {
    seen: Seen,
    looked: Instant,
    redactor: Redactor,
    _watches: JoinSet<()>,
}

impl Controller {
    /// Checks whether the awaited objects are ready.
    pub(super) async fn await_ready(&self, instance: &Arc<Instance>) -> Result<Came, Trouble> {
        let key = &instance.key;
        let mut made: Vec<Made> = instance.objects().iter().filter_map(Made::of).collect();
        let client = self.client_of(key).await?;
        self.follow_objects(instance, &client, &made).await?;
        let (mut seen, is_due) = self.sight(key).ok_or(Trouble::Old)?;
        if is_due {
            seen.extend(self.look(Ours::to_read(key, &self.seal), &client, &made).await?);
        }
        let redacted = |text: &str| {
            let redact = |work: &mut Work| {
                let follower = work.follower.as_ref()?;
                Some(follower.redactor.redact(text).into_owned())
            };
            self.with(key, redact).flatten().unwrap_or_default()
        };
        match judged(&mut made, seen, redacted) {
            Some(stand) => Ok(Came::Stands(stand, Some(made))),
            None => {
                // The awaited objects are written to the status when waiting takes long.
                if is_due {
                    self.say_waiting(instance, made).await?;
                }
                Ok(Came::Later(self.next_look(instance)))
            }
        }
    }

    /// A client in the name of the recorded requester; the record is read where it is not known.
    async fn client_of(&self, key: &Key) -> Result<Client, Trouble> {
        if let Some(record) = self.with(key, |work| work.record.clone()).flatten() {
            return self.of_record(key, &record.record);
        }
        let record = self.read_record(key).await?;
        let record = record.ok_or_else(|| removed(key))?;
        self.with(key, |work| {
            work.revision.get_or_insert(record.record.revision);
            work.record = Some(Arc::clone(&record));
        });
        self.of_record(key, &record.record)
    }

    /// What was seen of the objects of an instance, and whether each is to be read now. `None`: they are not followed
    /// any more.
    fn sight(&self, key: &Key) -> Option<(HashMap<String, Option<Readiness>>, bool)> {
        let sight = self.with(key, |work| {
            let follower = work.follower.as_mut()?;
            let mut sight = follower.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due =
                std::mem::take(&mut sight.is_doubtful) || follower.looked.elapsed() >= LOOK;
            let seen = sight.of.clone();
            drop(sight);
            if is_due {
                follower.looked = Instant::now();
            }
            Some((seen, is_due))
        });
        sight.flatten()
    }

    /// Writes to the status which objects are awaited, and what each waits for, if there is room for that. It is tried
    /// [`TELLS`] times: what is not written now nobody is told until the objects are read again.
    pub(super) async fn say_waiting(
        &self,
        instance: &Instance,
        made: Vec<Made>,
    ) -> Result<bool, Trouble> {
        let mut said = self.say_waiting_once(instance, made.clone()).await;
        for _ in 1..TELLS {
            match &said {
                // Somebody else wrote the instance: what is waited for is the same where the spec is.
                Err(Trouble::Old) if matches!(self.refresh(&instance.key).await, Ok(true)) => {}
                Err(Trouble::Passing(_)) => tokio::time::sleep(TELL_AGAIN).await,
                _ => return said,
            }
            said = self.say_waiting_once(instance, made.clone()).await;
        }
        said
    }

    async fn say_waiting_once(
        &self,
        instance: &Instance,
        mut made: Vec<Made>,
    ) -> Result<bool, Trouble> {
        let said = |made: &[Made]| Stand::Waiting(status::waiting(made));
        match self.say(instance, &said(&made), Some(made.clone())).await {
            // That there is no room is no fault of the objects.
            Err(Trouble::Final(_)) => {
                made.iter_mut().for_each(|it| it.message.clear());
                self.say(instance, &said(&made), Some(made)).await
            }
            said => said,
        }
    }

    /// A client in the name of a record's requester.
    fn of_record(&self, key: &Key, record: &Record) -> Result<Client, Trouble> {
        let requester = Requester::of(&record.requester).map_err(Trouble::Final)?;
        Ok(requester.client(&self.client, &key.namespace))
    }

    fn next_look(&self, instance: &Instance) -> Duration {
        let left = Duration::try_from(instance.deadline().duration_since(self.now()));
        left.unwrap_or_default().clamp(Duration::from_secs(1), LOOK)
    }

    /// Begins to follow the awaited objects of an instance, unless they are followed already.
    async fn follow_objects(
        &self,
        instance: &Instance,
        client: &Client,
        made: &[Made],
    ) -> Result<(), Trouble> {
        let key = &instance.key;
        if self.with(key, |work| work.follower.is_some()) == Some(true) {
            return Ok(());
        }
        let waiting: Vec<&Made> = made.iter().filter(|it| it.state == State::Waiting).collect();
        let of = waiting.iter().map(|made| (made.uid.clone(), None)).collect();
        let changed = self.with(key, |work| work.changed.clone()).unwrap_or_default();
        let seen: Seen = Arc::new(Mutex::new(Readings { of, is_doubtful: false, changed }));
        let places: BTreeSet<_> =
            waiting.iter().map(|it| (&it.api_version, &it.kind, &it.namespace)).collect();
        let mut watches = JoinSet::new();
        // If nothing of the instance can be kept, its objects are read at each turn.
        let is_kept = self.table().has_room();
        let looked = Instant::now();
        let looked = if is_kept { Some(looked) } else { looked.checked_sub(LOOK) };
        for (api_version, kind, namespace) in places.into_iter().filter(|_| is_kept) {
            let served = self.kinds.find_any(api_version, kind).await;
            let served = served.map_err(|error| Trouble::from(error).of(api_version))?;
            // The reading notices a kind that is gone; where too many are awaited for a watch, it notices the rest,
            // too.
            let Some(served) = served.filter(|it| it.can_be_in(namespace)) else { continue };
            let Ok(permit) = Arc::clone(&self.watches).try_acquire_owned() else { continue };
            let api = of_kind(client, &served, namespace);
            let (label, seen) = (format!("{OWNER}={}", key.uid), Arc::clone(&seen));
            let is_ours = self.is_ours(key, served, namespace.clone());
            let watch = watch(api, label, seen, is_ours, self.woken(key));
            watches.spawn(async move {
                watch.await;
                drop(permit);
            });
        }
        let names: Vec<&str> = made.iter().flat_map(|it| [&*it.name, &*it.namespace]).collect();
        self.with(key, |work| {
            let public = defaults(&instance.spec()["template"]);
            let values = work.record.as_ref().map(|it| it.record.parameters.clone());
            let secrets = secrets(&values.unwrap_or_default(), &public, &names);
            let redactor = Redactor::new(&secrets);
            let looked = looked.unwrap_or_else(Instant::now);
            let follower = Follower { seen, looked, redactor, _watches: watches };
            work.follower = Some(follower);
        });
        Ok(())
    }

    /// A check whether a watched object is the instance's; it owns its data, because a watch outlives a step.
    fn is_ours(
        &self,
        of: &Key,
        served: ServedKind,
        namespace: String,
    ) -> impl Fn(&Value) -> bool + Send + use<> {
        let (of, seal) = (of.clone(), self.seal.clone());
        move |object| {
            let namespace = Some(&*namespace).filter(|_| served.is_namespaced);
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            Ours::to_read(&of, &seal).is(&served, namespace, name, object)
        }
    }

    /// A function that has the instance processed again.
    fn woken(&self, key: &Key) -> impl Fn() + Send + use<> {
        let (queue, key) = (Arc::clone(&self.queue), key.clone());
        move || queue.push([key.clone()])
    }

    /// Reads the present readiness of the awaited objects.
    async fn look(
        &self,
        ours: Ours<'_>,
        client: &Client,
        made: &[Made],
    ) -> Result<HashMap<String, Option<Readiness>>, Trouble> {
        let waiting = made.iter().filter(|made| made.state == State::Waiting);
        let looks = waiting.map(|made| async move {
            let readiness = match get_made(&self.kinds, client, ours, made).await? {
                Sought::There(found) => look_into(client, made, &found).await?,
                Sought::Gone => Readiness::Failed("it was removed".to_owned()),
                Sought::Foreign => Readiness::Failed("it is not of this instance".to_owned()),
            };
            Ok::<_, Trouble>((made.uid.clone(), Some(readiness)))
        });
        let looks: Vec<_> = looks.collect();
        stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await
    }
}

/// Updates the states of the objects by what was seen, and returns how the instance stands by that; `None`: an object
/// is still awaited.
pub(super) fn judged(
    made: &mut [Made],
    mut seen: HashMap<String, Option<Readiness>>,
    redacted: impl Fn(&str) -> String,
) -> Option<Stand> {
    let mut failed = Vec::new();
    for made in made.iter_mut().filter(|made| made.state == State::Waiting) {
        match seen.remove(&made.uid).flatten() {
            Some(Readiness::Ready) => {
                (made.state, made.message) = (State::Ready, String::new());
            }
            Some(Readiness::Waiting(why)) => made.message = redacted(&why),
            Some(Readiness::Failed(why)) => {
                let why = redacted(&why);
                failed.push(format!("{} {}: {why}", made.kind, made.name));
                (made.state, made.message) = (State::Failed, why);
            }
            None => {}
        }
    }
    let waits = made.iter().any(|made| made.state == State::Waiting);
    match (failed.is_empty(), waits) {
        (false, _) => Some(Stand::Failed { why: failed.join("\n"), was_awaited: true }),
        (true, false) => Some(Stand::Ready),
        (true, true) => None,
    }
}

/// What was found in the place of an object that was made.
pub(super) enum Sought {
    There(Answered),
    /// The object does not exist any more, or is another one now.
    Gone,
    /// The object exists, and is not the instance's: nothing of it is shown.
    Foreign,
}

/// Reads an object that was made, if it still is that one; its kind may be served in another version by now.
pub(super) async fn get_made(
    kinds: &Kinds,
    client: &Client,
    ours: Ours<'_>,
    made: &Made,
) -> Result<Sought, CallError> {
    let served = kinds.find_any(&made.api_version, &made.kind).await?;
    let served = served.filter(|served| served.can_be_in(&made.namespace));
    let Some(served) = served else { return Ok(Sought::Gone) };
    let request = requests(&served, Some(&made.namespace)).get(&made.name, &GetParams::default());
    let found = there(asked(client, request).await);
    let found = kinds.seen(&served.resource.api_version, found)?;
    Ok(match found.filter(|it| it.head["metadata"]["uid"] == *made.uid) {
        None => Sought::Gone,
        Some(found) if ours.has_made(&served, made, &found.head) => Sought::There(found),
        Some(_) => Sought::Foreign,
    })
}

/// The API of a kind in a namespace, or of a cluster-scoped kind.
fn of_kind(client: &Client, served: &ServedKind, namespace: &str) -> Api<Text<DynamicObject>> {
    match served.is_namespaced {
        true => Api::namespaced_with(client.clone(), namespace, &served.resource),
        false => Api::all_with(client.clone(), &served.resource),
    }
}

/// How one is. What is too heavy to be read is not known to be ready, and waited for until somebody makes it lighter; what is
/// nested too deep decides nothing.
pub(super) fn readiness_of(found: &Object) -> Readiness {
    match found.unread {
        Some(why @ Unread::TooHeavy) => Readiness::Waiting(format!("it {why}")),
        Some(Unread::TooDeep) | None => readiness(&found.object),
    }
}

/// How an object is that was found. One that waits for its pods does not say what those wait for: they do.
async fn look_into(client: &Client, made: &Made, found: &Answered) -> Result<Readiness, CallError> {
    // Others may have the room while pods are asked for.
    let (readiness, selector) = {
        let (object, _room) = found.read().await?;
        (readiness_of(&object), pods::selector(&object.object))
    };
    let (Readiness::Waiting(why), Some(selector)) = (&readiness, selector) else {
        return Ok(readiness);
    };
    let hindered = pods::hindered(client, &made.namespace, &selector).await;
    Ok(hindered.map_or(readiness.clone(), |pod| Readiness::Waiting(format!("{why}; {pod}"))))
}

/// Watches the objects with a label, for ever.
async fn watch(
    api: Api<Text<DynamicObject>>,
    label: String,
    seen: Seen,
    is_ours: impl Fn(&Value) -> bool,
    woken: impl Fn(),
) {
    let params = WatchParams::default().labels(&label).timeout(WATCH_SECONDS);
    for pause in Again::default() {
        // From version 0, what the API server has at hand: a list beforehand would say no more.
        match call(api.watch(&params, "0")).await {
            Ok(events) => {
                pin_mut!(events);
                while let Some(Ok(event)) = events.next().await {
                    let (object, is_there) = match event {
                        WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, true),
                        // The object is gone, or has lost its label.
                        WatchEvent::Deleted(object) => (object, false),
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(_) => break,
                    };
                    if !note(&seen, &object, is_there, &is_ours) {
                        continue;
                    }
                    woken();
                }
            }
            Err(error) => tracing::debug!(%error, "objects that are waited for cannot be watched"),
        }
        tokio::time::sleep(pause).await;
    }
}

/// Notes the readiness of an object; whether it is an awaited one.
fn note(
    seen: &Seen,
    object: &Text<DynamicObject>,
    is_there: bool,
    is_ours: impl Fn(&Value) -> bool,
) -> bool {
    let lock = || seen.lock().unwrap_or_else(PoisonError::into_inner);
    let metadata = object.meta();
    let Some(uid) = metadata.uid.as_ref().filter(|uid| lock().of.contains_key(*uid)) else {
        return false;
    };
    let changed = lock().changed.get(uid).cloned();
    let version = metadata.resource_version.as_deref().unwrap_or_default();
    if changed.is_some_and(|changed| changed != version && !is_newer(version, &changed)) {
        return false;
    }
    let ours = is_there.then(|| head(object.text()).ok()).flatten().filter(is_ours);
    // Where there is no room for it now it is asked for.
    let read = ours.and_then(|_| object_now(object.text()));
    let readiness = read.map(|(object, _room)| readiness_of(&object));
    let mut sight = lock();
    sight.is_doubtful |= readiness.is_none();
    sight.of.insert(uid.clone(), readiness);
    true
}
