//! The catalog: each template is a service with one plan, as in OpenShift.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use osb::{
    Catalog, MaintenanceInfo, ParametersSchema, Plan, PlanId, SchemaGroup, Schemas, Service,
    ServiceId,
};
use serde_json::{Map, Value, json};
use template::Template;

use super::stock::OfferedTemplate;
use super::strict::StatusCodes;

/// The annotations of a template that become metadata of its service, and the names of the metadata.
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
/// The plan extension which says that the schema does not hold for instances of earlier revisions.
const CHECKS_UPDATES: &str = "manciple_checks_updates";
const BINDABLE: &str = "template.openshift.io/bindable";

/// The catalog of templates, in this order, and those that cannot be offered, each with the reason.
///
/// The specification forbids two services with one name: the first template bears it; the other is offered as
/// NAME.NAMESPACE, with its id appended where that name is taken, too.
pub(super) fn catalog<'t>(
    all: impl IntoIterator<Item = &'t OfferedTemplate>,
    codes: StatusCodes,
) -> (Catalog, Vec<String>) {
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    let (mut second, mut refused) = (Vec::new(), Vec::new());
    for template in all {
        let mut service = match &template.service {
            Ok(service) => service.clone(),
            Err(why) => {
                refused.push(format!("{}: {why}", template.words()));
                continue;
            }
        };
        if codes == StatusCodes::Original {
            without_changes(&mut service);
        }
        match services.entry(service.name.clone()) {
            Entry::Vacant(free) => drop(free.insert(service)),
            Entry::Occupied(_) => {
                service.name = format!("{}.{}", template.name, template.namespace);
                second.push(service);
            }
        }
    }
    for mut service in second {
        // No generated name displaces a given one.
        if services.contains_key(&service.name) {
            service.name = format!("{}.{}", service.name, service.id.as_str());
        }
        services.insert(service.name.clone(), service);
    }
    (Catalog { services: services.into_values().collect() }, refused)
}

/// Removes from a service what OpenShift's broker does not serve: it neither changes nor shows instances.
fn without_changes(service: &mut Service) {
    service.instances_retrievable = Some(false);
    service.bindings_retrievable = Some(false);
    for plan in &mut service.plans {
        plan.maintenance_info = None;
        plan.extensions.remove(CHECKS_UPDATES);
        let schemas = plan.schemas.as_mut().and_then(|schemas| schemas.service_instance.as_mut());
        if let Some(schemas) = schemas {
            schemas.update = None;
        }
    }
}

