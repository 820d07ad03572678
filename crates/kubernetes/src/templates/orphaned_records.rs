//! Records whose instance is gone, and the objects made by them that nobody else removes.
//!
//! An API server that is deleting an object may overlook a finalizer that is added in the same moment: the instance is
//! gone, though it had the finalizer. The controller that was making its objects notices, and removes them; if it dies
//! before, only the record knows of them. So the leader looks for such records: once the longest call is over after it
//! began to lead, likewise after each time that it met such an instance itself, and every hour.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams};
use tokio::time::{Instant, sleep_until};

use super::Controller;
use super::names::{HOLDS_RECORD, Kind};
use super::prepare::planned_of;
use super::record::{self, StoredRecord};
use super::remove::Left;
use super::requester::Requester;
use super::resource::Key;
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

impl Controller {
    /// Looks for orphaned records as long as this controller leads. To be spawned when it begins to; ends when it is
    /// dropped.
    pub(super) async fn clear_strays(self: Arc<Self>) {
        let mut again = AGAIN;
        let mut next = Instant::now() + self.settings.longest_call;
        // The records of which nothing was left when they were last looked at.
        let mut cleared = HashSet::new();
        loop {
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.stray.notified() => {
                    next = next.min(Instant::now() + self.settings.longest_call);
                    again = AGAIN;
                    continue;
                }
            }
            let pause = match self.clear_all(&mut cleared).await {
                Left::Nothing => {
                    again = AGAIN;
                    EVERY
                }
                Left::Going | Left::Held(_) => {
                    let pause = again;
                    again = (again * 2).min(EVERY);
                    pause
                }
            };
            next = Instant::now() + pause;
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
                match self.clear(&key, cleared).await {
                    Ok(Left::Nothing) => {}
                    Ok(Left::Going | Left::Held(_)) | Err(Trouble::Old) => all = Left::Going,
                    Err(trouble) => {
                        let (namespace, name) = (&*key.namespace, &*key.name);
                        let (secret, why) = (record::name(&key.uid), trouble.reason());
                        tracing::warn!(
                            namespace,
                            name,
                            secret,
                            why,
                            "a TemplateInstance is gone, and its objects could not be removed: it is tried again"
                        );
                        all = Left::Going;
                    }
                }
            }
        }
        all
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
        let found = find(self.instances(&key.namespace).get_metadata(&key.name)).await;
        let found = found.map_err(|error| Trouble::Passing(error.to_string()))?;
        if found.is_some_and(|found| found.metadata.uid.as_deref() == Some(&*key.uid)) {
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
