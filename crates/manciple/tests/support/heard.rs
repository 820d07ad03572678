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
const LOOK: Duration = Duration::from_millis(20);

/// All that `last_operation` of an instance has said since somebody listens.
pub(crate) struct Heard {
    over: Arc<AtomicBool>,
    said: Arc<Mutex<Vec<(SystemTime, Value)>>>,
    /// Apart from what is said: of a server that does not answer no time is to be taken off.
    processor: Processor,
}

impl Heard {
    /// Listens until it is dropped.
    pub(crate) fn of(server: &Served, instance: &str) -> Self {
        let (over, said) = (Arc::default(), Arc::default());
        let heard = Self { over, said, processor: Processor::now() };
        let path = format!("{}/last_operation", order::path(instance));
        let (address, said) = (server.address.clone(), Arc::clone(&heard.said));
        heard.again_and_again(move || {
            let answer = http::get(&address, &path).filter(|answer| answer.status == 200);
            let mut said = said.lock().unwrap();
            if let Some(answer) =
                answer.filter(|it| said.last().is_none_or(|(_, last)| *last != it.body))
            {
                said.push((SystemTime::now(), answer.body));
            }
        });
        heard
    }

    fn again_and_again(&self, look: impl Fn() + Send + 'static) {
        let over = Arc::clone(&self.over);
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                look();
                std::thread::sleep(LOOK);
            }
        });
    }

    /// Sees that this was said soon after Kubernetes knew of it, and until then neither of a success nor of a time that
    /// was up; gives all that was said.
    pub(crate) fn says(&self, words: &str, known: SystemTime) -> Value {
        let has = |last: &Value| last["description"].as_str().unwrap_or_default().contains(words);
        let all = || self.said.lock().unwrap().clone();
        let found = || all().iter().position(|(_, last)| has(last));
        let found = within(KNOWS, found).unwrap_or_else(|| panic!("never {words}: {:?}", all()));
        let all = all();
        for (_, last) in &all[..=found] {
            assert_ne!(last["state"], "succeeded", "{all:?}");
            for of_time in ["time was up", "its time is up", "took more than"] {
                assert!(!last.to_string().contains(of_time), "{all:?}");
            }
        }
        let (when, last) = &all[found];
        let lasted = self.processor.between(known, *when);
        println!("{words}: {lasted:?} after Kubernetes knew");
        assert!(lasted < SOON, "{words}: only after {lasted:?}: {all:?}");
        last.clone()
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

/// Of events: when the first was kept that says so.
pub(crate) fn event(words: &str) -> impl Fn(&Value) -> Option<String> {
    move |event| {
        let said = event["message"].as_str().is_some_and(|message| message.contains(words));
        said.then(|| text(&event["metadata"]["creationTimestamp"])).flatten()
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

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
