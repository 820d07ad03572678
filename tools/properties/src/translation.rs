//! Translation: the first line is a domain, a class of Ingresses and a namespace, with blanks between them, the rest a
//! template.

use std::collections::BTreeMap;

use serde_json::Value;
use template::translate::{Translated, Translation, translate};
use template::{Seeded, Template, expose};

use crate::templates::{hides, is_only_a_value};

/// The property that whatever a template becomes is translated or refused, alike each time; that a second translation
/// changes nothing; that bindings are given the same before and after; and that no message has the value of a
/// parameter.
pub fn translation(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (means, document) = text.split_once('\n').unwrap_or((&text, ""));
    let mut words = means.split(' ').map(str::to_owned);
    let mut word = || words.next().filter(|word| !word.is_empty());
    let means = Translation { domain: word(), ingress_class: word(), namespace: word() };
    let Ok(document) = serde_json::from_str::<Value>(document) else { return };
    // Objects need no template to be tried.
    if let Value::Array(objects) = &document {
        let _ = translate(objects.clone(), &means);
    }
    let holds = is_only_a_value(&document);
    let Ok(template) = Template::read(document) else { return };
    let Ok(processed) = template.process(&mut Seeded(1)) else { return };
    let translated = translate(processed.objects.clone(), &means);
    assert_eq!(translated, translate(processed.objects.clone(), &means));
    match translated {
        Ok(Translated { objects, warnings }) => {
            hides(&warnings, holds);
            exposes_the_same(&processed.objects, &objects);
            let again = translate(objects.clone(), &means).map(|again| again.objects);
            assert_eq!(again, Ok(objects));
        }
        Err(faults) => {
            assert!(!faults.is_empty());
            hides(&faults, holds);
        }
    }
}

/// Asserts that bindings are given the same before and after. A Route without a host gets one, so its host is left out.
fn exposes_the_same(objects: &[Value], translated: &[Value]) {
    let has_host =
        |object: &Value| object["spec"]["host"].as_str().is_some_and(|it| !it.is_empty());
    if objects.iter().any(|object| object["kind"] == "Route" && !has_host(object)) {
        return;
    }
    if let Some(given) = exposed(objects) {
        assert_eq!(exposed(translated), Some(given));
    }
}

fn exposed(objects: &[Value]) -> Option<BTreeMap<String, String>> {
    expose(objects).ok()
}
