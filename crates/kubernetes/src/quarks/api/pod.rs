//! The names of what we put into the pods of runs: whoever looks at a pod knows our parts by them.

use crate::runner::delivery::{PACKED_VOLUME, VOLUME};

/// The name of our sidecar, which is that of the original's.
pub(crate) const SIDECAR: &str = "output-persist";
/// The annotation of a pod that tells our sidecar that the user's containers have ended.
pub(crate) const TOLD_ENDED: &str = "manciple.dev/ended";
/// The annotation with the names, separated by commas, of the containers after whose end the pod's work is done. Others
/// may be put into the pod on its way to the node, and may never end.
pub(crate) const CONTAINERS: &str = "manciple.dev/containers";

/// The directory in which our sidecar finds the annotation [`TOLD_ENDED`], and the name of its volume.
pub(crate) const TOLD: &str = "/manciple-told";
pub(crate) const TOLD_VOLUME: &str = "manciple-told";
/// The names of our volumes, except those that belong to one container of the template.
pub(crate) const VOLUMES: [&str; 3] = [VOLUME, PACKED_VOLUME, TOLD_VOLUME];
