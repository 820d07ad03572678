//! Makes the objects of an instance, in the requester's name.
//!
//! ```text
//! values: recorded ones, or the requester's and generated ones ──▶ objects ──▶ may all of them be made?
//!   ──▶ the instance is held ──▶ values are recorded ──▶ objects are made ──▶ which ones is said
//! ```

use std::sync::Arc;

use engine::redact::{Redactor, Secrets};
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::Resource as _;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::Request;
use serde_json::{Value, json};
use template::{Fault, Processed, System, Template, ready};

use super::Controller;
use super::kinds::Place;
use super::names::{MANAGER, OWNER};
use super::plan::{self, Planned};
use super::record::{self, Values};
use super::resource::Instance;
use super::review::review;
use super::status::{self, Made, Stand, State};
use super::step::Came;
use super::trouble::Trouble;
use crate::calls::{CallError, call, find};

/// How many calls for one instance are under way at once.
pub(super) const AT_ONCE: usize = 8;
/// For how many seconds the Secret of the parameters may come after its instance.
const LATE: i64 = 60;

/// What is to be made.
struct Prepared {
    plan: Vec<Planned>,
    values: Values,
    /// Which of the values are nobody's business.
    secrets: Secrets,
}

impl Controller {
    /// Goes on with what is to be made.
    pub(super) async fn make(&self, instance: &Arc<Instance>) -> Result<Came, Trouble> {
        let requester = instance.requester().map_err(Trouble::Final)?;
        let user = &requester.identity.user;
        let client = requester.client(&self.client, &instance.key.namespace);
        let recorded = self.recorded(instance).await?;
        let is_recorded = recorded.is_some();
        let mut prepared = self.prepare(instance, &client, recorded).await?;
        // What was begun was reviewed.
        if !is_recorded {
            review(&client, user, &prepared.plan).await?;
            if !instance.is_held() {
                self.hold(instance, true).await?;
            }
            let instance = self.known(&instance.key)?;
            if instance.deleting {
                return Ok(Came::Later(std::time::Duration::ZERO));
            }
            if let Some(others) = self.record(&instance, &prepared.values).await? {
                prepared = self.prepare(&instance, &client, Some(others)).await?;
            }
        }
        if let Some(work) = self.table().work(&instance.key) {
            work.values = Some(prepared.values.clone());
        }
        self.make_all(instance, &client, &prepared).await
    }

    /// The values that were recorded, by this process or by one before it.
    async fn recorded(&self, instance: &Instance) -> Result<Option<Values>, Trouble> {
        let known = self.table().work(&instance.key).and_then(|work| work.values.clone());
        if known.is_some() || !instance.is_held() {
            return Ok(known);
        }
        self.read_record(instance).await
    }

