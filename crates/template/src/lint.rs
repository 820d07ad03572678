//! Lints templates: finds what would fail later, or do something other than it seems to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::expose::{exposed, may_expose};
use crate::fault::{Fault, Place, Problem};
use crate::generate::{MOST_GENERATED, generate};
use crate::jsonpath::JsonPath;
use crate::random::Seeded;
use crate::substitute::{is_name, names, refers};
use crate::template::{Parameter, Template, kind_of};

/// The annotation by which an object is waited for; the value is `true`.
const WAIT: &str = "template.alpha.openshift.io/wait-for-ready";
/// The annotation that says whether bindings are allowed; they are, unless it is `false`.
const BINDABLE: &str = "template.openshift.io/bindable";
/// The kinds that the original waits for.
const WAITED_FOR: [&str; 7] =
    ["Build", "BuildConfig", "Deployment", "DeploymentConfig", "Job", "Route", "StatefulSet"];

impl Template {
    /// Everything that would fail once the template is instantiated or bound, and everything that does something other
    /// than it seems to ([`Problem::Questionable`]), in the order of the template. The values of parameters are not
    /// known.
    pub fn lint(&self) -> Vec<Fault> {
        let mut lint = Lint::default();
        let root = Place::Root("template");
        if self.name().is_empty() {
            let path = Place::Key(&Place::Key(&root, "metadata"), "name").to_string();
            lint.faults.push(Fault::new(path, Problem::Required, "a template has a name"));
        }
        if let Some(bindable) = self.annotation(BINDABLE)
            && !matches!(bindable.to_lowercase().as_str(), "true" | "false")
        {
            let place = Place::Key(&root, "metadata");
            let place = Place::Key(&place, "annotations");
            let detail = "is read as true: everything but false is";
            lint.questionable(&Place::Key(&place, BINDABLE), detail);
        }
        lint.text(&Place::Key(&root, "message"), &self.message);
        let place = Place::Key(&root, "objects");
        if self.objects.is_empty() {
            lint.questionable(&place, "there are none: it makes nothing");
        }
        let mut found = BTreeMap::new();
        for (index, object) in self.objects.iter().enumerate() {
            lint.object(&Place::Index(&place, index), object, &mut found);
        }
        let place = Place::Key(&root, "labels");
        for (key, value) in self.labels.iter().flatten() {
            lint.text(&Place::Key(&place, key), key);
            lint.text(&Place::Key(&place, key), value);
        }
        lint.parameters(&Place::Key(&root, "parameters"), &self.parameters);
        lint.faults.extend(self.unknown.iter().map(|path| {
            let detail = "does nothing: a template has no such member";
            Fault::new(path.clone(), Problem::Questionable, detail)
        }));
        lint.faults
    }
}

#[derive(Default)]
struct Lint {
    faults: Vec<Fault>,
    /// The parameters that are referred to, and where first.
    references: BTreeMap<String, String>,
}

/// The identity of an object: group and kind, namespace, name.
type Identity<'a> = (&'a str, &'a str, &'a str, &'a str);

impl Lint {
    fn questionable(&mut self, place: &Place<'_>, detail: impl Into<String>) {
        self.faults.push(Fault::new(place.to_string(), Problem::Questionable, detail));
    }

    fn required(&mut self, place: &Place<'_>, detail: &str) {
        self.faults.push(Fault::new(place.to_string(), Problem::Required, detail));
    }

    fn parameters(&mut self, place: &Place<'_>, parameters: &[Parameter]) {
        let mut known = BTreeSet::new();
        for (index, parameter) in parameters.iter().enumerate() {
            let place = Place::Index(place, index);
            let named = Place::Key(&place, "name");
            let name = parameter.name.as_str();
            if name.is_empty() {
                self.required(&named, "a parameter has a name");
            } else if !is_name(name) {
                let detail = "does not match ^[a-zA-Z0-9_]+$: nothing can refer to it";
                self.faults.push(Fault::invalid(named.to_string(), &name.into(), detail));
            } else if !known.insert(name) {
                let detail = "the last of them is used";
                let problem = Problem::Duplicate(format!("{name:?}"));
                self.faults.push(Fault::new(named.to_string(), problem, detail));
            } else if !self.references.contains_key(name) {
                self.questionable(&named, format!("nothing refers to {name}"));
            }
            self.generator(&place, parameter);
        }
        let unknown = self.references.iter().filter(|(name, _)| !known.contains(name.as_str()));
        let unknown = unknown.map(|(name, path)| {
            let detail = format!("there is no parameter {name}: the reference stays as it is");
            Fault::new(path.clone(), Problem::Questionable, detail)
        });
        self.faults.extend(unknown);
    }

