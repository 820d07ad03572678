//! The labels and annotations of Jobs and their pods, and the name of the container that counts.

/// The label of a Job and its pod that names the run.
pub(super) const RUN: &str = "manciple.dev/run";
/// The annotations of a Job that name the record of the run.
pub(super) const INSTANCE_ID: &str = "manciple.dev/instance-id";
pub(super) const BINDING_ID: &str = "manciple.dev/binding-id";
/// The annotation of a Job that has a Secret of the same name.
pub(super) const GIVEN: &str = "manciple.dev/given";
/// The annotation of a Job whose broker may report its progress.
pub(super) const PROGRESS: &str = "manciple.dev/progress";
/// The annotation of a Job that is no longer needed: until when it is kept, in seconds since 1970.
pub(super) const RELEASED: &str = "manciple.dev/released-until";
/// The annotation of a Job with its [`Periods`](super::seen::Periods) as JSON, by which it is waited for and kept:
/// settings may have changed when it ends.
pub(super) const KEPT: &str = "manciple.dev/kept";
/// The annotation of a Job that names its `Broker` resource.
pub(super) const RESOURCE: &str = "manciple.dev/broker-resource";
/// The annotation of a Job that may have no more pods: the [`Fence`](super::seen::Fence) as JSON.
pub(super) const FENCED: &str = "manciple.dev/ended";

/// The name of the broker's container.
pub(super) const BROKER_CONTAINER: &str = "broker";
