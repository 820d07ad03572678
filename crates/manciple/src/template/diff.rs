//! `manciple template diff`: what another version of a template changes in its objects.

use std::collections::BTreeMap;

use serde_json::Value;
use template::{NoRandomness, Random, Template};

use super::args::DiffArgs;
use super::given::{self, Given};
use super::{documents, invalid, print};
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// Shown in place of what a Secret holds.
const HIDDEN: &str = "(not shown)";

pub(super) async fn print(args: &DiffArgs, out: Output) -> Result<(), Failure> {
    let values = &args.given;
    let given = given::read(&[], values, out).await?;
    let template = async |path| documents::one(path, out).await;
    let (old, new) = (template(&args.old).await?, template(&args.new).await?);
    // A value of one that the other has not is no mistake.
    let known = |name: &String| [&old, &new].iter().any(|it| has(it, name));
    if let Some(name) = given.keys().find(|name| !known(name))
        && !values.ignore_unknown_parameters
    {
        return Err(Failure::usage(format!("unknown parameter name {name:?}")));
    }
    let (old, new) = (objects(old, &given)?, objects(new, &given)?);
    let mut changed = false;
    for line in changes(&old, &new) {
        changed = true;
        out.foreign(&format!("{line}\n"))?;
    }
    if !changed {
        out.note("no differences");
    }
    Ok(())
}

fn has(template: &Template, name: &str) -> bool {
    template.parameters.iter().any(|it| it.name == name)
}

/// By what they are, in one order.
type Objects = BTreeMap<String, Value>;

fn objects(mut template: Template, given: &Given) -> Result<Objects, Failure> {
    given::apply(&mut template, given, true)?;
    let name = template.name().to_owned();
    let processed = template.process(&mut Same).map_err(|faults| invalid(&name, &faults))?;
    let named = |object: Value| {
        let namespace = object["metadata"]["namespace"].as_str();
        let namespace = namespace.map(|it| format!("{it}/")).unwrap_or_default();
        (format!("{namespace}{}", print::name(&object)), object)
    };
    Ok(processed.objects.into_iter().map(named).collect())
}

/// Generates the same for both: a password that was made is no difference.
struct Same;

impl Random for Same {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandomness> {
        bytes.fill(0);
        Ok(())
    }
}

/// A line for each object that comes or goes, and for each place that changes in one that stays.
fn changes(old: &Objects, new: &Objects) -> Vec<String> {
    let mut lines = Vec::new();
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        lines.push(format!("- {name}"));
    }
    for (name, object) in new {
        let Some(before) = old.get(name) else {
            lines.push(format!("+ {name}"));
            continue;
        };
        let mut places = Vec::new();
        differ("", before, object, &mut places);
        if !places.is_empty() {
            lines.push(format!("~ {name}"));
            let is_secret = object["kind"] == "Secret";
            lines.extend(places.iter().map(|place| format!("    {}", place.words(is_secret))));
        }
    }
    lines
}

/// A place that is other than before.
struct Change<'a> {
    path: String,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
}

impl Change<'_> {
    fn words(&self, is_secret: bool) -> String {
        let hides =
            is_secret && (self.path.starts_with("data") || self.path.starts_with("stringData"));
        let shown = |value: &Value| if hides { HIDDEN.to_owned() } else { value.to_string() };
        let path = &self.path;
        match (self.old, self.new) {
            (Some(old), Some(new)) => format!("{path}: {} → {}", shown(old), shown(new)),
            (Some(old), None) => format!("{path}: {} → nothing", shown(old)),
            (None, Some(new)) => format!("{path}: nothing → {}", shown(new)),
            (None, None) => path.clone(),
        }
    }
}

fn differ<'a>(path: &str, old: &'a Value, new: &'a Value, changes: &mut Vec<Change<'a>>) {
    let mut change = |path: String, old: Option<&'a Value>, new: Option<&'a Value>| match (old, new)
    {
        (Some(old), Some(new)) => differ(&path, old, new, changes),
        (old, new) => changes.push(Change { path, old, new }),
    };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let dot = if path.is_empty() { "" } else { "." };
                change(format!("{path}{dot}{key}"), old.get(key), new.get(key));
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                change(format!("{path}[{index}]"), old.get(index), new.get(index));
            }
        }
        (old, new) if old != new => {
            changes.push(Change { path: path.to_owned(), old: Some(old), new: Some(new) });
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: &str, more: Value) -> Objects {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}});
        object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Objects::from([(print::name(&object), object)])
    }

    #[test]
    fn what_changes_is_named_by_its_place() {
        let old = of(
            "Service",
            json!({"spec": {"ports": [{"port": 1}], "type": "ClusterIP", "gone": true}}),
        );
        let new = of(
            "Service",
            json!({"spec": {"ports": [{"port": 2}, {}], "type": "ClusterIP"}, "new": 1}),
        );
        assert_eq!(
            changes(&old, &new),
            [
                "~ service/x",
                "    spec.gone: true → nothing",
                "    spec.ports[0].port: 1 → 2",
                "    spec.ports[1]: nothing → {}",
                "    new: nothing → 1",
            ]
        );
        assert_eq!(changes(&old, &old), [""; 0]);
    }

    #[test]
    fn what_comes_and_goes_is_named() {
        let (old, new) = (of("Service", json!({})), of("Secret", json!({})));
        assert_eq!(changes(&old, &new), ["- service/x", "+ secret/x"]);
    }

    #[test]
    fn what_a_secret_holds_is_not_shown() {
        let old =
            of("Secret", json!({"stringData": {"a": "hunter2"}, "data": {"k": "aHVudGVyMg=="}}));
        let new =
            of("Secret", json!({"stringData": {"a": "hunter3", "b": "hunter4"}, "type": "t"}));
        let lines = changes(&old, &new);
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert!(lines.iter().all(|it| !it.contains("hunter") && !it.contains("aHVu")), "{lines:?}");
        assert!(lines.contains(&"    stringData.a: (not shown) → (not shown)".to_owned()));
    }
}
