//! The parsed `Broker` resource.

use std::collections::BTreeMap;

use osb::catalog::Fault;
use osb::{PlanId, ServiceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check;
use super::policy::Policy;
use super::seen::SeenBroker;
use crate::runner::JobSettings;

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

/// The parsed spec of a `Broker`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spec {
    pub(super) image: String,
    pub(super) config_map: Option<String>,
    pub(super) secret: Option<String>,
    pub(super) policy: Policy,
    pub(super) plans: BTreeMap<PlanId, Policy>,
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
            created: metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
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

impl Spec {
    /// The settings for runs of a plan; without a plan, those for the question for the catalog.
    pub(super) fn settings(
        &self,
        base: &JobSettings,
        name: &str,
        plan: Option<&PlanId>,
    ) -> JobSettings {
        let mut settings = JobSettings {
            resource: Some(name.to_owned()),
            image: self.image.clone(),
            config_map: self.config_map.clone(),
            secret: self.secret.clone(),
            ..base.clone()
        };
        match plan.and_then(|plan| self.plans.get(plan)) {
            Some(plan) => plan.over(&self.policy).apply(&mut settings),
            None => self.policy.apply(&mut settings),
        }
        settings
    }
}
