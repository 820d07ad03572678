//! The Job of a run: the user's template, named, labelled and owned.

use engine::trigger::{Outcome, Run};
use serde_json::{Value, json};

use super::capture::{CONTAINERS, Means, capture_files, capture_prints, containers};
use super::dialect::{Dialect, TRIGGERED};
use super::naming;
use super::noted;
use super::output::OutputMap;
use super::reference::resolve;
use super::resource::Resource;
use super::several::PARALLELISM;
use super::shape;
use crate::runner::agents::AGENT;

/// How long Kubernetes keeps a Job that has ended, where its template says so.
pub(super) const TTL: &str = "ttlSecondsAfterFinished";
/// How often the Job of an ExtendedJob tries again.
const BACKOFF: u32 = 2;

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
    let dialect = resource.dialect;
    let spec = resource.spec();
    let map = OutputMap::of(dialect, &spec);
    if let Some((path, what)) = shape::fault(dialect, &spec) {
        let what = format!("{path}: {what}; mend it, then trigger again");
        return Err(Outcome::failed("TemplateInvalid", what));
    }
    let (mut job, mut metadata) = if dialect.is_of_job(&spec) {
        (spec["template"]["spec"].clone(), spec["template"]["metadata"].clone())
    } else {
        (json!({"backoffLimit": BACKOFF, "template": spec["template"]}), Value::Null)
    };
    // It goes when its run is settled, not before.
    job.as_object_mut().and_then(|job| job.remove(TTL));
    let pod = &mut job["template"]["spec"];
    tell(pod, &run.inputs);
    resolve(pod, newest);
    let name = naming::of_run(&resource.name, &resource.uid, run);
    match dialect {
        Dialect::QuarksJob => capture_files(pod, &name, &map, means),
        Dialect::ExtendedJob => {
            one_of_one(pod);
            capture_prints(pod, &name, &map, means);
        }
    }
    let label = naming::label(&resource.name);
    let (of_job, of_pod) = match dialect {
        Dialect::QuarksJob => {
            let label = json!({dialect.label("qjob-name"): label});
            (label.clone(), label)
        }
        Dialect::ExtendedJob => (
            json!({dialect.label("extendedjob"): "true"}),
            json!({dialect.label("ejob-name"): label}),
        ),
    };
    let triggered = json!({TRIGGERED: dialect.kind()});
    keep_only(&mut metadata, &["labels", "annotations"]);
    merge(&mut metadata, "labels", &of_job);
    merge(&mut metadata, "labels", &triggered);
    merge(&mut metadata, "annotations", &noted::notes(run, &spec, &resource.record));
    // Not what the template says under that name.
    if let Some(all) = metadata["annotations"].as_object_mut() {
        all.remove(noted::STAYS);
        all.extend(resource.ttl.map(|ttl| (noted::STAYS.to_owned(), json!(ttl.to_string()))));
    }
    if let Some(agent) = means.delivery.config_map().filter(|_| !map.is_empty()) {
        merge(&mut metadata, "labels", &json!({AGENT: agent.name()}));
    }
    if job["completions"].as_u64() > Some(1) {
        // How many go on at once may change, see `several`.
        let planned = job["parallelism"].as_u64().unwrap_or(1).to_string();
        merge(&mut metadata, "annotations", &json!({PARALLELISM: planned}));
    }
    metadata["name"] = json!(name);
    metadata["ownerReferences"] = json!([owner(resource, true)]);
    let mut pods = job["template"]["metadata"].take();
    let says = pods["annotations"][CONTAINERS].as_str();
    let containers = json!({CONTAINERS: containers(&job["template"]["spec"], says)});
    merge(&mut pods, "labels", &of_pod);
    merge(&mut pods, "labels", &triggered);
    merge(&mut pods, "annotations", &containers);
    if let Some(pod) = &run.pod {
        merge(&mut pods, "labels", &json!({dialect.label("triggering-pod"): pod.uid}));
    }
    job["template"]["metadata"] = pods;
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}))
}

/// What an ExtendedJob's containers are told: that they are the one of one.
fn one_of_one(pod: &mut Value) {
    let variables = [("AZ_INDEX", "1"), ("REPLICAS", "1"), ("POD_ORDINAL", "0")];
    tell(pod, &variables.map(|(name, value)| json!({"name": name, "value": value})));
}

/// Gives all containers these variables, those of the beginning too: each where one of its name stands, else before all
/// others, for a value may refer only to what stands before it.
fn tell(pod: &mut Value, variables: &[Value]) {
    if variables.is_empty() {
        return;
    }
    for member in ["initContainers", "containers"] {
        for container in pod[member].as_array_mut().into_iter().flatten() {
            if !container["env"].is_array() {
                container["env"] = json!([]);
            }
            let Some(env) = container["env"].as_array_mut() else { continue };
            let named =
                |env: &[Value], told: &Value| env.iter().any(|it| it["name"] == told["name"]);
            let further = variables.iter().filter(|told| !named(env, told)).cloned();
            let further: Vec<Value> = further.collect();
            for known in env.iter_mut() {
                let told = variables.iter().rfind(|told| told["name"] == known["name"]);
                told.into_iter().for_each(|told| known.clone_from(told));
            }
            env.splice(..0, further);
        }
    }
}

/// What refers to it as an owner.
pub(super) fn owner(resource: &Resource, block: bool) -> Value {
    json!({
        "apiVersion": resource.dialect.api_version(),
        "kind": resource.dialect.kind(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_told_where_others_may_refer_to_it() {
        let of = |name: &str, value: &str| json!({"name": name, "value": value});
        let told = [of("TABLE", "users"), of("LIMIT", "5")];
        for (name, env, expected) in [
            ("none", Value::Null, json!([of("TABLE", "users"), of("LIMIT", "5")])),
            (
                "one that another refers to",
                json!([of("A", "a"), of("TABLE", "all"), of("QUERY", "$(TABLE) $(LIMIT)")]),
                json!([
                    of("LIMIT", "5"),
                    of("A", "a"),
                    of("TABLE", "users"),
                    of("QUERY", "$(TABLE) $(LIMIT)"),
                ]),
            ),
            (
                "one that is there twice",
                json!([of("TABLE", "all"), of("LIMIT", "1"), of("TABLE", "none")]),
                json!([of("TABLE", "users"), of("LIMIT", "5"), of("TABLE", "users")]),
            ),
        ] {
            let mut pod = json!({"containers": [{"env": env}], "initContainers": [{"env": env}]});
            tell(&mut pod, &told);
            for member in ["containers", "initContainers"] {
                assert_eq!(pod[member][0]["env"], expected, "{name}, {member}");
            }
        }
    }
}
