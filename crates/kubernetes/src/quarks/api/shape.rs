//! The shape of a template, as far as a run writes into it: where we extend a list there has to be one.
//!
//! All else is passed on as it is, for the API server to judge, which may be newer than we are.

use serde_json::Value;

use super::dialect::Dialect;
use super::pod::{SIDECAR, VOLUMES};
use super::resource::TTL;

/// The first fault of a template's shape: the path, and what has to be there.
pub(crate) fn fault(dialect: Dialect, spec: &Value) -> Option<(String, &'static str)> {
    let template = ("spec.template".to_owned(), &spec["template"]);
    let mut objects = vec![template];
    let is_of_job = dialect.is_of_job(spec);
    if is_of_job {
        objects.push(member(&objects[0], "metadata"));
        objects.push(member(&objects[0], "spec"));
        objects.push(member(&objects[2], "template"));
    }
    if let Some(of_pod) = objects.last() {
        let (metadata, pod) = (member(of_pod, "metadata"), member(of_pod, "spec"));
        objects.extend([metadata, pod]);
    }
    let pod = objects.last()?.clone();
    let fault = is_object(objects).or_else(|| of_pod(&pod)).or_else(|| {
        let ttl = &spec["template"]["spec"][TTL];
        let is_wrong = is_of_job && !ttl.is_null() && !ttl.is_u64();
        let path = || format!("spec.template.spec.{TTL}");
        is_wrong.then(|| (path(), "has to be a whole number of seconds"))
    });
    fault.or_else(|| taken(dialect, spec))
}

/// A container or volume of the template that has a name of ours: the path, and what to do. Where no output is kept,
/// nothing of ours comes into the pod.
pub(crate) fn taken(dialect: Dialect, spec: &Value) -> Option<(String, &'static str)> {
    if spec["output"].is_null() {
        return None;
    }
    let (path, pod) = (dialect.pod_path(spec), dialect.pod_spec(spec));
    let find = |list: &str, names: &[&str]| {
        let mut of = pod[list].as_array().into_iter().flatten();
        let place = of.position(|it| it["name"].as_str().is_some_and(|it| names.contains(&it)))?;
        Some(format!("{path}.{list}[{place}].name"))
    };
    let container = ["containers", "initContainers"].iter().find_map(|it| find(it, &[SIDECAR]));
    let container = container.map(|path| {
        (path, "is that of the container that reads what others leave: choose another")
    });
    let volume =
        || Some((find("volumes", &VOLUMES)?, "is that of a volume of the agent's: choose another"));
    container.or_else(volume)
}

type At<'v> = (String, &'v Value);

fn of_pod(pod: &At<'_>) -> Option<(String, &'static str)> {
    let containers = member(pod, "containers");
    if containers.1.as_array().is_none_or(Vec::is_empty) {
        return Some((containers.0, "has to be a list of containers, with one at least"));
    }
    let mut lists = vec![member(pod, "volumes")];
    let mut each = Vec::new();
    for list in [containers, member(pod, "initContainers")] {
        let of = list.1.as_array().into_iter().flatten().enumerate();
        each.extend(of.map(|(place, container)| (format!("{}[{place}]", list.0), container)));
        lists.push(list);
    }
    for container in &each {
        lists.extend(["command", "env", "volumeMounts"].map(|name| member(container, name)));
    }
    let no_list = |(_, value): &At<'_>| !value.is_null() && !value.is_array();
    let wrong = lists.into_iter().find(no_list).map(|(path, _)| (path, "has to be a list"));
    wrong.or_else(|| {
        let (path, _) = each.into_iter().find(|(_, container)| !container.is_object())?;
        Some((path, "has to be an object"))
    })
}

fn is_object(all: Vec<At<'_>>) -> Option<(String, &'static str)> {
    let wrong = |(_, value): &At<'_>| !value.is_null() && !value.is_object();
    all.into_iter().find(wrong).map(|(path, _)| (path, "has to be an object"))
}

