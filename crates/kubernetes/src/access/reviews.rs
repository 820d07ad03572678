//! Tokens and rights, asked of the API server and remembered for a while.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use quick_cache::sync::Cache;
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;

use crate::calls::{CallError, call};

/// How long an answer holds: so long does a token that was revoked go on to work.
const HOLDS: Duration = Duration::from_secs(60);
/// The same of a refusal: so long does one that becomes good not work yet.
const REFUSAL_HOLDS: Duration = Duration::from_secs(10);
/// How many answers are remembered, of each kind.
const REMEMBERED: usize = 4096;
/// How many questions are under way at once: strangers with tokens that nobody knows cost no more.
const AT_ONCE: usize = 8;
/// How long somebody who asks waits for an answer of the API server, whoever put the question.
const PATIENCE: Duration = Duration::from_secs(5);
/// No token is longer, in bytes.
const LONGEST_TOKEN: usize = 16 * 1024;
/// What is said of longer paths is not remembered, in bytes: none that is served is as long.
const LONGEST_PATH: usize = 4 * 1024;
/// What is asked about tokens.
const WHOSE: &str = "TokenReview";
/// What is asked about rights.
const MAY: &str = "SubjectAccessReview";

/// Somebody whom the cluster knows: all that its rights may depend on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// `system:serviceaccount:NAMESPACE:NAME`, or whatever the cluster's users are called.
    pub user: String,
    /// Differs where a name was given anew.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// What else the cluster's authenticator says.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Why it cannot be told now who asks, or whether it is allowed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AccessError {
    /// No answer, or a refusal to answer.
    #[error("{asked} was not answered: {why}")]
    Unanswered {
        /// `TokenReview` or `SubjectAccessReview`.
        asked: &'static str,
        /// What came instead.
        why: String,
    },
    /// We may not ask.
    #[error("{asked} may not be asked for: {why}: let an administrator grant it")]
    NotAllowed {
        /// `TokenReview` or `SubjectAccessReview`.
        asked: &'static str,
        /// Who lacks which right, as the API server says it.
        why: String,
    },
}

/// Asks the API server; remembers an answer for a minute, a refusal for 10 seconds.
///
/// Needs `create` on `tokenreviews` and, for [`Self::may`], on `subjectaccessreviews`.
pub struct Reviews {
    tokens: Api<TokenReview>,
    accesses: Api<SubjectAccessReview>,
    audiences: Vec<String>,
    /// By the digest of the token: tokens themselves are not kept.
    known: Cache<[u8; 32], Timed<Option<Arc<Identity>>>>,
    allowed: Cache<(Arc<Identity>, String, String), Timed<bool>>,
    asking: Semaphore,
}

#[derive(Clone)]
struct Timed<T> {
    answer: T,
    until: Instant,
}

impl Reviews {
    /// Takes tokens for one of `audiences`; where none is named, for those of the API server.
    pub fn new(client: Client, audiences: Vec<String>) -> Self {
        Self {
            tokens: Api::all(client.clone()),
            accesses: Api::all(client),
            audiences,
            known: Cache::new(REMEMBERED),
            allowed: Cache::new(REMEMBERED),
            asking: Semaphore::new(AT_ONCE),
        }
    }

