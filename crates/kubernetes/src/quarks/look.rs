//! One look at a QuarksJob: makes of all that is known the [`State`] that is decided by.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::trigger::{
    Concurrency, Decision, Held, JobRecord, References, RunProgress, Schedule, State, Strategy,
    Trigger, Versions, decide,
};
use jiff::Timestamp;

use super::api::dialect::Dialect;
use super::api::history::Ended;
use super::api::inputs;
use super::api::key::Key;
use super::api::reference::{Reference, To};
use super::api::resource::Resource;
use super::api::schedule::Times;
use super::job::retention::{Disposal, disposals};
use super::state::ending;
use super::state::job::SeenJob;
use super::state::lasting::Until;
use super::state::table::{Entry, Table};
use crate::conditions::JobEnd;

/// How long the API server may refuse a run's output before another run may replace the run: a missing right that is
/// about to be granted, or a webhook that is about to answer, is no reason to lose the output.
const REFUSED: Duration = Duration::from_secs(30);
/// How long pods of a run that is over go on before people are told that the next run waits for them: most end at once.
const LONG: Duration = Duration::from_secs(10);
/// How long the next run waits for a pod that may yet be made: the Job is being removed, and a finalizer may hold it.
const UNSEEN: Duration = Duration::from_secs(60);
/// How far a recorded time may be ahead of the API server's clock.
const AHEAD: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// The state that a decision about a QuarksJob is made by, and what may be said with it.
pub(super) struct Look {
    pub(super) state: State,
    /// When to look again: the next time of the schedule, or when a wait ends.
    pub(super) next: Option<Timestamp>,
    /// Whether pods of runs that are over have gone on for so long ([`LONG`]) that people are told, if the next run
    /// waits for them.
    pub(super) lasts_long: bool,
    /// What is wrong with the QuarksJob's spec or record, for people.
    pub(super) fault: Option<String>,
    /// Faults that have to be mended before a run is begun.
    pub(super) faults: Vec<String>,
    /// The record of runs cannot be read, so it is not known which runs there are.
    lacks_record: bool,
}

impl Look {
    /// Decides what to do; `now` as [`decide`] takes it. Nothing is decided where the record cannot be read: it would
    /// be written anew, without the runs in it.
    pub(super) fn decision(&self, now: &str) -> Decision {
        match self.lacks_record {
            true => Decision::default(),
            false => decide(&self.state, now),
        }
    }

    /// Sees whether a time of the schedule has come, and when the next one will.
    fn see_times(&mut self, times: &Times, now: Timestamp) {
        let passed = self.state.record.schedule.as_ref().filter(|it| *it.of == *times.of);
        let said = passed.map(|passed| passed.since.parse().ok());
        // A recorded time from a clock that was ahead, or that cannot be read, would keep every time before it from
        // counting: then times count from now.
        let is_none = |since: &Timestamp| since.duration_since(now) > AHEAD;
        if said.is_some_and(|since: Option<Timestamp>| since.as_ref().is_none_or(is_none)) {
            self.state.record.schedule = None;
        }
        // The recorded time counts even if it is ahead of a clock that was set back: a time that was run for is not due
        // again.
        let since = said.flatten().filter(|since| !is_none(since)).unwrap_or(now);
        match times.next(since, now) {
            Ok(next) => {
                let is_due = next <= now;
                self.next = self.next.into_iter().chain((!is_due).then_some(next)).min();
                self.state.schedule = Some(Schedule { of: times.of.to_string(), is_due });
            }
            Err(fault) => {
                // It is decided as if there was no schedule: the recorded time stays until somebody mends the schedule.
                self.state.record.schedule = None;
                self.fault = Some(fault);
            }
        }
    }
}

/// What a QuarksJob refers to, as it is now.
#[derive(Default)]
struct Found {
    references: References,
    versions: Versions,
    /// What is missing, in words.
    missing: Vec<String>,
}

