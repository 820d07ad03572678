//! Checks of update requests, beyond those that hold for every broker.

use engine::record::Ordered;
use osb::{Error, ErrorKind, MaintenanceInfo, Object, UpdateRequest, Work};
use serde_json::{Value, json};

/// How many wrong parameters an error names.
const MOST: usize = 20;
/// How many characters of each parameter's name an error has: a request can have long ones.
const SHOWN: usize = 100;

/// Checks that an update leaves the instance in its namespace. A context that does not name the namespace is completed:
/// it replaces the previous one, by which it is known whose the instance is.
///
/// # Errors
/// If the context names another platform or namespace.
pub(super) fn stay(request: &mut UpdateRequest, namespace: &str) -> Result<(), Error> {
    let Some(context) = request.context.take() else { return Ok(()) };
    let mut context = context.into_inner();
    for (member, value) in [("platform", "kubernetes"), ("namespace", namespace)] {
        if *context.entry(member).or_insert_with(|| json!(value)) != value {
            let words = format!("context.{member}: an instance stays in {value:?}");
            let error = Error::new(ErrorKind::Unprocessable, words);
            return Err(error.instance_usable(true).update_repeatable(false));
        }
    }
    request.context = Some(context.into());
    Ok(())
}

/// The template against which parameters are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParameterSource {
    /// The template that the instance has, and keeps.
    Instance,
    /// The newer revision of the template that is requested.
    Newer,
}

/// Checks that all parameters are declared by a template, and are strings.
///
/// # Errors
/// If some are not: names the first [`MOST`] of them by their paths, without values.
pub(super) fn fit(of: ParameterSource, template: &Value, parameters: &Object) -> Result<(), Error> {
    let declared = || template["parameters"].as_array().into_iter().flatten();
    let wrong = |(name, value): (&String, &Value)| {
        let is_known = declared().any(|it| it["name"] == name.as_str());
        let words = match (is_known, of) {
            (true, _) if value.is_string() => return None,
            (true, _) => "has to be a string",
            (false, ParameterSource::Newer) => "the template does not know it",
            (false, ParameterSource::Instance) => {
                "the template that the instance has does not know it: ask for the newer one with maintenance_info"
            }
        };
        let name: String = name.replace('~', "~0").replace('/', "~1").chars().take(SHOWN).collect();
        Some(format!("parameters/{name}: {words}"))
    };
    let wrongs: Vec<String> = parameters.iter().filter_map(wrong).take(MOST).collect();
    match wrongs.is_empty() {
        true => Ok(()),
        false => Err(Error::bad_request(wrongs.join("; "))),
    }
}

/// The revision that a request asks for, if it is not the present one.
pub(super) fn revision<'r>(
    ordered: &Ordered,
    request: &'r UpdateRequest,
) -> Option<&'r MaintenanceInfo> {
    newly(request.maintenance_info.as_ref(), ordered.maintenance_info.as_ref())
}

/// The revision that a piece of work asks for, if it is not the present one: where a request names none, the engine
/// passes on the present one.
pub(super) fn revision_of(work: &Work) -> Option<&MaintenanceInfo> {
    let before = work.previous_values.as_ref().and_then(|it| it.maintenance_info.as_ref());
    newly(work.maintenance_info.as_ref(), before)
}

fn newly<'a>(
    asked: Option<&'a MaintenanceInfo>,
    before: Option<&MaintenanceInfo>,
) -> Option<&'a MaintenanceInfo> {
    asked.filter(|asked| before.is_none_or(|before| before.version != asked.version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(members: Value) -> UpdateRequest {
        let mut request = json!({"service_id": "s"});
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn an_instance_stays_where_it_is() {
        let whole = || Ok(json!({"platform": "kubernetes", "namespace": "shop"}));
        for (case, members, expected) in [
            ("none", json!({}), Ok(json!(null))),
            (
                "the same",
                json!({"context": {"platform": "kubernetes", "namespace": "shop"}}),
                whole(),
            ),
            ("an empty one", json!({"context": {}}), whole()),
            ("without a namespace", json!({"context": {"platform": "kubernetes"}}), whole()),
            (
                "with more",
                json!({"context": {"namespace": "shop", "instance_name": "i"}}),
                Ok(json!({"platform": "kubernetes", "namespace": "shop", "instance_name": "i"})),
            ),
            (
                "another namespace",
                json!({"context": {"platform": "kubernetes", "namespace": "other"}}),
                Err("context.namespace: an instance stays in \"shop\""),
            ),
            (
                "no namespace at all",
                json!({"context": {"namespace": null}}),
                Err("context.namespace: an instance stays in \"shop\""),
            ),
            (
                "another platform",
                json!({"context": {"platform": "cloudfoundry", "namespace": "shop"}}),
                Err("context.platform: an instance stays in \"kubernetes\""),
            ),
        ] {
            let mut request = request(members);
            let found = stay(&mut request, "shop").map_err(|error| error.description.into_owned());
            let found = found.map(|()| match &request.context {
                Some(context) => Value::Object(context.expose().clone()),
                None => Value::Null,
            });
            assert_eq!(found, expected.map_err(str::to_owned), "{case}");
        }
    }

    #[test]
    fn parameters_are_those_of_the_template_that_is_asked_for() {
        let template = json!({"parameters": [{"name": "A"}, {"name": "B"}]});
        let unknown = "the template that the instance has does not know it: ask for the newer one with maintenance_info";
        for (case, of, parameters, expected) in [
            ("its own", ParameterSource::Instance, json!({"A": "1", "B": ""}), Ok(())),
            ("none", ParameterSource::Instance, json!({}), Ok(())),
            (
                "another's",
                ParameterSource::Instance,
                json!({"A": "1", "C": "hunter2"}),
                Err(format!("parameters/C: {unknown}")),
            ),
            (
                "another's beside the newer one",
                ParameterSource::Newer,
                json!({"C": "hunter2"}),
                Err("parameters/C: the template does not know it".to_owned()),
            ),
            (
                "several",
                ParameterSource::Instance,
                json!({"A": 1, "B": null, "c/~": ""}),
                Err(format!(
                    "parameters/A: has to be a string; parameters/B: has to be a string; parameters/c~1~0: {unknown}"
                )),
            ),
        ] {
            let found = fit(of, &template, parameters.as_object().unwrap());
            let found = found.map_err(|error| {
                assert_eq!(error.kind, ErrorKind::BadRequest, "{case}");
                error.description.into_owned()
            });
            assert_eq!(found, expected, "{case}");
        }
        let many: Object =
            (0..1000).map(|it| (format!("{it}{}", "x".repeat(999)), json!(1))).collect();
        let said = fit(ParameterSource::Newer, &template, &many).unwrap_err().description;
        assert!(said.len() < 20 * 200, "{}", said.len());
    }
}
