//! Writes what a run has left into Secrets and ConfigMaps. Each step can be done again, and finds that it was done.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, PostParams, Preconditions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Controller;
use super::dialect::Dialect;
use super::held::{Marks, Object, WRITTEN_BY};
use super::manifest;
use super::output::Wanted;
use super::reference::Kind;
use super::resource::Resource;
use super::seen::SeenJob;
use crate::calls::{CallError, call, find};

/// How often a name that is taken is looked at again.
const TRIES: u32 = 10;

/// Why something is not written, for people; calls that fail are no reason.
type Refusal = String;

/// How what is wanted comes to be.
enum Step {
    /// It is there.
    Nothing,
    Create(Value),
    /// One of this version.
    Replace(Value, u64),
}

impl Controller {
    /// Writes what is wanted, unless it is there as it should be. Its name; that of a ConfigMap with its kind.
    pub(super) async fn write(
        &self,
        resource: &Resource,
        job: &SeenJob,
        wanted: &Wanted,
    ) -> Result<Result<String, Refusal>, CallError> {
        for _ in 0..TRIES {
            let step = match wanted.versioned {
                true => Ok(self.next_version(resource, job, wanted)),
                false => self.plain(resource, wanted),
            };
            let (name, step) = match step {
                Ok(step) => step,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if let Step::Replace(_, version) = &step {
                self.assert_open(resource, job, *version).await?;
            }
            let written = match wanted.kind {
                Kind::ConfigMap => self.put(resource, &name, step, Object::of_config_map).await,
                _ => self.put(resource, &name, step, Object::of_secret).await,
            };
            match written {
                Ok(object) => {
                    object.into_iter().for_each(|object| self.learn_object(&object));
                    return Ok(Ok(match wanted.kind {
                        Kind::ConfigMap => format!("configmap/{name}"),
                        _ => name,
                    }));
                }
                Err(CallError::Exists | CallError::NotFound | CallError::Conflict) => {
                    self.look_at(resource, wanted.kind, &name).await?;
                }
                Err(CallError::Invalid(why)) => {
                    let kind = wanted.kind.word();
                    return Ok(Err(format!("{kind}/{name} was refused: {}", secretless(&why))));
                }
                // They become what it waits for, and an Event.
                Err(CallError::Forbidden(why)) => {
                    return Err(CallError::Forbidden(secretless(&why)));
                }
                Err(CallError::Refused(why)) => return Err(CallError::Refused(secretless(&why))),
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }

    /// Fails if the run of a Job has ended, where an object of this version is to be written over that is newer than what
    /// is known of the run: another leader may have kept it, and a later run. Asked once the version is known, so that
    /// what is written after the answer is a conflict.
    ///
    /// Versions of one kind are compared with those of another here, which is so as long as they have one etcd. If they
    /// had not, this would ask too often, or not at all.
    async fn assert_open(
        &self,
        resource: &Resource,
        job: &SeenJob,
        version: u64,
    ) -> Result<(), CallError> {
        if version <= resource.version {
            return Ok(());
        }
        let key = resource.key();
        self.refresh(&key).await?;
        let known = self.table().get(&key).and_then(|entry| entry.resource.clone());
        match known.is_some_and(|it| it.uid == resource.uid && !it.is_over(job.run)) {
            true => Ok(()),
            false => Err(CallError::Conflict),
        }
    }

    /// What it is then; `None`: as it was.
    async fn put<K>(
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
        // The library's words would quote what it holds.
        let read =
            |object| serde_json::from_value(object).map_err(|_| CallError::Invalid(String::new()));
        let written: K = match step {
            Step::Nothing => return Ok(None),
            Step::Create(object) => call(api.create(&params, &read(object)?)).await?,
            Step::Replace(object, _) => call(api.replace(name, &params, &read(object)?)).await?,
        };
        Ok(seen(&written))
    }

    /// What is known of it was wrong.
    async fn look_at(&self, resource: &Resource, kind: Kind, name: &str) -> Result<(), CallError> {
        let namespace = &resource.namespace;
        let found = match kind {
            Kind::ConfigMap => {
                let found = find(self.api::<ConfigMap>(namespace).get(name)).await?;
                found.as_ref().and_then(Object::of_config_map)
            }
            _ => {
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

    /// Whoever refers to it is told here: to the watch it will be nothing new.
    fn learn_object(&self, object: &Object) {
        let keys = {
            let mut table = self.table();
            let changed = table.objects.learn(object.clone());
            if changed { table.referrers(object) } else { Vec::new() }
        };
        self.queue.push(keys);
    }

    fn plain(&self, resource: &Resource, wanted: &Wanted) -> Result<(String, Step), Refusal> {
        let (kind, name) = (wanted.kind, wanted.name.clone());
        let table = self.table();
        let known = table.objects.get(&resource.namespace, kind, &name);
        let owner = Some(resource).filter(|_| wanted.owned);
        let object = object(&name, wanted, owner);
        let Some(known) = known else { return Ok((name, Step::Create(object))) };
        let controller = known.owned.as_ref().and_then(|owned| owned.controller.as_deref());
        let is_others = controller.is_some_and(|uid| *uid != *resource.uid);
        let is_owned = known.is_owned_by(&resource.uid) == wanted.owned;
        let is_marked = known.is_marked(&wanted.labels, &wanted.annotations);
        if known.holds(&wanted.data) && is_marked && is_owned {
            return Ok((name, Step::Nothing));
        }
        let adopts = wanted.owned && controller.is_none();
        let remedy = "name another in outputMap, or delete it";
        let kind = kind.word();
        if is_others {
            let why = "is there and belongs to another controller";
            return Err(format!("{kind}/{name} {why}: {remedy}"));
        }
        if adopts && !known.is_output {
            let why = "is there and was not made by a run: it would be deleted with this one";
            return Err(format!("{kind}/{name} {why}; {remedy}, or remove setOwnerReference"));
        }
        if known.immutable {
            return Err(format!("{kind}/{name} is there and immutable: {remedy}"));
        }
        // As it was judged: it may have become another's since then.
        let mut object = object;
        let version = known.version();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        Ok((name, Step::Replace(object, version)))
    }

    fn next_version(&self, resource: &Resource, job: &SeenJob, wanted: &Wanted) -> (String, Step) {
        let base = &wanted.name;
        let table = self.table();
        // Another may have kept this run, and a newer one after it.
        if let Some(name) = table.objects.written_by(&resource.namespace, base, &job.name) {
            return (name.to_string(), Step::Nothing);
        }
        let newest = table.objects.newest(&resource.namespace, base);
        if let Some((version, known)) = newest {
            let marked = |marks: &Marks| {
                is_subset(&marks.labels, &wanted.labels)
                    && agrees(&marks.annotations, &wanted.annotations)
            };
            if known.holds(&wanted.data) && known.marks().is_some_and(marked) {
                return (format!("{base}-v{version}"), Step::Nothing);
            }
        }
        let mut version = newest.map_or(1, |(version, _)| version + 1);
        let is_taken = |version: u64| {
            let name = format!("{base}-v{version}");
            table.objects.get(&resource.namespace, Kind::Secret, &name).is_some()
        };
        // Somebody else's, of another kind: a number is as good as the next.
        while is_taken(version) {
            version += 1;
        }
        let name = format!("{base}-v{version}");
        let mut marked = wanted.clone();
        let own = |name: &str| resource.dialect.label(name);
        marked.labels.insert(own("secret-kind"), "versionedSecret".to_owned());
        marked.labels.insert(own("secret-version"), version.to_string());
        let source = resource.dialect.source().to_owned();
        marked.annotations.insert(own("source-description"), source);
        marked.annotations.insert(WRITTEN_BY.to_owned(), job.name.to_string());
        let mut secret = object(&name, &marked, Some(resource));
        secret["immutable"] = json!(true);
        (name, Step::Create(secret))
    }

    /// Removes the versions of its own beyond those that are to be kept.
    pub(super) async fn prune(
        &self,
        resource: &Resource,
        wanted: &Wanted,
    ) -> Result<(), CallError> {
        let Some(limit) = wanted.versions.filter(|_| wanted.versioned) else { return Ok(()) };
        let old: Vec<Object> = {
            let table = self.table();
            let versions = table.objects.versions(&resource.namespace, &wanted.name);
            let ours = versions.filter(|object| object.is_owned_by(&resource.uid));
            // What was just written is not old, whatever the limit says.
            ours.skip(limit.max(1)).cloned().collect()
        };
        for object in old {
            let this =
                Preconditions { uid: None, resource_version: Some(object.version().to_string()) };
            let params = DeleteParams { preconditions: Some(this), ..DeleteParams::default() };
            let secrets = self.api::<Secret>(&resource.namespace);
            match call(secrets.delete(&object.name, &params)).await {
                // One that somebody has changed since then is looked at after the next run.
                Ok(_) | Err(CallError::NotFound | CallError::Conflict) => {}
                Err(error) => return Err(error),
            }
            self.table().objects.forget(&object);
        }
        Ok(())
    }
}

fn object(name: &str, wanted: &Wanted, owner: Option<&Resource>) -> Value {
    let owners: Vec<Value> = owner.map(|it| manifest::owner(it, false)).into_iter().collect();
    let mut object = json!({
        "metadata": {
            "name": name,
            "labels": wanted.labels,
            "annotations": wanted.annotations,
            "ownerReferences": owners,
        },
    });
    let data = wanted.data.iter();
    object["data"] = match wanted.kind {
        Kind::ConfigMap => {
            let text = |bytes: &[u8]| json!(String::from_utf8_lossy(bytes));
            data.map(|(key, value)| (key.clone(), text(value))).collect()
        }
        _ => {
            object["type"] = json!("Opaque");
            let bytes = data.map(|(key, value)| (key.clone(), json!(ByteString(value.clone()))));
            bytes.collect()
        }
    };
    object
}

/// Whether the labels of a version, but for those that each has of its own, are among those that are wanted.
fn is_subset(known: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    let own = |name: &str| {
        let of = |dialect: Dialect| {
            [dialect.label("secret-kind"), dialect.label("secret-version")]
                .iter()
                .any(|it| it == name)
        };
        Dialect::ALL.into_iter().any(of)
    };
    known.iter().all(|(name, value)| own(name) || wanted.get(name) == Some(value))
}

/// Whether the annotations of a version do not say otherwise than those that are wanted. Anybody may have added some.
fn agrees(known: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, value)| known.get(name).is_none_or(|known| known == value))
}

/// What the API server says of a Secret may show what is in it: only where the fault is. What a webhook says is
/// anything.
fn secretless(why: &str) -> String {
    const DENIED: &str = "denied the request";
    let why = why.find(DENIED).and_then(|at| why.get(..at + DENIED.len())).unwrap_or(why);
    let fields = why.split(": ").take(2).collect::<Vec<_>>().join(": ");
    fields.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_secret_that_was_refused_does_not_show_what_is_in_it() {
        for (why, said) in [
            (
                "Secret \"s\" is invalid: data[k]: Invalid value: \"PLANTED\"",
                "Secret \"s\" is invalid: data[k]",
            ),
            (
                "admission webhook \"w.example\" denied the request: no PLANTED: here",
                "admission webhook \"w.example\" denied the request",
            ),
            (
                "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: PLANTED",
                "secrets \"s\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request",
            ),
        ] {
            assert_eq!(secretless(why), said);
        }
    }

    #[test]
    fn another_value_of_an_annotation_is_another_version_and_what_somebody_added_is_none() {
        let of = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        for (name, known, wanted, agree) in [
            ("the same", of(&[("a", "1")]), of(&[("a", "1")]), true),
            ("another value", of(&[("a", "1")]), of(&[("a", "2")]), false),
            ("somebody added one", of(&[("a", "1"), ("b", "1")]), of(&[("a", "1")]), true),
            ("one is added", of(&[]), of(&[("a", "1")]), true),
        ] {
            assert_eq!(agrees(&known, &wanted), agree, "{name}");
        }
    }
}
