//! Makes the objects of an instance, in the requester's name.
//!
//! ```text
//! values: recorded ones, or the requester's and generated ones ──▶ objects ──▶ may all of them be made?
//!   ──▶ the instance is held ──▶ values are recorded ──▶ objects are made ──▶ which ones is said
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

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
use super::names::MANAGER;
use super::plan::{self, Planned};
use super::record::{self, Record, Values};
use super::resource::{Instance, Key};
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
    record: Arc<Record>,
    /// What of the values is nobody's business.
    redactor: Redactor,
}

impl Controller {
    /// Goes on with what is to be made.
    pub(super) async fn make(&self, instance: &Arc<Instance>) -> Result<Came, Trouble> {
        // Somebody has begun it, and may have ended it, too: what is known of it here may be old.
        let is_begun_here = self.with(&instance.key, |work| work.record.is_some());
        if instance.is_held() && is_begun_here == Some(false) {
            let is_there = self.refresh(&instance.key).await;
            if !is_there.map_err(|error| Trouble::Passing(error.to_string()))? {
                return Ok(Came::Idle);
            }
        }
        let instance = &self.known(&instance.key)?;
        if instance.deleting {
            return Ok(Came::Later(Duration::ZERO));
        }
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
            if self.known(&instance.key)?.deleting {
                return Ok(Came::Later(Duration::ZERO));
            }
            if let Some(others) = self.record(&instance.key, &prepared.record).await? {
                prepared = self.prepare(instance, &client, Some(others)).await?;
            }
        }
        self.with(&instance.key, |work| work.record = Some(Arc::clone(&prepared.record)));
        self.make_all(instance, &client, &prepared).await
    }

    /// What was recorded, by this process or by one before it.
    async fn recorded(&self, instance: &Instance) -> Result<Option<Arc<Record>>, Trouble> {
        let known = self.with(&instance.key, |work| work.record.clone()).flatten();
        if known.is_some() || !instance.is_held() {
            return Ok(known);
        }
        self.read_record(&instance.key).await
    }

    pub(super) async fn read_record(&self, of: &Key) -> Result<Option<Arc<Record>>, Trouble> {
        let found = find(self.secrets(of).get(&record::name(&of.uid))).await;
        let found = found.map_err(|error| Trouble::Passing(error.to_string()))?;
        let read = |secret: Secret| record::read(of, &secret, &self.seal).map(Arc::new);
        found.map(read).transpose().map_err(Trouble::Final)
    }

    pub(super) fn secrets(&self, of: &Key) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &of.namespace)
    }

    /// Writes a record; that of somebody else, if it came first.
    async fn record(&self, of: &Key, record: &Record) -> Result<Option<Arc<Record>>, Trouble> {
        let secret = record::secret(of, record, &self.seal);
        let secret: Secret =
            serde_json::from_value(secret).map_err(|error| Trouble::Final(error.to_string()))?;
        let unable =
            |error: CallError| format!("what it is begun with cannot be recorded: {error}");
        match call(self.secrets(of).create(&PostParams::default(), &secret)).await {
            Ok(_) => Ok(None),
            Err(CallError::Exists) => match self.read_record(of).await? {
                Some(record) => Ok(Some(record)),
                None => Err(Trouble::Passing("its record came and went".to_owned())),
            },
            Err(error @ CallError::Invalid(_)) => Err(Trouble::Final(unable(error))),
            Err(error) => Err(Trouble::Passing(unable(error))),
        }
    }

    async fn prepare(
        &self,
        instance: &Instance,
        client: &Client,
        recorded: Option<Arc<Record>>,
    ) -> Result<Prepared, Trouble> {
        if recorded.as_ref().is_some_and(|record| !record.is_of(instance)) {
            let why = "spec: was changed after it was begun: field is immutable";
            return Err(Trouble::Final(why.to_owned()));
        }
        let mut template = template(instance).map_err(Trouble::Final)?;
        let public: Vec<String> = template.parameters.iter().map(|it| it.value.clone()).collect();
        let given = match &recorded {
            Some(record) => record.parameters.clone(),
            None => given(instance, client, self.now().as_second()).await?,
        };
        for (name, value) in &given {
            template.set(name, value);
        }
        let Processed { objects, message, parameters, .. } =
            processed(template).map_err(Trouble::Final)?;
        let record = match recorded {
            Some(record) => record,
            None => Arc::new(Record::of(instance, &parameters, message)),
        };
        let hides = |names: &[&str]| Redactor::new(&secrets(&record.parameters, &public, names));
        let plan = match self.plan(&instance.key, objects).await {
            Ok(plan) => plan,
            Err(Trouble::Final(why)) => {
                return Err(Trouble::Final(hides(&[]).redact(&why).into_owned()));
            }
            Err(trouble) => return Err(trouble),
        };
        let names: Vec<&str> = plan.iter().flat_map(Planned::names).collect();
        let redactor = hides(&names);
        Ok(Prepared { plan, record, redactor })
    }

    async fn plan(&self, of: &Key, objects: Vec<Value>) -> Result<Vec<Planned>, Trouble> {
        let mut plan: Vec<Planned> = Vec::new();
        let mut faults = Vec::new();
        let defined: Vec<Place> = objects.iter().flat_map(defined).collect();
        for (index, object) in objects.into_iter().enumerate() {
            let path = format!("template.objects[{index}]");
            let (api_version, kind) = plan::kind(&object);
            let found = self.kinds.find(api_version, kind).await;
            let found = found.map_err(|error| Trouble::from(error).of(api_version))?;
            let is_it =
                |it: &&Place| it.resource.api_version == api_version && it.resource.kind == kind;
            let Some(place) = found.or_else(|| defined.iter().find(is_it).cloned()) else {
                return Err(Trouble::Doubtful(format!(
                    "{path}: the API server knows no {kind:?} of {api_version:?}"
                )));
            };
            match plan::plan(of, index, object, place, &self.seal) {
                Ok(planned) if plan.iter().any(|it| it.is_same(&planned)) => {
                    faults.push(format!("{path}: Duplicate value: {}", planned.words()));
                }
                Ok(planned) => plan.push(planned),
                Err(why) => faults.push(format!("{path}.{why}")),
            }
        }
        match faults.is_empty() {
            true => Ok(plan),
            false => Err(Trouble::Final(faults.join("\n"))),
        }
    }

    /// What a template that was begun with may have become, for whoever has to find what was made of it: what cannot be
    /// planned any more is passed over.
    pub(super) async fn planned(
        &self,
        instance: &Instance,
        record: &Record,
    ) -> Result<Vec<Planned>, Trouble> {
        let Ok(mut template) = template(instance) else { return Ok(Vec::new()) };
        for (name, value) in &record.parameters {
            template.set(name, value);
        }
        let Ok(processed) = processed(template) else { return Ok(Vec::new()) };
        let mut plan = Vec::new();
        for (index, object) in processed.objects.into_iter().enumerate() {
            let (api_version, kind) = plan::kind(&object);
            let place = self.kinds.find_any(api_version, kind).await;
            let place = place.map_err(|error| Trouble::from(error).of(api_version))?;
            let Some(place) = place else { continue };
            plan.extend(plan::plan(&instance.key, index, object, place, &self.seal));
        }
        Ok(plan)
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
        let redact = |text: String| prepared.redactor.redact(&text).into_owned();
        let mut ranks: Vec<u8> = plan.iter().map(|planned| planned.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut troubles = Vec::new();
        for rank in ranks {
            let is_made = |index: &usize| {
                let known = self.with(&instance.key, |work| work.made.contains_key(index));
                known.unwrap_or_default()
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
                        self.with(&instance.key, |work| work.made.insert(index, made));
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
        let made = self.with(&instance.key, |work| work.made.values().cloned().collect());
        let made: Vec<Made> = made.ok_or(Trouble::Old)?;
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
                match &error {
                    CallError::NotFound => self.kinds.forget(&resource.api_version),
                    // It may yet be made.
                    CallError::NoAnswer(_) | CallError::Refused(_) => {
                        self.with(&instance.key, |work| work.unanswered = Some(Instant::now()));
                    }
                    _ => {}
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
        let is_going = !found["metadata"]["deletionTimestamp"].is_null();
        match planned.is(&instance.key, &found, &self.seal) {
            true if is_going => Err(Trouble::Passing("it exists, and is being removed".to_owned())),
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

/// The template of an instance.
fn template(instance: &Instance) -> Result<Template, String> {
    let document = whole(&instance.spec()["template"]);
    let name = document["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Template::read(document).map_err(|faults| unable(&name, &faults))
}

/// A template that is a part of something else: nobody says there what it is.
pub(super) fn whole(template: &Value) -> Value {
    let mut document = template.clone();
    if let Some(map) = document.as_object_mut() {
        map.entry("apiVersion").or_insert_with(|| json!(template::API_VERSION));
        map.entry("kind").or_insert_with(|| json!(template::KIND));
    }
    document
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
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    if !name.bytes().all(plain) || name.starts_with('.') {
        let why = format!("spec.secret.name: Invalid value: {name:?}: is no name of a Secret");
        return Err(Trouble::Final(why));
    }
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
pub(super) fn secrets(values: &Values, public: &[String], names: &[&str]) -> Secrets {
    let named = |value: &str| names.iter().any(|name| name.contains(value));
    let mut secrets = Secrets::default();
    let hidden = values.values().filter(|value| !public.contains(value) && !named(value));
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
