//! Prepares an instance: its parameter values, and its objects as they are to be made.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use engine::redact::Redactor;
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use kube::Client;
use ring::hmac;
use serde_json::Value;
use template::Processed;
use template::translate::{Translation, translate};
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit, TryAcquireError};

use super::kinds::{Kinds, ServedKind};
use super::make::{AT_ONCE, get};
use super::objects::DEEPEST;
use super::plan::{self, Ordinals, Planned, check_nested};
use super::record::{Former, Record, StoredRecord, is_what_it_says};
use super::resource::{Instance, Key};
use super::status::Made;
use super::trouble::Trouble;
use super::values::{defaults, generated_again, given, processed, secrets, stay, template};
use super::{Controller, HEAVY, MUCH, Requesters, verified};
use crate::calls::CallError;
use crate::deep::is_deeper;

/// How soon an instance is processed again for which there was no permit.
pub(super) const NEXT_TURN: Duration = Duration::from_secs(1);

/// A prepared instance: its plan and its record.
pub(super) struct Prepared {
    pub(super) plan: Vec<Planned>,
    pub(super) kept: Arc<StoredRecord>,
    /// Hides the values that are not public.
    pub(super) redactor: Redactor,
    /// The permit for large parameters, held as long as this exists.
    _turn: Option<OwnedSemaphorePermit>,
}

impl Controller {
    /// Prepares an instance from its record; `None` where it has to wait for a permit.
    pub(super) async fn prepare(
        &self,
        instance: &Instance,
        kept: Arc<StoredRecord>,
    ) -> Result<Option<Prepared>, Trouble> {
        let template = template(instance.spec()).map_err(Trouble::Final)?;
        let public = defaults(&instance.spec()["template"]);
        let processed = with_values(template, &kept.record)?;
        let Ok(turn) = self.turn(processed.spent) else { return Ok(None) };
        let (plan, redactor) = self.plan(instance, &kept, processed.objects, &public).await?;
        Ok(Some(Prepared { plan, kept, redactor, _turn: turn }))
    }

    /// Prepares what is ordered and not recorded yet; `None` where it has to wait for a permit. `before` is the
    /// previous record.
    pub(super) async fn prepare_new(
        &self,
        instance: &Instance,
        client: &Client,
        before: Option<&StoredRecord>,
    ) -> Result<Option<Prepared>, Trouble> {
        let spec = instance.spec();
        if let Some(before) = before {
            is_what_it_says(&spec["template"], before).map_err(Trouble::Final)?;
        }
        let mut template = template(spec).map_err(Trouble::Final)?;
        let public = defaults(&spec["template"]);
        let given = given(instance, &template, client, self.now().as_second()).await?;
        if self.settings.requesters == Requesters::Verified {
            verified::check_values(instance, &given, &self.seal).map_err(Trouble::Final)?;
        }
        template.set_all(&given);
        let was = || before.and_then(|before| before.template(before.record.revision));
        let again = before.map(|before| generated_again(&spec["template"], before));
        let again = again.unwrap_or_default();
        let generated = stay(&mut template, &given, &again, before.map(|it| &it.record), was);
        let Processed { objects, message, parameters, spent, .. } =
            processed(template).map_err(Trouble::Final)?;
        let Ok(turn) = self.turn(spent) else { return Ok(None) };
        let mut record = Record::of(instance, &parameters, message, self.now().to_string());
        record.generated = Some(generated);
        record.translation = self.settings.translation.clone().map(Into::into);
        let mut kept = match before {
            None => StoredRecord::new(record, spec),
            Some(before) => before.next(record, spec, &instance.key, &self.seal),
        };
        let (plan, redactor) = self.plan(instance, &kept, objects, &public).await?;
        check_nested(instance.is_nested(), &plan).map_err(Trouble::Final)?;
        if let Some(before) = before {
            kept.record.before = self.formers(instance, client, before, &plan).await?;
        }
        Ok(Some(Prepared { plan, kept: Arc::new(kept), redactor, _turn: turn }))
    }

    /// A permit for an instance whose parameters take `spent` bytes; `None` where it needs none. No worker waits here:
    /// small instances need it.
    pub(super) fn turn(
        &self,
        spent: usize,
    ) -> Result<Option<OwnedSemaphorePermit>, TryAcquireError> {
        match spent < MUCH {
            true => Ok(None),
            false => Arc::clone(&self.large).try_acquire_owned().map(Some),
        }
    }

