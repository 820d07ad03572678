//! The service and plan under test, as the broker wrote them in its catalog.

use serde_json::Value;

use super::Options;

/// The service and plan under test.
#[derive(Debug, Clone)]
pub(super) struct Chosen {
    pub(super) service: Value,
    pub(super) plan: Value,
    /// Another plan of the same service.
    pub(super) other_plan: Option<Value>,
    /// A plan of another service.
    pub(super) foreign_plan: Option<Value>,
    /// The plan to change to, if one is wanted.
    pub(super) update_plan: Option<Value>,
}

impl Chosen {
    /// Chooses the service and plan from a catalog.
    pub(super) fn choose(catalog: &Value, options: &Options) -> Result<Self, String> {
        let services = list(catalog, "services");
        let bindable = |service: &&Value| {
            list(service, "plans").iter().any(|plan| flag(plan, service, "bindable"))
        };
        let service = match &options.service {
            Some(name) => named(services, name).ok_or(format!("there is no service {name:?}"))?,
            None => services
                .iter()
                .find(bindable)
                .or(services.first())
                .ok_or("the catalog has no service")?,
        };
        let plans = list(service, "plans");
        let plan = match &options.plan {
            Some(name) => named(plans, name).ok_or(format!("there is no plan {name:?}"))?,
            None => plans
                .iter()
                .find(|plan| flag(plan, service, "bindable"))
                .or(plans.first())
                .ok_or("the service has no plan")?,
        };
        let update_plan = match &options.update_plan {
            Some(name) => Some(named(plans, name).ok_or(format!("there is no plan {name:?}"))?),
            None => None,
        };
        let foreign = services.iter().filter(|other| other["id"] != service["id"]);
        Ok(Self {
            other_plan: plans.iter().find(|other| other["id"] != plan["id"]).cloned(),
            foreign_plan: foreign.flat_map(|other| list(other, "plans")).next().cloned(),
            update_plan: update_plan.cloned(),
            service: service.clone(),
            plan: plan.clone(),
        })
    }

    pub(super) fn bindable(&self) -> bool {
        flag(&self.plan, &self.service, "bindable")
    }

    pub(super) fn rotatable(&self) -> bool {
        self.plan["binding_rotatable"] == true
    }

    /// Whether neither this plan nor the other one may be changed.
    pub(super) fn plans_are_fixed(&self) -> bool {
        let fixed = |plan: &Value| !flag(plan, &self.service, "plan_updateable");
        fixed(&self.plan) && self.other_plan.as_ref().is_some_and(fixed)
    }

    pub(super) fn service_flag(&self, name: &str) -> bool {
        self.service[name] == true
    }

    /// Whether the service may use a permission.
    pub(super) fn requires(&self, permission: &str) -> bool {
        list(&self.service, "requires").iter().any(|required| required == permission)
    }

    pub(super) fn maintained(&self) -> bool {
        self.plan["maintenance_info"]["version"].is_string()
    }

    pub(super) fn provision_schema(&self) -> bool {
        self.plan["schemas"]["service_instance"]["create"]["parameters"].is_object()
    }

    pub(super) fn binding_schema(&self) -> bool {
        self.plan["schemas"]["service_binding"]["create"]["parameters"].is_object()
    }
}

/// The members of a list; none if there is no list.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

/// A flag of a plan, or else of its service.
fn flag(plan: &Value, service: &Value, name: &str) -> bool {
    plan[name].as_bool().or(service[name].as_bool()).unwrap_or(false)
}

fn named<'a>(list: &'a [Value], name: &str) -> Option<&'a Value> {
    list.iter().find(|one| one["id"] == name || one["name"] == name)
}
