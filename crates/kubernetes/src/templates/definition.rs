//! The definitions of the original's kinds, for clusters that lack them.
//!
//! What they do not know is kept: objects are anything, and a template's metadata is more than it seems.

use serde_json::{Value, json};

use super::names::{GROUP, Kind, VERSION};
use crate::resources::{column, condition_list, described, object, text};

/// For any API server from 1.16 on. OpenShift serves these kinds itself: nothing is installed there.
pub fn definition(kind: Kind) -> Value {
    let (name, plural) = (kind.name(), kind.plural());
    let scope = match kind {
        Kind::BrokerTemplateInstance => "Cluster",
        Kind::Template | Kind::TemplateInstance => "Namespaced",
    };
    let mut version = json!({
        "name": VERSION,
        "served": true,
        "storage": true,
        "schema": {"openAPIV3Schema": schema(kind)},
        "additionalPrinterColumns": columns(kind),
    });
    if kind == Kind::TemplateInstance {
        version["subresources"] = json!({"status": {}});
    }
    let mut metadata = json!({"name": format!("{plural}.{GROUP}")});
    if kind == Kind::TemplateInstance {
        // For whoever binds workloads: servicebinding.io, "Provisioned Service".
        metadata["labels"] = json!({"servicebinding.io/provisioned-service": "true"});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": name,
                "listKind": format!("{name}List"),
                "plural": plural,
                "singular": name.to_lowercase(),
            },
            "versions": [version],
        },
    })
}

