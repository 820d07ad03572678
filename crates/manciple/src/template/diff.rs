//! `manciple template diff`: prints what another version of a template changes in its objects.

use std::collections::BTreeMap;

use serde_json::Value;
use template::{Template, Zeros};

use super::args::DiffArgs;
use super::given::{self, Given};
use super::{documents, invalid, print};
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// The text in place of a Secret's content.
const HIDDEN: &str = "(not shown)";
/// The text where nothing was, or is.
pub(super) const NOTHING: &str = "nothing";

pub(super) async fn print(args: &DiffArgs, out: Output) -> Result<(), Failure> {
    let values = &args.given;
    given::once([&args.old, &args.new].into_iter().chain(&values.files))?;
    let given = given::read(&[], values, out).await?;
    let template = async |path| documents::one(path, out).await;
    let (old, new) = (template(&args.old).await?, template(&args.new).await?);
    // A value of one that the other has not is no mistake.
    let known = |name: &String| [&old, &new].iter().any(|it| has(it, name));
    if let Some(name) = given.keys().find(|name| !known(name))
        && values.ignore_unknown_parameters != Some(true)
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

/// Objects by kind and name, in one order.
type Objects = BTreeMap<String, Value>;

fn objects(mut template: Template, given: &Given) -> Result<Objects, Failure> {
    given::apply(&mut template, given, true)?;
    let name = template.name().to_owned();
    let processed = template.process(&mut Zeros).map_err(|faults| invalid(&name, &faults))?;
    Ok(named(processed.objects))
}

/// The objects by kind and name; several of one name are numbered.
fn named(all: Vec<Value>) -> Objects {
    let mut objects = Objects::new();
    for object in all {
        let namespace = object["metadata"]["namespace"].as_str();
        let namespace = namespace.map(|it| format!("{it}/")).unwrap_or_default();
        let name = format!("{namespace}{}", print::name(&object));
        let taken = (2..).map(|number| format!("{name} ({number})"));
        let mut names = std::iter::once(name.clone()).chain(taken);
        if let Some(free) = names.find(|name| !objects.contains_key(name)) {
            objects.insert(free, object);
        }
    }
    objects
}

/// The changes, with a line for each object that comes or goes, and for each place that changes in one that stays.
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
        let places = places(before, object);
        if !places.is_empty() {
            lines.push(format!("~ {name}"));
            lines.extend(places.iter().map(|place| format!("    {}", place.words())));
        }
    }
    lines
}

/// The places in which an object differs from the one before.
pub(super) fn places<'a>(before: &'a Value, object: &'a Value) -> Vec<Change<'a>> {
    let mut places = Vec::new();
    differ("", false, before, object, &mut places);
    places
}

/// A place in which an object differs from the one before.
pub(super) struct Change<'a> {
    pub(super) path: String,
    /// Whether the place is in a Secret, or a copy of one.
    hidden: bool,
    old: Option<&'a Value>,
    new: Option<&'a Value>,
}

impl Change<'_> {
    /// The change for people: "spec.replicas: 1 → 2".
    fn words(&self) -> String {
        let [old, new] = self.shown().map(|shown| shown.unwrap_or_else(|| NOTHING.to_owned()));
        format!("{}: {old} → {new}", self.path)
    }

    /// The value before and after, as JSON, as far as it may be shown; `None`: nothing.
    pub(super) fn shown(&self) -> [Option<String>; 2] {
        [self.old, self.new].map(|value| {
            value.map(|value| if self.hidden { HIDDEN.to_owned() } else { value.to_string() })
        })
    }
}

/// Whether a member's value must not be shown: most of a Secret, and of other objects the copy that `kubectl apply`
/// keeps.
fn hides(key: &str, of_secret: bool) -> bool {
    let seen = ["apiVersion", "kind", "type", "immutable", "metadata"];
    (of_secret && !seen.contains(&key)) || key == "kubectl.kubernetes.io/last-applied-configuration"
}

fn differ<'a>(
    path: &str,
    hidden: bool,
    old: &'a Value,
    new: &'a Value,
    changes: &mut Vec<Change<'a>>,
) {
    let mut change =
        |path: String, hidden, old: Option<&'a Value>, new: Option<&'a Value>| match (old, new) {
            (Some(old), Some(new)) => differ(&path, hidden, old, new, changes),
            (old, new) => changes.push(Change { path, hidden, old, new }),
        };
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let of_secret =
                [old, new].iter().any(|it| it.get("kind").is_some_and(|it| it == "Secret"));
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let dot = if path.is_empty() { "" } else { "." };
                let hidden = hidden || hides(key, of_secret);
                change(format!("{path}{dot}{key}"), hidden, old.get(key), new.get(key));
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                change(format!("{path}[{index}]"), hidden, old.get(index), new.get(index));
            }
        }
        (old, new) if old != new => {
            let (old, new) = (Some(old), Some(new));
            changes.push(Change { path: path.to_owned(), hidden, old, new });
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
    fn a_secret_within_another_is_one() {
        let item = |value| json!({"kind": "Secret", "stringData": {"a": value}});
        let of = |value| of("List", json!({"items": [item(value)]}));
        assert_eq!(
            changes(&of("hunter2"), &of("hunter3")),
            ["~ list/x", "    items[0].stringData.a: (not shown) → (not shown)"]
        );
    }

    #[test]
    fn those_with_one_name_are_told_apart() {
        let one = |data| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data});
        let (old, new) = (named(vec![one(1), one(2)]), named(vec![one(1)]));
        assert_eq!(changes(&old, &new), ["- configmap/x (2)"]);
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
