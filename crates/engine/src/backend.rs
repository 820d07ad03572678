//! The engine as a [`Backend`]: reads the record, asks [`crate::admit`], writes, answers.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use osb::catalog::{CompiledCatalog, PlanEntry};
use osb::jobs::contract::Capability;
use osb::{
    Action, Backend, BindRequest, BindingBody, BindingId, BindingView, Call, DeprovisionRequest,
    Error, ErrorKind, InstanceId, InstanceView, LastOperation, LastOperationQuery,
    ProvisionRequest, ProvisionedBody, Reply, ServiceId, UnbindRequest, UpdateRequest,
};

use crate::admit::{self, Admission};
use crate::answer;
use crate::engine::Engine;
use crate::names::request_hash;
use crate::policy::OnBound;
use crate::ports::{Filter, Kind, Query, StoreError, Stored};
use crate::record::{Key, Lifecycle, Ordered, Record};
use crate::transition::Intent;
use crate::update;

/// How many times a request is decided, because somebody else wrote first, before it is refused.
const ROUNDS: usize = 32;
/// The message for a binding whose service says that its bindings cannot be fetched.
const UNFETCHED: &str =
    "bindings of this service cannot be fetched: the catalog says bindings_retrievable: false";

#[async_trait]
impl Backend for Engine {
    fn catalog(&self) -> Option<Arc<CompiledCatalog>> {
        self.shared.catalog()
    }

    fn requires_async(&self, action: Action, _plan: Option<&PlanEntry>) -> bool {
        self.shared.policy.hold.of(action).is_zero()
    }

    async fn provision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        let key = Key::Instance(instance.clone());
        let ordered = Ordered {
            service_id: request.service_id,
            plan_id: request.plan_id,
            parameters: request.parameters.unwrap_or_default(),
            context: request.context.unwrap_or_default(),
            maintenance_info: request.maintenance_info,
            organization_guid: Some(request.organization_guid),
            space_guid: Some(request.space_guid),
            bind_resource: None,
            predecessor_binding_id: None,
        };
        for view in self.views() {
            let found = self.try_provision(call, &key, &ordered, view).await;
            if let Some(reply) = self.settle(call, found, view, answer::provisioned).await {
                return reply;
            }
        }
        Err(contended())
    }

    async fn update(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        let key = Key::Instance(instance.clone());
        let hash = request_hash(&update::identity(&request));
        for _ in 0..ROUNDS {
            let stored = self.read(&key).await?;
            let Some(record) = stored.as_ref().map(|s| &s.record).filter(|r| r.is_live()) else {
                return Err(Error::not_found("there is no such service instance"));
            };
            let target = update::target(record, &request)?;
            let busy = !record.is_busy() && self.any_binding(instance, Filter::Busy).await?;
            let next = match admit::update(Some(record), &target, &hash, busy) {
                Admission::Refuse(error) => {
                    // What is wrong with the request goes before what is in its way.
                    self.shared
                        .catalog()
                        .map_or(Ok(()), |it| update::check_request(&target, &request, &it))?;
                    return Err(error);
                }
                Admission::Already => return Ok(Reply::Done(answer::provisioned(record))),
                Admission::Join => Arc::clone(record),
                Admission::Begin => {
                    let Some(catalog) = self.shared.catalog() else { return Err(no_catalog()) };
                    if target.plan_id != record.ordered.plan_id {
                        self.shared.check_sold(&target.service_id, &target.plan_id)?;
                    }
                    let can = self.shared.can(&target.service_id, Capability::Update);
                    update::check_request(&target, &request, &catalog)?;
                    update::check_state(record, &target, &request, &catalog, can)?;
                    let intent = Intent {
                        request_hash: hash.clone(),
                        ordered: Some(target),
                        previous_values: Some(update::previous_values(record, &request)),
                        originating_identity: call.originating_identity.clone(),
                        ..Intent::new(Action::Update)
                    };
                    let next = Arc::new(self.begin(record, intent));
                    if !self.commit(&next, stored.as_ref()).await? {
                        continue;
                    }
                    next
                }
            };
            return self.conclude(call, next, answer::provisioned, Reply::Done).await;
        }
        Err(contended())
    }

    async fn deprovision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: DeprovisionRequest,
    ) -> Result<Reply<()>, Error> {
        self.delete(call, &Key::Instance(instance.clone()), &request.service_id, None).await
    }

    async fn instance(&self, _: &Call, instance: &InstanceId) -> Result<InstanceView, Error> {
        self.fetch(&Key::Instance(instance.clone()), answer::instance).await
    }

    async fn instance_last_operation(
        &self,
        _: &Call,
        instance: &InstanceId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        self.last_operation(&Key::Instance(instance.clone()), &query).await
    }

    async fn bind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: BindRequest,
    ) -> Result<Reply<BindingBody>, Error> {
        let key = Key::Binding(instance.clone(), binding.clone());
        for view in self.views() {
            let found = self.try_bind(call, &key, &request, view).await;
            if let Some(reply) = self.settle(call, found, view, answer::bound).await {
                return reply;
            }
        }
        Err(contended())
    }

    async fn unbind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: UnbindRequest,
    ) -> Result<Reply<()>, Error> {
        let key = Key::Binding(instance.clone(), binding.clone());
        self.delete(call, &key, &request.service_id, None).await
    }

    async fn binding(
        &self,
        _: &Call,
        instance: &InstanceId,
        binding: &BindingId,
    ) -> Result<BindingView, Error> {
        let key = Key::Binding(instance.clone(), binding.clone());
        let both = |record: Option<&Record>| {
            let view = answer::binding(record)?;
            Ok((record.map(|record| record.ordered.service_id.clone()), view))
        };
        let (service, view) = self.fetch(&key, both).await?;
        // The server asks about the service that the request names, which may be another, or none.
        match service.is_some_and(|service| self.shared.answers_binds_at_once(&service)) {
            true => Err(Error::not_found(UNFETCHED)),
            false => Ok(view),
        }
    }

    async fn binding_last_operation(
        &self,
        _: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        self.last_operation(&Key::Binding(instance.clone(), binding.clone()), &query).await
    }
}

