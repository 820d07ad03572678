//! What we have done, noted before any watch tells of it: plain state. It is noted for the QuarksJob that it was done
//! for, and for no other of its name: while a call was on its way that QuarksJob may have been deleted and made anew.

use std::time::{Duration, Instant};

use engine::trigger::Outcome;

use super::job::SeenJob;
use super::pod::SeenPod;
use super::table::{Entry, Table};
use crate::quarks::api::history::had_no_job;
use crate::quarks::api::key::Key;
use crate::quarks::api::resource::Resource;

/// For how long no run is recorded where the API server refuses a record that it was to let in.
const MISLED: Duration = Duration::from_secs(30);

impl Table {
    fn change_own(&mut self, of: &Resource, change: impl FnOnce(&mut Entry)) {
        self.change(&of.key(), |entry| {
            if entry.resource.as_ref().is_some_and(|known| known.uid == of.uid) {
                change(entry);
            }
        });
    }

    /// Notes that we have recorded a run.
    pub(crate) fn recorded(&mut self, of: &Resource, run: u64) {
        self.change_own(of, |entry| {
            entry.recorded.insert(run);
        });
    }

    /// Notes whether the API server refuses the record, and why, by what it said last.
    pub(crate) fn note_record(&mut self, of: &Resource, refused: Option<&str>) {
        self.change_own(of, |entry| {
            let was_let_in = std::mem::take(&mut entry.let_in);
            let misled = refused.filter(|_| was_let_in).map(|why| (Instant::now(), why.into()));
            (entry.refused, entry.misled) = (refused.is_some(), misled);
        });
    }

    /// Notes that the API server would let the record in.
    pub(crate) fn note_let_in(&mut self, of: &Resource) {
        self.change_own(of, |entry| (entry.refused, entry.let_in) = (false, true));
    }

    /// Why no run is recorded for a while, and for how long: a webhook or a limit that is not asked without a write
    /// refuses the record, and to try at once again would open and close the status again and again.
    pub(crate) fn misled(&self, key: &Key) -> Option<(&str, Duration)> {
        let (since, why) = self.get(key)?.misled.as_ref()?;
        let left = MISLED.checked_sub(since.elapsed())?;
        Some((why, left))
    }

