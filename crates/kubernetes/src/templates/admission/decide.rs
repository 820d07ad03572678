//! The decision about an AdmissionReview, as far as it needs no call of the API server.

use super::answer::Answer;
use super::judged::{AdmissionContext, Judged};
use super::review::{NotRead, Review};
use super::{instance, validate};
use crate::templates::names::{GROUP, Kind};

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
