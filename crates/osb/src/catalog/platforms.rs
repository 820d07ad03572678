//! Checks a catalog for what platforms refuse although the specification allows it. Most refuse the whole catalog for
//! one such member, and tell only whoever registers the broker, if anybody.
//!
//! Source: Cloud Foundry's Cloud Controller (its validation of catalogs), and the Service Catalog of Kubernetes.

use std::collections::BTreeSet;
use std::fmt::Display;

use serde_json::Value;

use crate::fields::{Fault, Faults, Path};
use crate::model::{Catalog, Plan, Schemas, Service};

/// The longest tags that Cloud Foundry accepts, in characters.
const MAX_TAGS: usize = 2048;
const MAX_DESCRIPTION: usize = 10_000;
const MAX_MAINTENANCE_INFO: usize = 2000;
/// The draft of JSON Schema that each Cloud Controller knows; some know a few more.
const DRAFT: &str = "http://json-schema.org/draft-04/schema";
/// The longest name that the Service Catalog accepts, in characters.
const MAX_NAME: usize = 63;

/// The faults for which a platform may refuse a catalog, each with its path. The catalog is served all the same.
pub fn refused_elsewhere(catalog: &Catalog) -> Vec<Fault> {
    let faults = Faults::default();
    let services = Path::Root.member("services");
    if catalog.services.is_empty() {
        faults.add("services", "is empty: Cloud Foundry registers no broker without a service");
    }
    dashboard_clients(&catalog.services, &services, &faults);
    for (index, service) in catalog.services.iter().enumerate() {
        let path = services.index(index);
        of_service(service, &path, &faults);
        let plans = path.member("plans");
        for (index, plan) in service.plans.iter().enumerate() {
            of_plan(plan, &plans.index(index), &faults);
        }
    }
    faults.into_vec()
}

/// Notes the dashboard clients that Cloud Foundry refuses: it makes an OAuth client of each.
fn dashboard_clients(services: &[Service], path: &Path<'_>, faults: &Faults) {
    let mut known = BTreeSet::new();
    for (index, service) in services.iter().enumerate() {
        let id = service.dashboard_client.as_ref().map(|client| &client.id);
        if id.is_some_and(|id| !known.insert(id)) {
            let path = path.index(index);
            let client = path.member("dashboard_client");
            faults.add(client.member("id"), "is another service's too: not in Cloud Foundry");
        }
    }
}

fn of_service(service: &Service, path: &Path<'_>, faults: &Faults) {
    id(service.id.as_str(), path.member("id"), faults);
    name(&service.name, path.member("name"), faults);
    at_most(MAX_DESCRIPTION, &service.description, path.member("description"), faults);
    at_most(MAX_TAGS, &service.tags.concat(), path.member("tags"), faults);
    let shareable = service.metadata.as_ref().and_then(|metadata| metadata.get("shareable"));
    if shareable.is_some_and(|value| !value.is_boolean()) {
        let metadata = path.member("metadata");
        faults.add(metadata.member("shareable"), "is to Cloud Foundry true or false");
    }
    let client = service.dashboard_client.as_ref();
    if client.is_some_and(|client| client.redirect_uri.as_ref().is_none_or(String::is_empty)) {
        let client = path.member("dashboard_client");
        faults.add(client.member("redirect_uri"), "is needed by Cloud Foundry");
    }
}

fn of_plan(plan: &Plan, path: &Path<'_>, faults: &Faults) {
    id(plan.id.as_str(), path.member("id"), faults);
    name(&plan.name, path.member("name"), faults);
    at_most(MAX_DESCRIPTION, &plan.description, path.member("description"), faults);
    if let Some(info) = &plan.maintenance_info {
        let info = serde_json::to_string(info).unwrap_or_default();
        at_most(MAX_MAINTENANCE_INFO, &info, path.member("maintenance_info"), faults);
    }
    let Some(Schemas { service_instance, service_binding }) = &plan.schemas else { return };
    let schemas = path.member("schemas");
    for (member, group) in
        [("service_instance", service_instance), ("service_binding", service_binding)]
    {
        let group_path = schemas.member(member);
        let all = group.iter().flat_map(|it| [("create", &it.create), ("update", &it.update)]);
        for (of, schema) in all {
            let schema = schema.as_ref().and_then(|schema| schema.parameters.as_ref());
            let Some(schema) = schema else { continue };
            let of = group_path.member(of);
            let parameters = of.member("parameters");
            if !schema.is_object() {
                faults.add(parameters, "has to be an object for Cloud Foundry");
            } else if !is_of_the_first_draft(schema) {
                let known = format!("is surely known to Cloud Foundry as {DRAFT}# alone");
                faults.add(parameters.member("$schema"), known);
            } else if schema["type"] != "object" {
                let early = "has to be \"object\" for early Cloud Foundry";
                faults.add(parameters.member("type"), early);
            }
        }
    }
}

fn is_of_the_first_draft(schema: &Value) -> bool {
    schema["$schema"].as_str().is_some_and(|draft| draft.trim_end_matches('#') == DRAFT)
}

fn at_most(most: usize, text: &str, path: impl Display, faults: &Faults) {
    if text.chars().count() > most {
        faults.add(path, format!("has more than the {most} characters that Cloud Foundry takes"));
    }
}

fn name(name: &str, path: impl Display, faults: &Faults) {
    if !is_plain(name) {
        faults.add(path, format!("{WANTED}, as the Service Catalog of Kubernetes wants it"));
    }
}

fn id(id: &str, path: impl Display, faults: &Faults) {
    let ends = [id.chars().next(), id.chars().next_back()];
    if !is_plain(id) || !ends.into_iter().flatten().all(|c| c.is_ascii_alphanumeric()) {
        let ends = "and neither at an end";
        faults
            .add(path, format!("{WANTED}, {ends}, as the Service Catalog of Kubernetes wants it"));
    }
}

const WANTED: &str = "has not just letters, digits, dashes and dots, 63 at most";

fn is_plain(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    text.chars().all(fits) && text.chars().count() <= MAX_NAME
}
