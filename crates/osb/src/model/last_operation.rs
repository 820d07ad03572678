//! How far an operation is (sections "Polling Last Operation for Service Instances" and "Polling Last Operation for
//! Service Bindings").

use serde::{Deserialize, Serialize};

/// The body of both `last_operation` routes (sections "Polling Last Operation …").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastOperation {
    /// The state of the operation.
    pub state: OperationState,
    /// For people; non-empty if present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// After a failed update or deprovision: whether the instance still works.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_usable: Option<bool>,
    /// After a failed update: whether it may be repeated as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_repeatable: Option<bool>,
    /// When to ask again, in seconds; sent as `Retry-After`, not in the body.
    #[serde(skip)]
    pub retry_after: Option<u64>,
}

/// The state of an asynchronous operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationState {
    /// Not ended.
    #[serde(rename = "in progress")]
    InProgress,
    /// Ended well.
    #[serde(rename = "succeeded")]
    Succeeded,
    /// Ended badly.
    #[serde(rename = "failed")]
    Failed,
}

/// The query of both `last_operation` routes. All hints, none required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastOperationQuery {
    /// As the platform believes.
    pub service_id: Option<String>,
    /// As the platform believes; the old plan during a change of plan.
    pub plan_id: Option<String>,
    /// The operation that a 202 named.
    pub operation: Option<String>,
}
