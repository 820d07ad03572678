//! Adopts service instances that have a claim (BrokerTemplateInstance) and no record: those of OpenShift's broker,
//! which kept only the claim and what it names; and those whose record was lost. They are recorded when a platform
//! first names one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::record::{Key, Lifecycle, Made, Ordered, Record};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject};
use osb::{
    BindRequest, BindingBody, BindingId, BindingView, Call, Error, ErrorKind, Failure, FailureKind,
    InstanceId, Object, PlanId, ServiceId,
};
use serde_json::{Value, json};

use super::await_end::{Stands, stands};
use super::claim::Claim;
use super::front::Front;
use super::ids::{Named, is_uuid};
use super::rights::of_group;
use super::strict::Claims;
use super::{TemplateBroker, failed, identity};
use crate::calls::find;
use crate::templates::names::VERIFIED;
use crate::templates::record::Values;
use crate::templates::verified;

/// The `Retry-After` of an answer that something is not known now.
const AGAIN: Duration = Duration::from_secs(2);

/// What a platform wants when it names a service instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Aim {
    /// To see the state of the instance.
    #[default]
    See,
    /// To bind or to change the instance.
    Use,
    /// To order the instance, perhaps again.
    Order,
    /// To remove a binding of the instance.
    Unbind,
    /// To remove the instance.
    Remove,
}

/// What a request says about the service instance that it names.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    pub(super) aim: Aim,
    /// The service and the plan of the instance.
    pub(super) sold: Option<(ServiceId, PlanId)>,
    /// For an order: the namespace, the organization and the space.
    pub(super) place: Option<[String; 3]>,
    /// Of an order: its digest.
    pub(super) order: Option<String>,
    /// Of an order: what is kept of its parameters, where they are what the template takes.
    pub(super) values: Option<Values>,
}

impl Asked {
    /// For a request to bind or to change an instance.
    pub(super) fn used(sold: Option<(ServiceId, PlanId)>) -> Self {
        Self { aim: Aim::Use, sold, ..Self::default() }
    }

    /// For a request that names service and plan.
    pub(super) fn of(aim: Aim, service: &ServiceId, plan: &PlanId) -> Self {
        Self { aim, sold: Some((service.clone(), plan.clone())), ..Self::default() }
    }
}

/// What happens to a service instance that was ordered elsewhere.
#[derive(Debug, PartialEq, Eq)]
enum Taken {
    /// The instance is recorded as made, or as failed with the reason.
    Recorded(Result<(), String>),
    /// The instance is still being made.
    GoesOn(Option<String>),
    /// The instance stays unknown.
    Unknown,
}

/// Decides what happens to a claimed instance. `stands`: the state of its TemplateInstance; `None` where that was never
/// made, or was removed.
fn taken(stands: Option<Stands>, aim: Aim) -> Taken {
    match (stands, aim) {
        (Some(Stands::Failed(why)), _) => Taken::Recorded(Err(why)),
        (Some(Stands::Ready), _)
        | (Some(Stands::GoesOn(_)), Aim::Remove)
        | (None, Aim::Remove | Aim::Unbind) => Taken::Recorded(Ok(())),
        // The order makes what is missing, and waits for what exists.
        (_, Aim::Order) | (None, Aim::See | Aim::Use) => Taken::Unknown,
        (Some(Stands::GoesOn(words)), Aim::See | Aim::Use | Aim::Unbind) => Taken::GoesOn(words),
    }
}

/// Whether a binding without a record is noted in a claim.
enum Noted {
    No,
    /// The binding is noted, and an operation on its instance is running.
    Busy,
    /// The binding is noted; with the order of its instance, and the claim.
    Idle(Box<(Ordered, Claim)>),
}

