//! The record of the runs of one, as it is written: in an annotation, and in the status as it was when the last run was
//! settled.

use engine::trigger::{JobRecord, MAX_OPEN, MAX_RUN};
use kube::api::DynamicObject;
use osb::weight::weigh;
use serde::{Deserialize, Serialize};

use super::resource::Resource;
use super::unread::{HEAVIEST_RECORD, Unread};

/// The record of its runs: an annotation. It is written in one with the strategy that it takes a trigger
/// from, which the status cannot be.
pub(crate) const RUNS: &str = "manciple.dev/runs";

/// The same in the status, as it was when the last run was settled.
pub(crate) const RECORD: &str = "record";

/// The record, as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Written {
    /// Whose it is: a resource that was copied, with its annotations, has had no runs.
    #[serde(default)]
    pub(crate) uid: Option<String>,
    #[serde(flatten)]
    pub(crate) record: JobRecord,
}

/// Where it stands, for people.
const IN_ANNOTATION: &str = "the annotation manciple.dev/runs";
const IN_STATUS: &str = "status.record";

impl Written {
    /// What was written in this place of the one of this uid, and what that takes in bytes; `None`: nothing that counts.
    ///
    /// # Errors
    /// If it is more than is kept of one. Nothing of it is read then: a part of it would be a record without runs.
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

    /// A record, as it is written of one.
    ///
    /// # Errors
    /// Of serde: there are none of a record.
    pub(crate) fn text(of: &Resource, record: JobRecord) -> serde_json::Result<String> {
        serde_json::to_string(&Self { uid: Some(of.uid.to_string()), record })
    }

    /// Whether a record of one would not be read again.
    pub(crate) fn is_too_heavy(of: &Resource, record: &JobRecord) -> bool {
        let text = Self::text(of, record.clone());
        text.is_ok_and(|text| weigh(text.as_bytes()) > HEAVIEST_RECORD)
    }

    /// Whether it is this one's, and may be what we have written.
    fn is_of(&self, uid: Option<&str>) -> bool {
        let in_range =
            self.record.last < MAX_RUN && self.record.open.iter().all(|run| run.id < MAX_RUN);
        let is_time = |at: &str| at.is_empty() || at.parse::<jiff::Timestamp>().is_ok();
        let are_times = self.record.open.iter().all(|run| is_time(&run.at));
        (self.uid.is_none() || self.uid.as_deref() == uid) && in_range && are_times
    }
}

/// What is recorded of one.
#[derive(Debug, Clone, Default)]
pub(super) struct Recorded {
    pub(super) record: JobRecord,
    /// What it takes, in bytes.
    pub(super) takes: usize,
    /// The annotation has none: it is as the status has it, if at all.
    pub(super) is_recalled: bool,
    /// Why nothing of it is read.
    pub(super) unread: Option<Unread>,
}

impl Recorded {
    /// What stands in a resource.
    pub(super) fn of(object: &DynamicObject) -> Self {
        Self::read(object).unwrap_or_else(|unread| Self { unread: Some(unread), ..Self::default() })
    }

    /// # Errors
    /// As of [`Written::read`].
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
