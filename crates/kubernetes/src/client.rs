//! The connection to the API server.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::AuthError;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// A server that is there accepts within this time; one that is frozen is not waited for.
const CONNECT: Duration = Duration::from_secs(5);

/// Why there is no connection. In words of ours where the client's own would show what is secret: the lines around
/// a mistake in a kubeconfig, what the command prints that makes credentials.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used, or there is none.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    /// Neither a kubeconfig nor a pod's service account is to be found.
    #[error(
        "no cluster is configured: give a kubeconfig, or run in a pod with a service account: {0}"
    )]
    Nowhere(String),
    /// The kubeconfig says how they are to be had, and that fails.
    #[error("there are no credentials for the cluster: {0}")]
    Credentials(String),
    /// The configuration is there and makes no client: a bad certificate, for one.
    #[error("the connection to the cluster cannot be prepared: {0}")]
    Unusable(kube::Error),
}

impl From<KubeconfigError> for ClientError {
    fn from(error: KubeconfigError) -> Self {
        Self::Kubeconfig(of_kubeconfig(&error))
    }
}

impl From<InferConfigError> for ClientError {
    fn from(error: InferConfigError) -> Self {
        let kubeconfig = error.source().and_then(|source| source.downcast_ref());
        match kubeconfig {
            Some(bad @ KubeconfigError::Parse(_)) => Self::Kubeconfig(of_kubeconfig(bad)),
            _ => Self::Nowhere(error.to_string()),
        }
    }
}

impl From<kube::Error> for ClientError {
    fn from(error: kube::Error) -> Self {
        match of_credentials(&error) {
            Some(words) => Self::Credentials(words),
            None => Self::Unusable(error),
        }
    }
}

fn of_kubeconfig(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!("line {} is not as it should be", at.line()),
            None => "it is no YAML, or no kubeconfig".to_owned(),
        },
        error => error.to_string(),
    }
}

/// If it is credentials that could not be had: why, without what they are, or what the command says that makes them.
pub fn of_credentials(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = error;
    let error = loop {
        match cause.downcast_ref::<AuthError>() {
            Some(error) => break error,
            None => cause = cause.source()?,
        }
    };
    Some(match error {
        AuthError::AuthExecRun { out, .. } => {
            format!("the command that makes them ended with {}", out.status)
        }
        AuthError::AuthExecParse(_) | AuthError::ParseTokenKey(_) => {
            "what the command prints that makes them is not as it should be".to_owned()
        }
        error => error.to_string(),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A kubeconfig of a user like this.
    async fn refused(user: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c,\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}],\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:9'}}}}],\n\
             users: [{{name: u, user:\n{user}}}]}}"
        );
        std::fs::write(&file, config).unwrap();
        client(Some(&file)).await.err().unwrap().to_string()
    }

    #[tokio::test]
    async fn nothing_secret_is_said_of_what_cannot_be_used() {
        let exec = |script: &str| {
            format!(
                "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, '{script}'],\n\
                 env: [{{name: A, value: planted}}], interactiveMode: Never}}}}"
            )
        };
        for (user, words) in [
            ("{token: {planted: planted}}".to_owned(), "line 5 is not as it should be"),
            (exec("echo planted; exit 3"), "ended with exit status: 3"),
            (exec("echo planted"), "is not as it should be"),
        ] {
            let said = refused(&user).await;
            assert!(said.contains(words) && !said.contains("planted"), "{said}");
        }
    }
}
