//! Waits for the end of an order or a change: the controller of the TemplateInstance reports it in the status.

use std::time::Duration;

use futures_util::{StreamExt, pin_mut};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Event, watcher};
use osb::{Failure, Output, Progress};
use serde_json::json;

use super::{TemplateBroker, transient};
use crate::calls::{Again, watching};
use crate::templates::resource::{TIMEOUT, ready_timeout};

/// How much later than the controller the broker gives an instance up.
const LATE: Duration = Duration::from_secs(120);

/// The TemplateInstance that is waited for.
pub(super) struct Awaited<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    /// The generation of the spec that was written: a status of an earlier one says nothing.
    pub(super) generation: i64,
    pub(super) timeout: Duration,
}

/// How long the broker waits for an instance.
pub(super) fn timeout(instance: &DynamicObject) -> Duration {
    let said = ready_timeout(&json!(instance.metadata.annotations), &instance.data["spec"]);
    // An instance whose annotation is no duration fails at once.
    said.unwrap_or(TIMEOUT).saturating_add(LATE)
}

/// The state of a TemplateInstance.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stands {
    /// The status says nothing yet, or that the work goes on.
    GoesOn(Option<String>),
    Ready,
    Failed(String),
}

/// The state of the spec of a generation; a status of an earlier generation is ignored.
pub(super) fn stands(object: &DynamicObject, generation: i64) -> Stands {
    let status = &object.data["status"];
    if status["observedGeneration"].as_i64().unwrap_or_default() < generation {
        return Stands::GoesOn(None);
    }
    if let Some(message) = holds(object, "InstantiateFailure") {
        return Stands::Failed(message);
    }
    match holds(object, "Ready") {
        Some(_) => Stands::Ready,
        None => Stands::GoesOn(condition(object, "Ready")),
    }
}

impl TemplateBroker {
    /// Waits until the instance is ready, or has failed.
    pub(super) async fn await_end(
        &self,
        of: &Awaited<'_>,
        progress: &Progress,
    ) -> Result<Output, Failure> {
        match tokio::time::timeout(of.timeout, self.ended(of, progress)).await {
            Ok(ended) => ended,
            Err(_) => Err(Failure::failed(
                "nobody has made its TemplateInstance in time: is there a controller for it?",
            )),
        }
    }

    async fn ended(&self, of: &Awaited<'_>, progress: &Progress) -> Result<Output, Failure> {
        let only = watching().fields(&format!("metadata.name={}", of.name));
        let events =
            watcher(self.instances(&self.client, of.namespace), only).backoff(Again::default());
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
            match stands(&object, of.generation) {
                Stands::Failed(message) => return Err(Failure::failed(message)),
                Stands::Ready => return Ok(Output::default()),
                Stands::GoesOn(Some(message)) => progress.report(&message),
                Stands::GoesOn(None) => {}
            }
        }
        Err(transient("it is not watched any more"))
    }
}

/// The message of a condition, if it has one.
pub(super) fn condition(object: &DynamicObject, kind: &str) -> Option<String> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|it| it["type"] == kind)?;
    condition["message"].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A description of a removal's progress. `first` is the instance before the removal began: what its condition said
/// then is about its making.
pub(super) fn removal(there: &DynamicObject, first: &DynamicObject) -> String {
    let of_its_making = match first.metadata.deletion_timestamp {
        None => condition(first, "Ready"),
        Some(_) => None,
    };
    let retries =
        has_reason(there, "Ready", "Retrying").then(|| condition(there, "Ready")).flatten();
    let trouble = retries.filter(|words| of_its_making.as_ref() != Some(words));
    trouble.unwrap_or_else(|| "its objects are being removed".to_owned())
}

/// Whether an instance has a condition with this reason.
fn has_reason(object: &DynamicObject, kind: &str, reason: &str) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|it| it["type"] == kind && it["reason"] == reason))
}

/// The message of a condition that is `True`.
fn holds(object: &DynamicObject, kind: &str) -> Option<String> {
    let conditions = object.data["status"]["conditions"].as_array()?;
    let condition = conditions.iter().find(|it| it["type"] == kind && it["status"] == "True")?;
    Some(condition["message"].as_str().unwrap_or(kind).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn object(status: Value, annotations: Value) -> DynamicObject {
        let template =
            json!({"metadata": {"annotations": {"template.manciple.dev/ready-timeout": "5m"}}});
        serde_json::from_value(json!({
            "metadata": {"name": "i", "annotations": annotations},
            "spec": {"template": template}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn what_is_said_of_the_spec_before_says_nothing() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let failed = json!([
            {"type": "Ready", "status": "True"},
            {"type": "InstantiateFailure", "status": "True", "message": "no"},
        ]);
        let waits = json!([{"type": "Ready", "status": "False", "message": "waiting"}]);
        let goes_on = |words: Option<&str>| Stands::GoesOn(words.map(str::to_owned));
        for (case, conditions, observed, generation, expected) in [
            ("nothing yet", json!(null), json!(null), 0, goes_on(None)),
            ("an order that is ready", ready.clone(), json!(1), 0, Stands::Ready),
            ("one of whom nobody counts", ready.clone(), json!(null), 0, Stands::Ready),
            ("an order that has failed", failed.clone(), json!(1), 0, Stands::Failed("no".into())),
            ("before a change was taken up", ready.clone(), json!(1), 2, goes_on(None)),
            ("where nobody counts", ready.clone(), json!(null), 2, goes_on(None)),
            ("a failure before it", failed.clone(), json!(1), 2, goes_on(None)),
            ("a change that is carried out", waits, json!(2), 2, goes_on(Some("waiting"))),
            ("a change that is ready", ready.clone(), json!(2), 2, Stands::Ready),
            ("a change that has failed", failed, json!(2), 2, Stands::Failed("no".into())),
            ("a later one", ready, json!(3), 2, Stands::Ready),
        ] {
            let mut status = json!({"conditions": conditions});
            status["observedGeneration"] = observed;
            assert_eq!(stands(&object(status, json!({})), generation), expected, "{case}");
        }
    }

    #[test]
    fn a_removal_says_what_keeps_it_and_not_what_its_making_waited_for() {
        let goes = "its objects are being removed";
        let said = |reason: &str, words: &str| {
            let ready =
                json!({"type": "Ready", "status": "False", "reason": reason, "message": words});
            object(json!({"conditions": [ready]}), json!({}))
        };
        let waits = || said("Waiting", "Waiting for instantiated objects to report ready");
        let quota = || said("Retrying", "exceeded quota");
        let mut goes_already = said("Retrying", "no right to delete");
        goes_already.metadata.deletion_timestamp =
            serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok();
        let later = "no right to delete";
        for (case, first, there, expected) in [
            ("nothing was said", object(json!({}), json!({})), object(json!({}), json!({})), goes),
            ("it was being made", waits(), waits(), goes),
            ("its making was tried again", quota(), quota(), goes),
            ("its removal is tried again", waits(), said("Retrying", later), later),
            ("after its making was", quota(), said("Retrying", later), later),
            ("it was being removed before", goes_already.clone(), goes_already, later),
        ] {
            assert_eq!(removal(&there, &first), expected, "{case}");
        }
    }

    #[test]
    fn an_instance_says_how_long_it_may_take_before_its_template_does() {
        let own = json!({"template.manciple.dev/ready-timeout": "90s"});
        assert_eq!(timeout(&object(json!({}), own)), Duration::from_secs(90) + LATE);
        assert_eq!(timeout(&object(json!({}), json!({}))), Duration::from_secs(300) + LATE);
    }
}
