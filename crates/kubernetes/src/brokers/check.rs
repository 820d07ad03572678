//! Checks a `Broker`'s spec member by member: reports every fault at once, each with its path and the remedy. The
//! CustomResourceDefinition says the same where it can; servers and clients may know an older one.

use std::collections::BTreeMap;
use std::time::Duration;

use agent::is_variable_taken;
use engine::policy::PerAction;
use k8s_openapi::api::core::v1::{
    Affinity, EnvVar, PodSecurityContext, ResourceRequirements, SecurityContext, Toleration,
    Volume, VolumeMount,
};
use osb::PlanId;
use osb::catalog::Fault;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::policy::{Policy, period};
use super::spec::Spec;
use super::volumes;
use crate::names::GROUP;
use crate::runner::PodPolicy;
use crate::syntax::{is_label, is_subdomain};

/// The members of a policy; with `planID`, those of a plan.
const POLICY: [&str; 8] = [
    "namespace",
    "pod",
    "startTimeout",
    "grace",
    "deadline",
    "deadlines",
    "keepSucceeded",
    "keepFailed",
];
const SPEC: [&str; 4] = ["image", "configMap", "secret", "plans"];
const ACTIONS: [&str; 5] = ["provision", "update", "bind", "unbind", "deprovision"];

/// A check whether a value is valid in its place; if not, a path below it and the reason.
type Check = fn(&Value) -> Result<(), (String, String)>;

/// The members of `pod`, and the check for each.
const POD: [(&str, Check); 17] = [
    ("serviceAccountName", name),
    ("automountServiceAccountToken", boolean),
    ("enableServiceLinks", boolean),
    ("imagePullSecrets", names),
    ("imagePullPolicy", pull_policy),
    ("resources", fragment::<ResourceRequirements>),
    ("securityContext", fragment::<PodSecurityContext>),
    ("containerSecurityContext", fragment::<SecurityContext>),
    ("nodeSelector", texts),
    ("affinity", fragment::<Affinity>),
    ("tolerations", fragment::<Vec<Toleration>>),
    ("priorityClassName", name),
    ("env", variables),
    ("volumes", fragment::<Vec<Volume>>),
    ("volumeMounts", fragment::<Vec<VolumeMount>>),
    ("labels", keys),
    ("annotations", keys),
];

/// Reads a spec.
///
/// # Errors
/// All faults of the spec.
pub(super) fn spec(spec: &Value) -> Result<Spec, Vec<Fault>> {
    let mut reader = Reader { faults: Vec::new() };
    let none = Map::new();
    let members = spec.as_object().unwrap_or(&none);
    reader.known("spec", members, &[&SPEC[..], &POLICY].concat());
    let image = reader.text(members, "spec", "image", image).unwrap_or_default();
    if image.is_empty() && !members.contains_key("image") {
        reader.fault("spec.image", "is required: give the image that has /bin/broker");
    }
    let read = Spec {
        image,
        config_map: reader.text(members, "spec", "configMap", name),
        secret: reader.text(members, "spec", "secret", name),
        policy: reader.policy(members, "spec"),
        plans: reader.plans(members.get("plans")),
    };
    reader.faults.extend(volumes::of_spec(&read, members.get("plans")));
    if reader.faults.is_empty() { Ok(read) } else { Err(reader.faults) }
}

/// The faults of pod settings that are given elsewhere, by their paths below `path`, checked as those of a `Broker`.
/// `mounted` are the mounts of the broker's configuration: name of the volume and path.
pub fn pod_faults(pod: &PodPolicy, path: &str, mounted: &[(&str, &str)]) -> Vec<Fault> {
    let mut reader = Reader { faults: Vec::new() };
    let pod = serde_json::to_value(pod).unwrap_or_default();
    let read = reader.pod(Some(&pod), path);
    reader.faults.extend(volumes::of_pod(&read, path, mounted));
    reader.faults
}

/// The fault of a container's requests and limits that are given elsewhere, by its path below `path`.
pub fn resources_fault(resources: &Value, path: &str) -> Option<Fault> {
    let mut reader = Reader { faults: Vec::new() };
    reader.checked(path, resources, fragment::<ResourceRequirements>);
    reader.faults.pop()
}

struct Reader {
    faults: Vec<Fault>,
}

impl Reader {
    fn fault(&mut self, path: &str, message: impl Into<String>) {
        self.faults.push(Fault { path: path.to_owned(), message: message.into() });
    }

    fn known(&mut self, path: &str, members: &Map<String, Value>, known: &[&str]) {
        for member in members.keys().filter(|member| !known.contains(&member.as_str())) {
            let message = format!("is not known; known are {}", known.join(", "));
            self.fault(&format!("{path}.{member}"), message);
        }
    }

