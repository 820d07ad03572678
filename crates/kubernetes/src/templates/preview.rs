//! Previews what a change of an instance would do to its objects: nothing is written, and all requests are made in the
//! name of whoever asks.
//!
//! ```text
//! template, values ──▶ plan ──▶ is it there? ── no ──▶ POST, dry
//!                                            ── yes ─▶ PATCH apply, dry ──▶ what it is, what it would be
//! earlier revisions, status ──▶ what is not planned any more, and is there ──▶ it would go
//! ```

use std::collections::HashMap;

use engine::redact::Redactor;
use futures_util::{StreamExt, TryStreamExt, stream};
use kube::Client;
use kube::api::DynamicObject;
use ring::hmac;
use serde_json::{Value, json};
use template::Zeros;

use super::applied::{ITS_OWN, applied};
use super::change::{apply, cannot_be, is_of_post, is_taken_anew, replaces, unapplied};
use super::kinds::Kinds;
use super::make::{AT_ONCE, get, get_whole, post};
use super::names::{KEEPS, MARK, OWNER};
use super::ours::is_owned;
use super::plan::Planned;
use super::prepare::{place_of, plan_all, planned_of, translated, unplanned};
use super::record::{Former, Revision, Values};
use super::resource::Key;
use super::status::Made;
use super::trouble::Trouble;
use super::values::{is_generated, secrets, stay, template, unprocessed};
use crate::calls::CallError;

/// A desired state of an instance: its template and parameter values.
#[derive(Debug, Clone, Copy)]
pub struct Desired<'a> {
    /// The template, as `spec.template` has it.
    pub template: &'a Value,
    /// Values of parameters; those that the template does not declare are ignored.
    pub values: &'a Values,
}

/// The preview of a change.
#[derive(Debug)]
pub struct Preview {
    /// The objects: those that are planned, in the template's order, then those that would be removed.
    pub objects: Vec<Previewed>,
    /// Parameters whose values would be generated: objects that contain them differ from what they would be.
    pub generated: Vec<String>,
    /// Hides the values, present and future, that are not public.
    pub redactor: Redactor,
}

/// An object, and what would become of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Previewed {
    /// The `apiVersion` of the object.
    pub api_version: String,
    /// The kind of the object.
    pub kind: String,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// What would happen to the object.
    pub fate: Fate,
}

/// What would happen to an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Fate {
    /// The object does not exist, and would be made.
    Made,
    /// The object as it is, and as it would be; they may be equal. Without metadata that only the API server writes,
    /// and without the status.
    Changed(Box<[Value; 2]>),
    /// The object cannot be changed, and is annotated to be made anew in that case; with the reason.
    Replaced(String),
    /// The object left the template, and would be removed.
    Removed,
    /// An object of that name exists and does not belong to this instance: it would stay as it is.
    InTheWay,
    /// The API server would refuse the object, or a request for it; with the API server's reason.
    Refused(String),
}

/// Why there is no preview.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The template cannot be processed.
    #[error("{0}")]
    Template(String),
    /// The API server refuses the objects, or does not let the caller read them.
    #[error("{0}")]
    Refused(String),
    /// The API server did not answer, or failed in a way that may pass.
    #[error("{0}")]
    Unanswered(String),
}

