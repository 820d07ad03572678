//! `/healthz`, `/readyz` and `/metrics` of the controller.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use kubernetes::quarks::{Controller, Counts};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The routes.
pub(crate) fn routes(controller: Arc<Controller>) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(controller)
}

/// Ready once everything that is to be watched was listed.
async fn ready(State(controller): State<Arc<Controller>>) -> Response {
    match controller.is_ready() {
        true => "ok\n".into_response(),
        false => {
            let words = "what there is in the monitored namespaces was not listed yet\n";
            (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
        }
    }
}

async fn metrics(State(controller): State<Arc<Controller>>) -> Response {
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, format)], text(&controller.counts())).into_response()
}

/// No name is ever a label: the number of series is fixed.
fn text(counts: &Counts) -> String {
    let mut registry = Registry::with_prefix("manciple");
    let Counts { known, going, started, succeeded, failed, calls_failed } = *counts;
    for (name, help, value) in [
        ("quarks_jobs", "QuarksJobs in the monitored namespaces", known),
        ("quarks_runs_in_progress", "Runs that have not ended", going),
    ] {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        registry.register(name, help, ConstGauge::new(value));
    }
    for (name, help, value) in [
        ("quarks_runs_started", "Runs whose Job was made", started),
        ("quarks_runs_succeeded", "Runs that did their work, and whose output is kept", succeeded),
        ("quarks_runs_failed", "Runs that did not", failed),
        ("quarks_looks_failed", "Looks at a QuarksJob that a failed call ended", calls_failed),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }
    let mut text = String::new();
    // Writing to a string fails at nothing.
    let _ = encode(&mut text, &registry);
    text
}
