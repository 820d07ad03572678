//! The saved catalog, in a ConfigMap that all replicas watch. The secrets of dashboard clients in it are only in a
//! Secret.
//!
//! ```text
//! Secret catalog-…     the whole of it, written first; only where it has secrets
//! ConfigMap catalog-…  the same without them, and a word that is another after each save
//! ```
//!
//! A process that dies between the two writes leaves a Secret that is newer than its ConfigMap: readers can use it, and
//! where it differs from what the brokers offer it is saved anew.

use data_encoding::BASE64;
use engine::ports::StoreError;
use k8s_openapi::ByteString;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::RecordApi;
use super::secrets::unique;
use crate::calls::{call, find, there, version_of};
use crate::names;

/// How many bytes of JSON a saved catalog has at most: neither a ConfigMap nor a Secret holds more than 1 MiB.
const MAX_BYTES: usize = 1024 * 1024 - 4096;
const TEXT: &str = "catalog.json";
/// The key of the word that changes with each save of a catalog with secrets: these alone may have changed.
const REVISION: &str = "revision";

/// A catalog as it was read or saved.
pub(super) struct SavedCatalog<T> {
    pub(super) catalog: T,
    /// The `resourceVersion` of its ConfigMap.
    pub(super) version: u64,
    /// Whether the catalog has a Secret.
    pub(super) has_secret: bool,
}

impl RecordApi {
    pub(super) fn catalog_name(&self) -> String {
        names::catalog(&self.broker)
    }

    /// Reads the saved catalog. Where its Secret was removed, it is read without the secrets.
    pub(super) async fn read_catalog(&self) -> Result<Option<SavedCatalog<Value>>, StoreError> {
        let name = self.catalog_name();
        let Some(kept) = find(self.config_maps().get(&name)).await? else { return Ok(None) };
        let version = version_of(kept.metadata.resource_version.as_deref());
        let mut data = kept.data.unwrap_or_default();
        let has_secret = data.contains_key(REVISION);
        let whole = match has_secret {
            true => self.secret_catalog(&name).await?,
            false => None,
        };
        let unreadable = |why: serde_json::Error| StoreError::Unreadable {
            key: format!("the catalog in ConfigMap {name}"),
            why: why.to_string(),
        };
        let text = data.remove(TEXT).unwrap_or_default();
        let catalog = match whole {
            Some(whole) => whole,
            // Secrets that an earlier release has kept there in clear are ignored: so the next catalog differs, and is
            // saved over it.
            None => {
                let mut open = serde_json::from_str(&text).map_err(unreadable)?;
                without_secrets(&mut open);
                open
            }
        };
        Ok(Some(SavedCatalog { catalog, version, has_secret }))
    }

    async fn secret_catalog(&self, name: &str) -> Result<Option<Value>, StoreError> {
        let found = find(self.secrets().get(name)).await?;
        let text = found.and_then(|secret| secret.data.unwrap_or_default().remove(TEXT));
        let whole = text.and_then(|ByteString(text)| serde_json::from_slice(&text).ok());
        if whole.is_none() {
            tracing::warn!(
                secret = name,
                "the secrets of dashboard clients are gone with the Secret of the catalog: they are not in the catalog \
                 until the broker is asked again"
            );
        }
        Ok(whole)
    }

    /// Saves a catalog; `had_secret`: the previous one may have a Secret.
    pub(super) async fn write_catalog(
        &self,
        catalog: &Value,
        had_secret: bool,
    ) -> Result<SavedCatalog<()>, StoreError> {
        let whole = catalog.to_string();
        if whole.len() > MAX_BYTES {
            let length = whole.len();
            let why = format!("the catalog is {length} bytes long; a ConfigMap holds {MAX_BYTES}");
            return Err(StoreError::TooLarge(why));
        }
        let mut open = catalog.clone();
        let has_secret = without_secrets(&mut open);
        let mut data = json!({TEXT: open.to_string()});
        if has_secret {
            self.apply_secret(&whole).await?;
            data[REVISION] = unique()?.into();
        }
        let mut config_map = self.of_catalog("ConfigMap");
        config_map["data"] = data;
        let (name, config_maps) = (self.catalog_name(), self.config_maps());
        let saved = call(config_maps.patch(&name, &apply(), &Patch::Apply(config_map))).await?;
        if had_secret && !has_secret {
            there(call(self.secrets().delete(&name, &DeleteParams::default())).await)?;
        }
        let version = version_of(saved.metadata.resource_version.as_deref());
        Ok(SavedCatalog { catalog: (), version, has_secret })
    }

    async fn apply_secret(&self, whole: &str) -> Result<(), StoreError> {
        let mut secret = self.of_catalog("Secret");
        secret["data"] = json!({TEXT: BASE64.encode(whole.as_bytes())});
        let (name, secrets) = (self.catalog_name(), self.secrets());
        call(secrets.patch(&name, &apply(), &Patch::Apply(secret))).await?;
        Ok(())
    }

    fn of_catalog(&self, kind: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {
                "name": self.catalog_name(),
                "labels": {
                    names::MANAGED_BY.0: names::MANAGED_BY.1,
                    names::BROKER: self.broker,
                    names::KEEPS: names::KEEPS_CATALOG,
                },
                "annotations": {names::BROKER_NAME: self.settings.broker},
            },
        })
    }
}

fn apply() -> PatchParams {
    PatchParams::apply(names::MANAGED_BY.1).force()
}

/// Removes the secrets of dashboard clients, wherever they are; whether there were any.
fn without_secrets(value: &mut Value) -> bool {
    match value {
        Value::Object(members) => {
            let client = members.get_mut("dashboard_client").and_then(Value::as_object_mut);
            let had = client.is_some_and(|client| client.remove("secret").is_some());
            // All members are visited, not only up to the first with a secret.
            let within = members.values_mut().map(without_secrets).filter(|had| *had).count();
            had || within > 0
        }
        Value::Array(items) => items.iter_mut().map(without_secrets).filter(|had| *had).count() > 0,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::without_secrets;

    #[test]
    fn secrets_of_dashboard_clients_are_taken_out_wherever_they_stand() {
        let client = |secret| json!({"id": "c", "secret": secret, "redirect_uri": "https://d"});
        let open = json!({"id": "c", "redirect_uri": "https://d"});
        let cases = [
            ("none", json!({"catalog": {"services": [{"id": "s"}]}}), None),
            (
                "of a service",
                json!({"catalog": {"services": [{"id": "s"}, {"dashboard_client": client("x")}]}}),
                Some(json!({"catalog": {"services": [{"id": "s"}, {"dashboard_client": open}]}})),
            ),
            (
                "of one that was withdrawn",
                json!({"former": [{"service": {"dashboard_client": client("x")}}]}),
                Some(json!({"former": [{"service": {"dashboard_client": open}}]})),
            ),
            ("a client without one", json!({"services": [{"dashboard_client": open}]}), None),
            ("no object", json!({"dashboard_client": ["secret"], "secret": "of a schema"}), None),
        ];
        for (name, before, after) in cases {
            let mut value = before.clone();
            assert_eq!(without_secrets(&mut value), after.is_some(), "{name}");
            assert_eq!(value, after.unwrap_or(before), "{name}");
        }
    }
}
