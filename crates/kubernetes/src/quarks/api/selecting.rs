//! Selectors of pods, as the first releases of ExtendedJob read them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize as _;
use serde_json::{Value, json};

/// How many expressions (`matchExpressions`) a selector may have, and how many labels (`matchLabels`).
const MOST_EXPRESSIONS: usize = 100;

/// A selector that has been read.
#[derive(Debug, Clone)]
pub(crate) struct Selecting {
    selector: Selector,
    /// A label that each pod has to have, name and value; `None`: there is none that is sure.
    pub(crate) demands: Option<(String, String)>,
    /// The conditions `gt` and `lt`, which a selector of Kubernetes cannot express.
    bounds: Vec<Bound>,
}

/// A condition that the value of a label is a number above or below this one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound {
    label: String,
    is_lower: bool,
    number: i64,
}

impl Selecting {
    /// Reads a selector; one that is missing selects each pod, as in the original. The error says what is wrong.
    pub(crate) fn read(selector: &Value) -> Result<Self, String> {
        let selector = if selector.is_null() { &json!({}) } else { selector };
        if !selector.is_object() {
            return Err("has to be an object: say matchLabels".to_owned());
        }
        let expressions = selector["matchExpressions"].as_array().map_or(0, Vec::len);
        let labels = selector["matchLabels"].as_object().map_or(0, serde_json::Map::len);
        for (member, count) in [("matchExpressions", expressions), ("matchLabels", labels)] {
            if count > MOST_EXPRESSIONS {
                return Err(format!(
                    "{member}: more than {MOST_EXPRESSIONS} are too many: each pod of the namespace is matched with all"
                ));
            }
        }
        let mut selector = respelled(selector);
        assert_operators(&selector)?;
        let bounds = bounds(&mut selector)?;
        let read = LabelSelector::deserialize(selector).map_err(|error| error.to_string())?;
        let demands = demands(&read);
        let selector = Selector::try_from(read).map_err(|error| error.to_string())?;
        Ok(Self { selector, demands, bounds })
    }

    pub(crate) fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels) && self.bounds.iter().all(|bound| bound.holds(labels))
    }
}

impl Bound {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let is = labels.get(&self.label).and_then(|label| label.parse::<i64>().ok());
        is.is_some_and(|is| if self.is_lower { is > self.number } else { is < self.number })
    }
}

/// A label that a selector demands: one of `matchLabels`, or of an expression with one value.
fn demands(selector: &LabelSelector) -> Option<(String, String)> {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(name, value)| (name.clone(), value.clone()));
    let expressions = selector.match_expressions.iter().flatten().filter_map(|wanted| match wanted
        .values
        .as_deref()
    {
        Some([value]) if wanted.operator == "In" => Some((wanted.key.clone(), value.clone())),
        _ => None,
    });
    labels.chain(expressions).next()
}

/// Takes the expressions with `gt` and `lt` out of a selector.
fn bounds(selector: &mut Value) -> Result<Vec<Bound>, String> {
    let Some(all) = selector["matchExpressions"].as_array_mut() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    let is_bound = |wanted: &Value| matches!(wanted["operator"].as_str(), Some("gt" | "lt"));
    for wanted in all.extract_if(.., |wanted| is_bound(wanted)) {
        let label = wanted["key"].as_str().ok_or("matchExpressions: each has a key")?.to_owned();
        let number = match wanted["values"].as_array().map(Vec::as_slice) {
            Some([Value::String(one)]) => one.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| {
            format!(
                "matchExpressions: gt and lt have one value, which is an integer: {label} has not"
            )
        })?;
        found.push(Bound { label, is_lower: wanted["operator"] == "gt", number });
    }
    Ok(found)
}

/// A selector with its operators as Kubernetes spells them: the original had those of `kubectl`'s selectors.
fn respelled(selector: &Value) -> Value {
    let mut selector = selector.clone();
    for wanted in selector["matchExpressions"].as_array_mut().into_iter().flatten() {
        let operator = match wanted["operator"].as_str() {
            Some("in" | "=" | "==") => "In",
            Some("notin" | "!=") => "NotIn",
            Some("exists") => "Exists",
            Some("!") => "DoesNotExist",
            _ => continue,
        };
        wanted["operator"] = operator.into();
    }
    selector
}

