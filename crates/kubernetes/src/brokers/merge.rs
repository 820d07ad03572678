//! Merges the catalogs of several brokers into one; pure.

use std::collections::{BTreeMap, HashMap};

use engine::ports::Offer;
use osb::jobs::contract::Capability;
use osb::{Catalog, Service, ServiceId};

/// The offer of one broker.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) catalog: Catalog,
    pub(super) capabilities: Vec<Capability>,
}

/// One broker's input to a merge.
pub(super) struct Given<'p> {
    pub(super) name: &'p str,
    pub(super) part: &'p Part,
    /// The services that the broker already owns: no other can take them while it offers them.
    pub(super) holds: Vec<&'p ServiceId>,
}

/// The result of a merge.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Merged {
    pub(super) offer: Offer,
    /// The services that are offered of each broker, by its name.
    pub(super) sold: BTreeMap<String, Vec<ServiceId>>,
    /// The reasons why other services are not offered, by the name of their broker.
    pub(super) refused: BTreeMap<String, Vec<String>>,
}

/// Merges the catalogs; earlier brokers have precedence, after those that already own a service. A service whose id,
/// name, plan or dashboard client is another broker's is left out, and the other services of its broker are not.
pub(super) fn merge(given: &[Given<'_>]) -> Merged {
    let mut taken = Taken::default();
    let mut merged = Merged::default();
    let mut sold = Vec::new();
    for held in [true, false] {
        for (broker, given) in given.iter().enumerate() {
            for (index, service) in given.part.catalog.services.iter().enumerate() {
                if given.holds.contains(&&service.id) != held {
                    continue;
                }
                match taken.take(service, given.name) {
                    Ok(()) => sold.push((broker, index)),
                    Err((member, owner)) => {
                        let why = format!(
                            "services[{index}]{member}: is taken by Broker {owner}; change it here, \
                             or remove it there"
                        );
                        merged.refused.entry(given.name.to_owned()).or_default().push(why);
                    }
                }
            }
        }
    }
    // Sorted in the order of brokers and their catalogs: it does not depend on who owned a service first.
    sold.sort_unstable();
    let mut catalog = Catalog::default();
    for (broker, index) in sold {
        let Given { name, part, .. } = &given[broker];
        let service = &part.catalog.services[index];
        merged.sold.entry((*name).to_owned()).or_default().push(service.id.clone());
        merged.offer.of_service.insert(service.id.clone(), part.capabilities.clone());
        catalog.services.push(service.clone());
    }
    merged.offer.catalog = serde_json::to_value(catalog).unwrap_or_default();
    merged
}

/// The owners of everything that only one service may have.
#[derive(Default)]
struct Taken<'p> {
    ids: HashMap<&'p str, &'p str>,
    names: HashMap<&'p str, &'p str>,
    clients: HashMap<&'p str, &'p str>,
}

impl<'p> Taken<'p> {
    /// Assigns a service to a broker, unless a unique member of it is another's: then which member, and whose.
    fn take(&mut self, service: &'p Service, broker: &'p str) -> Result<(), (String, &'p str)> {
        let owner = |table: &HashMap<&'p str, &'p str>, value: &str| table.get(value).copied();
        let client = service.dashboard_client.as_ref().map(|client| client.id.as_str());
        if let Some(owner) = owner(&self.ids, service.id.as_str()) {
            return Err((".id".to_owned(), owner));
        }
        if let Some(owner) = owner(&self.names, &service.name) {
            return Err((".name".to_owned(), owner));
        }
        if let Some(owner) = client.and_then(|client| owner(&self.clients, client)) {
            return Err((".dashboard_client.id".to_owned(), owner));
        }
        for (index, plan) in service.plans.iter().enumerate() {
            if let Some(owner) = owner(&self.ids, plan.id.as_str()) {
                return Err((format!(".plans[{index}].id"), owner));
            }
        }
        self.ids.insert(service.id.as_str(), broker);
        self.ids.extend(service.plans.iter().map(|plan| (plan.id.as_str(), broker)));
        self.names.insert(&service.name, broker);
        self.clients.extend(client.map(|client| (client, broker)));
        Ok(())
    }
}
