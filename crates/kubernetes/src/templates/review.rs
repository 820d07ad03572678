//! Whether the requester may make everything, asked before anything is made.

use std::collections::BTreeMap;

use futures_util::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};

use super::make::AT_ONCE;
use super::plan::Planned;
use super::trouble::Trouble;
use crate::calls::call;

/// Asks whether the requester, whose client it is, may make these, and, where something was made before, change them,
/// and remove the formers: once for each resource and namespace.
///
/// # Errors
/// If not: all that is missing.
pub(super) async fn review(
    client: &Client,
    user: &str,
    plan: &[Planned],
    changes: Option<&[Planned]>,
) -> Result<(), Trouble> {
    let none: &[Planned] = &[];
    let (changed, removed) = changes.map_or((none, none), |formers| (plan, formers));
    let mut asked: BTreeMap<(&str, String, Option<&str>), &Planned> = BTreeMap::new();
    for (verb, planned) in [("create", plan), ("patch", changed), ("delete", removed)] {
        for planned in planned {
            let key = (verb, planned.resource(), planned.namespace.as_deref());
            asked.entry(key).or_insert(planned);
        }
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

async fn may(client: &Client, verb: &str, planned: &Planned) -> Result<bool, Trouble> {
    let resource = &planned.place.resource;
    let attributes = ResourceAttributes {
        verb: Some(verb.to_owned()),
        group: Some(resource.group.clone()),
        version: Some(resource.version.clone()),
        resource: Some(resource.plural.clone()),
        namespace: planned.namespace.clone(),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answered = call(api.create(&PostParams::default(), &review)).await?;
    Ok(answered.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
}