impl Table {
    /// What is to be done with the Job of a run that has ended.
    pub(super) fn disposal(&self, key: &Key, run: u64) -> Option<Disposal> {
        let entry = self.get(key)?;
        disposals(entry.resource.as_ref()?, &entry.jobs).get(&run).copied()
    }

    /// Looks at a QuarksJob at the time `now` of the API server's clock; `None`: it is not known.
    pub(super) fn look(&mut self, key: &Key, settle: Duration, now: Timestamp) -> Option<Look> {
        let mut state = self.state(key, settle, now)?;
        let resource = self.get(key)?.resource.clone()?;
        let faults = self.tell_inputs(&resource, &mut state);
        let jobs = self.get(key)?.jobs.values();
        let next = jobs.filter_map(|job| self.awaited(&resource, job, now)).min();
        let lasting = self.lasting(key, &state, now);
        state.lasts = lasting.is_some();
        let (again, lasts_long) = lasting.unwrap_or_default();
        let next = next.into_iter().chain(again).min();
        let fault = resource.unread.map(|why| why.to_string());
        let lacks_record = resource.lacks_record();
        let mut look = Look { state, next, lasts_long, fault, faults, lacks_record };
        look.fault = look.fault.or_else(|| {
            let member = resource.outdated_trigger?;
            Some(format!("spec.{member} is not read: say in spec.trigger.strategy when it runs"))
        });
        match &resource.following {
            Some(Ok(_)) => look.state.pods = self.followed(key),
            Some(Err(fault)) => look.fault = Some(fault.clone()),
            None => {}
        }
        if let Some(times) = &resource.times {
            look.see_times(times, now);
        }
        Some(look)
    }

    /// Adds the inputs of the run that a trigger in the spec is about to begin, if any, to the state, and returns what
    /// is wrong with them.
    fn tell_inputs(&self, resource: &Resource, state: &mut State) -> Vec<String> {
        let is_told = match state.strategy {
            Strategy::Now => true,
            // `once` that has run starts no run, so its inputs are not read.
            Strategy::Once => !state.record.once,
            Strategy::Done => state.owes_once,
            Strategy::Manual | Strategy::PodState => false,
        };
        if !is_told {
            return Vec::new();
        }
        let inputs = resource.inputs();
        let faults = inputs::faults(&inputs);
        state.missing.extend(self.lacking(resource, &resource.told_of));
        state.inputs = inputs::read(inputs);
        faults
    }

    /// When to look again at pods of runs that are over and that the next run waits for, and whether they have gone on
    /// for long; `None`: it waits for none, as where runs may go on beside each other.
    fn lasting(
        &mut self,
        key: &Key,
        state: &State,
        now: Timestamp,
    ) -> Option<(Option<Timestamp>, bool)> {
        let is_idle = state.record.open.iter().all(|run| state.settled.contains(&run.id));
        let waits = is_idle && state.concurrency != Concurrency::Allow;
        let entry = self.get(key)?;
        let unseen = entry.resource.as_ref().is_some_and(|it| may_begin_pods(it, &entry.jobs));
        let until = self.lasts(key, unseen, now.as_second()).filter(|_| waits);
        let entry = self.get_mut(key)?;
        entry.lasts_since = until.and(entry.lasts_since).or_else(|| until.map(|_| Instant::now()));
        let (until, since) = until.zip(entry.lasts_since)?;
        let most = if until == Until::Unseen { UNSEEN } else { LONG };
        let rest = most.saturating_sub(since.elapsed());
        let is_past = rest.is_zero();
        let rest = (!is_past).then(|| now.checked_add(rest).ok()).flatten();
        let again = until.time().into_iter().chain(rest).min();
        (until != Until::Unseen || !is_past).then_some((again, is_past))
    }

