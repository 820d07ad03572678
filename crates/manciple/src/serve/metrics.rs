//! The metrics. No id and no secret is ever a label, and no name but that of a `Broker` resource: the number of
//! series is fixed by the program, and where `Broker`s are served, by their number.

use std::fmt::Write;
use std::sync::Arc;

use engine::record::{Phase, Record};
use kubernetes::templates::Counts;
use osb::server::{Exchange, Observer};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::counts;

/// The buckets of requests' durations, from 0.1 ms, an answer from memory, to 50 s, a held bind.
const REQUEST_BUCKETS: [f64; 12] =
    [0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 20.0, 60.0];
/// The buckets of operations' durations, from a script's quarter of a second to a large database's hour.
const OPERATION_BUCKETS: [f64; 10] =
    [0.25, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    action: &'static str,
    outcome: &'static str,
    broker: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActionLabels {
    action: &'static str,
}

/// Counts exchanges and ended operations, and logs both.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    operations: Family<OperationLabels, Counter>,
    operation_seconds: Family<ActionLabels, Histogram, fn() -> Histogram>,
    in_progress: Gauge,
    leading: Gauge,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let mut registry = Registry::with_prefix("manciple");
        counts::of_program(&mut registry);
        let requests = Family::default();
        registry.register("http_requests", "Requests answered", requests.clone());
        let request_seconds =
            Family::new_with_constructor((|| Histogram::new(REQUEST_BUCKETS)) as fn() -> Histogram);
        registry.register_with_unit(
            "http_request",
            "Time to the answer",
            Unit::Seconds,
            request_seconds.clone(),
        );
        let operations = Family::default();
        registry.register("operations", "Operations ended", operations.clone());
        let operation_seconds = Family::new_with_constructor(
            (|| Histogram::new(OPERATION_BUCKETS)) as fn() -> Histogram,
        );
        registry.register_with_unit(
            "operation",
            "Time from the record of an operation to its end",
            Unit::Seconds,
            operation_seconds.clone(),
        );
        let in_progress = Gauge::default();
        registry.register("operations_in_progress", "Operations in progress", in_progress.clone());
        let leading = Gauge::default();
        let help = "Whether this process carries operations out: one of all replicas is to";
        registry.register("leading", help, leading.clone());
        Arc::new(Self {
            registry,
            requests,
            request_seconds,
            operations,
            operation_seconds,
            in_progress,
            leading,
        })
    }

    /// The text that Prometheus reads; `leads`: this process carries operations out; `instances` are the counts of
    /// TemplateInstances, if they are made here.
    pub(crate) fn text(
        &self,
        in_progress: usize,
        leads: bool,
        instances: Option<&Counts>,
    ) -> String {
        self.in_progress.set(i64::try_from(in_progress).unwrap_or(i64::MAX));
        self.leading.set(i64::from(leads));
        let mut text = String::new();
        if self.write(&mut text, instances).is_err() {
            text.clear();
            let _ = writeln!(text, "# the metrics could not be written");
        }
        text
    }

    fn write(&self, text: &mut String, instances: Option<&Counts>) -> std::fmt::Result {
        encode_registry(text, &self.registry)?;
        if let Some(counts) = instances {
            counts::write(text, counts)?;
        }
        encode_eof(text)
    }
}

/// The label for a method: clients may send any, so only known ones become labels.
fn method_label(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "POST" => "POST",
        "HEAD" => "HEAD",
        _ => "other",
    }
}

/// The observer that hands the server's exchanges to the metrics and the log.
pub(crate) struct Exchanges(pub(crate) Arc<Metrics>);

impl Observer for Exchanges {
    fn responded(&self, exchange: &Exchange<'_>) {
        // 499: the client hung up before the answer.
        let status = exchange.status.unwrap_or(499);
        let labels =
            RequestLabels { method: method_label(exchange.method), route: exchange.route, status };
        self.0.requests.get_or_create(&labels).inc();
        self.0
            .request_seconds
            .get_or_create(&RouteLabels { route: exchange.route })
            .observe(exchange.duration.as_secs_f64());
        let principal = exchange.principal.map(|principal| &*principal.name);
        let request_identity = exchange.request_identity;
        let micros = u64::try_from(exchange.duration.as_micros()).unwrap_or(u64::MAX);
        let (method, route) = (exchange.method.as_str(), exchange.route);
        match exchange.error {
            Some(error) if status >= 500 => tracing::error!(
                method, route, status, micros, request_identity, principal, %error, "answered"
            ),
            Some(error) => tracing::info!(
                method, route, status, micros, request_identity, principal, %error, "refused"
            ),
            None => tracing::debug!(
                method,
                route,
                status,
                micros,
                request_identity,
                principal,
                "answered"
            ),
        }
    }
}

/// The observer that hands ended operations to the metrics and the log.
pub(crate) struct Operations {
    pub(crate) metrics: Arc<Metrics>,
    /// A function that gives the `Broker` of an operation; empty, as if there were none, if there is only one broker.
    pub(crate) broker: Arc<dyn Fn(&Record) -> String + Send + Sync>,
}

impl engine::Observer for Operations {
    fn ended(&self, record: &Record) {
        let operation = &record.operation;
        let action = operation.action.as_str();
        let outcome = match &operation.phase {
            Phase::Failed(failure) => failure.reason.as_str(),
            _ => "succeeded",
        };
        let broker = (self.broker)(record);
        self.metrics.operations.get_or_create(&OperationLabels { action, outcome, broker }).inc();
        let ended = operation.ended_at.unwrap_or(record.updated_at);
        let took = operation.created_at.until(ended);
        self.metrics
            .operation_seconds
            .get_or_create(&ActionLabels { action })
            .observe(took.as_secs_f64());
        match &operation.phase {
            Phase::Failed(failure) => tracing::warn!(
                record = %record.key, operation = operation.id, action, outcome,
                attempt = operation.attempt, description = failure.description,
                "an operation failed"
            ),
            _ => tracing::info!(
                record = %record.key, operation = operation.id, action, outcome,
                attempt = operation.attempt, "an operation ended"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever makes a dashboard begins with the pages.
    #[test]
    fn every_metric_is_on_a_page() {
        let pages = [
            include_str!("../../../../docs/operating.md"),
            include_str!("../../../../docs/template-instances.md"),
        ]
        .concat();
        let counts = Counts { known: 1, ages: vec![1], ready: 1, failed: 1 };
        let metrics = Metrics::new();
        let (action, route) = ("bind", "/");
        let request = RequestLabels { method: "GET", route, status: 200 };
        metrics.requests.get_or_create(&request).inc();
        metrics.request_seconds.get_or_create(&RouteLabels { route }).observe(1.0);
        let operation = OperationLabels { action, outcome: "succeeded", broker: String::new() };
        metrics.operations.get_or_create(&operation).inc();
        metrics.operation_seconds.get_or_create(&ActionLabels { action }).observe(1.0);
        let text = metrics.text(0, true, Some(&counts));
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let named: Vec<_> = types.filter_map(|line| line.split_once(' ')).collect();
        assert_eq!(named.len(), 11, "{text}");
        for (name, kind) in named {
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            assert!(pages.contains(&format!("`{name}{suffix}`")), "{name}{suffix}: {kind}");
        }
    }
}
