//! The kinds that the API server serves: asked once for each version of a group, and again when one is missing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use kube::discovery::ApiResource;

use super::names::Kind;
use crate::calls::{CallError, call};
use crate::install::{kinds, knows};

/// How long an answer about the kinds of a version is used.
const HOLDS: Duration = Duration::from_secs(600);
/// How long an answer is used in which the wanted kind is missing.
const MISSING_HOLDS: Duration = Duration::from_secs(1);

/// The greatest length of an `apiVersion`.
const LONGEST: usize = 253;

/// A kind as the API server serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServedKind {
    pub(super) resource: ApiResource,
    pub(super) is_namespaced: bool,
    /// Whether its objects can be read and removed once they are made.
    pub(super) is_kept: bool,
}

impl ServedKind {
    /// Whether objects of the kind can be in this namespace; an empty one means cluster-scoped.
    pub(super) fn can_be_in(&self, namespace: &str) -> bool {
        self.is_namespaced != namespace.is_empty()
    }
}

/// When the API server was asked for a version, and which kinds it serves in it.
type Known = (Instant, Arc<[ServedKind]>);

/// The verbs of a kind whose objects are kept. A kind that can only be created, such as an access review, is an answer,
/// and no object.
const KEEPING: [&str; 3] = ["create", "get", "delete"];

/// The kinds of an API server.
pub(super) struct Kinds {
    client: Client,
    /// The kinds by `apiVersion`.
    known: Mutex<HashMap<String, Known>>,
}

impl Kinds {
    pub(super) fn of(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Finds a kind as it is served; `None` if the API server does not serve it.
    pub(super) async fn find(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<ServedKind>, CallError> {
        // OpenShift has two resources of the kind Template; the objects of one are not kept.
        let among = |served: &[ServedKind]| {
            let of_kind = || served.iter().filter(|it| it.resource.kind == kind);
            of_kind().find(|it| it.is_kept).or_else(|| of_kind().next()).cloned()
        };
        if !is_version(api_version) {
            return Ok(None);
        }
        if let Some((asked, served)) = self.known(api_version) {
            let found = among(&served);
            let holds = if found.is_some() { HOLDS } else { MISSING_HOLDS };
            if asked.elapsed() < holds {
                return Ok(found);
            }
        }
        let served = self.ask(api_version).await?;
        let found = among(&served);
        self.learn(api_version, served);
        Ok(found)
    }

    /// Like [`Kinds::find`], for an object that was made once: where its version is gone, the kind may be served in
    /// another.
    pub(super) async fn find_any(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<ServedKind>, CallError> {
        if let Some(found) = self.find(api_version, kind).await? {
            return Ok(Some(found));
        }
        let Some((group, _)) = api_version.split_once('/') else { return Ok(None) };
        let groups = call(self.client.list_api_groups()).await?.groups;
        let versions = groups.into_iter().filter(|it| it.name == group).flat_map(|it| it.versions);
        for version in versions {
            if let Some(found) = self.find(&version.group_version, kind).await? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Passes on the result of a call, and forgets the kinds of its version if that is not served any more.
    pub(super) fn seen<T>(
        &self,
        api_version: &str,
        came: Result<T, CallError>,
    ) -> Result<T, CallError> {
        came.inspect_err(|error| {
            if matches!(error, CallError::Unserved) {
                self.forget(api_version);
            }
        })
    }

    /// Forgets the kinds of a version, so that the API server is asked again.
    pub(super) fn forget(&self, api_version: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(api_version);
    }

    /// Keeps the kinds of a version; a version without kinds is not served, and forgotten.
    fn learn(&self, api_version: &str, served: Arc<[ServedKind]>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match served.is_empty() {
            true => known.remove(api_version),
            false => known.insert(api_version.to_owned(), (Instant::now(), served)),
        };
    }

    fn known(&self, api_version: &str) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(api_version).cloned()
    }

    async fn ask(&self, api_version: &str) -> Result<Arc<[ServedKind]>, CallError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resources = kinds(&self.client, api_version).await?;
        // An API server that has just started serves no custom resources for a moment: only where it serves ours does
        // an empty answer mean that the version has no kinds.
        if resources.is_empty() && !knows(&self.client, &Kind::TemplateInstance.resource()).await? {
            return Err(CallError::Unserved);
        }
        let served =
            resources.into_iter().filter(|it| !it.name.contains('/')).map(|it| ServedKind {
                resource: ApiResource {
                    group: group.to_owned(),
                    version: version.to_owned(),
                    api_version: api_version.to_owned(),
                    kind: it.kind,
                    plural: it.name,
                },
                is_namespaced: it.namespaced,
                is_kept: KEEPING.iter().all(|verb| it.verbs.iter().any(|has| has == verb)),
            });
        Ok(served.collect())
    }
}

/// Whether a text can be an `apiVersion`: it becomes a part of a path.
pub(super) fn is_version(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let good = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphanumeric()) && part.bytes().all(plain)
    };
    let parts: Vec<&str> = text.split('/').collect();
    text.len() <= LONGEST && parts.len() <= 2 && parts.into_iter().all(good)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    const OURS: &str = "template.openshift.io/v1";
    const OTHER: &str = "example.org/v1";

    /// An API server that serves these versions and no other, each with this kind alone.
    fn serves(versions: &'static [&'static str], kind: &'static str) -> Kinds {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            let path = request.uri().path().trim_start_matches("/apis/");
            let (status, answer) = match versions.contains(&path) {
                true => (200, list(path, kind).to_string()),
                false => (404, "404 page not found\n".to_owned()),
            };
            let response = Response::builder().status(status).body(Body::from(answer.into_bytes()));
            response.map_err(Into::<tower::BoxError>::into)
        });
        Kinds::of(Client::new(service, "n"))
    }

    fn list(version: &str, kind: &str) -> serde_json::Value {
        json!({"groupVersion": version, "resources": [{
            "name": format!("{}s", kind.to_lowercase()), "singularName": "", "namespaced": true,
            "kind": kind, "verbs": KEEPING,
        }]})
    }

    #[tokio::test]
    async fn that_a_kind_is_missing_is_known_of_an_api_server_that_knows_ours() {
        let ours = serves(&[OURS], "TemplateInstance");
        assert_eq!(ours.find(OTHER, "Thing").await.unwrap(), None);
        let other = serves(&[OURS, OTHER], "Thing");
        assert!(other.find(OTHER, "Thing").await.unwrap().is_some());
        for (name, versions) in [("nothing", &[][..]), ("of our version no kind yet", &[OURS])] {
            let found = serves(versions, "Template").find(OTHER, "Thing").await;
            assert!(matches!(found, Err(CallError::Unserved)), "{name}: {found:?}");
        }
    }
}
