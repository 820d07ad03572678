//! Updates: computes what an update makes of an instance, and checks whether it may: pure rules (items 31 to 35).

use osb::catalog::{CompiledCatalog, SchemaUse};
use osb::{Error, ErrorKind, PreviousValues, UpdateRequest};
use serde_json::Value;

use crate::record::{Ordered, Record};

/// The order of the instance after the update: absent members stay, parameters are merged by
/// their top-level members.
pub(crate) fn target(record: &Record, request: &UpdateRequest) -> Result<Ordered, Error> {
    if request.service_id != record.ordered.service_id {
        return Err(Error::bad_request(
            "service_id: is not the service of this instance, and cannot be changed",
        ));
    }
    let mut target = record.ordered.clone();
    if let Some(plan) = request.plan_id.as_ref().filter(|plan| **plan != target.plan_id) {
        target.plan_id = plan.clone();
        // It was a version of the other plan.
        target.maintenance_info = None;
    }
    if let Some(parameters) = &request.parameters {
        let mut merged = target.parameters.into_inner();
        merged.extend(parameters.expose().clone());
        target.parameters = merged.into();
    }
    if let Some(context) = &request.context {
        target.context = context.clone();
    }
    if request.maintenance_info.is_some() {
        target.maintenance_info.clone_from(&request.maintenance_info);
    }
    Ok(target)
}

/// Checks what the server cannot check of a request without the plan of the instance.
pub(crate) fn check_request(
    target: &Ordered,
    request: &UpdateRequest,
    catalog: &CompiledCatalog,
) -> Result<(), Error> {
    let Some(plan) = catalog.plan(&target.service_id, &target.plan_id) else { return Ok(()) };
    if let Some(parameters) = &request.parameters {
        osb::catalog::check_parameters(plan, SchemaUse::Update, parameters.expose())?;
    }
    match &request.maintenance_info {
        Some(info) => osb::catalog::check_maintenance_info(plan, info),
        None => Ok(()),
    }
}

/// Checks whether the instance can be changed to `target`.
pub(crate) fn check_state(
    record: &Record,
    target: &Ordered,
    request: &UpdateRequest,
    catalog: &CompiledCatalog,
    can_update: bool,
) -> Result<(), Error> {
    let not_updateable = |words: &'static str| {
        Error::new(ErrorKind::Unprocessable, words).instance_usable(true).update_repeatable(false)
    };
    let service = &record.ordered.service_id;
    let current = catalog.plan(service, &record.ordered.plan_id);
    let wanted = catalog.plan(service, &target.plan_id);
    if target.plan_id != record.ordered.plan_id
        && let Some(plan) = [current, wanted].into_iter().flatten().find(|it| !it.plan_updateable())
    {
        let is_left = plan.plan.id == record.ordered.plan_id;
        return Err(not_updateable(match is_left {
            true => "plan_id: the plan of this instance cannot be changed",
            false => {
                "plan_id: no instance can be changed to this plan, which is not plan_updateable"
            }
        }));
    }
    if changes_context_alone(&record.ordered, target, request)
        && catalog
            .service(service)
            .is_some_and(|service| service.allow_context_updates != Some(true))
    {
        return Err(not_updateable(
            "context: cannot be all that is updated, for the service does not have allow_context_updates in the catalog",
        ));
    }
    if !can_update {
        return Err(not_updateable("this broker does not support updates"));
    }
    Ok(())
}

/// Whether an update changes nothing but the context. `previous_values` is informational, and not looked at. A request
/// that has parameters asks for them, even if they are those that the instance has.
fn changes_context_alone(before: &Ordered, target: &Ordered, request: &UpdateRequest) -> bool {
    before.context != target.context
        && !target.context.expose().is_empty()
        && before.plan_id == target.plan_id
        && request.parameters.is_none()
        && request.maintenance_info.is_none()
}

/// The part of an update's request that tells a repeated update from a different one: all but what is informational.
pub(crate) fn identity(request: &UpdateRequest) -> Value {
    let mut value = serde_json::to_value(request).unwrap_or_default();
    if let Some(members) = value.as_object_mut() {
        members.remove("previous_values");
    }
    value
}

