//! Changes the objects of an instance to what its new revision says, in the requester's name.
//!
//! Changes are made by server-side apply: fields that left the template are removed, and fields that others added stay.
//! Objects are created by a plain POST, because only a POST leaves somebody else's object alone; the fields that it
//! wrote are handed over to apply first.

use std::collections::HashSet;

use futures_util::{StreamExt, stream};
use kube::Client;
use kube::api::{Patch, PatchParams, PropagationPolicy};
use kube::core::Request;
use serde_json::{Value, json};

use super::Controller;
use super::applied::applied;
use super::make::{AT_ONCE, get, get_whole, made, post};
use super::names::{KEEPS, MANAGER, ON_CHANGE};
use super::objects::{Removal, answered, answered_whole, delete, requests};
use super::plan::Planned;
use super::prepare::Prepared;
use super::resource::Instance;
use super::status::Made;
use super::trouble::Trouble;
use crate::calls::CallError;

impl Controller {
    /// Makes an object, or changes it to what is planned.
    pub(super) async fn change_one(
        &self,
        instance: &Instance,
        client: &Client,
        planned: &Planned,
    ) -> Result<Made, Trouble> {
        // Another controller may lead by now, and know of a further change.
        if !self.leads() {
            return Err(Trouble::Old);
        }
        let failed =
            |trouble: Trouble| trouble.of(&format!("unable to change {}", planned.words()));
        let found =
            get_whole(client, &self.kinds, planned).await.map_err(|error| failed(error.into()))?;
        let Some((found, _room)) = found else {
            return self.make_one(instance, client, planned).await;
        };
        let found = self.ours(instance, planned, found).map_err(failed)?;
        let applied = match take_over(client, planned, &found).await {
            Ok(()) => apply(client, planned, &found, false).await,
            Err(error) => Err(error),
        };
        let object = match applied {
            Ok(object) => object,
            Err(error) if replaces(planned) && cannot_be(&error) => {
                let anew = is_taken_anew(client, planned, &found).await;
                let kept = format!("{error}; it is not replaced, for it would not be taken anew");
                anew.map_err(|error| failed(Trouble::from(error).of(&kept)))?;
                remove(client, planned, &found).await.map_err(|error| failed(error.into()))?;
                return Err(failed(Trouble::Passing(format!("it is replaced, for {error}"))));
            }
            Err(error) => return Err(failed(unapplied(error))),
        };
        let made = made(planned, &object);
        let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        self.with(&instance.key, |work| {
            work.changed.insert(made.uid.clone(), version.to_owned());
        });
        Ok(made)
    }

    /// Removes the objects of earlier revisions that are not in this one, if they still belong to the instance.
    pub(super) async fn prune(
        &self,
        instance: &Instance,
        client: &Client,
        prepared: &Prepared,
        made: &[Made],
    ) -> Result<(), Trouble> {
        let redact = |why: String| prepared.redactor.redact(&why).into_owned();
        let targets = self.all_still(instance, client, prepared, made).await?;
        if targets.is_empty() {
            return Ok(());
        }
        if !self.leads() {
            return Err(Trouble::Old);
        }
        match self.remove_all(&instance.key, client, &targets).await {
            Ok(_) => {}
            Err(Trouble::Passing(why)) => return Err(Trouble::Passing(redact(why))),
            Err(trouble) => return Err(trouble),
        }
        // The instance stays: an object that somebody wrote in the meantime, or that may not be removed, does not go
        // with it.
        let left = self.all_still(instance, client, prepared, made).await?;
        let words: Vec<String> = left.iter().map(|it| format!("{} {}", it.kind, it.name)).collect();
        let left: HashSet<&str> = left.iter().map(|it| it.uid.as_str()).collect();
        self.with(&instance.key, |work| {
            work.gone.retain(|uid| !left.contains(uid.as_str()));
        });
        match words.is_empty() {
            true => Ok(()),
            false => Err(Trouble::Passing(format!(
                "unable to delete {}, which left the template: the requester may not, or somebody wrote it just now",
                words.join(", ")
            ))),
        }
    }

    /// All objects of earlier revisions that exist and are not being removed.
    async fn all_still(
        &self,
        instance: &Instance,
        client: &Client,
        prepared: &Prepared,
        made: &[Made],
    ) -> Result<Vec<Made>, Trouble> {
        let formers = prepared.kept.record.before.iter();
        let looks: Vec<_> = formers.map(|it| self.still(instance, client, it)).collect();
        let found: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        let made: HashSet<&str> = made.iter().map(|it| it.uid.as_str()).collect();
        let mut all = Vec::new();
        for found in found {
            // One object may be recorded twice: by two versions of its kind, or two groups.
            all.extend(found?.filter(|it| !made.contains(it.uid.as_str())));
        }
        Ok(all)
    }

