//! The Job of a run and its pods, from its making to its removal.

pub(super) mod begin;
pub(super) mod dispose;
pub(super) mod forgotten;
pub(super) mod inherit;
pub(super) mod left;
pub(super) mod manifest;
pub(super) mod obstacle;
pub(super) mod retention;
pub(super) mod sidecars;
pub(super) mod tend;
