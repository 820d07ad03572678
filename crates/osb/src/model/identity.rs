//! Who asked the platform, which the broker is told in a header (section "Originating Identity").

use serde::{Deserialize, Serialize};

use super::{Object, Sensitive};

/// Who asked the platform: the parsed `X-Broker-API-Originating-Identity` (section
/// "Originating Identity"), `<platform> <base64 of a JSON object>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OriginatingIdentity {
    /// `cloudfoundry`, `kubernetes`, or a platform's own name.
    pub platform: String,
    /// `{user_id}` or `{username, uid, groups, extra}`, or what the platform defines.
    pub value: Sensitive<Object>,
}
