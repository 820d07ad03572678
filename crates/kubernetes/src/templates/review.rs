//! The access review before anything is made: may the requester make all objects?

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};

use super::change::replaces;
use super::make::AT_ONCE;
use super::plan::Planned;
use super::trouble::Trouble;
use crate::calls::{CallError, call};

/// A right that a requester needs: a verb, and the object that it is for.
pub(super) type Needed<'a> = (&'static str, &'a Planned);

/// The rights needed to make a plan; to change what was made before, if there are `formers` (the objects that have to
/// go); and to make the `binding` Secret of the exposed values.
pub(super) fn needed<'a>(
    plan: &'a [Planned],
    formers: Option<&'a [Planned]>,
    binding: Option<&'a Planned>,
) -> Vec<Needed<'a>> {
    let none: &[Planned] = &[];
    let (changed, gone) = formers.map_or((none, none), |formers| (plan, formers));
    let exposing = plan.iter().filter(|it| binding.is_some() && it.may_expose());
    let all = |verb: &'static str, of: &'a [Planned]| of.iter().map(move |it| (verb, it));
    all("create", plan)
        .chain(all("get", changed))
        .chain(all("patch", changed))
        .chain(changed.iter().filter(|it| replaces(it)).map(|it| ("delete", it)))
        .chain(all("get", gone))
        .chain(all("delete", gone))
        .chain(exposing.map(|it| ("get", it)))
        .chain(binding.map(|it| ("create", it)))
        .collect()
}

/// Checks that the requester, for whom the client acts, has all needed rights: one question for each verb, resource and
/// namespace.
///
/// # Errors
/// If rights are missing: all of them.
pub(super) async fn review(
    client: &Client,
    user: &str,
    needed: &[Needed<'_>],
) -> Result<(), Trouble> {
    let mut asked: BTreeMap<(&str, String, Option<&str>), &Planned> = BTreeMap::new();
    for (verb, planned) in needed {
        let key = (*verb, planned.resource(), planned.namespace.as_deref());
        asked.entry(key).or_insert(planned);
    }
    let asked = asked.into_iter().map(|((verb, ..), planned)| async move {
        Ok::<_, Trouble>(match may(client, verb, planned).await? {
            true => None,
            false => Some(missing(user, verb, planned)),
        })
    });
    let asked: Vec<_> = asked.collect();
    let missing: Vec<Option<String>> = stream::iter(asked).buffered(AT_ONCE).try_collect().await?;
    let missing: Vec<String> = missing.into_iter().flatten().collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Trouble::Doubtful(missing.join("\n"))),
    }
}

fn missing(user: &str, verb: &str, planned: &Planned) -> String {
    let place = match &planned.namespace {
        Some(namespace) => format!("in namespace {namespace:?}"),
        None => "in the whole cluster".to_owned(),
    };
    format!(
        "unable to authorize user to {verb} {}: {user:?} may not {verb} {} {place}",
        planned.words(),
        planned.resource()
    )
}

async fn may(client: &Client, verb: &str, planned: &Planned) -> Result<bool, CallError> {
    let resource = &planned.served.resource;
    let right = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(resource.group.clone()),
        version: Some(resource.version.clone()),
        resource: Some(resource.plural.clone()),
        namespace: planned.namespace.clone(),
        ..ResourceAttributes::default()
    };
    has_right(client, right).await
}

/// Whether the requester, for whom the client acts, has a right (SelfSubjectAccessReview).
pub(super) async fn has_right(
    client: &Client,
    right: ResourceAttributes,
) -> Result<bool, CallError> {
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(right),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answered = call(api.create(&PostParams::default(), &review)).await?;
    Ok(answered.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}

#[cfg(test)]
mod tests {
    use kube::discovery::ApiResource;
    use serde_json::{Value, json};

    use super::*;
    use crate::templates::kinds::ServedKind;

    fn planned(kind: &str, object: Value) -> Planned {
        let resource = ApiResource {
            group: String::new(),
            version: "v1".into(),
            api_version: "v1".into(),
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        let served = ServedKind { resource, is_namespaced: true, is_kept: true };
        Planned { served, name: "a".into(), namespace: Some("n".into()), rank: 0, object }
    }

    #[test]
    fn rights_are_those_that_will_be_needed() {
        let replaced =
            json!({"metadata": {"annotations": {"template.manciple.dev/on-change": "replace"}}});
        let plan = [planned("Pod", replaced), planned("Secret", json!({}))];
        let gone = [planned("Service", Value::Null)];
        let binding = planned("Secret", Value::Null);
        let words = |formers, binding| -> Vec<String> {
            let needed = needed(&plan, formers, binding);
            needed.iter().map(|(verb, it)| format!("{verb} {}", it.resource())).collect()
        };
        assert_eq!(words(None, None), ["create pods", "create secrets"]);
        let bound = ["create pods", "create secrets", "get secrets", "create secrets"];
        assert_eq!(words(None, Some(&binding)), bound, "what exposes is read");
        let changed = [
            "create pods",
            "create secrets",
            "get pods",
            "get secrets",
            "patch pods",
            "patch secrets",
            "delete pods",
            "get services",
            "delete services",
        ];
        assert_eq!(words(Some(&gone), None), changed);
    }
}
