//! The transport of a client: sends one request and reads its answer, within limits of time and size.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::error::{ClientError, SettingsError};
use super::own::Opened;
use super::path::BaseUrl;
use super::response::RawResponse;
use super::{REQUEST_IDENTITY_HEADER, tls};

/// The largest answer that is read, in bytes. Catalogs with large schemas come to a few megabytes.
pub const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// The longest that connecting may take. It is shorter than the limit of a request, because its end says what a timeout
/// of the request cannot: that the broker has received nothing.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Transport {
    client: HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: BaseUrl,
    timeout: Duration,
}

impl Transport {
    pub(super) fn new(
        base: BaseUrl,
        ca_certificates: Option<&[u8]>,
        timeout: Duration,
    ) -> Result<Self, SettingsError> {
        let roots = match ca_certificates {
            Some(pem) => tls::Roots::Pem(pem),
            None if base.is_https() => tls::Roots::System,
            None => tls::Roots::None,
        };
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT.min(timeout)));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(&roots)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let client = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self { client, base, timeout })
    }

    pub(super) fn base(&self) -> &BaseUrl {
        &self.base
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a `GET`, and returns the answer without reading its body.
    pub(super) async fn open(&self, path: &str, headers: HeaderMap) -> Result<Opened, ClientError> {
        let response = self.request(Method::GET, path, headers, Bytes::new());
        let response = tokio::time::timeout(self.timeout, response).await;
        let response =
            response.map_err(|_| ClientError::Timeout { after: self.timeout }).flatten()?;
        let (parts, body) = response.into_parts();
        Ok((parts.status.as_u16(), parts.headers, body))
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<RawResponse, ClientError> {
        let started = Instant::now();
        let identity = headers.get(REQUEST_IDENTITY_HEADER).and_then(|value| value.to_str().ok());
        let identity = identity.unwrap_or_default().to_owned();
        let answer = self.answer(method.clone(), path, headers, body);
        let result = match tokio::time::timeout(self.timeout, answer).await {
            Ok(result) => {
                result.map(|raw| RawResponse { request_identity: identity.clone(), ..raw })
            }
            Err(_) => Err(ClientError::Timeout { after: self.timeout }),
        };
        // Without the query: an operation's name is the broker's own business.
        tracing::debug!(
            %method,
            path = path.split('?').next(),
            request_identity = identity,
            status = result.as_ref().map_or_else(ClientError::status, |raw| Some(raw.status)),
            elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "asked a broker"
        );
        result
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<RawResponse, ClientError> {
        let response = self.request(method, path, headers, body).await?;
        let (parts, body) = response.into_parts();
        let status = parts.status.as_u16();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(|source| {
            if source.is::<LengthLimitError>() {
                let why = format!("the body is larger than {MAX_RESPONSE_BYTES} bytes");
                ClientError::Malformed { status, why }
            } else {
                ClientError::Transport { sent: true, source }
            }
        })?;
        Ok(RawResponse {
            status,
            headers: parts.headers,
            body: body.to_bytes(),
            request_identity: String::new(),
        })
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, ClientError> {
        let unsent =
            |source: http::Error| ClientError::Transport { sent: false, source: Box::new(source) };
        let mut request = Request::builder()
            .method(method)
            .uri(self.base.join(path).map_err(unsent)?)
            .body(Full::new(body))
            .map_err(unsent)?;
        *request.headers_mut() = headers;
        self.client.request(request).await.map_err(|error| ClientError::Transport {
            sent: !error.is_connect(),
            source: Box::new(error),
        })
    }
}