    /// An object of an earlier revision, if it exists, belongs to the instance, is not being removed, and is not
    /// annotated to stay.
    async fn still(
        &self,
        instance: &Instance,
        client: &Client,
        former: &super::record::Former,
    ) -> Result<Option<Made>, Trouble> {
        let Some(planned) = self.former(former).await? else { return Ok(None) };
        let found = get(client, &self.kinds, &planned).await;
        let found = found.map_err(|error| Trouble::from(error).of(&planned.words()))?;
        let found = found.filter(|it| planned.is(&instance.key, it, &self.seal));
        let found = found.filter(|it| it["metadata"]["annotations"][KEEPS] != "false");
        // An object that is being removed needs nothing more.
        let found = found.filter(|it| it["metadata"]["deletionTimestamp"].is_null());
        Ok(found.map(|found| made(&planned, &found)))
    }
}

/// Whether an object that cannot be changed as planned is to be made anew.
pub(super) fn replaces(planned: &Planned) -> bool {
    planned.object["metadata"]["annotations"][ON_CHANGE] == "replace"
}

/// Checks, by a dry run, that the API server would accept the planned object as a new one. That the present object
/// cannot be changed may be the fault of the planned one alone, and then nothing would be left. The API server finds
/// such faults before it sees that the name is taken; with any other answer the present object stays.
pub(super) async fn is_taken_anew(
    client: &Client,
    planned: &Planned,
    found: &Value,
) -> Result<(), CallError> {
    let anew = Planned { object: freed(&planned.object, found), ..planned.clone() };
    match post(client, &anew, true).await {
        Ok(_) | Err(CallError::Exists) => Ok(()),
        Err(error) if is_of_dry_runs(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether only the dry run is refused, because a webhook that is called has side effects: that says nothing about the
/// object.
fn is_of_dry_runs(error: &CallError) -> bool {
    matches!(error, CallError::Invalid(said) if said.contains("does not support dry run"))
}

/// The object without what the present one holds and frees when it is removed: node ports of a Service, and being the
/// default PriorityClass, of which there is one.
fn freed(object: &Value, found: &Value) -> Value {
    let mut freed = object.clone();
    let group = object["apiVersion"].as_str().and_then(|it| it.split_once('/')).map(|it| it.0);
    if group == Some("scheduling.k8s.io")
        && object["kind"] == "PriorityClass"
        && found["globalDefault"] == true
        && let Some(freed) = freed.as_object_mut()
    {
        freed.remove("globalDefault");
    }
    if (&object["apiVersion"], &object["kind"]) != (&json!("v1"), &json!("Service")) {
        return freed;
    }
    let held = &found["spec"];
    let ports = held["ports"].as_array().into_iter().flatten();
    let ports: Vec<&Value> = ports.map(|port| &port["nodePort"]).collect();
    let free = |of: &mut Value, member: &str, held: &[&Value]| {
        let Some(of) = of.as_object_mut() else { return };
        if of.get(member).is_some_and(|value| held.contains(&value)) {
            of.remove(member);
        }
    };
    if let Some(spec) = freed.get_mut("spec") {
        free(spec, "healthCheckNodePort", &[&held["healthCheckNodePort"]]);
        let entries = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
        entries.for_each(|port| free(port, "nodePort", &ports));
    }
    freed
}

/// Applies a planned object and returns the result, or, with `is_dry`, what it would be; only if the present object
/// still is `found`.
pub(super) async fn apply(
    client: &Client,
    planned: &Planned,
    found: &Value,
    is_dry: bool,
) -> Result<Value, CallError> {
    let params = PatchParams {
        dry_run: is_dry,
        force: true,
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let body = applied(&planned.object, &found["metadata"]["uid"]);
    let request = at(planned).patch(&planned.name, &params, &Patch::Apply(&body));
    match is_dry {
        true => answered_whole(client, request).await,
        // The change is made, whatever is left out of the answer.
        false => answered(client, request).await,
    }
}

fn at(planned: &Planned) -> Request {
    requests(&planned.served, planned.namespace.as_deref())
}

/// Makes the fields that our POST wrote count as applied: otherwise no apply would ever remove one of them.
async fn take_over(client: &Client, planned: &Planned, found: &Value) -> Result<(), CallError> {
    let mut fields = found["metadata"]["managedFields"].clone();
    let entries = fields.as_array_mut().into_iter().flatten();
    let ours: Vec<&mut Value> = entries.filter(|it| is_of_post(it)).collect();
    if ours.is_empty() {
        return Ok(());
    }
    ours.into_iter().for_each(|it| it["operation"] = json!("Apply"));
    let metadata = &found["metadata"];
    let patch = Patch::Merge(json!({"metadata": {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "managedFields": fields,
    }}));
    let request = at(planned).patch(&planned.name, &PatchParams::default(), &patch);
    answered(client, request).await.map(drop)
}

/// Whether an entry of `managedFields` lists the fields that our POST wrote.
pub(super) fn is_of_post(entry: &Value) -> bool {
    entry["manager"] == MANAGER && entry["operation"] == "Update" && entry["subresource"].is_null()
}

/// Removes an object that is to be made anew.
async fn remove(client: &Client, planned: &Planned, found: &Value) -> Result<(), CallError> {
    let removal = Removal {
        name: &planned.name,
        uid: found["metadata"]["uid"].as_str().unwrap_or_default(),
        version: None,
        propagation: PropagationPolicy::Background,
    };
    match delete(client, &at(planned), removal).await {
        Ok(_) | Err(CallError::NotFound | CallError::Conflict) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The trouble for a change that the API server did not accept.
pub(super) fn unapplied(error: CallError) -> Trouble {
    match error {
        CallError::Failed(said) if is_of_shape(&said) => Trouble::Final(said),
        CallError::Invalid(said) if said.contains("immutable") => Trouble::Final(format!(
            "{said}: to have it made anew annotate it in the template with {ON_CHANGE}: replace"
        )),
        error => error.into(),
    }
}

/// Whether the error means that the present object can never be changed as planned.
pub(super) fn cannot_be(error: &CallError) -> bool {
    match error {
        CallError::Invalid(_) => true,
        CallError::Failed(said) => is_of_shape(said),
        _ => false,
    }
}

/// Whether a message says that apply refused the shape of an object: a field that its kind does not have, or a list
/// with an entry twice, also where the present object has them. The API server reports that as a server failure.
pub(super) fn is_of_shape(said: &str) -> bool {
    ["typed patch object", "failed to convert new object", "duplicate entries for key"]
        .iter()
        .any(|words| said.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_with_an_object_is_in_nobodys_way() {
        let service = |ports: Value| json!({"apiVersion": "v1", "kind": "Service", "spec": ports});
        let found = service(json!({
            "healthCheckNodePort": 30001, "ports": [{"port": 80, "nodePort": 30080}, {"port": 81}],
        }));
        for (name, spec, expected) in [
            (
                "its own ports, wherever they are",
                json!({"healthCheckNodePort": 30001, "ports": [{"port": 1}, {"port": 2, "nodePort": 30080}]}),
                json!({"ports": [{"port": 1}, {"port": 2}]}),
            ),
            (
                "those of another",
                json!({"healthCheckNodePort": 30002, "ports": [{"nodePort": 30081}]}),
                json!({"healthCheckNodePort": 30002, "ports": [{"nodePort": 30081}]}),
            ),
            ("nonsense", json!({"ports": ["nodePort"]}), json!({"ports": ["nodePort"]})),
            ("none", json!(null), json!(null)),
        ] {
            assert_eq!(freed(&service(spec), &found), service(expected), "{name}");
        }
        let other =
            json!({"apiVersion": "example.org/v1", "kind": "Service", "spec": found["spec"]});
        assert_eq!(freed(&other, &found), other, "another kind of that name");
        let class = |group: &str, is_default: bool| {
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "PriorityClass", "value": 1,
                "globalDefault": is_default,
            })
        };
        let ours = "scheduling.k8s.io";
        for (name, group, was_default, is_freed) in [
            ("it is the default itself", ours, true, true),
            ("another may be", ours, false, false),
            ("another kind of that name", "example.org", true, false),
        ] {
            let freed = freed(&class(group, true), &class(group, was_default));
            assert_eq!(freed.get("globalDefault").is_none(), is_freed, "{name}");
        }
    }

    #[test]
    fn what_is_said_of_dry_runs_says_nothing_of_an_object() {
        let webhook = "admission webhook \"a.example.org\" does not support dry run";
        for (name, error, expected) in [
            ("a webhook with side effects", CallError::Invalid(webhook.to_owned()), true),
            ("a fault", CallError::Invalid("spec: Invalid value".to_owned()), false),
            ("a right that is missing", CallError::Forbidden(webhook.to_owned()), false),
        ] {
            assert_eq!(is_of_dry_runs(&error), expected, "{name}");
        }
    }
}
