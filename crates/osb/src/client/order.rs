//! Whole orders: a request, the wait for its end, and the cleaning up after a failure.

use std::time::Duration;

use super::Client;
use super::error::ClientError;
use super::orphan::{Outcome, orphan_mitigation};
use super::polling::{Pending, Polling, Retries, WaitError};
use super::response::{Ordered, Response};
use crate::broker::Action;
use crate::model::{
    BindRequest, BindingBody, BindingId, DeprovisionRequest, InstanceId, LastOperation,
    LastOperationQuery, PlanId, ProvisionRequest, ProvisionedBody, ServiceId, UnbindRequest,
    UpdateRequest,
};

/// Options for following an order to its end.
#[derive(Debug, Clone)]
pub struct FollowOptions {
    /// How to poll its operation.
    pub polling: Polling,
    /// How to delete what a failure may have left; `None` leaves it for inspection, which the
    /// specification allows.
    pub mitigation: Option<Retries>,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self { polling: Polling::default(), mitigation: Some(Retries::default()) }
    }
}

/// The result of a removal that ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// The instance or binding was removed.
    Deleted,
    /// The instance or binding did not exist (410).
    Absent,
}

/// An order that failed, and what became of its remains.
#[derive(Debug)]
pub struct OrderError {
    /// The reason of the failure.
    pub cause: OrderFailure,
    /// The fate of its remains.
    pub mitigated: Mitigated,
}

impl std::fmt::Display for OrderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.cause, self.mitigated.note())
    }
}

impl std::error::Error for OrderError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.source()
    }
}

/// The reason why an order failed.
#[derive(Debug, thiserror::Error)]
pub enum OrderFailure {
    /// The request brought no success.
    #[error(transparent)]
    Request(ClientError),
    /// The request was accepted, and its operation did not end well.
    #[error(transparent)]
    Operation(WaitError),
    /// The binding was made, and could not be fetched.
    #[error("the binding was made but cannot be fetched")]
    Fetch(#[source] ClientError),
}

/// The fate of the remains of a failed order.
#[derive(Debug)]
pub enum Mitigated {
    /// The failure leaves no remains.
    NotNeeded,
    /// The remains stay: the options do not ask to delete them, or the request names no service and plan.
    Declined,
    /// The remains are gone.
    Done,
    /// The remains could not be deleted.
    Failed(Box<OrderFailure>),
}

impl Mitigated {
    fn note(&self) -> String {
        match self {
            Self::NotNeeded => String::new(),
            Self::Declined => " (what it may have made is still there)".to_owned(),
            Self::Done => " (what it may have made was deleted)".to_owned(),
            Self::Failed(why) => format!(" (what it may have made could not be deleted: {why})"),
        }
    }
}

impl OrderFailure {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Request(error) => Outcome::from(error),
            Self::Operation(_) | Self::Fetch(_) => Outcome::OperationFailed,
        }
    }
}

impl Client {
    /// Provisions an instance, and waits for it.
    ///
    /// # Errors
    /// Why there is no instance, and whether remains were deleted.
    pub async fn provision_and_wait(
        &self,
        instance: &InstanceId,
        request: &ProvisionRequest,
        order: &FollowOptions,
    ) -> Result<ProvisionedBody, OrderError> {
        let target = Target {
            client: self,
            instance,
            binding: None,
            names: Some((&request.service_id, &request.plan_id)),
        };
        let answer = self.provision(instance, request).await;
        let query = query(Some(&request.service_id), Some(request.plan_id.as_str()));
        match target.settle(Action::Provision, query, answer, order).await {
            Ok(settled) => Ok(settled.into_body()),
            Err(cause) => Err(target.fail(Action::Provision, cause, order).await),
        }
    }

    /// Updates an instance, and waits for it. A failure is never mitigated.
    ///
    /// # Errors
    /// Why the instance is not updated; `instance_usable` and `update_repeatable` are in the cause.
    pub async fn update_and_wait(
        &self,
        instance: &InstanceId,
        request: &UpdateRequest,
        order: &FollowOptions,
    ) -> Result<ProvisionedBody, OrderError> {
        let target = Target { client: self, instance, binding: None, names: None };
        let answer = self.update(instance, request).await;
        let old_plan = request.previous_values.as_ref().and_then(|old| old.plan_id.as_deref());
        let query = query(Some(&request.service_id), old_plan);
        match target.settle(Action::Update, query, answer, order).await {
            Ok(settled) => Ok(settled.into_body()),
            Err(cause) => Err(target.fail(Action::Update, cause, order).await),
        }
    }

