//! Installs CustomResourceDefinitions, and finds out which kinds the API server serves.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::discovery::ApiResource;
use serde_json::Value;

use crate::calls::{CallError, call, find};
use crate::names;

/// How long the API server may take to serve a new kind.
const ESTABLISHED: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

/// Why a CustomResourceDefinition cannot be installed.
#[derive(Debug, thiserror::Error)]
#[error("the definition {0} cannot be installed: {1}")]
pub struct InstallError(String, String);

/// The kinds of an `apiVersion`; none if the API server does not serve it, or not yet.
pub(crate) async fn kinds(
    client: &Client,
    api_version: &str,
) -> Result<Vec<APIResource>, CallError> {
    let asked = match api_version.contains('/') {
        true => find(client.list_api_group_resources(api_version)).await,
        false => find(client.list_core_api_resources(api_version)).await,
    };
    match asked {
        Ok(served) => Ok(served.map(|served| served.resources).unwrap_or_default()),
        Err(CallError::Unserved) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Whether the API server serves a kind; one that has just started may not serve it yet.
pub(crate) async fn knows(client: &Client, resource: &ApiResource) -> Result<bool, CallError> {
    let kinds = kinds(client, &resource.api_version).await?;
    Ok(kinds.iter().any(|kind| kind.name == resource.plural))
}

/// Applies CustomResourceDefinitions, and waits until their kinds are served.
pub(crate) async fn install(
    client: Client,
    definitions: impl IntoIterator<Item = Value>,
) -> Result<(), InstallError> {
    let api = api(client);
    for definition in definitions {
        install_one(&api, &definition).await?;
    }
    Ok(())
}

/// Whether there is a CustomResourceDefinition of this name.
pub(crate) async fn is_defined(client: &Client, name: &str) -> Result<bool, CallError> {
    Ok(find(api(client.clone()).get_metadata(name)).await?.is_some())
}

fn api(client: Client) -> Api<DynamicObject> {
    let kind = ApiResource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "apiextensions.k8s.io/v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
    };
    Api::all_with(client, &kind)
}

async fn install_one(api: &Api<DynamicObject>, definition: &Value) -> Result<(), InstallError> {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let failed = |error: CallError| InstallError(name.clone(), error.to_string());
    // A definition that somebody else has made is taken over.
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
    let late = |_| {
        InstallError(name.clone(), format!("it is not served after {} s", ESTABLISHED.as_secs()))
    };
    tokio::time::timeout(ESTABLISHED, served).await.map_err(late)?
}

fn is_established(definition: &DynamicObject) -> bool {
    let conditions = definition.data["status"]["conditions"].as_array();
    let mut holding = conditions.into_iter().flatten().filter(|it| it["status"] == "True");
    holding.any(|condition| condition["type"] == "Established")
}
