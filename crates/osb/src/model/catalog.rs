//! The catalog, as a broker offers it and before anybody has judged it (section "Catalog Management").

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{Object, PlanId, ServiceId};

/// The catalog of a broker: the body of `GET /v2/catalog` (section "Catalog Management").
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Catalog {
    /// The service offerings; may be empty.
    pub services: Vec<Service>,
}

/// A service offering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// The id of the service: globally unique, never changed.
    pub id: ServiceId,
    /// The name of the service: unique within the catalog, compared case-sensitively.
    pub name: String,
    /// Non-empty.
    pub description: String,
    /// Whether instances can be bound; a plan may override it.
    pub bindable: bool,
    /// The plans; at least one.
    pub plans: Vec<Plan>,
    /// Words for searching.
    #[serde(default, deserialize_with = "unless_null", skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Permissions that the application platform must grant for bindings.
    #[serde(default, deserialize_with = "unless_null", skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<Permission>,
    /// Whether `GET` of an instance works. Absent: `false` by the specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances_retrievable: Option<bool>,
    /// Whether `GET` of a binding works. Absent: `false` by the specification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindings_retrievable: Option<bool>,
    /// Whether an update that changes only the context may be sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_context_updates: Option<bool>,
    /// For people; open-ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// The OAuth client for single sign-on of a dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_client: Option<DashboardClient>,
    /// Whether the plan of an instance may be changed; a plan may override it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_updateable: Option<bool>,
    /// Members beyond the specification, served as they are ("Vendor Extension Fields").
    #[serde(flatten)]
    pub extensions: Object,
}

/// A plan of a service offering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The id of the plan: globally unique, never changed.
    pub id: PlanId,
    /// The name of the plan: unique within the service.
    pub name: String,
    /// Non-empty.
    pub description: String,
    /// For people; open-ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Object>,
    /// Whether the plan costs nothing. Absent: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<bool>,
    /// Overrides the service's `bindable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bindable: Option<bool>,
    /// Overrides the service's `plan_updateable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_updateable: Option<bool>,
    /// Whether a binding can be renewed by `predecessor_binding_id`. Absent: `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding_rotatable: Option<bool>,
    /// JSON Schemas of the parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schemas: Option<Schemas>,
    /// How long, in seconds, a platform polls before it gives up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_polling_duration: Option<u64>,
    /// The version of what an instance of this plan runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_info: Option<MaintenanceInfo>,
    /// Members beyond the specification, served as they are ("Vendor Extension Fields").
    #[serde(flatten)]
    pub extensions: Object,
}

/// Permissions of `requires`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// Bindings may carry `syslog_drain_url`.
    SyslogDrain,
    /// Bindings may carry `route_service_url`.
    RouteForwarding,
    /// Bindings may carry `volume_mounts`.
    VolumeMount,
}

impl Permission {
    /// All permissions.
    pub const ALL: [Self; 3] = [Self::SyslogDrain, Self::RouteForwarding, Self::VolumeMount];
}

/// Single sign-on of a dashboard (section "Dashboard Client").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DashboardClient {
    /// The OAuth client's id.
    pub id: String,
    /// The OAuth client's secret. The specification sends it in the catalog.
    pub secret: super::Sensitive<String>,
    /// The URI to which the login returns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_uri: Option<String>,
}

/// The version of what an instance runs on (section "Maintenance Info").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaintenanceInfo {
    /// Semantic version 2.0. The only member that requests are compared by.
    pub version: String,
    /// What an upgrade to this version means, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// JSON Schemas of a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Schemas {
    /// The schemas of instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_instance: Option<SchemaGroup>,
    /// The schemas of bindings; only `create`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_binding: Option<SchemaGroup>,
}

/// The schemas of one kind of resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SchemaGroup {
    /// The schema of the parameters for its creation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub create: Option<ParametersSchema>,
    /// The schema of the parameters for its update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<ParametersSchema>,
}

/// A schema, wrapped as the specification wraps it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ParametersSchema {
    /// The JSON Schema: `$schema` present, no external `$ref`, at most 64 kB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
}

/// Reads an optional member, for which `null` counts as absent: Go prints empty lists and pointers like that.
/// `Option` reads it so by itself.
fn unless_null<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
