//! An instance is ordered, and withdrawn.

use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Event, watcher};
use osb::{Failure, FailureKind, Output, Progress, Work};
use serde_json::{Map, Value, json};
use template::{Template, ready};

use super::claim::Claim;
use super::offered::Known;
use super::{TemplateBroker, failed, requester, transient};
use crate::calls::{Again, CallError, call, find};
use crate::templates::names::{GROUP, Kind, VERIFIED, VERSION};
use crate::templates::requester::Requester;
use crate::templates::verified::{self, Word};

/// The id that the platform gave it: an annotation of the original.
const EXTERNAL_ID: &str = "openservicebroker.openshift.io/instance-external-id";
/// How long a template's objects may take, unless it says otherwise; and how much later that is noticed here.
const TIMEOUT: Duration = Duration::from_secs(3600);
const LATE: Duration = Duration::from_secs(120);
/// How soon a removal is looked at again.
const LOOK: Duration = Duration::from_secs(1);

/// The name of all that is made of an instance: its id, which is a UUID.
pub(super) fn name(work: &Work) -> String {
    work.instance_id.as_str().to_owned()
}

/// The namespace that it is ordered into.
pub(super) fn namespace(context: &Map<String, Value>) -> &str {
    context.get("namespace").and_then(Value::as_str).unwrap_or_default()
}

impl TemplateBroker {
    /// Orders an instance in the requester's name, and waits for what becomes of it.
    pub(super) async fn order(&self, work: Work) -> Result<Output, Failure> {
        let template = self.templates.get(work.service_id.as_str()).ok_or_else(|| {
            Failure::new(FailureKind::Invalid, "the template is not there any more")
        })?;
        let requester = requester(&work)?;
        let (name, namespace) = (name(&work), namespace(work.context.expose()).to_owned());
        let client = requester.client(&self.client, &namespace);
        let data = parameters(&template, work.parameters.expose())?;
        // From here on something is there: what fails now can be withdrawn.
        let claim = self.claim(&name, &namespace).await?;
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
        let secret = secret(&name, &claim, &data)?;
        match call(secrets.create(&PostParams::default(), &secret)).await {
            Ok(_) => {}
            Err(CallError::Exists) => {
                let found = call(secrets.get(&name)).await;
                let found = found.map_err(|error| failed(&format!("Secret {name}"), error))?;
                self.is_of(&claim, "Secret", &json!(found.metadata.owner_references))?;
            }
            Err(error) => return Err(failed(&format!("Secret {name}"), error)),
        }
        let what = format!("TemplateInstance {name}");
        let instance = self.instance(&work, &claim, &requester, &template)?;
        let instances = self.instances(&client, &namespace);
        match call(instances.create(&PostParams::default(), &instance)).await {
            Ok(_) => {}
            Err(CallError::Exists) => {
                let found = call(self.instances(&self.client, &namespace).get(&name)).await;
                let found = found.map_err(|error| failed(&what, error))?;
                self.is_of(&claim, "TemplateInstance", &json!(found.metadata.owner_references))?;
            }
            Err(error) => return Err(failed(&what, error)),
        }
        let timeout = ready::timeout(&template.document["metadata"]["annotations"]);
        let timeout = timeout.ok().flatten().unwrap_or(TIMEOUT).saturating_add(LATE);
        let ended = self.await_end(&namespace, &name, &work.progress);
        match tokio::time::timeout(timeout, ended).await {
            Ok(ended) => ended,
            Err(_) => Err(Failure::failed(
                "nobody has made its TemplateInstance in time: is there a controller for it?",
            )),
        }
    }

    /// What exists already has to be of the same order.
    fn is_of(&self, claim: &Claim, what: &str, owners: &Value) -> Result<(), Failure> {
        match claim.owns(owners) {
            true => Ok(()),
            false => Err(Failure::failed(format!(
                "a {what} of the instance's name exists, and is not of this order"
            ))),
        }
    }