/// Previews what would become of an instance if `order` was ordered. `recorded` is the revision that is in force. Costs
/// two calls for each object; the caller needs the rights to get, create and patch them.
///
/// # Errors
/// If the template has faults, or the API server does not serve a kind of it, or does not answer. No message contains a
/// parameter value.
pub async fn preview(
    client: &Client,
    instance: &DynamicObject,
    recorded: &Revision,
    order: Desired<'_>,
) -> Result<Preview, PreviewError> {
    let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
    let metadata = &instance.metadata;
    let of = Key {
        namespace: text(&metadata.namespace),
        name: text(&metadata.name),
        uid: text(&metadata.uid),
    };
    let mut template =
        template(&json!({"template": order.template})).map_err(PreviewError::Template)?;
    let before = spec_of(&instance.data, recorded);
    let defaults = [order.template, &before.unwrap_or(&Value::Null)["template"]];
    let defaults = defaults.into_iter().filter_map(|it| it["parameters"].as_array()).flatten();
    let public: Vec<String> =
        defaults.filter_map(|it| it["value"].as_str()).map(str::to_owned).collect();
    template.set_all(order.values);
    let was = || before.map(|before| before["template"].clone());
    stay(&mut template, order.values, &Values::new(), Some(&recorded.record), was);
    let generated = template.parameters.iter().filter(|it| is_generated(it));
    let generated = generated.map(|it| it.name.clone()).collect();
    let known = [order.values, &recorded.record.parameters];
    let hides = |names: &[&str]| {
        let mut hidden = secrets(known[0], &public, names);
        hidden.extend(secrets(known[1], &public, names));
        Redactor::new(&hidden)
    };
    let name = template.name().to_owned();
    let processed = template
        .process(&mut Zeros)
        .map_err(|faults| hides(&[]).redact(&unprocessed(&name, &faults)).into_owned())
        .map_err(PreviewError::Template)?;
    let look = Look { client, kinds: Kinds::of(client.clone()), of, seal: no_seal() };
    // Translated as the controller did it last, whose settings the caller need not know.
    let means = recorded.record.means();
    let objects = match translated(&look.of, processed.objects, means.as_ref()) {
        Ok(objects) => look.objects(&instance.data, recorded, objects).await,
        Err(trouble) => Err(trouble),
    };
    let (objects, plan) = objects.map_err(|trouble| failed(trouble, &hides(&[])))?;
    let names: Vec<&str> = plan.iter().flat_map(Planned::names).collect();
    Ok(Preview { objects, generated, redactor: hides(&names) })
}

/// The spec of the recorded revision; where it was too large to be recorded, the present one, if it is the same.
fn spec_of<'a>(instance: &'a Value, recorded: &'a Revision) -> Option<&'a Value> {
    let still = || Some(&instance["spec"]).filter(|spec| recorded.record.is_of_spec(spec));
    recorded.spec.as_ref().or_else(still)
}

/// A stand-in for the sealing key, which the caller cannot read: nothing that is sealed with it is written.
fn no_seal() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, b"")
}

fn failed(trouble: Trouble, hides: &Redactor) -> PreviewError {
    let redact = |why: String| hides.redact(&why).into_owned();
    match trouble {
        Trouble::Passing(why) => PreviewError::Unanswered(redact(why)),
        Trouble::Doubtful(why) | Trouble::Final(why) => PreviewError::Refused(redact(why)),
        Trouble::Old => PreviewError::Unanswered("it was written in the meantime".to_owned()),
    }
}

/// The context of a preview.
struct Look<'a> {
    client: &'a Client,
    kinds: Kinds,
    of: Key,
    seal: hmac::Key,
}

