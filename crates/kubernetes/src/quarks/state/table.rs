//! The table of all that is known without a call: plain state, changed by what watches tell and by what we do.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use engine::trigger::{Outcome, References};
use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;
use tokio::sync::Notify;

use super::agents::Agents;
use super::held::Objects;
use super::job::SeenJob;
use super::lasting::Lasting;
use super::namesakes;
use super::object::Object;
use super::peers;
use super::pods::Pods;
use super::waiting_sidecars::{Waiting, waiting};
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::key::Key;
use crate::quarks::api::noted::Proofs;
use crate::quarks::api::reference::{To, base};
use crate::quarks::api::resource::Resource;
use crate::quarks::api::unread::TOGETHER;

/// The kinds that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Watched {
    Resources(Dialect),
    Jobs,
    Pods,
    /// Pods that are not those of our runs, where an ExtendedJob follows them.
    Peers,
    ConfigMaps,
    Secrets,
    /// Events of type `Warning`, which say why a pod or Job does not begin. Nothing waits for their list.
    Warnings,
}

/// How many kinds are watched beside QuarksJob and ExtendedJob, of those whose list is waited for.
const FURTHER: usize = 4;

/// How many references are followed to find who waits for whom, at each look at a QuarksJob that waits for others.
const STEPS: usize = 10_000;

/// The state of all namespaces that are watched.
pub(crate) struct Table {
    pub(super) entries: HashMap<Key, Entry>,
    pub(crate) objects: Objects,
    proofs: Proofs,
    /// The QuarksJobs that refer to an object, by the object's namespace, kind and name.
    referrers: HashMap<(Arc<str>, To, Arc<str>), BTreeSet<Key>>,
    pub(super) pods: Pods,
    /// Pods whose sidecar waits for us though their Job is gone or their run is over, by uid.
    pub(super) strays: HashMap<Arc<str>, Waiting>,
    /// The pods of runs that have not ended.
    pub(super) lasting: Lasting,
    /// Jobs whose owner has this key but another uid than the QuarksJob that is known: it is gone, or not known yet.
    pub(super) left: HashMap<Key, namesakes::Jobs>,
    /// The key of the QuarksJob that a Job is of, by the uid of the Job.
    pub(super) owners: HashMap<Arc<str>, Key>,
    /// The kinds that were listed, by namespace; `None`: of all namespaces.
    listed: HashMap<Option<Arc<str>>, HashSet<Watched>>,
    pub(crate) agents: Agents,
    /// Pods that ExtendedJobs follow.
    pub(super) peers: peers::ByNamespace,
    /// Notified when an ExtendedJob follows pods of a namespace that are not watched, and when the last that does so
    /// stops.
    pub(super) peers_wanted: Arc<Notify>,
    /// How many kinds have to be listed before a namespace is complete.
    kinds: usize,
    /// Whether it is known which namespaces are monitored.
    knows_scopes: bool,
    /// Whether prefixes of outputs are taken as they are, without a dash after them.
    pub(crate) verbatim_prefixes: bool,
}

/// What is known of a QuarksJob and its runs.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) resource: Option<Arc<Resource>>,
    /// Its Jobs, by run.
    pub(crate) jobs: BTreeMap<u64, SeenJob>,
    /// Runs that were seen to lose their Job.
    pub(crate) gone: BTreeSet<u64>,
    /// Runs whose output is kept or will never be, with their outcome.
    pub(crate) kept: BTreeMap<u64, Outcome>,
    /// Runs that had no Job, with the digest of the spec that was tried.
    pub(crate) tried: BTreeMap<u64, Box<str>>,
    /// Runs whose output the API server refused when it was tried last, and since when.
    pub(crate) unkept: BTreeMap<u64, Instant>,
    /// Runs the removal of whose Job was not answered, and when that was tried last.
    pub(crate) unanswered: BTreeMap<u64, Instant>,
    /// The last warning of Kubernetes about a Job or pod of a run: the uid of that, and the words.
    pub(crate) warnings: BTreeMap<u64, (String, String)>,
    /// Whether the Jobs that the original operator left have been taken over.
    pub(crate) inherited: bool,
    /// Runs that this process has recorded: nobody else can have carried them out.
    pub(crate) recorded: BTreeSet<u64>,
    /// Whether the API server refuses the record, by what it said last.
    pub(crate) refused: bool,
    /// Whether the API server would let the record in, which it had refused, by what it said last.
    pub(crate) let_in: bool,
    /// Why the record was refused that was to be let in, and since when.
    pub(crate) misled: Option<(Instant, Box<str>)>,
    /// The uids of Jobs of settled runs that are gone: another Job of the same run is late.
    past: BTreeMap<u64, Arc<str>>,
    /// What its references held when it was last looked at, and since when they have been so.
    pub(crate) references: Option<(References, Instant)>,
    /// Since when its references have been other than what is recorded.
    pub(crate) differs: Option<Instant>,
    /// Since when pods of its runs that are over are waited for.
    pub(crate) lasts_since: Option<Instant>,
    /// Since when something is there that belongs to a deleted QuarksJob of its name.
    pub(crate) left_since: Option<Instant>,
}

