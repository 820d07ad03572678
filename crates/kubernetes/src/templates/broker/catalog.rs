//! What is offered: each template as a service with one plan, as the original offers it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use osb::{Catalog, ParametersSchema, Plan, PlanId, SchemaGroup, Schemas, Service, ServiceId};
use serde_json::{Map, Value, json};
use template::Template;

/// Annotations of a template that its service bears as metadata, and under which names.
const METADATA: [(&[&str], &str); 6] = [
    (&["openshift.io/display-name"], "displayName"),
    (&["iconClass"], "console.openshift.io/iconClass"),
    (
        &["openshift.io/long-description", "template.openshift.io/long-description"],
        "longDescription",
    ),
    (
        &["openshift.io/provider-display-name", "template.openshift.io/provider-display-name"],
        "providerDisplayName",
    ),
    (
        &["openshift.io/documentation-url", "template.openshift.io/documentation-url"],
        "documentationUrl",
    ),
    (&["openshift.io/support-url", "template.openshift.io/support-url"], "supportUrl"),
];
const BINDABLE: &str = "template.openshift.io/bindable";

/// A template that is offered, as the API server has it.
pub(crate) struct Offered<'t> {
    pub(crate) uid: &'t str,
    pub(crate) namespace: &'t str,
    pub(crate) document: &'t Value,
}

/// The catalog of these, in the order of their namespaces and names, and what cannot be offered, each with why.
///
/// Of two with one name, which the specification forbids, the first bears it; the other is offered as NAME.NAMESPACE,
/// with its id behind that where something else is named so.
pub(crate) fn catalog<'t>(
    offered: impl IntoIterator<Item = Offered<'t>>,
) -> (Catalog, Vec<String>) {
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    let (mut second, mut refused) = (Vec::new(), Vec::new());
    for it in offered {
        let name = it.document["metadata"]["name"].as_str().unwrap_or_default();
        let words = format!("template {}/{name}", it.namespace);
        let mut service = match service(&it) {
            Ok(service) => service,
            Err(why) => {
                refused.push(format!("{words}: {why}"));
                continue;
            }
        };
        match services.entry(service.name.clone()) {
            Entry::Vacant(free) => drop(free.insert(service)),
            Entry::Occupied(_) => {
                service.name = format!("{name}.{}", it.namespace);
                second.push(service);
            }
        }
    }
    for mut service in second {
        // A name that is made gives way to none that is written.
        if services.contains_key(&service.name) {
            service.name = format!("{}.{}", service.name, service.id.as_str());
        }
        services.insert(service.name.clone(), service);
    }
    (Catalog { services: services.into_values().collect() }, refused)
}

