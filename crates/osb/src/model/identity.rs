//! The originating identity: the user who asked the platform, of whom the broker is told in a header (section
//! "Originating Identity").

use serde::{Deserialize, Serialize};

use super::{Object, Sensitive};

/// The user who asked the platform: the parsed `X-Broker-API-Originating-Identity` (section
/// "Originating Identity"), `<platform> <base64 of a JSON object>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OriginatingIdentity {
    /// The platform: `cloudfoundry`, `kubernetes`, or a platform's own name.
    pub platform: String,
    /// The identity: `{user_id}` or `{username, uid, groups, extra}`, or what the platform defines.
    pub value: Sensitive<Object>,
}
