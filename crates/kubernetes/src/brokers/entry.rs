//! What is known of a broker: its resource, its last good catalog and its last answer.

use std::sync::Arc;

use engine::ports::{Offer, RunFailure};
use osb::catalog::{CompiledCatalog, Fault, parse};
use osb::{Catalog, ServiceId};

use super::merge::{Given, Part};
use super::resource::{OwnedService, Resource};
use crate::resources::pascal;

/// What is known of a broker.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) resource: Arc<Resource>,
    /// The last good catalog.
    pub(super) part: Option<Part>,
    /// The part of its catalog that was last merged, and the one that was last put in force: what it sells.
    pub(super) merged: Option<Part>,
    pub(super) in_force: Option<Part>,
    /// The answer to the last question, and the generation of the resource that was asked.
    pub(super) answer: Option<(i64, Answer)>,
    /// The generation that a question in progress asks, and what it waits for, if anything.
    pub(super) asking: Option<(i64, Option<String>)>,
    pub(super) services: Vec<OwnedService>,
    /// The reasons why services are not sold.
    pub(super) refused: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Good,
    Bad { reason: String, message: String },
}

impl Entry {
    pub(super) fn new(resource: Arc<Resource>) -> Self {
        let services = resource.services.clone();
        let (part, merged, in_force) = (None, None, None);
        let (answer, asking, refused) = (None, None, Vec::new());
        Self { resource, part, merged, in_force, answer, asking, services, refused }
    }

    /// Whether the services of the broker are known. If it has never answered well, they are in its status, if that was
    /// ever written.
    pub(super) fn is_known(&self) -> bool {
        match self.answer {
            Some((_, Answer::Good)) => true,
            Some((_, Answer::Bad { .. })) => self.part.is_some() || !self.services.is_empty(),
            None => false,
        }
    }

    /// The part of its catalog that is sold.
    pub(super) fn sold(&self) -> Option<Part> {
        let Part { catalog, capabilities } = self.part.as_ref()?;
        let is_sold = |id: &ServiceId| self.services.iter().any(|has| has.sold && has.id == *id);
        let sold = catalog.services.iter().filter(|service| is_sold(&service.id));
        let services = sold.cloned().collect();
        Some(Part { catalog: Catalog { services }, capabilities: capabilities.clone() })
    }

    pub(super) fn given(&self) -> Option<Given<'_>> {
        let holds = self.services.iter().filter(|has| has.sold).map(|has| &has.id).collect();
        Some(Given { name: &self.resource.name, part: self.part.as_ref()?, holds })
    }

    /// Sets what the broker sells now; it keeps what it sold before, unless another sells it.
    pub(super) fn sells(&mut self, sold: &[ServiceId], all: &[ServiceId]) {
        let offered = self.part.iter().flat_map(|part| &part.catalog.services);
        let offered = offered.filter(|service| sold.contains(&service.id));
        let now = offered.map(|service| OwnedService {
            id: service.id.clone(),
            name: service.name.clone(),
            sold: true,
        });
        let now: Vec<_> = now.collect();
        self.services.retain(|has| !all.contains(&has.id));
        self.services.iter_mut().for_each(|has| has.sold = false);
        self.services.splice(..0, now);
    }
}

/// The catalog of a good answer; otherwise the reason in one word, and a message.
pub(super) fn read(answer: Result<Offer, RunFailure>) -> Result<Part, (String, String)> {
    let offer =
        answer.map_err(|failure| (pascal(failure.reason.as_str()), failure.failure.description))?;
    let faulty = |faults: Vec<Fault>| ("CatalogInvalid".to_owned(), list(&faults));
    let catalog = parse(&offer.catalog).map_err(faulty)?;
    CompiledCatalog::compile(catalog.clone()).map_err(faulty)?;
    Ok(Part { catalog, capabilities: offer.capabilities })
}

pub(super) fn list(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
