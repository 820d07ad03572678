//! The roles of those who send requests: the configuration gives each of them one, and the operator's API checks it.

use serde::Deserialize;

/// The role of a principal: what it may do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// The role that may order through the Open Service Broker API.
    #[default]
    Platform,
    /// The role that may do that, and use the operator's API.
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
