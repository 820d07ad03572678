//! The client: the platform's side of the API, with one method per route, and helpers that follow an operation to its
//! end and clean up after a failure as the specification asks a platform to.
//!
//! ```text
//! provision_and_wait ─▶ provision ─202▶ wait_instance ─▶ succeeded
//!        │                  │                └─▶ failed ──┐
//!        │                  └─ 5xx, lost, malformed ──────┤ orphan_mitigation()?
//!        └──────────────────── DELETE until it is gone ◀──┘
//! ```
//!
//! [`routes`](Client::catalog) speak HTTP, [`polling`](Polling) waits, [`orphan`](orphan_mitigation)
//! decides, [`order`](FollowOptions) joins the three. No error and no `Debug` of this module shows a
//! credential, a parameter or a body.

mod error;
mod order;
mod orphan;
mod own;
pub(crate) mod path;
mod polling;
mod response;
mod retry_after;
mod routes;
mod settings;
mod tls;
mod transport;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::model::OriginatingIdentity;

pub use error::{ClientError, Refusal, SettingsError};
pub use order::{FollowOptions, Mitigated, OrderError, OrderFailure, Removed};
pub use orphan::{Outcome, orphan_mitigation};
pub use own::Download;
#[cfg(feature = "conformance")]
pub(crate) use polling::Watch;
pub use polling::{OnEvent, Pending, PollEvent, Polling, Retries, WaitError};
pub use response::{Ordered, RawResponse, Response};
pub(crate) use settings::random_uuid;
pub use settings::{Auth, ClientSettings};
pub use transport::MAX_RESPONSE_BYTES;

/// `X-Broker-API-Version`.
pub const API_VERSION_HEADER: HeaderName = HeaderName::from_static("x-broker-api-version");
/// `X-Broker-API-Originating-Identity`.
pub const ORIGINATING_IDENTITY_HEADER: HeaderName =
    HeaderName::from_static("x-broker-api-originating-identity");
/// `X-Broker-API-Request-Identity`.
pub const REQUEST_IDENTITY_HEADER: HeaderName =
    HeaderName::from_static("x-broker-api-request-identity");

/// A client of one broker. Cloning is cheap and shares the connections.
///
/// Nothing is retried by the routes themselves: a platform must know how each request ended. Every
/// request has its own `X-Broker-API-Request-Identity` unless one is set.
#[derive(Clone)]
pub struct Client {
    transport: Arc<transport::Transport>,
    authorization: Option<HeaderValue>,
    api_version: HeaderValue,
    user_agent: HeaderValue,
    originating_identity: Option<HeaderValue>,
    request_identity: Option<HeaderValue>,
    accepts_incomplete: bool,
}

impl Client {
    /// Makes a client from its settings. Opens no connection.
    ///
    /// # Errors
    /// A base URL that is not `http://` or `https://` with a host, certificates that cannot be read,
    /// or a setting that no header can carry.
    pub fn new(settings: ClientSettings) -> Result<Self, SettingsError> {
        let ClientSettings { base_url, auth, ca_certificates, timeout, .. } = settings;
        let identity = settings.originating_identity.as_ref();
        let base = path::BaseUrl::parse(&base_url)?;
        let transport = transport::Transport::new(base, ca_certificates.as_deref(), timeout)?;
        Ok(Self {
            transport: Arc::new(transport),
            authorization: auth.header()?,
            api_version: settings::header_value(&settings.api_version, "the API version")?,
            user_agent: settings::header_value(&settings.user_agent, "the user agent")?,
            originating_identity: identity.map(settings::identity_header).transpose()?,
            request_identity: None,
            accepts_incomplete: true,
        })
    }

    /// Returns this client with an originating identity: it asks in the name of that user.
    ///
    /// # Errors
    /// An identity whose platform is empty or has characters that no header can carry.
    pub fn with_originating_identity(
        mut self,
        identity: Option<&OriginatingIdentity>,
    ) -> Result<Self, SettingsError> {
        self.originating_identity = identity.map(settings::identity_header).transpose()?;
        Ok(self)
    }

    /// Returns this client with a fixed request identity, which it sends with every request.
    ///
    /// # Errors
    /// An identity that no header can carry.
    pub fn with_request_identity(mut self, identity: &str) -> Result<Self, SettingsError> {
        self.request_identity = Some(settings::header_value(identity, "the request identity")?);
        Ok(self)
    }

    /// Returns this client set to send `accepts_incomplete=true` or to leave it out. By default it is sent: a broker
    /// that can answer at once still may.
    #[must_use]
    pub fn accepting_incomplete(mut self, accepts: bool) -> Self {
        self.accepts_incomplete = accepts;
        self
    }

    /// The headers that every request of this client has, with a request identity of its own.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, self.user_agent.clone());
        headers.insert(API_VERSION_HEADER, self.api_version.clone());
        let identity = self.request_identity.clone().unwrap_or_else(settings::new_request_identity);
        headers.insert(REQUEST_IDENTITY_HEADER, identity);
        for (name, value) in [
            (AUTHORIZATION, &self.authorization),
            (ORIGINATING_IDENTITY_HEADER, &self.originating_identity),
        ] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
        headers
    }

    /// Sends a request exactly as given, and returns the answer whatever its status. For tests and
    /// tools; `path` follows the base URL and begins with `/`. [`Self::headers`] are the usual headers.
    ///
    /// # Errors
    /// No answer: [`ClientError::Transport`], [`ClientError::Timeout`], or a body over
    /// [`MAX_RESPONSE_BYTES`].
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<RawResponse, ClientError> {
        self.transport.send(method, path, headers, body).await
    }

    async fn send_json(
        &self,
        method: Method,
        path: &str,
        mut headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<RawResponse, ClientError> {
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.transport.send(method, path, headers, body.unwrap_or_default()).await
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("base_url", &self.transport.base().as_str())
            .field("accepts_incomplete", &self.accepts_incomplete)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod double;
#[cfg(test)]
mod tests;
