//! The checks before the engine: who the requester is, whether the ids can be used in OpenShift's resources, and
//! whether the requester has the rights.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use engine::Engine;
use engine::ports::Stored;
use engine::record::{Key, Ordered};
use osb::catalog::PlanEntry;
use osb::{
    Action, Backend, BindRequest, BindingBody, BindingId, BindingView, Call, CompiledCatalog,
    DeprovisionRequest, Error, ErrorKind, InstanceId, InstanceView, LastOperation,
    LastOperationQuery, MaintenanceInfo, Object, OperationState, ProvisionRequest, ProvisionedBody,
    Reply, ServiceId, UnbindRequest, UpdateRequest,
};

use super::adopt::{Aim, Asked, elsewhere};
use super::ids::is_uuid;
use super::life;
use super::rights::{Rights, creation_of_secrets, of_group, reading_of_secret};
use super::{TemplateBroker, asked, identity, parameters};
use crate::calls::{CallError, find};
use crate::syntax::is_label;
use crate::templates::record::Values;
use crate::templates::requester::Requester;

/// The template broker's engine, behind these checks.
pub(super) struct Front {
    pub(super) engine: Engine,
    pub(super) broker: TemplateBroker,
    pub(super) rights: Rights,
}

impl Front {
    pub(super) fn new(engine: Engine, broker: TemplateBroker) -> Self {
        Self { rights: Rights::new(broker.client.clone()), engine, broker }
    }

    /// The order of an instance that exists; `None` for any other, which the engine answers. An instance that is not
    /// known here is read from the store: another process may have just ordered it.
    pub(super) async fn ordered(&self, instance: &InstanceId) -> Result<Option<Ordered>, Error> {
        let (store, key) = (self.engine.store(), Key::Instance(instance.clone()));
        let unknown = |error| {
            tracing::warn!(%error, "what was ordered of an instance cannot be read");
            let words = "it is not known now to whom the instance belongs; come again";
            Error::new(ErrorKind::Unavailable, words).retry_after(Duration::from_secs(2))
        };
        let stored = match store.glance(&key).await.map_err(unknown)? {
            None if store.lags() => store.read(&key).await.map_err(unknown)?,
            known => known,
        };
        Ok(stored.as_ref().and_then(ordered))
    }

    async fn namespace(&self, instance: &InstanceId) -> Result<Option<String>, Error> {
        let ordered = self.ordered(instance).await?;
        let namespace = ordered.map(|ordered| namespace_of(&ordered).to_owned());
        Ok(namespace.filter(|namespace| !namespace.is_empty()))
    }

    /// Checks that the requester may see the state of an instance: they need the right to get it.
    async fn may_see(&self, call: &Call, instance: &InstanceId) -> Result<(), Error> {
        self.may("get", call, instance).await
    }

    /// Checks that the requester has a right to the TemplateInstance of an instance. If its namespace is gone, so are all
    /// rights in it: nobody needs one then.
    async fn may(
        &self,
        verb: &'static str,
        call: &Call,
        instance: &InstanceId,
    ) -> Result<(), Error> {
        let requester = identity::requester(call.originating_identity.as_ref())?;
        let Some(namespace) = self.namespace(instance).await? else { return Ok(()) };
        if self.broker.is_gone(&namespace).await {
            return Ok(());
        }
        let name = instance.as_str().to_owned();
        self.rights.check(&requester, of_group(verb, "templateinstances", namespace, name)).await
    }

    /// Checks that the requester may see the credentials of an instance: they need the right to read Secrets there now,
    /// because credentials that were read for one user may not be shown to another.
    async fn may_read(&self, call: &Call, instance: &InstanceId) -> Result<(), Error> {
        self.may_see(call, instance).await?;
        let requester = identity::requester(call.originating_identity.as_ref())?;
        let Some(namespace) = self.namespace(instance).await? else { return Ok(()) };
        let name = instance.as_str().to_owned();
        self.rights.check_now(&requester, reading_of_secret(namespace, name)).await
    }

    /// Checks that the requester may use the template of a service: they need the right to get it.
    async fn may_use(&self, requester: &Requester, service: &ServiceId) -> Result<(), Error> {
        let Some(template) = self.broker.templates.get(service.as_str()) else { return Ok(()) };
        let (namespace, name) = (template.namespace.clone(), template.name.clone());
        self.rights.check(requester, of_group("get", "templates", namespace, name)).await
    }

