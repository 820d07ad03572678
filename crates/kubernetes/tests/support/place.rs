//! Where the control plane of schedules is.

use std::path::PathBuf;

use testkit::plane::ControlPlane;

/// Where a control plane is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) folder: PathBuf,
}

impl Place {
    pub(crate) fn of(plane: &ControlPlane) -> Self {
        Self { kubeconfig: plane.kubeconfig(), folder: plane.folder().to_owned() }
    }
}