impl Look<'_> {
    async fn objects(
        &self,
        instance: &Value,
        recorded: &Revision,
        objects: Vec<Value>,
    ) -> Result<(Vec<Previewed>, Vec<Planned>), Trouble> {
        let plan = plan_all(&self.kinds, &self.of, objects, &self.seal).await?;
        let before = self.before(instance, recorded).await?;
        let makes_room = plan.iter().any(|it| it.rank == 0);
        let was: HashMap<_, &Planned> = before.iter().map(|it| (it.identity(), it)).collect();
        let looks = plan.iter().map(|planned| {
            let was = was.get(&planned.identity()).copied();
            self.planned(planned, was, makes_room)
        });
        let looks: Vec<_> = looks.collect();
        let mut found: Vec<Previewed> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        let gone = self.formers(instance, recorded, &before, &plan).await?;
        let looks: Vec<_> = gone.iter().map(|former| self.former(former)).collect();
        let gone: Vec<Option<Previewed>> =
            stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        found.extend(gone.into_iter().flatten());
        Ok((found, plan))
    }

    /// The planned objects of the revision in force.
    async fn before(&self, instance: &Value, recorded: &Revision) -> Result<Vec<Planned>, Trouble> {
        let Some(spec) = spec_of(instance, recorded) else { return Ok(Vec::new()) };
        planned_of(&self.kinds, &self.of, spec, &recorded.record, &self.seal).await
    }

    /// The objects that may have been made before, and are not planned any more.
    async fn formers(
        &self,
        instance: &Value,
        recorded: &Revision,
        before: &[Planned],
        plan: &[Planned],
    ) -> Result<Vec<Planned>, Trouble> {
        let said = instance["status"]["objects"].as_array().into_iter().flatten();
        let said = said.filter_map(Made::of).map(Former::from);
        let all = recorded.record.before.iter().cloned();
        let formers = unplanned(all.chain(before.iter().map(Former::from)).chain(said), plan);
        let mut places = Vec::new();
        for former in &formers {
            places.extend(place_of(&self.kinds, former).await?);
        }
        Ok(places)
    }

    /// Previews a planned object. `was`: the object as the revision in force plans it. `makes_room`: whether the plan
    /// makes namespaces or kinds before it.
    async fn planned(
        &self,
        planned: &Planned,
        was: Option<&Planned>,
        makes_room: bool,
    ) -> Result<Previewed, Trouble> {
        let fate = match get_whole(self.client, &self.kinds, planned).await {
            Ok(Some((found, _room))) => self.fate(planned, was, found).await,
            Ok(None) => match post(self.client, planned, true).await {
                Ok(_) | Err(CallError::Exists) => Ok(Fate::Made),
                Err(CallError::NotFound) if makes_room => Ok(Fate::Made),
                Err(error) => refused(error),
            },
            Err(error) => refused(error),
        };
        Ok(previewed(planned, fate.map_err(|trouble| trouble.of(&planned.words()))?))
    }

    /// What would happen to an object that exists.
    async fn fate(
        &self,
        planned: &Planned,
        was: Option<&Planned>,
        found: Value,
    ) -> Result<Fate, Trouble> {
        if !is_ours(planned, &self.of, &found) {
            return Ok(Fate::InTheWay);
        }
        if !found["metadata"]["deletionTimestamp"].is_null() {
            return Ok(Fate::Refused("it is being removed".to_owned()));
        }
        let planned = marked(planned, &found);
        let mut would_be = match apply(self.client, &planned, &found, true).await {
            Ok(would_be) => would_be,
            Err(error) if replaces(&planned) && cannot_be(&error) => {
                return match is_taken_anew(self.client, &planned, &found).await {
                    Ok(()) => Ok(Fate::Replaced(error.to_string())),
                    Err(error) => refused(error),
                };
            }
            Err(error) => return refused(error),
        };
        let fields = found["metadata"]["managedFields"].as_array();
        let is_untouched = fields.is_some_and(|fields| fields.iter().any(is_of_post));
        if let Some(was) = was.filter(|_| is_untouched) {
            let uid = &found["metadata"]["uid"];
            let was = marked(was, &found);
            without(&mut would_be, &applied(&was.object, uid), &applied(&planned.object, uid));
        }
        Ok(Fate::Changed(Box::new([found, would_be].map(without_its_own))))
    }

    /// Previews an object that left the template, if it exists, belongs to the instance, and is not annotated to stay.
    async fn former(&self, former: &Planned) -> Result<Option<Previewed>, Trouble> {
        let found = match get(self.client, &self.kinds, former).await {
            Ok(found) => found,
            Err(error) => return Ok(Some(previewed(former, refused(error)?))),
        };
        let found = found.filter(|it| is_ours(former, &self.of, it));
        let found = found.filter(|it| it["metadata"]["annotations"][KEEPS] != "false");
        Ok(found.map(|_| previewed(former, Fate::Removed)))
    }
}

fn previewed(planned: &Planned, fate: Fate) -> Previewed {
    let resource = &planned.served.resource;
    Previewed {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: planned.namespace.clone(),
        name: planned.name.clone(),
        fate,
    }
}

/// The API server's refusal of one object; an error where it gave no answer.
fn refused(error: CallError) -> Result<Fate, Trouble> {
    match error {
        CallError::NoAnswer(_) | CallError::Overloaded(_) => Err(error.into()),
        error => unapplied(error).reason().map(Fate::Refused).ok_or(Trouble::Old),
    }
}

