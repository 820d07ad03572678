//! The connection to the API server.

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::AuthError;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

/// How long connecting may take: a working server accepts within this time, and a frozen one is not waited for.
const CONNECT: Duration = Duration::from_secs(5);

/// How long a connection may be silent after a request: watches end after a minute, and no other answer takes as long.
const SILENT: Duration = Duration::from_secs(90);

/// Why there is no connection. In our own words where the client's message would show secrets: the lines around a
/// mistake in a kubeconfig, or the output of the command that provides credentials.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig cannot be used, or there is none.
    #[error("the kubeconfig cannot be used: {0}")]
    Kubeconfig(String),
    /// There is neither a kubeconfig nor a pod's service account.
    #[error(
        "no cluster is configured: give a kubeconfig, or run in a pod with a service account: {0}"
    )]
    Nowhere(String),
    /// The kubeconfig says how to obtain credentials, and that fails.
    #[error("there are no credentials for the cluster: {0}")]
    Credentials(String),
    /// The configuration cannot be used for a client, for example because of a bad certificate.
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

/// The reason, if an error is about credentials that could not be obtained: without the credentials, and without the
/// output of the command that provides them.
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

/// A client for the cluster of a kubeconfig; without one, for that of `KUBECONFIG`, of `~/.kube/config` or of the pod
/// that this process runs in. Nothing is sent yet.
///
/// The client retries nothing by itself: after a timeout a write may have taken effect, and only the caller knows how
/// to tell. A request without an answer for 90 s fails: the API server may have vanished silently, and a list or a
/// watch that begins just then would wait for ever. A followed log breaks off then, too.
///
/// # Errors
/// If nothing is configured, or what is configured cannot be used.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, ClientError> {
    built(kubeconfig, None, Some(SILENT)).await
}

/// A client like [`client`]'s for a context of the kubeconfig, or its current one. A user who names a context does not
/// mean the cluster of a pod. For interactive use, where logs are followed: a connection may be silent for ever.
///
/// # Errors
/// As [`client`], and if the kubeconfig has no such context.
pub async fn client_of(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Client, ClientError> {
    built(kubeconfig, context, None).await
}

async fn built(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
    silent: Option<Duration>,
) -> Result<Client, ClientError> {
    let mut config = configured(kubeconfig, context).await?;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = silent;
    // The time counts from the request, not from the last answer.
    config.reset_reader_on_write = true;
    config.default_retry = false;
    // The name by which audit logs and `metadata.managedFields` show our writes.
    let agent = HeaderValue::from_static(concat!("manciple/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let command = config.auth_info.exec.as_ref().and_then(|exec| exec.command.clone());
    Client::try_from(config).map_err(|error| match (ClientError::from(error), command) {
        (ClientError::Credentials(why), Some(command)) => {
            ClientError::Credentials(format!("{command}: {why}"))
        }
        (error, _) => error,
    })
}

async fn configured(
    kubeconfig: Option<&Path>,
    context: Option<&str>,
) -> Result<Config, ClientError> {
    let found = match (kubeconfig, std::env::var_os("KUBECONFIG")) {
        (Some(path), _) => Some(Kubeconfig::read_from(path)?),
        // A kubeconfig without a current context names no cluster.
        (None, Some(list)) => {
            listed(&list)?.filter(|found| context.is_some() || found.current_context.is_some())
        }
        (None, None) => None,
    };
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..Default::default() };
    Ok(match found {
        Some(found) => Config::from_custom_kubeconfig(found, &options).await?,
        None if context.is_some() => Config::from_kubeconfig(&options).await?,
        None => Config::infer().await?,
    })
}

/// The merged files of a list, as `kubectl` reads `KUBECONFIG`: missing files are ignored. `None` if all are missing.
fn listed(files: &OsStr) -> Result<Option<Kubeconfig>, KubeconfigError> {
    let is_there = |path: &Path| {
        let found = fs::metadata(path);
        !path.as_os_str().is_empty()
            && !found.is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    let mut all = None;
    for path in std::env::split_paths(files).filter(|path| is_there(path)) {
        all = Some(all.unwrap_or_else(Kubeconfig::default).merge(Kubeconfig::read_from(path)?)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::runtime::watcher::watcher;

    use super::*;

    /// As where a machine is gone, and nobody says so.
    #[tokio::test]
    async fn what_begins_to_list_hears_in_the_end_that_nobody_answers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c}}}}],\n\
             clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]}}",
            listener.local_addr().unwrap()
        );
        std::fs::write(&file, config).unwrap();
        let client = built(Some(&file), None, Some(Duration::from_millis(300))).await.unwrap();
        let maps = watcher(Api::<ConfigMap>::all(client), crate::calls::watching());
        futures_util::pin_mut!(maps);
        let heard = async {
            // That it begins is an event too.
            while maps.next().await.unwrap().is_ok() {}
        };
        tokio::time::timeout(Duration::from_secs(30), heard).await.expect("an error");
    }

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

    #[tokio::test]
    async fn a_command_for_credentials_that_is_not_there_is_named() {
        let exec = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, \
                    interactiveMode: Never}}";
        let said = refused(exec).await;
        assert!(said.contains("no-such-plugin: ") && said.contains("No such file"), "{said}");
    }

    /// A kubeconfig with one context, and what it is called.
    fn of_context(name: &str, is_current: bool) -> String {
        let current = if is_current { format!("current-context: {name}, ") } else { String::new() };
        format!(
            "{{apiVersion: v1, kind: Config, {current}\
             contexts: [{{name: {name}, context: {{cluster: {name}, user: u, namespace: of-{name}}}}}],\
             clusters: [{{name: {name}, cluster: {{server: 'http://127.0.0.1:9'}}}}],\
             users: [{{name: u, user: {{}}}}]}}"
        )
    }

    #[test]
    fn of_several_files_those_that_are_there_count_and_the_first_before_the_second() {
        let folder = tempfile::tempdir().unwrap();
        for (name, is_current) in [("a", false), ("b", true), ("c", true)] {
            std::fs::write(folder.path().join(name), of_context(name, is_current)).unwrap();
        }
        for (files, current) in [
            (vec!["b"], Some("b")),
            (vec!["none", "b"], Some("b")),
            (vec!["b", "none"], Some("b")),
            (vec!["a", "c", "b"], Some("c")),
            (vec!["none"], None),
            (vec![], None),
        ] {
            let paths = files.iter().map(|file| folder.path().join(file));
            let list = std::env::join_paths(paths).unwrap();
            let found = listed(&list).unwrap().and_then(|found| found.current_context);
            assert_eq!(found.as_deref(), current, "{files:?}");
        }
    }

    #[tokio::test]
    async fn a_context_is_that_which_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        std::fs::write(&file, of_context("a", false)).unwrap();
        let client = client_of(Some(&file), Some("a")).await.unwrap();
        assert_eq!(client.default_namespace(), "of-a");
        for (context, words) in [(Some("z"), "z"), (None, "context")] {
            let said = client_of(Some(&file), context).await.err().unwrap().to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
