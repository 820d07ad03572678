//! The status codes of OpenShift's template service broker ("the original"), for platforms that rely on them; otherwise
//! the specification's are used.
//!
//! Behaviour that is only a defect of the original is not repeated: 409 for an identical order, 500 where a
//! TemplateInstance is missing, a binding of an instance that is not ready, incomplete credentials.

use std::sync::Arc;

use async_trait::async_trait;
use engine::Engine;
use engine::record::{Key, Record};
use osb::catalog::PlanEntry;
use osb::{
    Action, Backend, BindRequest, BindingBody, BindingId, BindingView, Call, CompiledCatalog,
    DeprovisionRequest, Error, ErrorKind, InstanceId, InstanceView, LastOperation,
    LastOperationQuery, OperationState, ProvisionRequest, ProvisionedBody, Reply, UnbindRequest,
    UpdateRequest,
};

use super::identity;

/// Which status codes the broker answers with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StatusCodes {
    /// The status codes of the specification.
    #[default]
    Specification,
    /// The status codes of the original, which has neither PATCH nor GET of instances and bindings.
    Original,
}

/// The names of operations, which are all that the original says about them.
const PROVISIONING: &str = "provisioning";
const UPDATING: &str = "updating";
const DEPROVISIONING: &str = "deprovisioning";

/// A backend over an engine, with the original's status codes.
pub(super) struct Strict<B> {
    inner: B,
    engine: Engine,
}

/// The operation whose state is requested.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    /// An operation of the engine, by its id.
    Of(String),
    /// The removal of an existing instance that nobody has requested: it has not ended.
    Nothing,
    /// The removal of an instance that does not exist.
    Gone,
}

/// Whether an instance exists.
enum Live {
    /// The instance is recorded.
    Recorded(Arc<Record>),
    /// The instance was ordered elsewhere, and is still being made or removed; with its progress.
    Elsewhere(Box<LastOperation>),
    No,
}

impl<B: Backend> Strict<B> {
    pub(super) fn new(inner: B, engine: Engine) -> Self {
        Self { inner, engine }
    }

    /// Finds out whether an instance exists.
    async fn live(&self, call: &Call, instance: &InstanceId) -> Result<Live, Error> {
        let of = |record: Arc<Record>| match record.is_live() {
            true => Live::Recorded(record),
            false => Live::No,
        };
        if let Some(record) = self.stored(instance).await? {
            return Ok(of(record));
        }
        // An instance that was ordered elsewhere is recorded when its state is requested.
        let asked = self.inner.instance_last_operation(call, instance, Default::default()).await;
        let last = match asked {
            Ok(last) => Some(last),
            Err(error) if matches!(error.kind, ErrorKind::Gone | ErrorKind::NotFound) => None,
            Err(error) => return Err(error),
        };
        let recorded = self.stored(instance).await?.map(of);
        Ok(recorded
            .unwrap_or_else(|| last.map_or(Live::No, |last| Live::Elsewhere(Box::new(last)))))
    }

    async fn stored(&self, instance: &InstanceId) -> Result<Option<Arc<Record>>, Error> {
        let key = Key::Instance(instance.clone());
        let stored = self.engine.store().read(&key).await.map_err(|error| {
            tracing::warn!(%error, "an instance cannot be read");
            Error::new(ErrorKind::Unavailable, "the instance cannot be read now; come again")
        })?;
        Ok(stored.map(|stored| stored.record))
    }

    /// Refuses a request for an instance that does not exist.
    async fn has_to_be_there(&self, call: &Call, instance: &InstanceId) -> Result<(), Error> {
        identity::requester(call.originating_identity.as_ref())?;
        match self.live(call, instance).await? {
            Live::Recorded(_) | Live::Elsewhere(_) => Ok(()),
            Live::No => Err(Error::bad_request("there is no such service instance")),
        }
    }
}

/// The action that an operation's name means in the original.
///
/// # Errors
/// As in the original: without a name, or with another one.
fn action(operation: Option<&str>) -> Result<Action, Error> {
    match operation {
        Some(PROVISIONING) => Ok(Action::Provision),
        Some(DEPROVISIONING) => Ok(Action::Deprovision),
        Some(UPDATING) => Err(Error::bad_request("operation: nothing is ever updating here")),
        _ => Err(Error::bad_request("operation: has to be provisioning or deprovisioning")),
    }
}

