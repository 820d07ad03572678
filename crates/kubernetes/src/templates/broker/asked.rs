//! What may be asked of an update, beyond what holds for every broker.

use engine::record::Ordered;
use osb::{Error, ErrorKind, MaintenanceInfo, Object, UpdateRequest, Work};
use serde_json::{Value, json};

/// An instance stays where it is. A context that does not say where is completed: it takes the place of the one
/// before, by which it is known whose the instance is.
///
/// # Errors
/// If the context says otherwise.
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

/// Whether a parameter is one of a template's.
///
/// # Errors
/// Of the first that is none.
pub(super) fn known(template: &Value, parameters: &Object) -> Result<(), Error> {
    let declared = || template["parameters"].as_array().into_iter().flatten();
    let is_unknown = |name: &&String| !declared().any(|it| it["name"] == name.as_str());
    match parameters.keys().find(is_unknown) {
        None => Ok(()),
        Some(name) => Err(Error::bad_request(format!(
            "parameters.{name}: the template that the instance has does not know it: ask for the newer one with \
             maintenance_info"
        ))),
    }
}

/// The revision that a request asks for, if it is not the one that was asked for before.
pub(super) fn revision<'r>(
    ordered: &Ordered,
    request: &'r UpdateRequest,
) -> Option<&'r MaintenanceInfo> {
    newly(request.maintenance_info.as_ref(), ordered.maintenance_info.as_ref())
}

/// The same of work: what the engine hands on is the revision of before, where none is asked for.
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
    fn a_parameter_that_the_instances_template_does_not_know_is_refused() {
        let template = json!({"parameters": [{"name": "A"}, {"name": "B"}]});
        let of = |parameters: Value| {
            known(&template, parameters.as_object().unwrap()).map_err(|error| error.kind)
        };
        assert_eq!(of(json!({"A": "1", "B": "2"})), Ok(()));
        assert_eq!(of(json!({})), Ok(()));
        assert_eq!(of(json!({"A": "1", "C": "2"})), Err(ErrorKind::BadRequest));
    }
}