    fn checked(&mut self, path: &str, value: &Value, check: Check) -> bool {
        match check(value) {
            Ok(()) => true,
            Err((below, message)) => {
                self.fault(&format!("{path}{below}"), message);
                false
            }
        }
    }

    fn text(
        &mut self,
        members: &Map<String, Value>,
        path: &str,
        member: &str,
        check: Check,
    ) -> Option<String> {
        let value = members.get(member)?;
        let good = self.checked(&format!("{path}.{member}"), value, check);
        value.as_str().filter(|_| good).map(str::to_owned)
    }

    fn period(
        &mut self,
        members: &Map<String, Value>,
        path: &str,
        member: &str,
    ) -> Option<Duration> {
        let value = members.get(member)?;
        let read = value.as_str().and_then(period);
        if read.is_none() {
            let message = "is not a period; write 30s, 15m, 1h30m or 7d, 3650d at most";
            self.fault(&format!("{path}.{member}"), message);
        }
        read
    }

    fn policy(&mut self, members: &Map<String, Value>, path: &str) -> Policy {
        let mut policy = Policy {
            namespace: self.text(members, path, "namespace", label),
            pod: self.pod(members.get("pod"), &format!("{path}.pod")),
            start_timeout: self.period(members, path, "startTimeout"),
            grace: self.period(members, path, "grace"),
            deadlines: self.deadlines(members, path),
            keep_succeeded: self.period(members, path, "keepSucceeded"),
            keep_failed: self.period(members, path, "keepFailed"),
        };
        // The timeout is kept in whole seconds, and no pod begins within zero.
        if policy.start_timeout.take_if(|it| *it < Duration::from_secs(1)).is_some() {
            let message = "must be at least 1s; give more, or leave it out";
            self.fault(&format!("{path}.startTimeout"), message);
        }
        policy
    }

    fn deadlines(
        &mut self,
        members: &Map<String, Value>,
        path: &str,
    ) -> PerAction<Option<Duration>> {
        let all = self.period(members, path, "deadline");
        let path = format!("{path}.deadlines");
        let none = Map::new();
        let given = members.get("deadlines");
        let each = given.and_then(Value::as_object).unwrap_or(&none);
        if given.is_some_and(|given| !given.is_object()) {
            self.fault(&path, "must be an object with a period for each action");
        }
        self.known(&path, each, &ACTIONS);
        let [provision, update, bind, unbind, deprovision] = ACTIONS.map(|action| {
            let period = self.period(each, &path, action).or(all);
            if period.is_some_and(|period| period < Duration::from_secs(1)) {
                let message = "must be at least 1s; give more, or leave it out";
                self.fault(&format!("{path}.{action}"), message);
            }
            period
        });
        PerAction { provision, update, bind, unbind, deprovision }
    }

    fn pod(&mut self, pod: Option<&Value>, path: &str) -> Map<String, Value> {
        let Some(pod) = pod else { return Map::new() };
        let Some(members) = pod.as_object() else {
            self.fault(path, "must be an object with fragments of a pod");
            return Map::new();
        };
        self.known(path, members, &POD.map(|(name, _)| name));
        let mut read = Map::new();
        for (name, check) in POD {
            // Null is what `kubectl apply` makes of a member that is left empty.
            let Some(value) = members.get(name).filter(|value| !value.is_null()) else { continue };
            if self.checked(&format!("{path}.{name}"), value, check) {
                read.insert(name.to_owned(), value.clone());
            }
        }
        read
    }

    fn plans(&mut self, plans: Option<&Value>) -> BTreeMap<PlanId, Policy> {
        let mut read = BTreeMap::new();
        let Some(plans) = plans else { return read };
        let Some(plans) = plans.as_array() else {
            self.fault("spec.plans", "must be an array of plans, each with its planID");
            return read;
        };
        for (index, plan) in plans.iter().enumerate() {
            let path = format!("spec.plans[{index}]");
            let none = Map::new();
            let members = plan.as_object().unwrap_or(&none);
            self.known(&path, members, &[&POLICY[..], &["planID"]].concat());
            let policy = self.policy(members, &path);
            let id = members.get("planID").and_then(Value::as_str);
            let Some(id) = id.and_then(|id| PlanId::new(id).ok()) else {
                let message = "is required: give the id that the plan has in the catalog";
                self.fault(&format!("{path}.planID"), message);
                continue;
            };
            if read.insert(id, policy).is_some() {
                self.fault(&format!("{path}.planID"), "is there more than once; remove one");
            }
        }
        read
    }
}

