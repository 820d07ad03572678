//! The table of a group's brokers: which service belongs to which broker, and what each broker last answered; plain
//! state, changed by what is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use engine::ports::{Offer, RunFailure};
use osb::catalog::{CompiledCatalog, Fault, parse};
use osb::{Catalog, PlanId, ServiceId};
use serde_json::Value;
use tokio::sync::watch;

use super::entry::{self, Answer, Entry, list};
use super::merge::{Part, merge};
use super::registry::Resources;
use super::resource::Edition;
use super::spec::Spec;
use super::status;
use crate::runner::JobSettings;

/// How long after an event of a resource the watch may bring further ones.
const SETTLED: Duration = Duration::from_secs(3);

/// The brokers of a group.
pub struct Brokers {
    base: JobSettings,
    further: Vec<String>,
    table: Mutex<BTreeMap<String, Entry>>,
    /// The names of brokers that are gone and had services: one may come back under its name, and own them again.
    former: Mutex<BTreeSet<String>>,
    /// When a resource was last reported.
    heard: Mutex<Instant>,
    /// Whether the owners of services are known from the catalogs, and not only from statuses, which are behind.
    is_merged: AtomicBool,
    /// Why the merged offer is not in force, if it is not.
    kept_out: Mutex<Option<String>>,
    changed: watch::Sender<u64>,
}

/// Why there is no broker that could run the order of a service.
#[derive(Debug)]
pub(crate) enum Nobody {
    /// No broker has the service; with the remedy.
    Has(String),
    /// Catalogs are still being read, and one of them may have the service.
    Unread(String),
}

/// A status to be written.
pub(super) struct Told {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) status: Value,
}