    /// Whose token it is; `None` if it is nobody's (TokenReview).
    ///
    /// # Errors
    /// If the API server does not say.
    pub async fn identify(&self, token: &str) -> Result<Option<Arc<Identity>>, AccessError> {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Ok(None);
        }
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        if let Some(known) = held(&self.known, &key) {
            return Ok(known);
        }
        let answer = asked(&self.known, key, Option::is_some, self.ask_whose(token));
        Box::pin(in_time(WHOSE, answer)).await
    }

    async fn ask_whose(&self, token: &str) -> Result<Option<Arc<Identity>>, AccessError> {
        let audiences = (!self.audiences.is_empty()).then(|| self.audiences.clone());
        let spec = TokenReviewSpec { token: token.to_owned(), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answered = self.ask(WHOSE, self.tokens.create(&PostParams::default(), &review)).await?;
        let status = answered.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(None);
        };
        // A server that knows no audiences answers without them (TokenReviewSpec, `audiences`).
        let meant = status.audiences.unwrap_or_default();
        let ours = |audience: &String| self.audiences.contains(audience);
        if !self.audiences.is_empty() && !meant.iter().any(ours) {
            return Ok(None);
        }
        let Some(name) = user.username.filter(|name| !name.is_empty()) else { return Ok(None) };
        Ok(Some(Arc::new(Identity {
            user: name,
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        })))
    }

    /// Whether somebody may use a verb (`get`, `put`, …) on a path that is no resource
    /// (SubjectAccessReview with `nonResourceAttributes`).
    ///
    /// # Errors
    /// If the API server does not say.
    pub async fn may(
        &self,
        who: &Arc<Identity>,
        verb: &str,
        path: &str,
    ) -> Result<bool, AccessError> {
        // Who may come in at all would fill the memory with what nobody serves.
        if path.len() > LONGEST_PATH {
            return Box::pin(in_time(MAY, self.ask_may(who, verb, path))).await;
        }
        let key = (Arc::clone(who), verb.to_owned(), path.to_owned());
        if let Some(allowed) = held(&self.allowed, &key) {
            return Ok(allowed);
        }
        let answer = asked(&self.allowed, key, |allowed| *allowed, self.ask_may(who, verb, path));
        Box::pin(in_time(MAY, answer)).await
    }

    async fn ask_may(&self, who: &Identity, verb: &str, path: &str) -> Result<bool, AccessError> {
        let path = Some(path.to_owned());
        let attributes = NonResourceAttributes { path, verb: Some(verb.to_owned()) };
        self.ask_access(SubjectAccessReviewSpec {
            non_resource_attributes: Some(attributes),
            ..whole(who)
        })
        .await
    }

    /// Whether somebody may use a verb on a resource (SubjectAccessReview with `resourceAttributes`). It is not
    /// remembered.
    ///
    /// # Errors
    /// If the API server does not say.
    pub(crate) async fn may_use(
        &self,
        who: &Identity,
        attributes: ResourceAttributes,
    ) -> Result<bool, AccessError> {
        let spec = SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..whole(who) };
        in_time(MAY, self.ask_access(spec)).await
    }

    async fn ask_access(&self, spec: SubjectAccessReviewSpec) -> Result<bool, AccessError> {
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answered = self.ask(MAY, self.accesses.create(&PostParams::default(), &review)).await?;
        Ok(answered.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }

    async fn ask<T>(
        &self,
        asked: &'static str,
        made: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, AccessError> {
        let _permit = self.asking.acquire().await;
        call(made).await.map_err(|error| match error {
            CallError::Forbidden(why) => AccessError::NotAllowed { asked, why },
            error => AccessError::Unanswered { asked, why: error.to_string() },
        })
    }
}

/// Waits for an answer, but not for ever. Those who share a question put it one after the other as long as it is not
/// answered, so it is for each to stop waiting, and not for the question to end.
async fn in_time<T>(
    asked: &'static str,
    answer: impl Future<Output = Result<T, AccessError>>,
) -> Result<T, AccessError> {
    let waited = || format!("waited for {} s", PATIENCE.as_secs());
    let answered = tokio::time::timeout(PATIENCE, answer).await;
    answered.unwrap_or_else(|_| Err(AccessError::Unanswered { asked, why: waited() }))
}

/// All that rights may depend on.
fn whole(who: &Identity) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: Some(who.user.clone()),
        uid: Some(who.uid.clone()).filter(|uid| !uid.is_empty()),
        groups: Some(who.groups.clone()),
        extra: Some(who.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    }
}