/// The operation of an instance that a name means in the original.
///
/// # Errors
/// As in the original: without a name, or with another one; and for an instance that does not exist.
fn asked(record: Option<&Record>, operation: Option<&str>) -> Result<Asked, Error> {
    let action = action(operation)?;
    let Some(record) = record else {
        return match action {
            Action::Deprovision => Ok(Asked::Gone),
            _ => Err(Error::bad_request("there is no such service instance")),
        };
    };
    let now = &record.operation;
    let now = (now.action == action).then(|| now.id.clone());
    // A removal that was requested before the instance was ordered anew is not this one's.
    let past = record.past.iter().rev().filter(|past| past.created_at >= record.created_at);
    let before = || past.into_iter().find(|past| past.action == action).map(|past| past.id.clone());
    match (now.or_else(before), action) {
        (Some(id), _) => Ok(Asked::Of(id)),
        (None, Action::Deprovision) => Ok(Asked::Nothing),
        (None, _) => Ok(Asked::Of(record.operation.id.clone())),
    }
}

fn named<T>(reply: Reply<T>, operation: &str) -> Reply<T> {
    match reply {
        Reply::Accepted { body, .. } => Reply::Accepted { operation: operation.to_owned(), body },
        other => other,
    }
}

fn none_such<T>() -> Result<T, Error> {
    Err(Error::new(ErrorKind::MethodNotAllowed, "the route has no such method"))
}

#[async_trait]
impl<B: Backend> Backend for Strict<B> {
    fn catalog(&self) -> Option<Arc<CompiledCatalog>> {
        self.inner.catalog()
    }

    /// As the original, makes and removes instances asynchronously, and binds at once.
    fn requires_async(&self, action: Action, plan: Option<&PlanEntry>) -> bool {
        match action {
            Action::Provision | Action::Deprovision => true,
            Action::Update | Action::Bind | Action::Unbind => {
                self.inner.requires_async(action, plan)
            }
        }
    }