/// The service of a template, with these ids.
///
/// # Errors
/// If the template cannot be offered; with the reason.
pub(super) fn service(
    id: &str,
    plan: &str,
    revision: &MaintenanceInfo,
    document: &Value,
) -> Result<Service, String> {
    let template = Template::read(document.clone())
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let id = ServiceId::new(id).map_err(|error| error.to_string())?;
    let plan = PlanId::new(plan).map_err(|error| error.to_string())?;
    let service = of_template(id, plan, revision, &template);
    let faults = osb::catalog::lint(&Catalog { services: vec![service.clone()] });
    match faults.is_empty() {
        true => Ok(service),
        false => Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

fn of_template(
    id: ServiceId,
    plan: PlanId,
    revision: &MaintenanceInfo,
    template: &Template,
) -> Service {
    let annotation = |name: &str| template.annotation(name).filter(|text| !text.is_empty());
    let mut metadata = Map::new();
    for (annotations, member) in METADATA {
        if let Some(text) = annotations.iter().find_map(|name| annotation(name)) {
            metadata.insert(member.to_owned(), json!(text));
        }
    }
    let tags = annotation("tags").unwrap_or_default();
    let tags = tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned);
    Service {
        id,
        name: template.name().to_owned(),
        description: annotation("description").unwrap_or("No description provided.").to_owned(),
        bindable: !annotation(BINDABLE).is_some_and(|said| said.eq_ignore_ascii_case("false")),
        plans: vec![plan_of(plan, revision, template)],
        tags: tags.collect(),
        requires: Vec::new(),
        instances_retrievable: None,
        bindings_retrievable: None,
        allow_context_updates: None,
        metadata: Some(metadata).filter(|metadata| !metadata.is_empty()),
        dashboard_client: None,
        plan_updateable: None,
        extensions: Map::new(),
    }
}

/// The plan of a template: the schema of its parameters, and the order in which a form asks for them.
fn plan_of(id: PlanId, revision: &MaintenanceInfo, template: &Template) -> Plan {
    let order: Vec<&str> = template.parameters.iter().map(|it| it.name.as_str()).collect();
    let schemas = Schemas {
        service_instance: Some(SchemaGroup {
            update: Some(parameters(of_change(template.schema()))),
            create: Some(parameters(template.schema())),
        }),
        service_binding: Some(SchemaGroup {
            create: Some(parameters(json!({
                "$schema": "http://json-schema.org/draft-04/schema",
                "type": "object",
                "additionalProperties": false,
            }))),
            update: None,
        }),
    };
    let form = json!({"schemas": {"service_instance": {"create": {
        "openshift_form_definition": order,
    }}}});
    Plan {
        id,
        name: "default".to_owned(),
        description: "Default plan".to_owned(),
        metadata: form.as_object().cloned(),
        free: Some(true),
        bindable: None,
        plan_updateable: None,
        binding_rotatable: None,
        schemas: Some(schemas),
        maximum_polling_duration: None,
        maintenance_info: Some(revision.clone()),
        // Updates are checked by the template that the instance has.
        extensions: Map::from_iter([(CHECKS_UPDATES.to_owned(), json!(true))]),
    }
}

/// The schema of an update: parameters that are left out stay as they are, so none is required.
fn of_change(mut schema: Value) -> Value {
    if let Some(members) = schema.as_object_mut() {
        members.remove("required");
    }
    schema
}

fn parameters(schema: Value) -> ParametersSchema {
    ParametersSchema { parameters: Some(schema) }
}

#[cfg(test)]
mod tests {
    use super::super::ids::Ids;
    use super::super::stock::Stock;
    use super::*;

    fn offered(documents: &[Value]) -> (Vec<Value>, Vec<String>) {
        offered_by(documents, StatusCodes::Specification)
    }

    fn offered_by(documents: &[Value], codes: StatusCodes) -> (Vec<Value>, Vec<String>) {
        let templates = documents.iter().map(|document| {
            let namespace = document["metadata"]["namespace"].as_str().unwrap();
            let seen = serde_json::from_str(&document.to_string()).unwrap();
            Stock::read(Ids::Uid, namespace, &seen).unwrap()
        });
        let templates: Vec<OfferedTemplate> = templates.collect();
        let (catalog, refused) = catalog(&templates, codes);
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
        let version = plan["maintenance_info"]["version"].as_str().unwrap();
        assert!(version.starts_with("1.0.0+"), "{version}");
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
        let change = &plan["schemas"]["service_instance"]["update"]["parameters"];
        assert_eq!(change["properties"], schema["properties"]);
        assert_eq!(change["additionalProperties"], false);
        assert_eq!(change.get("required"), None, "what is left out of a change stays as it is");
        assert_eq!(schema["properties"]["M"], json!({"type": "string", "default": ""}));
        let form = &plan["metadata"]["schemas"]["service_instance"]["create"];
        assert_eq!(form["openshift_form_definition"], json!(["Z", "A", "M"]));
        let binding = &plan["schemas"]["service_binding"]["create"]["parameters"];
        assert_eq!(binding["additionalProperties"], false, "a binding has no parameters");
    }

    #[test]
    fn what_the_original_does_not_serve_is_not_offered_in_its_way() {
        let template = template("t", json!({}), json!([{"name": "A"}]));
        let (services, _) = offered_by(&[template], StatusCodes::Original);
        let (service, plan) = (&services[0], &services[0]["plans"][0]);
        let retrievable = (&service["instances_retrievable"], &service["bindings_retrievable"]);
        assert_eq!(retrievable, (&json!(false), &json!(false)));
        assert_eq!(plan.get("maintenance_info"), None);
        assert_eq!(plan["schemas"]["service_instance"].get("update"), None);
        let create = &plan["schemas"]["service_instance"]["create"]["parameters"];
        assert_eq!(create["properties"]["A"]["type"], "string");
    }

    #[test]
    fn schemas_are_those_of_the_original_word_for_word() {
        let service = only(
            json!({}),
            json!([
                {"name": "A", "displayName": "An a", "description": "What a is", "required": true},
                {"name": "B", "value": "b"},
                {"name": "C", "required": true, "generate": "expression", "from": "[a-z]{8}"},
            ]),
        );
        let draft = "http://json-schema.org/draft-04/schema";
        let schema = json!({
            "$schema": draft, "type": "object", "additionalProperties": false, "required": ["A"],
            "properties": {
                "A": {"title": "An a", "description": "What a is", "default": "", "type": "string"},
                "B": {"default": "b", "type": "string"},
                "C": {"default": "", "type": "string"},
            },
        });
        let schemas = &service["plans"][0]["schemas"];
        assert_eq!(schemas["service_instance"]["create"], json!({"parameters": schema}));
        let none = json!({"$schema": draft, "type": "object", "additionalProperties": false});
        assert_eq!(schemas["service_binding"], json!({"create": {"parameters": none}}));
    }

    #[test]
    fn tags_are_what_is_between_commas() {
        for (said, expected) in
            [("a", json!(["a"])), ("a,b", json!(["a", "b"])), ("a,,b,", json!(["a", "b"]))]
        {
            assert_eq!(only(json!({"tags": said}), json!([]))["tags"], expected, "{said}");
        }
    }

    #[test]
    fn no_templates_are_no_services() {
        assert_eq!(offered(&[]), (Vec::new(), Vec::new()), "there it is null");
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
