//! Which kinds the API server knows: asked once for each version of a group, and again when one is missing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use kube::discovery::ApiResource;

use crate::calls::{CallError, call, find};

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(600);
/// The same of an answer in which a kind is missing.
const MISSING_HOLDS: Duration = Duration::from_secs(1);

/// No version of a group is longer.
const LONGEST: usize = 253;

/// Where objects of a kind are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) resource: ApiResource,
    pub(super) is_namespaced: bool,
    /// Whether what is made can be read and removed again.
    pub(super) is_kept: bool,
}

/// When it was asked, and what it said.
type Known = (Instant, Arc<[Place]>);

/// What can be done with objects that are kept; what can only be made is an answer, and no object: an access review.
const KEEPING: [&str; 3] = ["create", "get", "delete"];

/// The kinds of an API server.
pub(super) struct Kinds {
    client: Client,
    /// By the version of a group, as `apiVersion` says it.
    known: Mutex<HashMap<String, Known>>,
}

impl Kinds {
    pub(super) fn of(client: Client) -> Self {
        Self { client, known: Mutex::default() }
    }

    /// Where objects of a kind are; `None` if the API server does not know it.
    pub(super) async fn find(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<Place>, CallError> {
        // OpenShift has two resources of the kind Template, of which one keeps none.
        let among = |places: &[Place]| {
            let of_kind = || places.iter().filter(|it| it.resource.kind == kind);
            of_kind().find(|it| it.is_kept).or_else(|| of_kind().next()).cloned()
        };
        if !is_version(api_version) {
            return Ok(None);
        }
        if let Some((asked, places)) = self.known(api_version) {
            let found = among(&places);
            let holds = if found.is_some() { HOLDS } else { MISSING_HOLDS };
            if asked.elapsed() < holds {
                return Ok(found);
            }
        }
        let places = self.ask(api_version).await?;
        let found = among(&places);
        self.learn(api_version, places);
        Ok(found)
    }

    /// The same of something that was made once: a version may be gone, and its kind there in another.
    pub(super) async fn find_any(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<Place>, CallError> {
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

    /// What a call of a version came to: if that is not served any more, what was known of it is forgotten.
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

    /// What was known of it does not hold: an object of it could not be found.
    pub(super) fn forget(&self, api_version: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(api_version);
    }

    /// A version without kinds is not served.
    fn learn(&self, api_version: &str, places: Arc<[Place]>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match places.is_empty() {
            true => known.remove(api_version),
            false => known.insert(api_version.to_owned(), (Instant::now(), places)),
        };
    }

    fn known(&self, api_version: &str) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(api_version).cloned()
    }

    async fn ask(&self, api_version: &str) -> Result<Arc<[Place]>, CallError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = match group {
            "" => find(self.client.list_core_api_resources(version)).await?,
            _ => find(self.client.list_api_group_resources(api_version)).await?,
        };
        let resources = found.into_iter().flat_map(|found| found.resources);
        let places = resources.filter(|it| !it.name.contains('/')).map(|it| Place {
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
        Ok(places.collect())
    }
}

/// Whether it can be the version of a group: it becomes a part of a path.
fn is_version(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let good = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphanumeric()) && part.bytes().all(plain)
    };
    let parts: Vec<&str> = text.split('/').collect();
    text.len() <= LONGEST && parts.len() <= 2 && parts.into_iter().all(good)
}
