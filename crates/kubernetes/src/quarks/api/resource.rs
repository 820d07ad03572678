//! What of a QuarksJob or an ExtendedJob matters: read tolerantly, for what the API server let in is to run.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use engine::trigger::{Concurrency, JobRecord, MAX_OPEN, MAX_RUN, Outcome, Passed, Run, Strategy};
use kube::api::DynamicObject;
use osb::weight::weigh;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dialect::Dialect;
use super::following::Following;
use super::inputs;
use super::key::Key;
use super::noted;
use super::output_map::{OutputMap, Targets};
use super::reference::{Reference, To, dependencies, references};
use super::schedule::Times;
use super::status::{MADE, MOST_ENDED, SUCCEEDED, Said, WAITING};
use super::unread::{HEAVIEST_RECORD, LARGE, Unread};

/// The record of its runs: an annotation. It is written in one with the strategy that it takes a trigger
/// from, which the status cannot be.
pub(crate) const RUNS: &str = "manciple.dev/runs";

/// The same in the status, as it was when the last run was settled.
pub(crate) const RECORD: &str = "record";

/// How long Kubernetes keeps a Job that has ended, where its template says so.
pub(crate) const TTL: &str = "ttlSecondsAfterFinished";

/// How many Jobs that have ended are kept; `None`: as the original did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) successful: Option<u64>,
    pub(crate) failed: Option<u64>,
}

impl Limits {
    pub(crate) fn of(spec: &Value) -> Self {
        let limit = |name: &str| spec[name].as_u64();
        Self {
            successful: limit("successfulJobsHistoryLimit"),
            failed: limit("failedJobsHistoryLimit"),
        }
    }
}

/// One, as it was last seen.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) dialect: Dialect,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) version: u64,
    /// Somebody deleted it.
    pub(crate) deleting: bool,
    /// Why it is as if it had no spec: that or its record is not read, or it refers to too much.
    pub(crate) unread: Option<Unread>,
    pub(crate) strategy: Strategy,
    pub(crate) follows_config: bool,
    pub(crate) concurrency: Concurrency,
    /// When it runs by itself.
    pub(crate) times: Option<Times>,
    /// The pods that it follows, or why it follows none.
    pub(crate) following: Option<Result<Box<Following>, String>>,
    /// How many Jobs that have ended are kept.
    pub(crate) limits: Limits,
    /// How many seconds one that stays is kept, as the template says of its Job.
    pub(crate) ttl: Option<u64>,
    pub(crate) record: JobRecord,
    /// It is as it was when the last run was settled, or there was none: somebody has removed it.
    pub(crate) is_recalled: bool,
    pub(crate) status: Status,
    /// The original operator has written to it, and we have recorded nothing yet.
    pub(crate) was_anothers: bool,
    /// A member of the spec that says when it runs, as early releases had it, where nothing says it as it is read.
    pub(crate) outdated_trigger: Option<&'static str>,
    /// Whether anything is kept of what it leaves.
    pub(crate) has_output: bool,
    /// Whether that is so of a run that failed, too.
    pub(crate) keeps_failures: bool,
    /// What it is kept in, where prefixes have a dash after them, and where they are verbatim.
    makes: [Arc<Targets>; 2],
    pub(crate) references: Arc<[Reference]>,
    /// What the inputs of the next trigger refer to: waited for, and no configuration of its.
    pub(crate) told_of: Box<[Reference]>,
    /// The whole spec, as JSON: thousands of them are kept, and few are run.
    spec: Box<[u8]>,
    /// What its record takes, in bytes.
    of_record: usize,
    digest: OnceLock<String>,
}

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

/// The record of the one of this uid, and whether the annotation has none and it is as the status has it, if at all.
///
/// # Errors
/// As of [`Written::read`].
fn record_of(
    annotation: Option<&str>,
    status: Option<&str>,
    uid: Option<&str>,
) -> Result<((JobRecord, usize), bool), Unread> {
    let read = |written: Option<&str>, place| match written {
        Some(written) => Written::read(written, place, uid),
        None => Ok(None),
    };
    match read(annotation, IN_ANNOTATION)? {
        Some(record) => Ok((record, false)),
        None => Ok((read(status, IN_STATUS)?.unwrap_or_default(), true)),
    }
}

