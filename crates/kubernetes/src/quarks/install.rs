//! Installs the definitions of what is run, and finds out which are.

use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::discovery::ApiResource;
use serde_json::Value;

use super::definition::definition;
use super::dialect::Dialect;
use crate::calls::{CallError, call, find};
use crate::names;

/// How long the API server may take to serve it.
const ESTABLISHED: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

/// Why it is not installed.
#[derive(Debug, thiserror::Error)]
#[error("the definitions of QuarksJob and ExtendedJob cannot be installed: {0}")]
pub struct InstallError(String);

/// Those that the API server knows.
pub(super) async fn installed(client: &Client) -> Result<Vec<Dialect>, CallError> {
    let mut installed = Vec::new();
    for dialect in Dialect::ALL {
        let known = find(client.list_api_group_resources(&dialect.api_version())).await?;
        let resources = known.into_iter().flat_map(|known| known.resources);
        if resources.into_iter().any(|resource| resource.name == dialect.plural()) {
            installed.push(dialect);
        }
    }
    Ok(installed)
}

/// Applies the definitions, and waits until they are served.
///
/// # Errors
/// If the API server does not take it, or does not serve it within 15 s.
pub async fn install(client: Client) -> Result<(), InstallError> {
    let kind = ApiResource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "apiextensions.k8s.io/v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client, &kind);
    for dialect in Dialect::ALL {
        install_one(&api, &definition(dialect)).await?;
    }
    Ok(())
}

async fn install_one(api: &Api<DynamicObject>, definition: &Value) -> Result<(), InstallError> {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let failed = |error: CallError| InstallError(error.to_string());
    // One that the original operator has made is taken over.
    let apply = PatchParams::apply(names::MANAGED_BY.1).force();
    let mut made =
        call(api.patch(&name, &apply, &Patch::Apply(definition))).await.map_err(failed)?;
    let served = async {
        while !is_established(&made) {
            tokio::time::sleep(LOOK).await;
            made = call(api.get(&name)).await.map_err(failed)?;
        }
        Ok(())
    };
    let late = |_| InstallError(format!("it is not served after {} s", ESTABLISHED.as_secs()));
    tokio::time::timeout(ESTABLISHED, served).await.map_err(late)?
}

fn is_established(definition: &DynamicObject) -> bool {
    let conditions = definition.data["status"]["conditions"].as_array();
    let mut holding = conditions.into_iter().flatten().filter(|it| it["status"] == "True");
    holding.any(|condition| condition["type"] == "Established")
}
