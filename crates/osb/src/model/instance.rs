//! The bodies of instances (sections "Provisioning", "Fetching a Service Instance", "Updating a Service Instance" and
//! "Deprovisioning").

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{MaintenanceInfo, Object, PlanId, Sensitive, ServiceId};

/// `PUT /v2/service_instances/:instance_id` (section "Provisioning").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProvisionRequest {
    /// A service of the catalog.
    pub service_id: ServiceId,
    /// A plan of that service in the catalog.
    pub plan_id: PlanId,
    /// The organization: non-empty; deprecated by the specification in favour of the context, yet required.
    pub organization_guid: String,
    /// The space: non-empty; deprecated in the same way, yet required.
    pub space_guid: String,
    /// The context in which the platform orders: see the profile document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Sensitive<Object>>,
    /// The user's choices, valid by the plan's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Sensitive<Object>>,
    /// The version that the platform believes the plan to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
}

/// `PATCH /v2/service_instances/:instance_id` (section "Updating a Service Instance").
///
/// What is absent is not changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateRequest {
    /// The instance's service; it never changes.
    pub service_id: ServiceId,
    /// The plan to change to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<PlanId>,
    /// Parameters to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Sensitive<Object>>,
    /// The new context; alone, it needs `allow_context_updates`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Sensitive<Object>>,
    /// The values of the instance as the platform believes them to be. Informational.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_values: Option<PreviousValues>,
    /// The version to bring the instance to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
}

/// The values of an instance before an update. Every member is optional and informational.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PreviousValues {
    /// Deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_id: Option<String>,
    /// The plan before the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<String>,
    /// Deprecated in favour of the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<String>,
    /// Deprecated in favour of the context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<String>,
    /// The version before the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
}

/// `DELETE /v2/service_instances/:instance_id` (section "Deprovisioning"): its query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeprovisionRequest {
    /// The instance's service; may have left the catalog.
    pub service_id: ServiceId,
    /// The instance's plan; may have left the catalog.
    pub plan_id: PlanId,
}

/// The body of the answer to provisioning and updating.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProvisionedBody {
    /// The URL at which a person manages the instance. Already in the first response, 202 included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// Labels and attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<InstanceMetadata>,
}

/// `metadata` of an instance: string values under `labels`, any under `attributes`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InstanceMetadata {
    /// Searchable pairs of strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<std::collections::BTreeMap<String, String>>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<std::collections::BTreeMap<String, Value>>,
}

/// `GET /v2/service_instances/:instance_id` (section "Fetching a Service Instance").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceView {
    /// The service of the instance.
    pub service_id: ServiceId,
    /// The plan of the instance, as of the last successful operation.
    pub plan_id: PlanId,
    /// The dashboard of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    /// The parameters of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Sensitive<Object>>,
    /// The version it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
    /// Labels and attributes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<InstanceMetadata>,
}
