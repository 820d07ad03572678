//! The keys that reports are sealed to, kept in our Secret: the newest for new runs, older ones for runs that began
//! before.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use agent::{KeyPair, KeySet, PublicKey};
use data_encoding::BASE64;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::calls::{CallError, call, find};
use crate::names;
use crate::server_time::ServerTime;

/// The entry of the Secret that names the newest key.
const NEWEST: &str = "newest";

/// How often the age of the newest key is checked.
const LOOK: Duration = Duration::from_secs(6 * 60 * 60);

/// Clocks differ by less than this.
const CLOCKS: SignedDuration = SignedDuration::from_secs(300);

/// The keys of a broker's reports.
pub(crate) struct Keys {
    secrets: Api<Secret>,
    name: String,
    broker: String,
    time: Arc<ServerTime>,
    known: RwLock<Known>,
}

#[derive(Clone)]
struct Known {
    newest: PublicKey,
    /// The newest pair as the Secret has it: its id, and the private key.
    pair: (String, ByteString),
    all: Arc<KeySet>,
}

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(
        "the Secret {0} cannot be made: there is no such namespace: create it first, or name another"
    )]
    Homeless(String),
    #[error("the Secret {0} holds no usable keys: {1}; remove it to have new ones made")]
    Unusable(String, String),
}

impl From<KeyError> for CallError {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Call(error) => error,
            error @ (KeyError::Homeless(_) | KeyError::Unusable(..)) => {
                Self::Hindered(error.to_string())
            }
        }
    }
}

impl Keys {
    /// Reads the keys, or makes the first one. `time` is of this client.
    pub(crate) async fn open(
        client: Client,
        time: Arc<ServerTime>,
        namespace: &str,
        broker: &str,
    ) -> Result<Self, KeyError> {
        let secrets: Api<Secret> = Api::namespaced(client, namespace);
        let broker = names::broker_label(broker);
        let name = names::keys(&broker);
        let known = match find(secrets.get(&name)).await? {
            Some(secret) => read(&name, &secret)?,
            None => read(&name, &make(&secrets, &name, &broker, fresh()).await?)?,
        };
        Ok(Self { secrets, name, broker, time, known: RwLock::new(known) })
    }

    /// The public key that reports of new runs are sealed to.
    pub(crate) fn newest(&self) -> PublicKey {
        self.known.read().unwrap_or_else(PoisonError::into_inner).newest.clone()
    }

