//! Waits for an operation, and shows its progress.

use osb::client::{ClientError, Ordered, Pending, Response, WaitError};
use osb::{Action, Catalog, LastOperation, LastOperationQuery};

use super::connection::{Connection, Subject};
use super::failure::Failure;
use super::hints;
use super::lookup::{self, Ids};
use super::progress::Progress;

/// The state of an accepted order when the command goes on.
#[derive(Debug)]
pub(crate) struct Settled<T> {
    /// The body with which the broker answered the order.
    pub(crate) body: T,
    /// Whether the operation has ended well; otherwise the user does not wait for it.
    pub(crate) ended: bool,
    /// Whether the order was first accepted with a 202, so that what it made has to be fetched.
    pub(crate) asynchronous: bool,
    /// The broker's name for the operation.
    pub(crate) operation: Option<String>,
}

impl<T> Settled<T> {
    /// `succeeded` or `in progress`, as the specification spells them.
    pub(crate) fn state(&self) -> &'static str {
        if self.ended { "succeeded" } else { "in progress" }
    }
}

/// The operation that is waited for.
pub(crate) struct Following<'a> {
    /// The action that was asked for.
    pub(crate) action: Action,
    /// The instance or binding.
    pub(crate) subject: &'a Subject,
    /// The service and plan as the operation began: hints for the broker.
    pub(crate) ids: Option<&'a Ids>,
    /// The catalog, in which the plan says how long to wait.
    pub(crate) catalog: Option<&'a Catalog>,
}

impl Following<'_> {
    /// The order in words: "provision instance X", to complete "cannot …".
    pub(crate) fn order(&self) -> String {
        format!("{} {}", self.action, self.subject)
    }

    /// The operation in words: "provision of instance X".
    fn name(&self) -> String {
        format!("{} of {}", self.action, self.subject)
    }
}

impl Connection {
    /// Waits for the end of an order, unless it has ended or the user does not want to wait.
    pub(crate) async fn settle<T>(
        &self,
        following: &Following<'_>,
        answer: Result<Response<Ordered<T>>, ClientError>,
        no_wait: bool,
    ) -> Result<Settled<T>, Failure> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return Err(self.not_ordered(following, &error).await),
        };
        let settled =
            |body, ended, asynchronous, operation| Settled { body, ended, asynchronous, operation };
        match answer.body {
            Ordered::Created(body) | Ordered::Done(body) => Ok(settled(body, true, false, None)),
            Ordered::Accepted { operation, body } if no_wait => {
                Ok(settled(body, false, true, operation))
            }
            Ordered::Accepted { operation, body } => {
                self.follow(following, operation.clone()).await?;
                Ok(settled(body, true, true, operation))
            }
        }
    }

    /// Waits for the end of an operation.
    pub(crate) async fn follow(
        &self,
        following: &Following<'_>,
        operation: Option<String>,
    ) -> Result<LastOperation, Failure> {
        let subject = following.subject;
        let watch = format!("manciple status {}", subject.words_and("--watch"));
        self.ongoing.set(following.name(), watch.clone());
        let pending = Pending {
            action: following.action,
            query: LastOperationQuery {
                service_id: following.ids.map(|ids| ids.service.to_string()),
                plan_id: following.ids.map(|ids| ids.plan.to_string()),
                operation,
            },
        };
        let progress = Progress::new(&following.name(), self.out, "accepted");
        let plan = following.ids.and_then(|ids| lookup::offered(following.catalog, ids));
        let polling = self.polling(plan).on_event(progress.listener());
        let last = match &subject.binding {
            None => self.client.wait_instance(&subject.instance, &pending, &polling).await,
            Some(binding) => {
                self.client.wait_binding(&subject.instance, binding, &pending, &polling).await
            }
        };
        drop(progress);
        self.ongoing.clear();
        last.map_err(|error| {
            let failure = Failure::operation(&following.name(), &self.url, &error);
            match error {
                WaitError::Failed(last) => {
                    failure.hint(hints::of_operation(following.action, subject, &last))
                }
                WaitError::Deadline { .. } => {
                    failure.hint(format!("it goes on; follow it: {watch}"))
                }
                WaitError::Silent { .. } => failure.hint(format!(
                    "it may go on or have ended; look once the server answers again: {watch}"
                )),
                WaitError::Unclear { .. } => {
                    failure.or_hint(format!("it may go on; look at it: {watch}"))
                }
            }
        })
    }

    async fn not_ordered(&self, following: &Following<'_>, error: &ClientError) -> Failure {
        let failure = self.refused(&following.order(), error);
        match hints::of_refusal(self, following, error).await {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}
