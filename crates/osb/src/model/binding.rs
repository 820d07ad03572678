//! The bodies of bindings (sections "Binding", "Fetching a Service Binding" and "Unbinding").

use serde::{Deserialize, Serialize};

use super::{BindingId, Object, PlanId, Sensitive, ServiceId};

/// `PUT /v2/service_instances/:instance_id/service_bindings/:binding_id` (section "Binding").
///
/// With `predecessor_binding_id` it is a rotation: everything else is then optional and taken from
/// the predecessor (section "Rotating a Service Binding").
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BindRequest {
    /// Required, but for a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_id: Option<ServiceId>,
    /// Required, but for a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan_id: Option<PlanId>,
    /// The context in which the platform orders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Sensitive<Object>>,
    /// Deprecated in favour of `bind_resource.app_guid`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_guid: Option<String>,
    /// The application or other resource that is bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind_resource: Option<BindResource>,
    /// The user's choices, valid by the plan's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Sensitive<Object>>,
    /// The binding that this one replaces in a rotation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor_binding_id: Option<BindingId>,
}

/// The application or other resource that is bound (section "Bind Resource Object"); platforms add members of their
/// own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BindResource {
    /// The application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_guid: Option<String>,
    /// The route of a route service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Everything else: `space_guid`, `app_annotations`, `credential_client_id`, ….
    #[serde(flatten)]
    pub other: Object,
}

/// The query of the `DELETE` of a binding (section "Unbinding").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnbindRequest {
    /// The binding's service; may have left the catalog.
    pub service_id: ServiceId,
    /// The binding's plan; may have left the catalog.
    pub plan_id: PlanId,
}

/// The content of a binding: the body of 200 and 201. Never part of a 202.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BindingBody {
    /// The times of expiry and renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BindingMetadata>,
    /// The credentials with which the service is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<Sensitive<Object>>,
    /// The URL to which logs are sent; needs `syslog_drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub syslog_drain_url: Option<Sensitive<String>>,
    /// The URL to which requests are sent; needs `route_forwarding`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_service_url: Option<Sensitive<String>>,
    /// The volumes to mount; needs `volume_mount`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
    /// The endpoints to which the application connects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<Endpoint>>,
}

/// `metadata` of a binding: `yyyy-mm-ddThh:mm:ss.sZ` both, `renew_before` not after `expires_at`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingMetadata {
    /// When the binding stops to work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The time by which the binding should be rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_before: Option<String>,
}

/// A volume to mount (section "Volume Mounts Object").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeMount {
    /// The volume driver.
    pub driver: String,
    /// The path at which it is mounted in the container.
    pub container_dir: String,
    /// Read only, or read and write.
    pub mode: VolumeMode,
    /// Only `shared`.
    pub device_type: String,
    /// The device.
    pub device: Device,
}

/// How a volume is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeMode {
    /// Read only.
    R,
    /// Read and write.
    Rw,
}

/// The device of a volume mount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The id of the volume.
    pub volume_id: String,
    /// The configuration for the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_config: Option<Sensitive<Object>>,
}

/// A network endpoint (section "Endpoint Object").
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// A host name, an address or a range.
    pub host: String,
    /// The ports, as non-empty strings, `"443"` or `"9000-9010"`.
    pub ports: Vec<String>,
    /// The protocol. Absent: `tcp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
}

/// The protocol of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Any.
    All,
}

/// The answer to `GET` of a binding (section "Fetching a Service Binding").
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BindingView {
    /// The content of the binding.
    #[serde(flatten)]
    pub body: BindingBody,
    /// The parameters of the binding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Sensitive<Object>>,
}
