//! The bodies of requests and responses, as the specification spells them.
//!
//! Unknown fields are ignored everywhere (section "Content Type" and item 6 of our list): a newer
//! platform may send more than we know. Values that may carry secrets are [`Sensitive`].

mod binding;
mod catalog;
mod depth;
mod identity;
mod ids;
mod instance;
mod last_operation;
mod number;
mod sensitive;

pub use binding::{
    BindRequest, BindResource, BindingBody, BindingMetadata, BindingView, Device, Endpoint,
    Protocol, UnbindRequest, VolumeMode, VolumeMount,
};
pub use catalog::{
    Catalog, DashboardClient, MaintenanceInfo, ParametersSchema, Permission, Plan, SchemaGroup,
    Schemas, Service,
};
pub use depth::{MAX_DEPTH, is_past_reading, is_too_deep};
pub use identity::OriginatingIdentity;
#[cfg(feature = "server")]
pub(crate) use ids::check_id;
pub use ids::{BindingId, IdError, InstanceId, MAX_ID_BYTES, PlanId, ServiceId};
pub use instance::{
    DeprovisionRequest, InstanceMetadata, InstanceView, PreviousValues, ProvisionRequest,
    ProvisionedBody, UpdateRequest,
};
pub use last_operation::{LastOperation, LastOperationQuery, OperationState};
pub use number::{INTEGER_BITS, rounded_integers};
pub use sensitive::Sensitive;

/// A JSON object.
pub type Object = serde_json::Map<String, serde_json::Value>;
