//! Orders and removes service instances.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use kube::ResourceExt as _;
use kube::api::{DynamicObject, PostParams};
use osb::{Failure, FailureKind, Output, Work};
use serde_json::{Map, Value, json};

use super::await_end::{self, Awaited};
use super::claim::Claim;
use super::stock::OfferedTemplate;
use super::{TemplateBroker, failed, parameters, requester};
use crate::calls::{CallError, call, find, in_background};
use crate::templates::names::{GROUP, Kind, VERIFIED, VERSION};
use crate::templates::record::Values;
use crate::templates::requester::Requester;
use crate::templates::verified;

/// OpenShift's annotation with the id that the platform gave the instance.
const EXTERNAL_ID: &str = "openservicebroker.openshift.io/instance-external-id";
/// How often the progress of a removal is checked.
const LOOK: Duration = Duration::from_secs(1);

/// The name of all resources of an instance: its id, which is a UUID.
pub(super) fn name(work: &Work) -> String {
    work.instance_id.as_str().to_owned()
}

/// The namespace into which an instance is ordered.
pub(super) fn namespace(context: &Map<String, Value>) -> &str {
    context.get("namespace").and_then(Value::as_str).unwrap_or_default()
}

impl TemplateBroker {
    /// Orders an instance in the requester's name, and waits for the result.
    pub(super) async fn order(&self, work: Work) -> Result<Output, Failure> {
        let template = self.templates.get(work.service_id.as_str()).ok_or_else(|| {
            Failure::new(FailureKind::Invalid, "the template is not there any more")
        })?;
        let requester = requester(&work)?;
        let (name, namespace) = (name(&work), namespace(work.context.expose()).to_owned());
        let client = requester.client(&self.client, &namespace);
        let values = parameters::of_order(&template.document, work.parameters.expose())?;
        // From here on resources exist: if a later step fails, they can be removed.
        let order = self.order_digest(&work.service_id, &work.plan_id, work.parameters.expose());
        let claim = self.claim(&name, &namespace, &order).await?;
        if !parameters::keep(&client, &claim, &name, &values).await? {
            self.keep_anew(&client, &claim, &order, &values).await?;
        }
        let what = format!("TemplateInstance {name}");
        let instance = self.instance(&work, &claim, &requester, &template, &values)?;
        let instances = self.instances(&client, &namespace);
        match call(instances.create(&PostParams::default(), &instance)).await {
            Ok(_) => {}
            Err(CallError::Exists) => {
                let found = call(self.instances(&self.client, &namespace).get(&name)).await;
                let found = found.map_err(|error| failed(&what, error))?;
                claim.check("TemplateInstance", &found.metadata)?;
            }
            Err(error) => return Err(failed(&what, error)),
        }
        let ended = Awaited {
            namespace: &namespace,
            name: &name,
            // A new instance has only this spec: any status is about it.
            generation: 0,
            timeout: await_end::timeout(&instance),
        };
        self.await_end(&ended, &work.progress).await
    }

    /// Keeps the parameters of an order of which an attempt before has kept others: those that its template took then.
    /// An instance that it has made is gone on with as it is.
    async fn keep_anew(
        &self,
        client: &Client,
        claim: &Claim,
        order: &str,
        values: &Values,
    ) -> Result<(), Failure> {
        match claim.is_for(order) {
            Some(true) if self.of_claim(claim).await?.is_some() => Ok(()),
            Some(true) => parameters::keep_anew(client, claim, claim.name(), values).await,
            Some(false) | None => Err(parameters::others(claim.name())),
        }
    }

    fn instance(
        &self,
        work: &Work,
        claim: &Claim,
        requester: &Requester,
        template: &OfferedTemplate,
        values: &Values,
    ) -> Result<DynamicObject, Failure> {
        let (name, namespace) = (name(work), namespace(work.context.expose()));
        let spec = json!({
            "template": template.document,
            "secret": {"name": name},
            "requester": requester.spec(),
        });
        let moment = (self.now(), verified::FIRST);
        let sealed = verified::seal_order(namespace, &name, &spec, values, moment, &self.seal);
        serde_json::from_value(json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": Kind::TemplateInstance.name(),
            "metadata": {
                "name": name,
                "annotations": {EXTERNAL_ID: work.instance_id.as_str(), VERIFIED: sealed},
                "ownerReferences": [claim.owner()],
            },
            "spec": spec,
        }))
        .map_err(|error| Failure::failed(error.to_string()))
    }

    /// Removes an instance, and waits until all of it is gone: in the name of the user who asks; where there is none,
    /// as when an operator deletes the record, in the name of the instance's requester.
    pub(super) async fn withdraw(&self, work: Work) -> Result<Output, Failure> {
        let name = name(&work);
        let Some(claim) = self.claimed(&name).await? else { return Ok(Output::default()) };
        let namespace = claim.namespace().to_owned();
        // Read in our own name: where the namespace is gone, so are the requester's rights in it.
        let ours = self.instances(&self.client, &namespace);
        let what = format!("TemplateInstance {name}");
        let found = find(ours.get(&name)).await.map_err(|error| failed(&what, error))?;
        let found = found.filter(|found| claim.owns(&found.metadata));
        let requester = match (&work.originating_identity, &found) {
            (Some(_), _) => Some(requester(&work)?),
            (None, Some(found)) => Some(
                Requester::of(&found.data["spec"]["requester"])
                    .map_err(|why| Failure::failed(format!("{what}: {why}")))?,
            ),
            (None, None) => None,
        };
        let client = requester.map(|requester| requester.client(&self.client, &namespace));
        if let (Some(client), Some(found)) = (&client, found) {
            self.remove(client, &namespace, &name, &found).await?;
            while let Some(there) =
                find(ours.get(&name)).await.map_err(|error| failed(&what, error))?
            {
                if there.uid() != found.uid() {
                    break;
                }
                work.progress.report(&await_end::removal(&there, &found));
                tokio::time::sleep(LOOK).await;
            }
        }
        // Without a requester the Secrets go with their owner.
        if let Some(client) = &client {
            parameters::forget(client, &claim, &BTreeSet::new()).await;
        }
        let removed = self.unclaim(&claim).await;
        removed.map_err(|error| failed("BrokerTemplateInstance", error))?;
        Ok(Output::default())
    }

    async fn remove(
        &self,
        client: &Client,
        namespace: &str,
        name: &str,
        found: &DynamicObject,
    ) -> Result<(), Failure> {
        if found.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let params = in_background(found.uid(), None);
        let removed = find(self.instances(client, namespace).delete(name, &params)).await;
        match removed {
            Ok(_) | Err(CallError::Conflict) => Ok(()),
            Err(error) => Err(failed(&format!("TemplateInstance {name}"), error)),
        }
    }
}
