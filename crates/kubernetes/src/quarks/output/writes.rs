//! What is to be created, replaced or deleted to write the output of a run: pure.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::objects::Wanted;
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::naming;
use crate::quarks::api::reference::Kind;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::held::Objects;
use crate::quarks::state::object::{MADE_BY, Marks, Object, WRITTEN_BY};

/// Why an object is not written, for people; a call that fails is no such reason.
pub(crate) type Refusal = String;

/// What is to be done to write an object.
#[derive(Debug)]
pub(crate) enum Step {
    /// The object is there as it should be.
    Nothing,
    Create(Value),
    /// Replaces the object, which has this resource version.
    Replace(Value, u64),
    /// Deletes this object first, which a deleted QuarksJob of the same name has left: Kubernetes deletes it by its
    /// uid, sooner or later, together with what would be written over it.
    Take(Object),
}

/// What is to be done to write an object of the run of this `job`, by what is known to be there; and the name of the
/// object. What is to be deleted belongs to another QuarksJob of the same name, and one of the two is gone: that it is
/// not this one has to be asked.
pub(crate) fn step(
    objects: &Objects,
    resource: &Resource,
    job: &str,
    wanted: &Wanted,
    immutable_versions: bool,
) -> Result<(String, Step), Refusal> {
    match wanted.versioned {
        true => next_version(objects, resource, job, wanted, immutable_versions),
        false => {
            let known = objects.get(&resource.namespace, wanted.kind, &wanted.name);
            Ok((wanted.name.clone(), plain(known, resource, wanted)?))
        }
    }
}

fn plain(known: Option<&Object>, resource: &Resource, wanted: &Wanted) -> Result<Step, Refusal> {
    let name = &wanted.name;
    let owner = Some(resource).filter(|_| wanted.owned);
    let controller = known.and_then(|known| known.owned.as_ref()?.controller.as_deref());
    let is_others = known.is_some_and(|known| known.is_of_another_than(&resource.uid));
    let of_others =
        Marks { labels: wanted.labels.clone(), annotations: wanted.annotations.clone() };
    let mut marks = of_others.clone();
    if owner.is_none() {
        marks.annotations.insert(MADE_BY.to_owned(), resource.maker());
    }
    let Some(known) = known else { return Ok(Step::Create(object(name, &marks, wanted, owner))) };
    // Overwriting an object that is being deleted, and is held, would lose what is written.
    if known.deleting || known.is_owned_by_another_called(&resource.maker(), &resource.uid) {
        return Ok(Step::Take(known.clone()));
    }
    let is_owned = known.is_owned_by(&resource.uid) == wanted.owned;
    // An object that somebody else owns since we wrote it still names its maker; one that was never ours does not.
    let is_marked = known.is_marked(&marks) || is_others && known.is_marked(&of_others);
    if known.holds(&wanted.data) && is_marked && is_owned {
        return Ok(Step::Nothing);
    }
    let adopts = wanted.owned && controller.is_none();
    let remedy = "name another in outputMap, or delete it";
    let kind = wanted.kind.word();
    if is_others {
        let why = "is there and belongs to another";
        return Err(format!("{kind}/{name} {why}: {remedy}"));
    }
    if adopts && !known.is_output {
        let why = "is there and was not made by a run: it would be deleted with this one";
        return Err(format!("{kind}/{name} {why}; {remedy}, or remove setOwnerReference"));
    }
    if known.immutable {
        return Err(format!("{kind}/{name} is there and immutable: {remedy}"));
    }
    if known.is_kept_version() {
        return Err(format!("{kind}/{name} is there and a version: {remedy}"));
    }
    // Only the version that was judged: the object may have become another's since then.
    let mut object = object(name, &marks, wanted, owner);
    let version = known.version();
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    Ok(Step::Replace(object, version))
}

