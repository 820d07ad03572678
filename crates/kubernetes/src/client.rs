//! The connection to the API server.

use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// A server that is there accepts within this time; one that is frozen is not waited for.
const CONNECT: Duration = Duration::from_secs(5);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used, or there is none.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    /// Neither a kubeconfig nor a pod's service account is to be found.
    #[error(
        "no cluster is configured: give a kubeconfig, or run in a pod with a service account: {0}"
    )]
    Nowhere(#[from] kube::config::InferConfigError),
    /// The configuration is there and makes no client: a bad certificate, for one.
    #[error("the connection to the cluster cannot be prepared: {0}")]
    Unusable(#[from] kube::Error),
}

/// A client for the cluster of a kubeconfig; without one, for that of `KUBECONFIG`, of `~/.kube/config` or
/// of the pod that this runs in. Nothing is sent yet.
///
/// It tries nothing again by itself: after a timeout a write may have taken effect, and only who wrote
/// knows how to tell.
///
/// # Errors
/// If nothing is configured, or what is configured cannot be used.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await?,
    };
    config.connect_timeout = Some(CONNECT);
    config.default_retry = false;
    // Who wrote what, in audit logs and in metadata.managedFields.
    let agent = HeaderValue::from_static(concat!("manciple/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    Ok(Client::try_from(config)?)
}