    async fn provision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: ProvisionRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        let reply = self.inner.provision(call, instance, request).await?;
        Ok(named(reply, PROVISIONING))
    }

    async fn update(
        &self,
        _: &Call,
        _: &InstanceId,
        _: UpdateRequest,
    ) -> Result<Reply<ProvisionedBody>, Error> {
        none_such()
    }

    async fn deprovision(
        &self,
        call: &Call,
        instance: &InstanceId,
        request: DeprovisionRequest,
    ) -> Result<Reply<()>, Error> {
        let reply = self.inner.deprovision(call, instance, request).await?;
        Ok(named(reply, DEPROVISIONING))
    }

    async fn instance(&self, _: &Call, _: &InstanceId) -> Result<InstanceView, Error> {
        none_such()
    }

    async fn instance_last_operation(
        &self,
        call: &Call,
        instance: &InstanceId,
        mut query: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        identity::requester(call.originating_identity.as_ref())?;
        let record = match self.live(call, instance).await? {
            Live::Recorded(record) => Some(record),
            // As long as the instance exists its removal has not ended either.
            Live::Elsewhere(last) => {
                return action(query.operation.as_deref()).map(|_| *last);
            }
            Live::No => None,
        };
        let asked = asked(record.as_deref(), query.operation.as_deref())?;
        let stands = |state| LastOperation {
            state,
            description: None,
            instance_usable: None,
            update_repeatable: None,
            retry_after: None,
        };
        let is_removal = query.operation.as_deref() == Some(DEPROVISIONING);
        query.operation = match &asked {
            Asked::Gone => return Ok(stands(OperationState::Succeeded)),
            Asked::Of(id) => Some(id.clone()),
            Asked::Nothing => None,
        };
        match self.inner.instance_last_operation(call, instance, query).await {
            Ok(_) if asked == Asked::Nothing => Ok(stands(OperationState::InProgress)),
            // The instance was removed just now.
            Err(error) if is_removal && error.kind == ErrorKind::Gone => {
                Ok(stands(OperationState::Succeeded))
            }
            Err(error) if matches!(error.kind, ErrorKind::Gone | ErrorKind::NotFound) => {
                Err(Error::bad_request(error.description))
            }
            answer => answer,
        }
    }

    async fn bind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: BindRequest,
    ) -> Result<Reply<BindingBody>, Error> {
        self.has_to_be_there(call, instance).await?;
        self.inner.bind(call, instance, binding, request).await
    }

    async fn unbind(
        &self,
        call: &Call,
        instance: &InstanceId,
        binding: &BindingId,
        request: UnbindRequest,
    ) -> Result<Reply<()>, Error> {
        self.has_to_be_there(call, instance).await?;
        self.inner.unbind(call, instance, binding, request).await
    }

    async fn binding(&self, _: &Call, _: &InstanceId, _: &BindingId) -> Result<BindingView, Error> {
        none_such()
    }

    async fn binding_last_operation(
        &self,
        _: &Call,
        _: &InstanceId,
        _: &BindingId,
        _: LastOperationQuery,
    ) -> Result<LastOperation, Error> {
        Err(Error::not_found("there is no such route"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::in_process::InProcess;
    use engine::testing::MemoryStore;
    use engine::{Policy, Ports, SystemClock};
    use osb::{Broker, Catalog, Failure, OriginatingIdentity, Output, Work};
    use serde_json::{Value, json};

    use super::*;

    const INSTANCE: &str = "instance";
    const BINDING: &str = "binding";

    /// A broker all of whose work is done at once, but for instances named `slow`.
    struct Fake;

    impl Broker for Fake {
        async fn catalog(&self) -> Result<Catalog, Failure> {
            let catalog = json!({"services": [{
                "id": "s", "name": "s", "description": "d", "bindable": true,
                "plans": [{"id": "p", "name": "p", "description": "d"}],
            }]});
            Ok(serde_json::from_value(catalog).unwrap())
        }

        async fn provision(&self, work: Work) -> Result<Output, Failure> {
            if work.instance_id.as_str() == "slow" {
                std::future::pending::<()>().await;
            }
            Ok(Output::default())
        }

        async fn deprovision(&self, _: Work) -> Result<Output, Failure> {
            Ok(Output::default())
        }

        async fn bind(&self, _: Work) -> Result<Output, Failure> {
            Ok(Output::default())
        }

        async fn unbind(&self, _: Work) -> Result<Output, Failure> {
            Ok(Output::default())
        }
    }

    async fn strict() -> Strict<Engine> {
        let ports = Ports {
            store: Arc::new(MemoryStore::default()),
            runner: Arc::new(InProcess::new(Fake)),
            clock: Arc::new(SystemClock),
            observer: Arc::new(()),
        };
        let engine = Engine::new(Policy::default(), ports);
        engine.refresh_catalog().await.unwrap();
        Strict::new(engine.clone(), engine)
    }

    fn call() -> Call {
        let value = json!({"username": "alice"}).as_object().unwrap().clone();
        let identity =
            OriginatingIdentity { platform: "kubernetes".to_owned(), value: value.into() };
        Call { accepts_incomplete: true, originating_identity: Some(identity), ..Call::default() }
    }

    /// In a word what is answered: the status of a refusal, or what is said instead.
    fn word<T>(answer: Result<Reply<T>, Error>) -> String {
        match answer {
            Ok(Reply::Accepted { operation, .. }) => operation,
            Ok(Reply::Created(_)) => "201".to_owned(),
            Ok(Reply::Done(_)) => "200".to_owned(),
            Err(error) => error.kind.status().to_string(),
        }
    }

    /// Does something in the original's words.
    async fn does(of: &Strict<Engine>, what: &str, instance: &str) -> String {
        fn body<T: serde::de::DeserializeOwned>(body: Value) -> T {
            serde_json::from_value(body).unwrap()
        }
        let mut call = call();
        let (id, binding) = (InstanceId::new(instance).unwrap(), BindingId::new(BINDING).unwrap());
        let plan = || json!({"service_id": "s", "plan_id": "p"});
        let mut order = plan();
        order["organization_guid"] = json!("o");
        order["space_guid"] = json!("s");
        match what {
            "provision" => word(of.provision(&call, &id, body(order)).await),
            "update" => word(of.update(&call, &id, body(plan())).await),
            "deprovision" => word(of.deprovision(&call, &id, body(plan())).await),
            "bind" | "unbind" => {
                call.accepts_incomplete = false;
                match what {
                    "bind" => word(of.bind(&call, &id, &binding, body(plan())).await),
                    _ => word(of.unbind(&call, &id, &binding, body(plan())).await),
                }
            }
            "get" => word(of.instance(&call, &id).await.map(Reply::Done)),
            "get binding" => word(of.binding(&call, &id, &binding).await.map(Reply::Done)),
            "last of binding" => {
                let query = LastOperationQuery::default();
                let last = of.binding_last_operation(&call, &id, &binding, query).await;
                word(last.map(Reply::Done))
            }
            operation => {
                let operation = Some(operation.to_owned()).filter(|it| it != "last");
                let query = LastOperationQuery { operation, ..LastOperationQuery::default() };
                match of.instance_last_operation(&call, &id, query).await {
                    Ok(last) => json!(last.state).as_str().unwrap().to_owned(),
                    Err(error) => error.kind.status().to_string(),
                }
            }
        }
    }

    async fn until(of: &Strict<Engine>, operation: &str, state: &str) {
        for _ in 0..500 {
            if does(of, operation, INSTANCE).await == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{operation} is never {state}");
    }

    #[tokio::test]
    async fn what_is_answered_is_what_the_original_answers() {
        let of = strict().await;
        assert!(of.requires_async(Action::Provision, None), "422 AsyncRequired");
        assert!(of.requires_async(Action::Deprovision, None), "422 AsyncRequired");
        assert!(!of.requires_async(Action::Bind, None));
        let all = async |cases: &[(&str, &str, &str)]| {
            for (case, what, expected) in cases {
                assert_eq!(does(&of, what, INSTANCE).await, *expected, "{case}");
            }
        };
        all(&[
            ("bind of what is not there", "bind", "400"),
            ("unbind of what is not there", "unbind", "400"),
            ("deprovision of what is not there", "deprovision", "410"),
            ("an order of what is not there", "provisioning", "400"),
            ("a removal of what is not there", "deprovisioning", "succeeded"),
            ("a change", "update", "405"),
            ("a change is never asked after", "updating", "400"),
            ("an operation has to be said", "last", "400"),
            ("an order", "provision", "provisioning"),
        ])
        .await;
        until(&of, "provisioning", "succeeded").await;
        all(&[
            ("an identical order", "provision", "200"),
            ("no operation", "last", "400"),
            ("another's", "update-1", "400"),
            ("nothing is being removed", "deprovisioning", "in progress"),
            ("no GET", "get", "405"),
            ("no PATCH", "update", "405"),
            ("unbind of a binding that is not there", "unbind", "410"),
            ("a binding", "bind", "201"),
            ("the same", "bind", "200"),
            ("no GET of it", "get binding", "405"),
            ("nor of its operations", "last of binding", "404"),
            ("unbind", "unbind", "200"),
            ("again", "unbind", "410"),
            ("a removal", "deprovision", "deprovisioning"),
        ])
        .await;
        until(&of, "deprovisioning", "succeeded").await;
        all(&[
            ("again", "deprovision", "410"),
            ("what was ordered is gone", "provisioning", "400"),
            ("what was bound, too", "unbind", "400"),
            ("ordered anew", "provision", "provisioning"),
        ])
        .await;
        until(&of, "provisioning", "succeeded").await;
        all(&[("a removal before is not this one's", "deprovisioning", "in progress")]).await;
        assert_eq!(does(&of, "provision", "slow").await, "provisioning");
        assert_eq!(does(&of, "provisioning", "slow").await, "in progress");
        assert_eq!(does(&of, "provision", "slow").await, "provisioning", "asked for again");
    }

    #[tokio::test]
    async fn whoever_asks_has_to_say_who_asks() {
        let (of, nobody) = (strict().await, Call::default());
        let id = InstanceId::new(INSTANCE).unwrap();
        let query = LastOperationQuery {
            operation: Some(DEPROVISIONING.to_owned()),
            ..LastOperationQuery::default()
        };
        let refused = of.instance_last_operation(&nobody, &id, query).await.unwrap_err();
        assert!(refused.description.starts_with("couldn't parse"), "{refused}");
    }
}