    /// Forgets which runs we have recorded: another leader may have carried them out.
    pub(crate) fn others_may_have_acted(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.recorded.clear());
    }

    pub(crate) fn was_recorded_here(&self, of: &Resource, run: u64) -> bool {
        let entry = self.get(&of.key());
        let entry = entry.filter(|it| it.resource.as_ref().is_some_and(|it| it.uid == of.uid));
        entry.is_some_and(|entry| entry.recorded.contains(&run))
    }

    /// Notes the outcome of a run whose output is kept, or which has failed without any.
    pub(crate) fn kept(&mut self, of: &Resource, run: u64, outcome: Outcome) {
        self.change_own(of, |entry| {
            if had_no_job(&outcome) {
                entry.tried.insert(run, of.digest().into());
            }
            entry.kept.insert(run, outcome);
        });
    }

    /// Notes that the API server refused the output of a run, if that is not noted yet.
    pub(crate) fn note_refusal(&mut self, of: &Resource, run: u64, now: Instant) {
        self.change_own(of, |entry| {
            entry.unkept.entry(run).or_insert(now);
        });
    }

    /// Clears that note: what failed now is something else, and may go better at once.
    pub(crate) fn clear_refusal(&mut self, of: &Resource, run: u64) {
        self.change_own(of, |entry| {
            entry.unkept.remove(&run);
        });
    }

    /// Notes that Kubernetes was told to remove a Job some time after its end.
    pub(crate) fn expires(&mut self, key: &Key, job: &SeenJob) {
        self.change_job(key, job, |job| job.expires = true);
    }

    /// Notes that Kubernetes was told to end the pods of a Job.
    pub(crate) fn ends(&mut self, key: &Key, job: &SeenJob) {
        self.change_job(key, job, |job| job.told = true);
    }

    /// Notes that a Job is being deleted.
    pub(crate) fn goes(&mut self, key: &Key, job: &SeenJob) {
        self.change_job(key, job, |job| job.deleting = true);
    }

    /// When the removal of a run's Job was last not answered; `None`: it was, or was not tried.
    pub(crate) fn unanswered(&self, key: &Key, run: u64) -> Option<Instant> {
        self.get(key)?.unanswered.get(&run).copied()
    }

    /// Notes that the removal of a run's Job was tried; `unanswered`: not answered, at this time.
    pub(crate) fn note_removal(&mut self, key: &Key, run: u64, unanswered: Option<Instant>) {
        self.change(key, |entry| {
            let jobs = &entry.jobs;
            entry.unanswered.retain(|run, _| jobs.contains_key(run));
            match unanswered {
                Some(at) => entry.unanswered.insert(run, at),
                None => entry.unanswered.remove(&run),
            };
        });
    }

    /// Takes the pods, as they are now, of a Job whose run is over.
    pub(crate) fn outlasted_by(&mut self, key: &Key, job: &SeenJob, pods: &[SeenPod]) {
        self.change_job(key, job, |job| {
            job.outlasted = false;
            job.note_after(pods);
        });
    }

    fn change_job(&mut self, key: &Key, job: &SeenJob, change: impl FnOnce(&mut SeenJob)) {
        self.change(key, |entry| {
            if let Some(known) = entry.jobs.get_mut(&job.run).filter(|it| it.uid == job.uid) {
                change(known);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::trigger::RunProgress;
    use k8s_openapi::api::batch::v1::Job;
    use kube::api::DynamicObject;
    use serde_json::{Value, json};

    use super::*;
    use crate::conditions::JobEnd;
    use crate::quarks::api::dialect::Dialect;
    use crate::quarks::job::retention::Disposal;
    use crate::quarks::tests::{self, pod};

    /// One of this uid, which keeps one Job, with these runs behind it.
    fn resource(uid: &str, version: u32, history: &Value) -> Resource {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
            "metadata": {"name": "a", "namespace": "n", "uid": uid, "resourceVersion": version.to_string()},
            "spec": {"successfulJobsHistoryLimit": 1}, "status": {"history": history},
        }))
        .unwrap();
        Resource::of(Dialect::QuarksJob, &object).unwrap()
    }

    /// The Job of its first run, of this uid.
    fn job(owner: &str, uid: &str) -> SeenJob {
        let job: Job = serde_json::from_value(tests::job(owner, uid)).unwrap();
        SeenJob::of(&job).unwrap()
    }

    #[test]
    fn what_was_done_for_one_is_nothing_of_another_that_was_made_anew_under_its_name() {
        for (name, now, is_noted) in [("it is there", "first", true), ("anew", "second", false)] {
            let mut table = Table::new(2, b"key");
            let first = resource("first", 1, &json!([]));
            table.learn(resource(now, 2, &json!([])));
            let (key, job) = (first.key(), job(now, &format!("job-of-{now}")));
            table.learn_job(job.clone());
            let before = SeenJob { uid: "job-of-first".into(), ..job };
            table.recorded(&first, 1);
            table.kept(&first, 1, Outcome::completed());
            table.expires(&key, &before);
            table.goes(&key, &before);
            let entry = table.get(&key).unwrap();
            let noted = [
                entry.recorded.contains(&1),
                entry.kept.contains_key(&1),
                entry.jobs[&1].expires,
                entry.jobs[&1].deleting,
                table.was_recorded_here(&first, 1),
            ];
            assert_eq!(noted, [is_noted; 5], "{name}");
        }
    }

    #[test]
    fn what_is_not_let_in_for_a_while_gives_its_place_to_another() {
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        let now = jiff::Timestamp::UNIX_EPOCH;
        for (name, refused, fails_else, expected) in [
            ("never tried", None, false, RunProgress::Ended),
            ("just now", ago(1), false, RunProgress::Ended),
            ("for a while", ago(31), false, RunProgress::Unkept),
            ("and then it failed in another way", ago(31), true, RunProgress::Ended),
        ] {
            let mut table = Table::new(2, b"key");
            let (first, mut job) = (resource("u", 1, &json!([])), job("u", "j"));
            job.end = Some(JobEnd::Complete);
            table.learn(resource("u", 1, &json!([])));
            table.learn_job(job);
            for at in refused.into_iter().chain(refused.map(|_| Instant::now())) {
                table.note_refusal(&first, 1, at);
            }
            if fails_else {
                table.clear_refusal(&first, 1);
            }
            let look = table.look(&first.key(), Duration::ZERO, now).unwrap();
            assert_eq!(look.state.runs[&1], expected, "{name}");
        }
    }

    #[test]
    fn a_job_does_not_go_for_a_pod_that_was_only_heard_of_late() {
        let ended = json!([{"id": 1, "trigger": "now", "job": "a-1", "succeeded": true, "reason": "Completed"}]);
        for (name, code, expected) in
            [("it has ended", Some(0), None), ("it goes on", None, Some(Disposal::TakesPods))]
        {
            let mut table = Table::new(2, b"key");
            let (key, job) = (resource("u", 1, &json!([])).key(), job("u", "j"));
            table.learn(resource("u", 1, &json!([])));
            table.learn_job(job.clone());
            table.learn_pod(pod(&[("c", None)], None));
            table.learn(resource("u", 2, &ended));
            assert_eq!(
                table.disposal(&key, 1),
                Some(Disposal::TakesPods),
                "{name}, as it was heard"
            );
            table.outlasted_by(&key, &job, &[pod(&[("c", code)], None)]);
            assert_eq!(table.disposal(&key, 1), expected, "{name}");
        }
    }
}
