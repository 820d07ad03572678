//! Authentication of requests: by HTTP Basic, by bearer tokens, or by the embedding program.
//!
//! Secrets are kept and compared only as SHA-256 digests: of one length, in constant time, so that
//! neither a core dump nor the time of an answer tells them.

use std::sync::Arc;

use async_trait::async_trait;
use axum::extract::OriginalUri;
use data_encoding::BASE64;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderValue, Method};
use ring::digest::{Digest, SHA256, digest};
use subtle::ConstantTimeEq;

use crate::error::{Error, ErrorKind};

/// A sender of requests who is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The name for logs: the user's, or the one given to a token.
    pub name: Arc<str>,
    /// The role of the principal: what it may do, in the words of the embedding program.
    pub role: Arc<str>,
}

impl Principal {
    /// A principal with a role.
    pub fn new(name: &str, role: &str) -> Self {
        Self { name: name.into(), role: role.into() }
    }
}

/// The parts of a request by which its sender is authenticated and authorized.
#[derive(Debug, Clone, Copy)]
pub struct Presented<'r> {
    /// The only `Authorization` header.
    pub authorization: &'r HeaderValue,
    /// The method.
    pub method: &'r Method,
    /// The path as the client sent it, with any prefix under which the router is mounted.
    pub path: &'r str,
}

/// An authenticator of the embedding program: it decides who sent a request.
#[async_trait]
pub trait Authenticator: Send + Sync + 'static {
    /// The sender of a request; `None` if nobody known sent it (401).
    ///
    /// # Errors
    /// [`ErrorKind::Forbidden`] if they may not, [`ErrorKind::Unavailable`] when that cannot be told now.
    async fn authenticate(&self, request: Presented<'_>) -> Result<Option<Principal>, Error>;

    /// The value of `WWW-Authenticate`.
    fn challenge(&self) -> HeaderValue {
        HeaderValue::from_static(BASIC_CHALLENGE)
    }
}

/// The senders whose requests are answered.
#[derive(Clone)]
pub enum Authentication {
    /// Everybody. For tests, and for servers behind something else that authenticates.
    Disabled,
    /// Whoever has a password or a token. Asked for at each request, so that they can change.
    Credentials(Arc<dyn Fn() -> Arc<Credentials> + Send + Sync>),
    /// Whoever the embedding program knows.
    Authenticator(Arc<dyn Authenticator>),
}

const BASIC_CHALLENGE: &str = "Basic realm=\"Open Service Broker API\", charset=\"UTF-8\"";
const BEARER_CHALLENGE: &str = "Bearer realm=\"Open Service Broker API\"";

impl Authentication {
    /// Passwords and tokens that never change.
    pub fn fixed(credentials: Credentials) -> Self {
        let credentials = Arc::new(credentials);
        Self::Credentials(Arc::new(move || Arc::clone(&credentials)))
    }

    /// The sender of a request; `None` where authentication is disabled.
    ///
    /// # Errors
    /// 401 unless somebody known did, 400 for two `Authorization` headers.
    pub async fn principal(&self, request: &Parts) -> Result<Option<Principal>, Error> {
        if matches!(self, Self::Disabled) {
            return Ok(None);
        }
        let mut sent = request.headers.get_all(AUTHORIZATION).iter();
        let (first, second) = (sent.next(), sent.next());
        if second.is_some() {
            return Err(Error::bad_request("Authorization: must not be sent more than once"));
        }
        let Some(authorization) = first else {
            return Err(unauthorized("Authorization: must be sent with every request"));
        };
        let principal = match self {
            Self::Disabled => None,
            Self::Credentials(current) => current().find(authorization),
            Self::Authenticator(custom) => {
                let path =
                    request.extensions.get::<OriginalUri>().map_or(&request.uri, |uri| &uri.0);
                let (method, path) = (&request.method, path.path());
                custom.authenticate(Presented { authorization, method, path }).await?
            }
        };
        let refused = || unauthorized("Authorization: the credentials are not known here");
        principal.map(Some).ok_or_else(refused)
    }

    /// The value of `WWW-Authenticate` on a 401.
    pub fn challenge(&self) -> HeaderValue {
        match self {
            Self::Disabled => HeaderValue::from_static(BASIC_CHALLENGE),
            Self::Credentials(current) => current().challenge(),
            Self::Authenticator(custom) => custom.challenge(),
        }
    }
}

fn unauthorized(description: &'static str) -> Error {
    Error::new(ErrorKind::Unauthorized, description)
}

/// Passwords and tokens, as digests.
#[derive(Default)]
pub struct Credentials {
    known: Vec<(Scheme, Digest, Principal)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Basic,
    Bearer,
}

impl Credentials {
    /// Credentials of nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a user with a password (HTTP Basic). Several passwords of one user are all good.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, role: &str) -> Self {
        let secret = digest(&SHA256, [name, password].join(":").as_bytes());
        self.known.push((Scheme::Basic, secret, Principal::new(name, role)));
        self
    }

    /// Adds a bearer token, with a name to know it by.
    #[must_use]
    pub fn token(mut self, name: &str, token: &str, role: &str) -> Self {
        let secret = digest(&SHA256, token.as_bytes());
        self.known.push((Scheme::Bearer, secret, Principal::new(name, role)));
        self
    }

    /// The principal whose password or token an `Authorization` header has.
    pub fn find(&self, authorization: &HeaderValue) -> Option<Principal> {
        let sent = authorization.as_bytes();
        let (scheme, secret) = sent.split_at(sent.iter().position(|byte| *byte == b' ')?);
        let secret = secret.trim_ascii();
        let (scheme, secret) = if scheme.eq_ignore_ascii_case(b"basic") {
            (Scheme::Basic, decoded_digest(secret)?)
        } else if scheme.eq_ignore_ascii_case(b"bearer") {
            (Scheme::Bearer, digest(&SHA256, secret))
        } else {
            return None;
        };
        // All are compared, so that the time does not tell which one it is.
        let mut found = None;
        for (known_scheme, known, principal) in &self.known {
            let same = bool::from(known.as_ref().ct_eq(secret.as_ref()));
            if same && *known_scheme == scheme {
                found = Some(principal);
            }
        }
        found.cloned()
    }

    /// The value of `WWW-Authenticate`: Basic where there are users, or nobody.
    pub fn challenge(&self) -> HeaderValue {
        let basic = self.known.iter().any(|(scheme, ..)| *scheme == Scheme::Basic);
        HeaderValue::from_static(if basic || self.known.is_empty() {
            BASIC_CHALLENGE
        } else {
            BEARER_CHALLENGE
        })
    }
}

/// The digest of the bytes that a text in Base64 encodes.
fn decoded_digest(text: &[u8]) -> Option<Digest> {
    let mut short = [0; 512];
    let length = BASE64.decode_len(text.len()).ok()?;
    if let Some(decoded) = short.get_mut(..length) {
        let length = BASE64.decode_mut(text, decoded).ok()?;
        return Some(digest(&SHA256, &decoded[..length]));
    }
    Some(digest(&SHA256, &BASE64.decode(text).ok()?))
}
