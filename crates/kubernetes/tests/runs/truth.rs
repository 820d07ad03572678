//! What has to hold at the end of a schedule.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::trigger::REPLACED;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams};
use kubernetes::quarks::Dialect;
use serde::de::DeserializeOwned;
use serde_json::Value;
use testkit::proxy::Faults;
use tokio::time::{Instant, sleep};

use crate::kept::{
    FAILED, all_outputs, is_kept_of_one_that_failed, jobs_that_stay, orphans, outputs,
};
use crate::objects::{at, history, open, resources, sure};
use crate::outage::Outage;
use crate::seeds::Sum;
use crate::shape::{Kept, Policy};
use crate::town::Town;
use crate::users::{Manner, User};

/// How long what is left over may take to go, once all is well: the garbage collector looks each half minute which
/// kinds there are, and where the API server was away it begins anew with all of them.
const CLEAN: Duration = Duration::from_secs(300);
/// The Job controller awaits the pods that it made by the name of their Job: where one was taken away by hand and made
/// again at once, it may leave the new one alone until it has forgotten the old one, after five minutes, and then until
/// the new one is changed, which is ours to do.
const FORGOTTEN: Duration = Duration::from_secs(480);
/// In which a run for nothing would begin.
const QUIET: Duration = Duration::from_secs(2);
/// How far two clocks that were put right by answers differ at most, cut to seconds.
const CLOCKS: i64 = 2;

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) deaths: u64,
    pub(crate) calls: u64,
    pub(crate) faults: Faults,
    pub(crate) stolen: u64,
    /// Schedules in which clocks are wrong, and in which two lead all the time.
    pub(crate) skewed: usize,
    pub(crate) two_lead: usize,
    pub(crate) runs: usize,
    versions: usize,
    /// Versions of what files fanned out into.
    fanned_versions: usize,
    /// Outputs that were there as soon as their run was said to have succeeded.
    witnessed: usize,
    /// Those that were deleted and made anew.
    deleted: usize,
    /// Secrets and ConfigMaps that were written over.
    plain: usize,
    extended: usize,
    sidecars: usize,
    passed_over: u64,
    pub(crate) replaced: usize,
    timed: usize,
    dependent: usize,
    of_versions: usize,
    of_pods: usize,
    hasty: usize,
    met: u64,
    backs: u64,
    /// Runs that were told something.
    told: usize,
    /// Runs of several pods.
    of_several: usize,
    /// Runs that failed and of which all the same something is kept.
    kept_of_failures: usize,
}

impl Sum for Tally {
    fn add(&mut self, other: &Self) {
        self.deaths += other.deaths;
        self.calls += other.calls;
        self.faults.add(&other.faults);
        self.stolen += other.stolen;
        self.skewed += other.skewed;
        self.two_lead += other.two_lead;
        self.runs += other.runs;
        self.versions += other.versions;
        self.fanned_versions += other.fanned_versions;
        self.witnessed += other.witnessed;
        self.deleted += other.deleted;
        self.plain += other.plain;
        self.extended += other.extended;
        self.sidecars += other.sidecars;
        self.passed_over += other.passed_over;
        self.replaced += other.replaced;
        self.timed += other.timed;
        self.dependent += other.dependent;
        self.of_versions += other.of_versions;
        self.of_pods += other.of_pods;
        self.hasty += other.hasty;
        self.met += other.met;
        self.backs += other.backs;
        self.told += other.told;
        self.of_several += other.of_several;
        self.kept_of_failures += other.kept_of_failures;
    }

    fn deaths(&self) -> u64 {
        self.deaths
    }

