//! Processes OpenShift templates (`template.openshift.io/v1`). Pure: no clock, no network, and every function is total;
//! what the original rounds, drops or panics at is an error here, or right.
//!
//! ```text
//! JSON ── read ──▶ Template ── set ──▶ Template ── process ──▶ Processed: objects, message, values
//!                     │                                            │
//!                     ├── lint: what would fail later              └── expose: what a binding is given
//!                     └── schema: what may be set
//!
//! objects ──▶ translate: what plain Kubernetes takes in their place
//!
//! an object, as the API server has it ──▶ ready: whether it is what it is waited for to be
//! ```
//!
//! The rules are those of OpenShift's `oc process` and TemplateInstance controller ("the original"); where ours differ,
//! a comment there says so.

mod cel;
mod expose;
mod fault;
mod generate;
mod groups;
mod lint;
mod period;
mod process;
mod random;
mod schema;
mod substitute;
mod template;

pub mod jsonpath;
pub mod ready;
pub mod translate;

#[cfg(any(test, feature = "testing"))]
pub use cel::evaluate;
pub use expose::{Exposed, NotExposed, expose, exposes, may_expose};
pub use fault::{Fault, Problem};
pub use period::period;
pub use process::Processed;
pub use random::{NoRandomness, Random, Seeded, System, Zeros};
pub use template::{API_VERSION, KIND, Parameter, Template};
