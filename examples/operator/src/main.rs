//! Serves the settings broker on port 8080: `POD_NAMESPACE` says where, `PLATFORM_PASSWORD_FILE` holds the
//! password of the user `platform`.

use anyhow::Context;
use osb::server::Credentials;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name}: is not set"));
    let namespace = variable("POD_NAMESPACE")?;
    let identity = variable("POD_NAME").unwrap_or_else(|_| std::process::id().to_string());
    let file = variable("PLATFORM_PASSWORD_FILE")?;
    let password = std::fs::read_to_string(&file).context(file)?;
    let credentials = Credentials::new().user("platform", password.trim_end(), "platform");
    let listener = TcpListener::bind("0.0.0.0:8080").await.context("port 8080")?;
    let mut terminate = signal(SignalKind::terminate())?;
    let end = async move {
        terminate.recv().await;
    };
    let client = kubernetes::client(None).await?;
    operator::serve(client, &namespace, &identity, credentials, listener, end).await
}
