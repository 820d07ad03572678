//! Faults of a spec that the API server lets in: all of them at once, each with its path.
//!
//! The definition is tolerant, for the official examples carry members at wrong levels that do nothing. Whoever would
//! rather be told asks for these faults.

use std::collections::BTreeSet;

use agent::{MAX_CONTAINERS, Outputs};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobSpec, JobTemplateSpec};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::dialect::Dialect;
use super::following::Following;
use super::inputs;
use super::naming::{LONGEST_VERSIONED, sanitize_subdomain};
use super::output_map::OutputMap;
use super::schedule::Times;
use super::shape;
use crate::calls::valueless;

const SPEC: [&str; 8] = [
    "trigger",
    "template",
    "updateOnConfigChange",
    "output",
    "concurrencyPolicy",
    "dependsOn",
    "successfulJobsHistoryLimit",
    "failedJobsHistoryLimit",
];
const TRIGGER: [&str; 5] =
    ["strategy", "schedule", "timeZone", "startingDeadlineSeconds", "inputs"];
const OUTPUT: [&str; 6] = [
    "outputType",
    "secretLabels",
    "writeOnFailure",
    "stringifyValues",
    "setOwnerReference",
    "versionHistoryLimit",
];
const OPTIONS: [&str; 6] =
    ["name", "kind", "secretLabels", "secretAnnotations", "versioned", "persistencemethod"];

/// What is wrong with a QuarksJob or ExtendedJob: each fault with its path and a remedy. Empty if there is none.
pub fn faults(object: &Value) -> Vec<String> {
    let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
    let dialect = Dialect::of_owner(version.unwrap_or_default(), kind.unwrap_or_default());
    let Some(dialect) = dialect else {
        let known = Dialect::ALL.map(|it| format!("{} {}", it.api_version(), it.kind()));
        return vec![format!("kind: expected is {}", known.join(" or "))];
    };
    let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    let mut faults = of_spec(dialect, &object["spec"]);
    if name.is_none() && object["metadata"]["generateName"].is_null() {
        faults.push("metadata.name: is missing".to_owned());
    }
    let mut others = object["spec"]["dependsOn"].as_array().into_iter().flatten();
    if name.is_some() && others.any(|other| other.as_str() == name) {
        faults.push("spec.dependsOn: names itself: it would wait for ever".to_owned());
    }
    faults
}

/// The faults of the spec of a QuarksJob or ExtendedJob, as [`faults`] has them.
pub(crate) fn of_spec(dialect: Dialect, spec: &Value) -> Vec<String> {
    let mut lint = Lint { faults: Vec::new() };
    lint.members("spec", spec, &SPEC);
    lint.trigger(dialect, &spec["trigger"]);
    lint.words(
        "spec.concurrencyPolicy",
        &spec["concurrencyPolicy"],
        &["Allow", "Forbid", "Queue", "Replace"],
    );
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        lint.count(&format!("spec.{name}"), &spec[name]);
    }
    lint.names("spec.dependsOn", &spec["dependsOn"]);
    lint.template(dialect, spec);
    lint.output(dialect, spec);
    lint.containers(dialect, spec);
    lint.faults
}

struct Lint {
    faults: Vec<String>,
}

impl Lint {
    fn say(&mut self, path: &str, what: impl AsRef<str>) {
        self.faults.push(format!("{path}: {}", what.as_ref()));
    }

    /// Checks that a value is an object, and that it has no members but the known ones.
    fn members(&mut self, path: &str, object: &Value, known: &[&str]) {
        let Some(members) = object.as_object() else {
            if !object.is_null() {
                self.say(path, "has to be an object");
            }
            return;
        };
        for name in members.keys().filter(|name| !known.contains(&name.as_str())) {
            self.unknown(&format!("{path}.{name}"), name, known);
        }
    }

