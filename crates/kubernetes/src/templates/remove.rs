//! Removes the objects of an instance: all of them, and only them, in the name of the requester for whom they were
//! made.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use engine::policy::doubled;
use futures_util::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{GetParams, PropagationPolicy};
use serde_json::Value;

use super::kinds::ServedKind;
use super::make::{AT_ONCE, get, made};
use super::names::VERIFIED;
use super::objects::{Removal, answered, delete, requests};
use super::ours::Ours;
use super::plan::Planned;
use super::record::StoredRecord;
use super::requester::Requester;
use super::resource::{Instance, Key};
use super::status::{Made, Stand};
use super::step::Came;
use super::trouble::Trouble;
use super::{Controller, Drift};
use crate::calls::{CallError, there};

/// How soon objects that are being removed are checked again; doubled up to `LONGEST`.
pub(super) const LOOK: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(5);
/// How long a kind has to be unknown to the API server before it counts as gone, with its objects.
const UNKNOWN: Duration = Duration::from_secs(10);

/// How long an object may be in deletion before it is said what holds it.
const HELD: SignedDuration = SignedDuration::from_secs(30);
/// The finalizers by which Kubernetes itself waits for what an object owns: they go by themselves.
const OF_KUBERNETES: [&str; 2] = ["foregroundDeletion", "orphan"];
/// How many finalizers of an object are named.
const NAMED: usize = 3;

/// What is left of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Left {
    /// The object is gone, or was never ours, or Kubernetes collects it with its owner.
    Nothing,
    /// The object is being removed.
    Going,
    /// The object is in deletion for [`HELD`] and more, and has these finalizers.
    Held(String),
}

/// The objects to be removed.
struct Targets {
    made: Vec<Made>,
    /// Whether no further objects can come: making them has ended, or Kubernetes collects those yet to come.
    is_settled: bool,
}

impl Controller {
    /// Continues the removal of an instance.
    pub(super) async fn remove(&self, instance: &Instance) -> Result<Came, Trouble> {
        let key = &instance.key;
        // The garbage collector is orphaning the objects. It also removes the record's owner reference: what is done
        // before would be undone.
        if instance.is_orphaning() {
            self.with(key, |work| work.is_orphaned = true);
            return Ok(Came::Later(self.pause(key)));
        }
        let record = match self.read_record(key).await {
            // Nothing was made before there was a record, and from now on nobody writes one.
            Ok(None) if !self.withdraw_record(key).await? => {
                return Ok(Came::Later(Duration::ZERO));
            }
            Ok(record) => record,
            // Anybody may have written this record: nothing is removed in the name that it gives. Nor by a record that
            // was let go because objects stay: whoever did that may not have come to the rest.
            Err(Trouble::Final(why)) => {
                let (namespace, name) = (&*key.namespace, &*key.name);
                let words = "the record of a TemplateInstance that is being deleted cannot be used: of its objects \
                             only those go that Kubernetes collects";
                tracing::warn!(namespace, name, why, "{words}");
                None
            }
            Err(trouble) => return Err(trouble),
        };
        let was_orphaning = self.with(key, |work| work.is_orphaned) == Some(true);
        let is_orphaned = was_orphaning || is_orphaned(instance, record.as_deref());
        let recorded = record.as_ref().filter(|kept| !kept.record.is_withdrawn());
        let is_settled = match recorded.filter(|_| !is_orphaned) {
            Some(kept) => self.remove_recorded(instance, kept).await?,
            None => Some(true),
        };
        let Some(is_settled) = is_settled else { return Ok(Came::Later(self.pause(key))) };
        if let Some(wait) = self.may_come(key, is_settled) {
            let (namespace, name, seconds) = (&*key.namespace, &*key.name, wait.as_secs());
            tracing::info!(
                namespace,
                name,
                seconds,
                "it waits for calls that may still be under way"
            );
            return Ok(Came::Later(wait));
        }
        if recorded.is_none() && !is_orphaned {
            self.tell_what_is_left(instance);
        }
        self.let_go(key, record.as_deref(), is_orphaned).await
    }

