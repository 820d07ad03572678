//! An AdmissionReview, as far as anything here depends on it (Kubernetes, "Dynamic Admission Control").

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::access::Identity;

/// The only version that is taken: `admissionReviewVersions: [v1]`.
pub(super) const API_VERSION: &str = "admission.k8s.io/v1";
pub(super) const KIND: &str = "AdmissionReview";

/// What was sent is no AdmissionReview that can be answered.
#[derive(Debug, thiserror::Error)]
#[error("this has to be an AdmissionReview of {API_VERSION}, with a request: {0}")]
pub struct Malformed(String);

impl Malformed {
    fn of(error: &serde_json::Error) -> Self {
        let said = error.to_string();
        Self(match said.contains("recursion limit") {
            true => "it is nested too deep: 120 levels of an object can be read".to_owned(),
            false => said,
        })
    }
}

/// What is asked.
#[derive(Debug)]
pub(super) struct Review {
    /// Of the question; the answer has it too.
    pub(super) uid: String,
    pub(super) group: String,
    pub(super) kind: String,
    /// Empty: the object itself.
    pub(super) sub_resource: String,
    pub(super) operation: String,
    pub(super) namespace: String,
    /// Who asks for it: whoever is impersonated, where somebody is.
    pub(super) who: Identity,
    /// As it is to be; null if it is to be removed.
    pub(super) object: Value,
    /// As it is; null if it is new.
    pub(super) old: Value,
    /// Nothing comes of it.
    pub(super) dry_run: bool,
}

impl Review {
    pub(super) fn read(body: &[u8]) -> Result<Self, Malformed> {
        let read = serde_json::from_slice::<Envelope>(body);
        let envelope = read.map_err(|error| Malformed::of(&error))?;
        if envelope.api_version != API_VERSION || envelope.kind != KIND {
            let said = format!("it is {:?} of {:?}", envelope.kind, envelope.api_version);
            return Err(Malformed(said));
        }
        let request = envelope.request;
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
            object: request.object,
            old: request.old_object,
            dry_run: request.dry_run.unwrap_or_default(),
        })
    }
}

/// The uid of a question that cannot be read as a whole: of what is passed over nothing is too deep.
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
struct Envelope {
    api_version: String,
    kind: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    kind: GroupKind,
    sub_resource: Option<String>,
    operation: String,
    namespace: Option<String>,
    user_info: UserInfo,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    dry_run: Option<bool>,
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
