//! The output of a run: how it reaches the controller, and how it becomes Secrets and ConfigMaps.

pub(super) mod bounds;
pub(super) mod capture;
pub(super) mod logs;
pub(super) mod objects;
pub(super) mod persist;
pub(super) mod put;
pub(super) mod report;
pub(super) mod shown;
pub(super) mod undone;
pub(super) mod writes;
