//! The state that all tasks of an engine share: its ports, and the offer in force.

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

/// The state that all tasks of an engine share.
pub(crate) struct Shared {
    pub(crate) policy: Policy,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) tasks: Tasks,
    pub(crate) permits: Arc<Permits>,
    /// The permits of services that have a broker of their own among several: their operations use these instead of
    /// `permits`.
    pub(crate) apart: Apart,
    /// Whether this process carries operations out.
    pub(crate) drives: AtomicBool,
    /// Notified when `drives` changes: whoever keeps the catalog waits for it.
    pub(crate) turned: Notify,
    pub(crate) in_force: RwLock<Option<InForce>>,
    /// How many times the broker was asked for its offer.
    pub(crate) asked: AtomicU64,
    /// The number of the latest question (of `asked`) whose answer is in force: an answer to an earlier one is not put
    /// over it. Locked while an offer is put in force, but not while the broker is asked, which may take minutes.
    pub(crate) answered: tokio::sync::Mutex<u64>,
    /// The time, in milliseconds since 1970, up to which tombstones were searched for what their runs left.
    pub(crate) looked_through: AtomicU64,
}

/// The catalog in force, and the capabilities of the broker.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) catalog: Arc<CompiledCatalog>,
    pub(crate) capabilities: Vec<Capability>,
    /// The capabilities of single services whose broker is another one.
    pub(crate) of_service: BTreeMap<ServiceId, Vec<Capability>>,
    /// The withdrawn plans: they are in the catalog for the instances that have them, and for no others.
    pub(crate) withdrawn: Vec<(ServiceId, PlanId)>,
    /// The plans that have left the catalog and that no instance is known to have.
    pub(crate) former: Arc<Vec<Former>>,
}

impl InForce {
    /// The capabilities of a service's broker.
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

    /// Refuses a withdrawn plan to an instance that does not have it yet.
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

    /// Whether an operation newly says why it does not get on. If its broker reports progress, only a wait before its
    /// run has begun counts.
    pub(crate) fn is_stuck(&self, before: &Record, next: &Record) -> bool {
        let said = next.operation.said();
        let is_news = said.is_some() && said != before.operation.said();
        // Work elsewhere says how far it is whenever it is asked after.
        let goes_on = matches!(next.operation.phase, Phase::External { .. })
            || self.can(&next.ordered.service_id, Capability::Progress);
        is_news && (next.operation.waits.is_some() || !goes_on)
    }

    /// Whether the catalog says that bindings of a service cannot be fetched: who binds gets the credentials in that
    /// answer, or not at all.
    pub(crate) fn answers_binds_at_once(&self, service: &ServiceId) -> bool {
        let catalog = self.catalog();
        let service = catalog.as_ref().and_then(|all| all.service(service));
        service.is_some_and(|service| service.bindings_retrievable == Some(false))
    }

    /// The permits from which runs of a service take theirs.
    pub(crate) fn permits(&self, service: &ServiceId) -> Arc<Permits> {
        let in_force = self.read();
        if !in_force.as_ref().is_some_and(|it| it.of_service.contains_key(service)) {
            return Arc::clone(&self.permits);
        }
        self.apart.of(service, self.policy.max_runs)
    }

    /// Whether runs of all services take their permits from the same.
    pub(crate) fn is_of_one(&self) -> bool {
        let in_force = self.read();
        in_force.as_ref().is_none_or(|it| it.of_service.is_empty())
    }

    /// The capabilities of a service's broker; `None`: they are not known, for no catalog is in force.
    pub(crate) fn capabilities(&self, service: &ServiceId) -> Option<Vec<Capability>> {
        self.read().as_ref().map(|it| it.of(service).to_vec())
    }

    /// Locks the offer in force for reading: no other is put in force while the guard is held.
    fn read(&self) -> RwLockReadGuard<'_, Option<InForce>> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner)
    }
}