    fn is_of_everything(&self, schedules: usize) -> bool {
        let all = [
            self.skewed,
            self.two_lead,
            self.witnessed,
            self.versions,
            self.fanned_versions,
            self.plain,
            self.extended,
            self.sidecars,
            self.replaced,
            self.dependent,
            self.of_versions,
            self.of_pods,
            self.hasty,
            self.told,
            self.of_several,
            self.kept_of_failures,
            self.deleted,
        ];
        let is_of_all = all.iter().all(|&count| count > 0) && self.faults.are_of_all_kinds();
        // Where a full minute falls no seed says.
        let has_timed = self.timed > 0 || schedules < 500;
        let others = [self.stolen, self.passed_over, self.met, self.backs];
        is_of_all && has_timed && others.iter().all(|&count| count > 0)
    }
}

impl Tally {
    fn count(&mut self, user: &User, history: &[Value], kept: usize) {
        let runs = history.len();
        self.runs += runs;
        match user.shape.kept {
            Kept::Versions => self.versions += kept,
            Kept::FannedOut { versioned: true } => self.fanned_versions += kept,
            _ => self.plain += kept,
        }
        self.extended += if user.shape.dialect == Dialect::ExtendedJob { runs } else { 0 };
        self.sidecars += if user.shape.sidecar { runs } else { 0 };
        self.passed_over += user.passed_over;
        self.met += user.met;
        self.backs += user.backs;
        self.told += user.told.iter().flatten().count();
        self.of_several += if user.shape.completions > 1 { runs } else { 0 };
        let failed = history.iter().filter(|run| is_kept_of_one_that_failed(user, run));
        self.kept_of_failures += failed.count();
        self.replaced += history.iter().filter(|run| run["reason"] == REPLACED).count();
        match user.manner {
            Manner::Deleted => self.deleted += 1,
            Manner::Timed => self.timed += runs,
            Manner::Dependent { .. } => self.dependent += runs,
            Manner::OfVersions => self.of_versions += runs,
            Manner::OfPods => self.of_pods += runs,
            Manner::Hasty => self.hasty += runs,
            _ => {}
        }
    }
}

/// What a schedule was like, as far as the truth depends on it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Conditions<'o> {
    /// When nobody had answers.
    pub(crate) outage: Option<&'o Outage>,
    /// Two led all the time, each with a Lease of its own.
    pub(crate) two_lead: bool,
}

/// All ended as was triggered, and nothing is left behind.
pub(crate) async fn check(
    town: &Town,
    users: &[User],
    conditions: Conditions<'_>,
    tally: &mut Tally,
) {
    // The last run of all has its outcome; then nothing may follow.
    let begun = Instant::now();
    loop {
        while !left(town, users).await.is_empty() {
            let waited = begun.elapsed();
            if waited >= FORGOTTEN || waited >= CLEAN && !any_not_looked_at(town).await {
                panic!("left behind: {:#?}", [left(town, users).await, seen(town).await]);
            }
            sleep(Duration::from_millis(250)).await;
        }
        sleep(QUIET).await;
        if left(town, users).await.is_empty() {
            break;
        }
    }
    one_job_each(town, users, conditions).await;
    let seen = town.witness.seen();
    assert!(seen.early.is_empty(), "told before it was kept: {:#?}", seen.early);
    tally.witnessed += seen.good;
    let mut kept = BTreeSet::new();
    for user in users {
        let object = user.get().await;
        let history = history(&object);
        let ids: Vec<u64> = history.iter().rev().filter_map(|run| run["id"].as_u64()).collect();
        let triggers = triggers(users, user, &history).await;
        let expected: Vec<u64> = (1..=triggers).collect();
        assert_eq!(ids, expected, "{}: {triggers} triggers, {object:#?}", user.name);
        pods(town, user, &object, &history, conditions);
        told(town, user, &history);
        times(user, &history);
        changes(&seen.found, &object, &history);
        jobs(town, user, &history).await;
        let last = history.first().map(|run| run["succeeded"] == true).unwrap_or_default();
        let completed = object.data["status"]["completed"] == true;
        assert_eq!(completed, last, "{}: {object:#?}", user.name);
        let of_user = outputs(town, user, &object, &history).await;
        tally.count(user, &history, of_user.len());
        kept.extend(of_user);
    }
    let all: BTreeSet<String> = all_outputs(town).await.into_iter().collect();
    assert_eq!(all, kept, "kept of nobody");
}

