//! Checks the bodies of requests by the specification, the catalog and the plans' schemas.
//!
//! Every fault is noted, not only the first; values are never repeated.

use serde_json::Value;

use super::body::{self, Arrived};
use crate::catalog::{self, CompiledCatalog, PlanEntry, SchemaUse};
use crate::error::{Error, ErrorKind};
use crate::fields::{Faults, Fields, Path};
use crate::model::{
    BindRequest, BindResource, BindingId, MaintenanceInfo, Object, PlanId, PreviousValues,
    ProvisionRequest, Sensitive, ServiceId, UpdateRequest,
};

/// The checker of a body.
#[derive(Clone, Copy)]
pub(super) struct Judge<'c, 'f> {
    /// The catalog; `None` before the first one was read: then only the shape is checked.
    pub(super) catalog: Option<&'c CompiledCatalog>,
    pub(super) faults: &'f Faults,
}

/// A request, and its plan where the body names one that the catalog has.
pub(super) type Judged<'c, R> = Option<(R, Option<&'c PlanEntry>)>;

impl<'c> Judge<'c, '_> {
    /// Checks the body of a provision.
    pub(super) fn provision(self, body: Arrived) -> Judged<'c, ProvisionRequest> {
        let mut fields = body::open(body, &Path::Root, self.faults)?;
        let service_id = fields.id("service_id");
        let plan_id = fields.id("plan_id");
        let organization_guid = fields.guid("organization_guid");
        let space_guid = fields.guid("space_guid");
        let context = fields.optional_object("context");
        let maintenance_info = fields.nested("maintenance_info", maintenance_info);
        let plan = self.plan(service_id.as_ref(), plan_id.as_ref());
        // Absent parameters are judged as none: a schema may require some.
        let parameters = self.parameters(&mut fields, plan, SchemaUse::Provision, true);
        let request = ProvisionRequest {
            service_id: service_id?,
            plan_id: plan_id?,
            organization_guid: organization_guid?,
            space_guid: space_guid?,
            context: context.map(Sensitive::new),
            parameters,
            maintenance_info,
        };
        Some((request, plan))
    }

    /// Checks the body of an update. Without `plan_id`, the backend checks the parameters by the schema.
    pub(super) fn update(self, body: Arrived) -> Judged<'c, UpdateRequest> {
        let mut fields = body::open(body, &Path::Root, self.faults)?;
        let service_id = fields.id("service_id");
        let plan_id = fields.optional_id("plan_id");
        let context = fields.optional_object("context");
        let previous_values = fields.nested("previous_values", previous_values);
        let maintenance_info = fields.nested("maintenance_info", maintenance_info);
        let plan = self.plan(service_id.as_ref(), plan_id.as_ref());
        let parameters = self.parameters(&mut fields, plan, SchemaUse::Update, false);
        let request = UpdateRequest {
            service_id: service_id?,
            plan_id,
            parameters,
            context: context.map(Sensitive::new),
            previous_values,
            maintenance_info,
        };
        Some((request, plan))
    }

    /// Checks the body of a bind or, with `predecessor_binding_id`, of a rotation, which needs nothing else.
    pub(super) fn bind(
        self,
        body: Arrived,
        binding: Option<&BindingId>,
    ) -> Judged<'c, BindRequest> {
        let mut fields = body::open(body, &Path::Root, self.faults)?;
        let predecessor: Option<BindingId> = fields.optional_id("predecessor_binding_id");
        let rotation = predecessor.is_some();
        let (service_id, plan_id) = if rotation {
            (fields.optional_id("service_id"), fields.optional_id("plan_id"))
        } else {
            (fields.id("service_id"), fields.id("plan_id"))
        };
        let context = fields.optional_object("context");
        let app_guid = fields.guid_if_any("app_guid");
        let bind_resource = fields.nested("bind_resource", bind_resource);
        let plan = self.plan(service_id.as_ref(), plan_id.as_ref());
        let parameters = self.parameters(&mut fields, plan, SchemaUse::Bind, !rotation);
        if plan.is_some_and(|plan| !plan.bindable()) {
            self.faults.add("plan_id", "must be of a plan whose instances can be bound");
        }
        if rotation && plan.is_some_and(|plan| !plan.binding_rotatable()) {
            self.faults.add(
                "predecessor_binding_id",
                "must not be sent: the plan is not binding_rotatable",
            );
        }
        if rotation && predecessor.as_ref() == binding {
            self.faults.add("predecessor_binding_id", "must not be the id of the new binding");
        }
        let request = BindRequest {
            service_id,
            plan_id,
            context: context.map(Sensitive::new),
            app_guid,
            bind_resource,
            parameters,
            predecessor_binding_id: predecessor,
        };
        Some((request, plan))
    }

    /// The plan of a body; notes ids that the catalog does not have.
    fn plan(
        self,
        service_id: Option<&ServiceId>,
        plan_id: Option<&PlanId>,
    ) -> Option<&'c PlanEntry> {
        let (catalog, service_id) = (self.catalog?, service_id?);
        let plan = plan_id.and_then(|plan_id| catalog.plan(service_id, plan_id));
        if plan.is_none() {
            if catalog.service(service_id).is_none() {
                self.faults.add("service_id", "must be of a service in the catalog");
            } else if plan_id.is_some() {
                self.faults.add("plan_id", "must be of a plan of that service in the catalog");
            }
        }
        plan
    }

    fn parameters(
        self,
        fields: &mut Fields<'_>,
        plan: Option<&PlanEntry>,
        schema: SchemaUse,
        judge_absent: bool,
    ) -> Option<Sensitive<Object>> {
        let sent = fields.take("parameters");
        let absent = sent.is_none();
        let parameters = match sent {
            None if !judge_absent => return None,
            None => Value::Object(Object::new()),
            Some(value @ Value::Object(_)) => value,
            Some(_) => {
                self.faults.add("parameters", "must be an object");
                return None;
            }
        };
        if let Some(Err(violations)) = plan.map(|plan| plan.check_value(schema, &parameters)) {
            for violation in violations {
                self.faults.add(format_args!("parameters{}", violation.path), violation.message);
            }
        }
        match parameters {
            Value::Object(parameters) if !absent => Some(Sensitive::new(parameters)),
            _ => None,
        }
    }
}

