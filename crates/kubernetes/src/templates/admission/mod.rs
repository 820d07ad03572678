//! The admission webhook of templates, where their kinds are definitions of ours: a resource does not say who made
//! it, so whoever makes a TemplateInstance is written into it, and sealed ([`super::verified`]).
//!
//! ```text
//! API server ── AdmissionReview ──▶ read ──▶ judge ──▶ refused; or let in, with a patch: requester and seal
//!                                              └──▶ may they `assign`? (SubjectAccessReview) ──▶ one of the two
//! ```
//!
//! The API server does not say that it is the API server. Whoever reaches the port can have anything sealed for
//! anybody. It gains them nothing as long as every write of a TemplateInstance comes through here: what they wrote
//! into the annotation is replaced when an instance is made, and put back when one is changed, and a write of the
//! status changes no annotation. The broker's seal stays where whoever it names brings it, for nobody can have one made.
//! So there must be no way around the webhook where instances are made by the controller: no namespace that is left out,
//! no selector of objects, no condition, no `failurePolicy: Ignore`.

mod answer;
mod decide;
mod identity;
mod instance;
mod review;
#[cfg(test)]
mod tests;
mod validate;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::answer::{Answer, UNANSWERED};
use self::decide::{AdmissionContext, Assign, Judged, judge};
pub use self::review::Malformed;
use self::review::{Review, uid_of};
use super::names::{GROUP, Kind, VERSION};
use crate::access::{AccessError, Identity, Reviews};
use crate::own::OwnError;
use crate::server_time::ServerTime;
use osb::weight::weigh;

/// No AdmissionReview is longer, in bytes: the API server takes objects of 3 MiB, and of a change it sends the object
/// as it was too.
pub const LARGEST: usize = 6 * 1024 * 1024;

/// What those that are read at once take together, in KiB; with what is made of them it is some three times that.
const READ_AT_ONCE: u32 = 24 << 10;
/// What the API server makes the ends of names of: no vowels, and nothing that looks like another.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// How long the end of a generated name is, as the API server has it.
const SUFFIX: usize = 5;

/// Whose changes of what was ordered are let in, beside those of the broker, and of whoever may `assign`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Changes {
    /// Nobody's: as in the original, a spec does not change.
    #[default]
    Refused,
    /// The requester's own: of the template, and of the Secret of the parameters. Where the controller carries changes
    /// out.
    ByRequester,
}

/// Answers AdmissionReviews. Any number of replicas may, whether they lead or not: nothing is kept.
pub struct Admission {
    seal: hmac::Key,
    reviews: Reviews,
    time: Arc<ServerTime>,
    reading: Semaphore,
    changes: Changes,
    answers: Mutex<Answers>,
}

/// How many were answered, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// Let in.
    pub admitted: u64,
    /// Refused for what they are.
    pub refused: u64,
    /// Refused because the API server could not be asked.
    pub unanswered: u64,
}

impl Answers {
    fn count(&mut self, answer: &Answer) {
        let counter = match answer {
            Answer::Admitted { .. } => &mut self.admitted,
            Answer::Refused(status) if status["code"] == UNANSWERED => &mut self.unanswered,
            Answer::Refused(_) => &mut self.refused,
        };
        *counter += 1;
    }
}

impl Admission {
    /// Seals with the key of the controller of this namespace and name. Needs `create` on `subjectaccessreviews`.
    ///
    /// # Errors
    /// If the Secret of the key cannot be read or made.
    pub async fn open(
        client: &Client,
        namespace: &str,
        name: &str,
        changes: Changes,
    ) -> Result<Self, OwnError> {
        let (client, time) = ServerTime::of(client, namespace);
        let seal = super::seal_key(client.clone(), namespace, name).await?;
        let reviews = Reviews::new(client, Vec::new());
        Ok(Self {
            seal,
            reviews,
            time,
            reading: Semaphore::new(READ_AT_ONCE as usize),
            changes,
            answers: Mutex::default(),
        })
    }

    /// The AdmissionReview that answers one, both as JSON. Refusals are answers.
    ///
    /// # Errors
    /// If it is no AdmissionReview of `admission.k8s.io/v1`.
    pub async fn answer(&self, body: &[u8]) -> Result<Value, Malformed> {
        let (uid, judged) = {
            let weight = u32::try_from(weigh(body) >> 10).unwrap_or(u32::MAX);
            let _permit = self.reading.acquire_many(weight.clamp(1, READ_AT_ONCE)).await;
            match Review::read(body) {
                Ok(review) => (review.uid.clone(), self.judged(&review)),
                // Whose question it is can be told: who asked is told why.
                Err(malformed) => match uid_of(body) {
                    Some(uid) => (uid, Judged::Answered(Answer::senseless(&malformed.to_string()))),
                    None => return Err(malformed),
                },
            }
        };
        let answer = match judged {
            Judged::Answered(answer) => answer,
            Judged::Depends { who, on, allowed, refused } => match self.may(&who, &on).await {
                Ok(true) => allowed,
                Ok(false) => refused,
                Err(error @ AccessError::NotAllowed { .. }) => {
                    Answer::unanswered(&error.to_string())
                }
                Err(error) => Answer::unanswered(&format!("{error}: try again")),
            },
        };
        self.count().count(&answer);
        Ok(answer.document(&uid))
    }

    /// How many were answered since the start.
    pub fn answers(&self) -> Answers {
        *self.count()
    }

    fn count(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judged(&self, review: &Review) -> Judged {
        let now = jiff::Timestamp::from_millisecond(self.time.now_millis()).unwrap_or_default();
        match suffix() {
            Some(suffix) => {
                let changes = self.changes;
                judge(review, &AdmissionContext { seal: &self.seal, now, suffix: &suffix, changes })
            }
            None => Judged::Answered(Answer::unanswered("there are no random numbers to be had")),
        }
    }

    async fn may(&self, who: &Identity, on: &Assign) -> Result<bool, AccessError> {
        let attributes = ResourceAttributes {
            verb: Some("assign".to_owned()),
            group: Some(GROUP.to_owned()),
            version: Some(VERSION.to_owned()),
            resource: Some(Kind::TemplateInstance.plural().to_owned()),
            namespace: Some(on.namespace.clone()),
            name: Some(on.name.clone()),
            ..ResourceAttributes::default()
        };
        self.reviews.may_use(who, attributes).await
    }
}

/// The end of a name that is generated.
fn suffix() -> Option<String> {
    let mut random = [0; 64];
    SystemRandom::new().fill(&mut random).ok()?;
    // Each letter as often as the others.
    let fair = random.into_iter().map(usize::from).filter(|it| *it < 256 / 27 * 27);
    let letters = fair.filter_map(|it| LETTERS.get(it % LETTERS.len()));
    let suffix: String = letters.take(SUFFIX).map(|it| char::from(*it)).collect();
    (suffix.len() == SUFFIX).then_some(suffix)
}
