//! Brokers as resources: each `Broker` is an image with its own configuration, and all of a group are served
//! as one catalog.
//!
//! ```text
//! Broker ──watch──▶ Registry ──▶ Brokers (who has which service, and how its runs are made)
//!   ▲                              │ ▲
//!   │ status: conditions, services │ │ its catalog, by a Job of its own
//!   └───────────── keep ◀──────────┘ └── JobRunner::ask
//!                   └──▶ engine: the catalogs, merged
//! ```
//!
//! The last offer of each broker is in the catalog in force, and which service belongs to which broker is in the status
//! of the `Broker`s: nothing else has to be kept.

mod check;
mod definition;
mod entry;
mod merge;
mod policy;
mod refresh;
mod registry;
mod resource;
mod seen;
mod spec;
mod status;
mod table;
mod volumes;

#[cfg(test)]
mod tests;

pub use self::check::{pod_faults, resources_fault};
pub(crate) use self::definition::definition;
pub use self::definition::resource;
pub use self::refresh::{Keeper, Share};
pub use self::registry::{Registry, RegistryError, Resources};
pub use self::resource::Resource;
pub use self::table::Brokers;
pub(crate) use self::table::Nobody;