/// Refuses a `maintenance_info` that is not the catalog's, where the request names the plan.
pub(super) fn check_maintenance_info(
    plan: Option<&PlanEntry>,
    asked: Option<&MaintenanceInfo>,
) -> Result<(), Error> {
    match (plan, asked) {
        (Some(plan), Some(asked)) => catalog::check_maintenance_info(plan, asked),
        _ => Ok(()),
    }
}

/// Refuses a binding without an application where one is needed (section "Binding").
pub(super) fn check_app(plan: Option<&PlanEntry>, request: &BindRequest) -> Result<(), Error> {
    let resource = request.bind_resource.as_ref();
    // A successor is for what its predecessor was for; a route may stand where an application would.
    let settled = request.predecessor_binding_id.is_some()
        || request.app_guid.is_some()
        || resource.is_some_and(|resource| resource.app_guid.is_some() || resource.route.is_some());
    if settled || !plan.is_some_and(PlanEntry::requires_app) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::RequiresApp,
        "bind_resource.app_guid: must be sent, for this service is only bound to applications",
    ))
}

fn maintenance_info(mut fields: Fields<'_>) -> Option<MaintenanceInfo> {
    let version = fields.guid("version");
    // Everything but the version is ignored, whatever it is: it tells no request from another.
    fields.take("description");
    Some(MaintenanceInfo { version: version?, description: None })
}

fn previous_values(mut fields: Fields<'_>) -> Option<PreviousValues> {
    Some(PreviousValues {
        service_id: fields.optional_string("service_id"),
        plan_id: fields.optional_string("plan_id"),
        organization_id: fields.optional_string("organization_id"),
        space_id: fields.optional_string("space_id"),
        maintenance_info: fields.nested("maintenance_info", maintenance_info),
    })
}

fn bind_resource(mut fields: Fields<'_>) -> Option<BindResource> {
    let app_guid = fields.guid_if_any("app_guid");
    let route = fields.guid_if_any("route");
    // What Cloud Foundry adds (profile.md, section "Bind Resource Object") is handed on with the unknown.
    let known = [
        ("space_guid", fields.optional_guid("space_guid").map(Value::String)),
        ("app_annotations", fields.optional_object("app_annotations").map(Value::Object)),
        ("credential_client_id", fields.optional_string("credential_client_id").map(Value::String)),
    ];
    let mut other = fields.rest();
    other.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Some(BindResource { app_guid, route, other })
}
