//! The schema of the chart's values, by which Helm checks them before it renders anything: a member of another chart,
//! or a misspelt one, would otherwise be ignored silently.

use serde_json::{Map, Value, json};

/// The values that are objects of Kubernetes, as in a pod or a Certificate, whose members this chart does not define.
const FOREIGN: [&str; 4] = [
    "resources",
    "controller.resources",
    "controller.agentResources",
    "templates.webhook.certManager.issuer",
];

/// The values that are maps from names to texts, as labels: the user chooses the names.
const TEXTS: [&str; 4] =
    ["podLabels", "podAnnotations", "nodeSelector", "serviceAccountAnnotations"];

/// The values that are one of a few words.
const WORDS: [(&str, &[&str]); 7] = [
    ("podDisruptionBudget.unhealthyPodEvictionPolicy", &["", "AlwaysAllow", "IfHealthyBudget"]),
    ("brokers", &["", "together", "apart"]),
    ("controller.monitored", &["labelled", "marked", "all"]),
    ("templates.ids", &["uid", "name"]),
    ("templates.statusCodes", &["specification", "original"]),
    ("templates.requesters", &["verified", "trusted"]),
    ("templates.drift", &["ignore", "report", "repair"]),
];

/// The values that Helm itself gives to a chart that is part of another: those for all charts, and whether this one is
/// wanted.
const OF_HELM: [(&str, &str); 2] = [("global", "object"), ("enabled", "boolean")];

/// The pattern of members in which users keep repeated parts of a file of values, as in one of Compose.
const ANCHORS: &str = "^x-";

/// The schema for default values, whose types say what may be in their place.
pub(super) fn of(values: &Value) -> Value {
    let mut schema = at("", values);
    for (name, kind) in OF_HELM {
        schema["properties"][name] = json!({"type": [kind, "null"]});
    }
    schema["patternProperties"] = json!({ANCHORS: {}});
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    schema["title"] = json!("The values of this chart: values.yaml says what each is for");
    schema
}

/// The schema for the value at a path; `null` stands for the default.
fn at(path: &str, value: &Value) -> Value {
    if let Some((_, words)) = WORDS.iter().find(|(place, _)| *place == path) {
        let words: Vec<Value> = words.iter().map(|word| json!(word)).chain([Value::Null]).collect();
        return json!({"enum": words});
    }
    match value {
        // An object in the place of a text is a name whose dots `--set` took for a path.
        Value::Object(_) if TEXTS.contains(&path) => {
            // A number of a file comes as `1e+06` from seven digits on.
            let text = json!({"type": ["string", "boolean"]});
            json!({"type": ["object", "null"], "additionalProperties": text})
        }
        Value::Object(members) if !FOREIGN.contains(&path) => {
            let below = |name: &str| match path {
                "" => name.to_owned(),
                path => format!("{path}.{name}"),
            };
            let properties: Map<String, Value> = members
                .iter()
                .map(|(name, value)| (name.clone(), at(&below(name), value)))
                .collect();
            json!({"type": ["object", "null"], "properties": properties, "additionalProperties": false})
        }
        Value::Object(_) => json!({"type": ["object", "null"]}),
        Value::Array(_) => json!({"type": ["array", "null"]}),
        Value::Bool(_) => json!({"type": ["boolean", "null"]}),
        Value::Number(_) => json!({"type": ["integer", "null"]}),
        // `--set name=1` is a number to Helm, and a name to us.
        Value::String(_) | Value::Null => {
            json!({"type": ["string", "number", "boolean", "null"]})
        }
    }
}
