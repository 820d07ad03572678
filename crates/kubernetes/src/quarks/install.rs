//! Installs the definitions of what is run, and finds out which are.

use kube::Client;

use super::api::definition::definition;
use super::api::dialect::Dialect;
use crate::calls::CallError;
use crate::install::{self, InstallError, knows};

/// Those that the API server knows.
pub(super) async fn installed(client: &Client) -> Result<Vec<Dialect>, CallError> {
    let mut installed = Vec::new();
    for dialect in Dialect::ALL {
        if knows(client, &dialect.resource()).await? {
            installed.push(dialect);
        }
    }
    Ok(installed)
}

/// Applies the definitions, and waits until they are served.
///
/// # Errors
/// If the API server does not take one, or does not serve it within 15 s.
pub async fn install(client: Client) -> Result<(), InstallError> {
    install::install(client, Dialect::ALL.map(definition)).await
}