impl Front {
    /// Records a service instance that has a claim and no record, for a requester who may do with it what is asked. An
    /// instance without a claim stays unknown.
    ///
    /// # Errors
    /// If the requester may not, if it is not known now whether there is a claim, and if the instance is still being
    /// made, or removed.
    pub(super) async fn adopt(
        &self,
        call: &Call,
        instance: &InstanceId,
        asked: Asked,
    ) -> Result<(), Error> {
        let aim = asked.aim;
        match (self.going_on(call, instance, asked).await?, aim) {
            (None, _) => Ok(()),
            (Some(words), Aim::See) => {
                Err(Error::not_found(format!("the instance is not there: {words}")))
            }
            (Some(words), _) => {
                let words = format!("the instance was ordered elsewhere: {words}; come again");
                Err(Error::new(ErrorKind::ConcurrencyError, words).retry_after(AGAIN))
            }
        }
    }

    /// Like [`Front::adopt`]; for an instance that is still being made, or removed, returns its progress.
    pub(super) async fn going_on(
        &self,
        call: &Call,
        instance: &InstanceId,
        asked: Asked,
    ) -> Result<Option<String>, Error> {
        let key = Key::Instance(instance.clone());
        if !is_uuid(instance.as_str()) || self.is_recorded(&key, asked.aim).await? {
            return Ok(None);
        }
        let claim = self.broker.claimed(instance.as_str()).await.map_err(unknown)?;
        let Some(claim) = claim.filter(|claim| self.broker.takes(claim)) else { return Ok(None) };
        self.may_adopt(call, &claim, &asked).await?;
        match (claim.is_going(), asked.aim) {
            // A removal waits until the instance is gone.
            (false, _) | (true, Aim::Remove) => {}
            (true, Aim::Order) => return Ok(None),
            (true, _) => return Ok(Some("it is being removed".to_owned())),
        }
        let found = self.broker.of_claim(&claim).await.map_err(unknown)?;
        if found.as_ref().is_some_and(|found| self.broker.is_anothers(found)) {
            return Ok(None);
        }
        let Some((service, plan)) = self.broker.sold(found.as_ref(), &claim, &asked)? else {
            return Ok(None);
        };
        let made = match taken(found.map(|found| stands(&found, 0)), asked.aim) {
            Taken::Unknown => {
                self.broker.is_same_order(&claim, &asked).await?;
                return Ok(None);
            }
            Taken::GoesOn(words) => {
                return Ok(Some(words.unwrap_or_else(|| "it is still being made".to_owned())));
            }
            Taken::Recorded(made) => made.map(|()| Made::default()),
        };
        let ordered = self.broker.ordered(&claim, &asked, Ordered::bare(service, plan)).await;
        let ordered = ordered.map_err(unknown)?;
        if self.engine.adopt(&key, ordered, made).await.map_err(unknown)? {
            tracing::info!(%instance, "it was ordered elsewhere: recorded");
        }
        Ok(None)
    }

    /// Checks the requester's rights before anything is recorded for them.
    async fn may_adopt(&self, call: &Call, claim: &Claim, asked: &Asked) -> Result<(), Error> {
        let requester = identity::requester(call.originating_identity.as_ref())?;
        let namespace = claim.namespace().to_owned();
        if asked.place.as_ref().is_some_and(|[asked, ..]| *asked != namespace) {
            return Err(elsewhere());
        }
        if self.broker.is_gone(&namespace).await {
            return Ok(());
        }
        let verb = match asked.aim {
            Aim::See | Aim::Use | Aim::Order => "get",
            Aim::Unbind | Aim::Remove => "delete",
        };
        let name = claim.name().to_owned();
        self.rights.check(&requester, of_group(verb, "templateinstances", namespace, name)).await
    }

