//! Makes the objects of an instance, in the requester's name.
//!
//! ```text
//! values: recorded ones, or the requester's and generated ones ──▶ objects ──▶ may all of them be made?
//!   ──▶ the instance is held ──▶ values are recorded ──▶ objects are made ──▶ which ones is said
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use kube::Client;
use kube::api::PostParams;
use serde_json::Value;
use template::ready;

use super::Controller;
use super::kinds::Kinds;
use super::names::MANAGER;
use super::objects::{Room, answered, asked, requests, whole};
use super::plan::Planned;
use super::prepare::{NEXT_TURN, Prepared};
use super::record::StoredRecord;
use super::resource::{Instance, Key};
use super::review::{needed, review};
use super::status::{self, Made, Stand, State};
use super::step::Came;
use super::trouble::Trouble;
use crate::calls::{CallError, there};

/// How many calls for one instance run at once.
pub(super) const AT_ONCE: usize = 8;

impl Controller {
    /// Continues making the objects of an instance.
    pub(super) async fn make(&self, instance: &Arc<Instance>) -> Result<Came, Trouble> {
        // Another process has begun the instance, and may have finished it: the table may be outdated.
        let is_begun_here = self.with(&instance.key, |work| work.record.is_some());
        if instance.is_held() && is_begun_here == Some(false) {
            let is_there = self.refresh(&instance.key).await;
            if !is_there.map_err(|error| Trouble::Passing(error.to_string()))? {
                return Ok(Came::Idle);
            }
        }
        let instance = &self.known(&instance.key)?;
        if instance.deleting {
            return Ok(Came::Later(Duration::ZERO));
        }
        let requester = instance.requester().map_err(Trouble::Final)?;
        let client = requester.client(&self.client, &instance.key.namespace);
        let recorded = self.recorded(instance).await?;
        let prepared = match recorded {
            // A recorded revision has passed the review.
            Some(kept) if kept.record.is_of(instance) => {
                let Some(prepared) = self.prepare(instance, kept).await? else {
                    return Ok(Came::Later(NEXT_TURN));
                };
                prepared
            }
            before => {
                let user = &requester.identity.user;
                let prepared = self.prepare_new(instance, &client, before.as_deref()).await?;
                let Some(prepared) = prepared else { return Ok(Came::Later(NEXT_TURN)) };
                let formers = self.reviewed(&prepared.kept).await?;
                let binding = self.binding(instance).await?;
                let needed = needed(&prepared.plan, formers.as_deref(), binding.as_ref());
                review(&client, user, &needed).await?;
                match self.begin(instance, prepared).await? {
                    Some(prepared) => prepared,
                    None => return Ok(Came::Later(Duration::ZERO)),
                }
            }
        };
        self.with(&instance.key, |work| work.take_up(&prepared.kept));
        let came = self.make_all(instance, &client, &prepared).await?;
        if let Came::Stands(_, Some(made)) = &came {
            self.prune(instance, &client, &prepared, made).await?;
        }
        Ok(came)
    }

    /// Records what is to be made; `None` if the instance is being deleted, or has to wait for a permit.
    async fn begin(
        &self,
        instance: &Instance,
        prepared: Prepared,
    ) -> Result<Option<Prepared>, Trouble> {
        let key = &instance.key;
        if !instance.is_held() {
            self.hold(instance, true).await?;
        }
        if self.known(key)?.deleting {
            return Ok(None);
        }
        let kept = self.record(key, Arc::clone(&prepared.kept)).await?;
        if Arc::ptr_eq(&kept, &prepared.kept) {
            return Ok(Some(prepared));
        }
        // Another process recorded first: its record counts, if it is of this spec. There may be a permit for it once
        // ours is released.
        drop(prepared);
        match kept.record.is_of(instance) {
            true => self.prepare(instance, kept).await,
            false => Err(Trouble::Old),
        }
    }

