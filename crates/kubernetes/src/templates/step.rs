//! One processing step of an instance: looks at it, and does what is to be done.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::instantiation::{State, Step, decide};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::names::FINALIZER;
use super::prepare::NEXT_TURN;
use super::resource::{Instance, Key};
use super::status::{self, Made, Stand};
use super::table::Work;
use super::trouble::{Trouble, written};
use super::{Controller, Requesters, verified};
use crate::calls::call;

/// How often, and for how long, doubtful trouble is tried again before it counts as final.
const DOUBTS: u32 = 4;
const DOUBTED: Duration = Duration::from_secs(4);

/// How soon an instance is processed again whose status should have changed and did not.
const STILL: Duration = Duration::from_secs(5);

/// How long another Manciple has time to begin the removal of its own instance.
const ANOTHER: Duration = Duration::from_secs(60);

/// The result of a step.
pub(super) enum Came {
    /// The instance is processed again when something happens.
    Idle,
    /// The instance is processed again after this time, too.
    Later(Duration),
    /// The instance has ended, or its state has changed: this is to be written to its status.
    Stands(Stand, Option<Vec<Made>>),
}

/// How soon an instance is processed again that the table does not keep, and that has to be read each time.
const UNKEPT: Duration = Duration::from_secs(10);

/// The pause before the next step of an instance that is not kept: none where it has to go on at once, otherwise at
/// least [`UNKEPT`].
fn unkept(pause: Duration) -> Duration {
    if pause.is_zero() { pause } else { pause.max(UNKEPT) }
}

/// A guard that marks an instance as being processed: the table keeps all of it as long as the guard lives.
struct Attended<'a> {
    of: &'a Controller,
    key: &'a Key,
}

impl<'a> Attended<'a> {
    /// Marks an instance; also returns how many bytes its parsed spec takes, if it has something to do.
    fn to(of: &'a Controller, key: &'a Key) -> (Self, Option<usize>) {
        let open = of.table().attend(key);
        let weight = open.map(|seen| seen.map_or_else(|weight| weight, |seen| seen.weight()));
        (Self { of, key }, weight)
    }
}

impl Drop for Attended<'_> {
    fn drop(&mut self) {
        self.of.table().leave(self.key);
    }
}

impl Controller {
    /// Processes an instance. Returns when to do so again though nothing happens; `Err`: it did not succeed, and is to
    /// be tried again.
    pub(super) async fn step(&self, key: &Key) -> Result<Option<Duration>, ()> {
        let looked = {
            let (_attended, open) = Attended::to(self, key);
            match open {
                Some(weight) => {
                    let Ok(_turn) = self.heavy_turn(weight) else { return Ok(Some(NEXT_TURN)) };
                    self.go_on(key).await
                }
                None => Box::pin(self.look_after(key)).await,
            }
        };
        // What it has begun may come later than the next leader looks for it.
        if !self.leads() {
            self.strays.news.notify_one();
        }
        let is_kept = !self.table().is_unread(key);
        looked.map(|again| again.map(|pause| if is_kept { pause } else { unkept(pause) }))
    }

    /// Processes an instance with something to do, once it has its permit.
    async fn go_on(&self, key: &Key) -> Result<Option<Duration>, ()> {
        if self.table().is_unread(key) {
            self.refresh(key).await.map_err(|error| {
                let (namespace, name) = (&*key.namespace, &*key.name);
                tracing::warn!(namespace, name, %error, "it cannot be read");
            })?;
        }
        // The instance may have ended, or be gone by now.
        let known = self.table().instance(key);
        let Some(instance) = known else { return Err(()) };
        let came = match decide(&self.state(&instance)) {
            Step::Rest => return Ok(self.wait_for_another(&instance)),
            Step::Refuse(why) => {
                let was_awaited = !instance.objects().is_empty();
                Ok(Came::Stands(Stand::Failed { why, was_awaited }, None))
            }
            Step::TakeUp => Ok(Came::Stands(Stand::Changing, None)),
            Step::GiveUp => {
                let why = self.last_words(&instance);
                let was_awaited = instance.is_made() || instance.is_taken_up();
                Ok(Came::Stands(Stand::Failed { why, was_awaited }, None))
            }
            Step::Make => Box::pin(self.make(&instance)).await,
            Step::Await => Box::pin(self.await_ready(&instance)).await,
            Step::Remove => Box::pin(self.remove(&instance)).await,
        };
        let trouble = match came {
            Ok(came) => {
                self.with(key, |work| work.doubts = None);
                match came {
                    Came::Idle => return Ok(None),
                    Came::Later(pause) => return Ok(Some(pause)),
                    // The next step follows from here: the watch event of this write is no news.
                    Came::Stands(stand, objects) => {
                        match self.conclude(&instance, &stand, objects).await {
                            Ok(true) => return Ok(Some(Duration::ZERO)),
                            Ok(false) => return Ok(Some(STILL)),
                            Err(trouble) => trouble,
                        }
                    }
                }
            }
            Err(trouble) => trouble,
        };
        self.troubled(&instance, self.doubted(key, trouble)).await
    }

