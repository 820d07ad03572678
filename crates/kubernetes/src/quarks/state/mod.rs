//! What is known without asking: of what was asked for, of Jobs, pods, ConfigMaps and Secrets, and of what we have done; and
//! the watches that tell it.
//!
//! | | |
//! |---|---|
//! | told by a watch | `watch`, `follows` |
//! | of each that was asked for, and of all | `table`, `deeds`, `strays`, `namesakes` |
//! | of Jobs and pods | `job`, `wants`, `pod`, `pods`, `indexes`, `ending`, `lasting`, `overdue` |
//! | of what is referred to or written | `object`, `held` |
//! | of pods of others that are followed | `peers` |

pub(super) mod deeds;
pub(super) mod ending;
pub(super) mod follows;
pub(super) mod forgotten;
pub(super) mod held;
mod indexes;
pub(super) mod job;
pub(super) mod lasting;
pub(super) mod namesakes;
pub(super) mod object;
pub(super) mod peers;
pub(super) mod pod;
pub(super) mod pods;
pub(super) mod table;
pub(super) mod waiting_sidecars;
pub(super) mod wants;
pub(super) mod watch;