    /// Records a binding that is noted in the claim of its instance: one that is to be removed, or one that is
    /// requested again, with its credentials, which are read in the requester's name.
    pub(super) async fn adopt_binding(
        &self,
        call: &Call,
        (instance, binding): (&InstanceId, &BindingId),
        request: Option<&BindRequest>,
    ) -> Result<(), Error> {
        let key = Key::Binding(instance.clone(), binding.clone());
        let (parent, claim) = match self.noted(&key).await? {
            Noted::No => return Ok(()),
            Noted::Busy => {
                let words = "something is being done to the instance; come again";
                return Err(Error::new(ErrorKind::ConcurrencyError, words).retry_after(AGAIN));
            }
            Noted::Idle(noted) => *noted,
        };
        let made = match request {
            Some(_) => Ok(self.given(call, &claim).await?),
            // If the binding is requested again after all, it is made anew.
            None => Err("it was bound elsewhere, and what it was given is not known".to_owned()),
        };
        let ordered = Ordered {
            context: request.and_then(|request| request.context.clone()).unwrap_or_default(),
            bind_resource: request.and_then(|request| request.bind_resource.clone()),
            ..Ordered::bare(parent.service_id, parent.plan_id)
        };
        self.engine.adopt(&key, ordered, made).await.map(drop).map_err(unknown)
    }

    /// A binding that is noted in the claim of its instance and has no record, with what is exposed now.
    pub(super) async fn noted_binding(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<Option<BindingView>, Error> {
        let key = Key::Binding(instance.clone(), binding.clone());
        let Noted::Idle(noted) = self.noted(&key).await? else { return Ok(None) };
        let body = self.given(call, &noted.1).await?.binding.unwrap_or_default();
        Ok(Some(BindingView { body, parameters: None }))
    }

    /// Finds out whether a binding without a record is noted in the claim of its instance.
    async fn noted(&self, key: &Key) -> Result<Noted, Error> {
        let Some(binding) = key.binding() else { return Ok(Noted::No) };
        if self.is_recorded(key, Aim::Use).await? {
            return Ok(Noted::No);
        }
        let parent = self.engine.store().read(&Key::Instance(key.instance().clone())).await;
        let parent = parent.map_err(unknown)?.map(|stored| stored.record);
        let is_ready = |it: &Arc<Record>| it.lifecycle == Lifecycle::Ready;
        let Some(parent) = parent.filter(is_ready) else { return Ok(Noted::No) };
        let claim = self.broker.claimed(key.instance().as_str()).await.map_err(unknown)?;
        Ok(match claim.filter(|claim| claim.binds(binding.as_str())) {
            None => Noted::No,
            Some(_) if parent.is_busy() => Noted::Busy,
            Some(claim) => Noted::Idle(Box::new((parent.ordered.clone(), claim))),
        })
    }

    async fn given(&self, call: &Call, claim: &Claim) -> Result<Made, Error> {
        let requester = identity::requester(call.originating_identity.as_ref())?;
        let client = requester.client(&self.broker.client, claim.namespace());
        let credentials = self.broker.credentials(&client, claim).await.map_err(unread)?;
        let binding =
            BindingBody { credentials: Some(credentials.into()), ..BindingBody::default() };
        Ok(Made { binding: Some(binding), ..Made::default() })
    }

    /// Whether there is a record of an instance or binding, or what is left of one. For an order the store is not read:
    /// if there is a record after all, it is not overwritten.
    pub(super) async fn is_recorded(&self, key: &Key, aim: Aim) -> Result<bool, Error> {
        let store = self.engine.store();
        let known = store.glance(key).await.map_err(unknown)?;
        let asks = aim != Aim::Order && store.lags();
        Ok(known.is_some() || (asks && store.read(key).await.map_err(unknown)?.is_some()))
    }
}

/// The error for an order whose id is taken by an instance in another namespace.
pub(super) fn elsewhere() -> Error {
    Error::new(ErrorKind::Conflict, "the id is taken by an instance in another namespace")
}

#[async_trait]
impl Claims for TemplateBroker {
    async fn has(&self, instance: &InstanceId) -> Result<bool, Error> {
        if !is_uuid(instance.as_str()) {
            return Ok(false);
        }
        let claim = self.claimed(instance.as_str()).await.map_err(unknown)?;
        Ok(claim.is_some_and(|claim| self.takes(&claim)))
    }
}

impl TemplateBroker {
    /// Whether the instance of a claim is in a namespace that this broker serves.
    fn takes(&self, claim: &Claim) -> bool {
        let is_watched = |namespace: &str| self.watched.iter().any(|it| it == namespace);
        self.watched.is_empty() || is_watched(claim.namespace())
    }

