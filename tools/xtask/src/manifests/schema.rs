//! The schema of the chart's values, which Helm holds them to before it renders anything: a member of another chart, or a
//! misspelt one, would otherwise be passed over without a word.
//!
//! Helm puts the chart's defaults under what is given, takes away whatever is `null` then, and only then holds the rest to
//! this. So what is not there was taken away by somebody, and is refused by its name: the templates would take it for
//! `false`, or find nothing where they look for more. `helm upgrade --reuse-values` alone has the values of the chart
//! before in the place of the defaults: what is newer than the first chart may be missing.

use serde_json::{Map, Value, json};

/// The values that are objects of Kubernetes, as in a pod or a Certificate, whose members this chart does not define.
const FOREIGN: [&str; 4] = [
    "resources",
    "controller.resources",
    "controller.agentResources",
    "templates.webhook.certManager.issuer",
];

/// The values that are maps from names to texts, as labels: the user chooses the names.
const TEXTS: [&str; 5] = [
    "podLabels",
    "podAnnotations",
    "nodeSelector",
    "serviceAccountAnnotations",
    "serviceMonitor.labels",
];

/// The values that are one of a few words.
const WORDS: [(&str, &[&str]); 8] = [
    ("podDisruptionBudget.unhealthyPodEvictionPolicy", &["", "AlwaysAllow", "IfHealthyBudget"]),
    ("brokers", &["", "together", "apart"]),
    ("controller.monitored", &["labelled", "marked", "all"]),
    ("controller.logFormat", &["json", "text"]),
    ("templates.ids", &["uid", "name"]),
    ("templates.statusCodes", &["specification", "original"]),
    ("templates.requesters", &["verified", "trusted"]),
    ("templates.drift", &["ignore", "report", "repair"]),
];

/// The values that are newer than the first chart, or than the section that they are in. The templates say of each what it means that it is
/// not there: what its default is, or what the charts before it did.
pub(super) const NEWER: [&str; 25] = [
    "auth",
    "auth.kubernetes",
    "auth.secrets",
    "broker.enabled",
    "broker.settings",
    "brokers",
    "controller.agentResources",
    "controller.logFormat",
    "jobNamespaces",
    "kubernetes",
    "log",
    "networkPolicy.extraEgress",
    "networkPolicy.extraIngress",
    "nodeSelector",
    "podAnnotations",
    "podDisruptionBudget.unhealthyPodEvictionPolicy",
    "podLabels",
    "priorityClassName",
    "runAs",
    "serviceAccountAnnotations",
    "serviceMonitor.labels",
    "serviceMonitor.serverName",
    "templates.userRoles",
    "tls.authorityKey",
    "tolerations",
];

/// Sections that are newer as a whole, each with a member that nobody gives without the others: values of a chart before
/// with `enabled` and nothing else get as far as the templates, which say what to do.
pub(super) const SECTIONS: [(&str, &str); 2] =
    [("controller", "monitoredID"), ("templates", "requesters")];

/// The values that Helm itself gives to a chart that is part of another: those for all charts, and whether this one is
/// wanted.
const OF_HELM: [(&str, &str); 2] = [("global", "object"), ("enabled", "boolean")];

/// The pattern of members in which users keep repeated parts of a file of values, as in one of Compose.
const ANCHORS: &str = "^x-";

/// The schema for default values, whose types say what may be in their place.
pub(super) fn of(values: &Value) -> Value {
    let mut schema = at("", values, true);
    for (name, kind) in OF_HELM {
        schema["properties"][name] = json!({"type": [kind, "null"]});
    }
    schema["patternProperties"] = json!({ANCHORS: {}});
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("The values of this chart: values.yaml says what each is for");
    schema
}

