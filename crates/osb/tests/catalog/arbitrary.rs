//! No JSON whatever makes a catalog panic.

use osb::catalog::{CompiledCatalog, SchemaUse, parse};
use osb::{Catalog, PlanId};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{catalog_with, compiled, id, merge, with_schema};

fn any_json() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "services",
        "id",
        "name",
        "description",
        "bindable",
        "plans",
        "tags",
        "requires",
        "metadata",
        "dashboard_client",
        "schemas",
        "service_instance",
        "service_binding",
        "create",
        "update",
        "parameters",
        "$schema",
        "$ref",
        "type",
        "properties",
        "items",
        "allOf",
        "not",
        "pattern",
        "maintenance_info",
        "version",
        "maximum_polling_duration",
        "other",
    ]);
    let texts = prop::sample::select(vec![
        "",
        "a",
        "string",
        "object",
        "#",
        "#/properties/id",
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-04/schema#",
        "1.2.3",
        "^a+$",
        "(",
        "syslog_drain",
        "\u{0}",
        "ß/../%2F",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts.prop_map(Value::from),
    ];
    leaf.prop_recursive(8, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_makes_reading_a_catalog_panic(value in any_json()) {
        let _ = parse(&value);
        let _ = parse(&json!({"services": [value]}));
    }

    #[test]
    fn no_members_make_compiling_a_catalog_panic(service in any_json(), plan in any_json(), schema in any_json()) {
        if let (true, true) = (service.is_object(), plan.is_object()) {
            let mut value = catalog_with(json!({}), plan);
            merge(&mut value["services"][0], service);
            if let Ok(catalog) = parse(&value) {
                let _ = CompiledCatalog::compile(catalog);
            }
        }
        if let Ok(catalog) = parse(&with_schema(schema)) {
            let _ = CompiledCatalog::compile(catalog);
        }
    }

    #[test]
    fn no_parameters_make_checking_panic(rules in any_json(), parameters in any_json()) {
        let Value::Object(parameters) = parameters else { return Ok(()) };
        let Value::Object(_) = &rules else { return Ok(()) };
        let mut rules = rules;
        rules["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        let Ok(catalog) = parse(&with_schema(rules)).map(CompiledCatalog::compile) else { return Ok(()) };
        let Ok(catalog) = catalog else { return Ok(()) };
        let entry = catalog.plan(&id("service-1"), &PlanId::new("plan-1").unwrap()).unwrap();
        let _ = entry.check(SchemaUse::Provision, &parameters);
    }

    #[test]
    fn a_catalog_that_may_be_served_reads_back_as_itself(tags in prop::collection::vec(".*", 0..4), name in ".+") {
        let value = catalog_with(json!({"tags": tags}), json!({"name": name}));
        let compiled = compiled(&value);
        let again: Value = serde_json::from_slice(compiled.body()).unwrap();
        prop_assert_eq!(&parse(&again).unwrap(), compiled.catalog());
        let _: Catalog = serde_json::from_value(again).unwrap();
    }
}
