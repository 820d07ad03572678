//! Decisions about TemplateInstances: the requester is the user who makes one, unless they may `assign`; and a spec
//! stays unchanged, except for changes that the broker has verified, and those of the requester's own where they are
//! admitted.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{Answer, Wrong};
use super::identity::{differences, is_had, is_left_open};
use super::judged::{AdmissionContext, Assign, Judged};
use super::review::Review;
use super::{Changes, validate};
use crate::templates::names::{Kind, VERIFIED};
use crate::templates::requester::Requester;
use crate::templates::verified::{self, Word};

/// How many characters of `generateName` are in a generated name, as in the API server: 63 less its random end.
const GENERATED_FROM: usize = 58;

/// Decides about an instance that is to be made.
///
/// A seal covers the name, so where there is only `generateName` the name is generated here: the API server takes it
/// from the patch. An instance that the broker has verified is admitted as it is, from the requester whom it names.
pub(super) fn create(review: &Review, means: &AdmissionContext<'_>) -> Judged {
    let mut patch = Vec::new();
    let metadata = &review.object["metadata"];
    let text = |of: &str| metadata[of].as_str().unwrap_or_default();
    let mut name = text("name").to_owned();
    if name.is_empty() && !text("generateName").is_empty() {
        name = text("generateName").chars().take(GENERATED_FROM).collect();
        name.push_str(means.suffix);
        patch.push(add("/metadata/name", &json!(name)));
    }
    let mut wrongs = Vec::new();
    if name.is_empty() {
        let says = "Required value: name or generateName is required";
        wrongs.push(Wrong::new("metadata.name", says));
    }
    let mut spec = review.object["spec"].clone();
    if !spec.is_object() {
        wrongs.push(Wrong::required("spec"));
        return invalid(&name, &wrongs);
    }
    let moment = (means.now, verified::FIRST);
    if is_ordered(review, &name, moment, means) {
        wrongs.extend(validate::spec(&spec));
        return match wrongs.is_empty() {
            true => Judged::Answered(Answer::as_it_is()),
            false => invalid(&name, &wrongs),
        };
    }
    let is_own = is_left_open(&spec["requester"], Some(&review.who.user));
    let named = match is_own {
        true => Requester::new(review.who.clone()),
        false => Requester::of(&spec["requester"]),
    };
    let named = named.map_err(|why| wrongs.push(Wrong::of(&why))).ok();
    wrongs.extend(validate::spec(&spec));
    let Some(named) = named.filter(|_| wrongs.is_empty()) else { return invalid(&name, &wrongs) };
    if is_own {
        spec["requester"] = named.spec();
        patch.push(add("/spec/requester", &spec["requester"]));
    }
    // A dry run makes nothing: there is nothing to seal.
    let seal = (!review.dry_run).then(|| {
        verified::seal(Word::Webhook, &review.namespace, &name, &spec, moment, means.seal)
    });
    patch.extend(annotate(metadata, seal.as_deref()));
    let allowed = Answer::patched(patch);
    let foreign = differences(&named.identity, &review.who);
    if foreign.is_empty() {
        return Judged::Answered(allowed);
    }
    let forbidden = |member: &&str| {
        let says = format!("Forbidden: you do not have permission to set {member}");
        Wrong::new(format!("spec.requester.{member}"), says)
    };
    let forbidden: Vec<Wrong> = foreign.iter().map(forbidden).collect();
    let refused = Answer::invalid(Kind::TemplateInstance, &name, &forbidden);
    depends(review, name, allowed, refused)
}

