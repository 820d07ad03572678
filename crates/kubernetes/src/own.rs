//! What a replica reads before it can start: its own image, a password that all replicas share, and which brokers have
//! saved catalogs.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PartialObjectMeta, PostParams};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;

use crate::calls::{CallError, call, find};
use crate::names;

/// The name of our container, where a pod has others beside it.
const CONTAINER: &str = "manciple";
/// The key of the Secret that holds the password.
const PASSWORD: &str = "password";
/// The key of the Secret that holds the key of digests.
const DIGEST_KEY: &str = "key";

/// Why something cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// The API server does not provide it.
    #[error("{what} in namespace {namespace}: {why}")]
    Unknown {
        /// What was asked for.
        what: String,
        /// The namespace.
        namespace: String,
        /// The API server's answer.
        why: String,
    },
}

/// The image of a pod's container `manciple`, or of its only one, as its spec names it.
///
/// # Errors
/// If the pod cannot be read, or has several containers and none of that name.
pub async fn image(client: Client, namespace: &str, pod: &str) -> Result<String, OwnError> {
    let failed = |why: String| unknown(format!("Pod {pod}"), namespace, why);
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let found = call(pods.get(pod)).await.map_err(|error| failed(error.to_string()))?;
    let containers = found.spec.map(|spec| spec.containers).unwrap_or_default();
    let ours = match containers.as_slice() {
        [only] => Some(only),
        several => several.iter().find(|container| container.name == CONTAINER),
    };
    let image = ours.and_then(|container| container.image.clone());
    image.ok_or_else(|| failed(format!("it has no container {CONTAINER}")))
}

/// The password in the Secret `admin-…` of a broker, which is made with `fresh` if it does not exist. Returns the name
/// of the Secret, too.
///
/// # Errors
/// If the Secret cannot be read or made, or holds no password.
pub async fn shared_password(
    client: Client,
    namespace: &str,
    broker: &str,
    fresh: &str,
) -> Result<(String, String), OwnError> {
    let name = format!("admin-{}", names::broker_label(broker));
    let shared = shared(client, namespace, broker, &name, PASSWORD, fresh.as_bytes()).await?;
    let password = String::from_utf8(shared).ok().filter(|password| !password.is_empty());
    let failed = || unknown(format!("Secret {name}"), namespace, no_key(PASSWORD));
    Ok((name.clone(), password.ok_or_else(failed)?))
}

/// The key in the Secret `digests-…`, which is made if it does not exist: digests made with it can be compared by all
/// replicas, and by nobody else. If the Secret is lost all digests change.
///
/// # Errors
/// If the Secret cannot be read or made, or holds no key.
pub(crate) async fn digest_key(
    client: Client,
    namespace: &str,
    of: &str,
) -> Result<Vec<u8>, OwnError> {
    let name = format!("digests-{}", names::broker_label(of));
    let failed = |why: &str| unknown(format!("Secret {name}"), namespace, why.to_owned());
    let mut fresh = [0; 32];
    let random = SystemRandom::new();
    random.fill(&mut fresh).map_err(|_| failed("there are no random numbers to be had"))?;
    let key = shared(client, namespace, of, &name, DIGEST_KEY, &fresh).await?;
    (key.len() == fresh.len()).then_some(key).ok_or_else(|| failed(&no_key(DIGEST_KEY)))
}

/// The content of one of our Secrets under a key; the Secret is made with `fresh` if it does not exist.
async fn shared(
    client: Client,
    namespace: &str,
    of: &str,
    name: &str,
    key: &str,
    fresh: &[u8],
) -> Result<Vec<u8>, OwnError> {
    let failed = |why: String| unknown(format!("Secret {name}"), namespace, why);
    let said = |error: CallError| failed(error.to_string());
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let secret = match find(secrets.get(name)).await.map_err(said)? {
        Some(secret) => secret,
        None => {
            let label = names::broker_label(of);
            let labels = json!({names::MANAGED_BY.0: names::MANAGED_BY.1, names::BROKER: label});
            let secret = json!({
                "metadata": {"name": name, "labels": labels},
                "data": {key: data_encoding::BASE64.encode(fresh)},
            });
            let secret: Secret =
                serde_json::from_value(secret).map_err(|error| failed(error.to_string()))?;
            match call(secrets.create(&PostParams::default(), &secret)).await {
                // Another replica was faster.
                Err(CallError::Exists) => call(secrets.get(name)).await,
                Err(CallError::NotFound) => {
                    return Err(failed("there is no such namespace: create it first".to_owned()));
                }
                made => made,
            }
            .map_err(said)?
        }
    };
    let kept = secret.data.and_then(|mut data| data.remove(key)).map(|kept| kept.0);
    kept.ok_or_else(|| failed(no_key(key)))
}

fn no_key(key: &str) -> String {
    format!("it has no {key} that can be used: remove it to have a new one made")
}