    /// The keys that reports are opened with.
    pub(crate) fn all(&self) -> Arc<KeySet> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner).all)
    }

    /// Opens a report with the keys; if its key is missing, once more after they were read again: another replica may
    /// have made a new one.
    pub(crate) async fn opened<T>(
        &self,
        open: impl Fn(&KeySet) -> Result<T, agent::Error>,
    ) -> Result<Result<T, agent::Error>, KeyError> {
        let opened = open(&self.all());
        if !matches!(opened, Err(agent::Error::UnknownKey(_))) {
            return Ok(opened);
        }
        self.reload().await?;
        Ok(open(&self.all()))
    }

    async fn reload(&self) -> Result<(), KeyError> {
        let known = read(&self.name, &self.read_or_restore().await?)?;
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Reads the Secret, and puts back the key that runs of this process are sealed to. A rotation leaves it there; but
    /// if somebody removes the Secret, another replica that starts makes one without it. Once it is put back, no report
    /// is lost.
    async fn read_or_restore(&self) -> Result<Secret, KeyError> {
        let (id, private) = self.known.read().unwrap_or_else(PoisonError::into_inner).pair.clone();
        let secret = match find(self.secrets.get(&self.name)).await? {
            Some(secret) => secret,
            None => {
                tracing::warn!(secret = %self.name, "the keys of reports were removed, and are put back");
                let data = as_newest(id.clone(), private.clone());
                make(&self.secrets, &self.name, &self.broker, data).await?
            }
        };
        if secret.data.iter().any(|data| data.contains_key(&id)) {
            return Ok(secret);
        }
        tracing::warn!(secret = %self.name, "a key of reports was removed, and is put back");
        let patch = Patch::Merge(json!({"data": {id: BASE64.encode(&private.0)}}));
        Ok(call(self.secrets.patch(&self.name, &PatchParams::default(), &patch)).await?)
    }

    /// Makes a new key each `period`, for ever; to be spawned. All replicas check, one of them makes the key, and the
    /// others take it over at their next check, or when a report sealed to it comes.
    pub(crate) async fn keep(&self, period: Duration) {
        loop {
            if let Err(error) = self.look(period).await {
                tracing::warn!(secret = %self.name, "the keys of reports cannot be looked at: {error}");
            }
            tokio::time::sleep(LOOK.min(period)).await;
        }
    }

    /// The API server's time: a replica whose clock is ahead would make key after key, and each new one drops an older
    /// one that runs are still sealed to.
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(self.time.now_millis()).unwrap_or(Timestamp::MAX)
    }

    async fn look(&self, period: Duration) -> Result<(), KeyError> {
        let secret = self.read_or_restore().await?;
        let known = match age(&secret, self.now()) >= period {
            true => self.rotate(&secret).await?,
            false => read(&self.name, &secret)?,
        };
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Makes a new key, if no other replica did. The two previous ones stay, for runs that go on; older ones are
    /// dropped. One would not suffice: a replica that has not checked since begins runs with the key before the newest
    /// for up to a period, and these may go on for another.
    async fn rotate(&self, before: &Secret) -> Result<Known, KeyError> {
        let newest = before.data.as_ref().and_then(|data| data.get(NEWEST));
        let newest = newest.and_then(|ByteString(id)| String::from_utf8(id.clone()).ok());
        let annotations = before.metadata.annotations.as_ref();
        let former = annotations.and_then(|all| all.get(names::FORMER_KEY)).cloned();
        let stays = [Some(NEWEST.to_owned()), newest.clone(), former];
        let older = before.data.iter().flatten().map(|(id, _)| id);
        let older = older.filter(|id| !stays.iter().flatten().any(|stays| stays == *id));
        let mut data: BTreeMap<String, Value> = older.map(|id| (id.clone(), Value::Null)).collect();
        for (id, ByteString(bytes)) in fresh() {
            data.insert(id, Value::String(BASE64.encode(&bytes)));
        }
        let patch = Patch::Merge(json!({
            "metadata": {
                "resourceVersion": before.metadata.resource_version,
                "annotations": {
                    names::ROTATED: self.now().to_string(),
                    names::FORMER_KEY: newest,
                },
            },
            "data": data,
        }));
        match call(self.secrets.patch(&self.name, &PatchParams::default(), &patch)).await {
            Ok(secret) => {
                tracing::info!(secret = %self.name, "runs to come have a new key for their reports");
                read(&self.name, &secret)
            }
            // Another replica was faster.
            Err(CallError::Conflict) => {
                read(&self.name, &call(self.secrets.get(&self.name)).await?)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// How old the newest key is. If its age is unknown, or in the future by a clock that was ahead, it is as old as its
/// Secret: otherwise it would stay the newest until then.
fn age(secret: &Secret, now: Timestamp) -> Duration {
    let annotations = secret.metadata.annotations.as_ref();
    let rotated = annotations.and_then(|all| all.get(names::ROTATED)?.parse().ok());
    let rotated = rotated.filter(|at: &Timestamp| at.duration_since(now) <= CLOCKS);
    let made = secret.metadata.creation_timestamp.as_ref().map(|made| made.0);
    let made = rotated.or(made).unwrap_or(now);
    Duration::try_from(now.duration_since(made)).unwrap_or_default()
}

/// A new pair, as the Secret has it.
fn fresh() -> BTreeMap<String, ByteString> {
    let pair = KeyPair::generate();
    let id = pair.public().id();
    let private = ByteString(pair.to_base64().as_bytes().to_vec());
    as_newest(id, private)
}

/// The entries of the Secret for a pair that is the newest.
fn as_newest(id: String, private: ByteString) -> BTreeMap<String, ByteString> {
    let newest = ByteString(id.clone().into_bytes());
    [(id, private), (NEWEST.to_owned(), newest)].into()
}

/// Makes the Secret of the keys, if nobody else did.
async fn make(
    secrets: &Api<Secret>,
    name: &str,
    broker: &str,
    data: BTreeMap<String, ByteString>,
) -> Result<Secret, KeyError> {
    let unusable = |why: String| KeyError::Unusable(name.to_owned(), why);
    let labels = json!({names::MANAGED_BY.0: names::MANAGED_BY.1, names::BROKER: broker});
    let mut secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))
            .map_err(|error| unusable(error.to_string()))?;
    secret.data = Some(data);
    match call(secrets.create(&PostParams::default(), &secret)).await {
        Ok(secret) => Ok(secret),
        // Another replica was faster.
        Err(CallError::Exists) => Ok(call(secrets.get(name)).await?),
        Err(CallError::NotFound) => Err(KeyError::Homeless(name.to_owned())),
        Err(error) => Err(error.into()),
    }
}

fn read(name: &str, secret: &Secret) -> Result<Known, KeyError> {
    let unusable = |why: &str| KeyError::Unusable(name.to_owned(), why.to_owned());
    let data = secret.data.as_ref().ok_or_else(|| unusable("it is empty"))?;
    let newest = data.get(NEWEST).ok_or_else(|| unusable("it has no `newest`"))?;
    let mut pairs = Vec::new();
    let mut found = None;
    for (id, ByteString(private)) in data.iter().filter(|(id, _)| *id != NEWEST) {
        let text = std::str::from_utf8(private).map_err(|_| unusable("a key is not text"))?;
        let pair = KeyPair::from_base64(text).map_err(|error| unusable(&error.to_string()))?;
        if id.as_bytes() == newest.0 {
            found = Some((pair.public().clone(), (id.clone(), ByteString(private.clone()))));
        }
        pairs.push(pair);
    }
    let (newest, pair) = found.ok_or_else(|| unusable("the newest key is not there"))?;
    Ok(Known { newest, pair, all: Arc::new(pairs.into_iter().collect()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_as_old_as_is_said_of_it_unless_that_is_to_come() {
        for (name, rotated, expected) in [
            ("as it says", json!("2026-01-01T09:00:00Z"), 3600),
            ("by a clock that is a little ahead", json!("2026-01-01T10:01:00Z"), 0),
            ("by one that was years ahead", json!("2029-01-01T00:00:00Z"), 36_000),
            ("it does not say", json!(null), 36_000),
            ("it says something else", json!("soon"), 36_000),
        ] {
            let mut metadata = json!({"creationTimestamp": "2026-01-01T00:00:00Z"});
            if !rotated.is_null() {
                metadata["annotations"] = json!({names::ROTATED: rotated});
            }
            let secret: Secret = serde_json::from_value(json!({"metadata": metadata})).unwrap();
            let now = "2026-01-01T10:00:00Z".parse().unwrap();
            assert_eq!(age(&secret, now).as_secs(), expected, "{name}");
        }
    }
}