    /// Writes the state of an instance to its status; with its binding, once it is ready.
    async fn conclude(
        &self,
        instance: &Instance,
        stand: &Stand,
        objects: Option<Vec<Made>>,
    ) -> Result<bool, Trouble> {
        let Some(made) = objects.as_ref().filter(|_| *stand == Stand::Ready) else {
            return self.say(instance, stand, objects).await;
        };
        let binding = self.bind(instance, made).await?;
        self.with(&instance.key, |work| work.binding.clone_from(&binding));
        let said = self.say(instance, stand, objects).await?;
        self.unbind(instance, binding.as_deref()).await;
        Ok(said)
    }

    async fn troubled(
        &self,
        instance: &Instance,
        trouble: Trouble,
    ) -> Result<Option<Duration>, ()> {
        let key = &instance.key;
        let (namespace, name) = (&*key.namespace, &*key.name);
        let stand = match trouble {
            Trouble::Old => {
                tracing::debug!(namespace, name, "it was written by somebody else");
                let made = self.with(key, |work| work.made.values().cloned().collect::<Vec<_>>());
                if matches!(self.refresh(key).await, Ok(false)) {
                    self.undo(instance, made.unwrap_or_default()).await;
                }
                return Err(());
            }
            // An instance that is being removed does not fail: the removal is tried until it succeeds.
            Trouble::Final(why) if !instance.deleting => {
                Stand::Failed { why, was_awaited: instance.is_taken_up() }
            }
            Trouble::Passing(why) | Trouble::Final(why) => Stand::Retrying(why),
            Trouble::Doubtful(why) => {
                tracing::debug!(namespace, name, why, "it seems not to go");
                return Err(());
            }
        };
        match &stand {
            Stand::Failed { why, .. } => tracing::info!(namespace, name, why, "it has failed"),
            Stand::Retrying(why) => tracing::warn!(namespace, name, why, "it does not go on now"),
            Stand::Waiting(_) | Stand::Changing | Stand::Ready => {}
        }
        let has_failed = matches!(stand, Stand::Failed { .. });
        let made = has_failed.then(|| self.made_so_far(instance));
        let mut said = self.say(instance, &stand, made).await;
        // There is no room in the status for the objects: their removal finds them by the record.
        if has_failed && matches!(said, Err(Trouble::Final(_))) {
            said = self.say(instance, &stand, None).await;
        }
        match has_failed && said.is_ok() {
            true => Ok(None),
            false => Err(()),
        }
    }

    /// The objects of an instance so far: those in its status, and those made or changed since.
    fn made_so_far(&self, instance: &Instance) -> Vec<Made> {
        let made = self.with(&instance.key, |work| work.made.values().cloned().collect());
        let mut made: Vec<Made> = made.unwrap_or_default();
        let places: HashSet<_> = made.iter().map(Made::place).collect();
        let said = instance.objects().iter().filter_map(Made::of);
        let further: Vec<Made> = said.filter(|it| !places.contains(&it.place())).collect();
        made.extend(further);
        made
    }

    /// Waits for another Manciple to remove an instance that was verified with its key. If it does not, the key may
    /// have been lost, and that is logged. Returns when to look again.
    fn wait_for_another(&self, instance: &Instance) -> Option<Duration> {
        let is_stuck = instance.deleting && instance.is_held();
        if !is_stuck || !verified::is_of_another(instance, &self.seal) {
            return None;
        }
        let key = &instance.key;
        let (since, is_told) =
            self.with(key, |work| *work.stranger.get_or_insert_with(|| (Instant::now(), false)))?;
        let left = ANOTHER.saturating_sub(since.elapsed());
        if is_told || !left.is_zero() {
            return Some(left).filter(|_| !is_told);
        }
        self.with(key, |work| work.stranger = Some((since, true)));
        let why = "it is not removed yet, and not by this controller: its requester was verified with another key, so \
                   that it is another Manciple's; if there is none, bring back the Secret of the key that was there \
                   then, or take the finalizers template.openshift.io/finalizer and, from its Secret, template.manciple.dev/record \
                   away, which leaves its objects to you";
        tracing::warn!(namespace = &*key.namespace, name = &*key.name, why);
        self.tell_event(instance, "DeletionFailure", why);
        None
    }

    fn state(&self, instance: &Instance) -> State {
        let verified = match self.settings.requesters {
            Requesters::Trusted => Ok(()),
            Requesters::Verified => verified::check(instance, &self.seal),
        };
        State {
            deleting: instance.deleting,
            foreign: verified::is_of_another(instance, &self.seal),
            held: instance.is_held(),
            ended: instance.has_ended(),
            changed: instance.is_changed(),
            refused: instance.check().and(verified).err(),
            made: instance.is_made(),
            overdue: self.now() >= instance.deadline(),
        }
    }