    /// Removes an instance, and waits until it is gone.
    ///
    /// # Errors
    /// Why it may still be there, after as many attempts as the order's mitigation allows.
    pub async fn deprovision_and_wait(
        &self,
        instance: &InstanceId,
        request: &DeprovisionRequest,
        order: &FollowOptions,
    ) -> Result<Removed, OrderError> {
        let names = (&request.service_id, &request.plan_id);
        let target = Target { client: self, instance, binding: None, names: Some(names) };
        target.remove(names, order).await
    }

    /// Makes a binding, waits for it, and fetches it if it was made asynchronously.
    ///
    /// # Errors
    /// Why there is no binding, and whether remains were deleted.
    pub async fn bind_and_wait(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
        request: &BindRequest,
        order: &FollowOptions,
    ) -> Result<BindingBody, OrderError> {
        let names = request.service_id.as_ref().zip(request.plan_id.as_ref());
        let target = Target { client: self, instance, binding: Some(binding), names };
        let answer = self.bind(instance, binding, request).await;
        let query = query(request.service_id.as_ref(), names.map(|(_, plan)| plan.as_str()));
        let cause = match target.settle(Action::Bind, query, answer, order).await {
            Ok(Settled::AtOnce(body)) => return Ok(body),
            Ok(Settled::Later(_)) => match self.fetch_binding(instance, binding, order).await {
                Ok(body) => return Ok(body),
                Err(error) => OrderFailure::Fetch(error),
            },
            Err(cause) => cause,
        };
        Err(target.fail(Action::Bind, cause, order).await)
    }

    /// Removes a binding, and waits until it is gone.
    ///
    /// # Errors
    /// Why it may still be there, after as many attempts as the order's mitigation allows.
    pub async fn unbind_and_wait(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
        request: &UnbindRequest,
        order: &FollowOptions,
    ) -> Result<Removed, OrderError> {
        let names = (&request.service_id, &request.plan_id);
        let target = Target { client: self, instance, binding: Some(binding), names: Some(names) };
        target.remove(names, order).await
    }