/// What its status says: each word of it by itself, for one that cannot be read takes nothing from the others.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Status {
    pub(crate) completed: bool,
    /// The newest first, each once.
    pub(crate) history: Vec<Ended>,
    /// What it waits for, in words.
    pub(crate) waits: Option<String>,
    /// How its conditions stand.
    pub(crate) succeeded: Option<Said>,
    pub(crate) waiting: Option<Said>,
}

impl Status {
    /// As much of it as may be ours.
    fn of(said: &Value) -> Self {
        let ended = said["history"].as_array().into_iter().flatten().filter_map(Ended::of);
        let mut history: Vec<Ended> = ended.collect();
        history.sort_by_key(|run| Reverse(run.id));
        history.dedup_by_key(|run| run.id);
        history.truncate(MOST_ENDED);
        Self {
            completed: said["completed"] == true,
            history,
            waits: waits(said),
            succeeded: Said::of(said, SUCCEEDED),
            waiting: Said::of(said, WAITING),
        }
    }

    /// Whether it says that a run goes on.
    pub(crate) fn says_running(&self) -> bool {
        self.succeeded.as_ref().is_some_and(Said::is_unknown)
    }
}

/// A run that has ended, as the status shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Ended {
    pub(crate) id: u64,
    /// As it is spelled: another release may know others.
    pub(crate) trigger: String,
    pub(crate) job: String,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) started_at: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) ended_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<u64>,
    /// Of a run that had no Job: of which template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
}

/// The reasons of runs that had no Job: it was refused, or the template makes none.
pub(crate) const REFUSED: &str = "JobRefused";
pub(crate) const INVALID: &str = "TemplateInvalid";

/// Whether nothing was begun.
pub(crate) fn had_no_job(outcome: &Outcome) -> bool {
    [REFUSED, INVALID].contains(&outcome.reason.as_str())
}

impl Ended {
    /// Whether nothing was begun, and by another template than this.
    pub(crate) fn had_no_job_by_another(&self, than: &Resource) -> bool {
        let is_another = |known: &str| known != than.digest();
        had_no_job(&self.outcome) && self.template.as_deref().is_some_and(is_another)
    }

    /// `None` for what has no number. Any that has one has ended, and is not run again, whatever else it says.
    fn of(said: &Value) -> Option<Self> {
        let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
        let made = said["made"].as_array().into_iter().flatten();
        let outcome = Outcome {
            succeeded: said["succeeded"] == true,
            reason: said["reason"].as_str().unwrap_or("Unknown").to_owned(),
            message: text("message"),
            made: made.filter_map(Value::as_str).take(MADE).map(str::to_owned).collect(),
        };
        Some(Self {
            id: said["id"].as_u64().filter(|id| *id < MAX_RUN)?,
            trigger: text("trigger"),
            job: text("job"),
            outcome,
            started_at: text("startedAt"),
            ended_at: text("endedAt"),
            seconds: said["seconds"].as_u64(),
            template: said["template"].as_str().map(str::to_owned),
        })
    }
}

/// What said when it runs before there was `spec.trigger`.
const OUTDATED_TRIGGERS: [&str; 2] = ["run", "triggers"];

impl Resource {
    /// What refers to it as an owner.
    pub(crate) fn as_owner(&self, block: bool) -> Value {
        json!({
            "apiVersion": self.dialect.api_version(),
            "kind": self.dialect.kind(),
            "name": &*self.name,
            "uid": &*self.uid,
            "controller": true,
            "blockOwnerDeletion": block,
        })
    }

    /// Whose record somebody has removed has had the runs all the same that are known of it: quarks-operator writes its
    /// QuarksJobs back without annotations of others, whatever it finds, and a run that has no Job yet stands nowhere else.
    pub(crate) fn remember(&mut self, known: &Self) {
        let is_newer = known.uid == self.uid && known.record.last > self.record.last;
        if self.is_recalled && is_newer {
            (self.record, self.of_record) = (known.record.clone(), known.of_record);
            self.is_recalled = false;
        }
    }

    /// What it takes, in bytes, if it is large.
    pub(crate) fn large(&self) -> Option<usize> {
        let takes = self.spec.len().saturating_add(self.of_record);
        (takes > LARGE).then_some(takes)
    }