/// How a request reads the record that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// As this process knows the record: a decision by it holds only if it leads to a write, which fails where
    /// somebody else wrote first.
    Known,
    /// The current record, if the store has it in memory. Most orders are for something new: the write finds out that
    /// there is no record, where a look first would cost each order a read.
    AtHand,
    /// The current record.
    Sure,
}

/// The outcome of one try to admit a request that makes something.
enum Found<T> {
    /// The operation was recorded just now.
    Begun(Arc<Record>),
    /// The operation was recorded before, by the same request.
    Joined(Stored),
    /// The request was carried out before; this is its answer.
    Already(T),
}

impl Engine {
    /// The ways to read the record, one for each try of a request: a cheap one first, then [`ROUNDS`] sure ones.
    fn views(&self) -> impl Iterator<Item = View> + use<> {
        let cheap = if self.shared.store.lags() { View::Known } else { View::AtHand };
        std::iter::once(cheap).chain(std::iter::repeat_n(View::Sure, ROUNDS))
    }

    async fn look(&self, key: &Key, view: View) -> Result<Option<Stored>, Error> {
        match view {
            View::Known => self.shared.store.glance(key).await.map_err(store_error),
            View::AtHand => Ok(self.shared.store.recall(key)),
            View::Sure => self.read(key).await,
        }
    }

