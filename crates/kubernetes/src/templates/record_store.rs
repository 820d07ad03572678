//! The records at the API server: reads, writes, replaces and releases them.

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
    /// The newest record of an instance, written by this process or an earlier one.
    pub(super) async fn recorded(
        &self,
        instance: &Instance,
    ) -> Result<Option<Arc<StoredRecord>>, Trouble> {
        let known = self.with(&instance.key, |work| work.record.clone()).flatten();
        // The known record of a changed instance may be outdated.
        let known = known.filter(|kept| kept.record.is_of(instance));
        if known.is_some() || !instance.is_held() {
            return Ok(known);
        }
        let found = self.read_record(&instance.key).await?;
        match found {
            Some(kept) if kept.record.is_withdrawn() => Err(Trouble::Old),
            // If it were begun anew it would get other passwords.
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

    /// Writes a record: the first, or in place of the one that it follows. Returns the record that then is in force:
    /// another process's, if it wrote first.
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
        // The Secret holds the values of all parameters, which an error may quote.
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

    /// Writes a withdrawn record where there is none, so that another process which still believes that it leads cannot
    /// begin the instance. Returns whether that was in time.
    pub(super) async fn withdraw_record(&self, key: &Key) -> Result<bool, Trouble> {
        let secret = record::withdrawn(key, &self.seal);
        let secret: Secret =
            serde_json::from_value(secret).map_err(|error| Trouble::Final(error.to_string()))?;
        match call(self.secrets(key).create(&PostParams::default(), &secret)).await {
            Ok(_) => Ok(true),
            Err(CallError::Exists) => Ok(false),
            // In a namespace that is being deleted, or is gone, nobody makes anything.
            Err(CallError::Forbidden(_) | CallError::NotFound) => Ok(true),
            Err(error) => Err(Trouble::Passing(error.of_a_secret().to_string())),
        }
    }

    /// Removes our finalizer from the record, so that it goes with its instance. Not if the record has changed since it
    /// was read: there may be more to remove.
    pub(super) async fn release_record(
        &self,
        key: &Key,
        read: Option<&StoredRecord>,
    ) -> Result<(), Trouble> {
        let body = json!({"metadata": {"finalizers": null}});
        released(self.release(key, read, body).await)
    }

    /// Releases the record of an instance whose objects stay; the garbage collector has treated the record as one of
    /// them. It is owned by the instance again and emptied, so that nobody removes objects by it.
    pub(super) async fn release_orphaned_record(
        &self,
        key: &Key,
        read: Option<&StoredRecord>,
    ) -> Result<(), Trouble> {
        let emptied = json!({"metadata": {"finalizers": null}, "data": null});
        let mut owned = emptied.clone();
        owned["metadata"]["ownerReferences"] = json!([owner(key)]);
        match self.release(key, read, owned).await {
            // Some clusters, OpenShift among them, let only those set owners who may delete: there the record stays,
            // empty.
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

/// The final trouble of an instance whose record was removed.
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