/// Asserts that each expression has an operator that selectors know.
fn assert_operators(respelled: &Value) -> Result<(), String> {
    const KNOWN: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "gt", "lt"];
    let expressions = respelled["matchExpressions"].as_array().into_iter().flatten();
    for (at, wanted) in expressions.enumerate() {
        let operator = wanted["operator"].as_str().unwrap_or_default();
        if !KNOWN.contains(&operator) {
            return Err(format!(
                "matchExpressions[{at}].operator: has to be one of {}",
                KNOWN.join(", ")
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a pod with this label is followed.
    fn follows(operator: &str, values: &Value, value: &str) -> bool {
        let wanted = json!([{"key": "env", "operator": operator, "values": values}]);
        let selector = json!({"matchLabels": {}, "matchExpressions": wanted});
        Selecting::read(&selector)
            .unwrap()
            .selects(&BTreeMap::from([("env".to_owned(), value.to_owned())]))
    }

    #[test]
    fn expressions_have_a_limit() {
        let of = |count: usize| {
            let all = vec![json!({"key": "env", "operator": "Exists"}); count];
            Selecting::read(&json!({"matchExpressions": all})).map(drop)
        };
        assert_eq!(of(100), Ok(()));
        assert!(of(101).unwrap_err().contains("more than 100 are too many"));
    }

    #[test]
    fn operators_may_be_spelled_as_the_original_had_them() {
        for (operator, values, a, b) in [
            ("In", json!(["a"]), true, false),
            ("in", json!(["a"]), true, false),
            ("=", json!(["a"]), true, false),
            ("==", json!(["a"]), true, false),
            ("NotIn", json!(["a"]), false, true),
            ("notin", json!(["a"]), false, true),
            ("!=", json!(["a"]), false, true),
            ("exists", json!(null), true, true),
            ("!", json!(null), false, false),
        ] {
            let found = (follows(operator, &values, "a"), follows(operator, &values, "b"));
            assert_eq!(found, (a, b), "{operator}");
        }
    }

    #[test]
    fn a_label_may_have_to_be_a_number_beyond_another() {
        for (operator, number, is_followed) in [
            ("gt", "3", ["4", "20"].as_slice()),
            ("lt", "3", &["-1", "2"]),
            ("gt", "-2", &["-1", "2", "3", "4", "20"]),
        ] {
            let all = ["-1", "2", "3", "4", "20", "3.5", "four", ""];
            let found: Vec<_> = all
                .into_iter()
                .filter(|value| follows(operator, &json!([number]), value))
                .collect();
            assert_eq!(found, is_followed, "{operator} {number}");
        }
        // Beside others, and of another label.
        let wanted = json!([{"key": "index", "operator": "gt", "values": ["0"]},
            {"key": "env", "operator": "in", "values": ["a"]}]);
        let both = Selecting::read(&json!({"matchExpressions": wanted})).unwrap();
        for (index, env, is_selected) in
            [("1", "a", true), ("0", "a", false), ("1", "b", false), ("", "a", false)]
        {
            let labels = [("index", index), ("env", env)];
            let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            assert_eq!(both.selects(&labels), is_selected, "{labels:?}");
        }
        for values in [json!(null), json!([]), json!(["1", "2"]), json!(["x"]), json!([1])] {
            let wanted = json!([{"key": "index", "operator": "lt", "values": values}]);
            let why = Selecting::read(&json!({"matchExpressions": wanted})).unwrap_err();
            assert!(why.starts_with("matchExpressions: gt and lt have one value"), "{why}");
        }
    }

    #[test]
    fn an_operator_that_nobody_knows_is_named_by_its_place() {
        let selector = json!({"matchExpressions": [
            {"key": "a", "operator": "exists"}, {"key": "a", "operator": "foo", "values": ["x"]},
        ]});
        let why = Selecting::read(&selector).unwrap_err();
        assert!(
            why.starts_with("matchExpressions[1].operator: has to be one of In, NotIn"),
            "{why}"
        );
    }
}