    /// A permit for an instance whose parsed spec takes `weight` bytes; `None` where it needs none. No worker waits
    /// here either.
    pub(super) fn heavy_turn(
        &self,
        weight: usize,
    ) -> Result<Option<SemaphorePermit<'_>>, TryAcquireError> {
        match u32::try_from(weight >> 10) {
            Ok(kib) if weight >= HEAVY => self.heavy.try_acquire_many(kib).map(Some),
            _ => Ok(None),
        }
    }

    /// The planned objects, and the redactor: it also hides the values of the previous revision, which present objects
    /// still have.
    async fn plan(
        &self,
        instance: &Instance,
        kept: &StoredRecord,
        objects: Vec<Value>,
        public: &[String],
    ) -> Result<(Vec<Planned>, Redactor), Trouble> {
        let before = kept.values_before();
        let hides = |names: &[&str]| {
            let mut hidden = secrets(&kept.record.parameters, public, names);
            hidden.extend(secrets(&before, public, names));
            Redactor::new(&hidden)
        };
        let means = kept.record.means();
        let planned = async {
            let objects = translated(&instance.key, objects, means.as_ref())?;
            plan_all(&self.kinds, &instance.key, objects, &self.seal).await
        };
        let plan = planned.await.map_err(|trouble| trouble.redacted(&hides(&[])))?;
        let names: Vec<&str> = plan.iter().flat_map(Planned::names).collect();
        let redactor = hides(&names);
        Ok((plan, redactor))
    }

    /// The objects of earlier revisions that are not in this plan, as far as they are known.
    async fn formers(
        &self,
        instance: &Instance,
        client: &Client,
        before: &StoredRecord,
        plan: &[Planned],
    ) -> Result<Vec<Former>, Trouble> {
        let carried = self.left(instance, client, &before.record).await?;
        let said = instance.objects().iter().filter_map(Made::of).map(Former::from);
        let planned = self.planned(instance, before).await?;
        let planned = planned.iter().map(Former::from);
        Ok(unplanned(carried.into_iter().chain(planned).chain(said), plan))
    }

    /// Objects that the previous revision had to remove and that still exist; those already gone are dropped, so the
    /// list does not grow. A call that was not answered may yet make one, so nothing is dropped soon.
    async fn left(
        &self,
        instance: &Instance,
        client: &Client,
        before: &Record,
    ) -> Result<Vec<Former>, Trouble> {
        let recorded_at: Option<Timestamp> = before.recorded_at.parse().ok();
        let since =
            recorded_at.and_then(|at| Duration::try_from(self.now().duration_since(at)).ok());
        let is_late = since.is_some_and(|since| since > self.settings.longest_call);
        if !is_late {
            return Ok(before.before.clone());
        }
        let looks = before.before.iter().map(|former| async move {
            // A kind that is gone took its objects with it.
            let Some(planned) = self.former(former).await? else { return Ok(None) };
            let is_it = match get(client, &self.kinds, &planned).await {
                Ok(found) => found.is_some_and(|it| planned.is(&instance.key, &it, &self.seal)),
                Err(CallError::Forbidden(_)) => true,
                Err(error) => return Err(Trouble::from(error).of(&planned.words())),
            };
            Ok(is_it.then_some(former))
        });
        let looks: Vec<_> = looks.collect();
        let left: Vec<_> = stream::iter(looks).buffered(AT_ONCE).try_collect().await?;
        Ok(left.into_iter().flatten().cloned().collect())
    }

    /// The objects that may have been made from the recorded template, for whoever has to find them: those that cannot
    /// be planned any more are left out.
    pub(super) async fn planned(
        &self,
        instance: &Instance,
        kept: &StoredRecord,
    ) -> Result<Vec<Planned>, Trouble> {
        // Where the spec was too large to be recorded, the present one may still be the same.
        let still = || Some(instance.spec().clone()).filter(|_| kept.record.is_of(instance));
        let Some(spec) = kept.spec().or_else(still) else { return Ok(Vec::new()) };
        planned_of(&self.kinds, &instance.key, &spec, &kept.record, &self.seal).await
    }

    /// Where an object of an earlier revision is, to check whether it still exists; `None` if its kind is gone.
    pub(super) async fn former(&self, former: &Former) -> Result<Option<Planned>, Trouble> {
        place_of(&self.kinds, former).await
    }
}

/// Translates objects of OpenShift's kinds to kinds of any Kubernetes, if the settings say so.
pub(super) fn translated(
    of: &Key,
    objects: Vec<Value>,
    means: Option<&Translation>,
) -> Result<Vec<Value>, Trouble> {
    let Some(means) = means else { return Ok(objects) };
    let means = Translation { namespace: Some(of.namespace.to_string()), ..means.clone() };
    match translate(objects, &means) {
        Ok(translated) => {
            let (namespace, name) = (&*of.namespace, &*of.name);
            for warning in &translated.warnings {
                tracing::debug!(namespace, name, %warning, "it is translated");
            }
            Ok(translated.objects)
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let why = format!("unable to translate Template objects: {}", faults.join("\n"));
            Err(Trouble::Final(why))
        }
    }
}

