//! Everything that is known without asking: plain state, changed by what is seen and by what we do.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use engine::trigger::{Outcome, References};
use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;
use tokio::sync::Notify;

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

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Watched {
    Resources(Dialect),
    Jobs,
    Pods,
    /// Pods that are nobody's here: where they are followed.
    Peers,
    ConfigMaps,
    Secrets,
    /// Why something does not begin: nothing waits for that.
    Warnings,
}

/// How many kinds are watched beside those that are run.
const FURTHER: usize = 4;

/// Through so many names of others it is followed who waits for whom, at each look at one that waits for some.
const STEPS: usize = 10_000;

/// Of all namespaces that are watched.
pub(crate) struct Table {
    pub(crate) entries: HashMap<Key, Entry>,
    pub(crate) objects: Objects,
    proofs: Proofs,
    /// Who refers to what, by how it is referred to.
    referrers: HashMap<(Arc<str>, To, Arc<str>), BTreeSet<Key>>,
    pub(crate) pods: Pods,
    /// Pods that wait for us though their Job is gone or their run is over, by their uid.
    pub(crate) strays: HashMap<Arc<str>, Waiting>,
    /// Pods that have not ended.
    pub(crate) lasting: Lasting,
    /// Jobs of another than is known by this name: of one that is gone, or that is not known yet.
    pub(crate) left: HashMap<Key, namesakes::Jobs>,
    /// Whose a Job is, by its uid.
    pub(crate) owners: HashMap<Arc<str>, Key>,
    /// What was listed, by namespace; `None`: of all.
    listed: HashMap<Option<Arc<str>>, HashSet<Watched>>,
    /// Where we made the agent's ConfigMap: to a watch it may be new yet.
    pub(crate) agents: HashSet<Arc<str>>,
    /// Pods that are followed.
    pub(crate) peers: peers::ByNamespace,
    /// Told when somebody follows pods that are not watched, or the last one who does follows them no more.
    pub(crate) peers_wanted: Arc<Notify>,
    /// How many kinds of things are watched in each.
    kinds: usize,
    /// Whether it is known which namespaces are monitored.
    pub(crate) knows_scopes: bool,
    /// Whether prefixes of outputs have no dash after them.
    pub(crate) verbatim_prefixes: bool,
}

/// What is known of one.
#[derive(Default)]
pub(crate) struct Entry {
    pub(crate) resource: Option<Arc<Resource>>,
    /// By run.
    pub(crate) jobs: BTreeMap<u64, SeenJob>,
    /// Runs that were seen to lose their Job.
    pub(crate) gone: BTreeSet<u64>,
    /// Runs whose output is kept.
    pub(crate) kept: BTreeMap<u64, Outcome>,
    /// Runs that had no Job, by the digest of what would have been run.
    pub(crate) tried: BTreeMap<u64, Box<str>>,
    /// Runs whose output was not let in when that was tried last, and since when.
    pub(crate) unkept: BTreeMap<u64, Instant>,
    /// Runs whose Job was to be removed, and nobody answered, and when that was tried last.
    pub(crate) unanswered: BTreeMap<u64, Instant>,
    /// What Kubernetes last warned of, of a Job or a pod: its uid, and the words.
    pub(crate) warnings: BTreeMap<u64, (String, String)>,
    /// Whether it is known what the original operator has left of it.
    pub(crate) inherited: bool,
    /// Runs that this process has recorded: nobody else can have carried them out.
    pub(crate) recorded: BTreeSet<u64>,
    /// The Jobs of settled runs that are gone, by their uids: another of the same run is late.
    past: BTreeMap<u64, Arc<str>>,
    /// What it refers to as it was last seen, and since when.
    pub(crate) references: Option<(References, Instant)>,
    /// Since when that has been other than what is recorded.
    pub(crate) differs: Option<Instant>,
    /// Since when pods of its runs that are over are waited for.
    pub(crate) lasts_since: Option<Instant>,
    /// Since when there is something that one has left of its name that is gone.
    pub(crate) left_since: Option<Instant>,
}

