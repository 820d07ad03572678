//! What records are found by.

use std::fmt;

use osb::{Action, BindingId, InstanceId};
use serde::{Deserialize, Serialize};

/// The key of a record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Key {
    /// A service instance.
    Instance(InstanceId),
    /// A binding of an instance. Binding ids are unique within their instance.
    Binding(InstanceId, BindingId),
}

impl Key {
    /// The key of a binding of the instance; without a binding, that of the instance.
    pub fn of(instance: InstanceId, binding: Option<BindingId>) -> Self {
        match binding {
            Some(binding) => Self::Binding(instance, binding),
            None => Self::Instance(instance),
        }
    }

    /// The instance, or the instance of the binding.
    pub fn instance(&self) -> &InstanceId {
        match self {
            Self::Instance(instance) | Self::Binding(instance, _) => instance,
        }
    }

    /// The binding, if the key is one's.
    pub fn binding(&self) -> Option<&BindingId> {
        match self {
            Self::Instance(_) => None,
            Self::Binding(_, binding) => Some(binding),
        }
    }

    /// The action that removes the instance or binding.
    pub fn removal(&self) -> Action {
        match self {
            Self::Instance(_) => Action::Deprovision,
            Self::Binding(..) => Action::Unbind,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Instance(instance) => write!(f, "instance {instance}"),
            Self::Binding(instance, binding) => write!(f, "binding {binding} of {instance}"),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
