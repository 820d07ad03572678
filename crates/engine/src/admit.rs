//! Decides what to do about a request: a pure function of the record and of the request.
//!
//! The order is that of our acceptance list: 404, 410, 409, 200 and 202 for something known, then
//! `ConcurrencyError`, then the work.

use osb::{Action, BindRequest, Error, ErrorKind};

use crate::record::{Lifecycle, Ordered, Phase, Record, Timestamp};

/// The decision about a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Admission {
    /// The resource is already as asked for: 200.
    Already,
    /// The same request is being carried out: 202 with the operation that is in progress.
    Join,
    /// An operation is to be recorded.
    Begin,
    /// The request is refused with this error.
    Refuse(Error),
}

use Admission::{Already, Begin, Join, Refuse};

pub(crate) fn busy(record: &Record) -> Error {
    Error::new(
        ErrorKind::ConcurrencyError,
        format!(
            "{} is busy: {} is in progress; ask again when it has ended",
            kind(record),
            record.operation.action
        ),
    )
}

fn kind(record: &Record) -> &'static str {
    if record.key.binding().is_some() { "the service binding" } else { "the service instance" }
}

fn taken(record: &Record, differing: &[&str]) -> Admission {
    let (kind, differing) = (kind(record), differing.join(", "));
    Refuse(Error::new(
        ErrorKind::Conflict,
        format!("{kind} exists with other attributes ({differing}); use another id"),
    ))
}

/// Whether the operation in progress was asked for by the same request.
fn joins(record: &Record, action: Action, hash: &str) -> bool {
    record.is_busy() && record.operation.action == action && record.operation.request_hash == hash
}

/// The attributes in which two orders differ; none if the second repeats the first. The context
/// is not compared: platforms change it under the same order.
fn differing(one: &Ordered, other: &Ordered) -> Vec<&'static str> {
    // Of what was ordered elsewhere it is not known for whom.
    let agree = |known: &Option<String>, asked: &Option<String>| known.is_none() || known == asked;
    let agreeing = [
        ("service_id", one.service_id == other.service_id),
        ("plan_id", one.plan_id == other.plan_id),
        ("parameters", one.parameters == other.parameters),
        ("organization_guid", agree(&one.organization_guid, &other.organization_guid)),
        ("space_guid", agree(&one.space_guid, &other.space_guid)),
        ("bind_resource", one.bind_resource == other.bind_resource),
        ("predecessor_binding_id", one.predecessor_binding_id == other.predecessor_binding_id),
    ];
    agreeing.iter().filter(|(_, agree)| !agree).map(|(name, _)| *name).collect()
}

/// Decides about the `PUT` of an instance or a binding. `action` is provision or bind.
pub(crate) fn create(existing: Option<&Record>, action: Action, ordered: &Ordered) -> Admission {
    let Some(record) = existing.filter(|record| record.is_live()) else { return Begin };
    let differing = differing(&record.ordered, ordered);
    if !differing.is_empty() {
        return taken(record, &differing);
    }
    match record.lifecycle {
        Lifecycle::Creating if record.operation.action == action => Join,
        Lifecycle::Ready if !record.is_busy() => Already,
        Lifecycle::Broken if !record.is_busy() => Begin,
        _ => Refuse(busy(record)),
    }
}

/// Decides about the `PATCH` of an instance.
pub(crate) fn update(
    existing: Option<&Record>,
    target: &Ordered,
    hash: &str,
    bindings_busy: bool,
) -> Admission {
    let Some(record) = existing.filter(|record| record.is_live()) else {
        return Refuse(Error::not_found("there is no such service instance"));
    };
    if joins(record, Action::Update, hash) {
        return Join;
    }
    if record.is_busy() {
        return Refuse(busy(record));
    }
    if record.lifecycle != Lifecycle::Ready {
        let error = Error::new(
            ErrorKind::Unprocessable,
            "the service instance was not made: its provision failed; delete it and order again",
        );
        return Refuse(error.instance_usable(false).update_repeatable(false));
    }
    if bindings_busy {
        return Refuse(Error::new(
            ErrorKind::ConcurrencyError,
            "a service binding of the instance is being made or removed; ask again when it has ended",
        ));
    }
    let failed_update = record.operation.action == Action::Update
        && matches!(record.operation.phase, Phase::Failed(_));
    if record.ordered == *target && !failed_update { Already } else { Begin }
}

/// Decides about the `DELETE` of an instance. `bound`: it has live bindings and they are not to be removed with it.
pub(crate) fn deprovision(existing: Option<&Record>, bound: bool) -> Admission {
    let Some(record) = existing.filter(|record| record.is_live()) else {
        return Refuse(Error::new(ErrorKind::Gone, "there is no such service instance"));
    };
    if record.is_busy() {
        match record.operation.action {
            Action::Deprovision => return Join,
            Action::Provision => {}
            _ => return Refuse(busy(record)),
        }
    }
    if bound {
        let error = Error::new(
            ErrorKind::Unprocessable,
            "the service instance has bindings; unbind them first",
        );
        return Refuse(error.instance_usable(true));
    }
    Begin
}