    pub(super) async fn read_record(&self, instance: &Instance) -> Result<Option<Values>, Trouble> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &instance.key.namespace);
        let found = find(secrets.get(&record::name(&instance.uid))).await;
        let found = found.map_err(|error| Trouble::Passing(error.to_string()))?;
        let read = |secret: Secret| record::read(instance, &secret, &self.seal);
        found.map(read).transpose().map_err(Trouble::Final)
    }

    /// Records values; those of somebody else, if they came first.
    async fn record(
        &self,
        instance: &Instance,
        values: &Values,
    ) -> Result<Option<Values>, Trouble> {
        let secret = record::secret(instance, values, &self.seal);
        let secret: Secret =
            serde_json::from_value(secret).map_err(|error| Trouble::Final(error.to_string()))?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &instance.key.namespace);
        match call(secrets.create(&PostParams::default(), &secret)).await {
            Ok(_) => Ok(None),
            Err(CallError::Exists) => match self.read_record(instance).await? {
                Some(values) => Ok(Some(values)),
                None => Err(Trouble::Passing("its record came and went".to_owned())),
            },
            Err(error @ CallError::Invalid(_)) => {
                Err(Trouble::Final(format!("its values cannot be recorded: {error}")))
            }
            Err(error) => Err(Trouble::Passing(format!("its values cannot be recorded: {error}"))),
        }
    }

    async fn prepare(
        &self,
        instance: &Instance,
        client: &Client,
        recorded: Option<Values>,
    ) -> Result<Prepared, Trouble> {
        let mut template = template(instance).map_err(Trouble::Final)?;
        let public: Vec<String> = template.parameters.iter().map(|it| it.value.clone()).collect();
        let given = match recorded {
            Some(values) => values,
            None => given(instance, client, self.now().as_second()).await?,
        };
        for (name, value) in &given {
            template.set(name, value);
        }
        let processed = processed(template).map_err(Trouble::Final)?;
        let values = record::values(&processed.parameters);
        let plan = self.plan(instance, processed).await?;
        let secrets = secrets(&values, &public, &plan);
        Ok(Prepared { plan, values, secrets })
    }

    async fn plan(
        &self,
        instance: &Instance,
        processed: Processed,
    ) -> Result<Vec<Planned>, Trouble> {
        let mut plan = Vec::new();
        let mut faults = Vec::new();
        let defined: Vec<Place> = processed.objects.iter().flat_map(defined).collect();
        for (index, object) in processed.objects.into_iter().enumerate() {
            let (api_version, kind) = plan::kind(&object);
            let found = self.kinds.find(api_version, kind).await;
            let found = found.map_err(|error| Trouble::from(error).of(api_version))?;
            let is_it =
                |it: &&Place| it.resource.api_version == api_version && it.resource.kind == kind;
            let Some(place) = found.or_else(|| defined.iter().find(is_it).cloned()) else {
                return Err(Trouble::Doubtful(format!(
                    "template.objects[{index}]: the API server knows no {kind:?} of {api_version:?}"
                )));
            };
            match plan::plan(instance, index, object, place) {
                Ok(planned) => plan.push(planned),
                Err(why) => faults.push(format!("template.objects[{index}].{why}")),
            }
        }
        match faults.is_empty() {
            true => Ok(plan),
            false => Err(Trouble::Final(faults.join("\n"))),
        }
    }

    /// What a template that is recorded became, for whoever has to find what was made of it.
    pub(super) async fn planned(
        &self,
        instance: &Instance,
        values: &Values,
    ) -> Result<Vec<Planned>, Trouble> {
        let mut template = template(instance).map_err(Trouble::Final)?;
        for (name, value) in values {
            template.set(name, value);
        }
        self.plan(instance, processed(template).map_err(Trouble::Final)?).await
    }

    /// Makes all, those before others first. What cannot be made is no reason not to make the rest, as in the
    /// original.
    async fn make_all(
        &self,
        instance: &Instance,
        client: &Client,
        prepared: &Prepared,
    ) -> Result<Came, Trouble> {
        let plan = &prepared.plan;
        let redact = |text: String| Redactor::new(&prepared.secrets).redact(&text).into_owned();
        let mut ranks: Vec<u8> = plan.iter().map(|planned| planned.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut troubles = Vec::new();
        for rank in ranks {
            let is_made = |index: &usize| {
                let mut table = self.table();
                table.work(&instance.key).is_some_and(|work| work.made.contains_key(index))
            };
            let open = plan.iter().enumerate().filter(|(_, planned)| planned.rank == rank);
            let open: Vec<_> = open.filter(|(index, _)| !is_made(index)).collect();
            let calls = open.into_iter().map(|(index, planned)| async move {
                (index, self.make_one(instance, client, planned).await)
            });
            let calls: Vec<_> = calls.collect();
            let mut calls = stream::iter(calls).buffer_unordered(AT_ONCE);
            while let Some((index, made)) = calls.next().await {
                match made {
                    Ok(made) => {
                        if let Some(work) = self.table().work(&instance.key) {
                            work.made.insert(index, made);
                        }
                    }
                    Err(trouble) => troubles.push((index, trouble)),
                }
            }
            // Another may lead by now.
            if !self.leads() {
                return Ok(Came::Idle);
            }
        }
        troubles.sort_by_key(|(index, _)| *index);
        self.outcome(instance, troubles.into_iter().map(|(_, trouble)| trouble), redact)
    }

    /// What it has come to.
    fn outcome(
        &self,
        instance: &Instance,
        troubles: impl Iterator<Item = Trouble>,
        redact: impl Fn(String) -> String,
    ) -> Result<Came, Trouble> {
        let (mut passing, mut doubtful, mut definite) = (Vec::new(), Vec::new(), Vec::new());
        for trouble in troubles {
            match trouble {
                Trouble::Passing(why) => passing.push(redact(why)),
                Trouble::Doubtful(why) => doubtful.push(redact(why)),
                Trouble::Final(why) => definite.push(redact(why)),
                Trouble::Old => return Err(Trouble::Old),
            }
        }
        if !passing.is_empty() {
            return Err(Trouble::Passing(passing.join("\n")));
        }
        if !doubtful.is_empty() {
            doubtful.extend(definite);
            return Err(Trouble::Doubtful(doubtful.join("\n")));
        }
        if !definite.is_empty() {
            return Err(Trouble::Final(definite.join("\n")));
        }
        let mut table = self.table();
        let Some(work) = table.work(&instance.key) else { return Err(Trouble::Old) };
        let made: Vec<Made> = work.made.values().cloned().collect();
        let stand = match made.iter().any(|made| made.state == State::Waiting) {
            true => Stand::Waiting(status::WAITING.to_owned()),
            false => Stand::Ready,
        };
        Ok(Came::Stands(stand, Some(made)))
    }

    async fn make_one(
        &self,
        instance: &Instance,
        client: &Client,
        planned: &Planned,
    ) -> Result<Made, Trouble> {
        let failed =
            |trouble: Trouble| trouble.of(&format!("unable to create {}", planned.words()));
        let resource = &planned.place.resource;
        let requests =
            Request::new(DynamicObject::url_path(resource, planned.namespace.as_deref()));
        let params =
            PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let request = requests
            .create(&params, planned.object.to_string().into_bytes())
            .map_err(|error| failed(Trouble::Final(error.to_string())))?;
        let object = match call(client.request::<Value>(request)).await {
            Ok(object) => object,
            Err(CallError::Exists) => {
                self.found(instance, client, planned).await.map_err(failed)?
            }
            Err(error) => {
                if matches!(error, CallError::NotFound) {
                    self.kinds.forget(&resource.api_version);
                }
                return Err(failed(error.into()));
            }
        };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let state = if ready::is_awaited(&object) { State::Waiting } else { State::Created };
        Ok(Made {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            namespace: planned.namespace.clone().unwrap_or_default(),
            name: planned.name.clone(),
            uid,
            state,
            message: String::new(),
        })
    }

    /// One that exists already, if it is one of ours: made by somebody who did not come to say so.
    async fn found(
        &self,
        instance: &Instance,
        client: &Client,
        planned: &Planned,
    ) -> Result<Value, Trouble> {
        let found = get(client, planned).await?;
        let Some(found) = found else {
            return Err(Trouble::Passing("it existed, and is gone".to_owned()));
        };
        match is_ours(instance, &found) {
            true => Ok(found),
            false => Err(Trouble::Final(format!(
                "{} {:?} already exists, and is not of this instance: it is left as it is",
                planned.resource(),
                planned.name
            ))),
        }
    }
}