    fn generator(&mut self, place: &Place<'_>, parameter: &Parameter) {
        let Parameter { value, generate: generator, from, required, .. } = parameter;
        let place = |key| Place::Key(place, key).to_string();
        match generator.as_str() {
            "" if !from.is_empty() => self.faults.push(Fault::new(
                place("from"),
                Problem::Questionable,
                "does nothing without generate: expression",
            )),
            "" => {}
            "expression" => match generate(from, &mut Seeded(0), MOST_GENERATED) {
                Err(refused) => {
                    let detail = refused.to_string();
                    self.faults.push(Fault::invalid(place("from"), &from.as_str().into(), detail));
                }
                Ok(made) if !value.is_empty() => self.faults.push(Fault::new(
                    place("generate"),
                    Problem::Questionable,
                    format!(
                        "does nothing, for there is a value; without it, it makes {} characters",
                        made.len()
                    ),
                )),
                Ok(made) if made.is_empty() && *required => {
                    self.faults.push(Fault::new(
                        place("from"),
                        Problem::Required,
                        "nothing is generated of nothing, and it is required",
                    ));
                }
                Ok(made) if made == *from => self.faults.push(Fault::new(
                    place("from"),
                    Problem::Questionable,
                    "is no expression like [a-zA-Z0-9]{8}: the value is this text",
                )),
                Ok(_) => {}
            },
            other => {
                let detail = "there is no such generator: expression is the only one";
                self.faults.push(Fault::invalid(place("generate"), &other.into(), detail));
            }
        }
    }

    /// Notes the parameters that a text refers to, and what only looks like a reference.
    fn text(&mut self, place: &Place<'_>, text: &str) {
        if !text.contains("${") {
            return;
        }
        for name in names(text) {
            let path = || place.to_string();
            self.references.entry(name.to_owned()).or_insert_with(path);
        }
        let whole = text.strip_prefix("${{").and_then(|it| it.strip_suffix("}}"));
        if text.contains("${{") && !whole.is_some_and(is_name) {
            let detail =
                "${{NAME}} is replaced only where it is the whole value: here it stays as it is";
            self.questionable(place, detail);
        }
    }

