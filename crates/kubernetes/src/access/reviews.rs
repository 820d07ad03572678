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
/// How long somebody who asks waits for an answer of the API server.
const PATIENCE: Duration = Duration::from_secs(5);
/// No token is longer, in bytes.
const LONGEST_TOKEN: usize = 16 * 1024;

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
        Box::pin(asked(&self.known, key, Option::is_some, self.ask_whose(token))).await
    }

    async fn ask_whose(&self, token: &str) -> Result<Option<Arc<Identity>>, AccessError> {
        let audiences = (!self.audiences.is_empty()).then(|| self.audiences.clone());
        let spec = TokenReviewSpec { token: token.to_owned(), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        let asked = "TokenReview";
        let answered = self.ask(asked, self.tokens.create(&PostParams::default(), &review)).await?;
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
        let key = (Arc::clone(who), verb.to_owned(), path.to_owned());
        if let Some(allowed) = held(&self.allowed, &key) {
            return Ok(allowed);
        }
        Box::pin(asked(&self.allowed, key, |allowed| *allowed, self.ask_may(who, verb, path))).await
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
    pub async fn may_use(
        &self,
        who: &Identity,
        attributes: ResourceAttributes,
    ) -> Result<bool, AccessError> {
        self.ask_access(SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..whole(who)
        })
        .await
    }

    async fn ask_access(&self, spec: SubjectAccessReviewSpec) -> Result<bool, AccessError> {
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let asked = "SubjectAccessReview";
        let answered =
            self.ask(asked, self.accesses.create(&PostParams::default(), &review)).await?;
        Ok(answered.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }

    async fn ask<T>(
        &self,
        asked: &'static str,
        made: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, AccessError> {
        let unanswered = |why: String| AccessError::Unanswered { asked, why };
        let answered = tokio::time::timeout(PATIENCE, async {
            let _permit = self.asking.acquire().await;
            call(made).await
        });
        match answered.await {
            Ok(Err(CallError::Forbidden(why))) => Err(AccessError::NotAllowed { asked, why }),
            Ok(answered) => answered.map_err(|error| unanswered(error.to_string())),
            Err(_) => Err(unanswered(format!("waited for {} s", PATIENCE.as_secs()))),
        }
    }
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
