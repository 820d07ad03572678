//! Ids, each of a type of its own, so that none is taken for another (section "URL Properties").

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest id accepted, in bytes of UTF-8.
///
/// The specification sets no limit and recommends 255 characters for strings; we accept four times
/// that, so that an id always fits an index of the store and a line of a log.
pub const MAX_ID_BYTES: usize = 1024;

/// Why a string is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The empty string names nothing.
    #[error("must not be empty")]
    Empty,
    /// Longer than [`MAX_ID_BYTES`].
    #[error("must not be longer than {MAX_ID_BYTES} bytes")]
    TooLong,
    /// NUL and other control characters: no file name, header or terminal bears them.
    #[error("must not contain control characters")]
    Control,
}

/// Whether a string may be an id, or another name that platforms give (organisations, spaces).
pub(crate) fn check_id(id: &str) -> Result<(), IdError> {
    if id.is_empty() {
        return Err(IdError::Empty);
    }
    if id.len() > MAX_ID_BYTES {
        return Err(IdError::TooLong);
    }
    if id.chars().any(char::is_control) {
        return Err(IdError::Control);
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Checks and wraps an id.
            ///
            /// # Errors
            /// Empty, longer than [`MAX_ID_BYTES`], or with control characters.
            pub fn new(id: impl AsRef<str>) -> Result<Self, IdError> {
                let id = id.as_ref();
                check_id(id)?;
                Ok(Self(id.into()))
            }

            /// The id as the platform or the catalog spells it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(id: String) -> Result<Self, IdError> {
                Self::new(id)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// The platform's id of a service instance: any non-empty string, not necessarily a GUID.
    InstanceId
}
id! {
    /// The platform's id of a service binding, unique within its instance here.
    BindingId
}
id! {
    /// The id of a service offering in the catalog.
    ServiceId
}
id! {
    /// The id of a plan in the catalog.
    PlanId
}
