//! The Job of a run: the user's template, named, labelled and owned.

use std::collections::{HashMap, HashSet};

use engine::trigger::{Outcome, Run, Trigger};
use serde_json::{Value, json};

use crate::names;
use crate::quarks::api::dialect::{Dialect, TRIGGERED};
use crate::quarks::api::history::INVALID;
use crate::quarks::api::output_map::OutputMap;
use crate::quarks::api::pod::{CONTAINERS, SIDECAR};
use crate::quarks::api::reference::resolve;
use crate::quarks::api::resource::{Resource, TTL};
use crate::quarks::api::shape;
use crate::quarks::api::{naming, noted};
use crate::quarks::output::capture::{
    CaptureContext, MAX_VARIABLE_BYTES, capture_files, capture_prints, containers, overtold,
};
use crate::quarks::state::wants::PARALLELISM;
use crate::runner::agents::AGENT;

/// The prefix of our annotations.
const OURS: &str = "manciple.dev/";
/// How often the Job of an ExtendedJob tries again (`backoffLimit`).
const BACKOFF: u32 = 2;

/// What to do about a template that makes no Job.
pub(crate) fn remedy(of: Trigger) -> &'static str {
    match of {
        Trigger::Once => "it runs as soon as its template is mended",
        _ => "mend it, then trigger again",
    }
}

/// The manifest of the Job of a run; `newest` has the newest version of a versioned Secret.
///
/// # Errors
/// The outcome of the run, if its template makes no Job.
pub(crate) fn of_run(
    resource: &Resource,
    run: &Run,
    means: &CaptureContext<'_>,
    newest: impl Fn(&str) -> Option<u64>,
) -> Result<Value, Outcome> {
    let dialect = resource.dialect;
    let spec = resource.spec();
    let map = OutputMap::of(dialect, &spec);
    let invalid = |path: &str, what: &str| {
        Outcome::failed(INVALID, format!("{path}: {what}; {}", remedy(run.trigger)))
    };
    if let Some((path, what)) = shape::fault(dialect, &spec) {
        return Err(invalid(&path, what));
    }
    let mut job = match dialect.is_of_job(&spec) {
        true => spec["template"]["spec"].clone(),
        false => json!({"backoffLimit": BACKOFF, "template": spec["template"]}),
    };
    // The Job's time to live is set once its run is settled, not before.
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
    if let Some((path, what)) = too_many_files(pod) {
        return Err(invalid(&path, &what));
    }
    let mut metadata = metadata_of_job(resource, run, &spec);
    if let Some(agent) = means.delivery.config_map().filter(|_| !map.is_empty()) {
        merge(&mut metadata, "labels", &json!({AGENT: agent.name()}));
    }
    if job["completions"].as_u64() > Some(1) {
        // How many go on at once may change, see `Wants::more`.
        let planned = job["parallelism"].as_u64().unwrap_or(1).to_string();
        merge(&mut metadata, "annotations", &json!({PARALLELISM: planned}));
    }
    job["template"]["metadata"] = metadata_of_pods(resource, run, &job["template"]);
    Ok(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job}))
}

/// The fault of a pod that keeps more files than an agent can be told of: the path, and what to do.
fn too_many_files(pod: &Value) -> Option<(String, String)> {
    let (container, bytes) = overtold(pod)?;
    let path = match container {
        SIDECAR => "spec.output.outputMap".to_owned(),
        name => format!("spec.output.outputMap.{name}"),
    };
    let what = format!(
        "the names of the files make a variable of {bytes} bytes, of {MAX_VARIABLE_BYTES}: have fewer, or shorter ones"
    );
    Some((path, what))
}

