//! Sample records for the cases, and the usual calls of a store.
#![expect(clippy::unwrap_used, clippy::panic, reason = "assertions of a test suite")]

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use osb::{
    Action, BindResource, BindingBody, BindingId, InstanceId, InstanceMetadata, MaintenanceInfo,
    OriginatingIdentity, PlanId, PreviousValues, ServiceId,
};
use serde_json::json;

use crate::names::RunName;
use crate::ports::{Filter, Kind, Query, Store, StoreError, Stored, Version};
use crate::record::{
    Halt, Key, Lifecycle, Made, Operation, OperationFailure, Ordered, PastOperation, Phase, Reason,
    Record, Shown, Timestamp,
};

/// An instance that is ready, of service `service` and plan `small`.
///
/// # Panics
/// If `id` is not an id.
pub fn sample(id: &str) -> Record {
    record(Key::Instance(InstanceId::new(id).unwrap()))
}

/// As [`sample`], a binding.
///
/// # Panics
/// If one of them is not an id.
pub fn sample_binding(instance: &str, id: &str) -> Record {
    record(Key::Binding(InstanceId::new(instance).unwrap(), BindingId::new(id).unwrap()))
}

fn record(key: Key) -> Record {
    Record {
        key,
        lifecycle: Lifecycle::Ready,
        ordered: ordered("service", "small"),
        made: Made::default(),
        operation: Operation {
            id: "provision-x".to_owned(),
            action: Action::Provision,
            request_hash: "hash".to_owned(),
            phase: Phase::Succeeded,
            attempt: 1,
            target: None,
            previous_values: None,
            originating_identity: None,
            halts: None,
            created_at: Timestamp(1),
            ended_at: Some(Timestamp(2)),
            progress: None,
            waits: None,
            shown: Shown::default(),
            held: false,
        },
        past: Vec::new(),
        sequence: 1,
        created_at: Timestamp(1),
        updated_at: Timestamp(2),
    }
}

fn ordered(service: &str, plan: &str) -> Ordered {
    Ordered::bare(ServiceId::new(service).unwrap(), PlanId::new(plan).unwrap())
}

/// A record in which nothing is empty.
pub(super) fn full() -> Record {
    let awkward = json!({
        "text": "quote \" backslash \\ nul-like \\u0000 newline \n emoji \u{1F980} rtl \u{202E}",
        "numbers": [0, -1, i64::MIN, u64::MAX, 0.1, 1e-300, 1.5e300, 0.30000000000000004,
                    2.2250738585072014e-308, 9007199254740993_u64,
                    // A double that comes back as its neighbour unless it is parsed exactly.
                    0.49406962254148357],
        "empty": [null, "", {}, [], false],
        "": {"deep": [[[[[["down here"]]]]]]},
        // As deep as anything is let in, for it stands in an object.
        "deepest": (1..osb::MAX_DEPTH).fold(json!("bottom"), |inner, _| json!([inner])),
    });
    assert!(!osb::is_too_deep(&awkward));
    let object = awkward.as_object().unwrap().clone();
    let target = Ordered {
        parameters: object.clone().into(),
        context: object.clone().into(),
        maintenance_info: Some(MaintenanceInfo {
            version: "1.2.3+x".to_owned(),
            description: Some("d".to_owned()),
        }),
        organization_guid: Some("org".to_owned()),
        space_guid: Some("space".to_owned()),
        bind_resource: Some(BindResource {
            app_guid: Some("app".to_owned()),
            route: None,
            other: object.clone(),
        }),
        predecessor_binding_id: Some(BindingId::new("before").unwrap()),
        ..ordered("service", "small")
    };
    let failure = OperationFailure {
        reason: Reason::ExitStatus,
        description: "said no".to_owned(),
        instance_usable: Some(true),
        update_repeatable: Some(false),
        retry_after: Some(9),
    };
    let past = PastOperation {
        id: "update-y".to_owned(),
        action: Action::Update,
        attempts: 3,
        failure: Some(failure.clone()),
        created_at: Timestamp(3),
        ended_at: Timestamp(u64::from(u32::MAX) * 1000),
    };
    let credentials = object.clone();
    Record {
        ordered: target.clone(),
        made: Made {
            dashboard_url: Some("https://example.org/?a=1&b=2#c".to_owned()),
            metadata: Some(InstanceMetadata {
                labels: Some(BTreeMap::from([("k".to_owned(), "v".to_owned())])),
                attributes: Some(BTreeMap::from([("k".to_owned(), awkward.clone())])),
            }),
            binding: Some(BindingBody {
                credentials: Some(credentials.into()),
                syslog_drain_url: Some("syslog://x".to_owned().into()),
                ..BindingBody::default()
            }),
            state: Some(awkward.into()),
        },
        operation: Operation {
            phase: Phase::Failed(failure),
            target: Some(target),
            previous_values: Some(PreviousValues {
                plan_id: Some("large".to_owned()),
                ..PreviousValues::default()
            }),
            originating_identity: Some(OriginatingIdentity {
                platform: "cloudfoundry".to_owned(),
                value: object.into(),
            }),
            halts: RunName::parse("provision-x-1").map(|run| Halt { run, first: true, kept: true }),
            progress: Some("half".to_owned()),
            waits: Some("its turn".to_owned()),
            ..record(key("i")).operation
        },
        past: vec![past; crate::record::PAST_OPERATIONS],
        ..sample_binding("i", "full")
    }
}

pub(super) fn key(id: &str) -> Key {
    Key::Instance(InstanceId::new(id).unwrap())
}

pub(super) fn busy(mut record: Record) -> Record {
    record.operation.phase = Phase::Pending { not_before: Some(Timestamp(7)) };
    record.operation.ended_at = None;
    record
}

pub(super) fn deleted(mut record: Record, at: u64) -> Record {
    record.lifecycle = Lifecycle::Deleted;
    record.updated_at = Timestamp(at);
    record
}

pub(super) fn of_plan(mut record: Record, service: &str, plan: &str) -> Record {
    record.ordered = ordered(service, plan);
    record
}

/// Lists of which every record can be read.
#[async_trait]
pub trait Lists {
    /// A page of records.
    ///
    /// # Errors
    /// As of [`Store::scan`], and [`StoreError::Unreadable`] if one of them cannot be read.
    async fn list(&self, query: &Query) -> Result<Vec<Stored>, StoreError>;
}

#[async_trait]
impl<S: Store + ?Sized> Lists for S {
    async fn list(&self, query: &Query) -> Result<Vec<Stored>, StoreError> {
        self.scan(query).await?.into_iter().map(|found| found.map_err(Into::into)).collect()
    }
}

pub(super) fn all(kind: Kind) -> Query {
    Query { kind, instance: None, filter: Filter::All, after: None, limit: 1000 }
}

pub(super) fn keys(page: &[Stored]) -> Vec<Key> {
    page.iter().map(|stored| stored.record.key.clone()).collect()
}

pub(super) async fn put(store: &Arc<dyn Store>, record: Record) -> Version {
    store.write(Arc::new(record), None).await.unwrap()
}

pub(super) async fn get(store: &Arc<dyn Store>, key: &Key) -> Stored {
    store.read(key).await.unwrap().unwrap()
}

#[track_caller]
pub(super) fn conflicts<T: std::fmt::Debug>(result: Result<T, StoreError>) {
    match result {
        Err(StoreError::Conflict) => {}
        other => panic!("expected a conflict, got {other:?}"),
    }
}