/// Whether each run had one Job, by its uid. Of two that lead at once one may make the Job of a run that the other has
/// replaced meanwhile, as one does whose call was held up for longer than it led: no API server ties that call to the
/// run, and it is promised that such a Job goes with its pods, and that nothing of it is kept, which is asked of all. Of
/// one that was deleted the Jobs go by other hands, and one that is taken while no controller runs is made again: this
/// is asked of those of the last that was made anew.
async fn one_job_each(town: &Town, users: &[User], conditions: Conditions<'_>) {
    let mut late: Vec<String> = Vec::new();
    for user in users.iter().filter(|_| conditions.two_lead) {
        let history = history(&user.get().await).into_iter();
        let replaced = history.filter(|run| run["reason"] == REPLACED);
        late.extend(replaced.map(|run| run["job"].as_str().unwrap().to_owned()));
    }
    let mut taken: Vec<(&str, BTreeSet<String>)> = Vec::new();
    for user in users {
        match user.manner {
            Manner::Robbed => taken.push((user.name.as_str(), BTreeSet::new())),
            Manner::Deleted => {
                let uid = user.get().await.metadata.uid.unwrap_or_default();
                taken.push((user.name.as_str(), town.attempts.owned_by(&uid)));
            }
            _ => {}
        }
    }
    let is_taken =
        |job: &str| taken.iter().any(|(name, but)| job.starts_with(*name) && !but.contains(job));
    town.attempts.assert_one_job_each(|job| !is_taken(job) && !late.iter().any(|it| it == job));
}

/// How many runs there have to be.
async fn triggers(users: &[User], user: &User, history: &[Value]) -> u64 {
    let Manner::Dependent { follows } = user.manner else { return user.triggers };
    let successes = successes_upstream(users, user).await;
    let most = if follows { successes.len() } else { successes.len().min(1) };
    // Successes that came while one was waited for are one.
    assert!(history.len() <= most, "{}: {history:#?} for {successes:#?}", user.name);
    let first = successes.iter().map(|run| at(run, "endedAt")).min();
    let is_early = |run: &&Value| first.is_none_or(|first| at(run, "startedAt") + CLOCKS < first);
    let early: Vec<&Value> = history.iter().filter(is_early).collect();
    assert!(early.is_empty(), "{} ran before {successes:#?}: {early:#?}", user.name);
    history.len() as u64
}

/// The runs that succeeded of the one that it depends on, the newest first.
async fn successes_upstream(users: &[User], user: &User) -> Vec<Value> {
    let mut runs = upstream(users, user).await;
    runs.retain(|run| run["succeeded"] == true);
    runs
}

async fn upstream(users: &[User], user: &User) -> Vec<Value> {
    let name = user.upstream.as_ref().unwrap();
    let other = users.iter().find(|other| other.name == *name).unwrap();
    history(&other.get().await)
}

/// Whether it has not run yet for the success of another that is the newest of its runs.
async fn is_behind(users: &[User], user: &User) -> bool {
    let Manner::Dependent { follows } = user.manner else { return false };
    let runs = upstream(users, user).await;
    let Some(newest) = runs.first().filter(|run| run["succeeded"] == true) else { return false };
    let ended = at(newest, "endedAt");
    let history = history(&user.get().await);
    let mut runs = history.iter().map(|run| at(run, "startedAt") + CLOCKS);
    !runs.any(|at| !follows || at >= ended)
}