    /// Removes the objects of a record. Returns whether making them has ended; `None`: some are still being removed.
    async fn remove_recorded(
        &self,
        instance: &Instance,
        kept: &StoredRecord,
    ) -> Result<Option<bool>, Trouble> {
        let key = &instance.key;
        let requester = Requester::of(&kept.record.requester).map_err(Trouble::Final)?;
        let client = requester.client(&self.client, &key.namespace);
        let targets = self.targets(instance, &client, kept).await?;
        let left = self.remove_all(key, &client, &targets.made).await?;
        if let Left::Held(why) = &left {
            // Said once; the objects are looked at as before.
            let _ = self.say(instance, &Stand::Retrying(why.clone()), None).await;
        }
        Ok((left == Left::Nothing).then_some(targets.is_settled))
    }

    /// Removes our finalizers from the record and from the instance.
    async fn let_go(
        &self,
        key: &Key,
        record: Option<&StoredRecord>,
        is_orphaned: bool,
    ) -> Result<Came, Trouble> {
        match is_orphaned {
            true => self.release_orphaned_record(key, record).await?,
            false => self.release_record(key, record).await?,
        }
        let instance = self.known(key)?;
        self.hold(&instance, false).await?;
        let (namespace, name) = (&*key.namespace, &*key.name);
        match is_orphaned {
            true => tracing::info!(namespace, name, "it is gone, and its objects stay"),
            false => tracing::info!(namespace, name, "its objects are gone"),
        }
        Ok(Came::Idle)
    }

    /// Logs, and tells in an event, which objects are left: without a record it is not known in whose name they could
    /// be removed, so those that Kubernetes does not collect stay. Objects that another controller made in the
    /// namespace may have no owner.
    fn tell_what_is_left(&self, instance: &Instance) {
        let key = &instance.key;
        let made = instance.objects().iter().filter_map(Made::of);
        let is_ours = instance.annotation(VERIFIED).is_some();
        let left = made.filter(|made| made.namespace != *key.namespace || !is_ours);
        let words = |made: Made| match made.namespace.is_empty() {
            true => format!("{} {}", made.kind, made.name),
            false => format!("{} {}/{}", made.kind, made.namespace, made.name),
        };
        let left: Vec<String> = left.map(words).collect();
        if !left.is_empty() {
            let why = format!(
                "what it was begun with is not known any more; these are left for you to remove: {}",
                left.join(", ")
            );
            tracing::error!(namespace = &*key.namespace, name = &*key.name, why);
            self.tell_event(instance, "DeletionFailure", &why);
        }
    }

    fn pause(&self, key: &Key) -> Duration {
        let looks = self.with(key, |work| {
            work.looks += 1;
            work.looks
        });
        doubled(LOOK, looks.unwrap_or_default(), LONGEST)
    }

    pub(super) async fn remove_all(
        &self,
        key: &Key,
        client: &Client,
        targets: &[Made],
    ) -> Result<Left, Trouble> {
        let is_open = |made: &&Made| {
            !self.with(key, |work| work.gone.contains(&made.uid)).unwrap_or_default()
        };
        let removals = targets.iter().filter(is_open);
        let removals = removals.map(|made| async move {
            let left = self.remove_one(key, client, made).await;
            if matches!(left, Ok(Left::Nothing)) {
                self.with(key, |work| work.gone.insert(made.uid.clone()));
            }
            left
        });
        let removals: Vec<_> = removals.collect();
        let mut removals = stream::iter(removals).buffer_unordered(AT_ONCE);
        let (mut left, mut held, mut troubles) = (Left::Nothing, BTreeSet::new(), BTreeSet::new());
        while let Some(removed) = removals.next().await {
            match removed {
                Ok(Left::Nothing) => {}
                Ok(Left::Going) => left = Left::Going,
                Ok(Left::Held(why)) => drop(held.insert(why)),
                Err(trouble) => drop(troubles.insert(trouble.reason().ok_or(Trouble::Old)?)),
            }
        }
        // In order, or the same would be said anew each time.
        let lines = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join("\n");
        match (troubles.is_empty(), held.is_empty()) {
            (false, _) => Err(Trouble::Passing(lines(troubles))),
            (true, false) => Ok(Left::Held(lines(held))),
            (true, true) => Ok(left),
        }
    }

    /// How long the removal has to wait, because an object may still come into being: by a call of ours that was not
    /// answered, or, unless the instance `is_settled`, by a call of the former leader, who may have died in it. Once
    /// the record is released, nobody would know of that object.
    fn may_come(&self, key: &Key, is_settled: bool) -> Option<Duration> {
        let led_since = (*self.led_since()).filter(|_| !is_settled);
        let unanswered = self.with(key, |work| work.unanswered).flatten();
        let last = led_since.max(unanswered)?;
        let wait = self.settings.longest_call.saturating_sub(last.elapsed());
        (!wait.is_zero()).then_some(wait)
    }

