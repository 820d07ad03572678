//! Parameter values: given by the requester, kept from before, or generated.

use std::collections::{BTreeSet, HashSet};

use engine::redact::{Secrets, standing_in};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};
use template::{Fault, Parameter, Processed, System, Template};

use super::record::{Record, StoredRecord, Values, repeated};
use super::resource::Instance;
use super::trouble::Trouble;
use crate::calls::find;

/// For how many seconds an instance waits for the Secret with its parameters.
const LATE: i64 = 60;

/// Reads the template of a spec.
pub(super) fn template(spec: &Value) -> Result<Template, String> {
    let document = whole(&spec["template"]);
    let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Template::read(document).map_err(|faults| unprocessed(&name, &faults))
}

/// A template embedded in another object, completed by its `apiVersion` and `kind`, which are left out there.
pub(super) fn whole(template: &Value) -> Value {
    let mut document = template.clone();
    if let Some(map) = document.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| json!(template::API_VERSION));
        map.entry("kind").or_insert_with(|| json!(template::KIND));
    }
    document
}

/// Processes a template: its objects, with all parameters substituted.
pub(super) fn processed(template: Template) -> Result<Processed, String> {
    let name = template.name().to_owned();
    template.process(&mut System).map_err(|faults| unprocessed(&name, &faults))
}

/// The message for a template that cannot be processed.
pub(super) fn unprocessed(name: &str, faults: &[Fault]) -> String {
    let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
    let of = "unable to process Template objects: Template.template.openshift.io";
    match faults.as_slice() {
        [one] => format!("{of} {name:?} is invalid: {one}"),
        several => format!("{of} {name:?} is invalid: [{}]", several.join(", ")),
    }
}

/// The values that the requester gives: the entries of the parameter Secret for parameters of the template, read in the
/// requester's name.
pub(super) async fn given(
    instance: &Instance,
    template: &Template,
    client: &Client,
    now: i64,
) -> Result<Values, Trouble> {
    let Some(name) = instance.secret() else { return Ok(Values::new()) };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    if !name.bytes().all(plain) || name.starts_with('.') {
        let why = format!("spec.secret.name: Invalid value: {name:?}: is no name of a Secret");
        return Err(Trouble::Final(why));
    }
    let unable = |trouble: Trouble| trouble.of("unable to retrieve TemplateInstance Secret");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &instance.key.namespace);
    let found = find(secrets.get(name)).await.map_err(|error| unable(error.into()))?;
    let Some(secret) = found else {
        // The Secret may come next in the file that somebody is applying.
        let why = format!("secrets {name:?} not found");
        let is_early = now.saturating_sub(instance.begun_at().as_second()) < LATE;
        return Err(unable(if is_early { Trouble::Passing(why) } else { Trouble::Final(why) }));
    };
    of_parameters(name, secret, template).map_err(|why| unable(Trouble::Final(why)))
}

/// The entries of a Secret that name parameters of the template; others are ignored.
pub(super) fn of_parameters(
    name: &str,
    secret: Secret,
    template: &Template,
) -> Result<Values, String> {
    let names: HashSet<&str> = template.parameters.iter().map(|it| it.name.as_str()).collect();
    let data = secret.data.unwrap_or_default().into_iter();
    let text = |(key, ByteString(value))| match String::from_utf8(value) {
        Ok(value) => Ok((key, value)),
        Err(_) => Err(format!("secrets {name:?}: data[{key:?}]: Invalid value: has to be UTF-8")),
    };
    data.filter(|(key, _)| names.contains(key.as_str())).map(text).collect()
}

/// The parameter values that the template itself contains: they are public.
pub(super) fn defaults(template: &Value) -> Vec<String> {
    let parameters = template["parameters"].as_array().into_iter().flatten();
    parameters.filter_map(|it| it["value"].as_str().map(str::to_owned)).collect()
}

