//! The validation that OpenShift applies to every new object, whoever makes it. Some of it is also in the
//! CustomResourceDefinitions; it is checked here in OpenShift's words, because the API server calls the webhook first.

use serde_json::Value;
use template::{Fault, Template};

use super::answer::Wrong;
use crate::syntax::{is_label, is_subdomain};
use crate::templates::values::whole;

/// How many characters of a wrong value are shown.
const SHOWN: usize = 120;

/// The faults of a Template.
pub(super) fn template(object: &Value) -> Vec<Wrong> {
    faults(object.clone(), "")
}

/// The faults of the spec of a TemplateInstance, without its requester.
pub(super) fn spec(spec: &Value) -> Vec<Wrong> {
    let mut wrongs = match &spec["template"] {
        Value::Null => vec![Wrong::required("spec.template")],
        template => faults(whole(template), "spec.template."),
    };
    let secret = &spec["secret"];
    if !secret.is_null() && is_missing(&secret["name"]) {
        wrongs.push(Wrong::required("spec.secret.name"));
    }
    wrongs
}

/// The faults of a BrokerTemplateInstance.
pub(super) fn broker_instance(object: &Value) -> Vec<Wrong> {
    let spec = &object["spec"];
    let mut wrongs =
        reference("spec.templateInstance", &spec["templateInstance"], "TemplateInstance");
    wrongs.extend(reference("spec.secret", &spec["secret"], "Secret"));
    let ids = match &spec["bindingIDs"] {
        Value::Null => &[],
        Value::Array(ids) => ids.as_slice(),
        other => {
            wrongs.push(invalid("spec.bindingIDs", other, "has to be a list of UUIDs"));
            &[]
        }
    };
    for (index, id) in ids.iter().enumerate() {
        if !id.as_str().is_some_and(is_uuid) {
            wrongs.push(invalid(&format!("spec.bindingIDs[{index}]"), id, "has to be a UUID"));
        }
    }
    wrongs
}

/// All faults of a template at this path, including the names of its parameters.
fn faults(document: Value, place: &str) -> Vec<Wrong> {
    let parameters = document["parameters"].as_array().into_iter().flatten().enumerate();
    let mut wrongs: Vec<Wrong> = parameters
        .filter(|(_, parameter)| parameter.is_object())
        .filter_map(|(index, parameter)| {
            let field = format!("{place}parameters[{index}].name");
            match &parameter["name"] {
                name if is_missing(name) => Some(Wrong::required(field)),
                Value::String(name) if !name.bytes().all(is_of_a_name) => {
                    let detail = "has to match ^[a-zA-Z0-9_]+$";
                    Some(invalid(&field, &parameter["name"], detail))
                }
                // A name that is no text is a fault of the template.
                _ => None,
            }
        })
        .collect();
    let of = |fault: &Fault| {
        let path = fault.path.strip_prefix("template.").unwrap_or_default();
        let field = format!("{place}{path}");
        Wrong::new(field.trim_end_matches('.'), format!("{}: {}", fault.problem, fault.detail))
    };
    if let Err(faults) = Template::read(document) {
        wrongs.extend(faults.iter().map(of));
    }
    wrongs
}

/// The faults of an ObjectReference, which has to be of this kind.
fn reference(place: &str, reference: &Value, kind: &str) -> Vec<Wrong> {
    let mut wrongs = Vec::new();
    let field = |member: &str| format!("{place}.{member}");
    if reference["kind"] != kind {
        let detail = format!("has to be {kind}");
        wrongs.push(invalid(&field("kind"), &reference["kind"], &detail));
    }
    let name = "has to be a DNS-1123 subdomain";
    let namespace = "has to be a DNS-1123 label";
    for (member, is_valid, detail) in
        [("name", is_subdomain as fn(&str) -> bool, name), ("namespace", is_label, namespace)]
    {
        match &reference[member] {
            Value::String(text) if is_valid(text) => {}
            missing if is_missing(missing) => wrongs.push(Wrong::required(field(member))),
            other => wrongs.push(invalid(&field(member), other, detail)),
        }
    }
    wrongs
}

fn invalid(field: &str, value: &Value, detail: &str) -> Wrong {
    let mut shown = match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        _ => value.to_string(),
    };
    if let Some((end, _)) = shown.char_indices().nth(SHOWN) {
        shown.truncate(end);
        shown.push('…');
    }
    Wrong::new(field, format!("Invalid value: {shown}: {detail}"))
}

fn is_missing(value: &Value) -> bool {
    value.is_null() || value == ""
}

fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether a text is a UUID, in capital or small letters, as OpenShift accepts them.
fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
