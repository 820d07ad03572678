//! Reviews of tokens and rights by the API server, with answers remembered for a while.

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

/// How long an answer is remembered: a revoked token goes on to work for that long.
const HOLDS: Duration = Duration::from_secs(60);
/// How long a refusal is remembered: a token that becomes valid does not work yet for that long.
const REFUSAL_HOLDS: Duration = Duration::from_secs(10);
/// How many answers of each kind are remembered.
const REMEMBERED: usize = 4096;
/// How many reviews are requested at once: strangers with invalid tokens cost no more.
const AT_ONCE: usize = 8;
/// How long a caller waits for an answer of the API server, whoever sent the request.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes a token has at most.
const LONGEST_TOKEN: usize = 16 * 1024;
/// How many bytes a path may have for its answer to be remembered: none that is served is as long.
const LONGEST_PATH: usize = 4 * 1024;
/// The kind of review for tokens.
const WHOSE: &str = "TokenReview";
/// The kind of review for rights.
const MAY: &str = "SubjectAccessReview";

/// A user whom the cluster knows, with all that their rights may depend on.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The user name: `system:serviceaccount:NAMESPACE:NAME`, or whatever the cluster's users are called.
    pub user: String,
    /// The uid, which differs where a name was given anew.
    pub uid: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Further attributes from the cluster's authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Why it is not known now who a user is, or whether something is allowed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AccessError {
    /// The API server gave no answer, or refused to answer.
    #[error("{asked} was not answered: {why}")]
    Unanswered {
        /// `TokenReview` or `SubjectAccessReview`.
        asked: &'static str,
        /// The failure.
        why: String,
    },
    /// We may not request the review.
    #[error("{asked} may not be asked for: {why}: let an administrator grant it")]
    NotAllowed {
        /// `TokenReview` or `SubjectAccessReview`.
        asked: &'static str,
        /// The API server's message: who lacks which right.
        why: String,
    },
}

/// Reviews by the API server; an answer is remembered for a minute, a refusal for 10 seconds.
///
/// Needs `create` on `tokenreviews` and, for [`Self::may`], on `subjectaccessreviews`.
pub struct Reviews {
    tokens: Api<TokenReview>,
    accesses: Api<SubjectAccessReview>,
    audiences: Vec<String>,
    /// The identities by the digest of the token: tokens themselves are not kept.
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
    /// Reviews that accept tokens for one of `audiences`; without any, those of the API server.
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

    /// The user of a token; `None` if it is invalid (TokenReview).
    ///
    /// # Errors
    /// If the API server does not answer.
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
        // A server that does not support audiences answers without them (TokenReviewSpec, `audiences`).
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

    /// Whether a user may use a verb (`get`, `put`, …) on a path that is no resource (SubjectAccessReview with
    /// `nonResourceAttributes`).
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn may(
        &self,
        who: &Arc<Identity>,
        verb: &str,
        path: &str,
    ) -> Result<bool, AccessError> {
        // Any authenticated user could fill the cache with paths that are not served.
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

    /// Whether a user may use a verb on a resource (SubjectAccessReview with `resourceAttributes`). The answer is not
    /// remembered.
    ///
    /// # Errors
    /// If the API server does not answer.
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

/// Waits for an answer, for [`PATIENCE`] at most. Callers that share a question send it one after the other as long as
/// it is not answered, so each caller stops waiting by itself, and the question goes on.
async fn in_time<T>(
    asked: &'static str,
    answer: impl Future<Output = Result<T, AccessError>>,
) -> Result<T, AccessError> {
    let waited = || format!("waited for {} s", PATIENCE.as_secs());
    let answered = tokio::time::timeout(PATIENCE, answer).await;
    answered.unwrap_or_else(|_| Err(AccessError::Unanswered { asked, why: waited() }))
}

/// A review of a whole identity: everything that rights may depend on.
fn whole(who: &Identity) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: Some(who.user.clone()),
        uid: Some(who.uid.clone()).filter(|uid| !uid.is_empty()),
        groups: Some(who.groups.clone()),
        extra: Some(who.extra.clone()),
        ..SubjectAccessReviewSpec::default()
    }
}

/// The remembered answer, if it is still valid.
fn held<K: Hash + Eq, T: Clone>(cache: &Cache<K, Timed<T>>, key: &K) -> Option<T> {
    let timed = cache.get(key)?;
    if timed.until > Instant::now() {
        return Some(timed.answer);
    }
    cache.remove(key);
    None
}

/// Asks and remembers the answer. Callers with the same question at the same time share one request.
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