/// The names of all brokers with a saved catalog in a namespace.
///
/// # Errors
/// If the ConfigMaps cannot be listed.
pub async fn saved(client: Client, namespace: &str) -> Result<Vec<String>, OwnError> {
    let config_maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let selector = format!("{}={}", names::KEEPS, names::KEEPS_CATALOG);
    let found = call(config_maps.list_metadata(&ListParams::default().labels(&selector))).await;
    let found = found
        .map_err(|error| unknown("the saved catalogs".to_owned(), namespace, error.to_string()))?;
    let name = |map: PartialObjectMeta<ConfigMap>| {
        map.metadata.annotations.and_then(|mut all| all.remove(names::BROKER_NAME))
    };
    Ok(found.items.into_iter().filter_map(name).collect())
}

/// Removes what a broker without records leaves behind: the Jobs that asked it for its catalog, in the `further`
/// namespaces, too, its saved catalog with the secrets of dashboard clients, and the keys of its runs.
///
/// # Errors
/// If something cannot be removed.
pub async fn forget(
    client: Client,
    namespace: &str,
    further: &[String],
    broker: &str,
) -> Result<(), OwnError> {
    let label = names::broker_label(broker);
    let (catalog, keys) = (names::catalog(&label), names::keys(&label));
    let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let failed = |what: &str, place: &str, error: CallError| {
        unknown(what.to_owned(), place, error.to_string())
    };
    let mut result = Ok(());
    // If one thing cannot be removed, as in a namespace that is gone, the rest is removed all the same.
    for place in further.iter().map(String::as_str).chain([namespace]) {
        let jobs = Api::namespaced(client.clone(), place);
        let removed = remove_jobs(&jobs, &label, namespace).await;
        result = result.and(removed.map_err(|error| failed("its Jobs", place, error)));
    }
    let params = DeleteParams::default();
    for secret in [&keys, &catalog] {
        let removed = find(secrets.delete(secret, &params)).await.map(drop);
        let removed =
            removed.map_err(|error| failed(&format!("Secret {secret}"), namespace, error));
        result = result.and(removed);
    }
    // The ConfigMap goes last: by it a later start knows that there is something to remove.
    result?;
    let removed = find(config_maps.delete(&catalog, &params)).await.map(drop);
    removed.map_err(|error| failed(&format!("ConfigMap {catalog}"), namespace, error))
}

/// Removes the Jobs of a broker, because nobody watches them any more.
async fn remove_jobs(jobs: &Api<Job>, label: &str, home: &str) -> Result<(), CallError> {
    let selector = format!("{}={label}", names::BROKER);
    let found = call(jobs.list_metadata(&ListParams::default().labels(&selector))).await?;
    let ours = found.items.into_iter().filter(|job| names::is_at_home(&job.metadata, home));
    for name in ours.filter_map(|job| job.metadata.name) {
        find(jobs.delete(&name, &DeleteParams::background())).await?;
    }
    Ok(())
}

fn unknown(what: String, namespace: &str, why: String) -> OwnError {
    OwnError::Unknown { what, namespace: namespace.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    /// What is removed of a broker, as `kind/name`, where some of it cannot be, and whether all of it was.
    async fn removed(refused: &str) -> (Vec<String>, bool) {
        let gone = Arc::new(Mutex::new(Vec::new()));
        let (goes, refused) = (Arc::clone(&gone), refused.to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let words: Vec<&str> = request.uri().path().rsplit('/').take(2).collect();
            let what = words.iter().rev().copied().collect::<Vec<_>>().join("/");
            let status = |code: u16, word: &str| {
                json!({
                    "kind": "Status", "apiVersion": "v1",
                    "status": word, "code": code, "message": "m",
                })
            };
            let (code, answer): (u16, Value) = match *request.method() {
                Method::DELETE if what == refused => (403, status(403, "Failure")),
                Method::DELETE => {
                    goes.lock().unwrap().push(what);
                    (200, status(200, "Success"))
                }
                _ => (200, json!({"metadata": {}, "items": []})),
            };
            let body = Body::from(answer.to_string().into_bytes());
            let response = Response::builder().status(code).body(body).unwrap();
            async move { Ok::<_, tower::BoxError>(response) }
        });
        let forgotten = forget(Client::new(service, "n"), "n", &[], "b").await;
        let gone = gone.lock().unwrap().clone();
        (gone, forgotten.is_ok())
    }

    #[tokio::test]
    async fn what_names_a_broker_goes_after_what_is_secret_of_it() {
        let label = names::broker_label("b");
        let keys = format!("secrets/keys-{label}");
        let secret = format!("secrets/catalog-{label}");
        let catalog = format!("configmaps/catalog-{label}");
        let all = vec![keys.clone(), secret.clone(), catalog.clone()];
        for (refused, expected, is_done) in [
            ("", all, true),
            (&*keys, vec![secret.clone()], false),
            (&*secret, vec![keys.clone()], false),
            (&*catalog, vec![keys.clone(), secret.clone()], false),
        ] {
            assert_eq!(removed(refused).await, (expected, is_done), "{refused}");
        }
    }
}
