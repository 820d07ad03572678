//! A webhook that the API server of the test cluster asks about one namespace.

use std::sync::Arc;

use axum::Router;
use data_encoding::BASE64;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubernetes::Client;
use osb::server::rustls::ServerConfig;
use osb::server::rustls::crypto::ring::default_provider;
use osb::server::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use osb::server::{Limits, TlsSource};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Where it answers.
pub(crate) const PATH: &str = "/admission";
const LABEL: &str = "webhook-test";

/// It answers for as long as this lives. The cluster forgets it when it is dropped, also by a test that fails.
pub(crate) struct Hook {
    /// Of the configuration.
    name: String,
    _serving: JoinSet<()>,
}

impl Hook {
    /// Serves `routes`, and has the API server ask about what these `rules` name in the namespace. It hears of that a
    /// moment later.
    pub(crate) async fn new(
        client: &Client,
        namespace: &str,
        rules: Value,
        routes: Router,
    ) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let tls: TlsSource = Arc::new(move || Arc::clone(&config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let never = std::future::pending();
            osb::server::serve(listener, routes, Some(tls), Limits::default(), never).await;
        });
        let label = json!({"metadata": {"labels": {LABEL: namespace}}});
        Api::<Namespace>::all(client.clone())
            .patch(namespace, &PatchParams::default(), &Patch::Merge(&label))
            .await
            .unwrap();
        let name = format!("webhook-{namespace}");
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": name},
            "webhooks": [{
                "name": "webhook.manciple.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "reinvocationPolicy": "IfNeeded",
                "clientConfig": {
                    "url": format!("https://{address}{PATH}"),
                    "caBundle": BASE64.encode(made.cert.pem().as_bytes()),
                },
                "namespaceSelector": {"matchLabels": {LABEL: namespace}},
                "rules": rules,
            }],
        }))
        .unwrap();
        let hook = Self { name, _serving: serving };
        let configurations = Api::<MutatingWebhookConfiguration>::all(client.clone());
        configurations.create(&PostParams::default(), &configuration).await.unwrap();
        hook
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        let name = self.name.clone();
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let kubeconfig = testkit::cluster::kubeconfig().unwrap();
                let client = kubernetes::client(Some(&kubeconfig)).await.unwrap();
                let configurations = Api::<MutatingWebhookConfiguration>::all(client);
                let _ = configurations.delete(&name, &DeleteParams::default()).await;
            });
        });
        let _ = removal.join();
    }
}