impl Table {
    /// An empty table for this number of kinds that are run; `key` is the key by which digests are made and Jobs proved
    /// to be ours.
    pub(crate) fn new(dialects: usize, key: &[u8]) -> Self {
        Self {
            entries: HashMap::new(),
            objects: Objects::new(key),
            proofs: Proofs::new(key),
            referrers: HashMap::new(),
            pods: Pods::default(),
            strays: HashMap::new(),
            lasting: Lasting::default(),
            left: HashMap::new(),
            owners: HashMap::new(),
            listed: HashMap::new(),
            agents: Agents::default(),
            peers: peers::ByNamespace::new(),
            peers_wanted: Arc::default(),
            kinds: dialects + FURTHER,
            knows_scopes: false,
            verbatim_prefixes: false,
        }
    }

    /// Sets how many kinds are run: what was listed is not complete until the new ones are listed too.
    pub(crate) fn expects(&mut self, dialects: usize) {
        self.kinds = dialects + FURTHER;
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        self.entries.get_mut(key)
    }

    /// The key of the QuarksJob that a Job is of, by the uid of the Job.
    pub(crate) fn owner_of(&self, job: &str) -> Option<&Key> {
        self.owners.get(job)
    }

    /// Whether all kinds of a namespace were listed.
    pub(crate) fn is_complete(&self, namespace: &str) -> bool {
        let of = |scope: Option<Arc<str>>| self.listed.get(&scope);
        let all = of(None).or_else(|| of(Some(namespace.into())));
        all.is_some_and(|all| all.len() == self.kinds)
    }

    /// Notes that a scope is watched from now on.
    pub(crate) fn watches(&mut self, scope: &Option<Arc<str>>) {
        self.listed.entry(scope.clone()).or_default();
    }

    /// Notes that it is known which namespaces are monitored.
    pub(crate) fn know_scopes(&mut self) {
        self.knows_scopes = true;
    }

    /// Whether it is known which namespaces are monitored, and one of them, if there are any, was listed: a namespace
    /// of somebody else's that has the label, but in which we have no rights, is not waited for.
    pub(crate) fn is_ready(&self) -> bool {
        let complete = |listed: &HashSet<Watched>| listed.len() == self.kinds;
        self.knows_scopes && (self.listed.is_empty() || self.listed.values().any(complete))
    }

    /// How many QuarksJobs there are, and how many runs that have not ended.
    pub(crate) fn count(&self) -> (usize, usize) {
        let resources = self.entries.values().filter_map(|entry| entry.resource.as_ref());
        resources.fold((0, 0), |(known, going), it| (known + 1, going + it.going()))
    }

    /// Notes that a kind was listed. Returns whether that completes the scope.
    pub(crate) fn listed(&mut self, scope: Option<&Arc<str>>, what: Watched) -> bool {
        if matches!(what, Watched::Peers | Watched::Warnings) {
            return false;
        }
        let listed = self.listed.entry(scope.cloned()).or_default();
        listed.insert(what) && listed.len() == self.kinds
    }

    /// The keys of all QuarksJobs of a namespace; `None`: of all namespaces.
    pub(crate) fn keys(&self, scope: Option<&str>) -> Vec<Key> {
        let ours = |key: &&Key| scope.is_none_or(|scope| scope == &*key.namespace);
        self.entries.keys().filter(ours).cloned().collect()
    }

