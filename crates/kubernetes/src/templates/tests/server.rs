//! A simulated API server, and a controller of it.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{key, of};
use crate::server_time::ServerTime;
use crate::templates::kinds::Kinds;
use crate::templates::names::{MARK, OWNER};
use crate::templates::plan::mark;
use crate::templates::{Controller, Drift, HEAVY_AT_ONCE, Requesters, Settings};

/// What an API server has, and was asked to write, or to remove.
pub(super) struct Server {
    pub(super) instance: Value,
    pub(super) record: Value,
    /// Says what it refuses, by the path and the body of a request.
    pub(super) refuses: fn(&str, &Value) -> Option<u16>,
    pub(super) writes: Vec<String>,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: &Value) -> (u16, Value) {
        if *method != Method::GET {
            self.writes.push(format!("{method} {path}"));
        }
        if let Some(code) = (self.refuses)(path, body) {
            let message = match code {
                413 => "Request entity too large",
                422 => "Secret \"s\" is invalid: data[k]: Invalid value: \"PLANTED\"",
                _ => "refused: all of it: PLANTED",
            };
            let failure =
                json!({"kind": "Status", "status": "Failure", "code": code, "message": message});
            return (code, failure);
        }
        let there = match path {
            path if path.contains("/templateinstances/i") => &mut self.instance,
            path if path.contains("/secrets/") => &mut self.record,
            path if path.ends_with("/clusterroles/r") => {
                let resource = ["clusterroles", "rbac.authorization.k8s.io"];
                let mark = mark(&of(), resource, None, "r", &key());
                let metadata = json!({
                    "name": "r", "uid": "u-r", "labels": {OWNER: "u-1"}, "annotations": {MARK: mark},
                });
                return (200, json!({"kind": "ClusterRole", "metadata": metadata}));
            }
            _ => {
                let roles = json!({
                    "name": "clusterroles", "singularName": "", "namespaced": false,
                    "kind": "ClusterRole", "verbs": ["create", "get", "delete"],
                });
                let version = "rbac.authorization.k8s.io/v1";
                return (200, json!({"groupVersion": version, "resources": [roles]}));
            }
        };
        merge(there, body);
        (200, there.clone())
    }
}

/// As a merge patch does it.
fn merge(there: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return };
    for (name, value) in patch {
        match value {
            Value::Null => drop(there.as_object_mut().and_then(|there| there.remove(name))),
            Value::Object(_) => merge(&mut there[name], value),
            value => there[name] = value.clone(),
        }
    }
}

fn serves(server: &Arc<Mutex<Server>>) -> Client {
    let server = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let (code, answer) =
                server.lock().unwrap().answer(&parts.method, parts.uri.path(), &body);
            let answer = Body::from(answer.to_string().into_bytes());
            Ok::<_, tower::BoxError>(Response::builder().status(code).body(answer)?)
        }
    });
    Client::new(service, "shop")
}

pub(super) fn controller(server: &Arc<Mutex<Server>>) -> Controller {
    let (client, time) = ServerTime::of(&serves(server), "shop");
    Controller {
        kinds: Kinds::of(client.clone()),
        client,
        time,
        settings: Settings {
            namespace: "shop".to_owned(),
            name: "templates".to_owned(),
            requesters: Requesters::Trusted,
            watched: Vec::new(),
            workers: 1,
            drift: Drift::Report,
            drift_interval: Duration::ZERO,
            translation: None,
            longest_call: Duration::ZERO,
        },
        seal: key(),
        table: Mutex::default(),
        queue: Arc::default(),
        counters: Default::default(),
        watches: Arc::new(Semaphore::new(1)),
        looks: Semaphore::new(1),
        large: Arc::new(Semaphore::new(1)),
        heavy: Semaphore::new(HEAVY_AT_ONCE),
        strays: Default::default(),
        led_since: Mutex::new(Some(Instant::now())),
    }
}
