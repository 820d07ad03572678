//! Input: a template, and a path through what it becomes: the first line is a JSONPath template, the rest a document.

use serde_json::Value;
use template::jsonpath::JsonPath;
use template::{Fault, Seeded, Template, expose};

use crate::{PLANTED, plants};

/// The property that reading, processing, looking for faults and following a path fail only by an error, that the
/// same seed makes the same objects, and that no fault has the value of a parameter.
pub fn templates(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (path, document) = text.split_once('\n').unwrap_or((&text, ""));
    let Ok(document) = serde_json::from_str::<Value>(document) else { return };
    if let Ok(path) = JsonPath::parse(path) {
        let _ = path.print(&document);
        let _ = path.allow_missing_keys(true).find(&document);
    }
    let holds = is_only_a_value(&document);
    let template = match Template::read(document) {
        Ok(template) => template,
        Err(faults) => return hides(&faults, holds),
    };
    hides(&template.lint(), holds);
    let _ = template.schema();
    let processed = template.clone().process(&mut Seeded(1));
    assert_eq!(processed, template.clone().process(&mut Seeded(1)));
    match processed {
        Ok(processed) => {
            assert_eq!(processed.objects.len(), template.objects.len());
            hides(&processed.warnings, holds);
            for object in &processed.objects {
                let _ = expose([object]);
            }
        }
        Err(faults) => hides(&faults, holds),
    }
}

/// Whether the planted secret is nowhere but where parameters have their values.
pub(crate) fn is_only_a_value(document: &Value) -> bool {
    let mut document = document.clone();
    let parameters = document.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        parameter.as_object_mut().and_then(|parameter| parameter.remove("value"));
    }
    !document.to_string().contains(PLANTED) && !plants(&document)
}

/// Asserts that no fault has the planted secret, if it `holds` that only values have it.
pub(crate) fn hides(faults: &[Fault], holds: bool) {
    for fault in faults.iter().filter(|_| holds) {
        assert!(!fault.to_string().contains(PLANTED), "{fault}");
    }
}
