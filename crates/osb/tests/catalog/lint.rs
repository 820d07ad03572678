use std::time::{Duration, SystemTime};

use osb::catalog::{CompiledCatalog, SchemaUse, lint, parse};
use osb::{PlanId, ServiceId};
use serde_json::{Value, json};

use crate::{catalog_with, compiled, id, lint_faults, parse_faults, texts};

#[test]
fn every_fault_of_a_catalog_is_named_at_once_by_path() {
    let faults = parse_faults(&json!({"services": [
        {"id": 1, "name": "", "bindable": "yes", "tags": ["ok", 2], "requires": ["root"],
         "metadata": [], "dashboard_client": {"id": "x"}, "plans": [
            {"id": "p", "name": "n", "description": "d"},
            {"id": "a\u{0}b", "name": null, "description": 7, "free": 0,
             "maximum_polling_duration": -5, "maintenance_info": {"version": 2},
             "schemas": {"service_instance": {"create": 1}, "service_binding": []}}]},
        "postgres",
    ]}));
    let expected = [
        "services[0].id: must be a non-empty string",
        "services[0].name: must be a non-empty string",
        "services[0].description: must be a non-empty string, and is missing",
        "services[0].bindable: must be true or false",
        "services[0].plans[1].id: must not contain control characters",
        "services[0].plans[1].name: must be a non-empty string, and is missing",
        "services[0].plans[1].description: must be a non-empty string",
        "services[0].plans[1].free: must be true or false",
        "services[0].plans[1].schemas.service_instance.create: must be an object",
        "services[0].plans[1].schemas.service_binding: must be an object",
        "services[0].plans[1].maximum_polling_duration: must be a whole number, not negative",
        "services[0].plans[1].maintenance_info.version: must be a non-empty string",
        "services[0].tags[1]: must be a string",
        "services[0].requires[0]: must be one of syslog_drain, route_forwarding and volume_mount",
        "services[0].metadata: must be an object",
        "services[0].dashboard_client.secret: must be a non-empty string, and is missing",
        "services[1]: must be an object",
    ];
    assert_eq!(faults, expected);
}

#[test]
fn a_catalog_that_is_no_object_or_has_no_services_is_told_so() {
    assert_eq!(parse_faults(&json!([])), ["must be an object"]);
    assert_eq!(parse_faults(&json!({})), ["services: must be an array, and is missing"]);
    assert_eq!(parse_faults(&json!({"services": {}})), ["services: must be an array"]);
}

