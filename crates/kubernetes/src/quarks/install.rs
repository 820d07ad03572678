//! Installs the definitions of QuarksJob and ExtendedJob, and finds out which kinds the API server knows.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;

use super::Controller;
use super::api::definition::definition;
use super::api::dialect::Dialect;
use crate::calls::CallError;
use crate::install::{self, InstallError, knows};

/// How often the API server is asked for the kinds that it does not know yet.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The kinds that the API server knows.
pub(super) async fn installed(client: &Client) -> Result<Vec<Dialect>, CallError> {
    let mut installed = Vec::new();
    for dialect in Dialect::ALL {
        if knows(client, &dialect.resource()).await? {
            installed.push(dialect);
        }
    }
    Ok(installed)
}

/// Applies the definitions of both kinds, and waits until they are served.
///
/// # Errors
/// If the API server refuses a definition, or does not serve it within 15 s.
pub async fn install(client: Client) -> Result<(), InstallError> {
    install::install(client, Dialect::ALL.map(definition)).await
}

impl Controller {
    /// Asks the API server for the kinds that it does not know until it knows both: their definitions may come later,
    /// and an API server that has just started denies kinds that it has.
    pub(super) async fn follow_definitions(self: Arc<Self>) {
        while self.dialects.borrow().len() < Dialect::ALL.len() {
            tokio::time::sleep(ASK_AGAIN).await;
            let Ok(known) = installed(&self.client).await else { continue };
            // A kind that was known and is now denied is watched already, and stays known.
            let is_news = |it: &Dialect| known.contains(it) || self.dialects.borrow().contains(it);
            let known: Vec<Dialect> = Dialect::ALL.into_iter().filter(is_news).collect();
            if known.len() > self.dialects.borrow().len() {
                tracing::info!(?known, "the API server knows more kinds than before");
                self.table().expects(known.len());
                self.dialects.send_replace(known);
            }
        }
    }
}