    /// The objects that were made, also those that a controller made and died before it could note them in the status.
    async fn targets(
        &self,
        instance: &Instance,
        client: &Client,
        kept: &StoredRecord,
    ) -> Result<Targets, Trouble> {
        let mut targets: Vec<Made> = instance.objects().iter().filter_map(Made::of).collect();
        let mut uids: HashSet<String> = targets.iter().map(|it| it.uid.clone()).collect();
        let known =
            self.with(&instance.key, |work| work.made.values().cloned().collect::<Vec<_>>());
        let known = known.unwrap_or_default().into_iter();
        targets.extend(known.filter(|made| uids.insert(made.uid.clone())));
        let mut planned = Vec::new();
        for former in &kept.record.before {
            planned.extend(self.former(former).await?);
        }
        let is_whole = instance.is_made() && instance.is("Ready") && kept.record.is_of(instance);
        // Objects without an owner are looked for in any case: one that was repaired may have another uid than the
        // status says.
        let is_elsewhere = |it: &Planned| it.is_elsewhere(&instance.key);
        let all = self.planned(instance, kept).await?.into_iter();
        planned.extend(all.filter(|it| !is_whole || is_elsewhere(it)));
        let has_failed = instance.is("InstantiateFailure") && !instance.is_changed();
        let has_ended = is_whole || (has_failed && kept.record.is_of(instance));
        let is_settled = (has_ended && self.drift_of(instance) != Drift::Repair)
            || !planned.iter().any(is_elsewhere);
        for planned in planned {
            let found = self.look_for(&instance.key, client, &planned).await?;
            targets.extend(found.filter(|made| uids.insert(made.uid.clone())));
        }
        Ok(Targets { made: targets, is_settled })
    }

    /// A planned object, if it exists and belongs to the instance.
    pub(super) async fn look_for(
        &self,
        key: &Key,
        client: &Client,
        planned: &Planned,
    ) -> Result<Option<Made>, Trouble> {
        let found = match get(client, &self.kinds, planned).await {
            Ok(found) => found,
            // An object for which the API server takes no request was never made.
            Err(CallError::Invalid(_)) => None,
            // Where the requester may not read the object any more, it is left to Kubernetes.
            Err(CallError::Forbidden(_))
                if planned.namespace.as_deref() == Some(&*key.namespace) =>
            {
                None
            }
            Err(error) => return Err(Trouble::from(error).of(&planned.words())),
        };
        let is_ours = |it: &Value| planned.is(key, it, &self.seal);
        Ok(found.filter(is_ours).map(|found| made(planned, &found)))
    }

