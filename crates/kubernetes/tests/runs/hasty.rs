//! What those do who change what a QuarksJob refers to faster than that settles, while its runs go on, and back to what it
//! was. How many runs that makes nobody knows: one that saw the last of it, and none that saw what another had seen
//! before.

use kube::api::DynamicObject;
use serde_json::Value;

use crate::objects::{open, record, recorded};
use crate::users::User;

/// So many changes follow one another at most: a status shows no more than ten runs.
const BURST: u64 = 3;
/// Between two of them, in milliseconds: less than what a change has to be quiet for.
const BETWEEN: u64 = 60;

/// What one has written.
#[derive(Default)]
struct Written {
    /// How many contents, each another than those before; and which is there.
    contents: u64,
    now: u64,
    /// The resource version of what was written last, and of what was written before that.
    last: u64,
    before: u64,
    /// What is recorded of the content that it has gone back to, if it has.
    back_to: Option<Value>,
    /// How many runs there were when one had seen what was written last, and how often it was written since then.
    runs: u64,
    since: u64,
}

impl Written {
    /// It was written once more, and is of this resource version now.
    fn count(&mut self, version: u64) {
        (self.before, self.last) = (self.last, version);
        self.since += 1;
    }

    /// Whether the last run saw what was written last: that is newer than all before it.
    fn is_seen(&self, name: &str, object: &DynamicObject) -> bool {
        let record = record(object);
        match &self.back_to {
            Some(references) => record["references"] == *references,
            None => {
                let seen = record["versions"][format!("configmap/{name}")].as_u64();
                seen.is_some_and(|seen| seen > self.before)
            }
        }
    }
}

impl User {
    pub(crate) async fn hasty(&mut self) {
        let mut written = Written::default();
        self.change(&mut written).await;
        self.create("once", true).await;
        for round in 1..self.rounds {
            match self.random.below(3) {
                0 => {
                    self.until_it_has_seen(&mut written, |object| open(object).is_empty()).await;
                    self.pause(400).await;
                }
                1 => {
                    let object = self.until_it_has_seen(&mut written, |_| true).await;
                    self.met += u64::from(!open(&object).is_empty());
                }
                _ => self.pause(400).await,
            }
            // The last change is one that has its run in any case: nothing older can be run for after that.
            let is_last = round + 1 == self.rounds;
            if self.random.below(3) == 0 && !is_last {
                self.there_and_back(&mut written).await;
                continue;
            }
            for _ in 0..=self.random.below(BURST) {
                self.pause(BETWEEN).await;
                self.change(&mut written).await;
            }
        }
        let object = self.until_it_has_seen(&mut written, |_| true).await;
        self.triggers = recorded(&object);
    }

    /// Writes what was never there.
    async fn change(&self, written: &mut Written) {
        let version = self.write(written.contents).await;
        written.count(version);
        (written.now, written.back_to) = (written.contents, None);
        written.contents += 1;
    }

    /// Changes it, and back to what the last run saw: whether one sees what is between nobody knows.
    async fn there_and_back(&mut self, written: &mut Written) {
        let object = self.until_it_has_seen(written, |_| true).await;
        let before = written.now;
        self.change(written).await;
        self.pause(400).await;
        let version = self.write(before).await;
        written.count(version);
        (written.now, written.back_to) = (before, Some(record(&object)["references"].clone()));
        self.backs += 1;
    }

    /// Waits until the last run saw what was written last, and this holds. Each run saw something newer than the one
    /// before it, so there are no more of them than times that it was written. Where it has gone back a run may come
    /// for what was between, by one who is behind, and another after that.
    async fn until_it_has_seen(
        &self,
        written: &mut Written,
        holds: impl Fn(&DynamicObject) -> bool,
    ) -> DynamicObject {
        let is_seen = |object: &DynamicObject| written.is_seen(&self.name, object) && holds(object);
        let object = self.until("as it was changed", is_seen).await;
        if written.back_to.is_none() {
            let all = recorded(&object);
            let (least, most) = (written.runs + written.since.min(1), written.runs + written.since);
            let may_be = (least..=most).contains(&all);
            assert!(may_be, "{}: {all} runs, not {least} to {most}, {object:#?}", self.name);
            (written.runs, written.since) = (all, 0);
        }
        object
    }
}
