//! Why nothing of one is run: somebody has written more into it than is kept of one. All of them are kept in the memory of
//! one process, and are looked at in turn.

use engine::trigger::{MAX_OPEN, Step};

use super::record::Written;
use super::reference::{MOST_OBJECTS, MOST_OTHERS};
use super::resource::Resource;
use crate::deep;

/// No record of runs is read that takes more, in bytes. One with as many runs as may go on, each for a pod, takes half of
/// it, and one with a run that is told as much as it may be no more than this.
pub(crate) const HEAVIEST_RECORD: usize = 4 << 20;

/// From so many bytes on one is large. Thousands of the usual ones are held beside these.
pub(crate) const LARGE: usize = 16 << 10;
/// What all that are large may take together, in bytes: anybody who may make them makes as many as he likes, and what has not
/// enough memory for all would end, and begin anew with all.
pub(crate) const TOGETHER: usize = 80 << 20;

/// What to do about a record, and what becomes of its runs then.
const REMEDY: &str = "remove it; of its runs those go on then whose Job is there";

/// Why one is not run, for people. It is as if it had no spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unread {
    /// Its spec is not read.
    #[error("spec: {0}")]
    Spec(deep::Unread),
    /// It refers to so many ConfigMaps and Secrets.
    #[error(
        "spec: its pod and its inputs refer to {0} ConfigMaps and Secrets, of {most}: put what they hold into fewer",
        most = MOST_OBJECTS
    )]
    Objects(usize),
    /// It waits for so many others.
    #[error(
        "spec.dependsOn: has {0} names, of {most}: have it wait for one that waits for others",
        most = MOST_OTHERS
    )]
    Others(usize),
    /// The record of its runs, in this place, takes too much.
    #[error(
        "{0} would take more than {most} MiB of memory: {remedy}",
        most = HEAVIEST_RECORD >> 20,
        remedy = REMEDY
    )]
    HeavyRecord(&'static str),
    /// The same, has so many runs that have not ended.
    #[error(
        "{0} has {1} runs that have not ended, of {most}: {remedy}",
        most = MAX_OPEN,
        remedy = REMEDY
    )]
    LongRecord(&'static str, usize),
    /// What it takes is too much beside all others that are large. Neither its spec nor its record is held.
    #[error(
        "all that are large, of more than {large} KiB each, would take more than {most} MiB of memory together: remove some \
         of them, or what of their specs and records is large, and then change this one, or begin the controller anew",
        large = LARGE >> 10,
        most = TOGETHER >> 20
    )]
    Beside,
}

impl Unread {
    /// Whether it is not known which runs it has.
    pub(crate) fn is_of_record(self) -> bool {
        matches!(self, Self::HeavyRecord(_) | Self::LongRecord(..) | Self::Beside)
    }
}

/// Why one is not run that refers to more than is kept of one.
pub(crate) fn excess(of: &Resource) -> Option<Unread> {
    let others = of.references.iter().filter(|it| it.kind.object().is_none()).count();
    let objects = of.references.len() - others + of.told_of.len();
    match objects > MOST_OBJECTS {
        true => Some(Unread::Objects(objects)),
        false => (others > MOST_OTHERS).then_some(Unread::Others(others)),
    }
}

/// Why what these steps record of one is not written, if it would not be read again.
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