    fn instance(
        &self,
        work: &Work,
        claim: &Claim,
        requester: &Requester,
        template: &Known,
    ) -> Result<DynamicObject, Failure> {
        let (name, namespace) = (name(work), namespace(work.context.expose()));
        let spec = json!({
            "template": template.document,
            "secret": {"name": name},
            "requester": requester.spec(),
        });
        let sealed = verified::seal(Word::Broker, namespace, &name, &spec, self.now(), &self.seal);
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

    /// Waits until it is ready, or has failed.
    async fn await_end(
        &self,
        namespace: &str,
        name: &str,
        progress: &Progress,
    ) -> Result<Output, Failure> {
        let only = Config::default().fields(&format!("metadata.name={name}"));
        let events =
            watcher(self.instances(&self.client, namespace), only).backoff(Again::default());
        pin_mut!(events);
        let removed = || Failure::failed("its TemplateInstance was removed");
        let mut is_there = false;
        progress.report("its TemplateInstance was ordered, and nobody has taken it up yet");
        while let Some(event) = events.next().await {
            let object = match event {
                Ok(Event::Init) => {
                    is_there = false;
                    continue;
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => object,
                Ok(Event::InitDone) if is_there => continue,
                Ok(Event::InitDone | Event::Delete(_)) => return Err(removed()),
                Err(error) => {
                    tracing::debug!(%error, "a TemplateInstance cannot be watched now");
                    continue;
                }
            };
            is_there = true;
            if let Some(message) = holds(&object, "InstantiateFailure") {
                return Err(Failure::failed(message));
            }
            if holds(&object, "Ready").is_some() {
                return Ok(Output::default());
            }
            if let Some(message) = condition(&object, "Ready") {
                progress.report(&message);
            }
        }
        Err(transient("it is not watched any more"))
    }

    /// Withdraws an instance in the requester's name, and waits until all of it is gone.
    pub(super) async fn withdraw(&self, work: Work) -> Result<Output, Failure> {
        let name = name(&work);
        let Some(claim) = self.claimed(&name).await? else { return Ok(Output::default()) };
        let namespace = claim.namespace().to_owned();
        let requester = requester(&work)?;
        let client = requester.client(&self.client, &namespace);
        // Ours to look: where the namespace is gone, so are the requester's rights in it.
        let ours = self.instances(&self.client, &namespace);
        let what = format!("TemplateInstance {name}");
        let found = find(ours.get(&name)).await.map_err(|error| failed(&what, error))?;
        if let Some(found) =
            found.filter(|found| claim.owns(&json!(found.metadata.owner_references)))
        {
            self.remove(&client, &namespace, &name, &found).await?;
            while let Some(there) =
                find(ours.get(&name)).await.map_err(|error| failed(&what, error))?
            {
                if there.uid() != found.uid() {
                    break;
                }
                if let Some(message) = condition(&there, "Ready") {
                    work.progress.report(&message);
                }
                tokio::time::sleep(LOOK).await;
            }
        }
        let secrets: Api<Secret> = Api::namespaced(client, &namespace);
        // Who may not leaves it to Kubernetes: it goes with its owner.
        if let Ok(Some(secret)) = find(secrets.get_metadata(&name)).await
            && claim.owns(&json!(secret.metadata.owner_references))
        {
            let _ = find(secrets.delete(&name, &DeleteParams::default())).await;
        }
        self.unclaim(&name).await?;
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
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: found.uid(), resource_version: None }),
            ..DeleteParams::background()
        };
        let removed = find(self.instances(client, namespace).delete(name, &params)).await;
        match removed {
            Ok(_) | Err(CallError::Conflict) => Ok(()),
            Err(error) => Err(failed(&format!("TemplateInstance {name}"), error)),
        }
    }
}

/// What the requester gives: declared parameters only, and none that is empty where one is generated.
fn parameters(template: &Known, given: &Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    let invalid = |why: String| Failure::new(FailureKind::Invalid, why);
    let read = Template::read(template.document.clone());
    let template = read.map_err(|_| invalid("the template cannot be read any more".to_owned()))?;
    let mut data = Map::new();
    for (key, value) in given {
        let Value::String(text) = value else {
            return Err(invalid(format!("parameters.{key}: has to be a string")));
        };
        let mut declared = template.parameters.iter().filter(|it| it.name == *key);
        let wanted = declared.any(|it| !text.is_empty() || it.generate.is_empty());
        if wanted {
            data.insert(key.clone(), json!(data_encoding::BASE64.encode(text.as_bytes())));
        }
    }
    Ok(data)
}

fn secret(name: &str, claim: &Claim, data: &Map<String, Value>) -> Result<Secret, Failure> {
    serde_json::from_value(json!({
        "metadata": {"name": name, "ownerReferences": [claim.owner()]},
        "data": data,
    }))
    .map_err(|error| Failure::failed(error.to_string()))
}

/// The message of a condition that is there.
fn condition(object: &DynamicObject, kind: &str) -> Option<String> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|it| it["type"] == kind)?;
    condition["message"].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The message of a condition that holds.
pub(super) fn holds(object: &DynamicObject, kind: &str) -> Option<String> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|it| it["type"] == kind && it["status"] == "True")?;
    Some(condition["message"].as_str().unwrap_or(kind).to_owned())
}
