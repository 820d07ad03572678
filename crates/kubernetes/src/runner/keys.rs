//! The keys that reports are sealed to: in a Secret of ours, the newest for new runs, older ones for runs
//! that began before.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use agent::{KeyPair, KeySet, PublicKey};
use data_encoding::BASE64;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::calls::{CallError, call, find};
use crate::names;

/// The key of the Secret that says which key is the newest.
const NEWEST: &str = "newest";

/// How often the age of the newest key is looked at.
const LOOK: Duration = Duration::from_secs(6 * 60 * 60);

/// The keys of a broker.
pub(crate) struct Keys {
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
    pub(crate) async fn open(
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
    pub(crate) fn newest(&self) -> PublicKey {
        self.known.read().unwrap_or_else(PoisonError::into_inner).newest.clone()
    }

    /// What reports are opened with.
    pub(crate) fn all(&self) -> Arc<KeySet> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).all)
    }

    /// Reads them again: another replica may have made a new one.
    pub(crate) async fn reload(&self) -> Result<(), KeyError> {
        if let Some(secret) = find(self.secrets.get(&self.name)).await? {
            let known = read(&self.name, &secret)?;
            *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        }
        Ok(())
    }

    /// Makes a new key each `period`, for ever; to be spawned. All replicas look, one of them makes it, and the
    /// others take it over at their next look, or when a report sealed to it comes.
    pub(crate) async fn keep(&self, period: Duration) {
        loop {
            if let Err(error) = self.look(period).await {
                tracing::warn!(secret = %self.name, "the keys of reports cannot be looked at: {error}");
            }
            tokio::time::sleep(LOOK.min(period)).await;
        }
    }

    async fn look(&self, period: Duration) -> Result<(), KeyError> {
        let found = find(self.secrets.get(&self.name)).await?;
        let known = match found {
            // Reports of runs that go on are lost; those to come are not.
            None => make(&self.secrets, &self.name, &self.broker).await?,
            Some(secret) if age(&secret, Timestamp::now()) >= period => {
                self.rotate(&secret).await?
            }
            Some(secret) => read(&self.name, &secret)?,
        };
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Makes a new key, if nobody else did. The one before stays, for runs that go on; older ones go.
    async fn rotate(&self, before: &Secret) -> Result<Known, KeyError> {
        let data = before.data.iter().flatten();
        let newest = before.data.as_ref().and_then(|data| data.get(NEWEST));
        let older = data.map(|(id, _)| id).filter(|id| {
            *id != NEWEST && newest.is_none_or(|ByteString(newest)| newest != id.as_bytes())
        });
        let mut data: BTreeMap<String, Value> = older.map(|id| (id.clone(), Value::Null)).collect();
        for (id, ByteString(bytes)) in fresh() {
            data.insert(id, Value::String(BASE64.encode(&bytes)));
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "resourceVersion": before.metadata.resource_version,
                "annotations": {names::ROTATED: Timestamp::now().to_string()},
            },
            "data": data,
        }));
        match call(self.secrets.patch(&self.name, &PatchParams::default(), &patch)).await {
            Ok(secret) => {
                tracing::info!(secret = %self.name, "runs to come have a new key for their reports");
                read(&self.name, &secret)
            }
            // Another replica came first.
            Err(CallError::Conflict) => {
                read(&self.name, &call(self.secrets.get(&self.name)).await?)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// How old the newest key is. One whose age is not known is as old as its Secret.
fn age(secret: &Secret, now: Timestamp) -> Duration {
    let annotations = secret.metadata.annotations.as_ref();
    let rotated = annotations.and_then(|all| all.get(names::ROTATED)?.parse().ok());
    let made = secret.metadata.creation_timestamp.as_ref().map(|made| made.0);
    let made = rotated.or(made).unwrap_or(now);
    Duration::try_from(now.duration_since(made)).unwrap_or_default()
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
