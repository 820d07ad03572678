//! Parses AdmissionReviews, as far as the webhook needs them (Kubernetes, "Dynamic Admission Control").

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::access::Identity;
use crate::deep::{Unread, desired, head};
use crate::templates::names::GROUP;

/// The only accepted version: `admissionReviewVersions: [v1]`.
pub(super) const API_VERSION: &str = "admission.k8s.io/v1";
pub(super) const KIND: &str = "AdmissionReview";

/// The error for a body that is no AdmissionReview which can be answered.
#[derive(Debug, thiserror::Error)]
#[error("this has to be an AdmissionReview of {API_VERSION}, with a request: {0}")]
pub struct Malformed(String);

/// The request of an AdmissionReview.
#[derive(Debug)]
pub(super) struct Review {
    /// The uid of the request, which the answer repeats.
    pub(super) uid: String,
    pub(super) group: String,
    pub(super) kind: String,
    /// Empty for the object itself.
    pub(super) sub_resource: String,
    pub(super) operation: String,
    pub(super) namespace: String,
    /// The user who makes the request; an impersonated one, if there is one.
    pub(super) who: Identity,
    /// As it is to be, without its status. Null where nothing depends on it; where it is not read, what identifies it.
    pub(super) object: Value,
    /// The same as it is; null if it is new, and where the object is.
    pub(super) old: Value,
    /// Why the objects could not be read, if so.
    pub(super) unread: Option<NotRead>,
    /// Whether the request is a dry run.
    pub(super) dry_run: bool,
}

impl Review {
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let read = serde_json::from_slice::<Envelope<'_>>(body);
        let envelope = read.map_err(|error| Malformed(error.to_string()))?;
        if envelope.api_version != API_VERSION || envelope.kind != KIND {
            let said = format!("it is {:?} of {:?}", envelope.kind, envelope.api_version);
            return Err(Malformed(said));
        }
        let request = envelope.request;
        let (object, old, unread) = request.objects();
        let user = request.user_info;
        Ok(Self {
            uid: request.uid,
            group: request.kind.group,
            kind: request.kind.kind,
            sub_resource: request.sub_resource.unwrap_or_default(),
            operation: request.operation,
            namespace: request.namespace.unwrap_or_default(),
            who: Identity {
                user: user.username,
                uid: user.uid.unwrap_or_default(),
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            },
            object,
            old,
            unread,
            dry_run: request.dry_run.unwrap_or_default(),
        })
    }
}

/// Why objects could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NotRead {
    pub(super) why: Unread,
    /// Whether the spec stays as it is, to the letter.
    pub(super) stays: bool,
}

/// The uid of an AdmissionReview that cannot be read as a whole.
pub(super) fn uid_of(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Envelope {
        request: Request,
    }
    #[derive(Deserialize)]
    struct Request {
        uid: String,
    }
    serde_json::from_slice::<Envelope>(body).ok().map(|it| it.request.uid)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    kind: GroupKind,
    sub_resource: Option<String>,
    operation: String,
    namespace: Option<String>,
    user_info: UserInfo,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    dry_run: Option<bool>,
}

impl Request<'_> {
    /// The object, the one before, and why they are not read. The status does not count: it is not what is asked for, and as
    /// heavy as all that was made. Nothing depends on those of other kinds and requests:
    /// what cannot be read of them is in nobody's way.
    fn objects(&self) -> (Value, Value, Option<NotRead>) {
        let is_ours =
            self.kind.group == GROUP && self.sub_resource.as_ref().is_none_or(String::is_empty);
        if !is_ours || !matches!(self.operation.as_str(), "CREATE" | "UPDATE") {
            return Default::default();
        }
        match (desired(self.object), desired(self.old_object)) {
            (Ok(object), Ok(old)) => (object, old, None),
            (Err(why), _) | (_, Err(why)) => {
                let specs = [self.object, self.old_object].map(Sketch::of);
                let stays = self.old_object.is_some() && specs[0].spec() == specs[1].spec();
                let head = |raw: Option<&RawValue>| raw.and_then(|raw| head(raw.get()).ok());
                let heads = [self.object, self.old_object].map(|it| head(it).unwrap_or_default());
                let [object, old] = heads;
                (object, old, Some(NotRead { why, stays }))
            }
        }
    }
}

/// The part of an object that is compared where the object cannot be read.
#[derive(Default, Deserialize)]
struct Sketch<'a> {
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

impl<'a> Sketch<'a> {
    fn of(object: Option<&'a RawValue>) -> Self {
        object.and_then(|it| serde_json::from_str(it.get()).ok()).unwrap_or_default()
    }

    fn spec(&self) -> Option<&str> {
        self.spec.map(RawValue::get)
    }
}

#[derive(Deserialize)]
struct GroupKind {
    #[serde(default)]
    group: String,
    kind: String,
}

#[derive(Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}
