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
/// Of two with one name, which the specification forbids, the first bears it; the other is offered as NAME.NAMESPACE.
pub(crate) fn catalog<'t>(
    offered: impl IntoIterator<Item = Offered<'t>>,
) -> (Catalog, Vec<String>) {
    let mut services: BTreeMap<String, Service> = BTreeMap::new();
    let mut refused = Vec::new();
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
        if let Entry::Occupied(_) = services.entry(service.name.clone()) {
            service.name = format!("{name}.{}", it.namespace);
        }
        match services.entry(service.name.clone()) {
            Entry::Vacant(free) => drop(free.insert(service)),
            Entry::Occupied(_) => refused.push(format!("{words}: another has its name")),
        }
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
