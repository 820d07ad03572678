//! Claims (BrokerTemplateInstances): which instances were ordered through the broker, and their bindings, kept as in
//! OpenShift.

use std::collections::HashSet;
use std::sync::PoisonError;
use std::time::Duration;

use data_encoding::HEXLOWER;
use engine::Engine;
use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt as _;
use kube::api::{
    Api, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams, PostParams,
};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Event, watcher};
use osb::{Failure, FailureKind, PlanId, ServiceId};
use ring::hmac;
use serde_json::{Map, Value, json};

use super::{TemplateBroker, failed, transient};
use crate::calls::{Again, CallError, call, find, in_background, watching};
use crate::names::MANAGED_BY;
use crate::templates::names::{GROUP, Kind, VERSION};
use crate::templates::verified;

/// The annotation of a claim with the digest of what was ordered: [`TemplateBroker::order_digest`].
const ORDER: &str = "template.manciple.dev/order";
/// How often the write of a claim is tried that others write at the same time.
const ROUNDS: usize = 5;
/// The pause before claims are checked again, where that failed.
const AGAIN: Duration = Duration::from_secs(10);
/// How soon whoever begins to lead looks at claims that it has left to another.
const LOOK: Duration = Duration::from_secs(1);

/// The claim of a service instance: a BrokerTemplateInstance.
pub(super) struct Claim {
    object: DynamicObject,
}

impl Claim {
    /// The namespace of the TemplateInstance.
    pub(super) fn namespace(&self) -> &str {
        self.object.data["spec"]["templateInstance"]["namespace"].as_str().unwrap_or_default()
    }

    /// The owner reference by which objects made for the claim are removed with it.
    pub(super) fn owner(&self) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": Kind::BrokerTemplateInstance.name(),
            "name": self.object.name_any(),
            "uid": self.object.uid(),
        })
    }

    /// The name of the claim: the id of the service instance.
    pub(super) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// The Secret with the parameters that are in force.
    pub(super) fn secret(&self) -> &str {
        self.object.data["spec"]["secret"]["name"].as_str().unwrap_or_default()
    }

    /// Whether a Manciple has made the claim, and not OpenShift's broker.
    pub(super) fn is_ours(&self) -> bool {
        self.object.labels().get(MANAGED_BY.0).is_some_and(|it| it == MANAGED_BY.1)
    }

    /// Whether the claim was made for the order with this digest; `None` where it does not say, as one of OpenShift's.
    pub(super) fn is_for(&self, order: &str) -> Option<bool> {
        self.object.annotations().get(ORDER).map(|said| said == order)
    }

    /// Whether the claim is being deleted.
    pub(super) fn is_going(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    /// Whether a binding is noted in the claim. The ids are UUIDs, in capital or small letters.
    pub(super) fn binds(&self, binding: &str) -> bool {
        let mut ids = self.object.data["spec"]["bindingIDs"].as_array().into_iter().flatten();
        ids.any(|id| id.as_str().is_some_and(|id| id.eq_ignore_ascii_case(binding)))
    }

    /// Whether the claim owns an object.
    pub(super) fn owns(&self, object: &ObjectMeta) -> bool {
        let uid = self.object.metadata.uid.as_deref();
        let mut owners = object.owner_references.iter().flatten();
        uid.is_some_and(|uid| owners.any(|owner| owner.uid == uid))
    }

    /// Whether an object was made for claims of this name that there were before: Kubernetes removes it, in its own time.
    fn owned_before(&self, object: &ObjectMeta) -> bool {
        let owners = object.owner_references.as_deref().unwrap_or_default();
        let was_one = |owner: &OwnerReference| {
            owner.kind == Kind::BrokerTemplateInstance.name()
                && owner.name == self.name()
                && owner.api_version.split_once('/').is_some_and(|(group, _)| group == GROUP)
        };
        !owners.is_empty() && !self.owns(object) && owners.iter().all(was_one)
    }

    /// What exists already has to be of the same order. What is of one before, of the same id, is gone in a moment.
    pub(super) fn check(&self, what: &str, object: &ObjectMeta) -> Result<(), Failure> {
        let name = object.name.as_deref().unwrap_or_default();
        match (self.owns(object), self.owned_before(object)) {
            (true, _) => Ok(()),
            (false, true) => {
                Err(transient(format!("{what} {name}: that of the order before is still there")))
            }
            (false, false) => {
                Err(Failure::failed(format!("{what} {name}: exists, and is not of this order")))
            }
        }
    }
}

