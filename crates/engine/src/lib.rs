//! The engine: carries out the operations of a service broker so that they survive a crash.
//!
//! An intent is recorded, a run is started for it, its output is captured, the outcome is
//! published. All four survive the end of this process at any moment, because what happens next is
//! decided from what is recorded, never from what was in progress:
//!
//! ```text
//!            ┌────────────── Store ◀─ one write per transition, durable before acknowledged
//! request ──▶ Engine ── observe ──▶ decide ──▶ execute ──▶ Runner (start, cancel, release)
//!            └─ answers from the record alone
//! ```
//!
//! [`record`] is what is kept, [`decide`] the rules (pure), [`Engine`] the thin I/O around them, and
//! [`ports`] what a machine or a cluster provides.
//!
//! Two more decisions are here, as pure as those: [`trigger`] says when a declared job runs, and [`instantiation`] what
//! becomes of a template's objects. They are decided from the Kubernetes resource itself, not from a record of a
//! [`Store`](ports::Store); the caller reads and writes that resource.

mod admin;
mod admit;
mod adopt;
mod answer;
mod backend;
mod catalog;
mod commit;
pub mod contract;
pub mod decide;
mod driver;
mod engine;
pub mod failpoint;
pub mod history;
pub mod in_process;
pub mod instantiation;
mod key;
pub mod names;
mod observe;
mod permits;
pub mod policy;
pub mod ports;
pub mod record;
pub mod redact;
mod shared;
mod system_clock;
mod task_state;
mod tasks;
mod transition;
pub mod trigger;
mod update;
pub mod vital;
mod withdrawn;

#[cfg(feature = "testing")]
pub mod testing;

pub use catalog::CatalogError;
pub use engine::{Engine, Ports};
pub use policy::Policy;
pub use ports::Observer;
pub use system_clock::SystemClock;