fn columns(kind: Kind) -> Value {
    let condition =
        |name: &str, of: &str| format!(r#".status.conditions[?(@.type=="{name}")].{of}"#);
    let shown: Vec<(&str, String, u32)> = match kind {
        Kind::Template => {
            vec![("Description", ".metadata.annotations.description".to_owned(), 0)]
        }
        Kind::TemplateInstance => vec![
            ("Template", ".spec.template.metadata.name".to_owned(), 0),
            ("Ready", condition("Ready", "status"), 0),
            ("Reason", condition("Ready", "reason"), 0),
            ("Failure", condition("InstantiateFailure", "message"), 0),
            ("Requester", ".spec.requester.username".to_owned(), 10),
        ],
        Kind::BrokerTemplateInstance => vec![
            ("Namespace", ".spec.templateInstance.namespace".to_owned(), 0),
            ("TemplateInstance", ".spec.templateInstance.name".to_owned(), 0),
            ("Bindings", ".spec.bindingIDs".to_owned(), 10),
        ],
    };
    let column =
        |(name, path, priority): (&str, String, u32)| column(name, "string", &path, priority);
    let mut columns: Vec<Value> = shown.into_iter().map(column).collect();
    let age = json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"});
    columns.push(age);
    Value::Array(columns)
}

fn schema(kind: Kind) -> Value {
    let (says, members) = match kind {
        Kind::Template => ("Objects with parameters in them.", template_members()),
        Kind::TemplateInstance => (
            "A template that becomes objects, in the name of its requester.",
            vec![("spec", instance_spec()), ("status", instance_status())],
        ),
        Kind::BrokerTemplateInstance => (
            "What a broker keeps of an instance that was ordered from it.",
            vec![("spec", broker_spec())],
        ),
    };
    let common =
        [("apiVersion", text("")), ("kind", text("")), ("metadata", json!({"type": "object"}))];
    let mut schema = object(says, common.into_iter().chain(members));
    match kind {
        // What it has beyond that is kept.
        Kind::Template => schema = open(schema),
        Kind::TemplateInstance | Kind::BrokerTemplateInstance => {
            schema["required"] = json!(["spec"]);
        }
    }
    schema
}

fn template_members() -> Vec<(&'static str, Value)> {
    let flag = nullable(json!({"type": "boolean"}));
    let mut name = text("By this it is referred to: ${NAME}, ${{NAME}}.");
    name["pattern"] = json!("^[a-zA-Z0-9_]+$");
    let mut parameter = object(
        "",
        [
            ("name", name),
            ("displayName", nullable(text("A name for people."))),
            ("description", nullable(text("What it is for."))),
            ("value", nullable(text("What it is unless somebody sets it."))),
            (
                "generate",
                nullable(text("expression: a value is made of from where there is none.")),
            ),
            ("from", nullable(text("What a value is made of."))),
            ("required", described(flag, "Whether an empty value is refused.")),
        ],
    );
    parameter["required"] = json!(["name"]);
    let list = |items: Value| nullable(json!({"type": "array", "items": items}));
    let labels = nullable(json!({"type": "object", "additionalProperties": {"type": "string"}}));
    vec![
        ("message", nullable(text("What whoever instantiates it is told."))),
        (
            "objects",
            described(list(open(json!({"type": "object"}))), "What becomes an object each."),
        ),
        ("parameters", described(list(open(parameter)), "What may be set.")),
        ("labels", described(labels, "What every object gets.")),
    ]
}

fn instance_spec() -> Value {
    let mut secret = object("Where its parameters are: a Secret.", [("name", text(""))]);
    secret["required"] = json!(["name"]);
    secret["properties"]["name"]["minLength"] = json!(1);
    let strings = || json!({"type": "array", "items": {"type": "string"}});
    let mut requester = object(
        "In whose name its objects are made. Another than who makes it may be named by those who may `assign`.",
        [
            ("username", text("")),
            ("uid", nullable(text(""))),
            ("groups", nullable(strings())),
            ("extra", nullable(json!({"type": "object", "additionalProperties": strings()}))),
        ],
    );
    requester["required"] = json!(["username"]);
    requester["properties"]["username"]["minLength"] = json!(1);
    let common = [
        ("apiVersion", text("")),
        ("kind", text("")),
        ("metadata", open(json!({"type": "object"}))),
    ];
    let template =
        object("A copy of the template, whole.", common.into_iter().chain(template_members()));
    let mut spec = object(
        "What is instantiated. Who may change it is said by the webhook.",
        [("template", open(template)), ("secret", secret), ("requester", requester)],
    );
    spec["required"] = json!(["template"]);
    spec
}

fn instance_status() -> Value {
    let reference = ["apiVersion", "kind", "namespace", "name", "uid"];
    let entry = object(
        "",
        [
            ("ref", open(object("Which.", reference.map(|name| (name, text("")))))),
            ("state", text("Created; or, of what is waited for, Waiting, Ready or Failed.")),
            ("message", text("What it waits for, or how it failed.")),
        ],
    );
    let objects = json!({"type": "array", "items": entry});
    let number = || json!({"type": "integer", "format": "int64"});
    let started = text("When that was taken up.");
    let generation = described(number(), "Of which spec it is.");
    let change = object(
        "The change that was taken up last.",
        [("generation", generation), ("startedAt", started)],
    );
    let revision =
        "Which revision of what was ordered it is, from 1: those before are in its Secret.";
    let status = object(
        "How it stands.",
        [
            ("conditions", condition_list("Ready, InstantiateFailure or Drifted.", [])),
            ("objects", described(objects, "What was made of it.")),
            ("observedGeneration", described(number(), "What the conditions are of.")),
            ("revision", described(number(), revision)),
            ("change", change),
            ("binding", object("What workloads are given: a Secret.", [("name", text(""))])),
        ],
    );
    open(status)
}

fn broker_spec() -> Value {
    let of = |kind: &str| {
        let mut reference = object(
            "",
            [
                ("kind", json!({"type": "string", "enum": [kind]})),
                ("namespace", json!({"type": "string", "minLength": 1})),
                ("name", json!({"type": "string", "minLength": 1})),
            ],
        );
        reference["required"] = json!(["kind", "namespace", "name"]);
        open(reference)
    };
    let hex = "[0-9a-fA-F]";
    let id = format!("^{hex}{{8}}-{hex}{{4}}-{hex}{{4}}-{hex}{{4}}-{hex}{{12}}$");
    let ids =
        json!({"type": "array", "nullable": true, "items": {"type": "string", "pattern": id}});
    let mut spec = object(
        "What was made, and who is bound to it.",
        [
            ("templateInstance", of("TemplateInstance")),
            ("secret", of("Secret")),
            ("bindingIDs", ids),
        ],
    );
    spec["required"] = json!(["templateInstance", "secret"]);
    spec
}

/// As the original reads it: what is null is absent. Kubernetes 1.20 takes an empty text for null, too.
fn nullable(mut schema: Value) -> Value {
    schema["nullable"] = json!(true);
    schema
}

/// What it does not know is kept.
fn open(mut schema: Value) -> Value {
    schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(kind: Kind) -> Value {
        definition(kind)["spec"]["versions"][0].take()
    }

    /// The schema of a member, by its path.
    fn member(kind: Kind, path: &str) -> Value {
        let mut schema = version(kind)["schema"]["openAPIV3Schema"].take();
        for name in path.split('.').filter(|name| !name.is_empty()) {
            schema = match name {
                "*" => schema["items"].take(),
                name => schema["properties"][name].take(),
            };
            assert!(schema.is_object(), "{path}: there is no {name}");
        }
        schema
    }

    #[test]
    fn kinds_have_the_scope_and_the_status_of_the_original() {
        for (kind, scope, status) in [
            (Kind::Template, "Namespaced", Value::Null),
            (Kind::TemplateInstance, "Namespaced", json!({"status": {}})),
            (Kind::BrokerTemplateInstance, "Cluster", Value::Null),
        ] {
            let defined = definition(kind);
            assert_eq!(defined["spec"]["scope"], scope, "{}", kind.name());
            assert_eq!(defined["spec"]["group"], "template.openshift.io");
            assert_eq!(defined["spec"]["versions"].as_array().map(Vec::len), Some(1));
            assert_eq!(version(kind)["name"], "v1");
            assert_eq!(version(kind)["subresources"], status, "{}", kind.name());
        }
    }

    #[test]
    fn a_template_has_its_members_at_the_top() {
        for (path, kind) in [
            ("message", "string"),
            ("objects", "array"),
            ("labels", "object"),
            ("parameters", "array"),
            ("parameters.*.name", "string"),
            ("parameters.*.displayName", "string"),
            ("parameters.*.description", "string"),
            ("parameters.*.value", "string"),
            ("parameters.*.generate", "string"),
            ("parameters.*.from", "string"),
            ("parameters.*.required", "boolean"),
        ] {
            assert_eq!(member(Kind::Template, path)["type"], kind, "{path}");
        }
        let parameter = member(Kind::Template, "parameters.*");
        assert_eq!(parameter["required"], json!(["name"]));
        assert_eq!(parameter["properties"]["name"]["pattern"], "^[a-zA-Z0-9_]+$");
        assert_eq!(member(Kind::Template, "")["properties"].get("spec"), None);
    }

    /// What the API server does not know it drops, and what is said to be an object it reads as one: neither may
    /// happen to what has parameters in it, nor to the uid of the template that was copied.
    #[test]
    fn what_has_parameters_in_it_is_kept_as_it_is() {
        for (kind, path) in [
            (Kind::Template, "objects.*"),
            (Kind::TemplateInstance, "spec.template.objects.*"),
            (Kind::TemplateInstance, "spec.template.metadata"),
            (Kind::TemplateInstance, "spec.template"),
        ] {
            let schema = member(kind, path);
            assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true, "{path}");
            assert_eq!(schema.get("x-kubernetes-embedded-resource"), None, "{path}");
            let limits = ["required", "additionalProperties"];
            assert!(limits.iter().all(|it| schema.get(it).is_none()), "{path}");
        }
    }

    #[test]
    fn columns_say_which_template_and_how_it_stands() {
        let names = |kind| {
            let columns = version(kind)["additionalPrinterColumns"].take();
            let name = |it: &Value| it["name"].as_str().unwrap().to_owned();
            columns.as_array().unwrap().iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(Kind::Template), ["Description", "Age"]);
        let instance = ["Template", "Ready", "Reason", "Failure", "Requester", "Age"];
        assert_eq!(names(Kind::TemplateInstance), instance);
        let template = &version(Kind::TemplateInstance)["additionalPrinterColumns"][0];
        assert_eq!(template["jsonPath"], ".spec.template.metadata.name");
    }
}