impl Brokers {
    /// An empty table. `base` are the settings that resources leave open, in the group's own namespace; their Jobs may
    /// also be in the `further` namespaces.
    pub fn new(base: JobSettings, further: Vec<String>) -> Arc<Self> {
        let changed = watch::Sender::new(0);
        let heard = Mutex::new(Instant::now());
        let is_merged = AtomicBool::new(false);
        let (table, former, kept_out) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { base, further, table, former, heard, is_merged, kept_out, changed })
    }

    pub(crate) fn base(&self) -> &JobSettings {
        &self.base
    }

    pub(crate) fn namespaces(&self) -> &[String] {
        &self.further
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the `Broker` that has a service.
    pub fn owner(&self, service: &ServiceId) -> Option<String> {
        owner(&self.lock(), service).map(|entry| entry.resource.name.clone())
    }

    /// The settings for runs of a plan.
    ///
    /// # Errors
    /// If no broker can run it: the reason, and the remedy.
    pub(crate) fn settings(
        &self,
        service: &ServiceId,
        plan: &PlanId,
    ) -> Result<JobSettings, Nobody> {
        let table = self.lock();
        let Some(entry) = owner(&table, service) else {
            return Err(self.without_owner(&table, service));
        };
        let name = &entry.resource.name;
        let spec = self.spec(entry).map_err(|faults| {
            let faults = list(&faults);
            Nobody::Has(format!("the Broker {name} cannot be used: {faults}; mend it, then retry"))
        })?;
        Ok(spec.settings(&self.base, name, Some(plan)))
    }

    /// Why no broker has a service: its broker may not have been asked yet.
    fn without_owner(&self, table: &BTreeMap<String, Entry>, service: &ServiceId) -> Nobody {
        let unheard = |entry: &&Entry| !entry.is_known() && self.spec(entry).is_ok();
        let (asked, answered): (Vec<&Entry>, Vec<&Entry>) =
            table.values().filter(unheard).partition(|entry| entry.answer.is_none());
        let names = |entries: &[&Entry]| {
            let names: Vec<_> = entries.iter().map(|it| it.resource.name.as_str()).collect();
            names.join(", ")
        };
        let unread = format!("it is not known yet which Broker has the service {service}");
        if !asked.is_empty() {
            Nobody::Unread(format!("{unread}: the catalog of {} is being read", names(&asked)))
        } else if !answered.is_empty() {
            Nobody::Has(format!(
                "no Broker is known to have the service {service}, and there is no catalog yet of {}: \
                 its status says why; mend that, then retry",
                names(&answered)
            ))
        } else if self.is_merged.load(Ordering::Relaxed) {
            Nobody::Has(format!(
                "no Broker has the service {service} any more: create the Broker again that had it, \
                 then retry"
            ))
        } else {
            Nobody::Unread(unread)
        }
    }

    /// All brokers that can be asked, with their present settings.
    pub(crate) fn all(&self) -> Vec<(String, Edition, JobSettings)> {
        self.those(|_, _| true)
    }

    /// The wanted ones of the brokers that can be asked, with their present settings. Making settings parses the pod
    /// settings, so only these are made.
    pub(super) fn those(
        &self,
        wanted: impl Fn(&str, &Edition) -> bool,
    ) -> Vec<(String, Edition, JobSettings)> {
        let table = self.lock();
        let usable = table.iter().filter_map(|(name, entry)| {
            let edition = entry.resource.edition();
            if !wanted(name, &edition) {
                return None;
            }
            let settings = self.spec(entry).ok()?.settings(&self.base, name, None);
            Some((name.clone(), edition, settings))
        });
        usable.collect()
    }

    /// Whether no broker can be asked.
    pub(super) fn is_nobody_asked(&self) -> bool {
        self.lock().values().all(|entry| self.spec(entry).is_err())
    }

    /// The spec of an entry, unless it has faults.
    fn spec<'e>(&self, entry: &'e Entry) -> Result<&'e Spec, Vec<Fault>> {
        let spec = entry.resource.spec.as_ref().map_err(Clone::clone)?;
        let all =
            spec.plans.iter().map(|(id, plan)| (format!("spec.plans[{:?}]", id.as_str()), plan));
        let all = std::iter::once(("spec".to_owned(), &spec.policy)).chain(all);
        let own = |namespace: &String| {
            *namespace == self.base.namespace || self.further.contains(namespace)
        };
        let foreign =
            all.filter(|(_, policy)| policy.namespace.as_ref().is_some_and(|it| !own(it)));
        let faults: Vec<_> = foreign
            .map(|(path, _)| Fault {
                path: format!("{path}.namespace"),
                message:
                    "is none that Manciple may use: name it in kubernetes.job_namespaces and give \
                          the rights there, or leave it out"
                        .to_owned(),
            })
            .collect();
        if faults.is_empty() { Ok(spec) } else { Err(faults) }
    }

    /// Takes in the present resources. A replica that `leads` knows better than a status which service belongs to which
    /// broker. Returns whether brokers are gone.
    pub fn learn(&self, resources: &Resources, leads: bool) -> bool {
        let mut table = self.lock();
        let count = table.len();
        let same = |entry: &Entry| {
            resources.get(&entry.resource.name).is_some_and(|it| it.uid == entry.resource.uid)
        };
        let sold = table.values().filter(|entry| !same(entry) && entry.is_known());
        let names: Vec<String> = sold.map(|entry| entry.resource.name.clone()).collect();
        self.former.lock().unwrap_or_else(PoisonError::into_inner).extend(names);
        table.retain(|_, entry| same(entry));
        let gone = table.len() < count;
        for (name, resource) in resources {
            let resource = Arc::clone(resource);
            match table.get_mut(name) {
                Some(entry) => {
                    if !leads {
                        self.is_merged.store(false, Ordering::Relaxed);
                        entry.services.clone_from(&resource.services);
                    }
                    entry.resource = resource;
                }
                None => {
                    table.insert(name.clone(), Entry::new(resource));
                }
            }
        }
        drop(table);
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.tell();
        gone
    }

    /// Whether a service without an owner now will have none in a moment either.
    pub(crate) fn are_settled(&self) -> bool {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.elapsed() > SETTLED && self.are_known()
    }

    /// Whether the owner of each service is known.
    pub(super) fn are_known(&self) -> bool {
        let known = |entry: &Entry| entry.is_known() || self.spec(entry).is_err();
        let merged = self.is_merged.load(Ordering::Relaxed);
        merged && self.lock().values().all(known)
    }

    /// Takes catalogs from the offer in force: a replica that `leads`, only for brokers that were not asked yet; any
    /// other for all, because answers on demand may be older than what has been put in force since.
    pub(super) fn seed(&self, offer: &Offer, leads: bool) {
        let Ok(catalog) = parse(&offer.catalog) else { return };
        for entry in self.lock().values_mut().filter(|entry| !leads || entry.answer.is_none()) {
            let sold = |id: &ServiceId| entry.services.iter().any(|has| has.sold && has.id == *id);
            let services: Vec<_> =
                catalog.services.iter().filter(|service| sold(&service.id)).cloned().collect();
            let Some(first) = services.first() else { continue };
            let capabilities = offer.of(&first.id).to_vec();
            entry.part = Some(Part { catalog: Catalog { services }, capabilities });
            entry.in_force.clone_from(&entry.part);
        }
    }

    /// Forgets the answers: from now on another replica asks.
    pub(super) fn stand_down(&self) {
        self.is_merged.store(false, Ordering::Relaxed);
        *self.kept_out() = None;
        for entry in self.lock().values_mut() {
            (entry.answer, entry.asking) = (None, None);
        }
    }

    /// Notes what a question waits for; whether its answer is still wanted.
    pub(super) fn waits(&self, name: &str, asked: &Edition, what: Option<&str>) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.get_mut(name).filter(|it| it.resource.edition() == *asked) else {
            return false;
        };
        let asking = Some((asked.generation, what.map(str::to_owned)));
        let new = entry.asking != asking;
        entry.asking = asking;
        drop(table);
        if new {
            self.tell();
        }
        true
    }

    /// Takes in an answer, unless the `Broker` has another edition by now.
    pub(crate) fn answered(&self, name: &str, asked: &Edition, answer: Result<Offer, RunFailure>) {
        let generation = asked.generation;
        let answer = entry::read(answer);
        let mut table = self.lock();
        let entry = table.get_mut(name).filter(|entry| entry.resource.edition() == *asked);
        if let Some(entry) = entry {
            entry.asking = None;
            entry.answer = Some(match answer {
                Ok(part) => {
                    entry.part = Some(part);
                    (generation, Answer::Good)
                }
                Err((reason, message)) => (generation, Answer::Bad { reason, message }),
            });
        }
        drop(table);
        self.tell();
    }

    /// Whether there is something to put in force: a catalog, or no broker that could have one.
    pub(super) fn is_ready(&self) -> bool {
        let table = self.lock();
        table.is_empty() || table.values().any(|entry| entry.part.is_some())
    }

    /// Whether no broker sells what is still in force: the remaining ones have been asked, or cannot be, and never had
    /// a service.
    pub(super) fn is_deserted(&self) -> bool {
        let table = self.lock();
        let former = self.former.lock().unwrap_or_else(PoisonError::into_inner);
        let has_none = |entry: &Entry| {
            let asked = entry.answer.is_some() || self.spec(entry).is_err();
            let has = entry.part.is_some() || !entry.services.is_empty();
            asked && !has && !former.contains(&entry.resource.name)
        };
        table.values().all(has_none)
    }

    /// Merges the catalogs, and with that decides which service belongs to which broker.
    pub(crate) fn merged(&self) -> Offer {
        let mut table = self.lock();
        let mut entries: Vec<&Entry> = table.values().collect();
        entries.sort_by_key(|entry| (entry.resource.created, entry.resource.name.clone()));
        let given: Vec<_> = entries.iter().filter_map(|entry| entry.given()).collect();
        let mut merged = merge(&given);
        let all: Vec<ServiceId> = merged.sold.values().flatten().cloned().collect();
        for (name, entry) in table.iter_mut() {
            if entry.part.is_none() {
                // The broker has not answered yet: it owns what its status says, unless others sell it.
                entry.services.retain(|has| !all.contains(&has.id));
                continue;
            }
            let sold = merged.sold.remove(name).unwrap_or_default();
            entry.refused = merged.refused.remove(name).unwrap_or_default();
            entry.sells(&sold, &all);
            entry.merged = entry.sold();
        }
        drop(table);
        self.is_merged.store(true, Ordering::Relaxed);
        self.tell();
        merged.offer
    }

    fn kept_out(&self) -> MutexGuard<'_, Option<String>> {
        self.kept_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why the merged offer could not be put in force; it is reported for each broker whose offer is not in
    /// force.
    pub(super) fn keep_out(&self, why: String) {
        *self.kept_out() = Some(why);
        self.tell();
    }

    /// Notes that the merged offer is in force. Forgets services that were sold once and have no instances any more.
    pub(super) fn settle(&self, in_force: &CompiledCatalog) {
        *self.kept_out() = None;
        for entry in self.lock().values_mut() {
            entry.in_force.clone_from(&entry.merged);
            entry.services.retain(|has| has.sold || in_force.service(&has.id).is_some());
        }
        self.tell();
    }

    /// The statuses to be written.
    pub(super) fn told(&self, now: &str) -> Vec<Told> {
        let kept_out = self.kept_out().clone();
        let table = self.lock();
        let told = table.iter().filter_map(|(name, entry)| {
            let faults = self.spec(entry).err();
            let kept_out = kept_out.as_deref().filter(|_| entry.sold() != entry.in_force);
            let status = status::of(entry, faults.as_deref(), kept_out, now)?;
            let uid = entry.resource.uid.clone();
            (status != entry.resource.status).then(|| Told { name: name.clone(), uid, status })
        });
        told.collect()
    }

    /// A channel that changes whenever the table does.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

/// The broker that sells a service, or else the one that has sold it.
fn owner<'t>(table: &'t BTreeMap<String, Entry>, service: &ServiceId) -> Option<&'t Entry> {
    let has = |entry: &&Entry, sold: bool| {
        entry.services.iter().any(|has| has.sold == sold && has.id == *service)
    };
    let sells = table.values().find(|entry| has(entry, true));
    sells.or_else(|| table.values().find(|entry| has(entry, false)))
}
