//! Which namespaces are monitored: those with labels, or all.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::client::Body;
use kubernetes::Client;
use kubernetes::quarks::{Dialect, Monitored};
use serde_json::json;
use tokio::time::sleep;

use super::beyond::events;
use super::harness::{Town, pod, spec};
use super::output::{WELL, makes};

/// By now it would have been taken.
const SOON: Duration = Duration::from_secs(3);

/// Its namespace has these of the two labels, and not those that the harness gave it.
async fn label(town: &Town, monitored: Option<&str>, account: Option<&str>) {
    let labels = json!({"metadata": {"labels": {
        "quarks.cloudfoundry.org/monitored": monitored,
        "quarks.cloudfoundry.org/qjob-service-account": account,
    }}});
    let namespaces = Api::<Namespace>::all(town.cluster.client.clone());
    let (name, params) = (&town.cluster.namespace, PatchParams::default());
    namespaces.patch(name, &params, &Patch::Merge(labels)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_a_namespace_that_is_not_monitored_does_not_run_and_is_not_touched() {
    for (test, by_one) in [("labelled", false), ("marked", true)] {
        let mut town = Town::still(test).await;
        let id = town.cluster.namespace.clone();
        if by_one {
            label(&town, Some(&id), None).await;
            town.settings.monitored = Monitored::Marked(id);
        }
        let bare = Town::still(&format!("{test}-bare")).await;
        label(&bare, None, None).await;
        // It is another controller's, which does not run.
        let others = Town::still(&format!("{test}-others")).await;
        let mut left_alone = Vec::new();
        for other in [&bare, &others] {
            other.create("a", makes(WELL, json!({"name": "made"}))).await;
            left_alone.push((other, other.jobs().get("a").await.unwrap()));
        }
        town.start().await;
        town.create("a", makes(WELL, json!({"name": "made"}))).await;
        assert_eq!(town.ended("a", 1).await["succeeded"], true, "{test}");
        sleep(SOON).await;
        for (other, before) in left_alone {
            let name = &other.cluster.namespace;
            assert_eq!(other.jobs().get("a").await.unwrap(), before, "{name}");
            assert_eq!(other.batch_jobs().await, [], "{name}");
            assert!(other.secret("made").await.is_none(), "{name}");
            let agents = ListParams::default().labels("manciple.dev/keeps=agent");
            let agents = other.cluster.api::<ConfigMap>().list(&agents).await.unwrap();
            assert_eq!(agents.items, [], "{name}");
            assert_eq!(events(other, "a").await, [], "{name}");
        }
    }
}

/// What is listed and watched everywhere.
const EVERYWHERE: [&str; 7] =
    ["quarksjobs", "extendedjobs", "jobs", "pods", "configmaps", "secrets", "events"];

/// A client for which this namespace is the whole cluster: what is in others is of other tests, which have controllers
/// of their own.
fn alone(client: &Client, namespace: &str) -> Client {
    let (base, within) = (client.clone(), format!("metadata.namespace%3D{namespace}"));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (mut parts, body) = request.into_parts();
        parts.uri = narrowed(&parts.uri, &within);
        let base = base.clone();
        async move { base.send(http::Request::from_parts(parts, body)).await }
    });
    Client::new(service, namespace)
}

/// Of what is asked for everywhere, what this selects.
fn narrowed(uri: &http::Uri, within: &str) -> http::Uri {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let kind = path.rsplit('/').next().unwrap_or_default();
    if path.contains("/namespaces/") || !EVERYWHERE.contains(&kind) {
        return uri.clone();
    }
    let selects = "fieldSelector=";
    let query = match query.split_once(selects) {
        Some((before, after)) => format!("{before}{selects}{within}%2C{after}"),
        None => format!("{query}&{selects}{within}"),
    };
    format!("{path}?{query}").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_are_monitored_what_is_in_a_namespace_without_labels_runs() {
    let mut town = Town::still("all").await;
    label(&town, None, None).await;
    town.settings.monitored = Monitored::All;
    town.config_map("m", "1").await;
    let mut follows = makes(WELL, json!({"name": "made"}));
    follows["template"]["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "m"}}]);
    follows["updateOnConfigChange"] = json!(true);
    town.create("there", follows).await;
    town.start_with(alone(&town.cluster.client, &town.cluster.namespace)).await;
    let run = town.ended("there", 1).await;
    assert_eq!((&run["trigger"], &run["made"]), (&json!("once"), &json!(["made"])), "{run}");
    assert_eq!(town.data("made").await["bar"], "baz");
    town.config_map("m", "2").await;
    assert_eq!(town.ended("there", 2).await["trigger"], "config-change");
    // Labels are no matter, neither is that they are another controller's.
    label(&town, Some("somebody-else"), None).await;
    town.create("later", spec("once", &pod("true"))).await;
    assert_eq!(town.ended("later", 1).await["succeeded"], true);
    town.dialect = Dialect::ExtendedJob;
    let template = json!({"spec": pod("true")});
    town.create("extended", json!({"trigger": {"strategy": "once"}, "template": template})).await;
    assert_eq!(town.ended("extended", 1).await["succeeded"], true);
}