fn next_version(
    objects: &Objects,
    resource: &Resource,
    job: &str,
    wanted: &Wanted,
    immutable: bool,
) -> Result<(String, Step), Refusal> {
    let base = &wanted.name;
    // Another leader may have kept this run, and a newer one after it.
    if let Some(name) = objects.written_by(&resource.namespace, base, job) {
        return Ok((name.to_string(), Step::Nothing));
    }
    let newest = objects.newest(&resource.namespace, base);
    if let Some((version, known)) = newest {
        let marked = |marks: &Marks| {
            is_subset(&marks.labels, &wanted.labels)
                && agrees(&marks.annotations, &wanted.annotations)
        };
        // What a deleted QuarksJob has left is deleted, too.
        let is_left = known.is_owned_by_another_called(&resource.maker(), &resource.uid);
        let stays = !known.deleting && !is_left;
        if stays && known.holds(&wanted.data) && known.marks().is_some_and(marked) {
            return Ok((naming::version(base, version), Step::Nothing));
        }
    }
    let version = objects.next_version(&resource.namespace, base);
    // Of what fans out the names were not known when the run was begun.
    if let Some(why) = naming::without_room(base, version) {
        return Err(why);
    }
    let name = naming::version(base, version);
    let mut marks =
        Marks { labels: wanted.labels.clone(), annotations: wanted.annotations.clone() };
    let own = |name: &str| resource.dialect.label(name);
    marks.labels.insert(own("secret-kind"), "versionedSecret".to_owned());
    marks.labels.insert(own("secret-version"), version.to_string());
    let source = resource.dialect.source().to_owned();
    marks.annotations.insert(own("source-description"), source);
    marks.annotations.insert(WRITTEN_BY.to_owned(), job.to_owned());
    let mut secret = object(&name, &marks, wanted, Some(resource));
    if immutable {
        secret["immutable"] = json!(true);
    }
    Ok((name, Step::Create(secret)))
}

fn object(name: &str, marks: &Marks, wanted: &Wanted, owner: Option<&Resource>) -> Value {
    let owners: Vec<Value> = owner.map(|it| it.as_owner(false)).into_iter().collect();
    let mut object = json!({
        "metadata": {
            "name": name,
            "labels": marks.labels,
            "annotations": marks.annotations,
            "ownerReferences": owners,
        },
    });
    let data = wanted.data.iter();
    object["data"] = match wanted.kind {
        Kind::ConfigMap => {
            let text = |bytes: &[u8]| json!(String::from_utf8_lossy(bytes));
            data.map(|(key, value)| (key.clone(), text(value))).collect()
        }
        Kind::Secret => {
            object["type"] = json!("Opaque");
            let bytes = data.map(|(key, value)| (key.clone(), json!(ByteString(value.clone()))));
            bytes.collect()
        }
    };
    object
}

/// Whether the labels of a version, except those that each version has of its own, are among the wanted ones.
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

/// Whether no annotation of a version differs from the wanted one. Anybody may have added some.
fn agrees(known: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(name, value)| known.get(name).is_none_or(|known| known == value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_that_is_another_or_wanted_no_more_is_another_version_and_one_more_that_is_wanted_is_none()
     {
        let of = |all: &[(&str, &str)]| -> BTreeMap<String, String> {
            all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let own = [
            ("quarks.cloudfoundry.org/secret-kind", "versionedSecret"),
            ("quarks.cloudfoundry.org/secret-version", "3"),
            ("a", "1"),
        ];
        let extended = [
            ("fissile.cloudfoundry.org/secret-kind", "versionedSecret"),
            ("fissile.cloudfoundry.org/secret-version", "3"),
            ("a", "1"),
        ];
        for (name, known, wanted, is_kept) in [
            ("the same", of(&[("a", "1")]), of(&[("a", "1")]), true),
            ("another value", of(&[("a", "1")]), of(&[("a", "2")]), false),
            ("one more is wanted", of(&[("a", "1")]), of(&[("a", "1"), ("b", "1")]), true),
            ("one is wanted no more", of(&[("a", "1"), ("b", "1")]), of(&[("a", "1")]), false),
            ("those of a version are its own", of(&own), of(&[("a", "1")]), true),
            ("those of an ExtendedJob's", of(&extended), of(&[("a", "1")]), true),
        ] {
            assert_eq!(is_subset(&known, &wanted), is_kept, "{name}");
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