/// Whether each run has one Job with one pod, or as many as are to end well, and there is none beside these: of one that
/// fails its first pod does. A run that was replaced may have come to none. Of one that is robbed, one that was taken
/// while no controller ran is begun again, and one that was taken at once has none. Whoever makes pods of Jobs makes
/// another, if an outage kept the answer to the first. Of one that was deleted this is asked of the last that was made
/// anew.
fn pods(
    town: &Town,
    user: &User,
    object: &DynamicObject,
    history: &[Value],
    conditions: Conditions<'_>,
) {
    let Conditions { outage, two_lead } = conditions;
    let ledger = town.ledger();
    let of_user = |job: &str| job.starts_with(&format!("{}-", user.name));
    let entries: BTreeMap<&str, _> =
        ledger.iter().filter(|(job, _)| of_user(job)).map(|(job, it)| (job.as_str(), it)).collect();
    let mut known = BTreeSet::new();
    for run in history {
        let job = run["job"].as_str().unwrap();
        known.insert(job);
        let pods = entries.get(job).map_or(0, |entry| entry.begun.len());
        let is_around =
            outage.zip(entries.get(job)).is_some_and(|(outage, entry)| outage.is_around(entry));
        let all = user.shape.completions;
        let may_be = match () {
            () if user.is_robbed() => true,
            () if run["reason"] == REPLACED => pods <= all || is_around || two_lead,
            () if is_around => pods >= 1,
            () if run["reason"] == FAILED => pods == 1,
            () => pods == all,
        };
        assert!(may_be, "{}: {pods} pods of {run:#}", user.name);
    }
    let its = town.attempts.owned_by(object.metadata.uid.as_deref().unwrap_or_default());
    let is_its = |job: &str| user.manner != Manner::Deleted || its.contains(job);
    let stray: Vec<_> = entries.keys().filter(|job| !known.contains(*job) && is_its(job)).collect();
    assert!(stray.is_empty() || user.is_robbed(), "{}: pods of no run, {stray:?}", user.name);
    let early: Vec<_> = entries.iter().filter(|(_, entry)| entry.told_early).collect();
    assert!(early.is_empty(), "sidecars were told while others went on: {early:?}");
    // Of two that lead one may make the Job of a run that the other has replaced.
    let may_meet = user.shape.policy == Policy::Replace && two_lead;
    if user.is_robbed() || user.shape.policy == Policy::Allow || may_meet {
        return;
    }
    // The second pod of one may go on after its run.
    let in_turn = entries.iter().filter(|(job, it)| known.contains(*job) && it.begun.len() == 1);
    let mut spans: Vec<(Instant, Instant)> = in_turn.filter_map(|(_, it)| it.ran).collect();
    spans.sort();
    let is_apart = spans.windows(2).all(|two| two[0].1 <= two[1].0);
    assert!(is_apart, "{}: two at once under {:?}, {spans:?}", user.name, user.shape.policy);
}

/// Whether each run was told what was said with its trigger, and nothing else.
fn told(town: &Town, user: &User, history: &[Value]) {
    let ledger = town.ledger();
    for (run, told) in history.iter().rev().zip(&user.told) {
        let entry = ledger.get(run["job"].as_str().unwrap());
        // A run that was replaced may have come to no pod.
        let Some(entry) = entry.filter(|entry| !entry.begun.is_empty()) else { continue };
        let given = entry.given.as_ref().and_then(Value::as_str);
        assert_eq!(given, told.as_deref(), "{}: {run:#}", user.name);
    }
}

/// Whether each full minute has had its run, and no run was without one: several that came while nobody looked are one.
fn times(user: &User, history: &[Value]) {
    if user.manner != Manner::Timed {
        return;
    }
    let mut runs: Vec<i64> = history.iter().map(|run| at(run, "startedAt") + CLOCKS).collect();
    runs.sort_unstable();
    let first_after = |minute: &i64| runs.iter().position(|at| at >= minute);
    let covered: Vec<Option<usize>> = user.minutes.iter().map(first_after).collect();
    let missed = covered.iter().any(Option::is_none);
    let used: BTreeSet<usize> = covered.into_iter().flatten().collect();
    assert!(
        !missed && used.len() == runs.len(),
        "{}: {:?} had {history:#?}",
        user.name,
        user.minutes
    );
    let strange = history.iter().any(|run| run["trigger"] != "schedule");
    assert!(!strange, "{}: {history:#?}", user.name);
}