    /// Forgets a namespace.
    pub(crate) fn leave(&mut self, namespace: &Arc<str>) {
        self.listed.remove(&Some(Arc::clone(namespace)));
        self.entries.retain(|key, _| key.namespace != *namespace);
        self.referrers.retain(|(of, _, _), _| of != namespace);
        self.pods.retain(|pod| pod.namespace != *namespace);
        self.strays.retain(|_, stray| stray.namespace != *namespace);
        self.leave_lasting(namespace);
        self.left.retain(|key, _| key.namespace != *namespace);
        self.owners.retain(|_, key| key.namespace != *namespace);
        self.objects.leave(namespace);
        self.agents.leave(namespace);
        self.leave_peers(namespace);
    }

    pub(crate) fn change(&mut self, key: &Key, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(key) {
            change(entry);
        }
    }

    /// Takes a QuarksJob as it was seen, unless something newer is known. Returns who may have something to do: itself,
    /// and those that wait for its success, where that is another, or they have something else to say of it.
    pub(crate) fn learn(&mut self, mut resource: Resource) -> Vec<Key> {
        let key = resource.key();
        let known = self.entries.get(&key).and_then(|entry| entry.resource.clone());
        if known.as_ref().is_some_and(|known| known.version > resource.version) {
            return vec![key];
        }
        known.iter().for_each(|known| resource.remember(known));
        if resource.large().is_some_and(|takes| self.large_beside(&key) + takes > TOGETHER) {
            resource.leave_out();
        }
        let entry = self.entries.entry(key.clone()).or_default();
        let news = known.as_ref().is_none_or(|known| {
            (known.success(), known.failure()) != (resource.success(), resource.failure())
        });
        if known.as_ref().is_some_and(|known| known.uid != resource.uid) {
            *entry = Entry { jobs: std::mem::take(&mut entry.jobs), ..Entry::default() };
        }
        // Jobs of an earlier QuarksJob of its name, seen before this one was or after the earlier one was gone.
        let jobs = std::mem::take(&mut entry.jobs).into_iter();
        let (ours, before): (BTreeMap<_, _>, BTreeMap<_, _>) =
            jobs.partition(|(_, job)| job.owner == resource.uid);
        entry.jobs = ours;
        let over = |id: &u64| resource.is_over(*id);
        entry.gone.retain(|id| !over(id));
        entry.kept.retain(|id, _| !over(id));
        entry.tried.retain(|id, _| !over(id));
        entry.unkept.retain(|id, _| !over(id));
        entry.recorded.retain(|id| !over(id));
        entry.warnings.retain(|id, _| !over(id));
        // Kept only as long as the run is in the history: the map would grow for ever.
        entry.past.retain(|id, _| resource.ended(*id).is_some());
        for job in entry.jobs.values_mut().filter(|job| over(&job.run)) {
            let pods = self.pods.remove(&job.uid);
            job.settle(&resource, &pods);
            self.strays.extend(waiting(&pods));
        }
        let resource = Arc::new(resource);
        entry.resource = Some(Arc::clone(&resource));
        self.disown(before.values());
        self.leave_behind(&key, before.into_values());
        for job in self.claim(&key, &resource.uid) {
            self.learn_job(job);
        }
        let same = known.as_ref().is_some_and(|known| known.waits_for().eq(resource.waits_for()));
        if !same {
            known.into_iter().for_each(|known| self.refer(&known, &key, false));
            self.refer(&resource, &key, true);
        }
        self.follow_peers(&key, &resource);
        match news || !same {
            true => [vec![key.clone()], self.dependents(&key)].concat(),
            false => vec![key],
        }
    }

    /// How many bytes all other large QuarksJobs take.
    fn large_beside(&self, key: &Key) -> usize {
        let others = self.entries.iter().filter(|(other, _)| *other != key);
        others.filter_map(|(_, entry)| entry.resource.as_ref()?.large()).sum()
    }

    /// Takes a QuarksJob that the API server has answered a call with. If it is not known, it is gone: a watch has told
    /// so while the answer was on its way, and nothing would tell it again. If another of its name is there, a watch
    /// tells of it.
    pub(crate) fn answered(&mut self, resource: Resource) -> Vec<Key> {
        let is_known = self.get(&resource.key()).is_some_and(|entry| entry.resource.is_some());
        if is_known { self.learn(resource) } else { Vec::new() }
    }