/// Decides about the `DELETE` of a binding. `instance`: the record of its instance.
pub(crate) fn unbind(existing: Option<&Record>, instance: Option<&Record>) -> Admission {
    let Some(record) = existing.filter(|record| record.is_live()) else {
        return Refuse(Error::new(ErrorKind::Gone, "there is no such service binding"));
    };
    if record.is_busy() && record.operation.action == Action::Unbind {
        return Join;
    }
    match instance {
        Some(instance) if instance.is_busy() && instance.operation.action == Action::Update => {
            Refuse(busy(instance))
        }
        _ => Begin,
    }
}

/// Returns the instance if it can be bound now, or the refusal.
pub(crate) fn bindable(instance: Option<&Record>) -> Result<&Record, Error> {
    let Some(record) = instance.filter(|record| record.is_live()) else {
        return Err(Error::not_found("there is no such service instance"));
    };
    if record.is_busy() {
        return Err(busy(record));
    }
    if record.lifecycle != Lifecycle::Ready {
        return Err(Error::new(
            ErrorKind::Unprocessable,
            "the service instance was not made: its provision failed",
        ));
    }
    Ok(record)
}

/// The order of a new binding, as requested.
pub(crate) fn binding_order(parent: &Record, request: &BindRequest) -> Result<Ordered, Error> {
    let mut bind_resource = request.bind_resource.clone();
    if let Some(app) = &request.app_guid {
        bind_resource.get_or_insert_default().app_guid.get_or_insert_with(|| app.clone());
    }
    let service_id = request.service_id.as_ref().unwrap_or(&parent.ordered.service_id);
    let plan_id = request.plan_id.as_ref().unwrap_or(&parent.ordered.plan_id);
    Ok(Ordered {
        parameters: request.parameters.clone().unwrap_or_default(),
        context: request.context.clone().unwrap_or_default(),
        bind_resource,
        ..Ordered::bare(service_id.clone(), plan_id.clone())
    })
}

/// The order of a rotation that is requested again: the same request, even when its predecessor is gone by now.
pub(crate) fn rotated_already(existing: Option<&Record>, request: &BindRequest) -> Option<Ordered> {
    let predecessor = request.predecessor_binding_id.as_ref()?;
    let record = existing.filter(|record| record.is_live())?;
    let ordered = &record.ordered;
    let same = ordered.predecessor_binding_id.as_ref() == Some(predecessor)
        && request.service_id.as_ref().is_none_or(|asked| *asked == ordered.service_id)
        && request.plan_id.as_ref().is_none_or(|asked| *asked == ordered.plan_id)
        && asks_for_nothing_else(request, ordered);
    same.then(|| ordered.clone())
}

fn asks_for_nothing_else(request: &BindRequest, ordered: &Ordered) -> bool {
    request.parameters.as_ref().is_none_or(|asked| *asked == ordered.parameters)
}

/// Checks that a binding is of its instance's service and plan.
pub(crate) fn of_instance(parent: &Record, ordered: &Ordered) -> Result<(), Error> {
    if ordered.service_id != parent.ordered.service_id {
        return Err(Error::bad_request("service_id: is not the service of this instance"));
    }
    if ordered.plan_id != parent.ordered.plan_id {
        return Err(Error::bad_request("plan_id: is not the plan of this instance"));
    }
    Ok(())
}

/// The order of a binding that replaces another: as its predecessor is, of the plan that the instance has by now (items
/// 42 to 44).
pub(crate) fn rotation(
    parent: &Record,
    predecessor: Option<&Record>,
    request: &BindRequest,
    rotatable: bool,
    now: Timestamp,
) -> Result<Ordered, Error> {
    if !rotatable {
        return Err(Error::bad_request(
            "predecessor_binding_id: bindings of this plan cannot be rotated",
        ));
    }
    let Some(record) = predecessor else {
        return Err(Error::bad_request(
            "predecessor_binding_id: there is no such service binding of this instance",
        ));
    };
    let expires_at = record
        .made
        .binding
        .as_ref()
        .and_then(|body| body.metadata.as_ref())
        .and_then(|metadata| metadata.expires_at.as_deref());
    if expires_at.and_then(osb::catalog::parse_timestamp).is_some_and(|at| at <= now.0) {
        return Err(Error::new(
            ErrorKind::Unprocessable,
            "predecessor_binding_id: the service binding has expired; make a new one",
        ));
    }
    if !asks_for_nothing_else(request, &record.ordered) {
        return Err(Error::bad_request(
            "parameters: are those of the predecessor, and cannot be changed; leave them out",
        ));
    }
    let mut ordered = record.ordered.clone();
    ordered.service_id = request.service_id.as_ref().unwrap_or(&parent.ordered.service_id).clone();
    ordered.plan_id = request.plan_id.as_ref().unwrap_or(&parent.ordered.plan_id).clone();
    if let Some(context) = &request.context {
        ordered.context = context.clone();
    }
    ordered.predecessor_binding_id.clone_from(&request.predecessor_binding_id);
    Ok(ordered)
}
