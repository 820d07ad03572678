//! One look at a QuarksJob: of all that is known, what is decided by.

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

/// How long what a run has left is not let in before another may take the run's place: a right that is about to be
/// given, or a webhook that is, is no reason to lose it.
const REFUSED: Duration = Duration::from_secs(30);
/// How long pods of a run that is over go on before it is said that they are waited for: most end at once.
const LONG: Duration = Duration::from_secs(10);
/// How long a pod is waited for that may be on its way: the Job is taken away, and may be held by others.
const UNSEEN: Duration = Duration::from_secs(60);
/// How far what is recorded may be ahead of the API server's time.
const AHEAD: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Everything that is decided by, and what may be said beside it.
pub(super) struct Look {
    pub(super) state: State,
    /// When its schedule has its next time, or something is waited for no longer.
    pub(super) next: Option<Timestamp>,
    /// Whether pods of runs that are over have gone on for so long that it is to be said, if they are waited for.
    pub(super) lasts_long: bool,
    /// Why it has none, for people.
    pub(super) fault: Option<String>,
    /// What has to be mended before anything is run.
    pub(super) faults: Vec<String>,
    /// Its record is not read: it is not known which runs it has.
    lacks_record: bool,
}

impl Look {
    /// What to do; `now` as [`decide`] takes it. Nothing where the record is not read: it would be written anew, without
    /// the runs that it has.
    pub(super) fn decision(&self, now: &str) -> Decision {
        match self.lacks_record {
            true => Decision::default(),
            false => decide(&self.state, now),
        }
    }

    /// Whether a time of the schedule has come, and when the next one will.
    fn see_times(&mut self, times: &Times, now: Timestamp) {
        let passed = self.state.record.schedule.as_ref().filter(|it| *it.of == *times.of);
        let said = passed.map(|passed| passed.since.parse().ok());
        // Of a clock that was ahead, or of nobody: no time would come after it for as long as that. It counts from now.
        let is_none = |since: &Timestamp| since.duration_since(now) > AHEAD;
        if said.is_some_and(|since: Option<Timestamp>| since.as_ref().is_none_or(is_none)) {
            self.state.record.schedule = None;
        }
        let since = said.flatten().unwrap_or(now).min(now);
        match times.next(since, now) {
            Ok(next) => {
                let is_due = next <= now;
                self.next = self.next.into_iter().chain((!is_due).then_some(next)).min();
                self.state.schedule = Some(Schedule { of: times.of.to_string(), is_due });
            }
            Err(fault) => {
                // Decided as if it had no schedule: the times behind it stay recorded until somebody mends it.
                self.state.record.schedule = None;
                self.fault = Some(fault);
            }
        }
    }
}

/// What a resource refers to.
#[derive(Default)]
struct Found {
    references: References,
    versions: Versions,
    /// In words.
    missing: Vec<String>,
}

impl Table {
    /// What is done with a Job whose run has ended.
    pub(super) fn disposal(&self, key: &Key, run: u64) -> Option<Disposal> {
        let entry = self.entries.get(key)?;
        disposals(entry.resource.as_ref()?, &entry.jobs).get(&run).copied()
    }

