//! What keeps the pods of a workload from being ready: a workload that waits says how many are, and not why.

use k8s_openapi::api::core::v1;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Client, Resource as _};
use serde::Deserialize;
use serde_json::{Value, json};
use template::ready::hindrance;

use crate::calls::call;

/// How many pods of a workload are looked at: what hinders one usually hinders all of them.
const LOOKED_AT: u32 = 5;

/// Pods, as far as they are looked at: whatever else there is of them is not kept.
#[derive(Deserialize)]
struct Pods {
    items: Vec<Pod>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

/// The selector of a workload's pods; `None` for what is no workload, or selects them in another way than by labels.
pub(super) fn selector(workload: &Value) -> Option<String> {
    let spec = &workload["spec"];
    if !spec["template"]["spec"].is_object() || spec["selector"]["matchExpressions"].is_array() {
        return None;
    }
    // Of a DeploymentConfig, or a ReplicationController, the labels are the selector.
    let labels = spec["selector"].get("matchLabels").unwrap_or(&spec["selector"]).as_object()?;
    let labels = labels.iter().map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
    let labels: Vec<String> = labels.collect::<Option<_>>()?;
    (!labels.is_empty()).then(|| labels.join(","))
}

/// What keeps one of the selected pods from being ready; `None`, too, for whoever may not list them.
pub(super) async fn hindered(client: &Client, namespace: &str, selector: &str) -> Option<String> {
    let params = ListParams::default().labels(selector).limit(LOOKED_AT);
    let request = Request::new(v1::Pod::url_path(&(), Some(namespace))).list(&params).ok()?;
    let listed = call(client.request::<Pods>(request)).await.inspect_err(|error| {
        tracing::debug!(namespace, %error, "what hinders the pods of a workload is not known");
    });
    listed.ok()?.items.into_iter().find_map(|pod| {
        let why = hindrance(&json!({"status": pod.status}))?;
        Some(format!("pod {}: {why}", pod.metadata.name))
    })
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    #[test]
    fn pods_are_selected_as_their_workload_selects_them() {
        let of =
            |selector: Value| json!({"spec": {"selector": selector, "template": {"spec": {}}}});
        let service = json!({"spec": {"selector": {"app": "web"}}});
        for (name, workload, expected) in [
            ("labels", of(json!({"matchLabels": {"app": "web", "b": "c"}})), Some("app=web,b=c")),
            ("of a DeploymentConfig", of(json!({"app": "web"})), Some("app=web")),
            (
                "expressions",
                of(json!({"matchLabels": {"app": "web"}, "matchExpressions": [{}]})),
                None,
            ),
            ("nothing", of(json!({})), None),
            ("nothing, said otherwise", of(json!(null)), None),
            ("nonsense", of(json!({"app": 1})), None),
            ("a Service", service, None),
        ] {
            assert_eq!(selector(&workload).as_deref(), expected, "{name}");
        }
    }

    /// An API server that answers this.
    async fn hinders(status: u16, answer: Value) -> Option<String> {
        let service = tower::service_fn(move |request: Request<Body>| {
            let said = request.uri().to_string();
            assert!(said.starts_with("/api/v1/namespaces/shop/pods?"), "{said}");
            assert!(said.contains("labelSelector=app%3Dweb") && said.contains("limit=5"), "{said}");
            let body = Body::from(answer.to_string().into_bytes());
            let response = Response::builder().status(status).body(body);
            async { response.map_err(Into::<tower::BoxError>::into) }
        });
        hindered(&Client::new(service, "shop"), "shop", "app=web").await
    }

    #[tokio::test]
    async fn the_first_pod_that_is_hindered_says_it() {
        let pod = |name: &str, reason: &str| {
            let waiting = json!({"waiting": {"reason": reason}});
            let container = json!({"name": "c", "image": "i:1", "state": waiting});
            json!({"metadata": {"name": name}, "spec": {}, "status": {
                "phase": "Pending", "containerStatuses": [container],
            }})
        };
        let (good, bad) = (pod("a", "ContainerCreating"), pod("b", "ErrImagePull"));
        let expected = "pod b: container c: image i:1: ErrImagePull";
        let forbidden = json!({"kind": "Status", "status": "Failure", "code": 403, "message": "m"});
        for (name, status, answer, expected) in [
            ("one of two", 200, json!({"items": [good, bad]}), Some(expected)),
            ("none", 200, json!({"items": [good]}), None),
            ("one without a status", 200, json!({"items": [{"metadata": {"name": "c"}}]}), None),
            ("no pods", 200, json!({"items": []}), None),
            ("no right", 403, forbidden, None),
        ] {
            assert_eq!(hinders(status, answer).await.as_deref(), expected, "{name}");
        }
    }
}
