//! Catalogs: read, judged, compiled and used to check parameters and bindings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::needless_pass_by_value,
    reason = "tests, and their helpers, which the exemption for tests does not reach"
)]

mod arbitrary;
mod binding;
mod lint;
mod null;
mod platforms;
mod schemas;

use osb::ServiceId;
use osb::catalog::{CompiledCatalog, Fault, lint, parse};
use serde_json::{Value, json};

fn catalog_with(service: Value, plan: Value) -> Value {
    let mut whole = json!({
        "id": "service-1", "name": "postgres", "description": "A database", "bindable": true,
        "plans": [{"id": "plan-1", "name": "small", "description": "A small one"}],
    });
    merge(&mut whole["plans"][0], plan);
    merge(&mut whole, service);
    json!({"services": [whole]})
}

fn merge(into: &mut Value, from: Value) {
    let Value::Object(from) = from else { panic!("an object is merged") };
    into.as_object_mut().unwrap().extend(from);
}

fn with_schema(schema: Value) -> Value {
    let schema = json!({"parameters": schema});
    catalog_with(json!({}), json!({"schemas": {"service_instance": {"create": schema}}}))
}

fn id(text: &str) -> ServiceId {
    ServiceId::new(text).unwrap()
}

fn texts(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn parse_faults(value: &Value) -> Vec<String> {
    texts(&parse(value).expect_err("the catalog has faults"))
}

#[track_caller]
fn lint_faults(value: &Value) -> Vec<String> {
    texts(&lint(&parse(value).expect("the catalog can be read")))
}

#[track_caller]
fn compiled(value: &Value) -> CompiledCatalog {
    CompiledCatalog::compile(parse(value).expect("the catalog can be read"))
        .expect("it may be served")
}
