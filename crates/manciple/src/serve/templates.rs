//! Serves templates as services: with an engine of their own, under `/brokers/template.openshift.io`, and the
//! controller that makes the ordered instances.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use engine::Engine;
use engine::policy::{OnBound, OnLost, PerAction, Policy};
use engine::vital;
use kubernetes::templates::broker::{self, NAME, TemplateBroker};
use kubernetes::templates::{self, Controller, DRIFT_INTERVAL, LONGEST_CALL, Settings, WORKERS};
use kubernetes::{Client, Lead};

use super::adapters::Adapters;
use super::config::{Period, Templates};
use super::start::Parts;

/// The longest that an operation may take: longer than an instance may take.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How many attempts an operation has: work is begun anew if its process has gone, or it could not go on.
const ATTEMPTS: u32 = 1_000;
/// How many runs may wait at once: each costs a watch, and nothing else.
const AT_ONCE: usize = 10_000;

/// The cluster, the namespace and the lead.
pub(crate) struct ClusterContext {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) lead: Arc<Lead>,
}

/// The engine and the controller that serve templates.
#[derive(Clone)]
pub(crate) struct ServedTemplates {
    pub(crate) engine: Engine,
    /// The controller that makes instances, if that is done here.
    pub(crate) controller: Option<Arc<Controller>>,
}

/// Begins to serve templates.
pub(crate) async fn open(
    parts: &Parts,
    of: &Templates,
    ground: ClusterContext,
) -> anyhow::Result<(ServedTemplates, Router)> {
    let ClusterContext { client, namespace, lead } = ground;
    let seal = templates::seal_key(client.clone(), &namespace, templates::NAME).await?;
    let settings = broker::Settings {
        namespace: namespace.clone(),
        offered: of.namespaces.clone(),
        watched: of.instance_namespaces.clone(),
        ids: of.ids.into(),
        status_codes: of.status_codes.into(),
    };
    let broker = TemplateBroker::new(&client, settings, seal);
    let name = format!("{}/{NAME}", parts.policy.broker);
    let adapters =
        Adapters::templates(client.clone(), &namespace, &name, broker.clone(), &lead).await?;
    let engine = parts.engine(&adapters, policy(&parts.policy, name));
    tokio::spawn(vital::task("the catalog of templates", broker.clone().keep(engine.clone())));
    tokio::spawn(vital::task("the sweep of templates' records", engine.clone().sweep()));
    if let Some(leadership) = &adapters.leadership {
        let part = leadership.take_part(&engine);
        tokio::spawn(vital::task("the part of templates' leader", part));
    }
    let controller = if of.controller {
        let settings = Settings {
            namespace,
            name: templates::NAME.to_owned(),
            requesters: of.requesters.into(),
            watched: of.instance_namespaces.clone(),
            workers: WORKERS,
            drift: of.drift.into(),
            drift_interval: Period::or(of.drift_interval, DRIFT_INTERVAL),
            translation: of.translate.clone().map(Into::into),
            longest_call: LONGEST_CALL,
        };
        let controller = Controller::open(client, settings).await?;
        let run = Arc::clone(&controller).run(lead);
        tokio::spawn(vital::task("the controller of templates", run));
        Some(controller)
    } else {
        None
    };
    let front = broker.backend(engine.clone());
    let router = parts.routes_of(front, &engine, &adapters);
    Ok((ServedTemplates { engine, controller }, router))
}

/// Nests the routes of templates under their prefix, beside those of other brokers.
pub(crate) fn nested(router: Router) -> Router {
    Router::new().nest(&format!("/brokers/{NAME}"), router)
}

fn policy(base: &Policy, broker: String) -> Policy {
    Policy {
        broker,
        // As it offers, whatever others are said to be able to.
        capabilities: None,
        timeouts: PerAction::all(LONGEST),
        // What is begun is named by the order: begun twice it is begun once.
        lost: OnLost::Retry,
        attempts: ATTEMPTS,
        max_runs: AT_ONCE,
        // As in the original: what is bound is no part of an instance.
        bound: OnBound::Cascade,
        dashboard_url: None,
        ..base.clone()
    }
}