    fn state(&mut self, key: &Key, settle: Duration, at: Timestamp) -> Option<State> {
        let entry = self.get(key)?;
        let resource = Arc::clone(entry.resource.as_ref()?);
        let record = recalled(&resource, &entry.jobs);
        let Found { references, versions, missing } = self.find(&resource, &record);
        let now = Instant::now();
        let runs = self.runs(entry, &resource, at, now);
        let left = disposals(&resource, &entry.jobs).into_keys().collect();
        let begun = begun(&resource, &entry.jobs);
        let settled = settled(&resource, &record, &runs);
        let entry = self.get_mut(key)?;
        let since = match &entry.references {
            Some((known, since)) if *known == references => *since,
            _ => {
                entry.references = Some((references.clone(), now));
                now
            }
        };
        let differs = record.differs(&references, &versions);
        entry.differs = differs.then(|| entry.differs.unwrap_or(now));
        Some(State {
            strategy: resource.strategy,
            owes_once: owes_once(&resource, &record),
            follows_config: resource.follows_config,
            concurrency: resource.concurrency,
            missing,
            references,
            versions,
            unchanged: now.duration_since(since),
            differs: entry.differs.map(|since| now.duration_since(since)).unwrap_or_default(),
            settle,
            record,
            settled,
            completed: resource.status.completed,
            reopened: resource.status.says_running(),
            refused: entry.refused,
            runs,
            begun,
            left,
            ..State::default()
        })
    }

    /// How far the runs of a QuarksJob are, as far as their work is known: `at` is the API server's time, `now` this
    /// process's.
    fn runs(
        &self,
        entry: &Entry,
        resource: &Resource,
        at: Timestamp,
        now: Instant,
    ) -> BTreeMap<u64, RunProgress> {
        let is_refused = |run: &u64| {
            entry.unkept.get(run).is_some_and(|since| now.duration_since(*since) > REFUSED)
        };
        let work = |job: &SeenJob| match self.awaited(resource, job, at) {
            Some(_) => RunProgress::Going,
            None => match self.work(job) {
                RunProgress::Ended if is_refused(&job.run) => RunProgress::Unkept,
                work => work,
            },
        };
        let mut runs: BTreeMap<u64, RunProgress> =
            still(resource, &entry.jobs).map(|job| (job.run, work(job))).collect();
        runs.extend(entry.gone.iter().map(|id| (*id, RunProgress::Gone)));
        runs.extend(
            entry.kept.iter().map(|(id, outcome)| (*id, RunProgress::Kept(outcome.clone()))),
        );
        runs
    }

    /// What a QuarksJob refers to as it is now; `recorded` tells what it was before.
    fn find(&self, resource: &Resource, recorded: &JobRecord) -> Found {
        let depends = |it: &Reference| matches!(it.kind, To::Triggered(_));
        let waiting = match resource.references.iter().any(depends) {
            true => self.dependents(&resource.key()).into_iter().map(|key| key.name).collect(),
            false => HashSet::new(),
        };
        let (mut found, maker) = (Found::default(), resource.maker());
        for reference in resource.references.iter() {
            let (kind, name) = (reference.kind, &reference.name);
            let ((place, held, version), wanted) = match kind {
                To::Triggered(dialect) => {
                    let place = format!("{}/{name}", kind.word());
                    // QuarksJobs that wait for each other would run for ever.
                    match waiting.contains(name) {
                        true => {
                            let wanted = format!("{place} to succeed, which waits for this one");
                            ((place, Held::Nothing(()), None), wanted)
                        }
                        false => {
                            let why = self.unsuccessful(dialect, resource, name);
                            let wanted = format!("{place} to succeed{why}");
                            let (held, version) = self.success(dialect, resource, name);
                            ((place, held, version), wanted)
                        }
                    }
                }
                To::Object(_) => {
                    let known = recorded.references.as_ref();
                    let held = self.objects.held(&resource.namespace, kind, name, known);
                    (held, format!("{}/{name}", kind.word()))
                }
            };
            if held == Held::Nothing(()) && !reference.optional {
                found.missing.push(wanted);
            }
            // What a QuarksJob writes itself does not trigger it.
            let known = recorded.references.as_ref();
            let is_known = known.is_some_and(|known| known.contains_key(&place));
            let object = self.objects.referred(&resource.namespace, kind, name);
            // An object that was followed and is now gone was somebody else's.
            let made = object.map(|it| it.may_be_made_by(&maker));
            let made = made.or_else(|| is_known.then_some(false));
            if !resource.makes(kind, name, self.verbatim_prefixes, made) {
                found.versions.extend(version.map(|version| (place.clone(), version)));
                found.references.insert(place, held);
            }
        }
        found
    }