/// Reads an object, as whoever the client is of.
pub(super) async fn get(client: &Client, planned: &Planned) -> Result<Option<Value>, CallError> {
    let resource = &planned.place.resource;
    let requests = Request::new(DynamicObject::url_path(resource, planned.namespace.as_deref()));
    let request = requests
        .get(&planned.name, &Default::default())
        .map_err(|error| CallError::Invalid(error.to_string()))?;
    find(client.request::<Value>(request)).await
}

/// Whether an instance has made it.
pub(super) fn is_ours(instance: &Instance, object: &Value) -> bool {
    object["metadata"]["labels"][OWNER] == *instance.uid
}

/// The template of an instance.
fn template(instance: &Instance) -> Result<Template, String> {
    let mut document = instance.spec()["template"].clone();
    if let Some(map) = document.as_object_mut() {
        // Of a part of something else nobody says it.
        map.entry("apiVersion").or_insert_with(|| json!(template::API_VERSION));
        map.entry("kind").or_insert_with(|| json!(template::KIND));
    }
    let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Template::read(document).map_err(|faults| unable(&name, &faults))
}

fn processed(template: Template) -> Result<Processed, String> {
    let name = template.name().to_owned();
    template.process(&mut System).map_err(|faults| unable(&name, &faults))
}

fn unable(name: &str, faults: &[Fault]) -> String {
    let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
    let of = "unable to process Template objects: Template.template.openshift.io";
    match faults.as_slice() {
        [one] => format!("{of} {name:?} is invalid: {one}"),
        several => format!("{of} {name:?} is invalid: [{}]", several.join(", ")),
    }
}

