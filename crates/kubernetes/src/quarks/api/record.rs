//! The record of a QuarksJob's runs, as it is written: in an annotation, and as a copy in the status from when the last
//! run was settled.

use engine::trigger::{JobRecord, MAX_OPEN, MAX_RUN};
use kube::api::DynamicObject;
use osb::weight::weigh;
use serde::{Deserialize, Serialize};

use super::resource::Resource;
use super::unread::{HEAVIEST_RECORD, Unread};

/// The annotation with the record of runs. It is written together with the strategy in the spec, whose trigger it
/// takes; the status cannot be.
pub(crate) const RUNS: &str = "manciple.dev/runs";

/// The member of the status with a copy of the record, from when the last run was settled.
pub(crate) const RECORD: &str = "record";

/// The record, as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Written {
    /// The uid of the QuarksJob: one that was copied, with its annotations, has had no runs.
    #[serde(default)]
    pub(crate) uid: Option<String>,
    #[serde(flatten)]
    pub(crate) record: JobRecord,
}

/// The two places of the record, for people.
const IN_ANNOTATION: &str = "the annotation manciple.dev/runs";
const IN_STATUS: &str = "status.record";

impl Written {
    /// Reads the record of the QuarksJob of this uid, and how many bytes of memory it takes; `None`: it is none that
    /// counts.
    ///
    /// # Errors
    /// If the record is too heavy, or has too many runs. Nothing of it is read then: a part would lack runs.
    fn read(
        written: &str,
        place: &'static str,
        uid: Option<&str>,
    ) -> Result<Option<(JobRecord, usize)>, Unread> {
        let takes = weigh(written.as_bytes());
        if takes > HEAVIEST_RECORD {
            return Err(Unread::HeavyRecord(place));
        }
        let written = serde_json::from_str::<Self>(written).ok().filter(|it| it.is_of(uid));
        match written.map(|it| it.record) {
            Some(record) if record.open.len() > MAX_OPEN => {
                Err(Unread::LongRecord(place, record.open.len()))
            }
            record => Ok(record.map(|record| (record, takes))),
        }
    }

    /// A record as the text that is written for a QuarksJob.
    ///
    /// # Errors
    /// Those of serde, of which a record gives none.
    pub(crate) fn text(of: &Resource, record: JobRecord) -> serde_json::Result<String> {
        serde_json::to_string(&Self { uid: Some(of.uid.to_string()), record })
    }

    /// Whether a record, once written, would be too heavy to be read again.
    pub(crate) fn is_too_heavy(of: &Resource, record: &JobRecord) -> bool {
        let text = Self::text(of, record.clone());
        text.is_ok_and(|text| weigh(text.as_bytes()) > HEAVIEST_RECORD)
    }

    /// Whether the record is that of this uid, and its numbers and times are such as we write.
    fn is_of(&self, uid: Option<&str>) -> bool {
        let in_range =
            self.record.last < MAX_RUN && self.record.open.iter().all(|run| run.id < MAX_RUN);
        let is_time = |at: &str| at.is_empty() || at.parse::<jiff::Timestamp>().is_ok();
        let are_times = self.record.open.iter().all(|run| is_time(&run.at));
        (self.uid.is_none() || self.uid.as_deref() == uid) && in_range && are_times
    }
}

/// The record of a QuarksJob, as it was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorded {
    pub(super) record: JobRecord,
    /// How many bytes of memory the record takes.
    pub(super) takes: usize,
    /// The annotation has no record: it comes from the status, or is empty.
    pub(super) is_recalled: bool,
    /// Why the record cannot be read.
    pub(super) unread: Option<Unread>,
}

impl Recorded {
    /// Reads the record of a QuarksJob.
    pub(super) fn of(object: &DynamicObject) -> Self {
        Self::read(object).unwrap_or_else(|unread| Self { unread: Some(unread), ..Self::default() })
    }

    /// Reads the record from the annotation, or else from the status.
    ///
    /// # Errors
    /// As for [`Written::read`].
    fn read(object: &DynamicObject) -> Result<Self, Unread> {
        let (metadata, uid) = (&object.metadata, object.metadata.uid.as_deref());
        let annotation = metadata.annotations.as_ref().and_then(|all| all.get(RUNS));
        let status = object.data["status"][RECORD].as_str();
        let read = |written: Option<&str>, place| match written {
            Some(written) => Written::read(written, place, uid),
            None => Ok(None),
        };
        let (found, is_recalled) = match read(annotation.map(String::as_str), IN_ANNOTATION)? {
            Some(found) => (found, false),
            None => (read(status, IN_STATUS)?.unwrap_or_default(), true),
        };
        let (record, takes) = found;
        Ok(Self { record, takes, is_recalled, unread: None })
    }
}
