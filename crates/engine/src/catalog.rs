//! The catalog: it is read from the broker, the last good one is kept, and a plan in use is never dropped.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use osb::catalog::{CompiledCatalog, Fault};
use osb::jobs::contract::Capability;
use osb::{Catalog, Plan, PlanId, Service, ServiceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::Engine;
use crate::ports::{Offer, RunFailure, StoreError};
use crate::shared::InForce;
use crate::withdrawn::{Former, keep_plans_in_use, remember};

/// How often the keeper of the catalog looks whether this process drives now, and whether former plans were ordered.
const LOOK: Duration = Duration::from_secs(10);
/// The pause before a catalog that another process has saved is read again, if it could not be read.
const BEHIND: Duration = Duration::from_millis(500);

/// The reason why a catalog was not put in force. The one before stays in force.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The broker could not be asked, or answered something that is no catalog.
    #[error("the broker's catalog could not be read: {}", .0.failure.description)]
    Run(RunFailure),
    /// The catalog has faults; all of them are listed.
    #[error("the catalog has {} fault(s):{}", .0.len(), list(.0))]
    Faults(Vec<Fault>),
    /// The catalog could not be saved.
    #[error("the catalog could not be saved")]
    Store(#[source] StoreError),
}

/// The most faults of a catalog that are logged of those that only platforms see: there may be thousands of one kind.
const SHOWN: usize = 20;

fn list(faults: &[Fault]) -> String {
    faults.iter().fold(String::new(), |mut text, fault| {
        text.push_str("\n  ");
        text.push_str(&fault.to_string());
        text
    })
}

/// An offer as it is saved.
#[derive(Serialize, Deserialize)]
struct Saved {
    catalog: Value,
    capabilities: Vec<Capability>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    of_service: BTreeMap<ServiceId, Vec<Capability>>,
    #[serde(default)]
    withdrawn: Vec<(ServiceId, PlanId)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<Former>,
}

impl Engine {
    /// Puts the catalog that was saved last in force, so that a start does not wait for the broker. `false` if there is
    /// none, or it is damaged or not valid any more: the broker is asked, and its answer saved over it.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn load_catalog(&self) -> Result<bool, StoreError> {
        let _in_turn = self.shared.answered.lock().await;
        let Some(saved) = self.saved().await? else { return Ok(false) };
        let Ok(saved) = serde_json::from_value::<Saved>(saved) else { return Ok(false) };
        match compile(&saved.catalog) {
            Ok(catalog) => {
                let Saved { capabilities, of_service, withdrawn, former, .. } = saved;
                let unchanged =
                    |before: &Arc<CompiledCatalog>| before.catalog() == catalog.catalog();
                // Unchanged: keep its Last-Modified.
                let known = self.shared.in_force();
                let known = known.filter(|known| unchanged(&known.catalog));
                let (catalog, former) = match known {
                    // There may have been no room to save them.
                    Some(known) if former.is_empty() => {
                        (known.catalog.clone(), known.former.clone())
                    }
                    Some(known) => (known.catalog.clone(), Arc::new(former)),
                    None => (catalog, Arc::new(former)),
                };
                self.put_in_force(InForce { catalog, capabilities, of_service, withdrawn, former });
                Ok(true)
            }
            Err(faults) => {
                tracing::warn!(faults = %list(&faults), "the saved catalog is not good any more");
                Ok(false)
            }
        }
    }

    /// Asks the broker for its catalog and puts it in force.
    ///
    /// # Errors
    /// If the broker cannot be asked, or its catalog has faults or cannot be saved; the one before stays in force.
    pub async fn refresh_catalog(&self) -> Result<Arc<CompiledCatalog>, CatalogError> {
        let asked = self.shared.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let offer = self.shared.runner.offer().await.map_err(CatalogError::Run)?;
        let mut answered = self.shared.answered.lock().await;
        // What was asked for later is in force.
        if let Some(catalog) = self.shared.catalog().filter(|_| *answered > asked) {
            return Ok(catalog);
        }
        let catalog = self.publish(offer).await?;
        *answered = asked;
        Ok(catalog)
    }

    /// Puts an offer in force.
    ///
    /// # Errors
    /// As [`Self::refresh_catalog`].
    pub async fn set_offer(&self, offer: Offer) -> Result<Arc<CompiledCatalog>, CatalogError> {
        let _in_turn = self.shared.answered.lock().await;
        self.publish(offer).await
    }

    async fn publish(&self, mut offer: Offer) -> Result<Arc<CompiledCatalog>, CatalogError> {
        let mut catalog = osb::catalog::parse(&offer.catalog).map_err(CatalogError::Faults)?;
        let before = self.shared.in_force();
        let (mut withdrawn, mut former) = (Vec::new(), Vec::new());
        let offered: Vec<ServiceId> =
            catalog.services.iter().map(|service| service.id.clone()).collect();
        if let Some(before @ InForce { catalog: last, former: remembered, .. }) = &before {
            let in_use = self.shared.store.plans_in_use().await.map_err(CatalogError::Store)?;
            let had = last.catalog().services.iter();
            let had: Vec<_> = had.chain(remembered.iter().map(|former| &former.service)).collect();
            withdrawn = keep_plans_in_use(&mut catalog, &had, &in_use);
            former = remember(&catalog, last.catalog(), remembered, self.shared.clock.now());
            let kept = catalog.services.iter().chain(former.iter().map(|former| &former.service));
            let kept = kept.map(|service| &service.id).filter(|id| !offered.contains(id));
            still_declared(&mut offer, before, kept);
        }
        serve_what_we_keep(&mut catalog);
        offer.catalog = serde_json::to_value(&catalog).unwrap_or_default();
        let compiled = match before.map(|before| before.catalog) {
            // Unchanged: keep its Last-Modified.
            Some(before) if *before.catalog() == catalog => Ok(before),
            Some(before) => CompiledCatalog::compile_after(catalog, &before).map(Arc::new),
            None => CompiledCatalog::compile(catalog).map(Arc::new),
        };
        let catalog = compiled.map_err(CatalogError::Faults)?;
        let Offer { capabilities, of_service, .. } = offer;
        let next = InForce {
            catalog: Arc::clone(&catalog),
            capabilities: capabilities.clone(),
            of_service: of_service.clone(),
            withdrawn: withdrawn.clone(),
            former: Arc::new(former.clone()),
        };
        let saved = Saved { catalog: offer.catalog, capabilities, of_service, withdrawn, former };
        self.save(saved).await.map_err(CatalogError::Store)?;
        self.tell_withdrawn(&next.withdrawn);
        self.put_in_force(next);
        Ok(catalog)
    }

    /// Saves an offer, unless it is the one that was saved last. If it is too large, it is saved without the plans that
    /// have left the catalog: a catalog that is not saved is not put in force, and the one before would stay for ever.
    async fn save(&self, mut saved: Saved) -> Result<(), StoreError> {
        let last = self.saved().await?;
        loop {
            let value = serde_json::to_value(&saved).unwrap_or_default();
            if last.as_ref() == Some(&value) {
                return Ok(());
            }
            match self.shared.store.save_catalog(&value).await {
                Err(StoreError::TooLarge(why)) if !saved.former.is_empty() => {
                    tracing::warn!(
                        why,
                        "the plans that have left the catalog of late are not saved with it: one that somebody ordered \
                         while it left is not put back after a start"
                    );
                    saved.former.clear();
                }
                done => return done,
            }
        }
    }

    /// The offer that was saved last, if it can be read.
    async fn saved(&self) -> Result<Option<Value>, StoreError> {
        match self.shared.store.catalog().await {
            Err(error @ StoreError::Unreadable { .. }) => {
                tracing::warn!(%error, "the saved catalog is damaged: the next answer of the broker is saved over it");
                Ok(None)
            }
            read => read,
        }
    }

    /// The offer in force, without withdrawn plans, which are in it only for the instances that have them; `None`: no
    /// offer is in force.
    pub fn offer_in_force(&self) -> Option<Offer> {
        let InForce { catalog, capabilities, of_service, withdrawn, .. } =
            self.shared.in_force()?;
        let mut catalog = catalog.catalog().clone();
        for service in &mut catalog.services {
            let kept = |plan: &PlanId| {
                withdrawn.iter().any(|(of, kept)| *of == service.id && kept == plan)
            };
            service.plans.retain(|plan| !kept(&plan.id));
        }
        catalog.services.retain(|service| !service.plans.is_empty());
        let catalog = serde_json::to_value(&catalog).ok()?;
        Some(Offer { catalog, capabilities, of_service })
    }

    /// Reads the catalog until there is one, then again at every `interval` (never, if zero), and puts in force what
    /// another process has saved as soon as it hears of it. To be spawned.
    pub async fn keep_catalog(self, interval: Duration) {
        let clock = &self.shared.clock;
        let (mut due, mut failures, mut drove) = (None, 0, false);
        // What was saved before this process heard of anything.
        let mut behind = !self.drives();
        loop {
            let now = clock.now();
            let drives = self.drives();
            if drives && !drove {
                due = Some(now);
            }
            drove = drives;
            if drives && due.is_some_and(|due| due <= now) {
                failures = if self.refreshed().await { 0 } else { failures + 1 };
                let pause = match failures {
                    0 => interval,
                    failures => self.shared.policy.pause(failures + 1),
                };
                due = (!pause.is_zero()).then(|| clock.now().plus(pause));
            } else if drives {
                self.put_back_late_orders().await;
            }
            behind = behind && !self.followed().await;
            let until_due = due.filter(|_| drives).map_or(LOOK, |due| clock.now().until(due));
            let pause = if behind { BEHIND } else { until_due.min(LOOK) };
            tokio::select! {
                () = self.shared.store.catalog_changed() => behind = true,
                () = self.shared.turned.notified() => {}
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Refreshes the catalog, and says whether the broker's catalog is in force.
    async fn refreshed(&self) -> bool {
        let refreshed = self.refresh_catalog().await;
        if let Err(error) = &refreshed {
            tracing::error!(%error, "the catalog was not refreshed");
        }
        refreshed.is_ok()
    }

    /// Loads the saved catalog, and says whether it could be read.
    async fn followed(&self) -> bool {
        let loaded = self.load_catalog().await;
        if let Err(error) = &loaded {
            tracing::warn!(%error, "the saved catalog cannot be read");
        }
        loaded.is_ok()
    }

    /// Whether an instance has a plan that has left the catalog because nobody was known to have it: it was ordered
    /// just then, here or by a process that still sold it. Putting the offer in force anew puts the plan back.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn lacks_a_plan(&self) -> Result<bool, StoreError> {
        let former = self.shared.in_force().map(|in_force| in_force.former);
        let Some(former) = former.filter(|former| !former.is_empty()) else { return Ok(false) };
        let in_use = self.shared.store.plans_in_use().await?;
        Ok(in_use.iter().any(|(service, plan)| former.iter().any(|it| it.is(service, plan))))
    }

    async fn put_back_late_orders(&self) {
        let _in_turn = self.shared.answered.lock().await;
        let lacks = match self.lacks_a_plan().await {
            Ok(lacks) => lacks,
            Err(error) => {
                tracing::warn!(%error, "the plans that are in use are not known");
                return;
            }
        };
        let Some(offer) = lacks.then(|| self.offer_in_force()).flatten() else { return };
        if let Err(error) = self.publish(offer).await {
            tracing::error!(%error, "a plan that was ordered while it left the catalog is not in it");
        }
    }

    /// Logs the plans that are newly kept only for the instances that have them.
    fn tell_withdrawn(&self, withdrawn: &[(ServiceId, PlanId)]) {
        let before = self.shared.in_force().map(|in_force| in_force.withdrawn).unwrap_or_default();
        for (service, plan) in withdrawn.iter().filter(|plan| !before.contains(plan)) {
            tracing::warn!(
                %service, %plan,
                "a plan has left the catalog while it is in use: it is kept for its instances, and \
                 no longer sold"
            );
        }
    }

    /// Logs which services promise updates that are all refused: once for each catalog, for it is read again and again.
    fn tell_promised(&self, next: &InForce) {
        let promised = promised_in_vain(next);
        let is_told = |before: InForce| {
            Arc::ptr_eq(&before.catalog, &next.catalog) && promised_in_vain(&before) == promised
        };
        if promised.is_empty() || self.shared.in_force().is_some_and(is_told) {
            return;
        }
        tracing::warn!(
            services = %promised.join(", "),
            "the catalog promises updates (plan_updateable or allow_context_updates) of a broker that does not \
             declare them: each is refused; have it declare the capability update (docs/brokers.md), or take the \
             promise out of the catalog"
        );
    }

    /// Logs the faults for which platforms may refuse the catalog: once for each catalog.
    fn tell_refused_elsewhere(&self, next: &InForce) {
        let is_told = |before: InForce| Arc::ptr_eq(&before.catalog, &next.catalog);
        let faults = osb::catalog::refused_elsewhere(next.catalog.catalog());
        if faults.is_empty() || self.shared.in_force().is_some_and(is_told) {
            return;
        }
        tracing::warn!(
            count = faults.len(), faults = %list(&faults[..faults.len().min(SHOWN)]),
            "the catalog is as the specification has it, and some platforms may refuse it"
        );
    }

    /// Puts an offer in force: the one place where the operator's configuration overrides what the catalog declares.
    /// The saved offer keeps what the catalog declares, so that a changed configuration counts from the next start.
    fn put_in_force(&self, mut next: InForce) {
        if let Some(capabilities) = &self.shared.policy.capabilities {
            next.capabilities.clone_from(capabilities);
            next.of_service.clear();
        }
        self.tell_promised(&next);
        self.tell_refused_elsewhere(&next);
        let mut current = self.shared.in_force.write().unwrap_or_else(PoisonError::into_inner);
        // While nobody can ask for those of the offer before.
        self.shared.apart.keep(|service| next.of_service.contains_key(service));
        *current = Some(next);
    }
}

/// Adds to an offer of several brokers what the brokers of `kept` services declared last: these services are not
/// offered now, but some instance has them, and their brokers may be back in a moment.
fn still_declared<'s>(
    offer: &mut Offer,
    before: &InForce,
    kept: impl Iterator<Item = &'s ServiceId>,
) {
    if offer.of_service.is_empty() && before.of_service.is_empty() {
        return;
    }
    for id in kept {
        offer.of_service.entry(id.clone()).or_insert_with(|| before.of(id).to_vec());
    }
}

/// The names of the services that promise updates while their broker does not declare that it can update.
fn promised_in_vain(in_force: &InForce) -> Vec<&str> {
    let promises = |service: &Service| {
        let of_plan = |plan: &Plan| plan.plan_updateable.or(service.plan_updateable) == Some(true);
        service.allow_context_updates == Some(true) || service.plans.iter().any(of_plan)
    };
    let services = in_force.catalog.catalog().services.iter();
    let in_vain = services.filter(|service| {
        promises(service) && !in_force.of(&service.id).contains(&Capability::Update)
    });
    in_vain.map(|service| service.name.as_str()).collect()
}

fn compile(catalog: &Value) -> Result<Arc<CompiledCatalog>, Vec<Fault>> {
    Ok(Arc::new(CompiledCatalog::compile(osb::catalog::parse(catalog)?)?))
}

/// Marks instances and bindings as retrievable unless the author says not: the engine keeps both, so they can be
/// fetched.
fn serve_what_we_keep(catalog: &mut Catalog) {
    for service in &mut catalog.services {
        service.instances_retrievable.get_or_insert(true);
        service.bindings_retrievable.get_or_insert(true);
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{MemoryStore, ScriptedRunner, TestClock};
    use crate::{Policy, Ports};

    /// Of several brokers, each with one service.
    fn of(names: &[&str]) -> Offer {
        let services = names.iter().map(|name| {
            json!({
                "id": name, "name": name, "description": "d", "bindable": true,
                "plans": [{"id": format!("{name}-plan"), "name": "plan", "description": "d"}],
            })
        });
        let catalog = json!({ "services": services.collect::<Vec<_>>() });
        let of_service =
            names.iter().map(|name| (ServiceId::new(*name).unwrap(), Vec::new())).collect();
        Offer { catalog, of_service, ..Offer::default() }
    }

    #[test]
    fn updates_that_are_promised_of_a_broker_that_has_none_are_known_by_their_services() {
        use Capability::{State, Update};
        let (yes, no) = (json!({"plan_updateable": true}), json!({"plan_updateable": false}));
        let (none, context) = (json!({}), json!({"allow_context_updates": true}));
        for (case, service, plan, of_all, own, expected) in [
            ("nothing is promised", &none, &none, vec![], None, false),
            ("it is said that there are none", &no, &none, vec![], None, false),
            ("the service promises", &yes, &none, vec![State], None, true),
            ("a plan promises", &no, &yes, vec![], None, true),
            ("the plan takes it back", &yes, &no, vec![], None, false),
            ("those of the context stay promised", &context, &no, vec![], None, true),
            ("it is promised and declared", &yes, &yes, vec![State, Update], None, false),
            ("its broker of several declares it", &yes, &none, vec![], Some(vec![Update]), false),
            ("another one declares it", &yes, &none, vec![Update], Some(vec![State]), true),
        ] {
            let mut catalog = of(&["s"]).catalog;
            let said = &mut catalog["services"][0];
            said.as_object_mut().unwrap().extend(service.as_object().unwrap().clone());
            let said = &mut said["plans"][0];
            said.as_object_mut().unwrap().extend(plan.as_object().unwrap().clone());
            let in_force = InForce {
                catalog: compile(&catalog).unwrap(),
                capabilities: of_all,
                of_service: own
                    .map(|own| (ServiceId::new("s").unwrap(), own))
                    .into_iter()
                    .collect(),
                withdrawn: Vec::new(),
                former: Arc::default(),
            };
            let expected: &[&str] = if expected { &["s"] } else { &[] };
            assert_eq!(promised_in_vain(&in_force), expected, "{case}");
        }
    }

    /// What is remembered of a service that left is kept for its time, and its permits with it.
    #[tokio::test(start_paused = true)]
    async fn the_permits_of_a_service_go_with_it() {
        let engine = Engine::new(
            Policy::default(),
            Ports {
                store: Arc::new(MemoryStore::default()),
                runner: Arc::new(ScriptedRunner::default()),
                clock: Arc::new(TestClock::default()),
                observer: Arc::new(()),
            },
        );
        let left = ServiceId::new("left").unwrap();
        engine.set_offer(of(&["left", "stays"])).await.unwrap();
        let before = Arc::downgrade(&engine.shared.permits(&left));
        for (hours, is_there) in [(0, true), (2, false)] {
            tokio::time::sleep(Duration::from_secs(hours * 3600)).await;
            engine.set_offer(of(&["stays"])).await.unwrap();
            assert_eq!(before.upgrade().is_some(), is_there, "after {hours} h");
        }
    }
}