    /// Fetches the credentials of an asynchronous binding: they come by `GET` only, and must be there at once.
    async fn fetch_binding(
        &self,
        instance: &InstanceId,
        binding: &BindingId,
        order: &FollowOptions,
    ) -> Result<BindingBody, ClientError> {
        let mut pauses = Pauses::new(order.mitigation.unwrap_or_default());
        loop {
            match self.binding(instance, binding).await {
                Ok(response) => return Ok(response.body.body),
                Err(error) if error.is_passing() && pauses.left() => {
                    pauses.pause(error.retry_after()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The result of an order that ended well.
enum Settled<T> {
    AtOnce(T),
    Later(T),
}

impl<T> Settled<T> {
    fn into_body(self) -> T {
        match self {
            Self::AtOnce(body) | Self::Later(body) => body,
        }
    }
}

/// The target of an order: an instance or a binding of it.
struct Target<'a> {
    client: &'a Client,
    instance: &'a InstanceId,
    binding: Option<&'a BindingId>,
    /// The ids of its service and plan; a deletion needs them.
    names: Option<(&'a ServiceId, &'a PlanId)>,
}

impl Target<'_> {
    /// Waits for the end of an operation that was accepted.
    async fn settle<T>(
        &self,
        action: Action,
        mut query: LastOperationQuery,
        answer: Result<Response<Ordered<T>>, ClientError>,
        order: &FollowOptions,
    ) -> Result<Settled<T>, OrderFailure> {
        match answer.map_err(OrderFailure::Request)?.body {
            Ordered::Created(body) | Ordered::Done(body) => Ok(Settled::AtOnce(body)),
            Ordered::Accepted { operation, body } => {
                query.operation = operation;
                let pending = Pending { action, query };
                let last = self.wait(&pending, &order.polling).await;
                last.map(|_| Settled::Later(body)).map_err(OrderFailure::Operation)
            }
        }
    }

    async fn wait(&self, pending: &Pending, polling: &Polling) -> Result<LastOperation, WaitError> {
        match self.binding {
            None => self.client.wait_instance(self.instance, pending, polling).await,
            Some(binding) => {
                self.client.wait_binding(self.instance, binding, pending, polling).await
            }
        }
    }

    /// Cleans up after a failure, if the specification asks for it.
    async fn fail(&self, action: Action, cause: OrderFailure, order: &FollowOptions) -> OrderError {
        let mitigated = if !orphan_mitigation(action, cause.outcome()) {
            Mitigated::NotNeeded
        } else if let (Some(retries), Some(names)) = (order.mitigation, self.names) {
            match self.delete_until_gone(names, Pauses::new(retries), &order.polling).await {
                Ok(_) => Mitigated::Done,
                Err(why) => Mitigated::Failed(Box::new(why)),
            }
        } else {
            Mitigated::Declined
        };
        OrderError { cause, mitigated }
    }

    /// Removes, and repeats the removal if the specification asks for it.
    async fn remove(
        &self,
        names: (&ServiceId, &PlanId),
        order: &FollowOptions,
    ) -> Result<Removed, OrderError> {
        let retries = order.mitigation.unwrap_or(Retries { attempts: 1, ..Retries::default() });
        match self.delete(names, &order.polling).await {
            Ok(removed) => Ok(removed),
            Err(cause) if !orphan_mitigation(self.removal(), cause.outcome()) => {
                Err(OrderError { cause, mitigated: Mitigated::NotNeeded })
            }
            Err(cause) => {
                let mut pauses = Pauses::new(retries);
                if !pauses.left() {
                    return Err(OrderError { cause, mitigated: Mitigated::Declined });
                }
                pauses.pause(None).await;
                self.delete_until_gone(names, pauses, &order.polling).await.map_err(|why| {
                    OrderError { cause, mitigated: Mitigated::Failed(Box::new(why)) }
                })
            }
        }
    }

    async fn delete_until_gone(
        &self,
        names: (&ServiceId, &PlanId),
        mut pauses: Pauses,
        polling: &Polling,
    ) -> Result<Removed, OrderFailure> {
        loop {
            match self.delete(names, polling).await {
                Ok(removed) => return Ok(removed),
                Err(cause) if pauses.left() && self.may_repeat(&cause) => {
                    let asked = match &cause {
                        OrderFailure::Request(error) => error.retry_after(),
                        OrderFailure::Operation(_) | OrderFailure::Fetch(_) => None,
                    };
                    pauses.pause(asked).await;
                }
                Err(cause) => return Err(cause),
            }
        }
    }

    /// Whether to repeat a removal after this failure: not if the refusal will be the same next time (a 401, a 400).
    fn may_repeat(&self, cause: &OrderFailure) -> bool {
        let passing = matches!(cause, OrderFailure::Request(error) if error.is_passing());
        passing || orphan_mitigation(self.removal(), cause.outcome())
    }

    fn removal(&self) -> Action {
        if self.binding.is_some() { Action::Unbind } else { Action::Deprovision }
    }

    async fn delete(
        &self,
        (service, plan): (&ServiceId, &PlanId),
        polling: &Polling,
    ) -> Result<Removed, OrderFailure> {
        let (service_id, plan_id) = (service.clone(), plan.clone());
        let client = self.client.clone().accepting_incomplete(true);
        let answer = match self.binding {
            None => {
                let request = DeprovisionRequest { service_id, plan_id };
                client.deprovision(self.instance, &request).await
            }
            Some(binding) => {
                let request = UnbindRequest { service_id, plan_id };
                client.unbind(self.instance, binding, &request).await
            }
        };
        match answer {
            Err(error) if error.status() == Some(410) => Ok(Removed::Absent),
            Err(error) => Err(OrderFailure::Request(error)),
            Ok(Response { body: Ordered::Created(()) | Ordered::Done(()), .. }) => {
                Ok(Removed::Deleted)
            }
            Ok(Response { body: Ordered::Accepted { operation, .. }, .. }) => {
                let query =
                    LastOperationQuery { operation, ..query(Some(service), Some(plan.as_str())) };
                let pending = Pending { action: self.removal(), query };
                let last = self.wait(&pending, polling).await;
                last.map(|_| Removed::Deleted).map_err(OrderFailure::Operation)
            }
        }
    }
}

/// The pauses between attempts.
struct Pauses {
    /// The attempts that remain after the one under way.
    attempts: u32,
    next: Duration,
    longest: Duration,
}

impl Pauses {
    fn new(retries: Retries) -> Self {
        Self {
            attempts: retries.attempts.saturating_sub(1),
            next: retries.first_pause,
            longest: retries.max_pause,
        }
    }

    fn left(&self) -> bool {
        self.attempts > 0
    }

    async fn pause(&mut self, asked: Option<Duration>) {
        tokio::time::sleep(asked.unwrap_or(self.next).min(self.longest)).await;
        self.attempts = self.attempts.saturating_sub(1);
        self.next = self.next.saturating_mul(2).min(self.longest);
    }
}

fn query(service: Option<&ServiceId>, plan: Option<&str>) -> LastOperationQuery {
    LastOperationQuery {
        service_id: service.map(|id| id.as_str().to_owned()),
        plan_id: plan.map(str::to_owned),
        operation: None,
    }
}
