//! Writes the output of a run into Secrets and ConfigMaps. Each step can be done again, and finds that it was done.
//!
//! An object that a deleted QuarksJob of the same name has left is deleted and made anew, and never overwritten:
//! Kubernetes may be about to collect it, which it does by its uid, whatever is in it by then.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PostParams;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::objects::Wanted;
use super::writes::{self, Refusal, Step};
use crate::calls::{CallError, call, find, only, secretless};
use crate::quarks::Controller;
use crate::quarks::api::reference::Kind;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::object::Object;

/// How often an object is tried to be written, if others write it too.
const TRIES: u32 = 10;

impl Controller {
    /// Writes an object, unless it is there as it should be. Returns its name; for a ConfigMap, with its kind.
    pub(crate) async fn write(
        &self,
        resource: &Resource,
        job: &SeenJob,
        wanted: &Wanted,
    ) -> Result<Result<String, Refusal>, CallError> {
        let mut is_taken = false;
        for _ in 0..TRIES {
            let immutable = self.settings.immutable_versions;
            let step = writes::step(&self.table().objects, resource, &job.name, wanted, immutable);
            let (name, step) = match step {
                Ok(step) => step,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let target = format!("{}/{name}", wanted.kind.word());
            match &step {
                // Another leader may have kept this run, and a later one.
                Step::Replace(_, version) if *version > resource.version => {
                    self.assert_open(resource, job).await?;
                }
                Step::Take(_) if is_taken => {
                    let why = "is deleted, and does not go: has it finalizers?";
                    return Err(CallError::Stays(format!("{target} {why}")));
                }
                Step::Take(left) => {
                    // Our QuarksJob may itself be the deleted one. Then the object is its successor's.
                    self.assert_open(resource, job).await?;
                    self.delete(left).await?;
                    is_taken = true;
                    continue;
                }
                _ => {}
            }
            match self.put(resource, wanted.kind, &name, step).await {
                Ok(object) => {
                    object.into_iter().for_each(|object| self.learn_object(&object));
                    return Ok(Ok(if wanted.kind == Kind::Secret { name } else { target }));
                }
                Err(CallError::Exists | CallError::NotFound | CallError::Conflict) => {
                    self.look_at(resource, wanted.kind, &name).await?;
                }
                Err(CallError::Invalid(why)) => return Ok(Err(refused(&target, &why))),
                Err(error) => return Err(error.of_a_secret()),
            }
        }
        Err(CallError::Conflict)
    }

    /// Fails if the run of a Job has ended, or its QuarksJob is gone, as the API server says. It is asked after the
    /// version of the object that is to be overwritten or deleted is known: if that is written after the answer, our
    /// write is a conflict. An object that is not newer than what is known of the run need not be asked about.
    ///
    /// Resource versions of two kinds are compared for that, which holds if they have one etcd. If they had not, this
    /// would be called too often, or not at all.
    async fn assert_open(&self, resource: &Resource, job: &SeenJob) -> Result<(), CallError> {
        let key = resource.key();
        self.refresh(&key).await?;
        let known = self.table().get(&key).and_then(|entry| entry.resource.clone());
        match known.is_some_and(|it| it.uid == resource.uid && !it.is_over(job.run)) {
            true => Ok(()),
            false => Err(CallError::Conflict),
        }
    }

    /// Carries out a step, and returns the object as it is then; `None`: it is as it was.
    ///
    /// A version that is made after another leader has kept a later run would be the newest. So it is made while nobody
    /// else may act, or not at all.
    async fn put(
        &self,
        resource: &Resource,
        kind: Kind,
        name: &str,
        step: Step,
    ) -> Result<Option<Object>, CallError> {
        let put = async {
            match kind {
                Kind::ConfigMap => self.put_as(resource, name, step, Object::of_config_map).await,
                Kind::Secret => self.put_as(resource, name, step, Object::of_secret).await,
            }
        };
        self.while_it_leads(put).await
    }

    async fn put_as<K>(
        &self,
        resource: &Resource,
        name: &str,
        step: Step,
        seen: fn(&K) -> Option<Object>,
    ) -> Result<Option<Object>, CallError>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + Debug + Serialize + DeserializeOwned,
        K::DynamicType: Default,
    {
        let api = self.api::<K>(&resource.namespace);
        let params = PostParams::default();
        // The library's error would quote what the object holds.
        let read =
            |object| serde_json::from_value(object).map_err(|_| CallError::Invalid(String::new()));
        let written: K = match step {
            Step::Nothing | Step::Take(_) => return Ok(None),
            Step::Create(object) => call(api.create(&params, &read(object)?)).await?,
            Step::Replace(object, _) => call(api.replace(name, &params, &read(object)?)).await?,
        };
        Ok(seen(&written))
    }

    /// Reads an object anew from the API server, for what is known of it was wrong.
    async fn look_at(&self, resource: &Resource, kind: Kind, name: &str) -> Result<(), CallError> {
        let namespace = &resource.namespace;
        let found = match kind {
            Kind::ConfigMap => {
                let found = find(self.api::<ConfigMap>(namespace).get(name)).await?;
                found.as_ref().and_then(Object::of_config_map)
            }
            Kind::Secret => {
                let found = find(self.api::<Secret>(namespace).get(name)).await?;
                found.as_ref().and_then(Object::of_secret)
            }
        };
        match found {
            Some(object) => self.learn_object(&object),
            None => {
                let mut table = self.table();
                let known = table.objects.get(namespace, kind, name).cloned();
                if let Some(known) = known {
                    table.objects.forget(&known);
                }
            }
        }
        Ok(())
    }

    /// Takes an object that was written, and queues those who refer to it: when the watch tells of it, it is nothing
    /// new.
    fn learn_object(&self, object: &Object) {
        let keys = {
            let mut table = self.table();
            let changed = table.objects.learn(object.clone());
            if changed { table.referrers(object) } else { Vec::new() }
        };
        self.queue.push(keys);
    }

    /// Deletes the versions that the QuarksJob owns beyond those that are to be kept.
    pub(crate) async fn prune(
        &self,
        resource: &Resource,
        wanted: &Wanted,
    ) -> Result<(), CallError> {
        let Some(limit) = wanted.versions.filter(|_| wanted.versioned) else { return Ok(()) };
        let old: Vec<Object> = {
            let table = self.table();
            let versions = table.objects.versions(&resource.namespace, &wanted.name);
            let ours = versions.filter(|object| object.is_owned_by(&resource.uid));
            // The version that was just written is not old, whatever the limit says.
            ours.skip(limit.max(1)).cloned().collect()
        };
        for object in old {
            self.delete(&object).await?;
        }
        Ok(())
    }

    /// Deletes an object as it was seen. One that somebody has changed since then stays, and is looked at when it is
    /// met again.
    pub(crate) async fn delete(&self, object: &Object) -> Result<(), CallError> {
        let params = only(None, Some(object.version().to_string()));
        let (namespace, name) = (&object.namespace, &object.name);
        let deleted = match object.kind {
            Kind::ConfigMap => {
                call(self.api::<ConfigMap>(namespace).delete(name, &params)).await.map(drop)
            }
            Kind::Secret => {
                call(self.api::<Secret>(namespace).delete(name, &params)).await.map(drop)
            }
        };
        match deleted {
            Ok(()) | Err(CallError::NotFound | CallError::Conflict) => {}
            Err(error) => return Err(error.of_a_secret()),
        }
        self.table().objects.forget(object);
        Ok(())
    }
}

/// Why the API server refuses an object, and what to do where that is known.
fn refused(target: &str, why: &str) -> Refusal {
    // Only an object that is there can have another type than what a run writes.
    if why.contains("is invalid: type: ") && why.ends_with("field is immutable") {
        let what = "is there and of another type, which stays";
        return format!("{target} {what}: name another in outputMap, or delete it");
    }
    format!("{target} was refused: {}", secretless(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_of_another_type_is_told_from_what_is_refused_otherwise() {
        let target = "secret/tls";
        for (why, said) in [
            (
                "Secret \"tls\" is invalid: type: Invalid value: \"Opaque\": field is immutable",
                "secret/tls is there and of another type, which stays: name another in outputMap, or delete it",
            ),
            (
                "Secret \"tls\" is invalid: metadata.name: Invalid value: \"tls\": no",
                "secret/tls was refused: Secret \"tls\" is invalid: metadata.name",
            ),
        ] {
            assert_eq!(refused(target, why), said);
        }
    }
}
