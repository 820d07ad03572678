//! A platform: orders, binds, updates, unbinds and deletes; repeats what it hears no answer to; and takes
//! the replicas at their word.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Engine;
use engine::record::{Key, PAST_OPERATIONS, Record};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kubernetes::names;
use kubernetes::resources::Kind;
use osb::{
    Action, Backend, BindRequest, BindingId, Call, DeprovisionRequest, Error, ErrorKind,
    InstanceId, LastOperation, LastOperationQuery, OperationState, PlanId, ProvisionRequest, Reply,
    ServiceId, UnbindRequest, UpdateRequest,
};
use serde_json::{Value, json};
use testkit::kubelet::Ledger;
use testkit::random::Random;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::replica::Engines;
use crate::truth;
use crate::world::World;

/// How long an answer is waited for before somebody else is asked.
const PATIENCE: Duration = Duration::from_secs(15);
/// After this nothing happens any more.
const STUCK: Duration = Duration::from_secs(300);
/// How long a resource may stay that was deleted, since its removal was last tried. One that failed is tried again after
/// 15 s, 30 s, a minute, two and four, and any of these may fail as the script says, after the time that it takes.
const STAYS: Duration = Duration::from_secs(420);

/// The replicas that answer now.
#[derive(Clone, Default)]
pub(crate) struct Fleet(Arc<Mutex<Vec<Option<Answers>>>>);

/// A replica, and where its work is done.
type Answers = (Engines, Handle);

impl Fleet {
    /// Puts a replica into a place, or takes it away.
    pub(crate) fn set(&self, place: usize, replica: Option<Answers>) {
        let mut places = self.0.lock().unwrap();
        if places.len() <= place {
            places.resize_with(place + 1, || None);
        }
        places[place] = replica;
    }

    fn pick(&self, random: &mut Random) -> Option<Answers> {
        let places = self.0.lock().unwrap();
        let live: Vec<_> = places.iter().flatten().collect();
        let index = usize::try_from(random.below(live.len().max(1) as u64)).unwrap();
        live.get(index).map(|&it| it.clone())
    }
}

/// An operation that was acknowledged.
pub(crate) struct Acknowledged {
    binding: Option<BindingId>,
    token: String,
    action: Action,
    /// What it said when it had ended, if that was waited for.
    said: Option<LastOperation>,
    /// It is of a life that is over: whoever ordered anew may not have known of its tombstone.
    former: bool,
}

/// One of a platform's users: an instance, and what is done with it.
pub(crate) struct User {
    pub(crate) world: Arc<World>,
    pub(crate) fleet: Fleet,
    pub(crate) random: Random,
    pub(crate) instance: InstanceId,
    pub(crate) acknowledged: Vec<Acknowledged>,
    /// It may delete the resource, instead of asking.
    pub(crate) by_hand: bool,
    /// The service that it has.
    pub(crate) service: &'static str,
    /// The operations of which a broker told how far they were.
    pub(crate) told: BTreeSet<String>,
}

impl User {
    /// Some lives of an instance, each to its end.
    pub(crate) async fn run(mut self) -> Self {
        for life in 0..1 + self.random.below(2) {
            self.acknowledged.iter_mut().for_each(|it| it.former = true);
            let plan = if self.random.below(4) == 0 { "large" } else { "small" };
            let token = self.provision(plan, life).await;
            let hasty = self.random.below(5) == 0;
            if !hasty && self.ended(None, token, Action::Provision).await {
                self.use_it(plan).await;
            }
            self.deprovision().await;
        }
        self
    }

    /// One life of an instance, in which each operation has to succeed the first time it is asked for.
    pub(crate) async fn run_whole(mut self) -> Self {
        let token = self.provision("small", 0).await;
        assert!(self.ended(None, token, Action::Provision).await);
        assert_eq!(self.update("small").await, "large");
        let binding = BindingId::new("b").unwrap();
        let token = self.bind(&binding, "large").await;
        assert!(self.made(&binding, token).await);
        self.unbind(&binding, "large").await;
        self.deprovision().await;
        self
    }

    /// The life of an instance whose provision fails: it is told so, and can be removed.
    pub(crate) async fn run_failing(mut self) -> Self {
        let token = self.provision("small", 0).await;
        assert!(!self.ended(None, token, Action::Provision).await, "it succeeded");
        self.deprovision().await;
        self
    }

    /// The life of an instance that is removed while it is made, by the platform or by its resource.
    pub(crate) async fn run_halted(mut self, by_hand: bool) -> Self {
        self.provision("small", 0).await;
        match by_hand {
            true => self.delete_resource().await,
            false => self.deprovision().await,
        }
        self
    }