/// The values to be redacted: not those that the template contains, and not those that are a part of an object's name.
pub(super) fn secrets(values: &Values, public: &[String], names: &[&str]) -> Secrets {
    // With thousands of values and names, looking for each alone would take seconds.
    let public: HashSet<&str> = public.iter().map(String::as_str).collect();
    let hidden = values.values().map(String::as_str).filter(|value| !public.contains(value));
    let hidden: Vec<&str> = hidden.collect();
    let named = standing_in(&hidden, names);
    let mut secrets = Secrets::default();
    let hidden = hidden.into_iter().filter(|value| !named.contains(value));
    hidden.for_each(|value| secrets.add(value.as_bytes()));
    secrets
}

/// Keeps the values that were generated before: a change of the template generates no second password. What the template
/// itself said, and what was given and is not given any more, is what the template says now. `again`: the values of
/// [`generated_again`]; `was`: the template before, if it is kept. The parameters whose values are generated, now or before.
pub(super) fn stay(
    template: &mut Template,
    given: &Values,
    again: &Values,
    before: Option<&Record>,
    was: impl FnOnce() -> Option<Value>,
) -> BTreeSet<String> {
    let generated_before = before.map(|before| generated_before(before, was)).unwrap_or_default();
    let kept = |name: &str| {
        let value = before?.parameters.get(name).filter(|value| !value.is_empty())?;
        generated_before.contains(name).then_some(value)
    };
    let (mut generated, mut stay) = (BTreeSet::new(), Values::new());
    for parameter in &template.parameters {
        let name = &parameter.name;
        match (given.get(name), kept(name)) {
            // Whoever rolls back gives it again, though another was given in between.
            (Some(given), Some(kept)) if given == kept => {}
            (Some(given), _) if again.get(name) == Some(given) => {}
            (None, kept) if is_generated(parameter) => {
                stay.extend(kept.map(|kept| (name.clone(), kept.clone())));
            }
            _ => continue,
        }
        generated.insert(name.clone());
    }
    template.set_all(&stay);
    generated
}

/// The values that were generated in the earlier revision which a template repeats; none where it repeats none.
pub(super) fn generated_again(template: &Value, before: &StoredRecord) -> Values {
    let record = repeated(template).and_then(|revision| before.record_of(revision));
    let Some(record) = record else { return Values::new() };
    let generated = generated_before(&record, || before.template(record.revision));
    let is_it = |(name, value): &(String, String)| !value.is_empty() && generated.contains(name);
    record.parameters.into_iter().filter(is_it).collect()
}

/// Whether the value of a parameter is generated.
pub(super) fn is_generated(parameter: &Parameter) -> bool {
    parameter.value.is_empty() && !parameter.generate.is_empty()
}

