//! The new order of an instance: a template, and values of its parameters.

use kube::api::DynamicObject;
use kubernetes::templates::record::{Record, Values, of_revision};
use serde_json::Value;

use super::args::OrderArgs;
use super::cluster::Cluster;
use crate::cli::failure::Failure;
use crate::template::{documents, given};

/// The desired order: a template, and values of its parameters.
pub(super) struct Desired {
    pub(super) template: Value,
    pub(super) values: Values,
    /// Whether the values differ from those in the Secret of the instance.
    pub(super) has_values: bool,
}

/// The order with the changes of the command line to the current one.
pub(super) async fn given(
    cluster: &Cluster,
    instance: &DynamicObject,
    args: &OrderArgs,
) -> Result<Desired, Failure> {
    given::once(args.template.iter().chain(&args.values.files))?;
    let given = given::read(&[], &args.values, cluster.out).await?;
    let template = match &args.template {
        Some(path) => {
            let document = documents::first(path, cluster.out).await?;
            // Faults are better said before anything is sent.
            documents::read(document.clone()).map(drop)?;
            document
        }
        None => instance.data["spec"]["template"].clone(),
    };
    let ignores_unknown = args.values.ignore_unknown_parameters == Some(true);
    let given = known(&template, given, ignores_unknown)?;
    let has_values = !given.is_empty();
    let mut values = cluster.values(instance).await?;
    values.extend(given);
    Ok(Desired { template, values, has_values })
}

/// The order of a revision, with its values but for the template's defaults.
pub(super) fn recorded(spec: &Value, record: &Record) -> Desired {
    let template = spec["template"].clone();
    let mut values = record.parameters.clone();
    values.retain(|name, value| {
        let is_said = |it: &&Value| {
            let text = |of: &str| it[of].as_str().unwrap_or_default();
            text("name") == name && text("generate").is_empty() && text("value") == value
        };
        !parameters(&template).any(|it| is_said(&it))
    });
    Desired { template: of_revision(template, record.revision), values, has_values: true }
}

/// The given values that the template knows.
fn known(template: &Value, given: Values, ignores_unknown: bool) -> Result<Values, Failure> {
    let is_known = |name: &String| parameters(template).any(|it| it["name"] == *name);
    let (known, unknown): (Values, Values) =
        given.into_iter().partition(|(name, _)| is_known(name));
    if unknown.is_empty() || ignores_unknown {
        return Ok(known);
    }
    let unknown: Vec<String> =
        unknown.keys().map(|name| format!("unknown parameter name {name:?}")).collect();
    Err(Failure::usage(unknown.join(", "))
        .hint("the template has no such parameter; --ignore-unknown-parameters passes over it"))
}

fn parameters(template: &Value) -> impl Iterator<Item = &Value> {
    template["parameters"].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_revision_is_its_template_and_what_that_does_not_say_itself() {
        let template = json!({"parameters": [
            {"name": "SAID", "value": "a"},
            {"name": "GIVEN", "value": "a"},
            {"name": "MADE", "generate": "expression", "from": "[a-z]{8}"},
            {"name": "EMPTY", "generate": "expression", "from": "[a-z]{8}"},
            {"name": "LEFT"},
        ]});
        let record = json!({
            "parameters": {"SAID": "a", "GIVEN": "b", "MADE": "hunter2", "EMPTY": "", "LEFT": ""},
            "requester": null, "spec": "",
        });
        let record: Record = serde_json::from_value(record).unwrap();
        let order = recorded(&json!({"template": template}), &record);
        let template = of_revision(template, 1);
        assert_eq!(template["metadata"]["annotations"]["template.manciple.dev/revision"], "1");
        assert_eq!(order.values, values(&[("EMPTY", ""), ("GIVEN", "b"), ("MADE", "hunter2")]));
        assert!(order.has_values && order.template == template);
    }

    #[test]
    fn what_the_template_does_not_know_is_refused_without_its_value() {
        let template = json!({"parameters": [{"name": "A"}]});
        let given = || values(&[("A", "1"), ("B", "hunter2")]);
        let failure = known(&template, given(), false).unwrap_err().to_string();
        assert!(failure.contains("\"B\"") && !failure.contains("hunter2"), "{failure}");
        assert_eq!(known(&template, given(), true).unwrap(), values(&[("A", "1")]));
        assert_eq!(known(&json!({}), Values::new(), false).unwrap(), Values::new());
    }
}
