//! Requests to routes that a broker has beside the specification's, as the operator's routes of Manciple.
//! They share the connections, the authentication and the error body.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::ClientError;
use super::response::{RawResponse, Response};
use super::{Client, path};

impl Client {
    /// Sends a request to a route that answers 200 with JSON. `path` follows the base URL and begins with `/`; pairs
    /// without a value are left out of the query.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn own<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, Option<&str>)],
        body: Option<&(impl Serialize + Sync)>,
    ) -> Result<Response<T>, ClientError> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body
            .map_err(|source| ClientError::Transport { sent: false, source: Box::new(source) })?;
        let path = format!("{path}{}", path::query(query));
        let raw = self.send_json(method, &path, self.headers(), body.map(Bytes::from)).await?;
        raw.expect(&[200])?.read()
    }

    /// Gets a body that may be larger than [`super::MAX_RESPONSE_BYTES`]: it is returned
    /// piece by piece, and the time limit is for each piece.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn download(&self, path: &str) -> Result<Download, ClientError> {
        let (status, headers, body) = self.transport.open(path, self.headers()).await?;
        let mut download = Download { body, timeout: self.transport.timeout() };
        if status == 200 {
            return Ok(download);
        }
        let body = download.beginning().await?;
        let raw = RawResponse { status, headers, body, request_identity: String::new() };
        raw.expect(&[200]).map(|_| download)
    }
}

/// A body that is arriving.
#[derive(Debug)]
pub struct Download {
    body: Incoming,
    timeout: Duration,
}

/// How many bytes of a refusal are read.
const REFUSAL_BYTES: usize = 64 * 1024;

impl Download {
    /// The next piece; `None` at the end of the whole body: a body that was cut short is an error.
    ///
    /// # Errors
    /// The connection broke, or nothing came within the time limit.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        loop {
            let frame = tokio::time::timeout(self.timeout, self.body.frame());
            let frame = frame.await.map_err(|_| ClientError::Timeout { after: self.timeout })?;
            match frame {
                None => return Ok(None),
                Some(Err(source)) => {
                    return Err(ClientError::Transport { sent: true, source: Box::new(source) });
                }
                // Trailers are of no use here.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    async fn beginning(&mut self) -> Result<Bytes, ClientError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > REFUSAL_BYTES {
                break;
            }
        }
        Ok(Bytes::from(bytes))
    }
}

/// An answer whose body was not read yet: status, headers, body.
pub(super) type Opened = (u16, HeaderMap, Incoming);
