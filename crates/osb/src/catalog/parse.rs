//! Reads a catalog from JSON: whatever a `/bin/broker catalog` printed or a file holds.
//!
//! Members beyond the specification are kept as extensions and served as they are.

use serde_json::Value;

use crate::fields::{Fault, Faults, Fields, Path, string};
use crate::model::{
    Catalog, DashboardClient, MaintenanceInfo, ParametersSchema, Permission, Plan, PlanId,
    SchemaGroup, Schemas, Sensitive, Service, ServiceId,
};

/// Reads a catalog from JSON, naming every member of a wrong type or missing, by path.
///
/// What the members say is judged by [`lint`](super::lint), here only where something else is wrong
/// already: so that every fault is reported at once.
///
/// # Errors
/// Every fault found, those of the lint included.
pub fn parse(value: &Value) -> Result<Catalog, Vec<Fault>> {
    let faults = Faults::default();
    let services = Fields::open(value.clone(), &Path::Root, &faults)
        .and_then(|mut root| root.list("services", service));
    let catalog = Catalog { services: services.unwrap_or_default() };
    if faults.is_empty() {
        return Ok(catalog);
    }
    let mut all = faults.into_vec();
    let more: Vec<_> = super::lint(&catalog)
        .into_iter()
        // What could not be read has no more to be said of.
        .filter(|fault| !all.iter().any(|known| known.path.starts_with(&fault.path)))
        .collect();
    all.extend(more);
    Err(all)
}

fn service(value: Value, path: &Path<'_>, faults: &Faults) -> Option<Service> {
    let mut fields = Fields::open(value, path, faults)?;
    // Each member is read before any is required, so that every fault is noted.
    let id = fields.id("id");
    let name = fields.text("name");
    let description = fields.text("description");
    let bindable = fields.boolean("bindable");
    let plans = fields.list("plans", plan);
    let tags = fields.optional_list("tags", string);
    let requires =
        fields.optional_list("requires", |word, path, faults| permission(&word, path, faults));
    let instances_retrievable = fields.optional_boolean("instances_retrievable");
    let bindings_retrievable = fields.optional_boolean("bindings_retrievable");
    let allow_context_updates = fields.optional_boolean("allow_context_updates");
    let metadata = fields.optional_object("metadata");
    let dashboard_client = fields.nested("dashboard_client", dashboard_client);
    let plan_updateable = fields.optional_boolean("plan_updateable");
    // Its place stands in for what could not be read, so that the lint can go on; it is not served.
    Some(Service {
        id: id.or_else(|| ServiceId::new(path.to_string()).ok())?,
        name: name.unwrap_or_else(|| path.to_string()),
        description: description.unwrap_or_else(|| path.to_string()),
        bindable: bindable.unwrap_or_default(),
        plans: plans.unwrap_or_default(),
        tags,
        requires,
        instances_retrievable,
        bindings_retrievable,
        allow_context_updates,
        metadata,
        dashboard_client,
        plan_updateable,
        extensions: fields.rest(),
    })
}

fn plan(value: Value, path: &Path<'_>, faults: &Faults) -> Option<Plan> {
    let mut fields = Fields::open(value, path, faults)?;
    let id = fields.id("id");
    let name = fields.text("name");
    let description = fields.text("description");
    let metadata = fields.optional_object("metadata");
    let free = fields.optional_boolean("free");
    let bindable = fields.optional_boolean("bindable");
    let plan_updateable = fields.optional_boolean("plan_updateable");
    let binding_rotatable = fields.optional_boolean("binding_rotatable");
    let schemas = fields.nested("schemas", schemas);
    let maximum_polling_duration = fields.optional_number("maximum_polling_duration");
    let maintenance_info = fields.nested("maintenance_info", maintenance_info);
    Some(Plan {
        id: id.or_else(|| PlanId::new(path.to_string()).ok())?,
        name: name.unwrap_or_else(|| path.to_string()),
        description: description.unwrap_or_else(|| path.to_string()),
        metadata,
        free,
        bindable,
        plan_updateable,
        binding_rotatable,
        schemas,
        maximum_polling_duration,
        maintenance_info,
        extensions: fields.rest(),
    })
}

fn permission(value: &Value, path: &Path<'_>, faults: &Faults) -> Option<Permission> {
    match value.as_str() {
        Some("syslog_drain") => Some(Permission::SyslogDrain),
        Some("route_forwarding") => Some(Permission::RouteForwarding),
        Some("volume_mount") => Some(Permission::VolumeMount),
        _ => {
            faults.add(path, "must be one of syslog_drain, route_forwarding and volume_mount");
            None
        }
    }
}

fn dashboard_client(mut fields: Fields<'_>) -> Option<DashboardClient> {
    let id = fields.text("id");
    let secret = fields.text("secret");
    let redirect_uri = fields.optional_string("redirect_uri");
    Some(DashboardClient { id: id?, secret: Sensitive::new(secret?), redirect_uri })
}

fn maintenance_info(mut fields: Fields<'_>) -> Option<MaintenanceInfo> {
    let version = fields.text("version");
    let description = fields.optional_string("description");
    Some(MaintenanceInfo { version: version?, description })
}

fn schemas(mut fields: Fields<'_>) -> Option<Schemas> {
    let service_instance = fields.nested("service_instance", schema_group);
    let service_binding = fields.nested("service_binding", schema_group);
    Some(Schemas { service_instance, service_binding })
}

fn schema_group(mut fields: Fields<'_>) -> Option<SchemaGroup> {
    let create = fields.nested("create", parameters_schema);
    let update = fields.nested("update", parameters_schema);
    Some(SchemaGroup { create, update })
}

fn parameters_schema(mut fields: Fields<'_>) -> Option<ParametersSchema> {
    Some(ParametersSchema { parameters: fields.take("parameters") })
}