    fn object<'a>(
        &mut self,
        place: &Place<'_>,
        object: &'a Value,
        found: &mut BTreeMap<Identity<'a>, String>,
    ) {
        let Value::Object(map) = object else {
            let detail = format!("is {}, and an object is a map", kind_of(object));
            self.required(place, &detail);
            return;
        };
        self.value(place, object);
        let text = |of: &Value, key: &str| of[key].as_str().is_some_and(|it| !it.is_empty());
        for key in ["apiVersion", "kind"] {
            if !text(object, key) {
                self.required(&Place::Key(place, key), "every object has one");
            }
        }
        if map.get("items").is_some_and(Value::is_array) {
            let detail = "is a list, which no server takes: put its items into objects";
            self.questionable(&Place::Key(place, "items"), detail);
        }
        let metadata = &object["metadata"];
        let place = Place::Key(place, "metadata");
        if !text(metadata, "name") {
            let name = Place::Key(&place, "name");
            match text(metadata, "generateName") {
                true => self.questionable(&name, "with generateName every attempt makes another"),
                false => self.required(&name, "every object has one"),
            }
        }
        self.metadata(&place, object);
        let of = |value: &'a Value, key: &str| value[key].as_str().unwrap_or_default();
        let version = of(object, "apiVersion");
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let namespace = Some(of(metadata, "namespace")).filter(|it| refers(it));
        let identity =
            (group, of(object, "kind"), namespace.unwrap_or_default(), of(metadata, "name"));
        if let Some(first) = found.get(&identity).filter(|_| !identity.3.is_empty()) {
            let detail = format!("is the same object as that of {first}");
            let problem = Problem::Duplicate(format!("{:?}", identity.3));
            self.faults.push(Fault::new(place.to_string(), problem, detail));
        }
        found.entry(identity).or_insert_with(|| place.to_string());
    }

    fn metadata(&mut self, place: &Place<'_>, object: &Value) {
        let metadata = &object["metadata"];
        let namespace = Place::Key(place, "namespace");
        match &metadata["namespace"] {
            Value::Null => {}
            Value::String(text) if refers(text) => {}
            Value::String(text) if text.contains("${{") => {
                self.questionable(&namespace, "is removed: only ${NAME} says where an object is");
            }
            _ => self.questionable(&namespace, "is removed: objects are where the instance is"),
        }
        let labels = Place::Key(place, "labels");
        for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
            if !value.is_string() {
                let detail = "has to be a string: put quotes around it";
                let path = Place::Key(&labels, key).to_string();
                self.faults.push(Fault::invalid(path, value, detail));
            }
        }
        let annotations = Place::Key(place, "annotations");
        let of = |key: &str| object[key].as_str().unwrap_or_default();
        let (version, kind) = (of("apiVersion"), of("kind"));
        let is_known = !refers(kind) && !kind.contains("${{");
        for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
            let place = Place::Key(&annotations, key);
            let Some(text) = value.as_str() else {
                let detail = "has to be a string: put quotes around it";
                self.faults.push(Fault::invalid(place.to_string(), value, detail));
                continue;
            };
            if key == WAIT && is_known && !WAITED_FOR.contains(&kind) {
                self.questionable(&place, format!("the original waits for no {kind}"));
            }
            if let Some((name, _)) = exposed(key) {
                self.exposes(&place, name, text);
                if is_known && !may_expose(version, kind) {
                    let detail = "only a ConfigMap, a Secret, a Service, a Route or an Ingress exposes something";
                    self.questionable(&place, detail);
                }
            }
        }
    }

    fn exposes(&mut self, place: &Place<'_>, name: &str, path: &str) {
        if name.is_empty() {
            self.questionable(place, "names no credential");
        }
        // A path with parameters in it is not known yet.
        if refers(path) || path.contains("${{") {
            return;
        }
        if let Err(error) = JsonPath::parse(path) {
            self.faults.push(Fault::invalid(place.to_string(), &path.into(), error.to_string()));
        }
    }

    fn value(&mut self, place: &Place<'_>, value: &Value) {
        match value {
            Value::String(text) => self.text(place, text),
            Value::Array(list) => list
                .iter()
                .enumerate()
                .for_each(|(index, element)| self.value(&Place::Index(place, index), element)),
            Value::Object(map) => self.map(place, map),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn map(&mut self, place: &Place<'_>, map: &Map<String, Value>) {
        for (key, member) in map {
            let place = Place::Key(place, key);
            self.text(&place, key);
            self.value(&place, member);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lint(mut document: Value) -> Vec<String> {
        document["apiVersion"] = "template.openshift.io/v1".into();
        document["kind"] = "Template".into();
        let template = Template::read(document).unwrap();
        template.lint().iter().map(ToString::to_string).collect()
    }

    fn of_objects(objects: Value) -> Vec<String> {
        lint(json!({"metadata": {"name": "t"}, "objects": objects}))
    }

    fn secret(metadata: Value) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata});
        object["metadata"]["name"] = "s".into();
        object
    }

    #[test]
    fn a_good_template_has_no_faults() {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "${NAME}", "annotations": {WAIT: "true"}},
            "spec": {"replicas": "${{REPLICAS}}"},
        });
        let exposes = secret(json!({"annotations": {
            "template.openshift.io/expose-password": "{.data['password']}",
            "template.openshift.io/base64-expose-user": "{.data.user}",
        }}));
        let found = lint(json!({
            "metadata": {"name": "t", "annotations": {BINDABLE: "False"}},
            "objects": [object, exposes],
            "parameters": [
                {"name": "NAME", "required": true},
                {"name": "REPLICAS", "value": "1"},
                {"name": "KEY", "generate": "expression", "from": "[a-z]{8}"},
            ],
            "message": "${KEY}",
        }));
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn parameters_are_looked_at() {
        let found = lint(json!({
            "metadata": {"name": "t"},
            "objects": [secret(json!({}))],
            "message": "${A} ${B-C} ${D} ${E} ${F} ${G} ${H} ${UNKNOWN}",
            "parameters": [
                {"name": "A"}, {"name": "A"}, {"name": "B-C"}, {}, {"name": "UNUSED"},
                {"name": "D", "generate": "magic"},
                {"name": "E", "generate": "expression", "from": "[Z-A]{3}"},
                {"name": "F", "generate": "expression", "required": true},
                {"name": "G", "value": "v", "generate": "expression", "from": "[a-z]{8}"},
                {"name": "H", "from": "[a-z]{8}"},
            ],
        }));
        assert_eq!(
            found,
            [
                "template.parameters[1].name: Duplicate value: \"A\": the last of them is used",
                "template.parameters[2].name: Invalid value: \"B-C\": does not match ^[a-zA-Z0-9_]+$: nothing \
                 can refer to it",
                "template.parameters[3].name: Required value: a parameter has a name",
                "template.parameters[4].name: Questionable: nothing refers to UNUSED",
                "template.parameters[5].generate: Invalid value: \"magic\": there is no such generator: \
                 expression is the only one",
                "template.parameters[6].from: Invalid value: \"[Z-A]{3}\": invalid range specified: Z-A",
                "template.parameters[7].from: Required value: nothing is generated of nothing, and it is required",
                "template.parameters[8].generate: Questionable: does nothing, for there is a value; without it, \
                 it makes 8 characters",
                "template.parameters[9].from: Questionable: does nothing without generate: expression",
                "template.message: Questionable: there is no parameter UNKNOWN: the reference stays as it is",
            ]
        );
    }

    #[test]
    fn members_that_a_template_has_not_are_named() {
        let found = lint(json!({
            "metadata": {"name": "t"}, "objects": [secret(json!({}))], "Objects": [], "message": "${A}",
            "parameters": [{"name": "A", "valeu": "x"}],
        }));
        let said = "Questionable: does nothing: a template has no such member";
        assert_eq!(
            found,
            [format!("template.Objects: {said}"), format!("template.parameters[0].valeu: {said}")]
        );
    }

    #[test]
    fn objects_are_looked_at() {
        let found = of_objects(json!([
            null,
            {"metadata": {"namespace": "fixed"}},
            {"apiVersion": "v1", "kind": "List", "metadata": {"name": "l"}, "items": []},
            secret(json!({"namespace": "${{NS}}", "labels": {"v": 1.0}})),
            secret(json!({})),
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": "a${{NS}}"},
        ]));
        assert_eq!(
            found,
            [
                "template.objects[0]: Required value: is null, and an object is a map",
                "template.objects[1].apiVersion: Required value: every object has one",
                "template.objects[1].kind: Required value: every object has one",
                "template.objects[1].metadata.name: Required value: every object has one",
                "template.objects[1].metadata.namespace: Questionable: is removed: objects are where the \
                 instance is",
                "template.objects[2].items: Questionable: is a list, which no server takes: put its items into \
                 objects",
                "template.objects[3].metadata.namespace: Questionable: is removed: only ${NAME} says where an \
                 object is",
                "template.objects[3].metadata.labels.v: Invalid value: 1.0: has to be a string: put quotes \
                 around it",
                "template.objects[4].metadata: Duplicate value: \"s\": is the same object as that of \
                 template.objects[3].metadata",
                "template.objects[5].spec: Questionable: ${{NAME}} is replaced only where it is the whole value: \
                 here it stays as it is",
                "template.objects[5].metadata.name: Questionable: with generateName every attempt makes another",
                "template.objects[3].metadata.namespace: Questionable: there is no parameter NS: the reference \
                 stays as it is",
            ]
        );
    }

    #[test]
    fn annotations_are_looked_at() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {
            "template.openshift.io/expose-k": "{.spec}", WAIT: "true", "n": 1,
        }}});
        let broken = secret(json!({"annotations": {
            "template.openshift.io/expose-k": "{.data", "template.openshift.io/expose-": "x",
            "template.openshift.io/expose-p": "{.data.${NAME}",
        }}));
        let mut document = json!({"metadata": {"annotations": {BINDABLE: "no"}}});
        document["objects"] = json!([pod, broken]);
        document["parameters"] = json!([{"name": "NAME"}]);
        let pod = "template.objects[0].metadata.annotations";
        let secret = "template.objects[1].metadata.annotations";
        assert_eq!(
            lint(document),
            [
                "template.metadata.name: Required value: a template has a name".to_owned(),
                format!(
                    "template.metadata.annotations[{BINDABLE:?}]: Questionable: is read as true: everything but \
                     false is"
                ),
                format!("{pod}.n: Invalid value: 1: has to be a string: put quotes around it"),
                format!("{pod}[{WAIT:?}]: Questionable: the original waits for no Pod"),
                format!(
                    "{pod}[\"template.openshift.io/expose-k\"]: Questionable: only a ConfigMap, a Secret, a \
                     Service, a Route or an Ingress exposes something"
                ),
                format!(
                    "{secret}[\"template.openshift.io/expose-\"]: Questionable: names no credential"
                ),
                format!(
                    "{secret}[\"template.openshift.io/expose-k\"]: Invalid value: \"{{.data\": unclosed action"
                ),
            ]
        );
    }
}
