//! Records whose instance is gone, and the objects made by them that nobody else removes.
//!
//! An API server that is deleting an object may overlook a finalizer that is added in the same moment: the instance is
//! gone, though it had the finalizer. The controller that was making its objects notices, and removes them; if it dies
//! before, only the record knows of them. So the leader looks for such records: once the longest call is over after it
//! began to lead, likewise after each time that it met such an instance itself, and every hour.
//!
//! A leader that stands still, or loses its Lease, may make objects, or a record, when the next one has removed the
//! instance and its record: then nobody else knows of them. So whoever has led looks once more, likewise when the
//! longest call is over, and for what it was making itself.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::Controller;
use super::names::{HOLDS_RECORD, Kind};
use super::plan::Planned;
use super::prepare::planned_of;
use super::record::{self, Former, StoredRecord};
use super::remove::Left;
use super::requester::Requester;
use super::resource::{Instance, Key};
use super::status::Made;
use super::table::Scope;
use super::trouble::Trouble;
use crate::calls::{CallError, call, find, next_page};
use crate::names::MANAGED_BY;

/// How often the leader looks for orphaned records.
const EVERY: Duration = Duration::from_secs(3600);
/// How soon it looks again where something was left; doubled each time. Longer than a kind is unknown while it is
/// defined anew.
const AGAIN: Duration = Duration::from_secs(15);
/// How many Secrets are listed at a time.
const PAGE: u32 = 500;

/// What may be left of instances that went while this process made their objects.
#[derive(Default)]
pub(super) struct Strays {
    /// Notified when there may be something to look for.
    pub(super) news: Notify,
    late: Mutex<HashMap<Key, Late>>,
}

/// The objects without an owner that calls of this process may make though their instance goes.
#[derive(Clone)]
struct Late {
    requester: Requester,
    places: Vec<Former>,
    /// Until when they may come.
    until: Instant,
}

