//! The parsed `Broker` resource.

use osb::ServiceId;
use osb::catalog::Fault;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check;
use super::seen::SeenBroker;
use super::spec::Spec;
use crate::calls::created;

/// How many bytes a name has at most, so that it can be in a path and in a label.
const NAME: usize = 63;

/// A `Broker` of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Resource {
    pub(super) name: String,
    pub(super) uid: String,
    /// The generation: it counts the changes of the spec.
    pub(super) generation: i64,
    /// When the resource was created, in seconds since 1970.
    pub(super) created: i64,
    pub(super) spec: Result<Spec, Vec<Fault>>,
    /// The services of the broker, by its status.
    pub(super) services: Vec<OwnedService>,
    /// The status as it is in the resource.
    pub(super) status: Value,
}

/// The edition of a `Broker`, by which an answer is assigned to it: one that is deleted and created again counts its
/// generations anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Edition {
    pub(super) uid: String,
    pub(super) generation: i64,
}

/// A service that a broker has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OwnedService {
    pub(super) id: ServiceId,
    pub(super) name: String,
    /// Whether the service can be ordered; otherwise it only has instances.
    pub(super) sold: bool,
}

impl Resource {
    /// Parses a `Broker`; `None` if it has no name.
    pub(super) fn of(seen: &SeenBroker) -> Option<Self> {
        let metadata = &seen.metadata;
        let name = metadata.name.clone()?;
        let status = seen.status();
        let read = seen.spec().map_err(|fault| vec![fault]);
        let mut spec = read.and_then(|spec| check::spec(&spec));
        if name.len() > NAME || name.contains('.') {
            let message = format!("must be at most {NAME} letters, digits and -; create it anew");
            let fault = Fault { path: "metadata.name".to_owned(), message };
            spec = Err(spec.err().into_iter().flatten().chain([fault]).collect());
        }
        let services = status.get("services").cloned();
        Some(Self {
            name,
            uid: metadata.uid.clone().unwrap_or_default(),
            generation: metadata.generation.unwrap_or_default(),
            created: created(metadata),
            spec,
            services: services.and_then(|it| serde_json::from_value(it).ok()).unwrap_or_default(),
            status,
        })
    }

    /// The name of the `Broker`.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn edition(&self) -> Edition {
        Edition { uid: self.uid.clone(), generation: self.generation }
    }
}
