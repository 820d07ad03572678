//! The CustomResourceDefinitions of OpenShift's template kinds, for clusters that lack them.
//!
//! Unknown fields are kept: objects can be of any kind, and a template's metadata has more than is declared.

use serde_json::{Value, json};

use super::names::Kind;
use crate::definition::{
    Schema, age, column, condition_list, custom_resource, described, document, flag, object, text,
};

/// The CustomResourceDefinition of a kind, for any API server from Kubernetes 1.16 on. OpenShift serves these kinds
/// itself: nothing is installed there.
pub fn definition(kind: Kind) -> Value {
    let mut definition = custom_resource(&kind.resource(), &schema(kind), &columns(kind));
    match kind {
        Kind::Template => {}
        // The label for tools that bind workloads (servicebinding.io, "Provisioned Service").
        Kind::TemplateInstance => {
            let label = json!({"servicebinding.io/provisioned-service": "true"});
            definition["metadata"]["labels"] = label;
        }
        Kind::BrokerTemplateInstance => definition["spec"]["scope"] = json!("Cluster"),
    }
    definition
}

fn columns(kind: Kind) -> Vec<Value> {
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
    shown.into_iter().map(column).chain([age()]).collect()
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
    let schema = document(says, members);
    match kind {
        // Further members of a Template are kept.
        Kind::Template => schema.open(),
        Kind::TemplateInstance | Kind::BrokerTemplateInstance => schema.requires(&["spec"]),
    }
}

fn template_members() -> Vec<(&'static str, Value)> {
    let name =
        text("By this it is referred to: ${NAME}, ${{NAME}}.").with("pattern", "^[a-zA-Z0-9_]+$");
    let parameter = object(
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
            ("required", nullable(flag("Whether an empty value is refused."))),
        ],
    )
    .requires(&["name"]);
    let list = |items: Value| nullable(json!({"type": "array", "items": items}));
    let labels = nullable(json!({"type": "object", "additionalProperties": {"type": "string"}}));
    vec![
        ("message", nullable(text("What whoever instantiates it is told."))),
        (
            "objects",
            described(list(json!({"type": "object"}).open()), "What becomes an object each."),
        ),
        ("parameters", described(list(parameter.open()), "What may be set.")),
        ("labels", described(labels, "What every object gets.")),
    ]
}

fn instance_spec() -> Value {
    let named = || text("").with("minLength", 1);
    let secret = object("Where its parameters are: a Secret.", [("name", named())]);
    let strings = || json!({"type": "array", "items": {"type": "string"}});
    let requester = object(
        "In whose name its objects are made. Another than who makes it may be named by those who may `assign`.",
        [
            ("username", named()),
            ("uid", nullable(text(""))),
            ("groups", nullable(strings())),
            ("extra", nullable(json!({"type": "object", "additionalProperties": strings()}))),
        ],
    );
    let metadata = ("metadata", json!({"type": "object"}).open());
    let members = [metadata].into_iter().chain(template_members());
    let template = document("A copy of the template, whole.", members);
    object(
        "What is instantiated. Who may change it is said by the webhook.",
        [
            ("template", template.open()),
            ("secret", secret.requires(&["name"])),
            ("requester", requester.requires(&["username"])),
        ],
    )
    .requires(&["template"])
}

fn instance_status() -> Value {
    let reference = ["apiVersion", "kind", "namespace", "name", "uid"];
    let entry = object(
        "",
        [
            ("ref", object("Which.", reference.map(|name| (name, text("")))).open()),
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
    object(
        "How it stands.",
        [
            ("conditions", condition_list("Ready, InstantiateFailure or Drifted.", [])),
            ("objects", described(objects, "What was made of it.")),
            ("observedGeneration", described(number(), "What the conditions are of.")),
            ("revision", described(number(), revision)),
            ("change", change),
            ("binding", object("What workloads are given: a Secret.", [("name", text(""))])),
        ],
    )
    .open()
}

fn broker_spec() -> Value {
    let of = |kind: &str| {
        let named = || text("").with("minLength", 1);
        let members = [
            ("kind", json!({"type": "string", "enum": [kind]})),
            ("namespace", named()),
            ("name", named()),
        ];
        object("", members).requires(&["kind", "namespace", "name"]).open()
    };
    let hex = "[0-9a-fA-F]";
    let id = format!("^{hex}{{8}}-{hex}{{4}}-{hex}{{4}}-{hex}{{4}}-{hex}{{12}}$");
    let ids =
        json!({"type": "array", "nullable": true, "items": {"type": "string", "pattern": id}});
    object(
        "What was made, and who is bound to it.",
        [
            ("templateInstance", of("TemplateInstance")),
            ("secret", of("Secret")),
            ("bindingIDs", ids),
        ],
    )
    .requires(&["templateInstance", "secret"])
}

/// Lets a member be null, which OpenShift reads as absent. Kubernetes 1.20 takes an empty text for null, too.
fn nullable(schema: Value) -> Value {
    schema.with("nullable", true)
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