    pub(crate) async fn provision(&mut self, plan: &str, life: u64) -> Option<String> {
        let request: ProvisionRequest = serde_json::from_value(json!({
            "service_id": self.service, "plan_id": self.plan(plan),
            "organization_guid": "o", "space_guid": "s",
            "parameters": {"password": format!("planted-{life}")},
        }))
        .unwrap();
        let id = self.instance.clone();
        let reply = self.insist("provision", |engine| {
            let (id, request) = (id.clone(), request.clone());
            async move {
                is_offered(&engine, &request.service_id, &request.plan_id)?;
                engine.provision(&call(), &id, request).await
            }
        });
        let reply = reply.await;
        self.accepted(None, Action::Provision, reply)
    }

    async fn use_it(&mut self, plan: &str) {
        let mut plan = plan.to_owned();
        for number in 0..self.random.below(3) {
            if self.random.below(3) == 0 {
                plan = self.update(&plan).await;
            }
            let binding = BindingId::new(format!("b{number}")).unwrap();
            let token = self.bind(&binding, &plan).await;
            let hasty = self.random.below(5) == 0;
            if !hasty {
                self.made(&binding, token).await;
            }
            self.unbind(&binding, &plan).await;
        }
    }

    async fn update(&mut self, plan: &str) -> String {
        let other = if plan == "small" { "large" } else { "small" };
        let plan_id = self.plan(other);
        let request: UpdateRequest = serde_json::from_value(json!({
            "service_id": self.service, "plan_id": self.plan(other), "parameters": {"password": "planted-update"},
        }))
        .unwrap();
        let id = self.instance.clone();
        let reply = self.insist("update", |engine| {
            let (id, request) = (id.clone(), request.clone());
            let plan = plan_id.clone();
            async move {
                is_offered(&engine, &request.service_id, &plan)?;
                engine.update(&call(), &id, request).await
            }
        });
        let reply = reply.await;
        let token = self.accepted(None, Action::Update, reply);
        match self.ended(None, token, Action::Update).await {
            true => other.to_owned(),
            false => plan.to_owned(),
        }
    }

    async fn bind(&mut self, binding: &BindingId, plan: &str) -> Option<String> {
        let (id, service) = (self.instance.clone(), self.service_id());
        let plan = self.plan(plan);
        let request: BindRequest = serde_json::from_value(json!({
            "service_id": self.service, "plan_id": plan,
            "parameters": {"password": "planted-binding"},
        }))
        .unwrap();
        let reply = self.insist("bind", |engine| {
            let (id, binding, request) = (id.clone(), binding.clone(), request.clone());
            let (service, plan) = (service.clone(), plan.clone());
            async move {
                is_offered(&engine, &service, &plan)?;
                engine.bind(&call(), &id, &binding, request).await
            }
        });
        let reply = reply.await;
        self.accepted(Some(binding), Action::Bind, reply)
    }

    /// Waits until a binding is made, and sees that its credentials are there; whether it ended well.
    async fn made(&mut self, binding: &BindingId, token: Option<String>) -> bool {
        let well = self.ended(Some(binding), token.clone(), Action::Bind).await;
        if well {
            let id = self.instance.clone();
            let view = self.insist("fetch", |engine| {
                let (id, binding) = (id.clone(), binding.clone());
                async move { engine.binding(&call(), &id, &binding).await }
            });
            let view = view.await.expect("a binding that was made is there");
            let credentials = view.body.credentials.expect("credentials").expose().clone();
            if let Some(token) = token {
                let password = format!("secret-of-{token}");
                assert_eq!(credentials["password"], Value::String(password), "of another");
            }
        }
        well
    }

    async fn unbind(&mut self, binding: &BindingId, plan: &str) {
        let id = self.instance.clone();
        let request = UnbindRequest { service_id: self.service_id(), plan_id: self.plan(plan) };
        loop {
            let reply = self.insist("unbind", |engine| {
                let (id, binding, request) = (id.clone(), binding.clone(), request.clone());
                async move { engine.unbind(&call(), &id, &binding, request).await }
            });
            match reply.await {
                Err(error) if error.kind == ErrorKind::Gone => return,
                reply => {
                    let token = self.accepted(Some(binding), Action::Unbind, reply);
                    if self.ended(Some(binding), token, Action::Unbind).await {
                        return;
                    }
                }
            }
        }
    }

    async fn deprovision(&mut self) {
        if self.by_hand && self.random.below(2) == 0 {
            return self.delete_resource().await;
        }
        let request =
            DeprovisionRequest { service_id: self.service_id(), plan_id: self.plan("small") };
        let id = self.instance.clone();
        loop {
            let reply = self.insist("deprovision", |engine| {
                let (id, request) = (id.clone(), request.clone());
                async move { engine.deprovision(&call(), &id, request).await }
            });
            match reply.await {
                Err(error) if error.kind == ErrorKind::Gone => return,
                reply => {
                    let token = self.accepted(None, Action::Deprovision, reply);
                    if self.ended(None, token, Action::Deprovision).await {
                        return;
                    }
                }
            }
        }
    }

