//! Instances that are claimed and of which nothing is recorded: those of the broker of OpenShift, which kept no more than
//! the claim and what it names; and those whose record was lost. They are recorded when a platform first names one.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::record::{Key, Made, Ordered};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject};
use osb::{
    BindRequest, BindingBody, BindingId, Call, Error, ErrorKind, Failure, FailureKind, InstanceId,
    Object, PlanId, ServiceId,
};
use serde_json::{Value, json};

use super::await_end::{Stands, stands};
use super::claim::Claim;
use super::front::Front;
use super::ids::{Named, is_uuid};
use super::{TemplateBroker, failed, identity};
use crate::calls::find;

/// When to come again where it is not known now.
const AGAIN: Duration = Duration::from_secs(2);

/// What a platform says of an instance that it names.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// What it is of.
    pub(super) sold: Option<(ServiceId, PlanId)>,
    /// The organization and the space.
    pub(super) place: Option<(String, String)>,
    /// What to do about one that is still being made.
    pub(super) unready: Unready,
}

/// What to do about an instance that is still being made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Unready {
    /// To come again.
    #[default]
    Wait,
    /// It is ordered again: whoever carries that out waits for it.
    Leave,
    /// It is to be removed, however it stands.
    Adopt,
}

impl Asked {
    /// Of what it is.
    pub(super) fn of(service: &ServiceId, plan: &PlanId) -> Self {
        Self { sold: Some((service.clone(), plan.clone())), ..Self::default() }
    }
}

impl Front {
    /// Records an instance that is claimed and that nothing is recorded of. One that nobody has claimed stays unknown.
    ///
    /// # Errors
    /// If whether it is claimed is not known now, and if it is still being made.
    pub(super) async fn adopt(&self, instance: &InstanceId, asked: Asked) -> Result<(), Error> {
        match self.is_recorded(&Key::Instance(instance.clone())).await? {
            true => Ok(()),
            false => self.adopt_claimed(instance, asked).await,
        }
    }

    /// The same, where it is known that nothing is recorded.
    pub(super) async fn adopt_claimed(
        &self,
        instance: &InstanceId,
        asked: Asked,
    ) -> Result<(), Error> {
        let name = instance.as_str();
        let found = match is_uuid(name) {
            true => self.broker.claimed_instance(name, &asked).await.map_err(unknown)?,
            false => None,
        };
        let Some((ordered, stands)) = found else { return Ok(()) };
        let made = match (stands, asked.unready) {
            (Stands::Failed(why), _) => Err(why),
            (Stands::GoesOn(_), Unready::Wait) => {
                let words =
                    "the instance was ordered elsewhere, and is still being made; come again";
                return Err(Error::new(ErrorKind::Unavailable, words).retry_after(AGAIN));
            }
            (Stands::GoesOn(_), Unready::Leave) => return Ok(()),
            (Stands::Ready, _) | (Stands::GoesOn(_), Unready::Adopt) => Ok(Made::default()),
        };
        let key = Key::Instance(instance.clone());
        if self.engine.adopt(&key, ordered, made).await.map_err(unknown)? {
            tracing::info!(%instance, "it was ordered elsewhere: recorded");
        }
        Ok(())
    }

    /// The same of a binding whose id the claim of its instance has. `reads`: what it was given is asked for, and read in
    /// the name of whoever asks.
    pub(super) async fn adopt_binding(
        &self,
        call: &Call,
        (instance, binding): (&InstanceId, &BindingId),
        request: Option<&BindRequest>,
        reads: bool,
    ) -> Result<(), Error> {
        let key = Key::Binding(instance.clone(), binding.clone());
        if self.is_recorded(&key).await? {
            return Ok(());
        }
        let Some(parent) = self.ordered(instance).await? else { return Ok(()) };
        let claim = self.broker.claimed(instance.as_str()).await.map_err(unknown)?;
        let Some(claim) = claim.filter(|claim| claim.binds(binding.as_str())) else {
            return Ok(());
        };
        let mut made = Made::default();
        if reads {
            let requester = identity::requester(call.originating_identity.as_ref())?;
            let client = requester.client(&self.broker.client, claim.namespace());
            let credentials = self.broker.credentials(&client, &claim).await.map_err(unread)?;
            made.binding = Some(BindingBody {
                credentials: Some(credentials.into()),
                ..BindingBody::default()
            });
        }
        let context = request.and_then(|request| request.context.clone());
        let ordered = Ordered {
            context: context.unwrap_or_default(),
            bind_resource: request.and_then(|request| request.bind_resource.clone()),
            ..bare(parent.service_id, parent.plan_id)
        };
        self.engine.adopt(&key, ordered, Ok(made)).await.map(drop).map_err(unknown)
    }