#[test]
fn item_11_an_empty_catalog_may_be_served() {
    assert_eq!(&compiled(&json!({"services": []})).body()[..], br#"{"services":[]}"#);
}

#[test]
fn item_12_a_duplicate_id_or_name_names_both_places() {
    let service = |id: &str, name: &str, plans: Value| json!({"id": id, "name": name, "description": "d", "bindable": true, "plans": plans});
    let plan = |id: &str, name: &str| json!({"id": id, "name": name, "description": "d"});
    let faults = lint_faults(&json!({"services": [
        service("s", "one", json!([plan("p", "small"), plan("q", "small"), plan("r", "Small")])),
        service("s", "one", json!([plan("p", "small")])),
        service("t", "One", json!([plan("t", "small"), plan("u", "large")])),
        service("v", "two", json!([plan("r", "small")])),
    ]}));
    let expected = [
        "services[0].plans[1].name: must be unique, and is the same as services[0].plans[0].name",
        "services[1].id: must be unique, and is the same as services[0].id",
        "services[1].name: must be unique, and is the same as services[0].name",
        "services[1].plans[0].id: must be unique, and is the same as services[0].plans[0].id",
        "services[2].plans[0].id: must be unique, and is the same as services[2].id",
        "services[3].plans[0].id: must be unique, and is the same as services[0].plans[2].id",
    ];
    assert_eq!(faults, expected);
    let alone = json!({"services": [service("w", "one", json!([plan("w", "default")]))]});
    assert_eq!(lint_faults(&alone), Vec::<String>::new(), "the one plan may bear its service's id");
}

#[test]
fn item_12_empty_names_descriptions_and_plans_of_a_typed_catalog_are_faults() {
    let mut catalog = parse(&catalog_with(json!({}), json!({}))).unwrap();
    let service = &mut catalog.services[0];
    service.name.clear();
    service.plans[0].description.clear();
    let mut empty = service.clone();
    empty.id = ServiceId::new("service-2").unwrap();
    empty.name = "other".into();
    empty.plans.clear();
    catalog.services.push(empty);
    let expected = [
        "services[0].name: must be a non-empty string",
        "services[0].plans[0].description: must be a non-empty string",
        "services[1].plans: must hold at least one plan",
    ];
    assert_eq!(texts(&lint(&catalog)), expected);
    assert_eq!(texts(&CompiledCatalog::compile(catalog).unwrap_err()), expected);
}

#[test]
fn item_14_what_a_plan_says_goes_before_what_its_service_says() {
    let entry = |service: Value, plan: Value| {
        let catalog = compiled(&catalog_with(service, plan));
        let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        (entry.bindable(), entry.plan_updateable(), entry.binding_rotatable())
    };
    assert_eq!(entry(json!({}), json!({})), (true, false, false));
    assert_eq!(
        entry(json!({"bindable": false, "plan_updateable": true}), json!({})),
        (false, true, false)
    );
    let plan = json!({"bindable": false, "plan_updateable": false, "binding_rotatable": true});
    assert_eq!(entry(json!({"plan_updateable": true}), plan), (false, false, true));
}

#[test]
fn item_16_maintenance_info_version_is_semver() {
    for (version, fits) in [
        ("1.2.3", true),
        ("2.1.1+abcdef", true),
        ("1.0.0-rc.1", true),
        ("1.2", false),
        ("v1.2.3", false),
        ("01.2.3", false),
    ] {
        let faults = lint_faults(&catalog_with(
            json!({}),
            json!({"maintenance_info": {"version": version}}),
        ));
        assert_eq!(faults.is_empty(), fits, "{version}: {faults:?}");
        assert!(fits || faults[0].starts_with("services[0].plans[0].maintenance_info.version: "));
    }
}

#[test]
fn item_17_the_tag_follows_the_content_and_the_date_is_as_given() {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_900);
    let compile = |value: &Value| CompiledCatalog::compile_at(parse(value).unwrap(), at).unwrap();
    let one = compile(&catalog_with(json!({}), json!({})));
    let same = compile(&catalog_with(json!({}), json!({})));
    let other = compile(&catalog_with(json!({"tags": ["x"]}), json!({})));
    assert_eq!(one.etag(), same.etag());
    assert_ne!(one.etag(), other.etag());
    assert!(one.etag().starts_with('"') && one.etag().ends_with('"'));
    assert_eq!(one.validators()[0], one.etag());
    assert_eq!(one.validators()[1], "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(one.last_modified(), SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
}

#[test]
fn item_18_optional_members_and_extensions_are_served_as_they_came() {
    let value = catalog_with(
        json!({"tags": ["sql"], "requires": ["syslog_drain"], "instances_retrievable": true,
               "bindings_retrievable": false, "allow_context_updates": true, "plan_updateable": true,
               "metadata": {"displayName": "Postgres", "shareable": true},
               "dashboard_client": {"id": "c", "secret": "s", "redirect_uri": "https://x"},
               "vendor.example/colour": {"deep": [1, null]}}),
        json!({"free": false, "bindable": true, "maximum_polling_duration": 3600,
               "binding_rotatable": true, "maintenance_info": {"version": "1.0.0", "description": "d"},
               "x": null, "vendor.example/size": 3}),
    );
    let served: Value = serde_json::from_slice(compiled(&value).body()).unwrap();
    assert_eq!(served, value);
}

#[test]
fn item_18_limits_and_clients_are_judged() {
    let mut catalog = parse(&catalog_with(
        json!({"dashboard_client": {"id": "c", "secret": "s"}}),
        json!({"maximum_polling_duration": 0}),
    ))
    .unwrap();
    let service = &mut catalog.services[0];
    service.dashboard_client.as_mut().unwrap().id.clear();
    service.dashboard_client.as_mut().unwrap().secret = String::new().into();
    service.extensions.insert("name".into(), json!("twice"));
    service.extensions.insert("manciple_requires_app".into(), json!("no"));
    service.extensions.insert("manciple_checks_updates".into(), json!(1));
    let expected = [
        "services[0].dashboard_client.id: must be a non-empty string",
        "services[0].dashboard_client.secret: must be a non-empty string",
        "services[0].manciple_checks_updates: must be true or false",
        "services[0].manciple_requires_app: must be true or false",
        "services[0].name: must not be an extension: it is a member of the specification",
        "services[0].plans[0].maximum_polling_duration: must be more than 0 seconds",
    ];
    let mut faults = texts(&lint(&catalog));
    faults.sort();
    assert_eq!(faults, expected);
}

#[test]
fn a_plan_is_found_only_under_its_own_service() {
    let value = json!({"services": [
        {"id": "a", "name": "a", "description": "d", "bindable": true,
         "plans": [{"id": "a1", "name": "n", "description": "d"}]},
        {"id": "b", "name": "b", "description": "d", "bindable": true,
         "plans": [{"id": "b1", "name": "n", "description": "d"}]}]});
    let catalog = compiled(&value);
    let found = |service: &str, plan: &str| {
        catalog.plan(&id(service), &PlanId::new(plan).unwrap()).map(|entry| entry.plan.id.as_str())
    };
    assert_eq!(found("a", "a1"), Some("a1"));
    assert_eq!(found("b", "b1"), Some("b1"));
    assert_eq!(found("a", "b1"), None);
    assert_eq!(found("a", "c1"), None);
    assert_eq!(found("c", "a1"), None);
    assert_eq!(catalog.service(&id("b")).map(|service| service.plans.len()), Some(1));
    assert_eq!(catalog.service(&id("c")), None);
}

#[test]
fn item_37_what_needs_an_app_follows_from_requires_unless_said() {
    let requires_app = |service: Value, plan: Value| {
        let catalog = compiled(&catalog_with(service, plan));
        catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap().requires_app()
    };
    assert!(!requires_app(json!({}), json!({})));
    assert!(!requires_app(json!({"requires": ["route_forwarding"]}), json!({})));
    assert!(requires_app(json!({"requires": ["syslog_drain"]}), json!({})));
    assert!(requires_app(json!({"requires": ["volume_mount", "route_forwarding"]}), json!({})));
    let no = json!({"requires": ["syslog_drain"], "manciple_requires_app": false});
    assert!(!requires_app(no.clone(), json!({})));
    assert!(requires_app(no, json!({"manciple_requires_app": true})));
}

#[test]
fn a_broker_that_checks_updates_itself_is_let() {
    let schema = json!({"parameters": {
        "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
        "additionalProperties": false, "properties": {"size": {"type": "integer"}},
    }});
    let checked = |service: Value, plan: Value| {
        let mut plan = plan;
        plan["schemas"] = json!({"service_instance": {"create": schema, "update": schema}});
        let catalog = compiled(&catalog_with(service, plan));
        let plan = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        let other = json!({"colour": "red"});
        let passes = |schema| plan.check(schema, other.as_object().unwrap()).is_ok();
        assert!(!passes(SchemaUse::Provision), "a new instance is of the plan as it is");
        !passes(SchemaUse::Update)
    };
    let says = |it: bool| json!({"manciple_checks_updates": it});
    assert!(checked(json!({}), json!({})));
    assert!(!checked(json!({}), says(true)));
    assert!(!checked(says(true), json!({})));
    assert!(checked(says(true), says(false)), "the plan's word goes before its service's");
}
