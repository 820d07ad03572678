//! Reasons why a QuarksJob is not run: it holds more than is kept in memory of one. All QuarksJobs are in the memory of
//! one process, and are looked at in turn.

use engine::trigger::{MAX_OPEN, Step};

use super::record::Written;
use super::reference::{MOST_OBJECTS, MOST_OTHERS};
use super::resource::Resource;
use crate::deep;

/// How many bytes of memory a record that is read may take. One with as many runs as may go on, each for a pod, takes
/// half of it, and one with a run that has as many inputs as it may have takes no more than this.
pub(crate) const HEAVIEST_RECORD: usize = 4 << 20;

/// From how many bytes on a QuarksJob is large. Thousands of usual ones are held beside the large ones.
pub(crate) const LARGE: usize = 16 << 10;
/// How many bytes all large QuarksJobs may take together: anybody who may make one may make any number, and a process
/// that runs out of memory would restart, and read all of them again.
pub(crate) const TOGETHER: usize = 80 << 20;

/// What to do about a record that cannot be read, and what becomes of its runs then.
const REMEDY: &str = "remove it; of its runs those go on then whose Job is there";

/// Why a QuarksJob is not run, for people. It is treated as if it had no spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// Its spec is not read.
    #[error("spec: {0}")]
    Spec(deep::Unread),
    /// It refers to this number of ConfigMaps and Secrets, which is too many.
    #[error(
        "spec: its pod and its inputs refer to {0} ConfigMaps and Secrets, of {most}: put what they hold into fewer",
        most = MOST_OBJECTS
    )]
    Objects(usize),
    /// It waits for this number of others, which is too many.
    #[error(
        "spec.dependsOn: has {0} names, of {most}: have it wait for one that waits for others",
        most = MOST_OTHERS
    )]
    Others(usize),
    /// The record of its runs, in this place, takes too much memory.
    #[error(
        "{0} would take more than {most} MiB of memory: {remedy}",
        most = HEAVIEST_RECORD >> 20,
        remedy = REMEDY
    )]
    HeavyRecord(&'static str),
    /// The record of its runs, in this place, has this number of runs that have not ended, which is too many.
    #[error(
        "{0} has {1} runs that have not ended, of {most}: {remedy}",
        most = MAX_OPEN,
        remedy = REMEDY
    )]
    LongRecord(&'static str, usize),
    /// The memory that it takes is too much beside all other large ones. Neither its spec nor its record is held.
    #[error(
        "all that are large, of more than {large} KiB each, would take more than {most} MiB of memory together: remove some \
         of them, or what of their specs and records is large, and then change this one, or begin the controller anew",
        large = LARGE >> 10,
        most = TOGETHER >> 20
    )]
    Beside,
}

impl Unread {
    /// Whether the reason hides the record, so that it is not known which runs there are.
    pub(crate) fn is_of_record(self) -> bool {
        matches!(self, Self::HeavyRecord(_) | Self::LongRecord(..) | Self::Beside)
    }
}

/// Why a QuarksJob is not run that refers to too many objects or waits for too many others; `None`: it does neither.
pub(crate) fn excess(of: &Resource) -> Option<Unread> {
    let others = of.references.iter().filter(|it| it.kind.object().is_none()).count();
    let objects = of.references.len() - others + of.told_of.len();
    match objects > MOST_OBJECTS {
        true => Some(Unread::Objects(objects)),
        false => (others > MOST_OTHERS).then_some(Unread::Others(others)),
    }
}

/// Why what these steps would record is not written: it would be too heavy to be read again.
pub(crate) fn unwritable(of: &Resource, steps: &[Step]) -> Option<String> {
    let is_heavy = |step: &Step| match step {
        Step::Record { record, .. } => Written::is_too_heavy(of, record),
        _ => false,
    };
    steps.iter().any(is_heavy).then(|| {
        format!(
            "the record of its runs would take more than {} MiB of memory: put what is large of spec.trigger.inputs into \
             a Secret, or let fewer runs go on at once, by spec.concurrencyPolicy",
            HEAVIEST_RECORD >> 20
        )
    })
}