impl Strays {
    fn late(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Late>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller {
    /// Notes what is to be looked for when the longest call is over: the objects of a plan that nobody else removes.
    pub(super) fn note_stray(&self, instance: &Instance, plan: &[Planned]) {
        let elsewhere = plan.iter().filter(|it| it.is_elsewhere(&instance.key));
        let places: Vec<Former> = elsewhere.map(Former::from).collect();
        let Some(requester) = instance.requester().ok().filter(|_| !places.is_empty()) else {
            return;
        };
        let late = Late { requester, places, until: Instant::now() + self.settings.longest_call };
        self.strays.late().insert(instance.key.clone(), late);
        self.strays.news.notify_one();
    }

    /// Looks for orphaned records, and for what this process may have left. To be spawned when it begins to lead, and
    /// when it `leads` no more, where it looks until nothing is left, and again for what steps that were under way have
    /// begun. Ends when it is dropped.
    pub(super) async fn clear_strays(self: Arc<Self>, leads: bool) {
        let mut again = AGAIN;
        let in_time = || Instant::now() + self.settings.longest_call;
        // When it looks next, and after which moment it has to have looked.
        let (mut next, mut last) = (Some(in_time()), in_time());
        // The records of which nothing was left when they were last looked at.
        let mut cleared = HashSet::new();
        loop {
            tokio::select! {
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
                () = self.strays.news.notified() => {
                    last = in_time();
                    next = Some(next.map_or(last, |next| next.min(last)));
                    again = AGAIN;
                    continue;
                }
            }
            let is_last = Instant::now() >= last;
            next = match self.clear_all(&mut cleared).await {
                Left::Nothing => {
                    again = AGAIN;
                    if is_last { leads.then(|| Instant::now() + EVERY) } else { Some(last) }
                }
                Left::Going | Left::Held(_) => {
                    let pause = again;
                    again = (again * 2).min(EVERY);
                    Some(Instant::now() + pause)
                }
            };
        }
    }

    async fn clear_all(&self, cleared: &mut HashSet<Key>) -> Left {
        let mut all = Left::Nothing;
        for scope in self.scopes() {
            let listed = self.records(&scope).await.unwrap_or_else(|error| {
                let (namespace, why) =
                    (scope.as_deref(), "what is left of instances that are gone is not known");
                tracing::warn!(namespace, %error, why);
                all = Left::Going;
                Vec::new()
            });
            for key in listed {
                let left = self.clear(&key, cleared).await;
                if !is_clear(&key, left) {
                    all = Left::Going;
                }
            }
        }
        let late: Vec<(Key, Late)> =
            self.strays.late().iter().map(|(key, late)| (key.clone(), late.clone())).collect();
        for (key, late) in late {
            match is_clear(&key, self.clear_late(&key, &late).await) {
                true => self.strays.late().retain(|of, now| *of != key || now.until > late.until),
                false => all = Left::Going,
            }
        }
        all
    }

    /// Removes what calls have made after their instance went, until no more can come. As long as the instance is there,
    /// whoever removes it looks for all of that.
    async fn clear_late(&self, key: &Key, late: &Late) -> Result<Left, Trouble> {
        let left = if Instant::now() < late.until { Left::Going } else { Left::Nothing };
        if self.is_there(key).await? {
            return Ok(left);
        }
        let client = late.requester.client(&self.client, &key.namespace);
        let mut made = Vec::new();
        for former in &late.places {
            if let Some(planned) = self.former(former).await? {
                made.extend(self.look_for(key, &client, &planned).await?);
            }
        }
        if made.is_empty() {
            return Ok(left);
        }
        let (namespace, name) = (&*key.namespace, &*key.name);
        tracing::info!(namespace, name, count = made.len(), "it was gone before these came");
        self.remove_all(key, &client, &made).await?;
        Ok(Left::Going)
    }

    /// Whether an instance exists still.
    async fn is_there(&self, key: &Key) -> Result<bool, Trouble> {
        let found = find(self.instances(&key.namespace).get_metadata(&key.name)).await;
        let found = found.map_err(|error| Trouble::Passing(error.to_string()))?;
        Ok(found.is_some_and(|found| found.metadata.uid.as_deref() == Some(&*key.uid)))
    }

    /// The instances whose records have our finalizer, by the owner references of the records; those that the table
    /// knows are left out.
    async fn records(&self, scope: &Scope) -> Result<Vec<Key>, CallError> {
        let secrets: Api<Secret> = match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let ours = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
        let mut params = ListParams::default().labels(&ours).limit(PAGE);
        let mut records = Vec::new();
        loop {
            let page = call(secrets.list_metadata(&params)).await?;
            let keys = page.items.iter().filter_map(|it| of_record(&it.metadata));
            records.extend(keys.filter(|key| self.with(key, |_| ()).is_none()));
            let Some(next) = next_page(params, page.metadata) else { return Ok(records) };
            params = next;
        }
    }

    /// If an instance is gone, removes those of its objects that nobody else removes, then releases its record: not at
    /// the first look that finds nothing left, because a kind may be unknown for a moment. A record that is not sealed
    /// for this very instance is somebody else's, or a copy, and is left alone.
    async fn clear(&self, key: &Key, cleared: &mut HashSet<Key>) -> Result<Left, Trouble> {
        if self.is_there(key).await? {
            return Ok(Left::Nothing);
        }
        let kept = match self.read_record(key).await {
            Ok(Some(kept)) if kept.record.is_made_for(key) && !kept.is_orphaned => kept,
            Ok(_) | Err(Trouble::Final(_)) => return Ok(Left::Nothing),
            Err(trouble) => return Err(trouble),
        };
        let (namespace, name) = (&*key.namespace, &*key.name);
        let requester = Requester::of(&kept.record.requester).map_err(Trouble::Final)?;
        let client = requester.client(&self.client, &key.namespace);
        let made = self.made_by(key, &client, &kept).await?;
        if !made.is_empty() {
            cleared.remove(key);
            tracing::info!(namespace, name, count = made.len(), "it is gone, and these go, too");
            self.remove_all(key, &client, &made).await?;
            return Ok(Left::Going);
        }
        if cleared.insert(key.clone()) {
            return Ok(Left::Going);
        }
        self.release_record(key, Some(&kept)).await?;
        cleared.remove(key);
        tracing::info!(namespace, name, "it is gone, and nothing is left of it");
        Ok(Left::Nothing)
    }

    /// The objects of a record that still exist, without those that Kubernetes collects.
    async fn made_by(
        &self,
        key: &Key,
        client: &Client,
        kept: &StoredRecord,
    ) -> Result<Vec<Made>, Trouble> {
        let Some(spec) = kept.spec() else {
            let why = format!(
                "what was ordered was too large to be recorded: look for what is left of it, and take the finalizer \
                 {HOLDS_RECORD} from the Secret"
            );
            return Err(Trouble::Final(why));
        };
        let mut planned = planned_of(&self.kinds, key, &spec, &kept.record, &self.seal).await?;
        for former in &kept.record.before {
            planned.extend(self.former(former).await?);
        }
        let mut made = Vec::new();
        for planned in planned.iter().filter(|it| it.is_elsewhere(key)) {
            made.extend(self.look_for(key, client, planned).await?);
        }
        Ok(made)
    }
}

/// Whether nothing is left of an instance; what keeps it from going is logged.
fn is_clear(key: &Key, left: Result<Left, Trouble>) -> bool {
    match left {
        Ok(left) => left == Left::Nothing,
        Err(trouble) => {
            if let Some(why) = trouble.reason() {
                let (namespace, name) = (&*key.namespace, &*key.name);
                let (secret, words) = (
                    record::name(&key.uid),
                    "a TemplateInstance is gone, and its objects could not be removed: it is tried again",
                );
                tracing::warn!(namespace, name, secret, why, "{words}");
            }
            false
        }
    }
}

/// The instance of a Secret that is a record and has our finalizer.
fn of_record(secret: &ObjectMeta) -> Option<Key> {
    let holds = secret.finalizers.iter().flatten().any(|it| it == HOLDS_RECORD);
    let mut owners = secret.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.kind == Kind::TemplateInstance.name())?;
    let is_it = secret.name.as_deref() == Some(&record::name(&owner.uid));
    (holds && is_it).then_some(Key {
        namespace: secret.namespace.as_deref()?.into(),
        name: owner.name.as_str().into(),
        uid: owner.uid.as_str().into(),
    })
}
