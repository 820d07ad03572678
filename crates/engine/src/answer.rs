//! Answers from a record: to `GET`, to `last_operation`, to a repeated or a held request.

use std::time::Duration;

use osb::{
    Action, BindingBody, BindingView, Error, ErrorKind, InstanceId, InstanceView, LastOperation,
    LastOperationQuery, OperationState, ProvisionedBody,
};

use crate::admit::busy;
use crate::names::is_operation_id;
use crate::policy::{DeletedAnswer, Policy};
use crate::record::{
    Lifecycle, Operation, OperationFailure, PastOperation, Phase, Reason, Record, Timestamp,
};

/// The message for an operation that has made room for later ones.
const FORGOTTEN: &str =
    "this operation is not remembered: the last operations of a service instance or binding are";

/// The body of the answer to provision and update.
pub(crate) fn provisioned(record: &Record) -> ProvisionedBody {
    ProvisionedBody {
        dashboard_url: record.made.dashboard_url.clone(),
        metadata: record.made.metadata.clone(),
    }
}

/// The body of the answer to bind.
pub(crate) fn bound(record: &Record) -> BindingBody {
    record.made.binding.clone().unwrap_or_default()
}

/// The URL of an instance's dashboard by the operator's template; the id is percent-encoded.
pub(crate) fn dashboard_url(policy: &Policy, instance: &InstanceId) -> Option<String> {
    let template = policy.dashboard_url.as_ref()?;
    let mut id = String::new();
    for byte in instance.as_str().bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            id.push(char::from(byte));
        } else {
            id.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(template.replace("{instance_id}", &id))
}

/// The answer to `GET` of an instance (items 29 and 30).
pub(crate) fn instance(record: Option<&Record>) -> Result<InstanceView, Error> {
    let Some(record) = record.filter(|record| record.lifecycle == Lifecycle::Ready) else {
        return Err(Error::not_found("there is no such service instance, or it is not made yet"));
    };
    if record.is_busy() {
        return Err(busy(record));
    }
    let parameters = record.ordered.parameters.clone();
    Ok(InstanceView {
        service_id: record.ordered.service_id.clone(),
        plan_id: record.ordered.plan_id.clone(),
        dashboard_url: record.made.dashboard_url.clone(),
        parameters: (!parameters.expose().is_empty()).then_some(parameters),
        maintenance_info: record.ordered.maintenance_info.clone(),
        metadata: record.made.metadata.clone(),
    })
}

/// The answer to `GET` of a binding (item 45).
pub(crate) fn binding(record: Option<&Record>) -> Result<BindingView, Error> {
    let Some(record) = record.filter(|record| record.lifecycle == Lifecycle::Ready) else {
        return Err(Error::not_found("there is no such service binding, or it is not made yet"));
    };
    let parameters = record.ordered.parameters.clone();
    Ok(BindingView {
        body: bound(record),
        parameters: (!parameters.expose().is_empty()).then_some(parameters),
    })
}

/// The answer to `last_operation` (items 25 to 28 and 46).
pub(crate) fn last_operation(
    record: Option<&Record>,
    query: &LastOperationQuery,
    deleted: DeletedAnswer,
    now: Timestamp,
) -> Result<LastOperation, Error> {
    let Some(record) = record else { return Err(unknown(query)) };
    let asked = query.operation.as_deref();
    if let Some(past) = asked.and_then(|id| record.past.iter().find(|past| past.id == id)) {
        return Ok(ended(past.action, past.failure.as_ref()));
    }
    let operation = &record.operation;
    // Platforms poll with tokens that are not ours; the operation at hand is meant then. How one of ours ended that is
    // not remembered, another does not say.
    if asked.is_some_and(|id| id != operation.id && is_operation_id(id)) {
        return Err(match record.lifecycle {
            Lifecycle::Deleted => unknown(query),
            _ => Error::not_found(FORGOTTEN),
        });
    }
    match &operation.phase {
        Phase::Succeeded
            if record.lifecycle == Lifecycle::Deleted && deleted == DeletedAnswer::Gone =>
        {
            Err(Error::new(ErrorKind::Gone, "it was deleted"))
        }
        Phase::Succeeded => Ok(ended(operation.action, None)),
        Phase::Failed(failure) => Ok(ended(operation.action, Some(failure))),
        _ => Ok(in_progress(operation, now)),
    }
}

