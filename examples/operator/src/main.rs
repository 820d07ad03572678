//! Serves the settings broker; the README lists the variables that say how.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use operator::{Followed, Replica};
use osb::server::{Authentication, TlsSource};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Who may order.
const USER: &str = "platform";
/// How long a pod that is to go still takes what comes: so long may it be sent something by those who have
/// not heard yet.
const LINGER: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log()?;
    let end = told_to_end()?;
    let authentication = authentication()?;
    let tls = tls()?;
    let namespace = required("POD_NAMESPACE", "the namespace of everything that is made")?;
    let identity = required("POD_NAME", "a name that no other replica has")?;
    let listen = optional("LISTEN").unwrap_or_else(|| "0.0.0.0:8080".to_owned());
    let listener = TcpListener::bind(&listen).await.with_context(|| {
        format!("LISTEN: {listen} cannot be listened on: give an address and a port that are free")
    })?;
    let client = kubernetes::client(None).await.context("KUBECONFIG")?;
    tracing::info!(address = %listener.local_addr()?, tls = tls.is_some(), "listening");
    let replica = Replica { namespace, identity, authentication, tls };
    operator::serve(client, replica, listener, end).await?;
    tracing::info!("ended");
    Ok(())
}

/// Lines of JSON, on a terminal of text; `RUST_LOG` says which.
fn log() -> anyhow::Result<()> {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    let filter = filter.from_env().context("RUST_LOG: give a level, as info or debug")?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        lines.init();
    } else {
        lines.json().flatten_event(true).init();
    }
    Ok(())
}

/// By SIGTERM, as Kubernetes ends a pod, after a while; by SIGINT at once.
fn told_to_end() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tokio::time::sleep(LINGER).await,
            _ = interrupt.recv() => {}
        }
    })
}

/// The user, with the passwords that are in the file now.
fn authentication() -> anyhow::Result<Authentication> {
    const FILE: &str = "PLATFORM_PASSWORD_FILE";
    let file = PathBuf::from(required(FILE, "the file with the password of the user platform")?);
    let known = Followed::open(move || operator::credentials(USER, &file).context(FILE))?;
    tokio::spawn(Arc::clone(&known).keep());
    Ok(Authentication::Credentials(Arc::new(move || known.current())))
}

/// The certificate that is in the files now; none: plain HTTP.
fn tls() -> anyhow::Result<Option<TlsSource>> {
    let [chain, key] = ["TLS_CERTIFICATE_FILE", "TLS_KEY_FILE"];
    let (chain, key) = match (optional(chain), optional(key)) {
        (None, None) => return Ok(None),
        (Some(chain), Some(key)) => (PathBuf::from(chain), PathBuf::from(key)),
        (Some(_), None) => {
            bail!("{key}: is not set, and {chain} is: set both, or none for plain HTTP")
        }
        (None, Some(_)) => {
            bail!("{chain}: is not set, and {key} is: set both, or none for plain HTTP")
        }
    };
    let both = "TLS_CERTIFICATE_FILE, TLS_KEY_FILE";
    let read = move || operator::certificate(&chain, &key).context(both);
    let current = Followed::open(read)?;
    tokio::spawn(Arc::clone(&current).keep());
    Ok(Some(Arc::new(move || current.current())))
}

fn required(name: &str, what: &str) -> anyhow::Result<String> {
    optional(name).with_context(|| format!("{name}: is not set: give {what}"))
}

/// An empty variable is as good as none.
fn optional(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