    /// Whether there is a record, or what is left of one.
    async fn is_recorded(&self, key: &Key) -> Result<bool, Error> {
        let store = self.engine.store();
        let known = store.glance(key).await.map_err(unknown)?;
        Ok(known.is_some() || (store.lags() && store.read(key).await.map_err(unknown)?.is_some()))
    }
}

impl TemplateBroker {
    /// What was ordered of an instance that is claimed, and how it stands.
    async fn claimed_instance(
        &self,
        id: &str,
        asked: &Asked,
    ) -> Result<Option<(Ordered, Stands)>, Failure> {
        let Some(claim) = self.claimed(id).await?.filter(|claim| !claim.is_going()) else {
            return Ok(None);
        };
        let instances = self.instances(&self.client, claim.namespace());
        let found = find(instances.get(id)).await;
        let found = found.map_err(|error| failed(&format!("TemplateInstance {id}"), error))?;
        let found = found.filter(|found| claim.owns(&found.metadata));
        let sold = self.sold(found.as_ref(), asked.sold.clone());
        let Some((service, plan)) = sold else { return Ok(None) };
        // One that was removed can be unbound and removed.
        let stands = found.map_or(Stands::Ready, |found| stands(&found, 0));
        let parameters = self.parameters(&claim).await?;
        let context = json!({"platform": "kubernetes", "namespace": claim.namespace()});
        let ordered = Ordered {
            parameters: parameters.into(),
            context: context.as_object().cloned().unwrap_or_default().into(),
            organization_guid: asked.place.as_ref().map(|(organization, _)| organization.clone()),
            space_guid: asked.place.as_ref().map(|(_, space)| space.clone()),
            ..bare(service, plan)
        };
        Ok(Some((ordered, stands)))
    }

    /// The service and the plan that an instance is of: by the copy of its template, and by what the platform calls it,
    /// if that can be. Of one that was removed nothing else is known.
    fn sold(
        &self,
        instance: Option<&DynamicObject>,
        asked: Option<(ServiceId, PlanId)>,
    ) -> Option<(ServiceId, PlanId)> {
        let Some(instance) = instance else { return asked };
        let metadata = &instance.data["spec"]["template"]["metadata"];
        let named = Named::of(metadata);
        let ids = self.templates.ids();
        let service = ids.service(named);
        let is_it = |asked: &ServiceId| asked.as_str() == named.uid || asked.as_str() == service;
        let ours = || {
            let plan = ids.plan(&service);
            Some((ServiceId::new(service.clone()).ok()?, PlanId::new(plan).ok()?))
        };
        asked.filter(|(service, _)| is_it(service)).or_else(ours)
    }

    /// The parameters that a claim's Secret has; what is no text is not one.
    async fn parameters(&self, claim: &Claim) -> Result<Object, Failure> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), claim.namespace());
        let what = format!("Secret {}", claim.secret());
        let found =
            find(secrets.get(claim.secret())).await.map_err(|error| failed(&what, error))?;
        let found = found.filter(|found| claim.owns(&found.metadata));
        let data: BTreeMap<_, _> = found.and_then(|found| found.data).unwrap_or_default();
        let text = |(name, value): (String, k8s_openapi::ByteString)| {
            Some((name, Value::String(String::from_utf8(value.0).ok()?)))
        };
        Ok(data.into_iter().filter_map(text).collect())
    }
}

fn bare(service_id: ServiceId, plan_id: PlanId) -> Ordered {
    Ordered {
        service_id,
        plan_id,
        parameters: Object::default().into(),
        context: Object::default().into(),
        maintenance_info: None,
        organization_guid: None,
        space_guid: None,
        bind_resource: None,
        predecessor_binding_id: None,
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
