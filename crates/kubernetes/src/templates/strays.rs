//! Records whose instance is gone, and what was made by them.
//!
//! An API server that is deleting an object may not see a finalizer that it takes in the same moment: the instance is
//! gone, though it was held. Whoever was making its objects sees that, and removes them; if it dies before, only the
//! record knows of them. So they are looked for: once whatever its predecessors had begun has taken effect, by each who
//! leads, and from time to time.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};

use super::Controller;
use super::names::{HOLDS_RECORD, Kind};
use super::prepare::planned_of;
use super::record::{self, Kept};
use super::remove::Left;
use super::requester::Requester;
use super::resource::Key;
use super::status::Made;
use super::table::Scope;
use super::trouble::Trouble;
use crate::calls::{CallError, call, find};
use crate::names::MANAGED_BY;

/// How often it is looked for them.
const EVERY: Duration = Duration::from_secs(3600);
/// How soon again, if it could not be, or something is still going; twice as long each time.
const AGAIN: Duration = Duration::from_secs(15);
/// How many are listed at a time.
const PAGE: u32 = 500;

impl Controller {
    /// Looks for them, as long as it leads. To be spawned when it begins to; ends when it is dropped.
    pub(super) async fn clear_strays(self: Arc<Self>) {
        let (mut wait, mut again) = (self.settings.longest_call, AGAIN);
        loop {
            tokio::time::sleep(wait).await;
            let left = self.clear_all().await.unwrap_or_else(|error| {
                let why = "whether something is left of instances that are gone is not known";
                tracing::warn!(%error, why);
                Left::Going
            });
            (wait, again) = match left {
                Left::Nothing => (EVERY, AGAIN),
                Left::Going => (again, (again * 2).min(EVERY)),
            };
        }
    }

    async fn clear_all(&self) -> Result<Left, CallError> {
        let mut all = Left::Nothing;
        for scope in self.scopes() {
            for key in self.strays(&scope).await? {
                match self.clear(&key).await {
                    Ok(Left::Nothing) => {}
                    Ok(Left::Going) | Err(Trouble::Old) => all = Left::Going,
                    Err(Trouble::Passing(why) | Trouble::Doubtful(why) | Trouble::Final(why)) => {
                        let (namespace, name) = (&*key.namespace, &*key.name);
                        let secret = record::name(&key.uid);
                        tracing::warn!(
                            namespace,
                            name,
                            secret,
                            why,
                            "it is gone, and its objects are not: take the finalizer {HOLDS_RECORD} from the Secret to leave them"
                        );
                        all = Left::Going;
                    }
                }
            }
        }
        Ok(all)
    }

    /// Instances that are gone and have a record.
    async fn strays(&self, scope: &Scope) -> Result<Vec<Key>, CallError> {
        let secrets: Api<Secret> = match scope {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let ours = format!("{}={}", MANAGED_BY.0, MANAGED_BY.1);
        let mut params = ListParams::default().labels(&ours).limit(PAGE);
        let mut strays = Vec::new();
        loop {
            let page = call(secrets.list_metadata(&params)).await?;
            let keys = page.items.iter().filter_map(|it| of_record(&it.metadata));
            let unknown: Vec<Key> = keys.filter(|key| self.with(key, |_| ()).is_none()).collect();
            for key in unknown {
                let found = find(self.instances(&key.namespace).get_metadata(&key.name)).await?;
                if found.is_none_or(|found| found.metadata.uid.as_deref() != Some(&*key.uid)) {
                    strays.push(key);
                }
            }
            params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if params.continue_token.is_none() {
                return Ok(strays);
            }
        }
    }

    /// Removes what was made by a record whose instance is gone, then that. Another Manciple's is left to that.
    pub(super) async fn clear(&self, key: &Key) -> Result<Left, Trouble> {
        let kept = match self.read_record(key).await {
            Ok(Some(kept)) => kept,
            Ok(None) | Err(Trouble::Final(_)) => return Ok(Left::Nothing),
            Err(trouble) => return Err(trouble),
        };
        if !kept.record.is_withdrawn() {
            let requester = Requester::of(&kept.record.requester).map_err(Trouble::Final)?;
            let client = requester.client(&self.client, &key.namespace);
            let made = self.made_by(key, &client, &kept).await?;
            if self.remove_all(key, &client, &made).await? == Left::Going {
                return Ok(Left::Going);
            }
        }
        self.release_record(key, Some(&kept)).await?;
        let (namespace, name) = (&*key.namespace, &*key.name);
        tracing::info!(namespace, name, "what was left of it is gone, too");
        Ok(Left::Nothing)
    }

    /// What there is of what a record says. What was ordered is not known where it was too large to be kept.
    async fn made_by(
        &self,
        key: &Key,
        client: &kube::Client,
        kept: &Kept,
    ) -> Result<Vec<Made>, Trouble> {
        let mut planned = Vec::new();
        for former in &kept.record.before {
            planned.extend(self.former(former).await?);
        }
        match kept.spec() {
            Some(spec) => {
                let of_spec = planned_of(&self.kinds, key, &spec, &kept.record, &self.seal);
                planned.extend(of_spec.await?);
            }
            None => {
                let (namespace, name) = (&*key.namespace, &*key.name);
                tracing::error!(namespace, name, "it is gone, and its objects may be left");
            }
        }
        let mut made = Vec::new();
        for planned in planned {
            made.extend(self.look_for(key, client, &planned).await?);
        }
        Ok(made)
    }
}

/// The instance of a record, if it is one that holds something.
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
