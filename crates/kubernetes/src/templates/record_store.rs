//! Records, kept at the API server: read, written first, followed by further revisions, let go.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::Controller;
use super::plan::owner;
use super::record::{self, StoredRecord};
use super::resource::{Instance, Key};
use super::trouble::{Trouble, is_too_large};
use crate::calls::{CallError, call, find};

impl Controller {
    /// What was recorded last, by this process or by one before it.
    pub(super) async fn recorded(
        &self,
        instance: &Instance,
    ) -> Result<Option<Arc<StoredRecord>>, Trouble> {
        let known = self.with(&instance.key, |work| work.record.clone()).flatten();
        // What is known here of one that is changed may be old.
        let known = known.filter(|kept| kept.record.is_of(instance));
        if known.is_some() || !instance.is_held() {
            return Ok(known);
        }
        let found = self.read_record(&instance.key).await?;
        match found {
            Some(kept) if kept.record.is_withdrawn() => Err(Trouble::Old),
            // Begun anew it would have another password.
            None if instance.says_what_was_made() => Err(removed(&instance.key)),
            found => Ok(found),
        }
    }

    pub(super) async fn read_record(&self, of: &Key) -> Result<Option<Arc<StoredRecord>>, Trouble> {
        let found = find(self.secrets(of).get(&record::name(&of.uid))).await;
        let found = found.map_err(|error| Trouble::Passing(error.to_string()))?;
        let read = |secret: Secret| record::read(of, &secret, &self.seal).map(Arc::new);
        found.map(read).transpose().map_err(Trouble::Final)
    }

    fn secrets(&self, of: &Key) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &of.namespace)
    }

    /// Writes a record: the first, or in place of the one that it follows. What is kept then: that of somebody else, if
    /// it came first.
    pub(super) async fn record(
        &self,
        of: &Key,
        kept: Arc<StoredRecord>,
    ) -> Result<Arc<StoredRecord>, Trouble> {
        let secret = record::secret(of, &kept, &self.seal);
        let secret: Secret =
            serde_json::from_value(secret).map_err(|error| Trouble::Final(error.to_string()))?;
        let (api, params) = (self.secrets(of), PostParams::default());
        let written = match kept.version.is_empty() {
            true => call(api.create(&params, &secret)).await,
            false => call(api.replace(&record::name(&of.uid), &params, &secret)).await,
        };
        // It holds the values of all parameters.
        let unable = |error: CallError| {
            format!("what it is begun with cannot be recorded: {}", error.of_a_secret())
        };
        match written {
            Ok(_) => Ok(kept),
            Err(CallError::Exists) => {
                let found = self.read_record(of).await?;
                found.ok_or_else(|| Trouble::Passing("its record came and went".to_owned()))
            }
            Err(error @ CallError::Invalid(_)) => Err(Trouble::Final(unable(error))),
            Err(CallError::Failed(said)) if is_too_large(&said) => {
                Err(Trouble::Final(unable(CallError::Failed(said))))
            }
            Err(CallError::Conflict | CallError::NotFound) => Err(Trouble::Old),
            Err(error) => {
                self.note_unanswered(of, &error);
                Err(Trouble::Passing(unable(error)))
            }
        }
    }

    /// Takes the place of the record: another who still takes itself for the leader has nothing to make anything of.
    /// Whether that was in time.
    pub(super) async fn withdraw_record(&self, key: &Key) -> Result<bool, Trouble> {
        let secret = record::withdrawn(key, &self.seal);
        let secret: Secret =
            serde_json::from_value(secret).map_err(|error| Trouble::Final(error.to_string()))?;
        match call(self.secrets(key).create(&PostParams::default(), &secret)).await {
            Ok(_) => Ok(true),
            Err(CallError::Exists) => Ok(false),
            // In a namespace that goes, or is gone, nobody makes anything.
            Err(CallError::Forbidden(_) | CallError::NotFound) => Ok(true),
            Err(error) => Err(Trouble::Passing(error.of_a_secret().to_string())),
        }
    }

    /// Nothing holds the record any more: it goes with its instance. Not if it was followed by another since it was
    /// read: of that there may be more to remove.
    pub(super) async fn release_record(
        &self,
        key: &Key,
        read: Option<&StoredRecord>,
    ) -> Result<(), Trouble> {
        let body = json!({"metadata": {"finalizers": null}});
        released(self.release(key, read, body).await)
    }

    /// The same of an instance whose objects stay, of which the garbage collector has taken the record for one: it is the
    /// instance's again, and holds nothing any more, so that nobody takes it for one by which objects are to go.
    pub(super) async fn release_orphaned_record(
        &self,
        key: &Key,
        read: Option<&StoredRecord>,
    ) -> Result<(), Trouble> {
        let emptied = json!({"metadata": {"finalizers": null}, "data": null});
        let mut owned = emptied.clone();
        owned["metadata"]["ownerReferences"] = json!([owner(key)]);
        match self.release(key, read, owned).await {
            // Some clusters let only those write owners who may delete, OpenShift among them: there it stays, empty.
            Err(CallError::Forbidden(_) | CallError::Denied(_)) => {
                released(self.release(key, read, emptied).await)
            }
            result => released(result),
        }
    }

    async fn release(
        &self,
        key: &Key,
        read: Option<&StoredRecord>,
        mut body: Value,
    ) -> Result<(), CallError> {
        if let Some(read) = read {
            body["metadata"]["resourceVersion"] = json!(read.version);
        }
        let (name, params) = (record::name(&key.uid), PatchParams::default());
        find(self.secrets(key).patch(&name, &params, &Patch::Merge(body))).await.map(drop)
    }
}

/// Without its record nothing more comes of an instance.
pub(super) fn removed(of: &Key) -> Trouble {
    Trouble::Final(format!(
        "Secret {}, which recorded what was ordered, was removed: delete the instance, and order it anew",
        record::name(&of.uid)
    ))
}

fn released(result: Result<(), CallError>) -> Result<(), Trouble> {
    result.map_err(|error| match error {
        CallError::Conflict => Trouble::Old,
        error => Trouble::Passing(error.of_a_secret().to_string()),
    })
}