/// An answer that is remembered and still holds.
fn held<K: Hash + Eq, T: Clone>(cache: &Cache<K, Timed<T>>, key: &K) -> Option<T> {
    let timed = cache.get(key)?;
    if timed.until > Instant::now() {
        return Some(timed.answer);
    }
    cache.remove(key);
    None
}

/// A new answer, remembered. Those who ask the same at once share one question.
async fn asked<K: Hash + Eq + Clone, T: Clone>(
    cache: &Cache<K, Timed<T>>,
    key: K,
    welcome: impl Fn(&T) -> bool,
    ask: impl Future<Output = Result<T, AccessError>>,
) -> Result<T, AccessError> {
    let timed = cache.get_or_insert_async(&key, async {
        let answer = ask.await?;
        let holds = if welcome(&answer) { HOLDS } else { REFUSAL_HOLDS };
        Ok(Timed { answer, until: Instant::now() + holds })
    });
    Ok(timed.await?.answer)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use tokio::task::JoinSet;
    use tokio::time::Instant;

    use super::*;

    /// How long after one another they come.
    const LATER: Duration = Duration::from_millis(10);

    /// An API server that leaves so many questions open, and says yes to those after.
    fn reviews(open: usize) -> Arc<Reviews> {
        let asked = AtomicUsize::new(0);
        let service = tower::service_fn(move |_: Request<Body>| {
            let is_open = asked.fetch_add(1, Ordering::Relaxed) < open;
            async move {
                if is_open {
                    std::future::pending::<()>().await;
                }
                let user = json!({"username": "known"});
                let status = json!({"authenticated": true, "user": user, "allowed": true});
                let said = json!({"metadata": {}, "spec": {}, "status": status}).to_string();
                Response::builder().status(201).body(Body::from(said.into_bytes()))
            }
        });
        Arc::new(Reviews::new(Client::new(service, "n"), Vec::new()))
    }

    /// How long each of many waits who ask the same, and what each is told.
    async fn told<T, F>(many: u32, ask: impl Fn() -> F) -> Vec<(Duration, T)>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let mut waiting = JoinSet::new();
        for number in 0..many {
            let asks = ask();
            waiting.spawn(async move {
                tokio::time::sleep(number * LATER).await;
                let began = Instant::now();
                let answer = asks.await;
                (began.elapsed(), answer)
            });
        }
        waiting.join_all().await
    }

    #[tokio::test(start_paused = true)]
    async fn each_who_shares_a_question_that_is_not_answered_waits_no_longer_than_one_alone() {
        let reviews = reviews(usize::MAX);
        let whose = told(100, || {
            let reviews = Arc::clone(&reviews);
            async move { reviews.identify("t").await.map(|_| ()) }
        });
        let may = told(100, || {
            let reviews = Arc::clone(&reviews);
            let who = Arc::new(known());
            async move { reviews.may(&who, "get", "/v2/catalog").await.map(|_| ()) }
        });
        for (what, told) in [(WHOSE, whose.await), (MAY, may.await)] {
            assert_eq!(told.len(), 100);
            for (waited, answer) in told {
                assert!(waited <= PATIENCE + LATER, "{what}: {waited:?}");
                let unanswered =
                    matches!(answer, Err(AccessError::Unanswered { asked, .. }) if asked == what);
                assert!(unanswered, "{what}: {answer:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_is_put_again_for_those_who_still_wait() {
        let reviews = reviews(1);
        let told = told(3, || {
            let reviews = Arc::clone(&reviews);
            async move { reviews.identify("t").await.ok().flatten() }
        });
        let told = told.await;
        let who = Some(Arc::new(known()));
        assert_eq!(told.iter().filter(|(_, answer)| *answer == who).count(), 2, "{told:?}");
        assert!(told.iter().all(|(waited, _)| *waited <= PATIENCE + LATER), "{told:?}");
    }

    fn known() -> Identity {
        Identity {
            user: "known".to_owned(),
            uid: String::new(),
            groups: Vec::new(),
            extra: BTreeMap::new(),
        }
    }
}