    /// As `kubectl delete` does, and waits.
    async fn delete_resource(&self) {
        let key = Key::Instance(self.instance.clone());
        let name = names::resource(&self.world.sells.group(self.service), &key);
        let api: Api<DynamicObject> = Api::namespaced_with(
            self.world.client.clone(),
            &self.world.namespace,
            &Kind::ServiceInstance.resource(),
        );
        let uid = api.get_opt(&name).await.unwrap().and_then(|found| found.metadata.uid);
        if uid.is_none() {
            return;
        }
        let _ = api.delete(&name, &DeleteParams::background()).await;
        let (mut tried, mut tries) = (Instant::now(), BTreeSet::new());
        while let Some(found) = api.get_opt(&name).await.unwrap()
            && found.metadata.uid == uid
        {
            let status = &found.data["status"];
            if tries.insert(status["lastOperation"]["id"].to_string()) {
                tried = Instant::now();
            }
            assert!(tried.elapsed() < STAYS, "{} was deleted, and stays: {status}", self.instance);
            sleep(Duration::from_millis(100)).await;
        }
    }

    fn service_id(&self) -> ServiceId {
        ServiceId::new(self.service).unwrap()
    }

    fn plan(&self, name: &str) -> PlanId {
        match self.world.sells.several {
            true => PlanId::new(format!("{}-{name}", self.service)).unwrap(),
            false => PlanId::new(name).unwrap(),
        }
    }

    /// Of several brokers one may not sell now what it is going to sell again.
    fn is_not_sold(&self, error: &Error) -> bool {
        self.world.sells.several && error.kind == ErrorKind::BadRequest
    }

    /// Repeats a request until somebody answers it, as a platform does that heard nothing.
    async fn insist<T, F>(&mut self, what: &str, request: impl Fn(Engine) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        let begun = Instant::now();
        let mut last = None;
        loop {
            assert!(begun.elapsed() < STUCK, "{what} of {}: {last:?}", self.instance);
            let Some((engines, handle)) = self.fleet.pick(&mut self.random) else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let engine = engines.of(self.service).clone();
            let mut answer = handle.spawn(request(engine));
            match timeout(PATIENCE, &mut answer).await {
                Ok(Ok(Err(error))) if again(&error) || self.is_not_sold(&error) => {
                    last = Some(error);
                    sleep(Duration::from_millis(100)).await;
                }
                Ok(Ok(answer)) => return answer,
                Ok(Err(_)) => sleep(Duration::from_millis(20)).await,
                Err(_) => answer.abort(),
            }
        }
    }

