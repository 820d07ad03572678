//! The keys that reports are sealed to: in a Secret of ours, the newest for new runs, older ones for runs
//! that began before.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use agent::{KeyPair, KeySet, PublicKey};
use data_encoding::BASE64;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::calls::{CallError, call, find};
use crate::names;

/// The key of the Secret that says which key is the newest.
const NEWEST: &str = "newest";

/// The keys of a broker.
pub(super) struct Keys {
    secrets: Api<Secret>,
    name: String,
    broker: String,
    known: RwLock<Known>,
}

#[derive(Clone)]
struct Known {
    newest: PublicKey,
    all: Arc<KeySet>,
}

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the Secret {0} holds no usable keys: {1}; remove it to have new ones made")]
    Unusable(String, String),
}

impl Keys {
    /// Reads them, or makes the first.
    pub(super) async fn open(
        client: Client,
        namespace: &str,
        broker: &str,
    ) -> Result<Self, KeyError> {
        let secrets: Api<Secret> = Api::namespaced(client, namespace);
        let broker = names::broker_label(broker);
        let name = format!("keys-{broker}");
        let known = match find(secrets.get(&name)).await? {
            Some(secret) => read(&name, &secret)?,
            None => make(&secrets, &name, &broker).await?,
        };
        Ok(Self { secrets, name, broker, known: RwLock::new(known) })
    }

    /// What new runs are sealed to.
    pub(super) fn newest(&self) -> PublicKey {
        self.known.read().unwrap_or_else(PoisonError::into_inner).newest.clone()
    }

    /// What reports are opened with.
    pub(super) fn all(&self) -> Arc<KeySet> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).all)
    }

    /// Reads them again: another replica may have made a new one.
    pub(super) async fn reload(&self) -> Result<(), KeyError> {
        if let Some(secret) = find(self.secrets.get(&self.name)).await? {
            let known = read(&self.name, &secret)?;
            *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        }
        Ok(())
    }

    /// Makes a new key; runs that began before go on with theirs.
    pub(super) async fn rotate(&self) -> Result<(), KeyError> {
        let encoded =
            fresh().into_iter().map(|(key, ByteString(bytes))| (key, BASE64.encode(&bytes)));
        let data: BTreeMap<String, String> = encoded.collect();
        let patch = Patch::Merge(json!({"data": data}));
        match call(self.secrets.patch(&self.name, &PatchParams::default(), &patch)).await {
            Ok(_) => {}
            Err(CallError::NotFound) => {
                let made = make(&self.secrets, &self.name, &self.broker).await?;
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = made;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        self.reload().await
    }
}

/// A new pair, as it stands in the Secret.
fn fresh() -> BTreeMap<String, ByteString> {
    let pair = KeyPair::generate();
    let id = pair.public().id();
    let private = ByteString(pair.to_base64().as_bytes().to_vec());
    [(id.clone(), private), (NEWEST.to_owned(), ByteString(id.into_bytes()))].into()
}

async fn make(secrets: &Api<Secret>, name: &str, broker: &str) -> Result<Known, KeyError> {
    let unusable = |why: String| KeyError::Unusable(name.to_owned(), why);
    let labels = json!({names::MANAGED_BY.0: names::MANAGED_BY.1, names::BROKER: broker});
    let mut secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))
            .map_err(|error| unusable(error.to_string()))?;
    secret.data = Some(fresh());
    match call(secrets.create(&PostParams::default(), &secret)).await {
        Ok(_) => read(name, &secret),
        // Another replica came first.
        Err(CallError::Exists) => read(name, &call(secrets.get(name)).await?),
        Err(error) => Err(error.into()),
    }
}

fn read(name: &str, secret: &Secret) -> Result<Known, KeyError> {
    let unusable = |why: &str| KeyError::Unusable(name.to_owned(), why.to_owned());
    let data = secret.data.as_ref().ok_or_else(|| unusable("it is empty"))?;
    let newest = data.get(NEWEST).ok_or_else(|| unusable("it has no `newest`"))?;
    let mut pairs = Vec::new();
    let mut public = None;
    for (id, ByteString(private)) in data.iter().filter(|(id, _)| *id != NEWEST) {
        let text = std::str::from_utf8(private).map_err(|_| unusable("a key is not text"))?;
        let pair = KeyPair::from_base64(text).map_err(|error| unusable(&error.to_string()))?;
        if id.as_bytes() == newest.0 {
            public = Some(pair.public().clone());
        }
        pairs.push(pair);
    }
    let newest = public.ok_or_else(|| unusable("the newest key is not there"))?;
    Ok(Known { newest, all: Arc::new(pairs.into_iter().collect()) })
}
