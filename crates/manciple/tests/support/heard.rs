//! What a platform hears of an operation, by when it hears it: as soon as Kubernetes knows, or within ten seconds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use testkit::processor::Processor;

use super::town::Town;
use super::{Served, http, order, within};

/// What Kubernetes knows is named within this time.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// How long Kubernetes may take to know it, in seconds.
const KNOWS: u64 = 150;
/// Each question without a token is one or two to the API server, most of what it was asked of instances by all tests where
/// it was forty: two replicas are asked as often as one would be.
const LOOK: Duration = Duration::from_millis(200);

/// All that `last_operation` has said since somebody listens, of each replica.
pub(crate) struct Heard {
    over: Arc<AtomicBool>,
    replicas: Vec<Replica>,
    /// Apart from what is said: of a server that does not answer no time is to be taken off.
    processor: Arc<Processor>,
}

/// What one replica has said, and since when.
struct Replica {
    address: String,
    said: Arc<Mutex<Vec<(SystemTime, Value)>>>,
}

impl Heard {
    /// Listens to an instance's until it is dropped: each replica has to look at what the API server has.
    pub(crate) fn of(servers: &[&Served], instance: &str) -> Self {
        let path = format!("{}/last_operation", order::path(instance));
        Self::listen(servers, &path, Arc::new(Processor::now()))
    }

    /// The same of one operation, by its token, as platforms ask: each replica answers by what its watch has brought.
    pub(crate) fn of_token(&self, servers: &[&Served], instance: &str, token: &str) -> Self {
        let path = format!("{}/last_operation?operation={token}", order::path(instance));
        Self::listen(servers, &path, Arc::clone(&self.processor))
    }

    fn listen(servers: &[&Served], path: &str, processor: Arc<Processor>) -> Self {
        let over = Arc::<AtomicBool>::default();
        let listen = |server: &&Served| Replica::listen(&server.address, path, &over);
        let replicas = servers.iter().map(listen).collect();
        Self { over, replicas, processor }
    }

    /// Sees that each replica said this soon after Kubernetes knew of it, and until then neither of a success nor of a
    /// time that was up; gives all that each said then.
    pub(crate) fn says(&self, words: &str, known: SystemTime) -> Vec<Value> {
        let said = |replica: &Replica| {
            let (when, last) = replica.first(words, |last| has(last, words));
            let lasted = self.processor.between(known, when);
            println!("{words}: {lasted:?} after Kubernetes knew, by {}", replica.address);
            let all = replica.all();
            assert!(
                lasted < SOON,
                "{words}: only after {lasted:?}, by {}: {all:?}",
                replica.address
            );
            last
        };
        self.replicas.iter().map(said).collect()
    }

    /// Sees that each replica said that it failed, and why: as soon after the first that did as after Kubernetes knows.
    pub(crate) fn fails(&self, why: &str) {
        let failed = |last: &Value| last["state"] == "failed" && has(last, why);
        let heard = |replica: &Replica| replica.first(why, failed).0;
        let when: Vec<SystemTime> = self.replicas.iter().map(heard).collect();
        let first = *when.iter().min().unwrap();
        for (replica, when) in self.replicas.iter().zip(when) {
            let later = self.processor.between(first, when);
            assert!(
                later < SOON,
                "{why}: {later:?} later by {}: {:?}",
                replica.address,
                replica.all()
            );
        }
    }

    /// What was said of a success, if anything was.
    pub(crate) fn success(&self) -> Option<Value> {
        let mut all = self.replicas.iter().flat_map(Replica::all).map(|(_, last)| last);
        all.find(|last| last["state"] == "succeeded")
    }
}

impl Replica {
    fn listen(address: &str, path: &str, over: &Arc<AtomicBool>) -> Self {
        let replica = Self { address: address.to_owned(), said: Arc::default() };
        let (address, path) = (address.to_owned(), path.to_owned());
        let (said, over) = (Arc::clone(&replica.said), Arc::clone(over));
        let look = move || {
            let answer = http::get(&address, &path).filter(|answer| answer.status == 200);
            let mut said = said.lock().unwrap();
            if let Some(answer) =
                answer.filter(|it| said.last().is_none_or(|(_, last)| *last != it.body))
            {
                said.push((SystemTime::now(), answer.body));
            }
        };
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                look();
                std::thread::sleep(LOOK);
            }
        });
        replica
    }

    fn all(&self) -> Vec<(SystemTime, Value)> {
        self.said.lock().unwrap().clone()
    }

    /// When it was first so, and what was said then; until then neither of a success nor of a time that was up.
    fn first(&self, words: &str, is_so: impl Fn(&Value) -> bool) -> (SystemTime, Value) {
        let found = || self.all().iter().position(|(_, last)| is_so(last));
        let found = within(KNOWS, found)
            .unwrap_or_else(|| panic!("never {words}, by {}: {:?}", self.address, self.all()));
        let mut all = self.all();
        for (_, last) in &all[..=found] {
            assert_ne!(last["state"], "succeeded", "{}: {all:?}", self.address);
            for of_time in ["time was up", "its time is up", "took more than"] {
                assert!(!last.to_string().contains(of_time), "{}: {all:?}", self.address);
            }
        }
        all.swap_remove(found)
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Waits until an object of Kubernetes tells since when it knows, which is when: by its clock, which is to be as ours.
pub(crate) fn known(
    town: &Town,
    what: &str,
    since: impl Fn(&Value) -> Option<String>,
) -> SystemTime {
    let told = || {
        let objects = town.get(what);
        objects["items"].as_array()?.iter().find_map(&since)
    };
    let told = within(KNOWS, told).unwrap_or_else(|| panic!("{what}: {}", town.get(what)));
    told.parse::<Timestamp>().unwrap_or_else(|why| panic!("{told}: {why}")).into()
}

/// Of events: when the first was kept that says so. One of an instance says what we know, not what Kubernetes does.
pub(crate) fn event(words: &str) -> impl Fn(&Value) -> Option<String> {
    move |event| {
        let said = event["message"].as_str().is_some_and(|message| message.contains(words));
        let ours = event["involvedObject"]["kind"] == "ServiceInstance";
        (said && !ours).then(|| text(&event["metadata"]["creationTimestamp"])).flatten()
    }
}

/// Of pods and nodes: since when a condition is so.
pub(crate) fn condition(type_: &str, status: &str) -> impl Fn(&Value) -> Option<String> {
    move |object| {
        let mut conditions = object["status"]["conditions"].as_array()?.iter();
        let found = conditions.find(|it| it["type"] == type_ && it["status"] == status)?;
        text(&found["lastTransitionTime"])
    }
}

/// Of pods: when the broker's container ended.
pub(crate) fn ended(pod: &Value) -> Option<String> {
    text(&pod["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])
}

/// Of anything: since when it goes.
pub(crate) fn goes(object: &Value) -> Option<String> {
    text(&object["metadata"]["deletionTimestamp"])
}

fn has(last: &Value, words: &str) -> bool {
    last["description"].as_str().unwrap_or_default().contains(words)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
