//! A broker whose instances are objects of the cluster that it serves: a ConfigMap of settings each.
//!
//! [`Settings`] is the work, [`serve`] puts it into a process of its own: orders become `ServiceInstance`
//! resources, the replica that leads carries them out and sets their conditions, `last_operation` reads
//! them, and `kubectl delete serviceinstance` is a deprovision.

mod broker;
mod secrets;
mod serve;

pub use broker::Settings;
pub use secrets::{Followed, certificate, credentials};
pub use serve::{Replica, serve};