    /// The TemplateInstance of a claim, if it exists.
    pub(super) async fn of_claim(&self, claim: &Claim) -> Result<Option<DynamicObject>, Failure> {
        let name = claim.name();
        let found = find(self.instances(&self.client, claim.namespace()).get(name)).await;
        let found = found.map_err(|error| failed(&format!("TemplateInstance {name}"), error))?;
        Ok(found.filter(|found| claim.owns(&found.metadata)))
    }

    /// Whether another Manciple has verified an instance: it is left alone.
    fn is_anothers(&self, instance: &DynamicObject) -> bool {
        let said = instance.annotations().get(VERIFIED);
        said.is_some_and(|said| verified::is_with_another_key(said, &self.seal))
    }

    /// The service and the plan of an instance: by the copy of its template, and by the ids that the platform gives, if
    /// these fit. Of a removed instance nothing else is known.
    ///
    /// # Errors
    /// If the instance to be removed is of another service.
    fn sold(
        &self,
        instance: Option<&DynamicObject>,
        claim: &Claim,
        asked: &Asked,
    ) -> Result<Option<(ServiceId, PlanId)>, Error> {
        let Some(instance) = instance else { return Ok(asked.sold.clone()) };
        let named = Named::of(&instance.data["spec"]["template"]["metadata"]);
        let ids = self.templates.ids();
        let service = ids.service(named);
        let known = [(named.uid.to_owned(), named.uid.to_owned()), {
            let plan = ids.plan(&service);
            (service, plan)
        }];
        let is_of = |(of, _): &&(String, String)| {
            asked.sold.as_ref().is_some_and(|(service, _)| service.as_str() == of)
        };
        let removes = matches!(asked.aim, Aim::Unbind | Aim::Remove);
        let found = match known.iter().find(is_of) {
            None if removes && asked.sold.is_some() => {
                let words = "service_id: is not the service of what is to be deleted";
                return Err(Error::bad_request(words));
            }
            Some(found) => Some(found),
            // The platform knows the service by the id that the broker which made the claim gave it.
            None if claim.is_ours() => known.last(),
            None => known.first(),
        };
        let id = |(service, plan): &(String, String)| {
            Some((ServiceId::new(service.clone()).ok()?, PlanId::new(plan.clone()).ok()?))
        };
        Ok(found.and_then(id))
    }

    /// The order of a claimed instance.
    async fn ordered(&self, claim: &Claim, asked: &Asked, of: Ordered) -> Result<Ordered, Failure> {
        let context = json!({"platform": "kubernetes", "namespace": claim.namespace()});
        let place = asked.place.clone().map(|[_, organization, space]| (organization, space));
        let (organization_guid, space_guid) = place.unzip();
        Ok(Ordered {
            parameters: self.parameters(claim).await?.into(),
            context: context.as_object().cloned().unwrap_or_default().into(),
            organization_guid,
            space_guid,
            ..of
        })
    }