pub(crate) fn previous_values(record: &Record, request: &UpdateRequest) -> PreviousValues {
    let sent = request.previous_values.clone().unwrap_or_default();
    PreviousValues {
        plan_id: Some(record.ordered.plan_id.to_string()),
        maintenance_info: record.ordered.maintenance_info.clone(),
        ..sent
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::store_contract::sample;

    /// An instance of plan `small`, with some parameters.
    fn instance() -> Record {
        let mut record = sample("i");
        let parameters = json!({"size": 1, "label": {"deep": 1}});
        record.ordered.parameters = serde_json::from_value(parameters).unwrap();
        record
    }

    fn request(members: Value) -> UpdateRequest {
        let mut value = json!({"service_id": "service"});
        value.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    }

    fn catalog() -> CompiledCatalog {
        let schema = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"size": {"type": "integer"}},
        });
        let catalog = json!({"services": [{
            "id": "service", "name": "db", "description": "d", "bindable": true,
            "plan_updateable": true, "plans": [
                {"id": "small", "name": "small", "description": "d",
                 "maintenance_info": {"version": "1.0.0"},
                 "schemas": {"service_instance": {"update": {"parameters": schema}}}},
                {"id": "large", "name": "large", "description": "d"},
                {"id": "fixed", "name": "fixed", "description": "d", "plan_updateable": false},
            ],
        }]});
        CompiledCatalog::compile(osb::catalog::parse(&catalog).unwrap()).unwrap()
    }

    #[test]
    fn absent_members_stay_and_parameters_are_merged_at_their_top() {
        let before = instance().ordered;
        let after = |members| target(&instance(), &request(members)).unwrap();
        let parameters = |ordered: &Ordered| Value::Object(ordered.parameters.expose().clone());
        assert_eq!(after(json!({})), before);
        assert_eq!(after(json!({"previous_values": {"plan_id": "x"}})), before);
        for (case, members, plan, expected) in [
            ("a plan", json!({"plan_id": "large"}), "large", parameters(&before)),
            (
                "a parameter",
                json!({"parameters": {"size": 2}}),
                "small",
                json!({"size": 2, "label": {"deep": 1}}),
            ),
            (
                "a parameter with members",
                json!({"parameters": {"label": {"other": 1}}}),
                "small",
                json!({"size": 1, "label": {"other": 1}}),
            ),
        ] {
            let after = after(members);
            assert_eq!((after.plan_id.as_str(), parameters(&after)), (plan, expected), "{case}");
        }
        let context = after(json!({"context": {"platform": "p"}})).context;
        assert_eq!(context.expose()["platform"], "p");
        let other = request(json!({"service_id": "other"}));
        assert!(target(&instance(), &other).unwrap_err().description.starts_with("service_id:"));
    }

    #[test]
    fn an_update_is_checked_against_the_plan_it_leads_to() {
        let fixed = |mut record: Record| {
            record.ordered.plan_id = "fixed".to_owned().try_into().unwrap();
            record
        };
        let gone = |mut record: Record| {
            record.ordered.plan_id = "no longer offered".to_owned().try_into().unwrap();
            record
        };
        let as_it_is = |record: Record| record;
        let maintenance = |version: &str| json!({"maintenance_info": {"version": version}});
        type Change = fn(Record) -> Record;
        let context = |name: &str| json!({"platform": "p", "instance_name": name});
        let cases: [(&str, Change, Value, bool, Option<ErrorKind>); 15] = [
            ("another plan", as_it_is, json!({"plan_id": "large"}), true, None),
            ("the same plan, fixed", fixed, json!({"plan_id": "fixed"}), true, None),
            (
                "from a fixed plan",
                fixed,
                json!({"plan_id": "small"}),
                true,
                Some(ErrorKind::Unprocessable),
            ),
            (
                "to a fixed plan",
                as_it_is,
                json!({"plan_id": "fixed"}),
                true,
                Some(ErrorKind::Unprocessable),
            ),
            ("from a plan that is gone", gone, json!({"plan_id": "large"}), true, None),
            (
                "parameters that violate the schema",
                as_it_is,
                json!({"parameters": {"size": "large"}}),
                true,
                Some(ErrorKind::BadRequest),
            ),
            (
                "parameters of a plan without schema",
                as_it_is,
                json!({"plan_id": "large", "parameters": {"size": "large"}}),
                true,
                None,
            ),
            ("the plan's version", as_it_is, maintenance("1.0.0"), true, None),
            (
                "another version",
                as_it_is,
                maintenance("2.0.0"),
                true,
                Some(ErrorKind::MaintenanceInfoConflict),
            ),
            (
                "a context alone",
                as_it_is,
                json!({"context": context("new")}),
                true,
                Some(ErrorKind::Unprocessable),
            ),
            (
                "a context beside the plan that it has",
                as_it_is,
                json!({"context": context("new"), "plan_id": "small"}),
                true,
                Some(ErrorKind::Unprocessable),
            ),
            (
                "a context beside parameters that it has",
                as_it_is,
                json!({"context": context("new"), "parameters": {"size": 1}}),
                true,
                None,
            ),
            (
                "a context and a plan",
                as_it_is,
                json!({"context": context("new"), "plan_id": "large"}),
                true,
                None,
            ),
            ("an empty context", as_it_is, json!({"context": {}}), true, None),
            (
                "a broker that cannot",
                as_it_is,
                json!({"plan_id": "large"}),
                false,
                Some(ErrorKind::Unprocessable),
            ),
        ];
        let catalog = catalog();
        for (case, change, members, can_update, expected) in cases {
            let (record, request) = (change(instance()), request(members));
            let target = target(&record, &request).unwrap();
            let checked = check_request(&target, &request, &catalog)
                .and_then(|()| check_state(&record, &target, &request, &catalog, can_update));
            assert_eq!(checked.as_ref().err().map(|error| error.kind), expected, "{case}");
            if expected == Some(ErrorKind::Unprocessable) {
                let error = checked.unwrap_err();
                let told = (error.instance_usable, error.update_repeatable);
                assert_eq!(told, (Some(true), Some(false)), "{case}");
            }
        }
    }

    #[test]
    fn what_is_informational_does_not_tell_one_update_from_another() {
        let of = |members| identity(&request(members));
        let plain = of(json!({"plan_id": "large"}));
        let informed = json!({"plan_id": "large", "previous_values": {"plan_id": "small"}});
        assert_eq!(of(informed), plain);
        assert_ne!(of(json!({"plan_id": "small"})), plain);
    }
}
