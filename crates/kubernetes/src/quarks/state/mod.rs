//! What is known without a call: of QuarksJobs, Jobs, pods, ConfigMaps and Secrets, and of what we have done; and the
//! watches that tell it.
//!
//! | | |
//! |---|---|
//! | told by a watch | `watch`, `follows` |
//! | of each QuarksJob, and of all | `table`, `deeds`, `waiting_sidecars`, `namesakes` |
//! | of Jobs and pods | `job`, `wants`, `pod`, `pods`, `indexes`, `ending`, `lasting`, `forgotten` |
//! | of ConfigMaps and Secrets | `object`, `held`, `agents`, `versions` |
//! | of pods that ExtendedJobs follow | `peer`, `peers` |

pub(super) mod agents;
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
mod peer;
pub(super) mod peers;
pub(super) mod pod;
pub(super) mod pods;
pub(super) mod table;
pub(super) mod versions;
pub(super) mod waiting_sidecars;
pub(super) mod wants;
pub(super) mod watch;