fn member<'v>(of: &At<'v>, name: &str) -> At<'v> {
    (format!("{}.{name}", of.0), &of.1[name])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job() -> Value {
        json!({"template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}}})
    }

    #[test]
    fn what_a_run_writes_into_has_a_shape() {
        let pod = "/template/spec/template/spec";
        for (pointer, value, path) in [
            ("/template", json!("x"), "spec.template"),
            ("/template/metadata", json!([1]), "spec.template.metadata"),
            ("/template/spec", json!("x"), "spec.template.spec"),
            ("/template/spec", json!([1]), "spec.template.spec"),
            ("/template/spec/template", json!(3), "spec.template.spec.template"),
            (
                "/template/spec/template/metadata",
                json!("x"),
                "spec.template.spec.template.metadata",
            ),
            (pod, json!(true), "spec.template.spec.template.spec"),
            (pod, json!({}), "spec.template.spec.template.spec.containers"),
            (
                &format!("{pod}/containers"),
                json!([]),
                "spec.template.spec.template.spec.containers",
            ),
            (
                &format!("{pod}/containers"),
                json!({}),
                "spec.template.spec.template.spec.containers",
            ),
            (
                &format!("{pod}/containers/0"),
                json!("x"),
                "spec.template.spec.template.spec.containers[0]",
            ),
            (
                &format!("{pod}/containers/0/env"),
                json!("x"),
                "spec.template.spec.template.spec.containers[0].env",
            ),
            (
                &format!("{pod}/containers/0/volumeMounts"),
                json!({}),
                "spec.template.spec.template.spec.containers[0].volumeMounts",
            ),
            (
                &format!("{pod}/containers/0/command"),
                json!("true"),
                "spec.template.spec.template.spec.containers[0].command",
            ),
            (
                &format!("{pod}/initContainers"),
                json!("x"),
                "spec.template.spec.template.spec.initContainers",
            ),
            (
                "/template/spec/ttlSecondsAfterFinished",
                json!(-1),
                "spec.template.spec.ttlSecondsAfterFinished",
            ),
            (&format!("{pod}/volumes"), json!("x"), "spec.template.spec.template.spec.volumes"),
        ] {
            let mut spec = job();
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let parent = spec.pointer_mut(parent).unwrap();
            match parent.as_array_mut() {
                Some(list) => list[0] = value,
                None => parent[name] = value,
            }
            let found = fault(Dialect::QuarksJob, &spec).map(|(path, _)| path);
            assert_eq!(found.as_deref(), Some(path));
        }
        assert_eq!(fault(Dialect::QuarksJob, &job()), None);
    }

    #[test]
    fn names_of_ours_are_refused_where_they_would_meet() {
        let pod = "spec.template.spec.template.spec";
        let named = |list: &str, name: &str| {
            let mut spec = job();
            let own = json!([{"name": "c"}, {"name": name}]);
            spec["template"]["spec"]["template"]["spec"][list] = own;
            spec
        };
        for (list, name, kept, path) in [
            ("containers", "output-persist", true, Some(format!("{pod}.containers[1].name"))),
            ("containers", "output-persist", false, None),
            (
                "initContainers",
                "output-persist",
                true,
                Some(format!("{pod}.initContainers[1].name")),
            ),
            ("containers", "agent", true, None),
            ("volumes", "manciple", true, Some(format!("{pod}.volumes[1].name"))),
            ("volumes", "manciple-agent", true, Some(format!("{pod}.volumes[1].name"))),
            ("volumes", "manciple-told", true, Some(format!("{pod}.volumes[1].name"))),
            ("volumes", "manciple", false, None),
            ("volumes", "output", true, None),
        ] {
            let mut spec = named(list, name);
            if kept {
                spec["output"] = json!({"outputMap": {"c": {"a.json": {"name": "a"}}}});
            }
            let found = fault(Dialect::QuarksJob, &spec).map(|(path, _)| path);
            assert_eq!(found, path, "{list}: {name}, {kept}");
        }
    }

    #[test]
    fn an_extended_job_has_a_pod_at_its_template() {
        let right = json!({"template": {"spec": {"containers": [{"name": "c"}]}}});
        assert_eq!(fault(Dialect::ExtendedJob, &right), None);
        let wrong = json!({"template": {"spec": {"containers": [{"env": 1}]}}});
        let (path, _) = fault(Dialect::ExtendedJob, &wrong).unwrap();
        assert_eq!(path, "spec.template.spec.containers[0].env");
        assert_eq!(
            fault(Dialect::ExtendedJob, &json!(null)).unwrap().0,
            "spec.template.spec.containers"
        );
    }

    #[test]
    fn an_extended_job_of_the_last_releases_has_a_job_at_its_template() {
        assert_eq!(fault(Dialect::ExtendedJob, &job()), None);
        for (pointer, value, path) in [
            (
                "/template/spec/template/spec",
                json!({}),
                "spec.template.spec.template.spec.containers",
            ),
            (
                "/template/spec",
                json!({"template": {}, "containers": []}),
                "spec.template.spec.containers",
            ),
        ] {
            let mut spec = job();
            *spec.pointer_mut(pointer).unwrap() = value;
            assert_eq!(fault(Dialect::ExtendedJob, &spec).unwrap().0, path);
        }
    }
}