/// Plans all objects.
pub(super) async fn plan_all(
    kinds: &Kinds,
    of: &Key,
    objects: Vec<Value>,
    seal: &hmac::Key,
) -> Result<Vec<Planned>, Trouble> {
    let (mut plan, mut planned_already) = (Vec::new(), HashSet::new());
    let (mut faults, mut ordinals) = (Vec::new(), Ordinals::default());
    let defined: Vec<ServedKind> = objects.iter().flat_map(defined).collect();
    for (index, object) in objects.into_iter().enumerate() {
        let path = format!("template.objects[{index}]");
        if is_deeper(&object, DEEPEST) {
            faults.push(format!(
                "{path}: Invalid value: it is nested more than {DEEPEST} levels deep: make it flatter"
            ));
            continue;
        }
        let (api_version, kind) = plan::kind(&object);
        let found = kinds.find(api_version, kind).await;
        let found = found.map_err(|error| Trouble::from(error).of(api_version))?;
        let is_it =
            |it: &&ServedKind| it.resource.api_version == api_version && it.resource.kind == kind;
        let Some(served) = found.or_else(|| defined.iter().find(is_it).cloned()) else {
            return Err(Trouble::Doubtful(format!(
                "{path}: the API server knows no {kind:?} of {api_version:?}"
            )));
        };
        if !served.is_kept {
            faults.push(format!(
                "{path}: Invalid value: a {kind}: the API server keeps none, so that it could not be removed: leave it out"
            ));
            continue;
        }
        match plan::plan(of, ordinals.next(&object), object, served, seal) {
            Ok(planned) if !planned_already.insert(planned.identity()) => {
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

/// The objects that may have been made from a spec with a record; those that cannot be planned any more are left out.
pub(super) async fn planned_of(
    kinds: &Kinds,
    of: &Key,
    spec: &Value,
    record: &Record,
    seal: &hmac::Key,
) -> Result<Vec<Planned>, Trouble> {
    let Ok(template) = template(spec) else { return Ok(Vec::new()) };
    let Ok(processed) = with_values(template, record) else { return Ok(Vec::new()) };
    let objects = translated(of, processed.objects, record.means().as_ref());
    let (mut plan, mut ordinals) = (Vec::new(), Ordinals::default());
    for object in objects.into_iter().flatten() {
        let ordinal = ordinals.next(&object);
        let (api_version, kind) = plan::kind(&object);
        let served = kinds.find_any(api_version, kind).await;
        let served = served.map_err(|error| Trouble::from(error).of(api_version))?;
        let Some(served) = served.filter(|served| served.is_kept) else { continue };
        plan.extend(plan::plan(of, ordinal, object, served, seal));
    }
    Ok(plan)
}

/// The former objects that are not in the plan, each once.
pub(super) fn unplanned(all: impl Iterator<Item = Former>, plan: &[Planned]) -> Vec<Former> {
    let plan: Vec<Former> = plan.iter().map(Former::from).collect();
    let now: HashSet<_> = plan.iter().map(Former::identity).collect();
    let mut known = HashSet::new();
    let is_one = |it: &Former| !now.contains(&it.identity()) && known.insert(it.clone());
    all.filter(is_one).collect()
}

/// Where an object of an earlier revision is; `None` if its kind is gone.
pub(super) async fn place_of(kinds: &Kinds, former: &Former) -> Result<Option<Planned>, Trouble> {
    let served = kinds.find_any(&former.api_version, &former.kind).await;
    let served = served.map_err(|error| Trouble::from(error).of(&former.api_version))?;
    let can_be = |it: &ServedKind| it.is_kept && it.can_be_in(&former.namespace);
    Ok(served.filter(can_be).map(|served| Planned {
        namespace: served.is_namespaced.then(|| former.namespace.clone()),
        served,
        name: former.name.clone(),
        rank: 0,
        object: Value::Null,
    }))
}

fn with_values(mut template: template::Template, record: &Record) -> Result<Processed, Trouble> {
    template.set_all(&record.parameters);
    processed(template).map_err(Trouble::Final)
}

/// The kinds that an object of a template defines: other objects of the template may be of them.
fn defined(object: &Value) -> Vec<ServedKind> {
    let (api_version, kind) = plan::kind(object);
    if kind != "CustomResourceDefinition" || !api_version.starts_with("apiextensions.k8s.io/") {
        return Vec::new();
    }
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, kind, plural) =
        (text(&spec["group"]), text(&spec["names"]["kind"]), text(&spec["names"]["plural"]));
    let versions = spec["versions"].as_array().into_iter().flatten();
    let served = |version: &Value| {
        let version = text(&version["name"]);
        ServedKind {
            resource: kube::discovery::ApiResource {
                group: group.clone(),
                api_version: format!("{group}/{version}"),
                version,
                kind: kind.clone(),
                plural: plural.clone(),
            },
            is_namespaced: spec["scope"] == "Namespaced",
            is_kept: true,
        }
    };
    versions.map(served).collect()
}
