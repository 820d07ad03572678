//! What platforms refuse a catalog for that the specification lets in.

use osb::catalog::{lint, refused_elsewhere};
use serde_json::{Value, json};

/// Of a catalog of one service with one plan, to which these members are added.
fn faults(service: &Value, plan: &Value) -> Vec<String> {
    let mut catalog = json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": true,
        "plans": [{"id": "p", "name": "small", "description": "d"}],
    }]});
    let of_service = catalog["services"][0].as_object_mut().unwrap();
    of_service.extend(service.as_object().unwrap().clone());
    let of_plan = catalog["services"][0]["plans"][0].as_object_mut().unwrap();
    of_plan.extend(plan.as_object().unwrap().clone());
    let catalog = serde_json::from_value(catalog).unwrap();
    assert_eq!(lint(&catalog), [], "the specification lets it in");
    refused_elsewhere(&catalog).iter().map(|fault| fault.path.clone()).collect()
}

#[test]
fn what_a_platform_refuses_is_named_by_its_path() {
    let text = |length| "ä".repeat(length);
    let schema = |of: &str, action: &str, schema: Value| json!({"schemas": {of: {action: {"parameters": schema}}}});
    let versioned = "http://json-schema.org/draft-04/schema#";
    let later = "http://json-schema.org/draft-07/schema#";
    let client = json!({"id": "c", "secret": "s"});
    for (service, plan, path) in [
        (json!({"tags": [text(1024), text(1024)]}), json!({}), None),
        (json!({"tags": [text(1024), text(1025)]}), json!({}), Some("tags")),
        (json!({"description": text(10_000)}), json!({}), None),
        (json!({"description": text(10_001)}), json!({}), Some("description")),
        (json!({"metadata": {"shareable": true, "other": 1}}), json!({}), None),
        (json!({"metadata": {"shareable": "true"}}), json!({}), Some("metadata.shareable")),
        (json!({"dashboard_client": client}), json!({}), Some("dashboard_client.redirect_uri")),
        (json!({"name": "Db.2-x"}), json!({}), None),
        (json!({"name": "my_db"}), json!({}), Some("name")),
        (json!({"name": "d".repeat(64)}), json!({}), Some("name")),
        (json!({"id": "a/b"}), json!({}), Some("id")),
        (json!({"id": "-a"}), json!({}), Some("id")),
        (json!({}), json!({"name": "a b"}), Some("plans[0].name")),
        (json!({}), json!({"id": "i".repeat(64)}), Some("plans[0].id")),
        (json!({}), json!({"description": text(10_001)}), Some("plans[0].description")),
        (
            json!({}),
            json!({"maintenance_info": {"version": "1.0.0", "description": text(2000)}}),
            Some("plans[0].maintenance_info"),
        ),
        (
            json!({}),
            schema("service_instance", "create", json!({"$schema": versioned, "type": "object"})),
            None,
        ),
        (
            json!({}),
            schema("service_instance", "update", json!({"$schema": versioned, "type": "string"})),
            Some("plans[0].schemas.service_instance.update.parameters.type"),
        ),
        (
            json!({}),
            schema("service_binding", "create", json!({"$schema": versioned})),
            Some("plans[0].schemas.service_binding.create.parameters.type"),
        ),
        (
            json!({}),
            schema("service_instance", "update", json!({"$schema": later, "type": "object"})),
            Some("plans[0].schemas.service_instance.update.parameters.$schema"),
        ),
        (
            json!({}),
            schema("service_binding", "create", json!(true)),
            Some("plans[0].schemas.service_binding.create.parameters"),
        ),
    ] {
        let expected: Vec<String> =
            path.map(|path| format!("services[0].{path}")).into_iter().collect();
        assert_eq!(faults(&service, &plan), expected, "{service} {plan}");
    }
    let service = |n: u8, client: &str| {
        json!({
            "id": format!("s{n}"), "name": format!("db{n}"), "description": "d", "bindable": true,
            "plans": [{"id": format!("p{n}"), "name": "small", "description": "d"}],
            "dashboard_client": {"id": client, "secret": "s", "redirect_uri": "https://x"},
        })
    };
    let shared = json!({"services": [service(1, "a"), service(2, "b"), service(3, "a")]});
    let shared = refused_elsewhere(&serde_json::from_value(shared).unwrap());
    let paths: Vec<&str> = shared.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(paths, ["services[2].dashboard_client.id"]);
    let none = serde_json::from_value(json!({"services": []})).unwrap();
    assert_eq!(refused_elsewhere(&none)[0].path, "services");
}