/// The metadata of the Job of a run: the labels and annotations of the template, if it is a Job's, and our own, its
/// name, and its owner.
fn metadata_of_job(resource: &Resource, run: &Run, spec: &Value) -> Value {
    let dialect = resource.dialect;
    let mut metadata = match dialect.is_of_job(spec) {
        true => spec["template"]["metadata"].clone(),
        false => Value::Null,
    };
    let of_kind = match dialect {
        Dialect::QuarksJob => {
            json!({dialect.label("qjob-name"): naming::label(&resource.name)})
        }
        Dialect::ExtendedJob => json!({dialect.label("extendedjob"): "true"}),
    };
    keep_only(&mut metadata, &["labels", "annotations"]);
    let (reloader, off) = names::RELOADER;
    if metadata["annotations"][reloader].is_null() {
        merge(&mut metadata, "annotations", &json!({reloader: off}));
    }
    // A template may have annotations of ours, too: one that was copied from a Job.
    if let Some(all) = metadata["annotations"].as_object_mut() {
        all.retain(|name, _| !name.starts_with(OURS));
    }
    merge(&mut metadata, "labels", &of_kind);
    merge(&mut metadata, "labels", &json!({TRIGGERED: dialect.kind()}));
    merge(&mut metadata, "annotations", &noted::notes(run, spec, &resource.record));
    let stays = resource.ttl.map(|ttl| json!({noted::STAYS: ttl.to_string()}));
    stays.iter().for_each(|stays| merge(&mut metadata, "annotations", stays));
    metadata["name"] = json!(naming::of_run(&resource.name, &resource.uid, run));
    metadata["ownerReferences"] = json!([resource.as_owner(true)]);
    metadata
}

/// The metadata of the pods of a run: that of their template, the labels of the QuarksJob, and the containers that
/// count.
fn metadata_of_pods(resource: &Resource, run: &Run, template: &Value) -> Value {
    let dialect = resource.dialect;
    let mut metadata = template["metadata"].clone();
    let says = metadata["annotations"][CONTAINERS].as_str();
    let containers = json!({CONTAINERS: containers(&template["spec"], says)});
    let of_kind = json!({dialect.names_pods(): naming::label(&resource.name)});
    merge(&mut metadata, "labels", &of_kind);
    merge(&mut metadata, "labels", &json!({TRIGGERED: dialect.kind()}));
    merge(&mut metadata, "annotations", &containers);
    if let Some(pod) = &run.pod {
        merge(&mut metadata, "labels", &json!({dialect.label("triggering-pod"): pod.uid}));
    }
    metadata
}

/// Adds the variables by which an ExtendedJob's containers know that they are number one of one.
fn one_of_one(pod: &mut Value) {
    let variables = [("AZ_INDEX", "1"), ("REPLICAS", "1"), ("POD_ORDINAL", "0")];
    tell(pod, &variables.map(|(name, value)| json!({"name": name, "value": value})));
}

/// Sets these variables in all containers, init containers too: in the place of those of the same name, else before all
/// others, for a value may refer only to what stands before it. Of several of one name the last counts.
fn tell(pod: &mut Value, variables: &[Value]) {
    if variables.is_empty() {
        return;
    }
    let named: HashMap<String, &Value> = variables.iter().map(|it| (name_of(it), it)).collect();
    for member in ["initContainers", "containers"] {
        for container in pod[member].as_array_mut().into_iter().flatten() {
            if !container["env"].is_array() {
                container["env"] = json!([]);
            }
            let Some(env) = container["env"].as_array_mut() else { continue };
            let known: HashSet<String> = env.iter().map(name_of).collect();
            let further = variables.iter().filter(|told| !known.contains(&name_of(told))).cloned();
            let further: Vec<Value> = further.collect();
            for variable in env.iter_mut() {
                if let Some(told) = named.get(&name_of(variable)) {
                    variable.clone_from(told);
                }
            }
            env.splice(..0, further);
        }
    }
}

