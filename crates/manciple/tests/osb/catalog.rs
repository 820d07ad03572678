//! Items 11 to 18: the catalog.

use http::Method;
use osb::catalog::{CompiledCatalog, Fault};
use serde_json::{Value, json};

use crate::harness::{Api, SERVICE, Setup, catalog};

/// Every fault of a catalog, as a start would report them.
fn faults(catalog: &Value) -> Vec<Fault> {
    match osb::catalog::parse(catalog) {
        Err(faults) => faults,
        Ok(catalog) => CompiledCatalog::compile(catalog).err().unwrap_or_default(),
    }
}

/// The usual catalog with something put at a pointer.
fn with(pointer: &str, value: Value) -> Value {
    let mut catalog = catalog();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match catalog.pointer_mut(parent).unwrap() {
        Value::Object(members) => drop(members.insert(name.into(), value)),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        _ => panic!("{pointer}"),
    }
    catalog
}

fn faulty(catalog: &Value, path: &str) {
    let faults = faults(catalog);
    let found = faults.iter().any(|fault| fault.path.contains(path));
    assert!(found, "no fault at {path}: {faults:?}");
}

#[tokio::test(start_paused = true)]
async fn item_11_the_catalog_may_be_empty() {
    let api = Api::with(Setup { catalog: json!({ "services": [] }), ..Setup::default() }).await;
    assert_eq!(api.get("/v2/catalog").await.is(200).body, json!({ "services": [] }));
}

#[test]
fn item_12_names_and_ids_are_unique_and_all_faults_are_reported_at_once() {
    assert_eq!(faults(&catalog()), []);
    let broken = json!({ "services": [
        { "id": "s", "name": "", "description": "", "bindable": true, "plans": [] },
        { "id": "s", "name": "db", "description": "d", "bindable": true, "plans": [
            { "id": "p", "name": "a", "description": "d" },
            { "id": "p", "name": "a", "description": "d" },
        ]},
        { "id": "t", "name": "db", "description": "d", "bindable": true, "plans": [
            { "id": "q", "name": "a", "description": "d" },
        ]},
    ]});
    for path in [
        "services[0].name",
        "services[0].description",
        "services[0].plans",
        "services[1].id",
        "services[1].plans[1].id",
        "services[1].plans[1].name",
        "services[2].name",
    ] {
        faulty(&broken, path);
    }
    // Names differ by their case alone.
    let mut cased = catalog();
    cased["services"][0]["plans"][1]["name"] = json!("SMALL");
    assert_eq!(faults(&cased), []);
}

#[test]
fn item_13_requires_knows_three_words() {
    let good = json!(["syslog_drain", "route_forwarding", "volume_mount"]);
    assert_eq!(faults(&with("/services/0/requires", good)), []);
    faulty(&with("/services/0/requires", json!(["root"])), "services[0].requires[0]");
}

#[tokio::test(start_paused = true)]
async fn item_14_absent_members_have_the_defaults_and_plans_override_services() {
    let catalog: osb::Catalog = serde_json::from_value(catalog()).unwrap();
    let compiled = CompiledCatalog::compile(catalog).unwrap();
    let service = osb::ServiceId::new(SERVICE).unwrap();
    let plan = |id: &str| compiled.plan(&service, &osb::PlanId::new(id).unwrap()).unwrap();
    let small = plan("small-id");
    assert!(small.bindable() && small.plan_updateable() && small.binding_rotatable());
    let large = plan("large-id");
    assert!(large.bindable() && large.plan_updateable() && !large.binding_rotatable());
    let fixed = plan("fixed-id");
    assert!(!fixed.bindable() && !fixed.plan_updateable() && !fixed.binding_rotatable());
    // `free` is left out, so that the platform takes its default, true.
    let api = Api::new().await;
    let served = api.get("/v2/catalog").await;
    assert_eq!(served.body["services"][0]["plans"][0].get("free"), None);
}

#[test]
fn item_15_schemas_name_their_draft_refer_to_nothing_outside_and_are_small() {
    let create = "/services/0/plans/0/schemas/service_instance/create/parameters";
    let path = "services[0].plans[0].schemas.service_instance.create.parameters";
    for draft in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-06/schema#",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ] {
        let schema = json!({ "$schema": draft, "type": "object" });
        assert_eq!(faults(&with(create, schema)), [], "{draft}");
    }
    let draft = "http://json-schema.org/draft-07/schema#";
    for wrong in [
        json!({ "type": "object" }),
        json!({ "$schema": draft, "$ref": "http://127.0.0.1:9/schema.json" }),
        json!({ "$schema": draft, "properties": { "a": { "$ref": "file:///etc/passwd" } } }),
        json!({ "$schema": draft, "type": "no-such-type" }),
        json!({ "$schema": draft, "description": "x".repeat(70_000) }),
    ] {
        faulty(&with(create, wrong), path);
    }
}

#[test]
fn item_16_maintenance_info_has_a_semantic_version() {
    let version = "/services/0/plans/0/maintenance_info/version";
    for good in ["1.0.0", "2.1.1+abcdef", "0.0.1-rc.1"] {
        assert_eq!(faults(&with(version, json!(good))), [], "{good}");
    }
    for wrong in ["", "1", "1.0", "v1.0.0", "01.0.0"] {
        faulty(&with(version, json!(wrong)), "services[0].plans[0].maintenance_info.version");
    }
}

#[tokio::test(start_paused = true)]
async fn item_17_an_unchanged_catalog_is_304() {
    let api = Api::new().await;
    let first = api.get("/v2/catalog").await;
    let etag = first.is(200).header("etag").unwrap().to_owned();
    let modified = first.header("last-modified").unwrap().to_owned();
    let get = async |name: &str, value: &str| {
        let answer = api.send_with(Method::GET, "/v2/catalog", None, &[(name, value)]).await;
        answer.status.as_u16()
    };
    assert_eq!(get("If-None-Match", &etag).await, 304);
    assert_eq!(get("If-None-Match", &format!("\"other\", W/{etag}")).await, 304);
    assert_eq!(get("If-None-Match", "*").await, 304);
    assert_eq!(get("If-None-Match", "\"other\"").await, 200);
    assert_eq!(get("If-Modified-Since", &modified).await, 304);
    assert_eq!(get("If-Modified-Since", "Thu, 01 Jan 1970 00:00:00 GMT").await, 200);
}

#[tokio::test(start_paused = true)]
async fn item_18_the_optional_members_are_served_and_what_is_kept_can_be_fetched() {
    let mut full = catalog();
    crate::harness::merge(
        &mut full["services"][0],
        json!({
            "tags": ["sql"], "metadata": { "displayName": "Database" },
            "allow_context_updates": true,
            "dashboard_client": { "id": "c", "secret": "s", "redirect_uri": "https://d.example" },
            "vendor_extension": { "kept": true },
        }),
    );
    let api = Api::with(Setup { catalog: full.clone(), ..Setup::default() }).await;
    let served = api.get("/v2/catalog").await;
    let service = &served.is(200).body["services"][0];
    for name in
        ["tags", "metadata", "allow_context_updates", "dashboard_client", "vendor_extension"]
    {
        assert_eq!(service[name], full["services"][0][name], "{name}");
    }
    assert_eq!(service["instances_retrievable"], true);
    assert_eq!(service["bindings_retrievable"], true);
    assert_eq!(service["plans"][0]["maximum_polling_duration"], 600);
}