/// The parameters whose values were generated. Of a record from before they were noted, those that may have been: a password
/// that changes is worse than one that stays.
fn generated_before(before: &Record, was: impl FnOnce() -> Option<Value>) -> BTreeSet<String> {
    if let Some(generated) = &before.generated {
        return generated.clone();
    }
    match was().and_then(|was| Template::read(whole(&was)).ok()) {
        Some(was) => {
            let generated = was.parameters.into_iter().filter(is_generated);
            generated.map(|parameter| parameter.name).collect()
        }
        None => before.parameters.keys().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_secret_may_hold_what_no_parameter_names() {
        let template = json!({
            "apiVersion": template::API_VERSION, "kind": template::KIND, "objects": [],
            "parameters": [{"name": "NAME"}, {"name": "OTHER"}],
        });
        let template = Template::read(template).unwrap();
        let values = |data: Value| {
            of_parameters("s", serde_json::from_value(json!({"data": data})).unwrap(), &template)
        };
        let expected = Ok(Values::from([("NAME".to_owned(), "web".to_owned())]));
        for (name, data, expected) in [
            ("what is named", json!({"NAME": "d2Vi"}), expected.clone()),
            ("a text beside it", json!({"NAME": "d2Vi", "MORE": "d2Vi"}), expected.clone()),
            ("a key store beside it", json!({"NAME": "d2Vi", "store.jks": "/u0="}), expected),
            (
                "what is named and no text",
                json!({"NAME": "/u0="}),
                Err("secrets \"s\": data[\"NAME\"]: Invalid value: has to be UTF-8".to_owned()),
            ),
        ] {
            assert_eq!(values(data), expected, "{name}");
        }
    }

    /// Each name is as long as Kubernetes takes it, and each value begins as a name does: one by one they took half a minute.
    #[test]
    fn thousands_of_values_are_looked_for_in_thousands_of_names_in_no_time() {
        let names: Vec<String> =
            (0..4200).map(|number| format!("{number:04}-{}", "name".repeat(62))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let letters = |number: usize| -> String {
            (0..7).map(|digit| ["n", "a", "m", "e"][(number >> (2 * digit)) & 3]).collect()
        };
        let value = |number: usize| format!("{}{}", "name".repeat(5), letters(number));
        let mut values: Values =
            (0..10_000).map(|number| (format!("P{number}"), value(number))).collect();
        values.insert("NAME".to_owned(), "4199-name".to_owned());
        values.insert("PUBLIC".to_owned(), "changeme".to_owned());
        let begun = Instant::now();
        let found = secrets(&values, &["changeme".to_owned()], &names);
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        assert_eq!(found.iter().count(), 9_999, "all but the one that goes on as a name does");
        assert!(found.iter().all(|it| it.starts_with(b"namename")));
    }

    /// What becomes of PASSWORD with a revision that generates it, by what it was in the one before.
    #[test]
    fn only_what_was_generated_stays() {
        let of = |parameter: Value| {
            Template::read(json!({
                "apiVersion": template::API_VERSION, "kind": template::KIND, "objects": [],
                "parameters": [parameter],
            }))
            .unwrap()
        };
        let generates = json!({"name": "PASSWORD", "generate": "expression", "from": "[a-z]{8}"});
        let public = json!({"name": "PASSWORD", "value": "was"});
        let plain = json!({"name": "PASSWORD"});
        let none: &[&str] = &[];
        let noted = |names: &[&str]| Some(names.iter().map(|it| (*it).to_owned()).collect());
        for (name, noted, was, given, stays, is_noted) in [
            ("it was generated", noted(&["PASSWORD"]), Some(&generates), None, true, true),
            ("another was", noted(&["OTHER"]), Some(&generates), None, false, true),
            ("it was given", noted(none), Some(&generates), None, false, true),
            ("it was public", noted(none), Some(&public), None, false, true),
            ("it is given now", noted(&["PASSWORD"]), Some(&generates), Some("new"), false, false),
            ("it is given as it was", noted(&["PASSWORD"]), None, Some("was"), false, true),
            ("it was given as it is", noted(none), None, Some("was"), false, false),
            ("it is emptied", noted(&["PASSWORD"]), None, Some(""), false, false),
            ("not noted: generated or given", None, Some(&generates), None, true, true),
            ("not noted: public", None, Some(&public), None, false, true),
            ("not noted: plain, so given", None, Some(&plain), None, false, true),
            ("not noted, and the template is not kept", None, None, None, true, true),
        ] {
            let mut record: Record = serde_json::from_value(json!({
                "parameters": {"PASSWORD": "was"}, "requester": {}, "spec": "",
            }))
            .unwrap();
            record.generated = noted;
            let given: Values =
                given.into_iter().map(|it| ("PASSWORD".to_owned(), it.to_owned())).collect();
            let mut template = of(generates.clone());
            template.set_all(&given);
            let was = || was.map(|was| json!({"objects": [], "parameters": [was]}));
            let generated = stay(&mut template, &given, &Values::new(), Some(&record), was);
            assert_eq!(generated.contains("PASSWORD"), is_noted, "{name}");
            let value = template.parameters[0].value.as_str();
            let expected = given.get("PASSWORD").map_or("", String::as_str);
            assert_eq!(value, if stays { "was" } else { expected }, "{name}");
        }
        let mut template = of(generates.clone());
        let none = Values::new();
        let generated = stay(&mut template, &none, &none, None, || None);
        assert_eq!(generated, BTreeSet::from(["PASSWORD".to_owned()]), "of the first revision");
    }
}