/// The name of a variable as JSON, so that any value can be compared.
fn name_of(variable: &Value) -> String {
    variable["name"].to_string()
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
    use agent::{GATHERING_VARIABLE, KeyPair};
    use engine::trigger::{PodRef, Trigger};

    use super::*;
    use crate::runner::Delivery;

    /// One of this kind, with this template.
    fn resource(dialect: Dialect, template: &Value) -> Resource {
        let object = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {"template": template},
        });
        Resource::of(dialect, &serde_json::from_value(object).unwrap()).unwrap()
    }

    fn run(pod: Option<&str>) -> Run {
        let pod = pod.map(|uid| PodRef { name: "p".to_owned(), uid: uid.to_owned() });
        Run { id: 3, trigger: Trigger::Now, at: String::new(), inputs: Vec::new(), pod }
    }

    #[test]
    fn a_job_says_whose_it_is_beside_what_the_template_of_a_job_says() {
        const QUARKS: &str = "quarks.cloudfoundry.org/qjob-name";
        const EXTENDED: &str = "fissile.cloudfoundry.org/extendedjob";
        let own = json!({
            "name": "own", "labels": {"l": "v"}, "annotations": {
                noted::STAYS: "7", "manciple.dev/inherited": "true", "manciple.dev/found": "{}",
                "manciple.dev/proof": "00", "theirs": "1",
            },
        });
        let pod = json!({"containers": []});
        let job = json!({"template": {"spec": pod}});
        let mut staying = job.clone();
        staying[TTL] = json!(60);
        let triggered =
            |kind: &str, label: &str, value: &str| json!({TRIGGERED: kind, label: value});
        let of_quarks = triggered("QuarksJob", QUARKS, "a");
        let of_extended = triggered("ExtendedJob", EXTENDED, "true");
        let with_own = |labels: &Value| {
            let mut labels = labels.clone();
            labels["l"] = json!("v");
            labels
        };
        for (name, dialect, template, labels, stays) in [
            ("a Job's", Dialect::QuarksJob, json!({"spec": job}), of_quarks.clone(), None),
            (
                "with labels, and an annotation of ours",
                Dialect::QuarksJob,
                json!({"metadata": own, "spec": job}),
                with_own(&of_quarks),
                None,
            ),
            (
                "of one that stays",
                Dialect::QuarksJob,
                json!({"metadata": own, "spec": staying}),
                with_own(&of_quarks),
                Some("60"),
            ),
            (
                "a pod's: its labels are the pod's",
                Dialect::ExtendedJob,
                json!({"metadata": own, "spec": pod}),
                of_extended.clone(),
                None,
            ),
            (
                "a Job's, of the last releases",
                Dialect::ExtendedJob,
                json!({"metadata": own, "spec": job}),
                with_own(&of_extended),
                None,
            ),
        ] {
            let resource = resource(dialect, &template);
            let metadata = metadata_of_job(&resource, &run(None), &resource.spec());
            assert_eq!(metadata["labels"], labels, "{name}");
            assert_eq!(metadata["annotations"][noted::STAYS].as_str(), stays, "{name}");
            let copied = ["inherited", "found", "proof"].map(|it| format!("manciple.dev/{it}"));
            let is_left = |name: &String| !metadata["annotations"][name.as_str()].is_null();
            assert!(!copied.iter().any(is_left), "{name}: {metadata}");
            let kept = metadata["annotations"]["theirs"].as_str();
            assert_eq!(kept.is_some(), metadata["labels"]["l"] == "v", "{name}");
            assert_eq!(metadata["annotations"][noted::RUN_ID], "3", "{name}");
            assert_eq!(metadata["name"], naming::job("a", "u", 3), "{name}");
            assert_eq!(metadata["ownerReferences"][0]["uid"], "u", "{name}");
        }
    }

    #[test]
    fn pods_say_whose_they_are_and_which_of_their_containers_count() {
        const QUARKS: &str = "quarks.cloudfoundry.org/qjob-name";
        const EXTENDED: &str = "fissile.cloudfoundry.org/ejob-name";
        const TRIGGERING: &str = "fissile.cloudfoundry.org/triggering-pod";
        let spec = json!({"containers": [{"name": "c"}, {"name": "d"}]});
        let plain = json!({"spec": spec});
        let one_counts = json!({
            "metadata": {"labels": {"l": "v"}, "annotations": {CONTAINERS: "d"}}, "spec": spec,
        });
        let says =
            |which: &str| json!({"metadata": {"annotations": {CONTAINERS: which}}, "spec": spec});
        let (none_counts, nothing_said) = (says("wrok"), says(""));
        for (name, dialect, template, pod, labels, containers) in [
            (
                "of a QuarksJob",
                Dialect::QuarksJob,
                &plain,
                None,
                json!({QUARKS: "a", TRIGGERED: "QuarksJob"}),
                "c,d",
            ),
            (
                "its template has labels, and says which count",
                Dialect::QuarksJob,
                &one_counts,
                None,
                json!({"l": "v", QUARKS: "a", TRIGGERED: "QuarksJob"}),
                "d",
            ),
            (
                "what its template says names none of its containers",
                Dialect::QuarksJob,
                &none_counts,
                None,
                json!({QUARKS: "a", TRIGGERED: "QuarksJob"}),
                "c,d",
            ),
            (
                "it says none",
                Dialect::QuarksJob,
                &nothing_said,
                None,
                json!({QUARKS: "a", TRIGGERED: "QuarksJob"}),
                "c,d",
            ),
            (
                "of an ExtendedJob",
                Dialect::ExtendedJob,
                &plain,
                None,
                json!({EXTENDED: "a", TRIGGERED: "ExtendedJob"}),
                "c,d",
            ),
            (
                "of a run that is for a pod",
                Dialect::ExtendedJob,
                &plain,
                Some("u-p"),
                json!({EXTENDED: "a", TRIGGERED: "ExtendedJob", TRIGGERING: "u-p"}),
                "c,d",
            ),
        ] {
            let metadata = metadata_of_pods(&resource(dialect, template), &run(pod), template);
            assert_eq!(metadata["labels"], labels, "{name}");
            assert_eq!(metadata["annotations"], json!({CONTAINERS: containers}), "{name}");
        }
    }

    /// The Job of one that keeps a file of a name of so many letters, of a container that is wrapped or not.
    fn keeps(wraps: bool, letters: usize) -> Result<Value, Outcome> {
        let container = json!({"name": "c", "image": "i", "command": ["true"]});
        let file = "x".repeat(letters);
        let output = json!({"outputMap": {"c": {file: {"name": "s"}}}});
        let object = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "spec": {
                "template": {"spec": {"template": {"spec": {"containers": [container]}}}},
                "output": output,
            },
        });
        let object = serde_json::from_value(object).unwrap();
        let resource = Resource::of(Dialect::QuarksJob, &object).unwrap();
        let (delivery, key) = (Delivery::from("image"), KeyPair::generate().public().clone());
        let means = CaptureContext {
            delivery: &delivery,
            key,
            native_sidecars: true,
            wraps,
            resources: None,
        };
        of_run(&resource, &run(None), &means, |_| None)
    }

    /// What a kernel takes of the variable by which an agent is told, in bytes.
    fn told(job: &Value) -> usize {
        let pod = &job["spec"]["template"]["spec"];
        let all = ["initContainers", "containers"].map(|list| pod[list].as_array().unwrap());
        let mut env = all.into_iter().flatten().filter_map(|it| it["env"].as_array()).flatten();
        let ours = env.find(|variable| variable["name"] == GATHERING_VARIABLE).unwrap();
        format!("{GATHERING_VARIABLE}={}\0", ours["value"].as_str().unwrap()).len()
    }

    #[test]
    fn no_container_is_told_of_more_files_than_a_process_can_be() {
        const KERNEL: usize = 131_072;
        for (name, wraps, path) in [
            ("around its command", true, "spec.output.outputMap.c: "),
            ("beside it", false, "spec.output.outputMap: "),
        ] {
            let most = KERNEL - told(&keeps(wraps, 1).unwrap()) + 1;
            assert_eq!(told(&keeps(wraps, most).unwrap()), KERNEL, "{name}");
            let outcome = keeps(wraps, most + 1).unwrap_err();
            assert_eq!(outcome.reason, "TemplateInvalid", "{name}");
            let why = outcome.message;
            assert!(
                why.starts_with(path) && why.ends_with("; mend it, then trigger again"),
                "{why}"
            );
            assert!(why.contains("131072 bytes, of 131071: have fewer"), "{name}: {why}");
        }
    }

    #[test]
    fn variables_without_a_name_or_of_one_name_are_told_as_those_of_others() {
        let of = |name: Value, value: &str| json!({"name": name, "value": value});
        let none = || json!({"value": "none"});
        for (name, told, env, expected) in [
            (
                "two of one name, of which there is none",
                vec![of(json!("A"), "1"), of(json!("A"), "2")],
                json!([of(json!("B"), "b")]),
                json!([of(json!("A"), "1"), of(json!("A"), "2"), of(json!("B"), "b")]),
            ),
            (
                "two of one name, of which there is one",
                vec![of(json!("A"), "1"), of(json!("A"), "2")],
                json!([of(json!("A"), "a")]),
                json!([of(json!("A"), "2")]),
            ),
            (
                "no name is none of that word",
                vec![none()],
                json!([of(json!("null"), "n"), null]),
                json!([of(json!("null"), "n"), none()]),
            ),
            (
                "a name that is a number is none of its digits",
                vec![of(json!(1), "1")],
                json!([of(json!("1"), "a")]),
                json!([of(json!(1), "1"), of(json!("1"), "a")]),
            ),
        ] {
            let mut pod = json!({"containers": [{"env": env}]});
            tell(&mut pod, &told);
            assert_eq!(pod["containers"][0]["env"], expected, "{name}");
        }
    }

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