impl Table {
    /// For so many kinds that are run; `key` is what digests are told with, and Jobs proved to be ours.
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
            agents: HashSet::new(),
            peers: peers::ByNamespace::new(),
            peers_wanted: Arc::default(),
            kinds: dialects + FURTHER,
            knows_scopes: false,
            verbatim_prefixes: false,
        }
    }

    /// So many kinds are run from now on: what was listed is not all until the new ones are too.
    pub(crate) fn expects(&mut self, dialects: usize) {
        self.kinds = dialects + FURTHER;
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Whether everything of a namespace was listed.
    pub(crate) fn is_complete(&self, namespace: &str) -> bool {
        let of = |scope: Option<Arc<str>>| self.listed.get(&scope);
        let all = of(None).or_else(|| of(Some(namespace.into())));
        all.is_some_and(|all| all.len() == self.kinds)
    }

    /// From now on this is watched.
    pub(crate) fn watches(&mut self, scope: &Option<Arc<str>>) {
        self.listed.entry(scope.clone()).or_default();
    }

    /// Whether it is known which namespaces are monitored, and one of them was listed, if there are any: where we
    /// have no rights, somebody else's label is no reason to wait.
    pub(crate) fn is_ready(&self) -> bool {
        let complete = |listed: &HashSet<Watched>| listed.len() == self.kinds;
        self.knows_scopes && (self.listed.is_empty() || self.listed.values().any(complete))
    }

    /// How many QuarksJobs there are, and how many runs that have not ended.
    pub(crate) fn count(&self) -> (usize, usize) {
        let resources = self.entries.values().filter_map(|entry| entry.resource.as_ref());
        resources.fold((0, 0), |(known, going), it| (known + 1, going + it.going()))
    }

    /// A list has ended. Whether it was the last of a scope.
    pub(crate) fn listed(&mut self, scope: Option<&Arc<str>>, what: Watched) -> bool {
        if matches!(what, Watched::Peers | Watched::Warnings) {
            return false;
        }
        let listed = self.listed.entry(scope.cloned()).or_default();
        listed.insert(what) && listed.len() == self.kinds
    }

    /// All of a namespace, or of all.
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
        self.agents.remove(namespace);
        self.leave_peers(namespace);
    }

    pub(crate) fn change(&mut self, key: &Key, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(key) {
            change(entry);
        }
    }

    /// Takes a QuarksJob as it is, unless something newer is known. Who may have something to do: it, and those
    /// that wait for its success.
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
        let news = resource.success() != known.as_ref().and_then(|known| known.success());
        if known.as_ref().is_some_and(|known| known.uid != resource.uid) {
            *entry = Entry { jobs: std::mem::take(&mut entry.jobs), ..Entry::default() };
        }
        // Of one of its name that was before it, heard of before this one or after that was gone.
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
        // For as long as the history has it: it would grow for ever.
        entry.past.retain(|id, _| resource.ended(*id).is_some());
        for job in entry.jobs.values_mut().filter(|job| over(&job.run)) {
            let pods = self.pods.remove(&job.uid);
            job.settle(&resource, &pods);
            self.strays.extend(waiting(&pods));
        }
        let follows = resource.following.is_some();
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
        self.follow_peers(&key, follows);
        match news || !same {
            true => [vec![key.clone()], self.dependents(&key)].concat(),
            false => vec![key],
        }
    }

    /// What all others take that are large, in bytes.
    fn large_beside(&self, key: &Key) -> usize {
        let others = self.entries.iter().filter(|(other, _)| *other != key);
        others.filter_map(|(_, entry)| entry.resource.as_ref()?.large()).sum()
    }

    /// Takes one as the API server has answered with. One that is not known is gone, which a watch has told while the answer
    /// was on its way: nothing would tell it again. Of another of its name a watch tells, too.
    pub(crate) fn answered(&mut self, resource: Resource) -> Vec<Key> {
        let is_known = self.get(&resource.key()).is_some_and(|entry| entry.resource.is_some());
        if is_known { self.learn(resource) } else { Vec::new() }
    }

    /// Those that wait for the success of one, by way of others too; itself among them, if it does. All that wait for it by
    /// themselves are found, for they have to be told of its success, and of the others the nearest, in so many steps. Who
    /// is not found is taken not to wait for it: at worst two that are so far from each other run in turn, as two do that
    /// follow each other's output; otherwise one would never run for which nobody waits.
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

    /// The one of this uid is not there any more: another of its name may be.
    pub(crate) fn forget_one(&mut self, key: &Key, uid: &str) {
        let known = self.entries.get(key).and_then(|entry| entry.resource.as_ref());
        if known.is_none_or(|known| *known.uid == *uid) {
            self.forget(key);
        }
    }

    /// It is not there any more.
    pub(crate) fn forget(&mut self, key: &Key) {
        let Some(entry) = self.entries.remove(key) else { return };
        entry.resource.into_iter().for_each(|known| self.refer(&known, key, false));
        self.follow_peers(key, false);
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

    /// Those who refer to something, or to versions of which it may be one: by a label, which may have come or gone.
    pub(crate) fn referrers(&self, object: &Object) -> Vec<Key> {
        let to = To::Object(object.kind);
        let place = |name: &str| (Arc::clone(&object.namespace), to, Arc::from(name));
        let names = [Some(&*object.name), base(&object.name)].into_iter().flatten();
        names.filter_map(|name| self.referrers.get(&place(name))).flatten().cloned().collect()
    }

    /// A Job as it is, if it is ours. One that was, and whose notes somebody has changed, is what it was.
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
        let entry = self.entries.get(self.owners.get(uid)?)?;
        entry.jobs.values().find(|job| &*job.uid == uid)
    }

    /// Adds to the annotations of a Job that is to be what proves it to be ours.
    pub(crate) fn prove(&self, namespace: &str, job: &str, owner: &str, annotations: &mut Value) {
        self.proofs.add(namespace, job, owner, annotations);
    }

    /// Takes a Job that the API server has answered with.
    pub(crate) fn learn_answer(&mut self, job: &Job) {
        if let Some(job) = self.seen_job(job) {
            self.learn_job(job);
        }
    }

    /// Takes a Job as it is, unless something newer is known.
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
        // A server that knows no such thing keeps no word of it, however often it is told.
        let expires = job.expires || same.is_some_and(|known| known.expires);
        let told = same.is_some_and(|known| known.told);
        // What a watch has yet to say of one that was deleted would have it deleted again.
        let deleting = job.deleting || same.is_some_and(|known| known.deleting);
        let is_settled = entry.resource.as_ref().is_some_and(|it| it.is_over(job.run));
        let is_other = |known: &Arc<str>| is_settled && *known != uid;
        let late = known.is_some_and(|known| known.late || is_other(&known.uid))
            || entry.past.get(&job.run).is_some_and(is_other);
        let job = SeenJob { lingers, outlasted, expires, told, deleting, late, ..job };
        let before = entry.jobs.insert(job.run, job).filter(|before| before.uid != uid);
        self.owners.insert(Arc::clone(&uid), key.clone());
        // One of its name has gone, and nobody was told.
        if let Some(before) = before {
            self.owners.remove(&before.uid);
            let pods = self.pods.remove(&before.uid);
            self.strays.extend(waiting(&pods));
        }
        // Those that were heard of before, and say of themselves that they are of it.
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

    /// A Job is not there any more.
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

    /// A list of Jobs has no others than these: it may be an old one, so they are to be asked after.
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

    /// A resource that is no longer wanted has no entry.
    fn drop_empty(&mut self, key: &Key) {
        if self.entries.get(key).is_some_and(|it| it.resource.is_none() && it.jobs.is_empty()) {
            self.entries.remove(key);
        }
    }

    /// Lists of QuarksJobs: those of a scope that are not among these are gone.
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
