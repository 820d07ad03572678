//! The key of a QuarksJob or ExtendedJob, by which all that is known of it is found.

use std::sync::Arc;

use super::dialect::Dialect;
use crate::queue::Placed;

/// A QuarksJob or ExtendedJob by its kind, its namespace and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) dialect: Dialect,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
}

impl Placed for Key {
    fn namespace(&self) -> &Arc<str> {
        &self.namespace
    }
}
