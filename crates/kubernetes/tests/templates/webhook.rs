//! The webhook, served to the API server of the test cluster for one namespace; and those whom it tells apart.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use data_encoding::BASE64;
use http::{HeaderName, HeaderValue};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::client::Body;
use kubernetes::Client;
use kubernetes::templates::admission::{Admission, Changes};
use kubernetes::templates::names::{GROUP, Kind, VERIFIED};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::harness::{Town, template};
use super::support::wait;
use crate::hook;

/// How long the API server may take to hear of a webhook.
const PATIENCE: Duration = Duration::from_secs(180);

/// The webhook while it answers.
pub(crate) struct Hook {
    namespace: String,
    admission: Arc<Admission>,
    hook: hook::Hook,
}

impl Hook {
    pub(crate) const SEAL: &str = VERIFIED;

    pub(crate) async fn new(town: &Town) -> Self {
        let (client, namespace) = (&town.cluster.client, &town.cluster.namespace);
        let admission = Admission::open(client, namespace, &town.settings.name, Changes::Refused);
        let admission = Arc::new(admission.await.unwrap());
        let answer = |State(admission): State<Arc<Admission>>, body: axum::body::Bytes| async move {
            admission.answer(&body).await.unwrap().to_string()
        };
        let routes = Router::new().route(hook::PATH, post(answer));
        let rule = |operations: Value, kind: Kind| {
            json!({
                "operations": operations, "apiGroups": [GROUP], "apiVersions": ["v1"],
                "resources": [kind.plural()],
            })
        };
        let rules = json!([
            rule(json!(["CREATE", "UPDATE"]), Kind::TemplateInstance),
            rule(json!(["CREATE"]), Kind::Template),
        ]);
        let routes = routes.with_state(Arc::clone(&admission));
        let hook = hook::Hook::new(client, namespace, rules, routes).await;
        let hook = Self { namespace: namespace.clone(), admission, hook };
        hook.until_asked(town).await;
        hook
    }

    /// Waits until the API server asks it.
    async fn until_asked(&self, town: &Town) {
        let object =
            object(&json!({"name": "probe"}), &json!({"template": template(json!([]), json!([]))}));
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let made = wait::until("the API server never asks the webhook", PATIENCE, async || {
            let made = town.instances().create(&dry, &object).await.unwrap();
            if made.data["spec"]["requester"].is_object() { Ok(made) } else { Err(made) }
        })
        .await;
        assert!(made.metadata.annotations.is_none(), "of a dry run nothing is sealed");
    }

    /// The seal that somebody gets who says that they are the API server.
    pub(crate) async fn asked_by_a_stranger(
        &self,
        name: &str,
        spec: &Value,
        user: &Value,
    ) -> String {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "1", "operation": "CREATE", "namespace": self.namespace, "userInfo": user,
                "kind": {"group": GROUP, "version": "v1", "kind": Kind::TemplateInstance.name()},
                "object": {"metadata": {"name": name}, "spec": spec},
            },
        });
        let answer = self.admission.answer(review.to_string().as_bytes()).await.unwrap();
        let patch = answer["response"]["patch"].as_str().unwrap();
        let patch: Value =
            serde_json::from_slice(&BASE64.decode(patch.as_bytes()).unwrap()).unwrap();
        patch[0]["value"][VERIFIED].as_str().unwrap().to_owned()
    }

    pub(crate) async fn remove(self) {
        drop(self.hook);
    }
}

/// Somebody in whose name calls are made.
pub(crate) struct User {
    name: String,
    client: Client,
    namespace: String,
}

impl User {
    pub(crate) fn of(town: &Town, name: &str, groups: &[&str]) -> Self {
        let value = |text: &str| HeaderValue::from_str(text).unwrap();
        let mut headers = vec![(HeaderName::from_static("impersonate-user"), value(name))];
        let group = HeaderName::from_static("impersonate-group");
        headers.extend(groups.iter().map(|it| (group.clone(), value(it))));
        let base = town.cluster.client.clone();
        let service = tower::service_fn(move |mut request: http::Request<Body>| {
            let base = base.clone();
            for (name, value) in headers.clone() {
                request.headers_mut().append(name, value);
            }
            async move { base.send(request).await }
        });
        let namespace = town.cluster.namespace.clone();
        Self { name: name.to_owned(), client: Client::new(service, namespace.clone()), namespace }
    }

    /// Lets them edit the namespace, instances too, which the role `edit` does not have.
    pub(crate) async fn may_edit(&self, town: &Town) {
        town.bind(&self.name, "edit").await;
        self.may(town, &["create", "get", "patch"]).await;
    }

    /// Lets them use these verbs on instances.
    pub(crate) async fn may(&self, town: &Town, verbs: &[&str]) {
        let name = format!("{}-instances", self.name);
        let plural = Kind::TemplateInstance.plural();
        let role: Role = serde_json::from_value(json!({
            "metadata": {"name": name},
            "rules": [{
                "apiGroups": [GROUP], "resources": [plural, format!("{plural}/status")], "verbs": verbs,
            }],
        }))
        .unwrap();
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self.name}],
        }))
        .unwrap();
        town.cluster.api::<Role>().create(&PostParams::default(), &role).await.unwrap();
        let bindings = town.cluster.api::<RoleBinding>();
        bindings.create(&PostParams::default(), &binding).await.unwrap();
        // The API server's authorizer hears of it a moment later.
        sleep(Duration::from_secs(1)).await;
    }

    pub(crate) async fn create(&self, metadata: Value, spec: Value) -> Result<Value, kube::Error> {
        shown(self.instances().create(&PostParams::default(), &object(&metadata, &spec)).await)
    }

    /// Server-side apply.
    pub(crate) async fn apply(&self, name: &str, spec: Value) -> Result<Value, kube::Error> {
        let object = object(&json!({"name": name}), &spec);
        let params = PatchParams::apply("test");
        shown(self.instances().patch(name, &params, &Patch::Apply(&object)).await)
    }

    pub(crate) async fn merge(&self, name: &str, change: &Value) -> Result<Value, kube::Error> {
        let params = PatchParams::default();
        shown(self.instances().patch(name, &params, &Patch::Merge(change)).await)
    }

    pub(crate) async fn merge_status(
        &self,
        name: &str,
        change: &Value,
    ) -> Result<Value, kube::Error> {
        let params = PatchParams::default();
        shown(self.instances().patch_status(name, &params, &Patch::Merge(change)).await)
    }

    fn instances(&self) -> Api<DynamicObject> {
        let resource = Kind::TemplateInstance.resource();
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }
}

/// The code and the message of what was refused.
pub(crate) fn refusal(answer: Result<Value, kube::Error>) -> (u16, String) {
    match answer {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("it was not refused: {other:?}"),
    }
}

fn object(metadata: &Value, spec: &Value) -> DynamicObject {
    let resource = Kind::TemplateInstance.resource();
    let object = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

fn shown(object: Result<DynamicObject, kube::Error>) -> Result<Value, kube::Error> {
    object.map(|object| serde_json::to_value(object).unwrap())
}