/// Whether an object belongs to the instance, as far as that can be told without the sealing key.
fn is_ours(planned: &Planned, of: &Key, found: &Value) -> bool {
    let metadata = &found["metadata"];
    metadata["labels"][OWNER] == *of.uid
        && match planned.namespace.as_deref() == Some(&*of.namespace) {
            true => is_owned(of, found),
            false => metadata["annotations"][MARK].is_string(),
        }
}

/// The planned object with the mark of the present one: it is sealed with the controller's key, and does not change.
fn marked(planned: &Planned, found: &Value) -> Planned {
    let mut planned = planned.clone();
    if let Some(mark) = planned.object.pointer_mut("/metadata/annotations")
        && let Some(mark) = mark.get_mut(MARK)
    {
        *mark = found["metadata"]["annotations"][MARK].clone();
    }
    planned
}

/// Removes the fields that left the template from the result of a dry run, which still shows them as long as they count
/// as written by POST. Entries of lists are told apart by their names; unnamed ones stay.
fn without(would_be: &mut Value, before: &Value, now: &Value) {
    match (would_be, before, now) {
        (Value::Object(would_be), Value::Object(before), Value::Object(now)) => {
            for (key, before) in before {
                match (now.get(key), would_be.get_mut(key)) {
                    (None, _) => drop(would_be.remove(key)),
                    (Some(now), Some(would_be)) => without(would_be, before, now),
                    (Some(_), None) => {}
                }
            }
        }
        (Value::Array(would_be), Value::Array(before), Value::Array(now)) => {
            let named = |list: &[Value], name: &Value| {
                list.iter().find(|it| it["name"].is_string() && it["name"] == *name).cloned()
            };
            would_be.retain(|it| {
                named(before, &it["name"]).is_none() || named(now, &it["name"]).is_some()
            });
            for it in would_be {
                let pair = (named(before, &it["name"]), named(now, &it["name"]));
                if let (Some(before), Some(now)) = pair {
                    without(it, &before, &now);
                }
            }
        }
        _ => {}
    }
}

/// An object without the metadata that only the API server writes, and without its status.
fn without_its_own(mut object: Value) -> Value {
    if let Some(root) = object.as_object_mut() {
        root.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        ITS_OWN.iter().for_each(|member| drop(metadata.remove(*member)));
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_template_says_no_more_is_not_in_what_would_be() {
        for (case, would_be, before, now, expected) in [
            (
                "a member that went, beside one of somebody else",
                json!({"data": {"a": "1", "b": "1", "theirs": "1"}}),
                json!({"data": {"a": "1", "b": "1"}}),
                json!({"data": {"a": "1"}}),
                json!({"data": {"a": "1", "theirs": "1"}}),
            ),
            (
                "a whole map",
                json!({"data": {"a": "1"}, "kind": "x"}),
                json!({"data": {"a": "1"}, "kind": "x"}),
                json!({"kind": "x"}),
                json!({"kind": "x"}),
            ),
            (
                "entries with names",
                json!({"env": [{"name": "A"}, {"name": "B", "value": "1"}, {"name": "T"}]}),
                json!({"env": [{"name": "A"}, {"name": "B", "value": "1"}]}),
                json!({"env": [{"name": "B"}]}),
                json!({"env": [{"name": "B"}, {"name": "T"}]}),
            ),
            (
                "entries without",
                json!({"args": ["a", "b"]}),
                json!({"args": ["a", "c"]}),
                json!({"args": ["a"]}),
                json!({"args": ["a", "b"]}),
            ),
            ("nothing", json!({"a": 1}), json!({}), json!({"b": 1}), json!({"a": 1})),
            (
                "shapes that differ",
                json!({"a": 1}),
                json!({"a": {}}),
                json!({"a": []}),
                json!({"a": 1}),
            ),
        ] {
            let mut found = would_be;
            without(&mut found, &before, &now);
            assert_eq!(found, expected, "{case}");
        }
    }

    #[test]
    fn what_the_api_server_writes_is_no_difference() {
        let object = json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "managedFields": []},
            "data": {"a": "1"}, "status": {"ready": true},
        });
        let expected = json!({"metadata": {"name": "a"}, "data": {"a": "1"}});
        assert_eq!(without_its_own(object), expected);
    }
}