    /// The objects that a change has to remove, with their places; `None` for a first revision.
    async fn reviewed(&self, kept: &StoredRecord) -> Result<Option<Vec<Planned>>, Trouble> {
        if kept.record.revision == 1 {
            return Ok(None);
        }
        let mut formers = Vec::new();
        for former in &kept.record.before {
            formers.extend(self.former(former).await?);
        }
        Ok(Some(formers))
    }

    /// Makes all objects, rank by rank. As in OpenShift, one that cannot be made does not keep the rest from being
    /// made.
    async fn make_all(
        &self,
        instance: &Instance,
        client: &Client,
        prepared: &Prepared,
    ) -> Result<Came, Trouble> {
        let plan = &prepared.plan;
        let redact = |text: String| prepared.redactor.redact(&text).into_owned();
        let mut ranks: Vec<u8> = plan.iter().map(|planned| planned.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let (mut troubles, mut just_made) = (Vec::new(), Vec::new());
        let since = *self.led_since();
        for rank in ranks {
            let is_made = |index: &usize| {
                let known = self.with(&instance.key, |work| work.made.contains_key(index));
                known.unwrap_or_default()
            };
            let open = plan.iter().enumerate().filter(|(_, planned)| planned.rank == rank);
            let open: Vec<_> = open.filter(|(index, _)| !is_made(index)).collect();
            let calls = open.into_iter().map(|(index, planned)| async move {
                let made = match prepared.kept.record.revision > 1 {
                    true => self.change_one(instance, client, planned).await,
                    false => self.make_one(instance, client, planned).await,
                };
                (index, made)
            });
            let calls: Vec<_> = calls.collect();
            let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
            while let Some((index, made)) = calls.next().await {
                match made {
                    Ok(made) => {
                        just_made.push(made.clone());
                        self.with(&instance.key, |work| work.made.insert(index, made));
                    }
                    Err(trouble) => troubles.push((index, trouble)),
                }
            }
            // Another controller may lead by now, or have led in between, and may have removed the instance.
            if !self.still_leads(since) || self.with(&instance.key, |_| ()).is_none() {
                self.leave(instance, just_made, plan).await;
                return Ok(Came::Idle);
            }
        }
        troubles.sort_by_key(|(index, _)| *index);
        self.outcome(instance, troubles.into_iter().map(|(_, trouble)| trouble), redact)
    }

    /// The outcome of making the objects.
    fn outcome(
        &self,
        instance: &Instance,
        troubles: impl Iterator<Item = Trouble>,
        redact: impl Fn(String) -> String,
    ) -> Result<Came, Trouble> {
        let (mut passing, mut doubtful, mut definite) = (Vec::new(), Vec::new(), Vec::new());
        for trouble in troubles {
            match trouble {
                Trouble::Passing(why) => passing.push(redact(why)),
                Trouble::Doubtful(why) => doubtful.push(redact(why)),
                Trouble::Final(why) => definite.push(redact(why)),
                Trouble::Old => return Err(Trouble::Old),
            }
        }
        if !passing.is_empty() {
            return Err(Trouble::Passing(passing.join("\n")));
        }
        if !doubtful.is_empty() {
            doubtful.extend(definite);
            return Err(Trouble::Doubtful(doubtful.join("\n")));
        }
        if !definite.is_empty() {
            return Err(Trouble::Final(definite.join("\n")));
        }
        let made = self.with(&instance.key, |work| work.made.values().cloned().collect());
        let made: Vec<Made> = made.ok_or(Trouble::Old)?;
        let stand = match made.iter().any(|made| made.state == State::Waiting) {
            true => Stand::Waiting(status::WAITING.to_owned()),
            false => Stand::Ready,
        };
        Ok(Came::Stands(stand, Some(made)))
    }

    /// Makes an object that does not exist yet.
    pub(super) async fn make_one(
        &self,
        instance: &Instance,
        client: &Client,
        planned: &Planned,
    ) -> Result<Made, Trouble> {
        let failed =
            |trouble: Trouble| trouble.of(&format!("unable to create {}", planned.words()));
        let resource = &planned.served.resource;
        let object = match post(client, planned, false).await {
            Ok(object) => object,
            Err(CallError::Exists) => {
                self.found(instance, client, planned).await.map_err(failed)?
            }
            Err(error) => {
                match &error {
                    CallError::NotFound | CallError::Unserved => {
                        self.kinds.forget(&resource.api_version);
                    }
                    _ => self.note_unanswered(&instance.key, &error),
                }
                return Err(failed(error.into()));
            }
        };
        Ok(made(planned, &object))
    }

    /// Notes a call that was not answered: it may still make an object.
    pub(super) fn note_unanswered(&self, key: &Key, error: &CallError) {
        if matches!(error, CallError::NoAnswer(_) | CallError::Failed(_)) {
            self.with(key, |work| work.unanswered = Some(Instant::now()));
        }
    }

    /// An object that exists already, if it is the instance's: a process made it and did not come to note it.
    async fn found(
        &self,
        instance: &Instance,
        client: &Client,
        planned: &Planned,
    ) -> Result<Value, Trouble> {
        match get(client, &self.kinds, planned).await? {
            Some(found) => self.ours(instance, planned, found),
            None => Err(Trouble::Passing("it existed, and is gone".to_owned())),
        }
    }

    /// Checks that an existing object belongs to the instance and is not being removed.
    pub(super) fn ours(
        &self,
        instance: &Instance,
        planned: &Planned,
        found: Value,
    ) -> Result<Value, Trouble> {
        let is_going = !found["metadata"]["deletionTimestamp"].is_null();
        match planned.is(&instance.key, &found, &self.seal) {
            true if is_going => Err(Trouble::Passing("it exists, and is being removed".to_owned())),
            true => Ok(found),
            false => Err(Trouble::Final(format!(
                "{} {:?} already exists, and is not of this instance: it is left as it is",
                planned.resource(),
                planned.name
            ))),
        }
    }
}

/// An entry for an object that the API server has made.
pub(super) fn made(planned: &Planned, object: &Value) -> Made {
    let resource = &planned.served.resource;
    Made {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: planned.namespace.clone().unwrap_or_default(),
        name: planned.name.clone(),
        uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
        state: if ready::is_awaited(object) { State::Waiting } else { State::Created },
        message: String::new(),
    }
}

/// Creates an object, or, with `is_dry`, only asks whether it could be created.
pub(super) async fn post(
    client: &Client,
    planned: &Planned,
    is_dry: bool,
) -> Result<Value, CallError> {
    let params = PostParams { dry_run: is_dry, field_manager: Some(MANAGER.to_owned()) };
    let body = planned.object.to_string().into_bytes();
    let requests = requests(&planned.served, planned.namespace.as_deref());
    answered(client, requests.create(&params, body)).await
}

/// Reads what identifies an object, as whoever the client is of.
pub(super) async fn get(
    client: &Client,
    kinds: &Kinds,
    planned: &Planned,
) -> Result<Option<Value>, CallError> {
    let requests = requests(&planned.served, planned.namespace.as_deref());
    let found = answered(client, requests.get(&planned.name, &Default::default())).await;
    kinds.seen(&planned.served.resource.api_version, there(found))
}

/// Reads an object, only if all of it can be read, and the room that it takes.
pub(super) async fn get_whole(
    client: &Client,
    kinds: &Kinds,
    planned: &Planned,
) -> Result<Option<(Value, Room)>, CallError> {
    let requests = requests(&planned.served, planned.namespace.as_deref());
    let found = asked(client, requests.get(&planned.name, &Default::default())).await;
    let found = kinds.seen(&planned.served.resource.api_version, there(found))?;
    let Some(found) = found else { return Ok(None) };
    let (object, room) = found.read().await?;
    Ok(Some((whole(object)?, room)))
}