impl TemplateBroker {
    fn claims(&self) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &Kind::BrokerTemplateInstance.resource())
    }

    /// A digest of an order: of its service, plan and parameters. Without the sealing key nobody tries out by it what
    /// the parameters are.
    pub(super) fn order_digest(
        &self,
        service: &ServiceId,
        plan: &PlanId,
        parameters: &Map<String, Value>,
    ) -> String {
        let order = json!([service.as_str(), plan.as_str(), parameters]);
        let text = format!("template-order\0{}", verified::digest(&order));
        HEXLOWER.encode(hmac::sign(&self.seal, text.as_bytes()).as_ref())
    }

    /// The claim of an instance; it is made, if it does not exist. `order`: the digest of what is ordered.
    pub(super) async fn claim(
        &self,
        name: &str,
        namespace: &str,
        order: &str,
    ) -> Result<Claim, Failure> {
        let of = |kind: &str| json!({"kind": kind, "namespace": namespace, "name": name});
        let claim: DynamicObject = serde_json::from_value(json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": Kind::BrokerTemplateInstance.name(),
            "metadata": {
                "name": name,
                "labels": {MANAGED_BY.0: MANAGED_BY.1},
                "annotations": {ORDER: order},
            },
            "spec": {"templateInstance": of("TemplateInstance"), "secret": of("Secret")},
        }))
        .map_err(|error| Failure::failed(error.to_string()))?;
        let what = format!("BrokerTemplateInstance {name}");
        let object = match call(self.claims().create(&PostParams::default(), &claim)).await {
            Err(CallError::Exists) => call(self.claims().get(name)).await,
            made => made,
        };
        let claim = Claim { object: object.map_err(|error| failed(&what, error))? };
        if claim.is_going() {
            return Err(transient(format!("{what}: the one before is still being removed")));
        }
        let conflict = |why: String| Err(Failure::new(FailureKind::Conflict, why));
        match (claim.namespace() == namespace, claim.is_for(order)) {
            (false, _) => conflict(format!("{what}: it is of namespace {:?}", claim.namespace())),
            (true, Some(false)) => conflict(format!("{what}: it is of another order")),
            (true, Some(true) | None) => Ok(claim),
        }
    }

    pub(super) async fn claimed(&self, name: &str) -> Result<Option<Claim>, Failure> {
        let found = find(self.claims().get(name)).await;
        let found = found.map_err(|error| failed("BrokerTemplateInstance", error))?;
        Ok(found.map(|object| Claim { object }))
    }

    /// Removes a claim, with the objects that it owns. By now the name may be that of a later order of the same id,
    /// which is not removed.
    pub(super) async fn unclaim(&self, claim: &Claim) -> Result<(), CallError> {
        let params = in_background(claim.object.uid(), None);
        match call(self.claims().delete(&claim.object.name_any(), &params)).await {
            Ok(_) | Err(CallError::NotFound | CallError::Conflict) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Adds a binding to a claim, or removes it.
    pub(super) async fn note(&self, name: &str, binding: &str, bound: bool) -> Result<(), Failure> {
        self.amend(name, |spec| {
            let ids = spec["bindingIDs"].as_array().cloned().unwrap_or_default();
            let is_it = |id: &Value| id.as_str().is_some_and(|id| id.eq_ignore_ascii_case(binding));
            let mut ids: Vec<Value> = ids.into_iter().filter(|id| !is_it(id)).collect();
            if bound {
                ids.push(json!(binding));
            }
            json!({"spec": {"bindingIDs": ids}})
        })
        .await
    }

    /// Notes in a claim which Secret has the parameters that are in force, and the digest of the order that has them.
    pub(super) async fn note_secret(
        &self,
        name: &str,
        secret: &str,
        order: &str,
    ) -> Result<(), Failure> {
        let annotations = json!({ORDER: order});
        let noted =
            json!({"metadata": {"annotations": annotations}, "spec": {"secret": {"name": secret}}});
        self.amend(name, |_| noted.clone()).await
    }

    /// Changes members of a claim, given its present spec.
    async fn amend(&self, name: &str, change: impl Fn(&Value) -> Value) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            // Without a claim there is nothing to note.
            let Some(Claim { object }) = self.claimed(name).await? else { return Ok(()) };
            let spec = &object.data["spec"];
            let mut change = change(spec);
            let annotations = json!(object.metadata.annotations);
            if has(&json!({"metadata": {"annotations": annotations}, "spec": spec}), &change) {
                return Ok(());
            }
            change["metadata"]["resourceVersion"] = json!(object.resource_version());
            let patch = Patch::Merge(change);
            match call(self.claims().patch(name, &PatchParams::default(), &patch)).await {
                Ok(_) | Err(CallError::NotFound) => return Ok(()),
                Err(CallError::Conflict) => {}
                Err(error) => return Err(failed("BrokerTemplateInstance", error)),
            }
        }
        Err(transient("BrokerTemplateInstance: many write it at once"))
    }

    /// Removes the claims of namespaces that are gone, for ever, while the engine leads.
    pub(super) async fn keep_claims(&self, engine: Engine) {
        let namespaces: Api<PartialObjectMeta<Namespace>> = Api::all(self.client.clone());
        let events = watcher(namespaces, watching()).backoff(Again::default());
        pin_mut!(events);
        let (mut listed, mut there) = (HashSet::new(), HashSet::new());
        let (mut is_first, mut is_left) = (true, false);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                // Whoever led when their namespaces went may have ended before it came to them.
                () = tokio::time::sleep(LOOK), if is_left => {
                    is_left = !self.sweep(&engine, &there).await;
                    continue;
                }
            };
            let Some(event) = event else { return };
            match event {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(it)) => drop(listed.insert(it.name_any())),
                Ok(Event::Apply(it)) => {
                    if there.insert(it.name_any()) {
                        self.know(&there);
                    }
                }
                Ok(Event::InitDone) => {
                    there = std::mem::take(&mut listed);
                    if std::mem::take(&mut is_first) {
                        self.say_unknown(&there);
                    }
                    is_left = !self.sweep(&engine, &there).await;
                }
                Ok(Event::Delete(it)) => {
                    there.remove(&it.name_any());
                    is_left = !self.sweep(&engine, &there).await;
                }
                Err(error) => tracing::warn!(%error, "namespaces cannot be watched now"),
            }
        }
    }

    /// Logs configured namespaces that do not exist: they may be typing errors.
    fn say_unknown(&self, there: &HashSet<String>) {
        for (member, names) in
            [("namespaces", &self.offered), ("instance_namespaces", &self.watched)]
        {
            for namespace in names.iter().filter(|name| !there.contains(*name)) {
                tracing::warn!(
                    "kubernetes.templates.{member}: there is no namespace {namespace:?}"
                );
            }
        }
    }

    /// Removes the claims of namespaces that are gone, if it leads; whether it does.
    async fn sweep(&self, engine: &Engine, namespaces: &HashSet<String>) -> bool {
        self.know(namespaces);
        if !engine.drives() {
            return false;
        }
        while let Err(error) = self.sweep_once(namespaces).await {
            tracing::warn!(%error, "claims of namespaces that are gone stay for now");
            tokio::time::sleep(AGAIN).await;
        }
        true
    }

    fn know(&self, namespaces: &HashSet<String>) {
        let mut places = self.places.write().unwrap_or_else(PoisonError::into_inner);
        *places = Some(namespaces.clone());
    }

    async fn sweep_once(&self, namespaces: &HashSet<String>) -> Result<(), CallError> {
        for object in call(self.claims().list(&ListParams::default())).await? {
            let claim = Claim { object };
            if namespaces.contains(claim.namespace()) || !self.is_gone(claim.namespace()).await {
                continue;
            }
            let name = claim.object.name_any();
            tracing::info!(name, namespace = claim.namespace(), "its namespace is gone: removed");
            self.unclaim(&claim).await?;
        }
        Ok(())
    }
}

/// Whether a merge patch (RFC 7386) would leave a document unchanged.
fn has(document: &Value, patch: &Value) -> bool {
    match patch {
        Value::Object(members) => members.iter().all(|(name, value)| has(&document[name], value)),
        patch => document == patch,
    }
}