/// Whether each run for a change found something else than the run before it.
fn changes(found: &BTreeMap<(String, u64), Value>, object: &DynamicObject, history: &[Value]) {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let by = |run: u64| found.get(&(uid.to_owned(), run));
    let is_for_nothing = |run: &&Value| {
        let id = run["id"].as_u64().unwrap();
        let now = by(id).filter(|_| run["trigger"] == "config-change");
        now.is_some() && now == by(id - 1)
    };
    let idle: Vec<&Value> = history.iter().filter(is_for_nothing).collect();
    assert!(idle.is_empty(), "{:?} found what was found before: {idle:#?}", object.metadata.name);
}

/// Whether the Jobs are there that stay.
async fn jobs(town: &Town, user: &User, history: &[Value]) {
    let jobs = list::<Job>(town).await.into_iter();
    let jobs: BTreeSet<String> = jobs.filter_map(|it| it.metadata.name).collect();
    let mut stay = jobs_that_stay(&user.shape, history).into_iter();
    assert!(user.is_robbed() || stay.all(|job| jobs.contains(job)), "{history:#?} of {jobs:?}");
    // Nobody else has what it writes, but one of its name that was before it.
    let is_refused = history.iter().any(|run| run["reason"] == "SecretRefused");
    assert!(!is_refused, "{}: {history:#?}", user.name);
}

pub(crate) async fn list<K>(town: &Town) -> Vec<K>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(town.client.clone(), &town.namespace);
    let all = ListParams::default();
    sure(|| api.list(&all)).await.items
}

/// Whether there is a Job that the Job controller has not looked at yet.
async fn any_not_looked_at(town: &Town) -> bool {
    let mut jobs = list::<Job>(town).await.into_iter();
    jobs.any(|job| job.status.is_none_or(|status| status.start_time.is_none()))
}

/// How all stands, for whoever looks for the cause.
async fn seen(town: &Town) -> Vec<String> {
    let jobs = list::<Job>(town).await.into_iter();
    let jobs = jobs.map(|job| format!("{:?}: {:?}", job.metadata.name, job.status));
    let pods = list::<Pod>(town).await.into_iter();
    jobs.chain(pods.map(|pod| format!("{:?}: {:?}", pod.metadata, pod.status))).collect()
}

/// Runs that have not ended or not begun, Jobs of others but those that stay, and pods that go on; by name.
async fn left(town: &Town, users: &[User]) -> Vec<String> {
    let jobs = list::<Job>(town).await.into_iter();
    let mut jobs: BTreeSet<String> = jobs.filter_map(|it| it.metadata.name).collect();
    let mut left = Vec::new();
    let all = ListParams::default();
    for dialect in Dialect::ALL {
        let resources = resources(town, dialect);
        for object in sure(|| resources.list(&all)).await {
            // A run fails without its Job too, if its output is lost.
            let user = users.iter().find(|user| Some(&user.name) == object.metadata.name.as_ref());
            for job in jobs_that_stay(&user.unwrap().shape, &history(&object)) {
                jobs.remove(job);
            }
            let open = open(&object);
            left.extend(open.iter().map(|run| format!("{:?}: {run}", object.metadata.name)));
        }
    }
    left.extend(jobs);
    for pod in list::<Pod>(town).await {
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        if phase != "Succeeded" && phase != "Failed" {
            left.push(format!("{:?} goes on", pod.metadata.name));
        }
    }
    for user in users {
        if is_behind(users, user).await {
            left.push(format!("{} has to run", user.name));
        }
    }
    left.extend(orphans(town, users).await);
    left
}
