//! Input: what `catalog` printed, in JSON.

use std::time::SystemTime;

use osb::catalog::{CompiledCatalog, Fault, SchemaUse, parse};
use serde_json::{Value, json};

/// The property that a refused catalog is refused in words, and one that compiles is served, read and compiled again
/// as itself. The fuzzer checks that neither takes long.
///
/// # Panics
/// If that does not hold.
pub fn catalog(input: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(input) else { return };
    let compile = |catalog| CompiledCatalog::compile_at(catalog, SystemTime::UNIX_EPOCH);
    let compiled = match parse(&value).and_then(compile) {
        Ok(compiled) => compiled,
        Err(faults) => return assert_told(&faults),
    };
    let served: Value = serde_json::from_slice(compiled.body()).unwrap();
    let again = parse(&served).unwrap();
    assert_eq!(&again, compiled.catalog());
    let again = compile(again).unwrap();
    assert_eq!((again.body(), again.etag()), (compiled.body(), compiled.etag()));

    let parameters = json!({"size": 5, "name": "a".repeat(40), "": [null, 1.5, {"deep": {}}]});
    for service in &compiled.catalog().services {
        assert_eq!(compiled.service(&service.id).unwrap(), service);
        for plan in &service.plans {
            let entry = compiled.plan(&service.id, &plan.id).unwrap();
            for schema in [SchemaUse::Provision, SchemaUse::Update, SchemaUse::Bind] {
                let Err(violations) = entry.check(schema, parameters.as_object().unwrap()) else {
                    continue;
                };
                assert!(violations.iter().all(|violation| !violation.message.is_empty()));
            }
        }
    }
}

fn assert_told(faults: &[Fault]) {
    assert!(!faults.is_empty());
    assert!(faults.iter().all(|fault| !fault.message.is_empty()), "{faults:?}");
}