fn wrong<T>(message: impl Into<String>) -> Result<T, (String, String)> {
    Err((String::new(), message.into()))
}

fn image(value: &Value) -> Result<(), (String, String)> {
    let good = |text: &str| !text.is_empty() && !text.contains(char::is_whitespace);
    match value.as_str().is_some_and(good) {
        true => Ok(()),
        false => wrong("must be the name of an image, such as registry.example/broker:1"),
    }
}

/// Checks the name of a resource (RFC 1123).
fn name(value: &Value) -> Result<(), (String, String)> {
    match value.as_str().is_some_and(is_subdomain) {
        true => Ok(()),
        false => wrong(
            "must be a name: small letters, digits and -, at most 253, in parts with . between them that begin and end \
             with a letter or a digit",
        ),
    }
}

/// Checks the name of a namespace.
fn label(value: &Value) -> Result<(), (String, String)> {
    match value.as_str().is_some_and(is_label) {
        true => Ok(()),
        false => wrong(
            "must be the name of a namespace: small letters, digits and -, at most 63, with a letter or a digit first \
             and last",
        ),
    }
}

fn names(value: &Value) -> Result<(), (String, String)> {
    let Some(values) = value.as_array() else { return wrong("must be an array of names") };
    let mut each = values.iter().enumerate();
    each.try_for_each(|(index, value)| {
        name(value).map_err(|(_, message)| (format!("[{index}]"), message))
    })
}

fn boolean(value: &Value) -> Result<(), (String, String)> {
    match value.is_boolean() {
        true => Ok(()),
        false => wrong("must be true or false, without quotes"),
    }
}

fn pull_policy(value: &Value) -> Result<(), (String, String)> {
    match value.as_str() {
        Some("Always" | "IfNotPresent" | "Never") => Ok(()),
        _ => wrong("must be Always, IfNotPresent or Never"),
    }
}

fn texts(value: &Value) -> Result<(), (String, String)> {
    match value.as_object().is_some_and(|members| members.values().all(Value::is_string)) {
        true => Ok(()),
        false => wrong("must be an object of strings; write numbers and true in quotes"),
    }
}

/// Checks labels or annotations: keys with our prefix are refused, because ours say what a Job is.
fn keys(value: &Value) -> Result<(), (String, String)> {
    texts(value)?;
    let ours = |key: &&String| key.split_once('/').is_some_and(|(prefix, _)| prefix == GROUP);
    match value.as_object().into_iter().flat_map(Map::keys).find(ours) {
        None => Ok(()),
        Some(key) => wrong(format!("{key} is for Manciple itself; choose another prefix")),
    }
}

/// Checks the variables of the broker's container: one under a name that we use would never reach it.
fn variables(value: &Value) -> Result<(), (String, String)> {
    fragment::<Vec<EnvVar>>(value)?;
    let mut each = value.as_array().into_iter().flatten().enumerate();
    let taken = each.find_map(|(index, variable)| {
        let name = variable["name"].as_str().filter(|name| is_variable_taken(name))?;
        let message = format!("{name} is for Manciple itself; choose another name");
        Some((format!("[{index}].name"), message))
    });
    taken.map_or(Ok(()), Err)
}

/// Checks a part of a pod: whatever Kubernetes would refuse, or drop silently, is a fault.
fn fragment<T: DeserializeOwned + Serialize>(value: &Value) -> Result<(), (String, String)> {
    let read: T = match serde_json::from_value(value.clone()) {
        Ok(read) => read,
        Err(error) => return wrong(format!("is not as in a pod: {error}")),
    };
    let known = serde_json::to_value(read).unwrap_or_default();
    match dropped(value, &known) {
        None => Ok(()),
        Some(path) => Err((path, "is not known in a pod; mind the spelling".to_owned())),
    }
}

/// The path of the first member of a value that is not in another.
fn dropped(value: &Value, known: &Value) -> Option<String> {
    match (value, known) {
        (Value::Object(members), Value::Object(known)) => {
            members.iter().find_map(|(name, value)| {
                let empty = value.is_null() || *value == serde_json::json!([]);
                match known.get(name) {
                    Some(known) => dropped(value, known).map(|path| format!(".{name}{path}")),
                    None if empty => None,
                    None => Some(format!(".{name}")),
                }
            })
        }
        (Value::Array(values), Value::Array(known)) => {
            let pairs = values.iter().zip(known).enumerate();
            pairs.into_iter().find_map(|(index, (value, known))| {
                dropped(value, known).map(|path| format!("[{index}]{path}"))
            })
        }
        _ => None,
    }
}
