//! Checks the volumes that an operator gives to a broker's pods beside ours: if Kubernetes refuses one it refuses each
//! Job, and no order of the plan could ever be carried out.

use std::collections::HashSet;

use osb::catalog::Fault;
use serde_json::{Map, Value};

use super::spec::Spec;
use crate::runner::{OUR_MOUNTS, OUR_VOLUMES};

/// The mounts of a broker's configuration: name of the volume and path.
pub(super) type Mounted<'m> = &'m [(&'m str, &'m str)];

/// The volume faults of all pods of a spec: also of each plan that says something about volumes, for its merged pod
/// settings.
pub(super) fn of_spec(spec: &Spec, plans: Option<&Value>) -> Vec<Fault> {
    let config = spec.config_map.as_ref().map(|_| ("config", "/config"));
    let secret = spec.secret.as_ref().map(|_| ("secret", "/secret"));
    let mounted: Vec<_> = config.into_iter().chain(secret).collect();
    let mut faults = of_pod(&spec.policy.pod, "spec.pod", &mounted);
    for (index, plan) in plans.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let id = plan["planID"].as_str();
        let mut named = spec.plans.iter().filter(|(known, _)| Some(known.as_str()) == id);
        let Some((_, policy)) = named.next() else { continue };
        if ["volumes", "volumeMounts"].iter().any(|member| policy.pod.contains_key(*member)) {
            let pod = policy.over(&spec.policy).pod;
            faults.extend(of_pod(&pod, &format!("spec.plans[{index}].pod"), &mounted));
        }
    }
    faults
}

/// The volume faults of one pod, by their paths below `path`.
pub(super) fn of_pod(pod: &Map<String, Value>, path: &str, mounted: Mounted<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |at: String, message: String| faults.push(Fault { path: at, message });
    let each = |member: &str| pod.get(member).and_then(Value::as_array).into_iter().flatten();
    let mut names: HashSet<&str> = HashSet::new();
    for (index, volume) in each("volumes").enumerate() {
        let Some(name) = volume["name"].as_str() else { continue };
        let at = format!("{path}.volumes[{index}].name");
        if OUR_VOLUMES.contains(&name) || mounted.iter().any(|(ours, _)| *ours == name) {
            fault(at, format!("{name} is for Manciple itself; choose another name"));
        } else if !names.insert(name) {
            fault(at, format!("{name} is there more than once; remove one"));
        }
    }
    names.extend(mounted.iter().map(|(ours, _)| *ours));
    let mut places: HashSet<&str> = HashSet::new();
    for (index, mount) in each("volumeMounts").enumerate() {
        let at = |member: &str| format!("{path}.volumeMounts[{index}].{member}");
        let name = mount["name"].as_str().unwrap_or_default();
        if !names.contains(name) {
            fault(at("name"), format!("{name:?} is not among volumes; add it there"));
        }
        let Some(place) = mount["mountPath"].as_str() else { continue };
        let same = place.trim_end_matches('/');
        if OUR_MOUNTS.contains(&same) || mounted.iter().any(|(_, ours)| *ours == same) {
            fault(at("mountPath"), format!("{same} is for Manciple itself; choose another path"));
        // Kubernetes compares mount paths as they are written.
        } else if !places.insert(place) {
            fault(at("mountPath"), format!("{place} is there more than once; remove one"));
        }
    }
    faults
}
