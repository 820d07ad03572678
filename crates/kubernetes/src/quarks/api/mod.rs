//! QuarksJob and ExtendedJob as users write and read them: the definition, the spec and its faults, the status; and how
//! we name and mark what we make for them. Nothing here makes a call.

pub(super) mod definition;
pub(super) mod dialect;
pub(super) mod document;
pub(super) mod following;
pub(super) mod history;
pub(super) mod inputs;
pub(super) mod key;
pub(super) mod lint;
pub(super) mod naming;
pub(super) mod noted;
pub(super) mod output_map;
pub(super) mod pod;
pub(super) mod record;
pub(super) mod reference;
pub(super) mod resource;
pub(super) mod room;
pub(super) mod schedule;
pub(super) mod selecting;
pub(super) mod shape;
pub(super) mod status;
pub(super) mod unread;