    /// One look, at this time of the API server's clock.
    pub(super) fn look(&mut self, key: &Key, settle: Duration, now: Timestamp) -> Option<Look> {
        let mut state = self.state(key, settle, now)?;
        let resource = self.entries.get(key)?.resource.clone()?;
        let faults = self.tell_inputs(&resource, &mut state);
        let jobs = self.entries.get(key)?.jobs.values();
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
            Some(Ok(following)) => {
                let peers = self.peers.get(&key.namespace);
                let listed = peers.and_then(|peers| Some((peers.pods.as_ref()?, peers.newest)));
                look.state.pods = listed.map(|(pods, newest)| following.among(pods, newest));
            }
            Some(Err(fault)) => look.fault = Some(fault.clone()),
            None => {}
        }
        if let Some(times) = &resource.times {
            look.see_times(times, now);
        }
        Some(look)
    }

    /// The inputs of the run that is to begin, if one is, and what is wrong with them.
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

    /// Pods of runs that are over and that the next waits for: when to look again, and whether they have gone on for long.
    /// Where runs may be beside each other there are none.
    fn lasting(
        &mut self,
        key: &Key,
        state: &State,
        now: Timestamp,
    ) -> Option<(Option<Timestamp>, bool)> {
        let is_idle = state.record.open.iter().all(|run| state.settled.contains(&run.id));
        let waits = is_idle && state.concurrency != Concurrency::Allow;
        let entry = self.entries.get(key)?;
        let unseen = entry.resource.as_ref().is_some_and(|it| may_begin_pods(it, &entry.jobs));
        let until = self.lasts(key, unseen, now.as_second()).filter(|_| waits);
        let entry = self.entries.get_mut(key)?;
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
        let entry = self.entries.get(key)?;
        let resource = Arc::clone(entry.resource.as_ref()?);
        let record = recalled(&resource, &entry.jobs);
        let Found { references, versions, missing } = self.find(&resource, &record);
        let now = Instant::now();
        let runs = self.runs(entry, &resource, at, now);
        let left = disposals(&resource, &entry.jobs).into_keys().collect();
        let begun = begun(&resource, &entry.jobs);
        let settled = settled(&resource, &record, &runs);
        let entry = self.entries.get_mut(key)?;
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
            runs,
            begun,
            left,
            ..State::default()
        })
    }

    /// How far its runs are whose work is known, at this time of the API server's clock and of ours.
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

    /// What one refers to, as it was `recorded` and as it is now.
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
                    // Those that wait for each other would run for ever.
                    match waiting.contains(name) {
                        true => {
                            let wanted = format!("{place} to succeed, which waits for this one");
                            ((place, Held::Nothing(()), None), wanted)
                        }
                        false => {
                            let wanted = format!("{place} to succeed");
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
            // What it writes itself is no news to it.
            let known = recorded.references.as_ref();
            let is_known = known.is_some_and(|known| known.contains_key(&place));
            let object = self.objects.referred(&resource.namespace, kind, name);
            // What was followed before it went is somebody else's.
            let made = object.map(|it| it.may_be_made_by(&maker));
            let made = made.or_else(|| is_known.then_some(false));
            if !resource.makes(kind, name, self.verbatim_prefixes, made) {
                found.versions.extend(version.map(|version| (place.clone(), version)));
                found.references.insert(place, held);
            }
        }
        found
    }

    /// Those of these that are not there.
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
        self.entries.get(&key)?.resource.as_ref()
    }

    /// The newest success of another, as what is held, and the resource version that it stands in.
    fn success(&self, dialect: Dialect, beside: &Resource, name: &str) -> (Held, Option<u64>) {
        let other = self.named(dialect, beside, name);
        match other.and_then(|other| Some((other.success()?, other.version))) {
            Some(((uid, run), version)) => (Held::Data(format!("{uid}/{run}")), Some(version)),
            None => (Held::Nothing(()), None),
        }
    }

    /// Until when a run that failed is waited for, of which something is kept that is not there yet.
    fn awaited(&self, resource: &Resource, job: &SeenJob, now: Timestamp) -> Option<Timestamp> {
        let Some(JobEnd::Failed { at, .. }) = job.end else { return None };
        // As it was begun, whatever the spec says by now.
        let keeps = job.noted.keeps_failures.unwrap_or(resource.keeps_failures);
        if !keeps || !resource.is_open(job.run) || job.noted.inherited {
            return None;
        }
        let until = ending::awaited(at, self.pods(job))?;
        Timestamp::from_second(until).ok().filter(|until| *until > now)
    }

    fn work(&self, job: &SeenJob) -> RunProgress {
        // The end of its pods is that of the Job, which is told of a moment later, or never, if something goes on
        // in them.
        let has_ended = job.end.is_some() || job.wants.end(self.pods(job)).is_some();
        if has_ended { RunProgress::Ended } else { RunProgress::Going }
    }
}