/// Whether a record has the operation that is asked after.
pub(crate) fn knows(record: &Record, query: &LastOperationQuery) -> bool {
    let known = |asked: &str| {
        record.operation.id == asked || record.past.iter().any(|past| past.id == asked)
    };
    query.operation.as_deref().is_some_and(known)
}

fn unknown(query: &LastOperationQuery) -> Error {
    let of_delete = query.operation.as_deref().is_some_and(|operation| {
        operation.starts_with("deprovision-") || operation.starts_with("unbind-")
    });
    if of_delete {
        Error::new(ErrorKind::Gone, "it was deleted, longer ago than is remembered")
    } else {
        Error::not_found("there is no such service instance or binding")
    }
}

fn in_progress(operation: &Operation, now: Timestamp) -> LastOperation {
    // Ask often while a short operation may be ending, seldom when it is a long one.
    let age = operation.created_at.until(now).as_secs();
    let retry_after = match age {
        0..10 => 1,
        10..60 => 5,
        _ => 15,
    };
    LastOperation {
        state: OperationState::InProgress,
        description: operation.said().filter(|text| !text.is_empty()).map(str::to_owned),
        instance_usable: None,
        update_repeatable: None,
        retry_after: Some(retry_after),
    }
}

fn ended(action: Action, failure: Option<&OperationFailure>) -> LastOperation {
    let about_instance = matches!(action, Action::Update | Action::Deprovision);
    LastOperation {
        state: if failure.is_some() { OperationState::Failed } else { OperationState::Succeeded },
        description: failure.map(|failure| failure.description.clone()),
        instance_usable: failure.filter(|_| about_instance).and_then(|f| f.instance_usable),
        update_repeatable: failure
            .filter(|_| action == Action::Update)
            .and_then(|f| f.update_repeatable),
        retry_after: None,
    }
}

/// The state of a held request's operation.
pub(crate) enum Held {
    Succeeded,
    Failed(Error),
    InProgress,
}

/// Looks for the operation in the record, where a later one may have taken its place.
pub(crate) fn held(record: &Record, operation: &str) -> Held {
    let past = |past: &PastOperation| match &past.failure {
        None => Held::Succeeded,
        Some(failure) => Held::Failed(refusal(past.action, failure, false)),
    };
    if record.operation.id != operation {
        let found = record.past.iter().find(|past| past.id == operation);
        return found.map_or_else(
            || Held::Failed(Error::internal("the operation is not remembered any more")),
            past,
        );
    }
    match &record.operation.phase {
        Phase::Succeeded => Held::Succeeded,
        Phase::Failed(failure) => {
            let action = record.operation.action;
            let creates = matches!(action, Action::Provision | Action::Bind);
            Held::Failed(refusal(action, failure, creates && record.is_live()))
        }
        _ => Held::InProgress,
    }
}

/// The answer to a held request whose operation failed. Where nothing was made it is a 4xx, so that
/// the platform does not remove what is not there; otherwise 500, so that it does: an earlier attempt may have made
/// what the last one found in its way.
fn refusal(action: Action, failure: &OperationFailure, may_be_made: bool) -> Error {
    let kind = match failure.reason {
        _ if may_be_made => ErrorKind::Internal,
        Reason::Invalid => ErrorKind::BadRequest,
        Reason::Conflict => ErrorKind::Conflict,
        Reason::Busy => ErrorKind::ConcurrencyError,
        Reason::Unsupported | Reason::Refused => ErrorKind::Unprocessable,
        _ => ErrorKind::Internal,
    };
    let mut error = Error::new(kind, failure.description.clone());
    if matches!(action, Action::Update | Action::Deprovision) {
        error.instance_usable = failure.instance_usable;
    }
    if action == Action::Update {
        error.update_repeatable = failure.update_repeatable;
    }
    // What is a fault has orphans looked after, which is not to wait.
    if kind == ErrorKind::ConcurrencyError {
        error.retry_after = Some(Duration::from_secs(failure.retry_after.unwrap_or(5)));
    }
    error
}
