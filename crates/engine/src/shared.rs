//! What all tasks of an engine share: its ports, and the offer in force.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use osb::jobs::contract::Capability;
use osb::{CompiledCatalog, PlanId, ServiceId};
use tokio::sync::Notify;

use crate::permits::{Apart, Permits};
use crate::policy::Policy;
use crate::ports::{Clock, Observer, Runner, Store, declared};
use crate::record::{Phase, Record};
use crate::tasks::Tasks;
use crate::withdrawn::Former;

/// What all tasks of an engine share.
pub(crate) struct Shared {
    pub(crate) policy: Policy,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) tasks: Tasks,
    pub(crate) permits: Arc<Permits>,
    /// Where a service has a broker of its own, among several, its operations have permits of their own, instead of `permits`.
    pub(crate) apart: Apart,
    /// Whether this process carries operations out.
    pub(crate) drives: AtomicBool,
    /// Whether this process drives has changed: told to whoever keeps the catalog.
    pub(crate) turned: Notify,
    pub(crate) in_force: RwLock<Option<InForce>>,
    /// How often an offer was asked for.
    pub(crate) asked: AtomicU64,
    /// Held while an offer is put in force, with which of these questions was the latest that was answered: an answer to one
    /// before it is not put over it. Not held while somebody is asked, which may take minutes.
    pub(crate) answered: tokio::sync::Mutex<u64>,
    /// Tombstones that were written before this were looked through for what their runs left, in milliseconds since 1970.
    pub(crate) looked_through: AtomicU64,
}

/// The catalog in force, and what the broker can do.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) catalog: Arc<CompiledCatalog>,
    pub(crate) capabilities: Vec<Capability>,
    /// What the broker of a single service can do, where it is another one.
    pub(crate) of_service: BTreeMap<ServiceId, Vec<Capability>>,
    /// Plans that are in the catalog for the instances that have them, and for no others.
    pub(crate) withdrawn: Vec<(ServiceId, PlanId)>,
    /// Plans that have left it, and that nobody is known to have.
    pub(crate) former: Arc<Vec<Former>>,
}

impl InForce {
    /// What the broker of a service can do.
    pub(crate) fn of(&self, service: &ServiceId) -> &[Capability] {
        declared(&self.capabilities, &self.of_service, service)
    }
}

impl Shared {
    pub(crate) fn drives(&self) -> bool {
        self.drives.load(Ordering::Relaxed)
    }

    pub(crate) fn in_force(&self) -> Option<InForce> {
        self.read().clone()
    }

    pub(crate) fn catalog(&self) -> Option<Arc<CompiledCatalog>> {
        let in_force = self.read();
        in_force.as_ref().map(|it| Arc::clone(&it.catalog))
    }

    /// Refuses a plan to those who do not have it yet.
    pub(crate) fn check_sold(&self, service: &ServiceId, plan: &PlanId) -> Result<(), osb::Error> {
        let in_force = self.read();
        let withdrawn =
            |it: &InForce| it.withdrawn.iter().any(|(of, kept)| of == service && kept == plan);
        if !in_force.as_ref().is_some_and(withdrawn) {
            return Ok(());
        }
        Err(osb::Error::bad_request(
            "plan_id: was withdrawn from the catalog and is kept for the instances that have it; \
             choose another plan",
        ))
    }

    pub(crate) fn can(&self, service: &ServiceId, capability: Capability) -> bool {
        let in_force = self.read();
        in_force.as_ref().is_some_and(|it| it.of(service).contains(&capability))
    }

    /// Whether an operation says now why it does not get on. Of a broker that tells how far it is, that is known only
    /// before its run has begun.
    pub(crate) fn is_stuck(&self, before: &Record, next: &Record) -> bool {
        let said = next.operation.said();
        let is_news = said.is_some() && said != before.operation.said();
        // Work elsewhere says how far it is whenever it is asked after.
        let goes_on = matches!(next.operation.phase, Phase::External { .. })
            || self.can(&next.ordered.service_id, Capability::Progress);
        is_news && (next.operation.waits.is_some() || !goes_on)
    }

    /// The permits that runs of a service need.
    pub(crate) fn permits(&self, service: &ServiceId) -> Arc<Permits> {
        let in_force = self.read();
        if !in_force.as_ref().is_some_and(|it| it.of_service.contains_key(service)) {
            return Arc::clone(&self.permits);
        }
        self.apart.of(service, self.policy.max_runs)
    }

    /// Whether all runs need the same permits.
    pub(crate) fn is_of_one(&self) -> bool {
        let in_force = self.read();
        in_force.as_ref().is_none_or(|it| it.of_service.is_empty())
    }

    /// What the broker of a service can do; `None`: that is not known, for no catalog is in force.
    pub(crate) fn capabilities(&self, service: &ServiceId) -> Option<Vec<Capability>> {
        self.read().as_ref().map(|it| it.of(service).to_vec())
    }

    /// What is in force for as long as this is held: nothing else is put in force meanwhile.
    fn read(&self) -> RwLockReadGuard<'_, Option<InForce>> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner)
    }
}