/// The schema for the value at a path. What has to be in an object is said there, or, once for all that is in a section, by the section.
fn at(path: &str, value: &Value, is_needed: bool) -> Value {
    if let Some((_, words)) = WORDS.iter().find(|(place, _)| *place == path) {
        return json!({"enum": words});
    }
    match value {
        // An object in the place of a text is a name whose dots `--set` took for a path.
        Value::Object(_) if TEXTS.contains(&path) => {
            json!({"type": "object", "additionalProperties": text()})
        }
        Value::Object(members) if is_ours(path) => {
            let section = SECTIONS.iter().find(|(section, _)| *section == path);
            let is_needed = is_needed && section.is_none();
            let below = |(name, value): (&String, &Value)| {
                (name.clone(), at(&join(path, name), value, is_needed))
            };
            let properties: Map<String, Value> = members.iter().map(below).collect();
            let mut schema = json!({
                "type": "object", "properties": properties, "additionalProperties": false,
            });
            let needed = needed(path, members);
            if is_needed && !needed.is_empty() {
                schema["required"] = json!(needed);
            }
            if let Some((_, known_by)) = section {
                schema["dependencies"] = json!({*known_by: all_of(path, members)});
            }
            schema
        }
        Value::Object(_) => json!({"type": "object"}),
        Value::Array(_) => json!({"type": "array", "items": item(path)}),
        Value::Bool(_) => json!({"type": "boolean"}),
        // How many, and who: numbers of 32 bits to Kubernetes, and none is below 0.
        Value::Number(_) => json!({"type": "integer", "minimum": 0, "maximum": i32::MAX}),
        Value::String(_) | Value::Null => text(),
    }
}

/// No number: of a file it comes as `2.0240101e+07` from seven digits on, and would be that in a name.
fn text() -> Value {
    json!({"type": ["string", "boolean"]})
}

/// What is in a list.
fn item(path: &str) -> Option<Value> {
    let name = json!({"type": "string", "minLength": 1});
    let named = |further: Value| {
        let mut item = json!({
            "type": "object", "required": ["name"], "properties": {"name": name},
            "additionalProperties": false,
        });
        for (member, kind) in further.as_object().into_iter().flatten() {
            item["properties"][member] = kind.clone();
        }
        item
    };
    match path {
        "jobNamespaces"
        | "controller.namespaces"
        | "templates.namespaces"
        | "templates.instanceNamespaces"
        | "templates.webhook.apiServers" => Some(name),
        // As in a pod, too: so most charts have it.
        "imagePullSecrets" => Some(json!({"anyOf": [name, named(json!({}))]})),
        "auth.secrets" => Some(named(json!({"role": {"enum": ["platform", "operator"]}}))),
        "controller.env" => {
            Some(named(json!({"value": {"type": "string"}, "valueFrom": {"type": "object"}})))
        }
        "tolerations" | "networkPolicy.extraIngress" | "networkPolicy.extraEgress" => {
            Some(json!({"type": "object"}))
        }
        _ => None,
    }
}

fn is_ours(path: &str) -> bool {
    !FOREIGN.contains(&path) && !TEXTS.contains(&path)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The names of what has to be in an object.
fn needed(path: &str, members: &Map<String, Value>) -> Vec<String> {
    let is_newer = |name: &str| {
        let place = join(path, name);
        NEWER.contains(&&*place) || SECTIONS.iter().any(|(section, _)| *section == place)
    };
    members.keys().filter(|name| !is_newer(name)).cloned().collect()
}

/// The same of an object and all that is in it.
fn all_of(path: &str, members: &Map<String, Value>) -> Value {
    let below = |(name, value): (&String, &Value)| {
        let place = join(path, name);
        let members = value.as_object().filter(|_| is_ours(&place))?;
        Some((name.clone(), all_of(&place, members)))
    };
    let properties: Map<String, Value> = members.iter().filter_map(below).collect();
    let mut schema = json!({"required": needed(path, members)});
    if !properties.is_empty() {
        schema["properties"] = Value::Object(properties);
    }
    schema
}