/// Whether there is a Job of a run that came to nothing for another reason than its own end: a pod of it may be on its way.
fn may_begin_pods(resource: &Resource, jobs: &BTreeMap<u64, SeenJob>) -> bool {
    let failed = |run| resource.ended(run).is_some_and(|ended| !ended.outcome.succeeded);
    jobs.values().any(|job| job.end.is_none() && !job.lingers && !job.late && failed(job.run))
}

/// The Jobs of runs whose end is not published: of the others there may be as many as there ever were runs.
fn still<'j>(
    resource: &'j Resource,
    jobs: &'j BTreeMap<u64, SeenJob>,
) -> impl Iterator<Item = &'j SeenJob> {
    jobs.values().filter(|job| !resource.is_over(job.run))
}

/// What runs were begun for, and when, as their Jobs say.
fn begun(resource: &Resource, jobs: &BTreeMap<u64, SeenJob>) -> BTreeMap<u64, (Trigger, String)> {
    let begun = still(resource, jobs).map(|job| (job.run, job.noted.trigger, &job.noted.at));
    begun.filter_map(|(run, trigger, at)| Some((run, (trigger?, at.clone())))).collect()
}

/// The record of one's runs, with what its status and its Jobs say where it does not.
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
    // One that has run under the original operator has no record, and must not run for `once` again. The same of one
    // whose record somebody has removed. Of a template that made no Job, and is another now, nothing has run.
    record.once = was_once
        || record.once && mended.is_empty()
        || record.last == 0 && resource.status.completed;
    let newest = resource.status.history.first().map(|run| run.id);
    if resource.is_recalled && newest.max(jobs.keys().max().copied()) > Some(record.last) {
        // A run that was begun after this record has seen more, and later times. Its Job says what it found, while it
        // is there.
        let last = jobs.values().max_by_key(|job| job.run);
        let found = last.filter(|job| newest.is_none_or(|newest| job.run >= newest));
        let found = found.and_then(|job| job.noted.found());
        let (references, versions) = found.map(|it| (it.references, it.versions)).unzip();
        (record.references, record.schedule) = (references, None);
        record.versions = versions.unwrap_or_default();
    }
    // A record is newer than what it names. A higher version was counted elsewhere: in an etcd of its own, or in
    // another one.
    record.versions.retain(|_, version| *version <= resource.version);
    let pods = record.pods.iter_mut().flat_map(|known| known.pods.values_mut());
    pods.filter(|pod| pod.version > resource.version).for_each(|pod| pod.version = 0);
    record
}

/// Whether the word `once` was taken for a run that had no Job, for its template was wrong, and that is mended now, and no
/// run since then had one.
pub(super) fn owes_once(resource: &Resource, record: &JobRecord) -> bool {
    let history = &resource.status.history;
    let had_none = |run: &&Ended| run.had_no_job_by_another(resource);
    let newest = history.first().filter(had_none);
    let is_owed = newest.is_some_and(|run| run.id == record.last)
        && history.iter().filter(had_none).any(|run| run.trigger == Trigger::Once.word());
    resource.strategy == Strategy::Done && !record.once && is_owed
}

/// Runs whose end is known.
fn settled(
    resource: &Resource,
    record: &JobRecord,
    runs: &BTreeMap<u64, RunProgress>,
) -> BTreeSet<u64> {
    let mut settled = resource.settled();
    if resource.lacks_history() {
        // The definition of another operator drops the history. A recorded run that has no Job any more has ended.
        settled.extend(record.open.iter().map(|run| run.id).filter(|run| !runs.contains_key(run)));
    }
    settled
}
