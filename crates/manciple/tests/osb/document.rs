//! Our OpenAPI document, as a judge.

use http::Method;
use serde_json::{Value, json};

use crate::harness::Answer;

pub(crate) struct Document(Value);

impl Document {
    pub(crate) fn ours() -> Self {
        Self(serde_json::from_str(osb::OPENAPI).unwrap())
    }

    /// The operation of a path; `None` for paths that are none of ours.
    fn operation(&self, method: &Method, path: &str) -> Option<&Value> {
        let segments: Vec<_> = path.trim_start_matches('/').split('/').collect();
        let template = match segments.as_slice() {
            ["openapi.json"] => "/openapi.json",
            ["v2", "catalog"] => "/v2/catalog",
            ["v2", "service_instances", _] => "/v2/service_instances/{instance_id}",
            ["v2", "service_instances", _, "last_operation"] => {
                "/v2/service_instances/{instance_id}/last_operation"
            }
            ["v2", "service_instances", _, "service_bindings", _] => {
                "/v2/service_instances/{instance_id}/service_bindings/{binding_id}"
            }
            ["v2", "service_instances", _, "service_bindings", _, "last_operation"] => {
                "/v2/service_instances/{instance_id}/service_bindings/{binding_id}/last_operation"
            }
            _ => return None,
        };
        self.0["paths"][template].get(method.as_str().to_lowercase())
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self.0.pointer(&reference[1..]).expect("a $ref leads somewhere"),
            None => value,
        }
    }

    fn validate(&self, schema: &Value, instance: &Value, of: &str) {
        let mut schema = schema.clone();
        let members = schema.as_object_mut().unwrap();
        members.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        members.insert("components".into(), self.0["components"].clone());
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<_> = validator.iter_errors(instance).map(|e| e.to_string()).collect();
        assert!(faults.is_empty(), "{of} is not as the document says: {faults:?}\n{instance}");
    }

    /// Fails unless the answer is one that the document describes.
    pub(crate) fn check_answer(&self, method: &Method, path: &str, answer: &Answer) {
        let status = answer.status.as_u16().to_string();
        let Some(operation) = self.operation(method, path) else {
            // Not a route of the API: only that the error is one of ours can be said.
            let error = json!({ "$ref": "#/components/schemas/Error" });
            return self.validate(&error, &answer.body, "the error");
        };
        let described = &operation["responses"][&status];
        assert!(!described.is_null(), "{method} {path} answers {status}, which is not described");
        let described = self.resolve(described);
        for (name, header) in described["headers"].as_object().into_iter().flatten() {
            let header = self.resolve(header);
            let sent = answer.header(name);
            if header["required"] == json!(true) {
                assert!(sent.is_some(), "{method} {path} {status}: no header {name}");
            }
        }
        match &described["content"]["application/json"]["schema"] {
            Value::Null => assert!(answer.body.is_null(), "a body where none is described"),
            schema => self.validate(schema, &answer.body, &format!("{method} {path} {status}")),
        }
    }

    /// Fails unless the request is one that the document describes.
    pub(crate) fn check_request(&self, method: &Method, path: &str, body: &Value) {
        let path = path.split('?').next().unwrap_or_default();
        let operation = self.operation(method, path).expect("a route of the API");
        let schema =
            &self.resolve(&operation["requestBody"])["content"]["application/json"]["schema"];
        self.validate(schema, body, &format!("the body of {method} {path}"));
    }
}
