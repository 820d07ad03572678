//! What we put into the pods of runs, by name: whoever looks at one knows it by these.

use crate::runner::delivery::{PACKED_VOLUME, VOLUME};

/// Our sidecar, by the name that the original's had.
pub(crate) const SIDECAR: &str = "output-persist";
/// Says that the user's containers have ended: an annotation of a pod with a classic sidecar.
pub(crate) const TOLD_ENDED: &str = "manciple.dev/ended";
/// The containers that a pod is over with, separated by commas: an annotation. Others may be put into it on its
/// way to the node, and may never end.
pub(crate) const CONTAINERS: &str = "manciple.dev/containers";

/// Where a classic sidecar is told, and the volume that is there.
pub(crate) const TOLD: &str = "/manciple-told";
pub(crate) const TOLD_VOLUME: &str = "manciple-told";
/// The volumes that are ours, but for those of a container of the template.
pub(crate) const VOLUMES: [&str; 3] = [VOLUME, PACKED_VOLUME, TOLD_VOLUME];
