//! The admission webhook of templates: `/admission`, over TLS. Every replica answers, whether it leads or not.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use engine::vital;
use http::StatusCode;
use kubernetes::Client;
use kubernetes::templates::admission::{Admission, Changes, LARGEST};
use osb::server::{Limits, TlsSource};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::process::bind;
use crate::serve::{Certificate, Tls};

/// How often the webhook looks whether the files of the certificate have changed.
const LOOK_AT_FILES: Duration = Duration::from_secs(10);
/// How long a body may take. The API server waits for 30 s at most.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may be idle. The API server keeps one for 90 s, and has to be the one that ends it: a request
/// on a connection that the webhook ends at that moment is lost, and somebody's order with it.
const IDLE: Duration = Duration::from_secs(120);
/// How many connections there may be.
const CONNECTIONS: usize = 64;
/// The memory of all bodies that are held at once, in KiB: further ones are not read yet.
const BODIES: usize = 24 << 10;

/// Where the webhook answers, if it does.
#[derive(Debug, clap::Args)]
pub(crate) struct WebhookArgs {
    /// Where the admission webhook of templates answers, over TLS [default: nowhere]
    #[arg(
        long, env = "MANCIPLE_WEBHOOK_LISTEN", value_name = "ADDRESS:PORT",
        requires_all = ["webhook_cert", "webhook_key"]
    )]
    webhook_listen: Option<String>,
    /// Its certificate, PEM, the chain with it; read again when it changes
    #[arg(long, env = "MANCIPLE_WEBHOOK_CERT", value_name = "FILE", requires = "webhook_listen")]
    webhook_cert: Option<PathBuf>,
    /// The key of the certificate, PEM
    #[arg(long, env = "MANCIPLE_WEBHOOK_KEY", value_name = "FILE", requires = "webhook_listen")]
    webhook_key: Option<PathBuf>,
    /// Let the requester of a TemplateInstance change its template and its parameters, as the webhook verifies;
    /// otherwise what was ordered does not change, but through the broker
    #[arg(long, env = "MANCIPLE_ALLOW_CHANGES", requires_if("true", "webhook_listen"))]
    allow_changes: bool,
}

/// The webhook while it answers.
pub(crate) struct Webhook {
    pub(crate) admission: Arc<Admission>,
    end: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Webhook {
    /// Ends the webhook: it takes no further request, and answers those that came.
    pub(crate) async fn end(self) {
        drop(self.end);
        let _ = self.serving.await;
    }
}

/// Starts the webhook for the controller of templates of this namespace and name; `None` if it is not configured.
///
/// # Errors
/// If the files, the address or the key of seals cannot be used.
pub(crate) async fn serve(
    args: &WebhookArgs,
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<Webhook>> {
    let (Some(listen), Some(cert), Some(key)) =
        (&args.webhook_listen, &args.webhook_cert, &args.webhook_key)
    else {
        return Ok(None);
    };
    let files = Tls { certificate: cert.clone(), key: key.clone() };
    let certificate = Certificate::open(&files).context("--webhook-cert, --webhook-key")?;
    let changes = if args.allow_changes { Changes::ByRequester } else { Changes::Refused };
    let admission = Admission::open(client, namespace, name, changes).await?;
    let listener = bind("--webhook-listen", listen, "[::]:8443").await?;
    tracing::info!(address = %listener.local_addr()?, "the webhook of templates answers");
    let (end, ended) = oneshot::channel();
    let admission = Arc::new(admission);
    let routes = routes(Arc::clone(&admission));
    let serving = async move {
        let current = Arc::clone(&certificate);
        let tls: TlsSource = Arc::new(move || current.current());
        let limits = Limits { connections: CONNECTIONS, head: IDLE, ..Limits::default() };
        let ended = async move { drop(ended.await) };
        tokio::select! {
            _ = osb::server::serve(listener, routes, Some(tls), limits, ended) => {}
            () = renew(&certificate) => {}
        }
    };
    let serving = tokio::spawn(vital::task("the webhook of templates", serving));
    Ok(Some(Webhook { admission, end, serving }))
}

fn routes(admission: Arc<Admission>) -> Router {
    let room = Arc::new(Semaphore::new(BODIES));
    Router::new().route("/admission", post(admit)).with_state((admission, room))
}

async fn admit(
    State((admission, room)): State<(Arc<Admission>, Arc<Semaphore>)>,
    body: Body,
) -> Response {
    let length = body.size_hint().exact().and_then(|it| usize::try_from(it).ok());
    let kib = length.map_or(LARGEST, |it| it.min(LARGEST)) >> 10;
    let read = async {
        let room = room.acquire_many(u32::try_from(kib).unwrap_or(u32::MAX)).await;
        (room, to_bytes(body, LARGEST).await)
    };
    let (_room, body) = match tokio::time::timeout(PATIENCE, read).await {
        Ok((room, Ok(body))) => (room, body),
        Ok((_, Err(_))) => {
            let words = format!("the body could not be read, or is longer than {LARGEST} bytes\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, words).into_response();
        }
        Err(_) => {
            let words = format!("the body took more than {} s\n", PATIENCE.as_secs());
            return (StatusCode::REQUEST_TIMEOUT, words).into_response();
        }
    };
    match admission.answer(&body).await {
        Ok(answer) => Json(answer).into_response(),
        Err(malformed) => (StatusCode::BAD_REQUEST, format!("{malformed}\n")).into_response(),
    }
}

/// Reloads a changed certificate, for ever.
async fn renew(certificate: &Certificate) {
    loop {
        tokio::time::sleep(LOOK_AT_FILES).await;
        match certificate.reload() {
            Ok(true) => tracing::info!("a new certificate of the webhook is in force"),
            Ok(false) => {}
            Err(error) => tracing::error!("the certificate from before stays in force: {error:#}"),
        }
    }
}
