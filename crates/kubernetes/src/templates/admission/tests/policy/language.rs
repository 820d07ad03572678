//! What expressions have beyond the language: functions of Kubernetes, and types that are not looked at.

use std::cell::RefCell;

use osb::catalog::SchemaUse;
use osb::{Catalog, CompiledCatalog};
use serde_json::{Value, json};

use super::read::Policy;
use crate::templates::names::GROUP;

/// What a policy comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Why it is refused, if it is.
    pub(super) refused: Option<String>,
    /// Of whom it was asked whether they may be assigned to, as (namespace, name).
    pub(super) asked: Option<(String, String)>,
}

/// A request, as a policy sees it, and whether whoever asks may `assign`.
pub(super) struct Asked<'a> {
    pub(super) request: &'a Value,
    pub(super) object: &'a Value,
    pub(super) old: &'a Value,
    pub(super) may: bool,
}

impl Asked<'_> {
    /// What a policy says of it.
    pub(super) fn judged_by(&self, policy: &Policy) -> Result<Verdict, String> {
        let asked = RefCell::new(None);
        let mut known = json!({});
        for condition in policy.list("matchConditions") {
            if self.is(&condition["expression"], &known, &asked)? != Value::Bool(true) {
                return Ok(Verdict { refused: None, asked: None });
            }
        }
        // They are evaluated when they are used: one that has none is an error only then.
        let mut faulty = String::new();
        for variable in policy.list("variables") {
            let name = variable["name"].as_str().unwrap();
            // As to the right, whoever uses it asks.
            if name == "mayAssign" {
                continue;
            }
            match self.is(&variable["expression"], &known, &asked) {
                Ok(value) => known[name] = value,
                Err(why) => faulty = why,
            }
        }
        let right = policy.list("variables").iter().find(|it| it["name"] == "mayAssign");
        let right = right.map(|it| format!("({})", it["expression"].as_str().unwrap()));
        for validation in policy.list("validations") {
            let expression = validation["expression"].as_str().unwrap();
            // As the API server does: what the first operands decide is not asked.
            let whole = expression.replace("variables.mayAssign", right.as_deref().unwrap_or("-"));
            let without = expression.replace("variables.mayAssign", "false");
            let unasked = RefCell::new(None);
            let holds = match self.is(&without.into(), &known, &unasked) {
                Ok(Value::Bool(true)) => Ok(Value::Bool(true)),
                _ => self.is(&whole.into(), &known, &asked),
            };
            match holds.map_err(|why| format!("{why}; {faulty}"))? {
                Value::Bool(true) => {}
                Value::Bool(false) => {
                    let said = match &validation["messageExpression"] {
                        Value::Null => validation["message"].clone(),
                        expression => self.is(expression, &known, &asked)?,
                    };
                    let refused = said.as_str().map(str::to_owned);
                    return Ok(Verdict { refused, asked: asked.into_inner() });
                }
                other => return Err(format!("{expression} is {other}")),
            }
        }
        Ok(Verdict { refused: None, asked: asked.into_inner() })
    }

    /// The object with what a policy writes into it.
    pub(super) fn changed_by(&self, policy: &Policy) -> Result<Value, String> {
        let asked = RefCell::new(None);
        for condition in policy.list("matchConditions") {
            if self.is(&condition["expression"], &Value::Null, &asked)? != Value::Bool(true) {
                return Ok(self.object.clone());
            }
        }
        let value = policy
            .mutation()
            .strip_prefix("[JSONPatch{op: 'add', path: '/spec/requester', value: ");
        let value =
            value.and_then(|value| value.strip_suffix("}]")).expect("it adds the requester");
        let mut object = self.object.clone();
        object["spec"]["requester"] = self.is(&value.into(), &Value::Null, &asked)?;
        Ok(object)
    }

    fn is(
        &self,
        expression: &Value,
        variables: &Value,
        asked: &RefCell<Option<(String, String)>>,
    ) -> Result<Value, String> {
        let expression = expression.as_str().unwrap();
        let functions = |name: &str, arguments: &[Value]| match (name, arguments) {
            ("dyn", [value]) => Some(value.clone()),
            ("matches", [Value::String(text), Value::String(pattern)]) => {
                Some(matches(text, pattern).into())
            }
            ("join", [Value::Array(list), Value::String(between)]) => {
                let texts: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
                Some(texts?.join(between).into())
            }
            ("indexOf", [Value::Array(list), of]) => {
                list.iter().position(|it| it == of).map(Value::from)
            }
            ("allowed", [of]) => {
                let text = |of: &Value| of.as_str().unwrap().to_owned();
                assert_eq!((&of["group"], &of["check"]), (&json!(GROUP), &json!("assign")));
                assert_eq!(of["resource"], "templateinstances");
                *asked.borrow_mut() = Some((text(&of["namespace"]), text(&of["name"])));
                Some(self.may.into())
            }
            ("group" | "resource" | "namespace" | "name" | "check", [of, value]) => {
                let mut of = of.clone();
                of.as_object_mut()?.insert(name.to_owned(), value.clone());
                Some(of)
            }
            _ => None,
        };
        let values = [
            ("object", self.object),
            ("oldObject", self.old),
            ("request", self.request),
            ("authorizer", &json!({})),
            ("variables", variables),
        ];
        template::evaluate(expression, &values, &functions)
            .map_err(|why| format!("{expression}: {why}"))
    }
}

fn matches(text: &str, pattern: &str) -> bool {
    fits(&json!(text), &json!({"pattern": pattern}))
}

/// Whether a value fits a JSON Schema.
pub(super) fn fits(value: &Value, schema: &Value) -> bool {
    let catalog: Catalog = serde_json::from_value(json!({"services": [{
        "id": "s", "name": "s", "description": "s", "bindable": false,
        "plans": [{"id": "p", "name": "p", "description": "p", "schemas": {"service_instance": {
            "create": {"parameters": {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object", "properties": {"it": schema},
            }},
        }}}],
    }]}))
    .unwrap();
    let catalog = CompiledCatalog::compile(catalog).unwrap();
    let [service] = catalog.catalog().services.as_slice() else { panic!("there is one service") };
    let plan = catalog.plan(&service.id, &service.plans[0].id).unwrap();
    plan.check(SchemaUse::Provision, json!({"it": value}).as_object().unwrap()).is_ok()
}