/// The values that the requester gives: what the Secret holds, read in the requester's name.
async fn given(instance: &Instance, client: &Client, now: i64) -> Result<Values, Trouble> {
    let Some(name) = instance.secret() else { return Ok(Values::new()) };
    let unable = |trouble: Trouble| trouble.of("unable to retrieve TemplateInstance Secret");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &instance.key.namespace);
    let found = find(secrets.get(name)).await.map_err(|error| unable(error.into()))?;
    let Some(secret) = found else {
        // It may be the next in the file that somebody applies.
        let why = format!("secrets {name:?} not found");
        let is_early = now.saturating_sub(instance.created_at.as_second()) < LATE;
        return Err(unable(if is_early { Trouble::Passing(why) } else { Trouble::Final(why) }));
    };
    let data = secret.data.unwrap_or_default().into_iter();
    let text = |(key, value): (String, k8s_openapi::ByteString)| match String::from_utf8(value.0) {
        Ok(value) => Ok((key, value)),
        Err(_) => Err(unable(Trouble::Final(format!(
            "secrets {name:?}: data[{key:?}]: Invalid value: has to be UTF-8"
        )))),
    };
    data.map(text).collect()
}

/// Values that are nobody's business: not those that the template says, and not what names an object.
fn secrets(values: &Values, public: &[String], plan: &[Planned]) -> Secrets {
    let names = |value: &str| {
        plan.iter().any(|it| {
            it.name.contains(value) || it.namespace.as_deref().is_some_and(|it| it.contains(value))
        })
    };
    let mut secrets = Secrets::default();
    let hidden = values.values().filter(|value| !public.contains(value) && !names(value));
    hidden.for_each(|value| secrets.add(value.as_bytes()));
    secrets
}

/// The kinds that an object of a template defines: others of the template may be of them.
fn defined(object: &Value) -> Vec<Place> {
    let (api_version, kind) = plan::kind(object);
    if kind != "CustomResourceDefinition" || !api_version.starts_with("apiextensions.k8s.io/") {
        return Vec::new();
    }
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind, plural) =
        (text(&spec["group"]), text(&spec["names"]["kind"]), text(&spec["names"]["plural"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    let place = |version: &Value| {
        let version = text(&version["name"]);
        Place {
            resource: kube::discovery::ApiResource {
                group: group.clone(),
                api_version: format!("{group}/{version}"),
                version,
                kind: kind.clone(),
                plural: plural.clone(),
            },
            is_namespaced: spec["scope"] == "Namespaced",
        }
    };
    versions.map(place).collect()
}
