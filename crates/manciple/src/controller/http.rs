//! `/healthz`, `/readyz` and `/metrics` of the controller.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use kubernetes::quarks::{self, Counts};
use kubernetes::templates::admission::{Admission, Answers};
use kubernetes::{Lead, templates};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::counts;

/// What is looked after, by whoever leads.
#[derive(Clone)]
pub(crate) struct Controllers {
    pub(crate) lead: Arc<Lead>,
    pub(crate) quarks: Option<Arc<quarks::Controller>>,
    pub(crate) templates: Option<Arc<templates::Controller>>,
    pub(crate) admission: Option<Arc<Admission>>,
}

impl Controllers {
    fn is_ready(&self) -> bool {
        self.quarks.as_ref().is_none_or(|it| it.is_ready())
            && self.templates.as_ref().is_none_or(|it| it.is_ready())
    }
}

/// The routes.
pub(crate) fn routes(controllers: Controllers) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(controllers)
}

/// Ready once everything that is to be watched was listed.
async fn ready(State(controllers): State<Controllers>) -> Response {
    match controllers.is_ready() {
        true => "ok\n".into_response(),
        false => {
            let words = "what there is to be looked after was not listed yet\n";
            (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
        }
    }
}

async fn metrics(State(controllers): State<Controllers>) -> Response {
    let mut registry = Registry::with_prefix("manciple");
    counts::of_program(&mut registry);
    let help = "Whether this process acts: one of all replicas is to";
    let leads = i64::from(*controllers.lead.held().borrow());
    registry.register("leading", help, ConstGauge::new(leads));
    if let Some(quarks) = &controllers.quarks {
        of_quarks(&mut registry, &quarks.counts());
    }
    if let Some(admission) = &controllers.admission {
        of_admission(&mut registry, admission.answers());
    }
    let mut text = String::new();
    // Writing to a string fails at nothing.
    let _ = encode_registry(&mut text, &registry);
    if let Some(templates) = &controllers.templates {
        let _ = counts::write(&mut text, &templates.counts());
    }
    let _ = encode_eof(&mut text);
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, format)], text).into_response()
}

fn of_admission(registry: &mut Registry, answers: Answers) {
    let counted = Family::<[(&str, &str); 1], Counter>::default();
    let Answers { admitted, refused, unanswered } = answers;
    for (answer, count) in
        [("admitted", admitted), ("refused", refused), ("unanswered", unanswered)]
    {
        counted.get_or_create(&[("answer", answer)]).inc_by(count);
    }
    let help =
        "What the webhook answered; unanswered: refused, for the API server could not be asked";
    registry.register("admission_answers", help, counted);
}

/// No name is ever a label: the number of series is fixed.
fn of_quarks(registry: &mut Registry, counts: &Counts) {
    let Counts { known, going, started, succeeded, failed, looks_failed } = *counts;
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
        ("quarks_looks_failed", "Looks at a QuarksJob that a failed call ended", looks_failed),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }
}