    /// Answers a request by the outcome of one try; `None`: the record has to be read again.
    async fn settle<T>(
        &self,
        call: &Call,
        found: Result<Option<Found<T>>, Error>,
        view: View,
        body: fn(&Record) -> T,
    ) -> Option<Result<Reply<T>, Error>> {
        match found {
            Ok(Some(Found::Begun(record))) => {
                Some(self.conclude(call, record, body, Reply::Created).await)
            }
            // What is known may be old.
            _ if view == View::Known => None,
            Ok(Some(Found::Joined(stored))) => self.join(call, stored, body, Reply::Created).await,
            Ok(Some(Found::Already(body))) => Some(Ok(Reply::Done(body))),
            Ok(None) => None,
            // What it speaks of may be there and not at hand, and be answered where nothing can be written.
            Err(_) if view == View::AtHand => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Tries to admit a provision once; `None`: somebody else wrote first.
    async fn try_provision(
        &self,
        call: &Call,
        key: &Key,
        ordered: &Ordered,
        view: View,
    ) -> Result<Option<Found<ProvisionedBody>>, Error> {
        let stored = self.look(key, view).await?;
        let existing = stored.as_ref().map(|stored| &*stored.record);
        Ok(match admit::create(existing, Action::Provision, ordered) {
            Admission::Refuse(error) => return Err(error),
            Admission::Already => existing.map(answer::provisioned).map(Found::Already),
            Admission::Join => stored.map(Found::Joined),
            Admission::Begin => {
                if existing.is_none_or(|record| !record.is_live()) {
                    self.shared.check_sold(&ordered.service_id, &ordered.plan_id)?;
                }
                let next = self.creation(call, key, existing, ordered, Action::Provision);
                let next = Arc::new(next);
                self.commit(&next, stored.as_ref()).await?.then_some(Found::Begun(next))
            }
        })
    }

    /// Tries to admit a bind once; `None`: somebody else wrote first.
    async fn try_bind(
        &self,
        call: &Call,
        key: &Key,
        request: &BindRequest,
        view: View,
    ) -> Result<Option<Found<BindingBody>>, Error> {
        let instance = key.instance();
        let parent = self.look(&Key::Instance(instance.clone()), view).await?;
        let parent = parent.as_ref().map(|stored| &*stored.record).filter(|r| r.is_live());
        let Some(parent) = parent else {
            return Err(Error::not_found("there is no such service instance"));
        };
        let stored = self.look(key, view).await?;
        let existing = stored.as_ref().map(|stored| &*stored.record);
        let ordered = match admit::rotated_already(existing, request) {
            Some(ordered) => ordered,
            None => self.binding_order(parent, instance, request).await?,
        };
        Ok(match admit::create(existing, Action::Bind, &ordered) {
            Admission::Refuse(error) => return Err(error),
            Admission::Already => existing.map(answer::bound).map(Found::Already),
            Admission::Join => stored.map(Found::Joined),
            Admission::Begin => {
                admit::bindable(Some(parent))?;
                admit::of_instance(parent, &ordered)?;
                let next = Arc::new(self.creation(call, key, existing, &ordered, Action::Bind));
                self.commit(&next, stored.as_ref()).await?.then_some(Found::Begun(next))
            }
        })
    }

    /// Deprovisions an instance or removes a binding of this service, as a platform's DELETE does. `why` is recorded
    /// with the operation that it halts, where no platform asked for it.
    pub(crate) async fn delete(
        &self,
        call: &Call,
        key: &Key,
        service: &ServiceId,
        why: Option<&str>,
    ) -> Result<Reply<()>, Error> {
        for _ in 0..ROUNDS {
            let stored = self.read(key).await?;
            let existing = stored.as_ref().map(|stored| &*stored.record);
            check_service(existing, service)?;
            let next = match self.admit_removal(key, existing).await? {
                Admission::Refuse(error) => return Err(error),
                Admission::Already => return Ok(Reply::Done(())),
                Admission::Join => stored.as_ref().map(|stored| Arc::clone(&stored.record)),
                Admission::Begin => {
                    let Some(record) = existing else { continue };
                    let why = why.map(str::to_owned);
                    let intent = Intent { why, ..by(call, key.removal()) };
                    let next = Arc::new(self.begin(record, intent));
                    if !self.commit(&next, stored.as_ref()).await? {
                        continue;
                    }
                    Some(next)
                }
            };
            let Some(record) = next else { continue };
            return self.conclude(call, record, |_| (), Reply::Done).await;
        }
        Err(contended())
    }

    async fn admit_removal(
        &self,
        key: &Key,
        existing: Option<&Record>,
    ) -> Result<Admission, Error> {
        let instance = key.instance();
        if key.binding().is_some() {
            let parent = self.read(&Key::Instance(instance.clone())).await?;
            return Ok(admit::unbind(existing, parent.as_ref().map(|stored| &*stored.record)));
        }
        let bound = self.shared.policy.bound == OnBound::Refuse
            && existing.is_some_and(|record| record.is_live() && !record.is_busy())
            && self.any_live_binding(instance).await?;
        Ok(admit::deprovision(existing, bound))
    }

    /// Answers a `GET` by the record as this process knows it, or by the current one where the known one may be old and
    /// leads to an error.
    async fn fetch<T>(
        &self,
        key: &Key,
        answer: fn(Option<&Record>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let known = self.look(key, View::Known).await?;
        let answered = answer(known.as_ref().map(|stored| &*stored.record));
        if answered.is_ok() || !self.shared.store.lags() {
            return answered;
        }
        let stored = self.read(key).await?;
        answer(stored.as_ref().map(|stored| &*stored.record))
    }

    pub(crate) async fn read(&self, key: &Key) -> Result<Option<Stored>, Error> {
        self.shared.store.read(key).await.map_err(store_error)
    }

    async fn last_operation(
        &self,
        key: &Key,
        query: &LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        // Whose token is known was heard of; without one, the operation that is meant may be a later one.
        let known = self.shared.store.glance_public(key).await.map_err(store_error)?;
        let certain = known.as_ref().is_some_and(|stored| answer::knows(&stored.record, query));
        let stored =
            if certain || !self.shared.store.lags() { known } else { self.read(key).await? };
        let record = stored.as_ref().map(|stored| &*stored.record);
        answer::last_operation(record, query, self.shared.policy.deleted, self.shared.clock.now())
    }

    /// Whether an instance has live bindings; a binding that cannot be read counts as one.
    pub(crate) async fn any_live_binding(&self, instance: &InstanceId) -> Result<bool, Error> {
        self.any_binding(instance, Filter::Live).await
    }

    async fn any_binding(&self, instance: &InstanceId, filter: Filter) -> Result<bool, Error> {
        let query = Query {
            kind: Kind::Bindings,
            instance: Some(instance.clone()),
            filter,
            after: None,
            limit: 1,
        };
        // One that cannot be read is one.
        let page = self.shared.store.scan(&query).await.map_err(store_error)?;
        Ok(!page.is_empty())
    }

    /// The order of a binding: as requested, or as its predecessor's.
    async fn binding_order(
        &self,
        parent: &Record,
        instance: &InstanceId,
        request: &BindRequest,
    ) -> Result<Ordered, Error> {
        let Some(predecessor) = &request.predecessor_binding_id else {
            return admit::binding_order(parent, request);
        };
        let stored = self.read(&Key::Binding(instance.clone(), predecessor.clone())).await?;
        let predecessor = stored
            .as_ref()
            .map(|stored| &*stored.record)
            .filter(|record| record.is_live() && record.lifecycle == Lifecycle::Ready);
        let rotatable = self.shared.catalog().is_none_or(|catalog| {
            let plan = catalog.plan(&parent.ordered.service_id, &parent.ordered.plan_id);
            plan.is_none_or(PlanEntry::binding_rotatable)
        });
        admit::rotation(parent, predecessor, request, rotatable, self.shared.clock.now())
    }
}

pub(crate) fn by(call: &Call, action: Action) -> Intent {
    Intent { originating_identity: call.originating_identity.clone(), ..Intent::new(action) }
}

/// Checks that a delete names the resource's own service. The plan is not checked: it may have changed meanwhile.
fn check_service(existing: Option<&Record>, service: &ServiceId) -> Result<(), Error> {
    match existing.filter(|record| record.is_live()) {
        Some(record) if record.ordered.service_id != *service => {
            Err(Error::bad_request("service_id: is not the service of what is to be deleted"))
        }
        _ => Ok(()),
    }
}

fn contended() -> Error {
    Error::new(
        ErrorKind::ConcurrencyError,
        "the resource is being changed by many requests at once; come again",
    )
    .retry_after(Duration::from_secs(1))
}

fn no_catalog() -> Error {
    Error::new(ErrorKind::Unavailable, "the catalog was not read yet; come again")
        .retry_after(Duration::from_secs(2))
}

pub(crate) fn store_error(error: StoreError) -> Error {
    match error {
        StoreError::Conflict => contended(),
        StoreError::Held(why) => Error::new(
            ErrorKind::ConcurrencyError,
            format!(
                "what had this id before is still being removed: {why}; come again once it is gone"
            ),
        )
        .retry_after(Duration::from_secs(5)),
        StoreError::Overloaded => Error::new(
            ErrorKind::TooManyRequests,
            "too many requests are waiting to be recorded; nothing was recorded, come again later",
        )
        .retry_after(Duration::from_secs(1)),
        StoreError::TooLarge(why) => Error::new(
            ErrorKind::PayloadTooLarge,
            format!("the request is too large to be recorded: {why}; nothing was recorded"),
        ),
        StoreError::Unavailable(why) => {
            tracing::error!(%why, "the store is not available");
            Error::new(ErrorKind::Unavailable, "the store is not available; see the broker's log")
                .retry_after(Duration::from_secs(5))
        }
        StoreError::Unreadable { key, why } => {
            tracing::error!(%key, %why, "a record cannot be read");
            Error::internal(
                "the record cannot be read; see the broker's log. An operator can forget it: manciple purge",
            )
        }
    }
}
