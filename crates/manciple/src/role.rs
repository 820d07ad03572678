//! What those may do who ask a server: the configuration says it of each, and the operator's API asks for it.

use serde::Deserialize;

/// What a principal may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Order through the Open Service Broker API.
    #[default]
    Platform,
    /// That, and the operator's API.
    Operator,
}

impl Role {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Operator => "operator",
        }
    }
}