    /// What is kept of an order's parameters. What its template does not take, whoever carries it out says.
    fn values(&self, request: &ProvisionRequest, given: &Object) -> Option<Values> {
        let template = self.broker.templates.get(request.service_id.as_str())?;
        parameters::of_order(&template.document, given).ok()
    }

    /// Checks that the requester may change an instance: they need the rights to change it and to make a Secret for its
    /// parameters. Keeps the instance in its namespace.
    async fn may_change(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: &mut UpdateRequest,
    ) -> Result<(), Error> {
        let requester = identity::requester(call.originating_identity.as_ref())?;
        let Some(ordered) = self.ordered(instance).await? else { return Ok(()) };
        let namespace = namespace_of(&ordered).to_owned();
        asked::stay(request, &namespace)?;
        if self.broker.is_gone(&namespace).await {
            return Ok(());
        }
        for verb in ["get", "update"] {
            let name = instance.as_str().to_owned();
            let right = of_group(verb, "templateinstances", namespace.clone(), name);
            self.rights.check(&requester, right).await?;
        }
        self.rights.check(&requester, creation_of_secrets(namespace.clone())).await?;
        match asked::revision(&ordered, request) {
            Some(asked) => {
                self.may_use(&requester, &request.service_id).await?;
                self.newer_takes(asked, request)
            }
            None => self.takes(&requester, instance, &namespace, request).await,
        }
    }

    /// Checks the parameters against the requested revision; if that does not exist, the engine says so.
    fn newer_takes(&self, asked: &MaintenanceInfo, request: &UpdateRequest) -> Result<(), Error> {
        let newer = self.broker.templates.get(request.service_id.as_str());
        let newer = newer.filter(|newer| newer.revision.version == asked.version);
        match (newer, &request.parameters) {
            (Some(newer), Some(given)) => {
                asked::fit(asked::ParameterSource::Newer, &newer.document, given.expose())
            }
            _ => Ok(()),
        }
    }

    /// Checks the changed parameters against the template that the instance has. Kept parameters of an earlier revision
    /// that it does not declare any more are ignored later.
    async fn takes(
        &self,
        requester: &Requester,
        instance: &InstanceId,
        namespace: &str,
        request: &UpdateRequest,
    ) -> Result<(), Error> {
        let Some(parameters) = &request.parameters else { return Ok(()) };
        let client = requester.client(&self.broker.client, namespace);
        let found = find(self.broker.instances(&client, namespace).get(instance.as_str())).await;
        let found = found.map_err(|error| {
            // The requester had the right a moment ago.
            if let CallError::Forbidden(_) = error {
                let words =
                    format!("{:?} may not get the templateinstance", requester.identity.user);
                return Error::new(ErrorKind::Forbidden, words);
            }
            tracing::warn!(%error, "the template of an instance is not known");
            let words = "the template that the instance has cannot be read now; come again";
            Error::new(ErrorKind::Unavailable, words).retry_after(Duration::from_secs(2))
        })?;
        match found {
            Some(found) => {
                let template = &found.data["spec"]["template"];
                asked::fit(asked::ParameterSource::Instance, template, parameters.expose())
            }
            None => Ok(()),
        }
    }

    /// Checks that the requester may remove an instance, or a binding of it: they need the right to delete it.
    async fn may_remove(&self, call: &Call, instance: &InstanceId) -> Result<(), Error> {
        self.may("delete", call, instance).await
    }
}

/// The order of a stored instance, if the instance exists.
fn ordered(stored: &Stored) -> Option<Ordered> {
    Some(stored.record.ordered.clone()).filter(|_| stored.record.is_live())
}

fn namespace_of(ordered: &Ordered) -> &str {
    life::namespace(ordered.context.expose())
}

/// The answer for an instance that was ordered elsewhere and is still being made.
fn in_progress(words: String) -> LastOperation {
    LastOperation {
        state: OperationState::InProgress,
        description: Some(words).filter(|words| !words.is_empty()),
        instance_usable: None,
        update_repeatable: None,
        retry_after: None,
    }
}

/// Checks that an id is a UUID: ids become names and `bindingIDs`.
fn uuid(member: &str, id: &str) -> Result<(), Error> {
    match is_uuid(id) {
        true => Ok(()),
        false => Err(Error::bad_request(format!("{member}: has to be a UUID, in small letters"))),
    }
}

