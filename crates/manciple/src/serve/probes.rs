//! The routes `/healthz`, `/readyz` and `/metrics` of a server.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::request::Parts;
use http::{StatusCode, header};
use osb::server::Authentication;

use super::groups::Serving;
use super::metrics::Metrics;
use crate::admin::refusal::{explain_method, unwelcome};

/// The state that the probes look at.
#[derive(Clone)]
pub(crate) struct Probes {
    pub(crate) serving: Serving,
    /// A function that says why the store takes no writes or is damaged; `None`: it works.
    pub(crate) refusing: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    pub(crate) metrics: Arc<Metrics>,
    /// The authentication for the metrics; `None`: everybody may read them.
    pub(crate) authentication: Option<Authentication>,
}

/// The routes. The first two answer everybody: yes, or no, and why, without naming anything of the configuration.
pub(crate) fn routes(probes: Probes) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .layer(middleware::map_response(explain_method))
        .with_state(probes)
}

/// Answers `/readyz`: ready once there is a catalog to serve, while orders can be recorded.
async fn ready(State(probes): State<Probes>) -> Response {
    let no = |words: String| (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
    if !probes.serving.is_ready() {
        // Why is for those who may know: what a broker says is not for everybody.
        let words = "the broker's catalog was not read yet; if it cannot be, the log says why, and \
                     manciple catalog --refresh does\n";
        return no(words.to_owned());
    }
    match (probes.refusing)() {
        Some(why) => no(format!("{why}; see the log\n")),
        None => "ok\n".into_response(),
    }
}

async fn metrics(State(probes): State<Probes>, request: Parts) -> Response {
    if let Some(authentication) = &probes.authentication
        && let Err(error) = authentication.principal(&request).await
    {
        return unwelcome(error, authentication);
    }
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let serving = &probes.serving;
    let instances = serving.instances();
    let text = probes.metrics.text(serving.in_progress(), serving.leads(), instances.as_ref());
    ([(header::CONTENT_TYPE, format)], text).into_response()
}
