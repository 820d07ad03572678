//! The decision about an AdmissionReview, as far as it needs no call of the API server.

use jiff::Timestamp;
use ring::hmac;

use super::answer::Answer;
use super::review::{NotRead, Review};
use super::{Changes, instance, validate};
use crate::access::Identity;
use crate::templates::names::{GROUP, Kind};

/// The context in which requests are decided.
pub(super) struct AdmissionContext<'a> {
    /// The sealing key.
    pub(super) seal: &'a hmac::Key,
    /// The API server's time.
    pub(super) now: Timestamp,
    /// The end of a generated name, if one is needed.
    pub(super) suffix: &'a str,
    /// Who may change the spec of an instance.
    pub(super) changes: Changes,
}

/// The right to name another requester of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assign {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The result of a decision.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Judged {
    /// The answer is certain.
    Answered(Answer),
    /// The answer depends on whether a user has a right.
    Depends { who: Identity, on: Assign, allowed: Answer, refused: Answer },
}

/// Decides about an AdmissionReview. Requests for other kinds are admitted as they are: they would be hindered if the
/// webhook's rules covered too much.
pub(super) fn judge(review: &Review, means: &AdmissionContext<'_>) -> Judged {
    let mut kinds = Kind::ALL.into_iter().filter(|_| review.group == GROUP);
    let Some(kind) = kinds.find(|kind| review.kind == kind.name()) else {
        return Judged::Answered(Answer::warned(format!(
            "the webhook of templates knows no {:?} of {:?}: leave it out of its rules",
            review.kind, review.group
        )));
    };
    // A write of the status changes neither spec nor annotations: the API server ensures that.
    if !review.sub_resource.is_empty() {
        return Judged::Answered(Answer::as_it_is());
    }
    let operation = review.operation.as_str();
    if !matches!(operation, "CREATE" | "UPDATE") {
        return Judged::Answered(Answer::as_it_is());
    }
    if (kind, operation) == (Kind::Template, "UPDATE") {
        // As in OpenShift: a template that has become wrong is refused when it is used.
        return Judged::Answered(Answer::as_it_is());
    }
    if let Some(NotRead { why, stays }) = review.unread {
        // The instance was admitted before; nothing is made of it, and its finalizer has to be removable.
        return Judged::Answered(match stays && kind == Kind::TemplateInstance {
            true => instance::stays(review),
            false => Answer::senseless(&format!("the {} {why}", kind.name())),
        });
    }
    let metadata = &review.object["metadata"];
    if !metadata.is_object() || (operation == "UPDATE" && !review.old["metadata"].is_object()) {
        let why = format!("an AdmissionReview of {operation} has to have the objects");
        return Judged::Answered(Answer::senseless(&why));
    }
    let name = metadata["name"].as_str().unwrap_or_default();
    let validated = |wrongs: &[_]| match wrongs.is_empty() {
        true => Judged::Answered(Answer::as_it_is()),
        false => Judged::Answered(Answer::invalid(kind, name, wrongs)),
    };
    match (kind, operation) {
        (Kind::TemplateInstance, "CREATE") => instance::create(review, means),
        (Kind::TemplateInstance, _) => instance::update(review, means),
        (Kind::Template, _) => validated(&validate::template(&review.object)),
        (Kind::BrokerTemplateInstance, _) => validated(&validate::broker_instance(&review.object)),
    }
}