    fn unknown(&mut self, path: &str, name: &str, known: &[&str]) {
        match known.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            Some(meant) => self.say(path, format!("is spelled {meant}")),
            None => self.say(path, "is not known, and does nothing: remove it"),
        }
    }

    fn words(&mut self, path: &str, value: &Value, words: &[&str]) {
        let is_one = value.as_str().is_some_and(|value| words.contains(&value));
        if !value.is_null() && !is_one {
            self.say(path, format!("has to be one of {}", words.join(", ")));
        }
    }

    fn count(&mut self, path: &str, value: &Value) {
        if !value.is_null() && !value.is_u64() {
            self.say(path, "has to be a whole number, 0 or more");
        }
    }

    fn flag(&mut self, path: &str, value: &Value) {
        if !value.is_null() && !value.is_boolean() {
            self.say(path, "has to be true or false");
        }
    }

    fn names(&mut self, path: &str, value: &Value) {
        let all = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
        if !value.is_null() && !all {
            self.say(path, "has to be a list of names");
        }
    }

    fn labels(&mut self, path: &str, value: &Value) {
        let all = value.as_object().is_some_and(|labels| labels.values().all(Value::is_string));
        if !value.is_null() && !all {
            self.say(
                path,
                "has to be an object whose values are strings; put quotes around numbers",
            );
        }
    }

    fn trigger(&mut self, dialect: Dialect, trigger: &Value) {
        let (members, strategies): (&[&str], &[&str]) = match dialect {
            Dialect::QuarksJob => (&[], &[]),
            Dialect::ExtendedJob => (&["podstate"], &["podstate"]),
        };
        self.members("spec.trigger", trigger, &[&TRIGGER, members].concat());
        let strategies = [&["manual", "once", "now", "done"], strategies].concat();
        if let Some(Err(fault)) = Following::of(trigger) {
            self.faults.push(fault);
        }
        self.words("spec.trigger.strategy", &trigger["strategy"], &strategies);
        if trigger["strategy"].is_null() {
            let one_of = strategies.join(", ");
            self.say(
                "spec.trigger.strategy",
                format!("is missing: it never runs; say one of {one_of}"),
            );
        }
        self.count("spec.trigger.startingDeadlineSeconds", &trigger["startingDeadlineSeconds"]);
        let now = Timestamp::UNIX_EPOCH;
        match Times::of(trigger).map(|times| times.next(now, now)) {
            Some(Err(fault)) => self.faults.push(fault),
            None if !trigger["schedule"].is_null() => {
                self.say("spec.trigger.schedule", "has to be a string of five fields");
            }
            None if !trigger["timeZone"].is_null() => {
                self.say("spec.trigger.timeZone", "does nothing without a schedule");
            }
            _ => {}
        }
        self.faults.extend(inputs::faults(&trigger["inputs"]));
    }

    fn template(&mut self, dialect: Dialect, spec: &Value) {
        let template = &spec["template"];
        if template.is_null() {
            return self.say("spec.template", "is missing: there is nothing to run");
        }
        if dialect.is_of_job(spec) {
            self.typed::<JobTemplateSpec>(dialect, spec);
        } else {
            self.typed::<PodTemplateSpec>(dialect, spec);
        }
        let (path, pod) = (dialect.pod_path(spec), dialect.pod_spec(spec));
        if pod["containers"].as_array().is_none_or(Vec::is_empty) {
            self.say(&format!("{path}.containers"), "is missing: there is nothing to run");
        }
        if let Some((path, what)) = shape::taken(dialect, spec) {
            self.say(&path, what);
        }
        let restarts = pod["restartPolicy"].as_str();
        if !matches!(restarts, Some("Never" | "OnFailure")) {
            self.say(&format!("{path}.restartPolicy"), "has to be Never or OnFailure in a Job");
        }
    }

    /// Checks the template against the types of the Kubernetes API.
    fn typed<T: DeserializeOwned>(&mut self, dialect: Dialect, spec: &Value) {
        let mut ignored = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let values = serde_path_to_error::Deserializer::new(&spec["template"], &mut track);
        let read: Result<T, _> =
            serde_ignored::deserialize(values, |path| ignored.push(path.to_string()));
        if let Err(error) = read {
            let path = format!("spec.template.{}", track.path());
            self.say(&path, valueless(&error));
        }
        for path in ignored {
            let path = bracketed(&path);
            let name = path.rsplit('.').next().unwrap_or_default();
            let full = format!("spec.template.{path}");
            match belongs(dialect, spec, name).filter(|right| *right != full) {
                Some(right) => self.say(&full, format!("does nothing here: it belongs to {right}")),
                None => self.say(&full, "is not known, and does nothing: remove it"),
            }
        }
    }

    fn output(&mut self, dialect: Dialect, spec: &Value) {
        let output = &spec["output"];
        let further: &[&str] = match dialect {
            Dialect::QuarksJob => &["outputMap", "namePrefix", "versioned"],
            Dialect::ExtendedJob => &["namePrefix", "versioned"],
        };
        self.members("spec.output", output, &[&OUTPUT, further].concat());
        self.flag("spec.updateOnConfigChange", &spec["updateOnConfigChange"]);
        for name in ["versioned", "writeOnFailure", "stringifyValues", "setOwnerReference"] {
            self.flag(&format!("spec.output.{name}"), &output[name]);
        }
        self.count("spec.output.versionHistoryLimit", &output["versionHistoryLimit"]);
        self.labels("spec.output.secretLabels", &output["secretLabels"]);
        self.words("spec.output.outputType", &output["outputType"], &["json"]);
        match dialect {
            Dialect::QuarksJob => self.output_map(dialect, spec),
            Dialect::ExtendedJob if !output.is_null() && !output["namePrefix"].is_string() => {
                self.say("spec.output.namePrefix", "is missing: nothing is kept");
            }
            Dialect::ExtendedJob => {}
        }
    }

    /// Checks the number of containers: in a pod with more than [`MAX_CONTAINERS`] a kubelet cuts the messages that say
    /// where the output is. What containers without a command print is in their logs, and is not affected.
    fn containers(&mut self, dialect: Dialect, spec: &Value) {
        let (path, pod) = (dialect.pod_path(spec), dialect.pod_spec(spec));
        let of = |list: &str| pod[list].as_array().into_iter().flatten();
        let count = of("containers").chain(of("initContainers")).count();
        let reports = match dialect {
            Dialect::QuarksJob => true,
            Dialect::ExtendedJob => of("containers").any(|it| it["command"].is_array()),
        };
        if count > MAX_CONTAINERS && reports && !OutputMap::of(dialect, spec).is_empty() {
            let what = format!(
                "has {count} with initContainers, of {MAX_CONTAINERS} whose output can be kept: have fewer in one pod"
            );
            self.say(&format!("{path}.containers"), what);
        }
    }

    fn output_map(&mut self, dialect: Dialect, spec: &Value) {
        let map = &spec["output"]["outputMap"];
        let prefix = &spec["output"]["namePrefix"];
        if !spec["output"].is_null() && map.is_null() && !prefix.is_string() {
            self.say("spec.output.outputMap", "is missing: nothing is kept");
        }
        if !map.is_null() && !prefix.is_null() {
            self.say("spec.output.namePrefix", "does nothing beside outputMap: remove it");
        }
        if !map.is_null() && !map.is_object() {
            return self.say("spec.output.outputMap", "has to be an object: container, then file");
        }
        let containers = dialect.pod_spec(spec)["containers"].as_array().into_iter().flatten();
        let names: BTreeSet<&str> = containers.filter_map(|it| it["name"].as_str()).collect();
        let mut targets = BTreeSet::new();
        for (container, files) in map.as_object().into_iter().flatten() {
            let path = format!("spec.output.outputMap.{container}");
            if !names.is_empty() && !names.contains(container.as_str()) {
                self.say(&path, "there is no container of this name");
            }
            if !files.is_object() && !files.is_null() {
                self.say(&path, "has to be an object: file, then what becomes of it");
            }
            for (file, options) in files.as_object().into_iter().flatten() {
                let path = format!("{path}[{file:?}]");
                if Outputs::path_within(file).is_none() {
                    self.say(&path, "is no path within /mnt/quarks: nothing is read of it");
                } else if file.starts_with("/mnt/quarks/") {
                    self.say(&path, "is looked for within /mnt/quarks: leave that out");
                }
                let general = &spec["output"]["versioned"];
                let versioned = options["versioned"].as_bool().or(general.as_bool());
                let versioned = versioned == Some(true) && options["kind"] != "ConfigMap";
                let named = |name| sanitize_subdomain(name, versioned);
                let name = options["name"].as_str().map(named).unwrap_or_default();
                self.options(&path, options, &name, versioned);
                // Versions of a name, and what fans out under it, are other objects than that of the name itself.
                let fans_out = options["persistencemethod"] == "fan-out";
                let is_config_map = options["kind"] == "ConfigMap";
                let is_new = targets.insert((is_config_map, versioned, fans_out, name));
                if !is_new {
                    self.say(&path, "goes where another file goes: one of them is lost");
                }
            }
        }
    }

    /// Checks the options of a file whose Secret or ConfigMap `becomes` this name.
    fn options(&mut self, path: &str, options: &Value, becomes: &str, is_versioned: bool) {
        self.members(path, options, &OPTIONS);
        let at = |name: &str| format!("{path}.{name}");
        let name = options["name"].as_str().unwrap_or_default();
        if becomes.is_empty() {
            self.say(&at("name"), "is missing, or has nothing that can be in a name");
        } else if becomes != name {
            self.say(&at("name"), format!("becomes {becomes}: write it so"));
        } else if is_versioned && name.len() > LONGEST_VERSIONED {
            let what = format!(
                "has {} letters, of {LONGEST_VERSIONED} that leave room for the numbers of a million versions; each further \
                 one leaves room for a tenth: write a shorter name",
                name.len()
            );
            self.say(&at("name"), what);
        }
        self.words(
            &at("persistencemethod"),
            &options["persistencemethod"],
            &["one-to-one", "fan-out"],
        );
        self.words(&at("kind"), &options["kind"], &["Secret", "ConfigMap"]);
        self.flag(&at("versioned"), &options["versioned"]);
        if options["kind"] == "ConfigMap" && options["versioned"] == true {
            self.say(&at("versioned"), "a ConfigMap has no versions: remove versioned, or kind");
        }
        self.labels(&at("secretLabels"), &options["secretLabels"]);
        self.labels(&at("secretAnnotations"), &options["secretAnnotations"]);
    }
}

/// The path where a misplaced member of a Job's or a pod's spec belongs.
fn belongs(dialect: Dialect, spec: &Value, name: &str) -> Option<String> {
    let of_job = dialect.is_of_job(spec) && knows::<JobSpec>(json!({"template": {}}), name);
    if of_job {
        return Some(format!("spec.template.spec.{name}"));
    }
    let of_pod = knows::<PodSpec>(json!({"containers": []}), name);
    of_pod.then(|| format!("{}.{name}", dialect.pod_path(spec)))
}

fn knows<T: DeserializeOwned>(mut object: Value, name: &str) -> bool {
    object[name] = Value::Null;
    let mut ignores = false;
    let read: Result<T, _> = serde_ignored::deserialize(&object, |_| ignores = true);
    read.is_ok() && !ignores
}

/// Writes `a.0.b` as `a[0].b`, and leaves out `?`, which stands for what may be absent.
fn bracketed(path: &str) -> String {
    let mut written = String::new();
    for part in path.split('.').filter(|part| *part != "?") {
        match part.parse::<usize>() {
            Ok(place) => written.push_str(&format!("[{place}]")),
            Err(_) if written.is_empty() => written.push_str(part),
            Err(_) => written.extend([".", part]),
        }
    }
    written
}