    /// The QuarksJobs that wait for the success of this one, directly or by way of others; itself among them, if it
    /// does. All that wait directly for it are found, for they have to be told of its success; of the others the
    /// nearest, within [`STEPS`]. One that is not found is taken not to wait for it: at worst two that are that far
    /// from each other run in turn, as two do that follow each other's output; otherwise one would never run for which
    /// nobody waits.
    pub(crate) fn dependents(&self, key: &Key) -> Vec<Key> {
        let (mut found, mut next, mut steps) = (BTreeSet::new(), VecDeque::from([key]), 0);
        while steps < STEPS
            && let Some(key) = next.pop_front()
        {
            let [namespace, name] = [&key.namespace, &key.name].map(Arc::clone);
            let place = (namespace, To::Triggered(key.dialect), name);
            for key in self.referrers.get(&place).into_iter().flatten() {
                steps += 1;
                if found.insert(key) {
                    next.push_back(key);
                }
            }
        }
        found.into_iter().cloned().collect()
    }

    /// Forgets the QuarksJob of this uid, which is gone; another of its name may be there.
    pub(crate) fn forget_one(&mut self, key: &Key, uid: &str) {
        let known = self.entries.get(key).and_then(|entry| entry.resource.as_ref());
        if known.is_none_or(|known| *known.uid == *uid) {
            self.forget(key);
        }
    }

    /// Forgets a QuarksJob, which is gone.
    pub(crate) fn forget(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        entry.resource.into_iter().for_each(|known| self.refer(&known, key, false));
        self.follow_no_peers(key);
        self.disown(entry.jobs.values());
        self.leave_behind(key, entry.jobs.into_values());
    }