/// Decides about an instance that is to be changed. Its verification stays; those who may `assign`, and the requester
/// where [`Changes::ByRequester`] holds, may change the spec, and it is verified anew, for the moment in which the
/// instance was made. A change that the broker has verified is admitted as it is, from the requester whom it names.
pub(super) fn update(review: &Review, means: &AdmissionContext<'_>) -> Judged {
    let (metadata, old_metadata) = (&review.object["metadata"], &review.old["metadata"]);
    let name = old_metadata["name"].as_str().unwrap_or_default().to_owned();
    let (mut spec, old) = (review.object["spec"].clone(), &review.old["spec"]);
    // The user may apply again what they once wrote.
    let username = old["requester"]["username"].as_str();
    if spec.is_object()
        && old["requester"].is_object()
        && is_left_open(&spec["requester"], username)
    {
        spec["requester"] = old["requester"].clone();
    }
    let verified = old_metadata["annotations"][VERIFIED].as_str();
    if verified::same(&spec, old) {
        let mut patch = annotate(metadata, verified);
        // A number beyond 2⁵³ that is written in another way could be another one.
        if review.object["spec"] != *old {
            patch.push(add("/spec", old));
        }
        return Judged::Answered(Answer::patched(patch));
    }
    let created = old_metadata["creationTimestamp"].as_str().unwrap_or_default();
    let Ok(created) = created.parse::<Timestamp>() else {
        let why = "an AdmissionReview of UPDATE has to say when the object was made";
        return Judged::Answered(Answer::senseless(why));
    };
    let wrongs = match spec.is_object() {
        true => {
            let named = Requester::of(&spec["requester"]).err();
            named.iter().map(|why| Wrong::of(why)).chain(validate::spec(&spec)).collect()
        }
        false => vec![Wrong::required("spec")],
    };
    if is_ordered(review, &name, (created, next_generation(review)), means) {
        return match wrongs.is_empty() {
            true => Judged::Answered(Answer::as_it_is()),
            false => invalid(&name, &wrongs),
        };
    }
    let allowed = match wrongs.is_empty() {
        true => {
            let moment = (created, next_generation(review));
            let seal =
                verified::seal(Word::Webhook, &review.namespace, &name, &spec, moment, means.seal);
            let seal = if review.dry_run { verified } else { Some(seal.as_str()) };
            let mut patch = annotate(metadata, seal);
            if review.object["spec"] != spec {
                patch.push(add("/spec/requester", &spec["requester"]));
            }
            Answer::patched(patch)
        }
        false => Answer::invalid(Kind::TemplateInstance, &name, &wrongs),
    };
    if means.changes == Changes::ByRequester && is_requesters_own(review, &spec) {
        return Judged::Answered(allowed);
    }
    let immutable = Wrong::new("spec", "Forbidden: field is immutable");
    let refused = Answer::invalid(Kind::TemplateInstance, &name, &[immutable]);
    depends(review, name, allowed, refused)
}

/// One whose spec stays as it is: what was verified of it stays, too, whatever is written in its place.
pub(super) fn stays(review: &Review) -> Answer {
    let verified = review.old["metadata"]["annotations"][VERIFIED].as_str();
    Answer::patched(annotate(&review.object["metadata"], verified))
}

/// The generation that the API server will count for the change.
fn next_generation(review: &Review) -> i64 {
    review.old["metadata"]["generation"].as_i64().unwrap_or_default().saturating_add(1)
}

/// Whether the broker has verified what is made, or changed, and the user who asks is the requester whom it names. A
/// seal can be read: somebody else who brings it back would repeat, in the requester's name, an order that the
/// requester made once.
fn is_ordered(
    review: &Review,
    name: &str,
    moment: (Timestamp, i64),
    means: &AdmissionContext<'_>,
) -> bool {
    let spec = &review.object["spec"];
    let said = review.object["metadata"]["annotations"][VERIFIED].as_str().unwrap_or_default();
    verified::is_ordered(said, &review.namespace, name, spec, moment, means.seal)
        && Requester::of(&spec["requester"]).is_ok_and(|named| is_had(&named.identity, &review.who))
}

/// Whether a change touches only the template or the Secret of the parameters, and is made by the instance's requester.
fn is_requesters_own(review: &Review, spec: &Value) -> bool {
    let rest = |spec: &Value| {
        let mut rest = spec.clone();
        if let Some(members) = rest.as_object_mut() {
            members.remove("template");
            members.remove("secret");
        }
        rest
    };
    let old = &review.old["spec"];
    let requester = Requester::of(&old["requester"]);
    requester.is_ok_and(|named| differences(&named.identity, &review.who).is_empty())
        && verified::same(&rest(spec), &rest(old))
}

fn depends(review: &Review, name: String, allowed: Answer, refused: Answer) -> Judged {
    let on = Assign { namespace: review.namespace.clone(), name };
    Judged::Depends { who: review.who.clone(), on, allowed, refused }
}

fn invalid(name: &str, wrongs: &[Wrong]) -> Judged {
    Judged::Answered(Answer::invalid(Kind::TemplateInstance, name, wrongs))
}

/// The patch that sets the annotation to a value, or removes it, whatever it is now.
fn annotate(metadata: &Value, value: Option<&str>) -> Vec<Value> {
    let annotations = &metadata["annotations"];
    let is = annotations.get(VERIFIED);
    let path = format!("/metadata/annotations/{}", VERIFIED.replace('/', "~1"));
    match value {
        None if is.is_none() => Vec::new(),
        None => vec![json!({"op": "remove", "path": path})],
        Some(value) if is.and_then(Value::as_str) == Some(value) => Vec::new(),
        Some(value) if annotations.is_object() => vec![add(&path, &json!(value))],
        Some(value) => vec![add("/metadata/annotations", &json!({VERIFIED: value}))],
    }
}

fn add(path: &str, value: &Value) -> Value {
    json!({"op": "add", "path": path, "value": value})
}