    /// The names of those of these references whose object is missing, except optional ones.
    fn lacking(&self, resource: &Resource, references: &[Reference]) -> Vec<String> {
        let is_there = |it: &&Reference| {
            let (_, held, _) = self.objects.held(&resource.namespace, it.kind, &it.name, None);
            held != Held::Nothing(()) || it.optional
        };
        let lacking = references.iter().filter(|it| !is_there(it));
        lacking.map(|it| format!("{}/{}", it.kind.word(), it.name)).collect()
    }

    fn named(&self, dialect: Dialect, beside: &Resource, name: &str) -> Option<&Arc<Resource>> {
        let key = Key { dialect, namespace: Arc::clone(&beside.namespace), name: name.into() };
        self.get(&key)?.resource.as_ref()
    }

    /// The newest success of another QuarksJob in the same namespace, in the form of what a reference holds, and the
    /// resource version that shows it.
    fn success(&self, dialect: Dialect, beside: &Resource, name: &str) -> (Held, Option<u64>) {
        let other = self.named(dialect, beside, name);
        match other.and_then(|other| Some((other.success()?, other.version))) {
            Some(((uid, run), version)) => (Held::Data(format!("{uid}/{run}")), Some(version)),
            None => (Held::Nothing(()), None),
        }
    }

    /// Why the success of another QuarksJob does not come by itself, if that is so: for people.
    fn unsuccessful(&self, dialect: Dialect, beside: &Resource, name: &str) -> String {
        let Some(other) = self.named(dialect, beside, name) else {
            return ", and there is none of this name".to_owned();
        };
        let failed =
            |reason| format!(", whose last run failed ({reason}): mend it, then trigger it");
        other.failure().map_or_else(String::new, failed)
    }

    /// Until when a failed run is waited for, whose pods may still leave output that is to be kept; `None`: it is not.
    fn awaited(&self, resource: &Resource, job: &SeenJob, now: Timestamp) -> Option<Timestamp> {
        let Some(JobEnd::Failed { at, .. }) = job.end else { return None };
        // As the spec was when the run was begun, whatever it says now.
        let keeps = job.noted.keeps_failures.unwrap_or(resource.keeps_failures);
        if !keeps || !resource.is_open(job.run) || job.noted.inherited {
            return None;
        }
        let until = ending::awaited(at, self.pods(job))?;
        Timestamp::from_second(until).ok().filter(|until| *until > now)
    }

    fn work(&self, job: &SeenJob) -> RunProgress {
        // The end of the pods counts as the end of the Job: that is told a moment later, or never, if something else
        // goes on in the pods.
        let has_ended = job.end.is_some() || job.wants.end(self.pods(job)).is_some();
        if has_ended { RunProgress::Ended } else { RunProgress::Going }
    }
}

/// Whether there is a Job that has not ended though its run has failed, as where the run was replaced: a pod of it may
/// still be made.
fn may_begin_pods(resource: &Resource, jobs: &BTreeMap<u64, SeenJob>) -> bool {
    let failed = |run| resource.ended(run).is_some_and(|ended| !ended.outcome.succeeded);
    jobs.values().any(|job| job.end.is_none() && !job.lingers && !job.late && failed(job.run))
}