    /// An order that was interrupted is gone on with by the same order alone: the Secret of the parameters may be there, and
    /// what is made of others would be neither. The claim says of which order it is; one that does not, as of OpenShift's
    /// broker, is told by the parameters that were kept.
    ///
    /// # Errors
    /// If it has another service, another plan or other parameters.
    pub(super) async fn is_same_order(&self, claim: &Claim, asked: &Asked) -> Result<(), Error> {
        let taken = |by: &str| {
            let words = format!(
                "the id is taken by {by}, which was interrupted: repeat that one, or remove it first"
            );
            Err(Error::new(ErrorKind::Conflict, words))
        };
        match asked.order.as_ref().and_then(|order| claim.is_for(order)) {
            Some(true) => return Ok(()),
            Some(false) => return taken("another order"),
            None => {}
        }
        let Some(values) = &asked.values else { return Ok(()) };
        let kept = self.kept_parameters(claim).await.map_err(unknown)?;
        let is_same = |kept: Object| {
            kept.len() == values.len()
                && values.iter().all(|(name, value)| kept.get(name).is_some_and(|it| it == value))
        };
        match kept.is_none_or(is_same) {
            true => Ok(()),
            false => taken("an order with other parameters"),
        }
    }

    /// The parameters in a claim's Secret; entries that are not UTF-8 are left out.
    async fn parameters(&self, claim: &Claim) -> Result<Object, Failure> {
        Ok(self.kept_parameters(claim).await?.unwrap_or_default())
    }

    /// The same; `None` if there is no such Secret, or it is not the claim's.
    async fn kept_parameters(&self, claim: &Claim) -> Result<Option<Object>, Failure> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), claim.namespace());
        let what = format!("Secret {}", claim.secret());
        let found =
            find(secrets.get(claim.secret())).await.map_err(|error| failed(&what, error))?;
        let found = found.filter(|found| claim.owns(&found.metadata));
        let Some(found) = found else { return Ok(None) };
        let data: BTreeMap<_, _> = found.data.unwrap_or_default();
        let text = |(name, value): (String, k8s_openapi::ByteString)| {
            Some((name, Value::String(String::from_utf8(value.0).ok()?)))
        };
        Ok(Some(data.into_iter().filter_map(text).collect()))
    }
}

fn unknown(error: impl std::fmt::Display) -> Error {
    tracing::warn!(%error, "whether an instance was ordered elsewhere is not known");
    let words = "whether there is such an instance is not known now; come again";
    Error::new(ErrorKind::Unavailable, words).retry_after(AGAIN)
}

fn unread(failure: Failure) -> Error {
    match failure.kind {
        FailureKind::Transient => {
            Error::new(ErrorKind::Unavailable, failure.description).retry_after(AGAIN)
        }
        _ => Error::bad_request(failure.description),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_ordered_elsewhere_is_recorded_as_it_stands() {
        let goes_on = || Some(Stands::GoesOn(Some("for a".into())));
        let failed = || Some(Stands::Failed("no".into()));
        let made = || Taken::Recorded(Ok(()));
        let waits = || Taken::GoesOn(Some("for a".into()));
        for (case, stands, aim, expected) in [
            ("it is there", Some(Stands::Ready), Aim::Use, made()),
            ("it is there, and looked at", Some(Stands::Ready), Aim::See, made()),
            ("an order again", Some(Stands::Ready), Aim::Order, made()),
            ("it failed", failed(), Aim::Use, Taken::Recorded(Err("no".into()))),
            ("it failed, and goes", failed(), Aim::Remove, Taken::Recorded(Err("no".into()))),
            ("it is being made", goes_on(), Aim::Use, waits()),
            ("it is being made, and looked at", goes_on(), Aim::See, waits()),
            ("it is being made, and unbound", goes_on(), Aim::Unbind, waits()),
            ("it is being made, and ordered again", goes_on(), Aim::Order, Taken::Unknown),
            ("it is being made, and to go", goes_on(), Aim::Remove, made()),
            ("it was never made", None, Aim::Order, Taken::Unknown),
            ("it was removed", None, Aim::Use, Taken::Unknown),
            ("it was removed, and looked at", None, Aim::See, Taken::Unknown),
            ("it was removed, and is unbound", None, Aim::Unbind, made()),
            ("it was removed, and is to go", None, Aim::Remove, made()),
        ] {
            assert_eq!(taken(stands, aim), expected, "{case}");
        }
    }
}
