//! The status of a `Broker`, for users who have only `kubectl describe`; pure.

use osb::catalog::Fault;
use serde_json::{Value, json};

use super::entry::{Answer, Entry, list};
use super::resource::OwnedService;
use crate::conditions::{condition, stands};

/// How many bytes a message has at most.
const MAX_MESSAGE_BYTES: usize = 4096;

/// The status of a broker; `None` if nothing is known that is not written there. `kept_out`: why its offer is not in
/// force.
pub(super) fn of(
    entry: &Entry,
    faults: Option<&[Fault]>,
    kept_out: Option<&str>,
    now: &str,
) -> Option<Value> {
    let resource = &entry.resource;
    let (ready, reason, message) = ready(entry, faults, kept_out)?;
    let ready = if ready { "True" } else { "False" };
    let before = resource.status.pointer("/conditions/0").and_then(stands);
    let words = (reason.as_str(), &message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)]);
    let mut condition = condition("Ready", ready, words, before, now);
    condition["observedGeneration"] = json!(resource.generation);
    let names: Vec<_> =
        entry.services.iter().filter(|has| has.sold).map(|has| has.name.as_str()).collect();
    let mut status = json!({
        "observedGeneration": resource.generation,
        "services": entry.services.iter().map(|owned: &OwnedService| json!(owned)).collect::<Value>(),
        "conditions": [condition],
    });
    if !names.is_empty() {
        status["serviceNames"] = json!(names.join(", "));
    }
    Some(status)
}

/// Whether the services of a broker can be ordered as its spec says now; with the reason, in one word, and a message.
fn ready(
    entry: &Entry,
    faults: Option<&[Fault]>,
    kept_out: Option<&str>,
) -> Option<(bool, String, String)> {
    let sold = entry.services.iter().filter(|has| has.sold).count();
    let stays = match sold {
        0 => "",
        _ => ". The catalog from before stays in force",
    };
    let no = |reason: &str, message: String| Some((false, reason.to_owned(), message));
    if let Some(faults) = faults {
        return no("SpecInvalid", list(faults));
    }
    let generation = entry.resource.generation;
    let answer = entry.answer.as_ref().filter(|(of, _)| *of == generation);
    let answer = answer.map(|(_, answer)| answer);
    if let (Some(Answer::Good), Some(why)) = (answer, kept_out) {
        return no("CatalogNotInForce", format!("its catalog is good, and is not in force: {why}"));
    }
    match answer {
        Some(Answer::Bad { reason, message }) => {
            no(reason, format!("its catalog cannot be had: {message}{stays}"))
        }
        Some(Answer::Good) if !entry.refused.is_empty() => no(
            "ServiceTaken",
            format!("{}. Its other services are sold: {sold}", entry.refused.join("; ")),
        ),
        Some(Answer::Good) => {
            let unknown = unknown_plans(entry);
            let services = if sold == 1 { "service" } else { "services" };
            Some((true, "Serving".to_owned(), format!("{sold} {services} can be ordered{unknown}")))
        }
        None => {
            let (_, what) = entry.asking.as_ref().filter(|(of, _)| *of == generation)?;
            let what = what.as_ref().map(|what| format!(": {what}")).unwrap_or_default();
            no("CatalogPending", format!("its catalog is being read{what}{stays}"))
        }
    }
}

/// A message about plans that the spec names and the catalog does not have: a setting without effect is worth
/// mentioning.
fn unknown_plans(entry: &Entry) -> String {
    let (Ok(spec), Some(part)) = (&entry.resource.spec, &entry.part) else { return String::new() };
    let plans = || part.catalog.services.iter().flat_map(|service| &service.plans);
    let unknown = spec.plans.keys().filter(|id| plans().all(|plan| plan.id != **id));
    let unknown: Vec<_> = unknown.map(|id| format!("{:?}", id.as_str())).collect();
    match unknown.is_empty() {
        true => String::new(),
        false => {
            format!(", but spec.plans speaks of plans not in its catalog: {}", unknown.join(", "))
        }
    }
}