/// One of them alone, if it can be served.
fn service(offered: &Offered<'_>) -> Result<Service, String> {
    let template = Template::read(offered.document.clone())
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let service = of_template(offered.uid, &template).map_err(|error| error.to_string())?;
    let faults = osb::catalog::lint(&Catalog { services: vec![service.clone()] });
    match faults.is_empty() {
        true => Ok(service),
        false => Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

fn of_template(uid: &str, template: &Template) -> Result<Service, osb::IdError> {
    let order: Vec<&str> = template.parameters.iter().map(|it| it.name.as_str()).collect();
    let schemas = Schemas {
        service_instance: Some(group(template.schema())),
        service_binding: Some(group(json!({
            "$schema": "http://json-schema.org/draft-04/schema",
            "type": "object",
            "additionalProperties": false,
        }))),
    };
    let form = json!({"schemas": {"service_instance": {"create": {
        "openshift_form_definition": order,
    }}}});
    let plan = Plan {
        id: PlanId::new(uid)?,
        name: "default".to_owned(),
        description: "Default plan".to_owned(),
        metadata: form.as_object().cloned(),
        free: Some(true),
        bindable: None,
        plan_updateable: None,
        binding_rotatable: None,
        schemas: Some(schemas),
        maximum_polling_duration: None,
        maintenance_info: None,
        extensions: Map::new(),
    };
    let annotation = |name: &str| template.annotation(name).filter(|text| !text.is_empty());
    let mut metadata = Map::new();
    for (annotations, member) in METADATA {
        if let Some(text) = annotations.iter().find_map(|name| annotation(name)) {
            metadata.insert(member.to_owned(), json!(text));
        }
    }
    let tags = annotation("tags").unwrap_or_default();
    let tags = tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned);
    Ok(Service {
        id: ServiceId::new(uid)?,
        name: template.name().to_owned(),
        description: annotation("description").unwrap_or("No description provided.").to_owned(),
        bindable: !annotation(BINDABLE).is_some_and(|said| said.eq_ignore_ascii_case("false")),
        plans: vec![plan],
        tags: tags.collect(),
        requires: Vec::new(),
        instances_retrievable: None,
        bindings_retrievable: None,
        allow_context_updates: None,
        metadata: Some(metadata).filter(|metadata| !metadata.is_empty()),
        dashboard_client: None,
        plan_updateable: None,
        extensions: Map::new(),
    })
}

fn group(schema: Value) -> SchemaGroup {
    SchemaGroup { create: Some(ParametersSchema { parameters: Some(schema) }), update: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(documents: &[Value]) -> (Vec<Value>, Vec<String>) {
        let all = documents.iter().map(|document| Offered {
            uid: document["metadata"]["uid"].as_str().unwrap(),
            namespace: document["metadata"]["namespace"].as_str().unwrap(),
            document,
        });
        let (catalog, refused) = catalog(all);
        let services = serde_json::to_value(catalog).unwrap()["services"].take();
        (services.as_array().unwrap().clone(), refused)
    }

    fn template(name: &str, annotations: Value, parameters: Value) -> Value {
        json!({
            "apiVersion": "template.openshift.io/v1", "kind": "Template",
            "metadata": {
                "name": name, "namespace": "openshift", "uid": format!("uid-{name}"),
                "annotations": annotations,
            },
            "objects": [], "parameters": parameters,
        })
    }

    fn only(annotations: Value, parameters: Value) -> Value {
        let (mut services, refused) = offered(&[template("t", annotations, parameters)]);
        assert_eq!((services.len(), refused), (1, Vec::new()));
        services.remove(0)
    }

    #[test]
    fn a_template_is_a_service_with_one_plan_of_its_id() {
        let service = only(json!({"description": "What it is", "tags": "a,b"}), json!([]));
        assert_eq!((&service["id"], &service["name"]), (&json!("uid-t"), &json!("t")));
        assert_eq!(service["description"], "What it is");
        assert_eq!(service["tags"], json!(["a", "b"]));
        assert_eq!(service["bindable"], true);
        let plans = service["plans"].as_array().unwrap();
        let plan = &plans[0];
        assert_eq!(plans.len(), 1);
        assert_eq!((&plan["id"], &plan["name"]), (&json!("uid-t"), &json!("default")));
        assert_eq!((&plan["description"], &plan["free"]), (&json!("Default plan"), &json!(true)));
    }

    #[test]
    fn what_a_template_does_not_say_has_the_words_of_the_original() {
        let service = only(json!({}), json!([]));
        assert_eq!(service["description"], "No description provided.");
        assert_eq!(service.get("tags"), None);
        assert_eq!(service.get("metadata"), None);
    }

    #[test]
    fn it_is_bindable_unless_it_says_false() {
        for (said, expected) in
            [("false", false), ("False", false), ("true", true), ("no", true), ("", true)]
        {
            let service = only(json!({BINDABLE: said}), json!([]));
            assert_eq!(service["bindable"], expected, "{said}");
        }
    }

    #[test]
    fn annotations_become_metadata_the_old_ones_too() {
        let service = only(
            json!({
                "openshift.io/display-name": "T", "iconClass": "icon-t",
                "openshift.io/long-description": "new",
                "template.openshift.io/long-description": "old",
                "template.openshift.io/provider-display-name": "P",
                "openshift.io/documentation-url": "d", "template.openshift.io/support-url": "s",
                "other": "none",
            }),
            json!([]),
        );
        let expected = json!({
            "displayName": "T", "console.openshift.io/iconClass": "icon-t", "longDescription": "new",
            "providerDisplayName": "P", "documentationUrl": "d", "supportUrl": "s",
        });
        assert_eq!(service["metadata"], expected);
    }

    #[test]
    fn parameters_are_the_schema_and_their_order_a_form() {
        let service = only(
            json!({}),
            json!([
                {"name": "Z", "required": true},
                {"name": "A", "displayName": "An a", "description": "What a is", "value": "1"},
                {"name": "M", "required": true, "generate": "expression", "from": "[a-z]{8}"},
            ]),
        );
        let plan = &service["plans"][0];
        let schema = &plan["schemas"]["service_instance"]["create"]["parameters"];
        assert_eq!(schema["required"], json!(["Z"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["A"]["title"], "An a");
        assert_eq!(schema["properties"]["M"], json!({"type": "string", "default": ""}));
        let form = &plan["metadata"]["schemas"]["service_instance"]["create"];
        assert_eq!(form["openshift_form_definition"], json!(["Z", "A", "M"]));
        let binding = &plan["schemas"]["service_binding"]["create"]["parameters"];
        assert_eq!(binding["additionalProperties"], false, "a binding has no parameters");
    }

    #[test]
    fn one_that_cannot_be_offered_keeps_no_other_from_it() {
        let mut elsewhere = template("t", json!({}), json!([]));
        elsewhere["metadata"]["uid"] = json!("uid-2");
        elsewhere["metadata"]["namespace"] = json!("other");
        let mut third = elsewhere.clone();
        third["metadata"]["uid"] = json!("uid-3");
        let wrong = template("wrong", json!({}), json!("none"));
        let many: Vec<Value> = (0..2000)
            .map(|index| json!({"name": format!("P{index}"), "description": "x".repeat(30)}))
            .collect();
        let large = template("large", json!({}), Value::Array(many));
        let all = [template("t", json!({}), json!([])), elsewhere, third, wrong, large];
        let (services, refused) = offered(&all);
        let names: Vec<&str> = services.iter().filter_map(|it| it["name"].as_str()).collect();
        assert_eq!(names, ["t", "t.other", "t.other.uid-3"]);
        assert_eq!(services[1]["id"], "uid-2");
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].contains("template openshift/wrong: template.parameters"));
        assert!(refused[1].contains("template openshift/large: "), "{refused:?}");
    }
}
