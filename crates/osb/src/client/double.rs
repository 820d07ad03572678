//! A scripted HTTP server for tests: one closure answers every request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    /// `PUT /path?query`.
    pub(crate) fn line(&self) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{} {}{mark}{}", self.method, self.path, self.query)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The scripted answer of the server to a request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
    pub(crate) delay: Duration,
    pub(crate) hang_up: bool,
}

impl Answer {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        Self { headers, ..Self::raw(status, body.to_string()) }
    }

    pub(crate) fn raw(status: u16, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
            delay: Duration::ZERO,
            hang_up: false,
        }
    }

    pub(crate) fn hang_up() -> Self {
        Self { hang_up: true, ..Self::raw(200, "") }
    }

    pub(crate) fn after(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

type Script = dyn Fn(&Seen) -> Answer + Send + Sync;

/// The server; it ends with the test's runtime.
pub(crate) struct Double {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Double {
    pub(crate) async fn start(script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(script, None).await
    }

    pub(crate) async fn serve(
        script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (script, log): (Arc<Script>, _) = (Arc::new(script), seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, log, tls) = (script.clone(), log.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => connection(stream, script, log).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                connection(stream, script, log).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, seen }
    }

    /// A server that answers with these, one after the other, and then with the last one for ever.
    pub(crate) async fn in_turn(answers: Vec<Answer>) -> Self {
        let turn = Mutex::new(0);
        Self::start(move |_| {
            let mut turn = turn.lock().unwrap();
            let answer = answers[(*turn).min(answers.len() - 1)].clone();
            *turn += 1;
            answer
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The request lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().iter().map(Seen::line).collect()
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    script: Arc<Script>,
    log: Arc<Mutex<Vec<Seen>>>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (script, log) = (script.clone(), log.clone());
        async move {
            let (parts, body) = request.into_parts();
            let seen = Seen {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                headers: parts.headers,
                body: body.collect().await.map(Collected::to_bytes).unwrap_or_default(),
            };
            log.lock().unwrap().push(seen.clone());
            let answer = script(&seen);
            tokio::time::sleep(answer.delay).await;
            if answer.hang_up {
                return Err(std::io::Error::other("hung up"));
            }
            let mut response = Response::builder().status(answer.status);
            for (name, value) in &answer.headers {
                response = response.header(name, value);
            }
            Ok(response.body(Full::new(answer.body)).unwrap())
        }
    });
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
