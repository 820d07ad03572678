//! The Job of a run: the user's template, named, labelled and owned.

use engine::trigger::{Outcome, Run};
use serde_json::{Value, json};

use super::capture::{CONTAINERS, Means, capture, containers};
use super::definition::{GROUP, KIND, api_version};
use super::naming;
use super::output::OutputMap;
use super::reference::resolve;
use super::resource::Resource;
use super::seen::RUN_ID;
use crate::runner::agents::AGENT;

/// The Job of a run.
///
/// # Errors
/// As the outcome of the run: the template is none.
pub(super) fn of_run(
    resource: &Resource,
    run: &Run,
    means: &Means<'_>,
    newest: impl Fn(&str) -> Option<u64>,
) -> Result<Value, Outcome> {
    let mut spec = resource.spec();
    let map = OutputMap::of(&spec["output"]);
    let template = spec["template"].take();
    let invalid = |path: &str, what: &str| {
        Outcome::failed("TemplateInvalid", format!("{path}: {what}; mend it, then trigger again"))
    };
    let Value::Object(mut job) = template["spec"].clone() else {
        return Err(invalid("spec.template.spec", "has to be a Job's spec"));
    };
    let pod = job.get_mut("template").and_then(|template| template.get_mut("spec"));
    let Some(pod) = pod.filter(|pod| pod["containers"].as_array().is_some_and(|it| !it.is_empty()))
    else {
        return Err(invalid(
            "spec.template.spec.template.spec.containers",
            "has to name a container",
        ));
    };
    resolve(pod, newest);
    let name = naming::job(&resource.name, &resource.uid, run.id);
    capture(pod, &name, &map, means);
    let label = json!({format!("{GROUP}/qjob-name"): naming::label(&resource.name)});
    let mut metadata = template["metadata"].clone();
    keep_only(&mut metadata, &["labels", "annotations"]);
    merge(&mut metadata, "labels", &label);
    merge(&mut metadata, "annotations", &json!({RUN_ID: run.id.to_string()}));
    if let Some(agent) = means.delivery.config_map().filter(|_| !map.is_empty()) {
        merge(&mut metadata, "labels", &json!({AGENT: agent.name()}));
    }
    metadata["name"] = json!(name);
    metadata["ownerReferences"] = json!([owner(resource, true)]);
    let mut of_pod = job["template"]["metadata"].take();
    let says = of_pod["annotations"][CONTAINERS].as_str();
    let containers = json!({CONTAINERS: containers(&job["template"]["spec"], says)});
    merge(&mut of_pod, "labels", &label);
    merge(&mut of_pod, "annotations", &containers);
    job["template"]["metadata"] = of_pod;
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}))
}

/// What refers to a QuarksJob as an owner.
pub(super) fn owner(resource: &Resource, block: bool) -> Value {
    json!({
        "apiVersion": api_version(),
        "kind": KIND,
        "name": &*resource.name,
        "uid": &*resource.uid,
        "controller": true,
        "blockOwnerDeletion": block,
    })
}

fn keep_only(object: &mut Value, members: &[&str]) {
    match object.as_object_mut() {
        Some(object) => object.retain(|name, _| members.contains(&name.as_str())),
        None => *object = json!({}),
    }
}

fn merge(object: &mut Value, member: &str, with: &Value) {
    if !object.is_object() {
        *object = json!({});
    }
    if !object[member].is_object() {
        object[member] = json!({});
    }
    if let (Some(into), Some(with)) = (object[member].as_object_mut(), with.as_object()) {
        into.extend(with.clone());
    }
}