    /// The message that says what an instance waited for when its time was over.
    fn last_words(&self, instance: &Instance) -> String {
        let made = instance.objects().iter().filter_map(Made::of);
        let waiting = made.filter(|it| it.state == status::State::Waiting);
        let words = waiting.map(|it| match it.message.is_empty() {
            true => format!("{} {} is not ready", it.kind, it.name),
            false => format!("{} {}: {}", it.kind, it.name, it.message),
        });
        let conditions = instance.status()["conditions"].as_array().into_iter().flatten();
        let retried = conditions
            .filter(|it| it["type"] == "Ready" && it["reason"] == "Retrying")
            .filter_map(|it| it["message"].as_str().map(str::to_owned));
        let all: Vec<String> =
            [status::TIMEOUT.to_owned()].into_iter().chain(words).chain(retried).collect();
        all.join("\n")
    }

    /// Makes doubtful trouble final after [`DOUBTS`] times and [`DOUBTED`].
    fn doubted(&self, key: &Key, trouble: Trouble) -> Trouble {
        let Trouble::Doubtful(why) = trouble else { return trouble };
        let doubts = self.with(key, |work| {
            let (count, since) = work.doubts.get_or_insert((0, Instant::now()));
            *count += 1;
            *count >= DOUBTS && since.elapsed() >= DOUBTED
        });
        match doubts {
            Some(true) => Trouble::Final(why),
            _ => Trouble::Doubtful(why),
        }
    }

    /// Calls a function with this process's work on an instance; `None` if the instance is not in the table.
    pub(super) fn with<T>(&self, key: &Key, of: impl FnOnce(&mut Work) -> T) -> Option<T> {
        self.table().work(key).map(of)
    }

    /// Writes the state of an instance to its status; whether that was news.
    pub(super) async fn say(
        &self,
        of: &Instance,
        stand: &Stand,
        objects: Option<Vec<Made>>,
    ) -> Result<bool, Trouble> {
        let key = &of.key;
        // The instance may have been written since the step began; this result is not of a newer order.
        let Some(instance) = self.table().instance(key) else { return Ok(false) };
        if instance.generation != of.generation {
            return Err(Trouble::Old);
        }
        let conditions = status::conditions(&instance, stand, &self.now().to_string());
        let mut said = json!({"conditions": conditions});
        if objects.is_some() || matches!(stand, Stand::Failed { .. }) {
            said["observedGeneration"] = json!(instance.generation);
        }
        if let Some(objects) = objects {
            said["objects"] = objects.iter().map(Made::entry).collect();
            let revision = self.with(key, |work| work.record.as_ref().map(|it| it.record.revision));
            if let Some(revision) = revision.flatten() {
                said["revision"] = json!(revision);
            }
        }
        if *stand == Stand::Ready {
            let binding = self.with(key, |work| work.binding.clone()).flatten();
            let before = &instance.status()["binding"];
            if binding.is_some() || !before.is_null() {
                said["binding"] = binding.map_or(Value::Null, |name| json!({"name": name}));
            }
        }
        if *stand == Stand::Changing {
            let (generation, now) = (instance.generation, self.now().to_string());
            said["change"] = json!({"generation": generation, "startedAt": now});
        }
        let there = instance.status();
        let is_new = |(name, value): (&String, &Value)| there[name] != *value;
        if said.as_object().is_some_and(|said| !said.iter().any(is_new)) {
            return Ok(false);
        }
        self.write_status(&instance, &said).await?;
        self.tell(&instance, stand);
        Ok(true)
    }

    pub(super) async fn write_status(
        &self,
        instance: &Instance,
        said: &Value,
    ) -> Result<(), Trouble> {
        let key = &instance.key;
        let body = json!({
            "metadata": {"resourceVersion": instance.version, "uid": &*key.uid},
            "status": said,
        });
        let api = self.instances(&key.namespace);
        let params = PatchParams {
            field_manager: Some(super::names::MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = call(api.patch_status(&key.name, &params, &Patch::Merge(&body))).await;
        self.table().learn(written(patched)?);
        Ok(())
    }

    /// Sets our finalizer on an instance, which holds it until its objects are gone, or removes it.
    pub(super) async fn hold(&self, instance: &Instance, is_held: bool) -> Result<(), Trouble> {
        let others = instance.finalizers.iter().filter(|it| *it != FINALIZER).cloned();
        let ours = is_held.then(|| FINALIZER.to_owned());
        let finalizers: Vec<String> = others.chain(ours).collect();
        let body = json!({"metadata": {
            "resourceVersion": instance.version, "uid": &*instance.key.uid, "finalizers": finalizers,
        }});
        let api = self.instances(&instance.key.namespace);
        let params = PatchParams::default();
        let patched = call(api.patch(&instance.key.name, &params, &Patch::Merge(&body))).await;
        let patched = written(patched)?;
        match is_held {
            true => drop(self.table().learn(patched)),
            false => self.table().remove(&instance.key),
        }
        Ok(())
    }

    /// The instance as the table has it now.
    pub(super) fn known(&self, key: &Key) -> Result<Arc<Instance>, Trouble> {
        self.table().instance(key).ok_or(Trouble::Old)
    }
}