    /// Waits for the end of an operation; whether it ended well. What it says has to be true.
    pub(crate) async fn ended(
        &mut self,
        binding: Option<&BindingId>,
        token: Option<String>,
        action: Action,
    ) -> bool {
        let Some(token) = token else { return true };
        let begun = Instant::now();
        loop {
            let last = self.last_operation(binding, &token).await;
            let last = last.unwrap_or_else(|error| panic!("{token} was acknowledged: {error:?}"));
            let ledger = self.world.kubelet.ledger();
            if last.state != OperationState::InProgress {
                self.show_if_unknown(binding, &token).await;
                let (taken, unsold) = (self.world.taken(), truth::unsold(self.service));
                truth::check(&ledger, &taken, unsold, &token, action, &last);
                let well = last.state == OperationState::Succeeded;
                well.then(|| self.world.ended_well(&token));
                let asked = self.acknowledged.iter_mut().rfind(|it| it.token == token);
                asked.expect("its token was kept").said = Some(last);
                return well;
            }
            let said = last.description.as_deref().unwrap_or_default();
            if truth::is_told(&ledger, &token, said) {
                self.told.insert(token.clone());
            }
            if begun.elapsed() >= STUCK {
                self.is_stuck(&token, &last, &ledger).await;
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Fails, with all that tells what an operation waits for.
    async fn is_stuck(&self, token: &str, last: &LastOperation, ledger: &Ledger) -> ! {
        let runs = ledger.iter().filter(|(run, _)| run.contains(token));
        println!("{token} of {} is stuck: {last:?}: {:?}", self.instance, runs.collect::<Vec<_>>());
        let (client, namespace) = (&self.world.client, &self.world.namespace);
        let all = ListParams::default();
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        for Job { metadata: of, status, .. } in jobs.list(&all).await.into_iter().flatten() {
            println!("a Job: {:?} {:?} {status:?}", of.name, of.annotations);
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        for Pod { metadata: of, status, .. } in pods.list(&all).await.into_iter().flatten() {
            println!("a pod: {:?} {:?} {status:?}", of.name, of.deletion_timestamp);
        }
        let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
        for lease in leases.list(&all).await.into_iter().flatten() {
            println!("a Lease: {:?}", lease.spec);
        }
        panic!("{token} of {} is stuck: {last:?}", self.instance);
    }

    /// Asks for all that was acknowledged once more: each says how it ended, as it said before or, where nobody had
    /// waited for that, truly. One that has made room for later ones is not known any more.
    pub(crate) async fn look_back(&mut self) {
        for acknowledged in std::mem::take(&mut self.acknowledged) {
            let Acknowledged { binding, token, action, said, former } = acknowledged;
            let last = self.last_operation(binding.as_ref(), &token).await;
            let record = self.record(binding.as_ref()).await.expect("what has an operation");
            if !remembers(&record, &token) {
                let is_full = record.past.len() == PAST_OPERATIONS;
                assert!(former || is_full, "{token} is not in what is kept: {record:?}");
                assert!(last.is_err(), "{token} has not ended as another: {last:?}");
                continue;
            }
            let last = last.unwrap_or_else(|error| {
                panic!("{token} was acknowledged, and is forgotten: {error:?}")
            });
            assert!(last.state != OperationState::InProgress, "{token} goes on for ever: {last:?}");
            match said {
                Some(said) => assert_eq!(last, said, "{token} says something else now"),
                None => {
                    let (ledger, taken) = (self.world.kubelet.ledger(), self.world.taken());
                    let unsold = truth::unsold(self.service);
                    truth::check(&ledger, &taken, unsold, &token, action, &last);
                }
            }
        }
    }

    /// What is kept, if it is not of this operation: for whoever reads why a schedule failed.
    async fn show_if_unknown(&mut self, binding: Option<&BindingId>, token: &str) {
        match self.record(binding).await {
            Ok(record) if remembers(&record, token) => {}
            kept => println!("{token} of {} is not in what is kept: {kept:?}", self.instance),
        }
    }

    /// What is kept of the instance, or of a binding.
    async fn record(&mut self, binding: Option<&BindingId>) -> Result<Arc<Record>, Error> {
        let key = match binding {
            Some(binding) => Key::Binding(self.instance.clone(), binding.clone()),
            None => Key::Instance(self.instance.clone()),
        };
        let record = self.insist("record", |engine| {
            let key = key.clone();
            async move { engine.record(&key).await }
        });
        record.await
    }

    /// The token of what was accepted.
    fn accepted<T>(
        &mut self,
        binding: Option<&BindingId>,
        action: Action,
        reply: Result<Reply<T>, Error>,
    ) -> Option<String> {
        let token = match reply {
            Ok(Reply::Accepted { operation, .. }) => operation,
            Ok(_) => return None,
            Err(error) => panic!("refused: {error:?}"),
        };
        self.acknowledged.push(Acknowledged {
            binding: binding.cloned(),
            token: token.clone(),
            action,
            said: None,
            former: false,
        });
        Some(token)
    }

    pub(crate) async fn last_operation(
        &mut self,
        binding: Option<&BindingId>,
        token: &str,
    ) -> Result<LastOperation, Error> {
        let query = LastOperationQuery { operation: Some(token.to_owned()), ..Default::default() };
        let id = self.instance.clone();
        let answer = self.insist("last_operation", |engine| {
            let (id, binding, query) = (id.clone(), binding.cloned(), query.clone());
            async move {
                match binding {
                    Some(binding) => {
                        engine.binding_last_operation(&call(), &id, &binding, query).await
                    }
                    None => engine.instance_last_operation(&call(), &id, query).await,
                }
            }
        });
        answer.await
    }
}

/// As the server sees to it before it passes an order on.
fn is_offered(engine: &Engine, service: &ServiceId, plan: &PlanId) -> Result<(), Error> {
    let unavailable = || Error::new(ErrorKind::Unavailable, "there is no catalog yet");
    let catalog = engine.catalog().ok_or_else(unavailable)?;
    let unknown = || Error::bad_request("it is not in the catalog");
    catalog.plan(service, plan).map(drop).ok_or_else(unknown)
}

/// Whether a platform asks again.
fn again(error: &Error) -> bool {
    use ErrorKind::{ConcurrencyError, TooManyRequests, Unavailable};
    matches!(error.kind, ConcurrencyError | TooManyRequests | Unavailable)
}

/// Whether what is kept has this operation.
fn remembers(record: &Record, token: &str) -> bool {
    record.operation.id == token || record.past.iter().any(|it| it.id == token)
}

fn call() -> Call {
    Call { accepts_incomplete: true, ..Call::default() }
}