    /// Holds nothing that may be large of it, as if it had neither a spec nor a record.
    pub(crate) fn leave_out(&mut self) {
        let none: Arc<Targets> = Arc::default();
        self.unread = Some(Unread::Beside);
        (self.strategy, self.follows_config) = (Strategy::Manual, false);
        (self.times, self.following, self.outdated_trigger) = (None, None, None);
        (self.concurrency, self.limits, self.ttl) =
            (Concurrency::default(), Limits::default(), None);
        (self.record, self.is_recalled, self.of_record) = (JobRecord::default(), false, 0);
        (self.has_output, self.keeps_failures, self.makes) =
            (false, false, [Arc::clone(&none), none]);
        (self.references, self.told_of) = (Arc::default(), Box::default());
        (self.spec, self.digest) = (Box::from(*b"null"), OnceLock::new());
    }

    /// `None` for what has no name or identity, which no server sends.
    pub(crate) fn of(dialect: Dialect, object: &DynamicObject) -> Option<Self> {
        let metadata = &object.metadata;
        let spec = &object.data["spec"];
        let recorded = metadata.annotations.as_ref().and_then(|all| all.get(RUNS));
        let is_new = recorded.is_none();
        let recalled = object.data["status"][RECORD].as_str();
        let read = record_of(recorded.map(String::as_str), recalled, metadata.uid.as_deref());
        let unread = read.as_ref().err().copied();
        let ((mut record, of_record), is_recalled) = read.unwrap_or_default();
        let map = OutputMap::of(dialect, spec);
        let makes: Arc<Targets> = Arc::new(map.targets().collect());
        let verbatim = match spec["output"]["namePrefix"].is_string() {
            true => Arc::new(OutputMap::named(dialect, spec, true).targets().collect()),
            false => Arc::clone(&makes),
        };
        let times = Times::of(&spec["trigger"]);
        let of_pod = references(dialect.pod_spec(spec)).into_iter();
        let status = Status::of(&object.data["status"]);
        // As long as nobody has changed it, its schedule is as old as itself. Of one that has run, whose record
        // somebody has removed, times are behind it.
        let has_run = record.last > 0 || !status.history.is_empty();
        if let (Some(times), Some(1), None, Some(created), false) =
            (&times, metadata.generation, &record.schedule, &metadata.creation_timestamp, has_run)
        {
            let (of, since) = (times.of.to_string(), created.0.to_string());
            record.schedule = Some(Passed { of, since });
        }
        // It writes one of these before it makes a Job.
        let has = |name: &str| object.data["status"].get(name).is_some();
        let was_anothers = dialect == Dialect::QuarksJob
            && is_new
            && status.history.is_empty()
            && (has("lastReconcile") || has("completed"));
        Some(Self {
            dialect,
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            uid: metadata.uid.as_deref()?.into(),
            version: metadata.resource_version.as_deref()?.parse().ok()?,
            deleting: metadata.deletion_timestamp.is_some(),
            unread,
            strategy: strategy(&spec["trigger"]["strategy"]),
            follows_config: spec["updateOnConfigChange"] == true,
            concurrency: Concurrency::deserialize(&spec["concurrencyPolicy"]).unwrap_or_default(),
            times,
            following: Following::of(&spec["trigger"])
                .filter(|_| dialect == Dialect::ExtendedJob)
                .map(|read| read.map(Box::new)),
            limits: Limits::of(spec),
            ttl: spec["template"]["spec"][TTL]
                .as_u64()
                .filter(|_| dialect.is_of_job(spec))
                .map(longest),
            record,
            is_recalled,
            status,
            was_anothers,
            outdated_trigger: OUTDATED_TRIGGERS
                .into_iter()
                .find(|member| spec["trigger"]["strategy"].is_null() && !spec[member].is_null()),
            has_output: !map.is_empty(),
            keeps_failures: !map.is_empty() && spec["output"]["writeOnFailure"] == true,
            makes: [makes, verbatim],
            references: of_pod.chain(dependencies(dialect, spec)).collect(),
            told_of: inputs::references_of(&spec["trigger"]["inputs"]).into(),
            spec: serde_json::to_vec(spec).ok()?.into(),
            of_record,
            digest: OnceLock::new(),
        })
    }