    fn refer(&mut self, resource: &Resource, key: &Key, refers: bool) {
        for reference in resource.waits_for() {
            for name in [Some(&*reference.name), base(&reference.name)].into_iter().flatten() {
                let place = (Arc::clone(&key.namespace), reference.kind, Arc::from(name));
                if refers {
                    self.referrers.entry(place).or_default().insert(key.clone());
                } else if let Some(keys) = self.referrers.get_mut(&place) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.referrers.remove(&place);
                    }
                }
            }
        }
    }

    /// The QuarksJobs that refer to an object, or to a versioned Secret of which it may be a version: that is told by a
    /// label, which may have come or gone.
    pub(crate) fn referrers(&self, object: &Object) -> Vec<Key> {
        let to = To::Object(object.kind);
        let place = |name: &str| (Arc::clone(&object.namespace), to, Arc::from(name));
        let names = [Some(&*object.name), base(&object.name)].into_iter().flatten();
        names.filter_map(|name| self.referrers.get(&place(name))).flatten().cloned().collect()
    }

    /// What is seen of a Job, if it is ours. If somebody has changed the notes of one that was known to be ours, the
    /// known notes count.
    pub(crate) fn seen_job(&self, job: &Job) -> Option<SeenJob> {
        let seen = SeenJob::of(job)?;
        if self.proofs.hold(&job.metadata, &seen.owner) {
            return Some(seen);
        }
        let known = self.known_job(&seen.uid)?.clone();
        let SeenJob { dialect, owner, owner_name, run, noted, .. } = known;
        Some(SeenJob { dialect, owner, owner_name, run, noted, ..seen })
    }

    /// A Job by its uid.
    pub(crate) fn known_job(&self, uid: &str) -> Option<&SeenJob> {
        let entry = self.get(self.owner_of(uid)?)?;
        entry.jobs.values().find(|job| &*job.uid == uid)
    }

    /// Adds to the annotations of a Job that is about to be made the proof that it is ours.
    pub(crate) fn prove(&self, namespace: &str, job: &str, owner: &str, annotations: &mut Value) {
        self.proofs.add(namespace, job, owner, annotations);
    }

    /// Takes a Job that the API server has answered a call with.
    pub(crate) fn learn_answer(&mut self, job: &Job) {
        if let Some(job) = self.seen_job(job) {
            self.learn_job(job);
        }
    }

    /// Takes a Job as it was seen, unless something newer is known. Returns the key of its QuarksJob.
    pub(crate) fn learn_job(&mut self, job: SeenJob) -> Key {
        let key = job_key(&job);
        let entry = self.entries.entry(key.clone()).or_default();
        let other = entry.resource.as_ref().is_some_and(|resource| resource.uid != job.owner);
        let known = entry.jobs.get(&job.run);
        if other {
            self.leave_behind(&key, [job]);
            return key;
        }
        if known.is_some_and(|known| known.version > job.version) {
            return key;
        }
        let uid = Arc::clone(&job.uid);
        let [lingers, outlasted] = known.map_or([false; 2], |it| [it.lingers, it.outlasted]);
        let same = known.filter(|known| known.uid == uid);
        // An API server that does not know the member never shows it, however often it is set.
        let expires = job.expires || same.is_some_and(|known| known.expires);
        let told = same.is_some_and(|known| known.told);
        // A watch may show a Job that we have deleted as it was before; without this it would be deleted again.
        let deleting = job.deleting || same.is_some_and(|known| known.deleting);
        let is_settled = entry.resource.as_ref().is_some_and(|it| it.is_over(job.run));
        let is_other = |known: &Arc<str>| is_settled && *known != uid;
        let late = known.is_some_and(|known| known.late || is_other(&known.uid))
            || entry.past.get(&job.run).is_some_and(is_other);
        let job = SeenJob { lingers, outlasted, expires, told, deleting, late, ..job };
        let before = entry.jobs.insert(job.run, job).filter(|before| before.uid != uid);
        self.owners.insert(Arc::clone(&uid), key.clone());
        // The Job that was known of this run has gone, and no watch told of it.
        if let Some(before) = before {
            self.owners.remove(&before.uid);
            let pods = self.pods.remove(&before.uid);
            self.strays.extend(waiting(&pods));
        }
        // Pods may have been seen before their Job; those of another namespace only claim to be of it.
        self.pods.keep_in(&uid, &key.namespace);
        if self.is_over(&key, &uid) {
            let pods = self.pods.remove(&uid);
            self.strays.extend(waiting(&pods));
            self.change(&key, |entry| {
                let job = entry.jobs.values_mut().find(|job| job.uid == uid);
                if let (Some(job), Some(resource)) = (job, &entry.resource) {
                    job.settle(resource, &pods);
                }
            });
        }
        key
    }

    /// Forgets a Job, which is gone. Returns the key of its QuarksJob.
    pub(crate) fn forget_job(&mut self, job: &SeenJob) -> Key {
        let key = job_key(job);
        self.release(job);
        self.change(&key, |entry| {
            if entry.jobs.get(&job.run).is_some_and(|known| known.uid == job.uid) {
                entry.jobs.remove(&job.run);
                let open = entry.resource.as_ref().is_some_and(|it| it.is_open(job.run));
                if open {
                    entry.gone.insert(job.run);
                } else if !job.late {
                    entry.past.insert(job.run, Arc::clone(&job.uid));
                }
            }
        });
        self.drop_empty(&key);
        key
    }

    /// Takes the end of a list of Jobs. The list may be an old one, so the Jobs that it lacks are to be asked for;
    /// returns the keys of their QuarksJobs.
    pub(crate) fn doubt(&mut self, scope: Option<&str>, listed: &HashSet<Arc<str>>) -> Vec<Key> {
        let is_there = |key: &Key, uid: &Arc<str>| {
            scope.is_some_and(|scope| scope != &*key.namespace) || listed.contains(uid)
        };
        self.left.retain(|key, jobs| {
            jobs.retain(|uid, _| is_there(key, uid));
            !jobs.is_empty()
        });
        let mut doubted = Vec::new();
        for (key, entry) in &mut self.entries {
            if scope.is_some_and(|scope| scope != &*key.namespace) {
                continue;
            }
            for job in entry.jobs.values_mut().filter(|job| !listed.contains(&job.uid)) {
                job.unsure = true;
                doubted.push(key.clone());
            }
        }
        doubted
    }

    /// Drops the entry of a QuarksJob that is gone and has no Jobs.
    fn drop_empty(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(|it| it.resource.is_none() && it.jobs.is_empty()) {
            self.entries.remove(key);
        }
    }

    /// Takes the end of a list of QuarksJobs: those of the scope that it lacks are gone.
    pub(crate) fn keep(&mut self, of: Dialect, scope: Option<&str>, listed: &HashSet<Key>) {
        for key in self.keys(scope) {
            if key.dialect == of && !listed.contains(&key) {
                self.forget(&key);
            }
        }
    }
}

fn job_key(job: &SeenJob) -> Key {
    let (namespace, name) = (Arc::clone(&job.namespace), Arc::clone(&job.owner_name));
    Key { dialect: job.dialect, namespace, name }
}
