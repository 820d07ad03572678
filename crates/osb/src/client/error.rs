//! The errors of a client, sorted by what the sender of a request can do about them (section "Service Broker Errors").

use std::time::Duration;

/// The reason why no client can be made from settings.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The base URL cannot be used. The URL is not repeated: it may hold a password.
    #[error("the base URL {0}")]
    BaseUrl(&'static str),
    /// The user's name has a colon: by RFC 7617 everything after the first colon would be the password.
    #[error("the user name must not have a colon")]
    Colon,
    /// A setting has characters that no header can carry.
    #[error("{0} is empty or has characters that no HTTP header can carry")]
    Header(&'static str),
    /// The certificates of the authority cannot be used.
    #[error("the CA certificates {0}")]
    Certificates(&'static str),
    /// The system's certificates cannot be read.
    #[error("the system has no CA certificates that can be read; name a file of them instead")]
    SystemRoots(#[source] std::io::Error),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// The reason why a request brought no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The broker was not reached, or the connection broke.
    #[error("{}", if *.sent { "the connection to the broker broke" } else { "the broker cannot be reached" })]
    Transport {
        /// Whether the broker may have received the request.
        sent: bool,
        /// The error of the connection.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There was no answer in time. The broker may have received the request.
    #[error("the broker did not answer within {after:?}")]
    Timeout {
        /// How long the client waited.
        after: Duration,
    },
    /// The broker refused, or failed.
    #[error("{0}")]
    Refused(Refusal),
    /// The answer is one that the specification does not allow.
    #[error("the broker's answer (status {status}) cannot be used: {why}")]
    Malformed {
        /// The status.
        status: u16,
        /// The fault in the answer; names members, never values.
        why: String,
    },
}

impl ClientError {
    /// The status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Transport { .. } | Self::Timeout { .. } => None,
            Self::Refused(refusal) => Some(refusal.status),
            Self::Malformed { status, .. } => Some(*status),
        }
    }

    /// Whether what was asked about does not exist (404) or no longer does (410).
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused(refusal) if matches!(refusal.status, 404 | 410))
    }

    /// Whether the same request may succeed a little later: no answer, 408, 429, 5xx, or
    /// `ConcurrencyError`.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Timeout { .. } => true,
            Self::Refused(refusal) => {
                matches!(refusal.status, 408 | 429 | 500..=599) || refusal.is("ConcurrencyError")
            }
            Self::Malformed { .. } => false,
        }
    }

    /// How long the broker asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused(refusal) => refusal.retry_after,
            _ => None,
        }
    }
}

/// A refused request, as the broker put it (section "Service Broker Errors").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// 4xx or 5xx.
    pub status: u16,
    /// The `error` member.
    pub error: Option<String>,
    /// The `description` member: written by the broker, for the user.
    pub description: Option<String>,
    /// After an update or deprovision: whether the instance still works.
    pub instance_usable: Option<bool>,
    /// After an update: whether it may be repeated as it was.
    pub update_repeatable: Option<bool>,
    /// When the broker wants to be asked again.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// Whether `error` is this word.
    pub fn is(&self, word: &str) -> bool {
        self.error.as_deref() == Some(word)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the broker answered {}", self.status)?;
        if let Some(error) = &self.error {
            write!(f, " {error}")?;
        }
        match &self.description {
            Some(description) => write!(f, ": {description}"),
            None => Ok(()),
        }
    }
}