    pub(crate) fn key(&self) -> Key {
        let (namespace, name) = (Arc::clone(&self.namespace), Arc::clone(&self.name));
        Key { dialect: self.dialect, namespace, name }
    }

    /// As what its runs make names it: another of this name that comes after it is the same.
    pub(crate) fn maker(&self) -> String {
        self.dialect.named(&self.name)
    }

    /// All that may let it go on when it comes or changes.
    pub(crate) fn waits_for(&self) -> impl Iterator<Item = &Reference> {
        self.references.iter().chain(&self.told_of)
    }

    /// Its spec.
    pub(crate) fn spec(&self) -> Value {
        serde_json::from_slice(&self.spec).unwrap_or_default()
    }

    /// A digest of what its runs are begun by, as their Jobs have it: each look compares it with several.
    pub(crate) fn digest(&self) -> &str {
        self.digest.get_or_init(|| noted::digest(&self.spec()))
    }

    /// What the run of the next trigger is told: variables, as a container has them.
    pub(crate) fn inputs(&self) -> Value {
        self.spec()["trigger"]["inputs"].clone()
    }

    /// Whether a run of it writes this, where prefixes are `verbatim` or not; `made` says whether a run of it may have
    /// made it, if it is there.
    pub(crate) fn makes(&self, to: To, name: &str, verbatim: bool, made: Option<bool>) -> bool {
        self.makes[usize::from(verbatim)].have(to, name, made)
    }

    /// Its newest success, if no run has failed since then and none goes on.
    pub(crate) fn success(&self) -> Option<(&str, u64)> {
        let newest = self.status.history.first().map_or(0, |run| run.id);
        self.status.completed.then_some((&*self.uid, newest))
    }

    pub(crate) fn settled(&self) -> BTreeSet<u64> {
        self.status.history.iter().map(|run| run.id).collect()
    }

    /// Whether the status says that a run has ended well, and not which: it was taken back before the next was recorded.
    pub(crate) fn lacks_history(&self) -> bool {
        self.status.completed && self.status.history.is_empty()
    }

    /// A run that has ended.
    pub(crate) fn ended(&self, id: u64) -> Option<&Ended> {
        let history = &self.status.history;
        // The newest is the first.
        history.binary_search_by(|run| id.cmp(&run.id)).ok().and_then(|at| history.get(at))
    }

    /// Whether it is not known which runs go on.
    pub(crate) fn lacks_record(&self) -> bool {
        self.unread.is_some_and(Unread::is_of_record)
    }

    /// Whether a run has ended, be it so long ago that the history is without it.
    pub(crate) fn is_over(&self, id: u64) -> bool {
        let oldest = self.status.history.last().map_or(0, |run| run.id);
        let is_forgotten = || id < oldest && !self.is_open(id) && !self.lacks_record();
        self.ended(id).is_some() || is_forgotten()
    }

    /// How many runs are recorded and not settled.
    pub(crate) fn going(&self) -> usize {
        let settled = self.settled();
        self.record.open.iter().filter(|run| !settled.contains(&run.id)).count()
    }

    /// A run that is recorded and not settled.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.record.open.iter().any(|run: &Run| run.id == id) && self.ended(id).is_none()
    }
}

/// What an API server takes of seconds: what is longer is as good as for ever.
pub(crate) fn longest(seconds: u64) -> u64 {
    seconds.min(i32::MAX.unsigned_abs().into())
}

fn strategy(value: &Value) -> Strategy {
    match value.as_str() {
        Some("now") => Strategy::Now,
        Some("once") => Strategy::Once,
        Some("done") => Strategy::Done,
        Some("podstate") => Strategy::PodState,
        _ => Strategy::Manual,
    }
}

/// As it is spelled.
pub(crate) fn word(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Manual => "manual",
        Strategy::Now => "now",
        Strategy::Once => "once",
        Strategy::Done => "done",
        Strategy::PodState => "podstate",
    }
}

fn waits(status: &Value) -> Option<String> {
    let waiting = status["conditions"].as_array()?.iter().find(|it| it["type"] == WAITING)?;
    (waiting["status"] == "True")
        .then(|| waiting["message"].as_str().unwrap_or_default().to_owned())
}