    async fn remove_one(&self, key: &Key, client: &Client, made: &Made) -> Result<Left, Trouble> {
        let remedy = "let the requester delete it, or take the finalizers \
                      template.openshift.io/finalizer and, from its Secret, template.manciple.dev/record away, which \
                      leaves it";
        let failed = |error: CallError| match &error {
            CallError::Forbidden(_) | CallError::Denied(_) => Trouble::Passing(format!(
                "unable to delete {} {}: {error}: {remedy}",
                made.kind, made.name
            )),
            _ => Trouble::Passing(format!("unable to delete {} {}: {error}", made.kind, made.name)),
        };
        let served = self.kinds.find_any(&made.api_version, &made.kind).await.map_err(failed)?;
        let Some(served) = served else {
            // A kind that is gone took its objects with it; with one that comes back they exist still.
            let since = self.with(key, |work| {
                *work.unknown.entry(made.uid.clone()).or_insert_with(Instant::now)
            });
            let is_gone = since.is_none_or(|since| since.elapsed() >= UNKNOWN);
            return Ok(if is_gone { Left::Nothing } else { Left::Going });
        };
        // What was created was an answer, and no object.
        if !served.is_kept || !served.can_be_in(&made.namespace) {
            return Ok(Left::Nothing);
        }
        let in_place = made.namespace == *key.namespace;
        let left = remove_from(Ours::of(key, &self.seal), client, &served, made, self.now()).await;
        match self.kinds.seen(&served.resource.api_version, left) {
            Ok(Left::Held(finalizers)) => Ok(Left::Held(format!(
                "{} {} is being deleted, and waits for whoever takes its finalizers away: {finalizers}",
                made.kind, made.name
            ))),
            Ok(left) => Ok(left),
            Err(CallError::Unserved) => Ok(Left::Going),
            // Where the requester may not delete the object any more, Kubernetes collects it, as it is owned.
            Err(CallError::Forbidden(_)) if in_place => Ok(Left::Nothing),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Whether the objects of an instance that is being deleted stay. Kubernetes removes the owner reference of the record
/// before it removes the finalizer that says so: by the record it is known later, too, and for objects without an
/// owner.
pub(super) fn is_orphaned(instance: &Instance, record: Option<&StoredRecord>) -> bool {
    instance.is_orphaning() || record.is_some_and(|kept| kept.is_orphaned)
}

/// The propagation policy for the dependents of an object. Their removal is waited for, pods above all; but not for
/// kinds without dependents that matter: each would cost a turn of the garbage collector, which takes twenty a second.
fn propagation(served: &ServedKind) -> PropagationPolicy {
    let makes_nothing = match (served.resource.group.as_str(), served.resource.kind.as_str()) {
        ("", "ReplicationController") => false,
        (
            ""
            | "rbac.authorization.k8s.io"
            | "policy"
            | "networking.k8s.io"
            | "autoscaling"
            | "storage.k8s.io"
            | "scheduling.k8s.io"
            | "route.openshift.io",
            _,
        ) => true,
        _ => false,
    };
    match makes_nothing {
        true => PropagationPolicy::Background,
        false => PropagationPolicy::Foreground,
    }
}

/// Deletes an object, if it is the one that was made, and still belongs to the instance.
pub(super) async fn remove_from(
    ours: Ours<'_>,
    client: &Client,
    served: &ServedKind,
    made: &Made,
    now: Timestamp,
) -> Result<Left, CallError> {
    let requests = requests(served, Some(&made.namespace));
    let found = requests.get_metadata(&made.name, &GetParams::default());
    let Some(found) = there(answered(client, found).await)? else { return Ok(Left::Nothing) };
    let metadata = &found["metadata"];
    // Whoever removes the owner reference means the object to stay.
    if !ours.has_made(served, made, &found) {
        return Ok(Left::Nothing);
    }
    if !metadata["deletionTimestamp"].is_null() {
        return Ok(held(metadata, now).map_or(Left::Going, Left::Held));
    }
    let removal = Removal {
        name: &made.name,
        uid: &made.uid,
        version: metadata["resourceVersion"].as_str(),
        propagation: propagation(served),
    };
    match delete(client, &requests, removal).await {
        Ok(true) => Ok(Left::Nothing),
        // The object was written in the meantime, or is gone, with its version or without: it is checked again.
        Ok(false) | Err(CallError::Conflict | CallError::NotFound) => Ok(Left::Going),
        Err(error) => Err(error),
    }
}

/// The finalizers of an object in deletion, if they have held it for [`HELD`].
fn held(metadata: &Value, now: Timestamp) -> Option<String> {
    let since: Timestamp = metadata["deletionTimestamp"].as_str()?.parse().ok()?;
    let finalizers = metadata["finalizers"].as_array()?;
    let others =
        finalizers.iter().filter_map(Value::as_str).filter(|name| !OF_KUBERNETES.contains(name));
    let mut names: Vec<&str> = others.take(NAMED + 1).collect();
    if names.len() > NAMED {
        names[NAMED] = "…";
    }
    (!names.is_empty() && now.duration_since(since) >= HELD).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_holds_an_object_is_said_once_it_has_held_it_for_a_while() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let (before, just_now) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:45Z");
        for (name, since, finalizers, expected) in [
            ("one", json!(before), json!(["example.org/x"]), Some("example.org/x")),
            ("several", json!(before), json!(["a", "b", "c", "d"]), Some("a, b, c, …")),
            ("its pods end", json!(before), json!(["foregroundDeletion"]), None),
            ("both", json!(before), json!(["foregroundDeletion", "a"]), Some("a")),
            ("it takes its time", json!(just_now), json!(["example.org/x"]), None),
            ("none: its pods end", json!(before), json!(null), None),
            ("none left", json!(before), json!([]), None),
            ("it is not deleted", json!(null), json!(["example.org/x"]), None),
        ] {
            let metadata = json!({"deletionTimestamp": since, "finalizers": finalizers});
            assert_eq!(held(&metadata, now).as_deref(), expected, "{name}");
        }
    }
}
