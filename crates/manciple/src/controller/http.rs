//! `/healthz`, `/readyz` and `/metrics` of the controller.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use kubernetes::quarks::{self, Counts};
use kubernetes::templates;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What is looked after.
#[derive(Clone, Default)]
pub(crate) struct Controllers {
    pub(crate) quarks: Option<Arc<quarks::Controller>>,
    pub(crate) templates: Option<Arc<templates::Controller>>,
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
    if let Some(quarks) = &controllers.quarks {
        of_quarks(&mut registry, &quarks.counts());
    }
    if let Some(templates) = &controllers.templates {
        of_templates(&mut registry, &templates.counts());
    }
    let mut original = Registry::default();
    if let Some(templates) = &controllers.templates {
        of_the_original(&mut original, &templates.counts());
    }
    let mut text = String::new();
    // Writing to a string fails at nothing.
    let _ = encode_registry(&mut text, &registry);
    let _ = encode_registry(&mut text, &original);
    let _ = encode_eof(&mut text);
    let format = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, format)], text).into_response()
}

/// No name is ever a label: the number of series is fixed.
fn of_quarks(registry: &mut Registry, counts: &Counts) {
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
}

/// Upper bounds of ages, in seconds: those of the original.
const AGES: [f64; 7] = [600.0, 1200.0, 1800.0, 2400.0, 3000.0, 3600.0, 4200.0];

fn of_templates(registry: &mut Registry, counts: &templates::Counts) {
    let templates::Counts { known, ages, .. } = counts;
    for (name, help, value) in [
        ("template_instances", "TemplateInstances", *known),
        ("template_instances_in_progress", "Those that are being made or removed", ages.len()),
    ] {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        registry.register(name, help, ConstGauge::new(value));
    }
}

/// Under the names of the original, which have no prefix of ours.
fn of_the_original(registry: &mut Registry, counts: &templates::Counts) {
    let completed = Family::<[(&str, &str); 1], Counter>::default();
    for (condition, count) in [("Ready", counts.ready), ("InstantiateFailure", counts.failed)] {
        completed.get_or_create(&[("condition", condition)]).inc_by(count);
    }
    let help = "TemplateInstances that came to an end, by the condition that says which";
    registry.register("openshift_template_instance_completed", help, completed);
    let ages = Histogram::new(AGES);
    counts.ages.iter().for_each(|age| ages.observe(age_of(*age)));
    let help = "How long those are at it that did not come to an end, in seconds";
    registry.register("openshift_template_instance_active_age_seconds", help, ages);
}

fn age_of(seconds: u64) -> f64 {
    std::time::Duration::from_secs(seconds).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_counted_under_the_names_of_the_original() {
        let counts = templates::Counts { known: 4, ages: vec![5, 3000], ready: 7, failed: 2 };
        let mut registry = Registry::default();
        of_the_original(&mut registry, &counts);
        let mut text = String::new();
        encode_registry(&mut text, &registry).unwrap();
        for expected in [
            "openshift_template_instance_completed_total{condition=\"Ready\"} 7\n",
            "openshift_template_instance_completed_total{condition=\"InstantiateFailure\"} 2\n",
            "openshift_template_instance_active_age_seconds_bucket{le=\"600.0\"} 1\n",
            "openshift_template_instance_active_age_seconds_bucket{le=\"3000.0\"} 2\n",
            "openshift_template_instance_active_age_seconds_count 2\n",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
