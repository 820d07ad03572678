//! What matters of a QuarksJob or ExtendedJob: read tolerantly, for what the API server let in is to run.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use engine::trigger::{Concurrency, JobRecord, Passed, Run, Strategy};
use kube::api::{DynamicObject, ObjectMeta};
use serde::Deserialize;
use serde_json::{Value, json};

use super::dialect::Dialect;
use super::following::Following;
use super::history::{Ended, Status};
use super::inputs;
use super::key::Key;
use super::noted;
use super::output_map::{OutputMap, Targets};
use super::record::{RUNS, Recorded};
use super::reference::{Reference, To, dependencies, references};
use super::schedule::Times;
use super::unread::{LARGE, Unread};

/// The member of a Job's spec that says for how many seconds Kubernetes keeps the Job after its end.
pub(crate) const TTL: &str = "ttlSecondsAfterFinished";

/// How many Jobs that have ended are kept, by whether they succeeded; `None`: as the original did.
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

/// A QuarksJob or ExtendedJob, as it was last seen.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) dialect: Dialect,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) version: u64,
    /// It is being deleted.
    pub(crate) deleting: bool,
    /// Why it is treated as if it had no spec: the spec or the record is not read, or the spec refers to too much.
    pub(crate) unread: Option<Unread>,
    pub(crate) strategy: Strategy,
    pub(crate) follows_config: bool,
    pub(crate) concurrency: Concurrency,
    /// Its schedule.
    pub(crate) times: Option<Times>,
    /// The pods that it follows, or why it follows none.
    pub(crate) following: Option<Result<Box<Following>, String>>,
    /// How many Jobs that have ended are kept.
    pub(crate) limits: Limits,
    /// How many seconds a Job that is kept stays after its end, as the template says.
    pub(crate) ttl: Option<u64>,
    pub(crate) record: JobRecord,
    /// The record comes from the status, where it is as the last run left it, or there is none: somebody has removed
    /// the annotation.
    pub(crate) is_recalled: bool,
    pub(crate) status: Status,
    /// The original operator has written to it, and we have recorded nothing yet.
    pub(crate) was_anothers: bool,
    /// A member of the spec that early releases read as the trigger, if the spec has no `trigger.strategy`.
    pub(crate) outdated_trigger: Option<&'static str>,
    /// Whether anything is kept of what its runs leave.
    pub(crate) has_output: bool,
    /// Whether that holds for a run that failed, too.
    pub(crate) keeps_failures: bool,
    /// The Secrets and ConfigMaps that its runs write: if prefixes have a dash after them, and if they are verbatim.
    makes: [Arc<Targets>; 2],
    pub(crate) references: Arc<[Reference]>,
    /// What the inputs of the next trigger refer to: waited for, but a change of it triggers nothing.
    pub(crate) told_of: Box<[Reference]>,
    /// The whole spec, as JSON: thousands of QuarksJobs are held in memory, and few are run.
    spec: Box<[u8]>,
    /// How many bytes of memory its record takes.
    of_record: usize,
    digest: OnceLock<String>,
}

/// The members of the spec that were the trigger before there was `spec.trigger`.
const OUTDATED_TRIGGERS: [&str; 2] = ["run", "triggers"];

impl Resource {
    /// The owner reference to it.
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

    /// Takes over the record that is `known` of it where somebody has removed the annotation: quarks-operator writes
    /// its QuarksJobs back without the annotations of others, whatever it finds, and a run that has no Job yet is
    /// recorded nowhere else.
    pub(crate) fn remember(&mut self, known: &Self) {
        let is_newer = known.uid == self.uid && known.record.last > self.record.last;
        if self.is_recalled && is_newer {
            (self.record, self.of_record) = (known.record.clone(), known.of_record);
            self.is_recalled = false;
        }
    }

    /// How many bytes of memory it takes, if that is more than [`LARGE`].
    pub(crate) fn large(&self) -> Option<usize> {
        let takes = self.spec.len().saturating_add(self.of_record);
        (takes > LARGE).then_some(takes)
    }

    /// Drops all that may be large, as if it had neither a spec nor a record.
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

