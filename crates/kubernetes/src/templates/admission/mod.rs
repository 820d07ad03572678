//! The admission webhook of templates, for clusters where their kinds are our CustomResourceDefinitions: a resource
//! does not say who made it, so the webhook writes the user who makes a TemplateInstance into it, sealed
//! ([`super::verified`]).
//!
//! ```text
//! API server ── AdmissionReview ──▶ read ──▶ judge ──▶ refused; or let in, with a patch: requester and seal
//!                                              └──▶ may they `assign`? (SubjectAccessReview) ──▶ one of the two
//! ```
//!
//! The API server does not authenticate itself. Whoever reaches the port can have anything sealed for anybody. It gains
//! them nothing as long as every write of a TemplateInstance comes through here: what they wrote into the annotation is
//! replaced when an instance is made, and put back when one is changed, and a write of the status changes no
//! annotation. The broker's seal stays where the requester whom it names brings it, for nobody else can obtain one. So
//! there must be no way around the webhook where instances are made by the controller: no namespace that is left out,
//! no selector of objects, no condition, no `failurePolicy: Ignore`.

mod answer;
mod decide;
mod identity;
mod instance;
mod judged;
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
use self::decide::judge;
use self::judged::{AdmissionContext, Assign, Judged};
pub use self::review::Malformed;
use self::review::{Review, uid_of};
use super::names::{GROUP, Kind, VERSION};
use crate::access::{AccessError, Identity, Reviews};
use crate::own::OwnError;
use crate::server_time::ServerTime;
use osb::weight::weigh;

/// How many bytes an AdmissionReview has at most: the API server takes objects of 3 MiB, and for a change it sends the
/// former object, too.
pub const LARGEST: usize = 6 * 1024 * 1024;

/// How many KiB the reviews that are parsed at once may take together; with what is derived from them it is some three
/// times that.
const READ_AT_ONCE: u32 = 24 << 10;
/// The characters of the random ends of names, as in the API server: no vowels, and nothing that looks like another.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// The length of the random end of a generated name, as in the API server.
const SUFFIX: usize = 5;

/// Whose changes of a spec are admitted, beside those of the broker, and of users who may `assign`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Changes {
    /// Nobody's: as in OpenShift, a spec does not change.
    #[default]
    Refused,
    /// The requester's own changes of the template, and of the Secret of the parameters. For controllers that carry
    /// changes out.
    ByRequester,
}

/// The webhook: answers AdmissionReviews. Any number of replicas may run, whether they lead or not: it keeps no state.
pub struct Admission {
    seal: hmac::Key,
    reviews: Reviews,
    time: Arc<ServerTime>,
    reading: Semaphore,
    changes: Changes,
    answers: Mutex<Answers>,
}

/// How many AdmissionReviews were answered, by the kind of answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Answers {
    /// Admitted.
    pub admitted: u64,
    /// Refused for their content.
    pub refused: u64,
    /// Refused because the API server did not answer.
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
    /// Opens the webhook, which seals with the key of the controller of this namespace and name. Needs `create` on
    /// `subjectaccessreviews`.
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

    /// Answers an AdmissionReview, both as JSON. A refusal is an answer, too.
    ///
    /// # Errors
    /// If the body is no AdmissionReview of `admission.k8s.io/v1`.
    pub async fn answer(&self, body: &[u8]) -> Result<Value, Malformed> {
        let (uid, judged) = {
            let weight = u32::try_from(weigh(body) >> 10).unwrap_or(u32::MAX);
            let _permit = self.reading.acquire_many(weight.clamp(1, READ_AT_ONCE)).await;
            match Review::read(body) {
                Ok(review) => (review.uid.clone(), self.judged(&review)),
                // The uid of the review can be read, so the answer says why.
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

    /// The counts of answers since the start.
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

/// A random end of a generated name.
fn suffix() -> Option<String> {
    let mut random = [0; 64];
    SystemRandom::new().fill(&mut random).ok()?;
    // All letters are equally likely.
    let fair = random.into_iter().map(usize::from).filter(|it| *it < 256 / 27 * 27);
    let letters = fair.filter_map(|it| LETTERS.get(it % LETTERS.len()));
    let suffix: String = letters.take(SUFFIX).map(|it| char::from(*it)).collect();
    (suffix.len() == SUFFIX).then_some(suffix)
}
