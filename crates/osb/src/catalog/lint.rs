//! Faults of a catalog against the specification, all at once.
//!
//! A platform refuses a whole catalog for one fault, often without saying which; so a broker's
//! author learns of every fault before a platform does.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use super::CompiledCatalog;
use super::schemas::PlanSchemas;
use crate::fields::{Fault, Faults, Path};
use crate::model::{Catalog, DashboardClient, MaintenanceInfo, Object, Service};

/// The vendor extension by which a service or a plan says whether its bindings need an application
/// (see [`PlanEntry::requires_app`](super::PlanEntry::requires_app)).
pub(super) const REQUIRES_APP: &str = "manciple_requires_app";
/// The extension of a plan, or of its service, that says that the broker checks the parameters of updates itself.
pub(super) const CHECKS_UPDATES: &str = "manciple_checks_updates";

const SERVICE_MEMBERS: [&str; 13] = [
    "id",
    "name",
    "description",
    "bindable",
    "plans",
    "tags",
    "requires",
    "instances_retrievable",
    "bindings_retrievable",
    "allow_context_updates",
    "metadata",
    "dashboard_client",
    "plan_updateable",
];

const PLAN_MEMBERS: [&str; 11] = [
    "id",
    "name",
    "description",
    "metadata",
    "free",
    "bindable",
    "plan_updateable",
    "binding_rotatable",
    "schemas",
    "maximum_polling_duration",
    "maintenance_info",
];

/// Every fault of a catalog against the specification; empty if it may be served.
pub fn lint(catalog: &Catalog) -> Vec<Fault> {
    let faults = Faults::default();
    inspect(catalog, None, &faults);
    faults.into_vec()
}

/// Notes every fault, and returns the compiled schemas of each plan, service by service. Schemas that the catalog
/// `before` has too are taken from it: they had no faults.
pub(super) fn inspect(
    catalog: &Catalog,
    before: Option<&CompiledCatalog>,
    faults: &Faults,
) -> Vec<Vec<Arc<PlanSchemas>>> {
    let services = Path::Root.member("services");
    let mut names = Unique::new("name");
    let mut ids = Unique::new("id");
    let mut compiled = Vec::with_capacity(catalog.services.len());
    for (index, service) in catalog.services.iter().enumerate() {
        let path = services.index(index);
        ids.check(service.id.as_str(), &path, faults);
        names.check(&service.name, &path, faults);
        inspect_service(service, &path, faults);
        compiled.push(inspect_plans(service, before, &path, &mut ids, faults));
    }
    compiled
}

fn inspect_service(service: &Service, path: &Path<'_>, faults: &Faults) {
    not_empty(&service.name, &path.member("name"), faults);
    not_empty(&service.description, &path.member("description"), faults);
    if service.plans.is_empty() {
        faults.add(path.member("plans"), "must hold at least one plan");
    }
    if let Some(DashboardClient { id, secret, .. }) = &service.dashboard_client {
        let path = path.member("dashboard_client");
        not_empty(id, &path.member("id"), faults);
        not_empty(secret.expose(), &path.member("secret"), faults);
    }
    inspect_extensions(&service.extensions, &SERVICE_MEMBERS, path, faults);
}

fn inspect_plans<'c>(
    service: &'c Service,
    before: Option<&CompiledCatalog>,
    path: &Path<'_>,
    ids: &mut Unique<'c>,
    faults: &Faults,
) -> Vec<Arc<PlanSchemas>> {
    let parent = path.member("plans");
    let mut names = Unique::new("name");
    let mut compiled = Vec::with_capacity(service.plans.len());
    // The one plan of a service may bear its id: brokers do so whose platforms know what they ordered by it.
    let is_alone = service.plans.len() == 1;
    for (index, plan) in service.plans.iter().enumerate() {
        let path = parent.index(index);
        if !is_alone || plan.id.as_str() != service.id.as_str() {
            ids.check(plan.id.as_str(), &path, faults);
        }
        names.check(&plan.name, &path, faults);
        not_empty(&plan.name, &path.member("name"), faults);
        not_empty(&plan.description, &path.member("description"), faults);
        if plan.maximum_polling_duration == Some(0) {
            faults.add(path.member("maximum_polling_duration"), "must be more than 0 seconds");
        }
        if let Some(MaintenanceInfo { version, .. }) = &plan.maintenance_info
            && let Err(error) = semver::Version::parse(version)
        {
            let path = path.member("maintenance_info");
            let message = format!("must be a semantic version such as 1.2.3: {error}");
            faults.add(path.member("version"), message);
        }
        inspect_extensions(&plan.extensions, &PLAN_MEMBERS, &path, faults);
        let known = before.and_then(|before| before.schemas_of(plan));
        let compile = || Arc::new(PlanSchemas::compile(plan, &path, faults));
        compiled.push(known.unwrap_or_else(compile));
    }
    compiled
}

/// Notes extensions that bear a member's name: they would be served beside the member, twice in one object.
fn inspect_extensions(extensions: &Object, members: &[&str], path: &Path<'_>, faults: &Faults) {
    for (name, value) in extensions {
        if members.contains(&name.as_str()) {
            faults.add(
                path.member(name),
                "must not be an extension: it is a member of the specification",
            );
        }
        if [REQUIRES_APP, CHECKS_UPDATES].contains(&name.as_str()) && !value.is_boolean() {
            faults.add(path.member(name), "must be true or false");
        }
    }
}

fn not_empty(text: &str, path: &Path<'_>, faults: &Faults) {
    if text.is_empty() {
        faults.add(path, "must be a non-empty string");
    }
}

/// Values that may be borne only once, each with the path that bore it first.
struct Unique<'c> {
    member: &'static str,
    seen: HashMap<&'c str, String>,
}

impl<'c> Unique<'c> {
    fn new(member: &'static str) -> Self {
        Self { member, seen: HashMap::new() }
    }

    fn check(&mut self, value: &'c str, path: &impl Display, faults: &Faults) {
        let path = format!("{path}.{}", self.member);
        match self.seen.get(value) {
            Some(first) => faults.add(path, format!("must be unique, and is the same as {first}")),
            None => drop(self.seen.insert(value, path)),
        }
    }
}
