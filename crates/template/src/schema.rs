//! The JSON Schema of a template's parameters.

use serde_json::{Map, Value, json};

use crate::template::Template;

impl Template {
    /// The schema of a map of the parameters: each is a string; required are those marked as required that have neither
    /// a value nor a way to get one. The original's schema also requires those with a value, and does not enforce that:
    /// this one is enforced. Parameters without a name are left out.
    pub fn schema(&self) -> Value {
        let named = || self.parameters.iter().filter(|it| !it.name.is_empty());
        let mut properties = Map::new();
        for parameter in named() {
            let mut property = json!({"type": "string", "default": parameter.value});
            for (key, text) in
                [("title", &parameter.display_name), ("description", &parameter.description)]
            {
                if !text.is_empty() {
                    property[key] = text.as_str().into();
                }
            }
            properties.insert(parameter.name.clone(), property);
        }
        let required: Vec<&str> = named()
            .filter(|it| it.required && it.generate.is_empty() && it.value.is_empty())
            .map(|it| it.name.as_str())
            .collect();
        let mut schema = json!({
            "$schema": "http://json-schema.org/draft-04/schema",
            "type": "object",
            "additionalProperties": false,
            "properties": properties,
        });
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(parameters: Value) -> Value {
        let document = json!({"apiVersion": "v1", "kind": "Template", "objects": [], "parameters": parameters});
        Template::read(document).unwrap().schema()
    }

    #[test]
    fn each_parameter_is_a_string_with_its_default() {
        let schema = schema(json!([
            {"name": "A", "displayName": "An a", "description": "What a is", "value": "1"},
            {"name": "B"},
        ]));
        assert_eq!(
            schema["properties"],
            json!({
                "A": {"type": "string", "default": "1", "title": "An a", "description": "What a is"},
                "B": {"type": "string", "default": ""},
            })
        );
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema.get("required"), None, "there is none, and an empty list is not allowed");
    }

    #[test]
    fn required_is_what_has_no_value_and_nothing_generates() {
        let schema = schema(json!([
            {"name": "A", "required": true},
            {"name": "B", "required": true, "generate": "expression", "from": "[a-z]{8}"},
            {"name": "C", "required": true, "value": "c"},
        ]));
        assert_eq!(schema["required"], json!(["A"]), "what has a value was never asked for");
    }
}
