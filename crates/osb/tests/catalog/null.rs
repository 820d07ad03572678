//! `null`, as Go prints what is empty: absent where a member is optional, missing where it is required.
//! Both readers are held to it: that of authors' catalogs, and that of what a broker serves.

use osb::Catalog;
use osb::catalog::parse;
use serde_json::{Value, json};

use crate::texts;

/// A catalog with every member of the specification.
fn whole() -> Value {
    let schema = json!({"parameters": {"$schema": "http://json-schema.org/draft-07/schema#"}});
    let schemas = json!({"create": schema, "update": schema});
    json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": true,
        "tags": ["sql"], "requires": ["syslog_drain"], "instances_retrievable": true,
        "bindings_retrievable": true, "allow_context_updates": true, "metadata": {"a": 1},
        "dashboard_client": {"id": "c", "secret": "x", "redirect_uri": "https://d.example"},
        "plan_updateable": true,
        "plans": [{
            "id": "p", "name": "small", "description": "d", "metadata": {"a": 1}, "free": false,
            "bindable": true, "plan_updateable": true, "binding_rotatable": true,
            "schemas": {"service_instance": schemas, "service_binding": {"create": schema}},
            "maximum_polling_duration": 60,
            "maintenance_info": {"version": "1.0.0", "description": "first"},
        }],
    }]})
}

/// The path of every member that has a value of its own, as a JSON pointer.
fn members(value: &Value, path: &str, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(object) => object.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(array) => {
            array.iter().enumerate().map(|(index, value)| (index.to_string(), value)).collect()
        }
        _ => return,
    };
    for (name, value) in inner {
        let path = format!("{path}/{name}");
        // What is open-ended is the author's: a null in there is a value.
        if !matches!(name.as_str(), "metadata" | "parameters") {
            members(value, &path, found);
        }
        let is_element = name.parse::<usize>().is_ok();
        found.extend((!is_element).then_some(path));
    }
}

fn nulled(pointer: &str) -> Value {
    let mut catalog = whole();
    *catalog.pointer_mut(pointer).unwrap() = Value::Null;
    catalog
}

fn without(pointer: &str) -> Value {
    let mut catalog = whole();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    catalog.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name);
    catalog
}

const REQUIRED: &[(&str, &str)] = &[
    ("/services", "services: must be an array, and is missing"),
    ("/services/0/id", "services[0].id: must be a non-empty string, and is missing"),
    ("/services/0/name", "services[0].name: must be a non-empty string, and is missing"),
    (
        "/services/0/description",
        "services[0].description: must be a non-empty string, and is missing",
    ),
    ("/services/0/bindable", "services[0].bindable: must be true or false, and is missing"),
    ("/services/0/plans", "services[0].plans: must be an array, and is missing"),
    (
        "/services/0/plans/0/id",
        "services[0].plans[0].id: must be a non-empty string, and is missing",
    ),
    (
        "/services/0/plans/0/name",
        "services[0].plans[0].name: must be a non-empty string, and is missing",
    ),
    (
        "/services/0/plans/0/description",
        "services[0].plans[0].description: must be a non-empty string, and is missing",
    ),
    (
        "/services/0/dashboard_client/id",
        "services[0].dashboard_client.id: must be a non-empty string, and is missing",
    ),
    (
        "/services/0/dashboard_client/secret",
        "services[0].dashboard_client.secret: must be a non-empty string, and is missing",
    ),
    (
        "/services/0/plans/0/maintenance_info/version",
        "services[0].plans[0].maintenance_info.version: must be a non-empty string, and is missing",
    ),
];

#[test]
fn null_is_absent_for_every_optional_member() {
    let mut all = Vec::new();
    members(&whole(), "", &mut all);
    let optional = all.iter().filter(|path| !REQUIRED.iter().any(|(required, _)| path == required));
    let mut seen = 0;
    for path in optional {
        let (null, absent) = (nulled(path), without(path));
        let served = serde_json::from_value::<Catalog>(null.clone());
        assert_eq!(served.unwrap(), serde_json::from_value(absent.clone()).unwrap(), "{path}");
        assert_eq!(parse(&null), parse(&absent), "{path}");
        assert!(parse(&null).is_ok(), "{path}");
        seen += 1;
    }
    assert_eq!(seen, 26, "{all:?}");
}

#[test]
fn null_is_missing_for_every_required_member_and_refused_by_its_path() {
    for (path, fault) in REQUIRED {
        let faults = parse(&nulled(path)).map_err(|faults| texts(&faults)).unwrap_err();
        assert!(faults.iter().any(|said| said == fault), "{path}: {faults:?}");
        serde_json::from_value::<Catalog>(nulled(path)).expect_err(path);
    }
}