    /// Reads a QuarksJob or ExtendedJob; `None` if it has no name or identity, which no server sends.
    pub(crate) fn of(dialect: Dialect, object: &DynamicObject) -> Option<Self> {
        let (metadata, spec) = (&object.metadata, &object.data["spec"]);
        let Recorded { record, takes, is_recalled, unread } = Recorded::of(object);
        let status = Status::of(&object.data["status"]);
        let times = Times::of(&spec["trigger"]);
        let record = begun(record, times.as_ref(), &status, metadata);
        let was_anothers = dialect == Dialect::QuarksJob && was_anothers(object, &status);
        let map = OutputMap::of(dialect, spec);
        let of_pod = references(dialect.pod_spec(spec)).into_iter();
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
            makes: makes(dialect, spec, &map),
            references: of_pod.chain(dependencies(dialect, spec)).collect(),
            told_of: inputs::references_of(&spec["trigger"]["inputs"]).into(),
            spec: serde_json::to_vec(spec).ok()?.into(),
            of_record: takes,
            digest: OnceLock::new(),
        })
    }

    pub(crate) fn key(&self) -> Key {
        let (namespace, name) = (Arc::clone(&self.namespace), Arc::clone(&self.name));
        Key { dialect: self.dialect, namespace, name }
    }

    /// Its kind and name, by which the objects that its runs make name their maker: one that is made anew under this
    /// name is the same maker.
    pub(crate) fn maker(&self) -> String {
        self.dialect.named(&self.name)
    }

    /// All references that may let it go on when their object comes or changes.
    pub(crate) fn waits_for(&self) -> impl Iterator<Item = &Reference> {
        self.references.iter().chain(&self.told_of)
    }

    /// Its spec.
    pub(crate) fn spec(&self) -> Value {
        serde_json::from_slice(&self.spec).unwrap_or_default()
    }

    /// The digest of its template and output, as the Jobs of its runs note it. Held, for each look compares it several
    /// times.
    pub(crate) fn digest(&self) -> &str {
        self.digest.get_or_init(|| noted::digest(&self.spec()))
    }

    /// The inputs of the next trigger's run: variables, as a container has them.
    pub(crate) fn inputs(&self) -> Value {
        self.spec()["trigger"]["inputs"].clone()
    }

    /// Whether its runs write this object, with prefixes `verbatim` or not. `made` says whether a run of it may have
    /// made the object, if that is there.
    pub(crate) fn makes(&self, to: To, name: &str, verbatim: bool, made: Option<bool>) -> bool {
        self.makes[usize::from(verbatim)].have(to, name, made)
    }

    /// What the names of the versions have in common that its runs write, but for what fans out: whose names are not known
    /// before.
    pub(crate) fn versions(&self, verbatim: bool) -> impl Iterator<Item = &str> {
        self.makes[usize::from(verbatim)].versions()
    }

    /// Its uid and the number of its newest run, if that succeeded and no run goes on.
    pub(crate) fn success(&self) -> Option<(&str, u64)> {
        let newest = self.status.history.first().map_or(0, |run| run.id);
        self.status.completed.then_some((&*self.uid, newest))
    }

    /// Why its newest run failed, if that failed and no run goes on.
    pub(crate) fn failure(&self) -> Option<&str> {
        let newest = &self.status.history.first()?.outcome;
        (!newest.succeeded && self.going() == 0).then_some(newest.reason.as_str())
    }

    pub(crate) fn settled(&self) -> BTreeSet<u64> {
        self.status.history.iter().map(|run| run.id).collect()
    }

    /// Whether the status says that a run has ended well, but not which, as where another operator's definition drops
    /// the history. `completed` is taken back before the next run is recorded, so it is said of the last one.
    pub(crate) fn lacks_history(&self) -> bool {
        self.status.completed && self.status.history.is_empty()
    }

    /// The run of this number in the history.
    pub(crate) fn ended(&self, id: u64) -> Option<&Ended> {
        let history = &self.status.history;
        // The newest is the first.
        history.binary_search_by(|run| id.cmp(&run.id)).ok().and_then(|at| history.get(at))
    }

    /// Whether its record cannot be read, so that it is not known which runs go on.
    pub(crate) fn lacks_record(&self) -> bool {
        self.unread.is_some_and(Unread::is_of_record)
    }

    /// Whether a run has ended, even if that is so long ago that the history no longer has it.
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

    /// Whether a run is recorded and not settled.
    pub(crate) fn is_open(&self, id: u64) -> bool {
        self.record.open.iter().any(|run: &Run| run.id == id) && self.ended(id).is_none()
    }
}

/// Adds to the record the time from which the schedule counts: as long as nobody has changed the spec, the schedule is
/// as old as the QuarksJob. Where runs have ended but the record was removed, it does not, for times may have been
/// used.
fn begun(
    mut record: JobRecord,
    times: Option<&Times>,
    status: &Status,
    metadata: &ObjectMeta,
) -> JobRecord {
    let has_run = record.last > 0 || !status.history.is_empty();
    let created = metadata.creation_timestamp.as_ref();
    if let (Some(times), Some(1), None, Some(created), false) =
        (times, metadata.generation, &record.schedule, created, has_run)
    {
        let (of, since) = (times.of.to_string(), created.0.to_string());
        record.schedule = Some(Passed { of, since });
    }
    record
}

/// Whether the original operator has written the status, and we have recorded nothing yet. It writes one of these
/// members before it makes a Job.
fn was_anothers(object: &DynamicObject, status: &Status) -> bool {
    let annotations = object.metadata.annotations.as_ref();
    let is_recorded = annotations.is_some_and(|all| all.contains_key(RUNS));
    let has = |name: &str| object.data["status"].get(name).is_some();
    !is_recorded && status.history.is_empty() && (has("lastReconcile") || has("completed"))
}

/// What runs by this spec write: if prefixes have a dash after them, and if they are verbatim.
fn makes(dialect: Dialect, spec: &Value, map: &OutputMap) -> [Arc<Targets>; 2] {
    let dashed: Arc<Targets> = Arc::new(map.targets().collect());
    let verbatim = match spec["output"]["namePrefix"].is_string() {
        true => Arc::new(OutputMap::named(dialect, spec, true).targets().collect()),
        false => Arc::clone(&dashed),
    };
    [dashed, verbatim]
}

/// Limits a number of seconds to the largest that an API server accepts: what is longer is as good as for ever.
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

/// A strategy, as it is spelled.
pub(crate) fn word(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Manual => "manual",
        Strategy::Now => "now",
        Strategy::Once => "once",
        Strategy::Done => "done",
        Strategy::PodState => "podstate",
    }
}