/// The Jobs of runs whose end is not in the status. The other Jobs may be as many as there ever were runs.
fn still<'j>(
    resource: &'j Resource,
    jobs: &'j BTreeMap<u64, SeenJob>,
) -> impl Iterator<Item = &'j SeenJob> {
    jobs.values().filter(|job| !resource.is_over(job.run))
}

/// The trigger and the time of the runs whose end is not in the status, as their Jobs say.
fn begun(resource: &Resource, jobs: &BTreeMap<u64, SeenJob>) -> BTreeMap<u64, (Trigger, String)> {
    let begun = still(resource, jobs).map(|job| (job.run, job.noted.trigger, &job.noted.at));
    begun.filter_map(|(run, trigger, at)| Some((run, (trigger?, at.clone())))).collect()
}

/// The record of a QuarksJob's runs, completed from its status and its Jobs.
pub(super) fn recalled(resource: &Resource, jobs: &BTreeMap<u64, SeenJob>) -> JobRecord {
    let mut record = resource.record.clone();
    let once = resource.status.history.iter().filter(|run| run.trigger == Trigger::Once.word());
    let (mended, begun): (Vec<_>, Vec<_>) =
        once.partition(|run| run.had_no_job_by_another(resource));
    let goes_on =
        record.open.iter().any(|run| run.trigger == Trigger::Once && resource.is_open(run.id));
    let was_once = goes_on
        || !begun.is_empty()
        || jobs.values().any(|job| job.noted.trigger == Some(Trigger::Once));
    // A QuarksJob that ran under the original operator has no record, and must not run for `once` again; the same holds
    // if somebody removed the record. A run of a template that made no Job, and has been changed since, does not count.
    record.once = was_once
        || record.once && mended.is_empty()
        || record.last == 0 && resource.status.completed;
    let newest = resource.status.history.first().map(|run| run.id);
    if resource.is_recalled && newest.max(jobs.keys().max().copied()) > Some(record.last) {
        // A run that was begun after this record was written has seen newer references and later times. Its Job says
        // what it found, while the Job is there.
        let last = jobs.values().max_by_key(|job| job.run);
        let found = last.filter(|job| newest.is_none_or(|newest| job.run >= newest));
        let found = found.and_then(|job| job.noted.found());
        let (references, versions) = found.map(|it| (it.references, it.versions)).unzip();
        (record.references, record.schedule) = (references, None);
        record.versions = versions.unwrap_or_default();
    }
    // A record is newer than the versions that it names. A higher version comes from another etcd, which counts by
    // itself.
    record.versions.retain(|_, version| *version <= resource.version);
    let pods = record.pods.iter_mut().flat_map(|known| known.pods.values_mut());
    pods.filter(|pod| pod.version > resource.version).for_each(|pod| pod.version = 0);
    record
}

/// Whether a run for `once` is still owed: the trigger was taken for a run that had no Job because its template was
/// wrong, the template was changed since, and no later run had a Job.
pub(super) fn owes_once(resource: &Resource, record: &JobRecord) -> bool {
    let history = &resource.status.history;
    let had_none = |run: &&Ended| run.had_no_job_by_another(resource);
    let newest = history.first().filter(had_none);
    let is_owed = newest.is_some_and(|run| run.id == record.last)
        && history.iter().filter(had_none).any(|run| run.trigger == Trigger::Once.word());
    resource.strategy == Strategy::Done && !record.once && is_owed
}

/// The numbers of the runs whose end is known.
fn settled(
    resource: &Resource,
    record: &JobRecord,
    runs: &BTreeMap<u64, RunProgress>,
) -> BTreeSet<u64> {
    let mut settled = resource.settled();
    if resource.lacks_history() {
        // Another operator's definition drops the history. There, a recorded run whose Job is gone has ended.
        settled.extend(record.open.iter().map(|run| run.id).filter(|run| !runs.contains_key(run)));
    }
    settled
}
