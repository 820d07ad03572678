//! The engine's ports on Kubernetes: [`KubernetesStore`] keeps records as resources, [`JobRunner`] runs
//! brokers as Jobs.
//!
//! ```text
//! ServiceInstance ──owns──▶ Secret      what was ordered and what was made, as far as it is confidential
//!   status.record                       everything else, and where in the Secret the rest is
//! ServiceBinding  ──owns──▶ Secret      the same
//! ConfigMap                             a tombstone: what is left of one that is gone
//! Broker                                an image that serves, and how its runs are made
//! ```
//!
//! Writes compare and set the resource: its version is the record's version, and one write to it is one step of an
//! operation. So of two simultaneous leaders one succeeds, and the other reads again.

pub mod access;
mod answers;
pub mod brokers;
mod calls;
mod client;
mod conditions;
mod controller;
mod deep;
mod definition;
mod events;
mod install;
mod lease;
pub mod names;
mod nodes;
pub mod own;
mod pods;
pub mod quarks;
mod queue;
pub mod resources;
mod runner;
mod server_time;
mod split;
mod store;
pub mod syntax;
mod tasks;
pub mod templates;
mod text;
mod versions;
mod waking;
mod warnings;

pub use self::calls::NO_API_SERVER;
pub use self::client::{ClientError, client, client_of, of_credentials};
pub use self::controller::control;
pub use self::events::Events;
pub use self::install::InstallError;
pub use self::lease::Lead;
pub use self::runner::{
    Bonds, Delivery, JobRunner, JobSettings, PackedAgent, PackedError, PodPolicy, RunnerOpenError,
};
pub use self::store::{KubernetesStore, RecordChange, StoreSettings};
pub use kube::Client;
use serde_json::Value;

/// The CustomResourceDefinitions of all kinds except those of templates, for any API server from Kubernetes 1.16 on.
pub fn definitions() -> Vec<Value> {
    let further = [
        brokers::definition(),
        quarks::definition(quarks::Dialect::QuarksJob),
        quarks::definition(quarks::Dialect::ExtendedJob),
    ];
    resources::Kind::ALL.into_iter().map(resources::definition).chain(further).collect()
}