/// The namespace that an order's context names.
///
/// # Errors
/// 400, if the platform is not Kubernetes, or there is no valid namespace.
fn place(context: Option<&Object>) -> Result<&str, Error> {
    let of = |member: &str| {
        context.and_then(|context| context.get(member)?.as_str()).unwrap_or_default()
    };
    if of("platform") != "kubernetes" {
        return Err(Error::bad_request("context.platform: has to be kubernetes"));
    }
    match of("namespace") {
        namespace if is_label(namespace) => Ok(namespace),
        _ => Err(Error::bad_request("context.namespace: has to be the name of a namespace")),
    }
}

#[async_trait]
impl Backend for Front {
    fn catalog(&self) -> Option<Arc<CompiledCatalog>> {
        self.engine.catalog()
    }

    fn requires_async(&self, action: Action, plan: Option<&PlanEntry>) -> bool {
        self.engine.requires_async(action, plan)
    }

    async fn provision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        uuid("instance_id", instance.as_str())?;
        let namespace = place(request.context.as_ref().map(osb::Sensitive::expose))?.to_owned();
        if !self.broker.watched.is_empty() && !self.broker.watched.contains(&namespace) {
            let words = format!("context.namespace: instances are not made in {namespace:?}");
            return Err(Error::bad_request(words));
        }
        let requester = identity::requester(call.originating_identity.as_ref())?;
        self.may_use(&requester, &request.service_id).await?;
        let instances = of_group("create", "templateinstances", namespace.clone(), String::new());
        self.rights.check(&requester, instances).await?;
        self.rights.check(&requester, creation_of_secrets(namespace.clone())).await?;
        let place = [&namespace, &request.organization_guid, &request.space_guid];
        let place = Some(place.map(ToOwned::to_owned));
        let none = Object::default();
        let given = request.parameters.as_ref().map_or(&none, osb::Sensitive::expose);
        let values = self.values(&request, given);
        let (service, plan) = (&request.service_id, &request.plan_id);
        let order = Some(self.broker.order_digest(service, plan, given));
        let asked = Asked::of(Aim::Order, service, plan);
        self.adopt(call, instance, Asked { place, order, values, ..asked }).await?;
        let known = self.engine.store().glance(&Key::Instance(instance.clone())).await;
        let known = known.ok().flatten().as_ref().and_then(ordered);
        if known.is_some_and(|it| namespace_of(&it) != namespace) {
            return Err(elsewhere());
        }
        self.engine.provision(call, instance, request).await
    }

    async fn update(
        &self,
        call: &Call,
        instance: &InstanceId,
        mut request: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        self.adopt(call, instance, Asked::used(None)).await?;
        self.may_change(call, instance, &mut request).await?;
        self.engine.update(call, instance, request).await
    }

    async fn deprovision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: DeprovisionRequest,
    ) -> Result<Reply<()>, Error> {
        let asked = Asked::of(Aim::Remove, &request.service_id, &request.plan_id);
        self.adopt(call, instance, asked).await?;
        self.may_remove(call, instance).await?;
        self.engine.deprovision(call, instance, request).await
    }

    async fn instance(&self, call: &Call, instance: &InstanceId) -> Result<InstanceView, Error> {
        self.adopt(call, instance, Asked::default()).await?;
        self.may_read(call, instance).await?;
        self.engine.instance(call, instance).await
    }

    async fn instance_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        if let Some(words) = self.going_on(call, instance, Asked::default()).await? {
            return Ok(in_progress(words));
        }
        self.may_see(call, instance).await?;
        self.engine.instance_last_operation(call, instance, query).await
    }

    async fn bind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: BindRequest,
    ) -> Result<Reply<BindingBody>, Error> {
        uuid("binding_id", &binding.as_str().to_ascii_lowercase())?;
        let sold = request.service_id.clone().zip(request.plan_id.clone());
        self.adopt(call, instance, Asked::used(sold)).await?;
        self.may_read(call, instance).await?;
        self.adopt_binding(call, (instance, binding), Some(&request)).await?;
        // OpenShift's broker took binding ids in capital letters, too; those that it noted are still taken.
        let key = Key::Binding(instance.clone(), binding.clone());
        if !is_uuid(binding.as_str()) && !self.is_recorded(&key, Aim::Use).await? {
            uuid("binding_id", binding.as_str())?;
        }
        self.engine.bind(call, instance, binding, request).await
    }

    async fn unbind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: UnbindRequest,
    ) -> Result<Reply<()>, Error> {
        let asked = Asked::of(Aim::Unbind, &request.service_id, &request.plan_id);
        self.adopt(call, instance, asked).await?;
        self.may_remove(call, instance).await?;
        self.adopt_binding(call, (instance, binding), None).await?;
        self.engine.unbind(call, instance, binding, request).await
    }

    async fn binding(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<BindingView, Error> {
        self.adopt(call, instance, Asked::default()).await?;
        self.may_read(call, instance).await?;
        // A binding that has outlived its instance is shown to nobody: whose it was is not known any more.
        if self.namespace(instance).await?.is_none() {
            return Err(Error::not_found("there is no such service instance"));
        }
        if let Some(view) = self.noted_binding(call, instance, binding).await? {
            return Ok(view);
        }
        self.engine.binding(call, instance, binding).await
    }

    async fn binding_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        self.adopt(call, instance, Asked::default()).await?;
        self.may_see(call, instance).await?;
        self.engine.binding_last_operation(call, instance, binding, query).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn ids_are_uuids_in_small_letters() {
        for (case, id, expected) in [
            ("a UUID", "11111111-2222-4333-8444-5555555555ef", true),
            ("capital letters", "11111111-2222-4333-8444-5555555555EF", false),
            ("no UUID", "my-instance", false),
            ("too short", "11111111-2222-4333-8444-5555555555e", false),
            ("too long", "11111111-2222-4333-8444-5555555555eff", false),
            ("another group", "11111111-2222-4333-8444-5555-55555555", false),
            ("other letters", "11111111-2222-4333-8444-5555555555eg", false),
            ("without hyphens", "1111111122224333844455555555555f", false),
            ("nothing", "", false),
        ] {
            let found = uuid("instance_id", id).map_err(|error| error.description.into_owned());
            let why = "instance_id: has to be a UUID, in small letters".to_owned();
            assert_eq!(found, if expected { Ok(()) } else { Err(why) }, "{case}");
        }
    }

    fn place_of(context: Value) -> Result<String, (ErrorKind, String)> {
        place(context.as_object())
            .map(str::to_owned)
            .map_err(|error| (error.kind, error.description.into_owned()))
    }

    #[test]
    fn orders_are_of_kubernetes_alone() {
        let refused =
            || Err((ErrorKind::BadRequest, "context.platform: has to be kubernetes".to_owned()));
        for (case, context, expected) in [
            ("of Kubernetes", json!({"platform": "kubernetes", "namespace": "a"}), Ok("a".into())),
            ("of another", json!({"platform": "cloudfoundry", "namespace": "a"}), refused()),
            ("in other letters", json!({"platform": "Kubernetes", "namespace": "a"}), refused()),
            ("no text", json!({"platform": 1, "namespace": "a"}), refused()),
            ("of none", json!({"namespace": "a"}), refused()),
            ("no context", json!(null), refused()),
        ] {
            assert_eq!(place_of(context), expected, "{case}");
        }
    }

    #[test]
    fn an_order_names_a_namespace() {
        let longest = "a".repeat(63);
        for (case, namespace, is_one) in [
            ("a name", json!("shop-1"), true),
            ("the longest", json!(longest), true),
            ("too long", json!(format!("{longest}a")), false),
            ("with a dot", json!("a.b"), false),
            ("capital letters", json!("Shop"), false),
            ("with a slash", json!("a/b"), false),
            ("a hyphen before", json!("-a"), false),
            ("a hyphen behind", json!("a-"), false),
            ("empty", json!(""), false),
            ("no text", json!(["a"]), false),
            ("none", json!(null), false),
        ] {
            let found = place_of(json!({"platform": "kubernetes", "namespace": namespace}));
            let refused = "context.namespace: has to be the name of a namespace".to_owned();
            let expected = match is_one {
                true => Ok(namespace.as_str().unwrap().to_owned()),
                false => Err((ErrorKind::BadRequest, refused)),
            };
            assert_eq!(found, expected, "{case}");
        }
    }
}
