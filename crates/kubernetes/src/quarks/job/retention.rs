//! What becomes of the Jobs of runs that have ended.
//!
//! As with the original, a Job that has succeeded is deleted and leaves its pods behind, and one that has failed stays.
//! With a limit, named as that of a CronJob, that many successful or failed Jobs are kept, and pods are deleted with
//! their Job.

use std::collections::BTreeMap;

use engine::trigger::{LOST, REPLACED};

use crate::conditions::JobEnd;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::job::SeenJob;

/// By how many seconds a Job has to be made after the end of its run to be a late one: clocks differ by less.
const CLOCKS: i64 = 5;

/// What is done with a Job whose run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposal {
    /// It is deleted, and its pods stay.
    LeavesPods,
    /// It is deleted together with its pods.
    TakesPods,
    /// It stays, and what goes on in its pods is ended.
    Ends,
    /// It stays for this number of seconds after its end, as its template says.
    Expires(u64),
}

/// What is to be done with the Jobs of runs that have ended, by run.
pub(crate) fn disposals(
    resource: &Resource,
    jobs: &BTreeMap<u64, SeenJob>,
) -> BTreeMap<u64, Disposal> {
    let mut disposals = BTreeMap::new();
    let (mut successful, mut failed) = (0, 0);
    for (run, job) in jobs.iter().rev() {
        if is_late(resource, job) {
            disposals.extend((!job.deleting).then_some((*run, Disposal::TakesPods)));
            continue;
        }
        let Some((succeeded, unwanted)) = ended(resource, job) else { continue };
        let (limit, place) = match succeeded {
            true => (resource.limits.successful, &mut successful),
            false => (resource.limits.failed, &mut failed),
        };
        // A Job that is deleted in any case does not count.
        *place += u64::from(!unwanted);
        let exceeds = limit.is_some_and(|limit| *place > limit);
        let disposal = match succeeded {
            _ if unwanted || exceeds => Disposal::TakesPods,
            // A container that was put into its pod goes on: nobody else would end it.
            true if job.goes_on() => Disposal::TakesPods,
            true if limit.is_some() => match expires(resource, job) {
                Some(disposal) => disposal,
                None => continue,
            },
            // Until Kubernetes has said that the Job has ended, it replaces a pod that is deleted; and whoever sees
            // that the Job is gone is to find no pods.
            true if job.takes_pods && !job.has_ended() => continue,
            true if job.takes_pods => Disposal::TakesPods,
            true => Disposal::LeavesPods,
            false if job.goes_on() && job.end.is_none() => match job.told {
                false => Disposal::Ends,
                true => continue,
            },
            false => match expires(resource, job) {
                Some(disposal) => disposal,
                None => continue,
            },
        };
        if !job.deleting {
            disposals.insert(*run, disposal);
        }
    }
    disposals
}

/// Whether the run of the Job was carried out by another Job: the call that made this one took effect after somebody
/// else had begun the run, ended it and removed that Job. Whatever became of the run, this Job would do its work again.
fn is_late(resource: &Resource, job: &SeenJob) -> bool {
    let ended = resource.ended(job.run);
    ended.is_some_and(|run| {
        let at = |time: &str| Some(time.parse::<jiff::Timestamp>().ok()?.as_second());
        let (began, ended) = (at(&run.started_at), at(&run.ended_at));
        // By a clock that was set back meanwhile the run ended before it began, and nothing follows from that.
        let counts = |ended: &i64| began.is_none_or(|began| began <= *ended);
        let ended = ended.filter(counts);
        job.late || ended.is_some_and(|at| job.created > at.saturating_add(CLOCKS))
    })
}

/// The disposal of a Job that stays for some time. The Job is told of it only once its run is settled: else it could be
/// gone before its output is kept.
fn expires(resource: &Resource, job: &SeenJob) -> Option<Disposal> {
    if job.expires || job.deleting {
        return None;
    }
    // A Job without this note was begun by a template without it, unless that is the present one.
    let of_this = || resource.ttl.filter(|_| job.noted.is_by(resource.digest()));
    job.noted.stays.or_else(of_this).map(Disposal::Expires)
}

/// Whether the run of a Job has succeeded, and whether it is to have no Job any more; `None`: it has not ended. If it
/// is so long ago that the history no longer has the run, its Job says how it ended.
///
/// A Job that is there though its run was lost has come late: the call that made it took effect after its answer was
/// given up, and somebody had deleted the first Job.
fn ended(resource: &Resource, job: &SeenJob) -> Option<(bool, bool)> {
    if let Some(run) = resource.ended(job.run) {
        let unwanted = [REPLACED, LOST].contains(&run.outcome.reason.as_str());
        return Some((run.outcome.succeeded, unwanted));
    }
    let oldest = resource.status.history.last().map_or(0, |run| run.id);
    let is_known = resource.is_open(job.run) || job.run >= oldest;
    let end = job.end.as_ref().filter(|_| !is_known)?;
    Some((*end == JobEnd::Complete, false))
}

#[cfg(test)]
mod tests {
    use engine::trigger::JobRecord;
    use kube::api::{DynamicObject, ObjectMeta};
    use serde_json::{Value, json};

    use super::*;
    use crate::quarks::api::dialect::Dialect;
    use crate::quarks::api::noted::Noted;
    use crate::quarks::state::wants::Wants;

    /// One with these limits, whose runs ended so; from 1.
    fn resource(spec: Value, ends: &[&str]) -> Resource {
        let history: Vec<Value> = ends
            .iter()
            .enumerate()
            .map(|(place, reason)| {
                let succeeded = *reason == "Completed";
                json!({
                    "id": place + 1, "trigger": "now", "job": "j", "succeeded": succeeded, "reason": reason,
                    "endedAt": "1970-01-01T00:01:40Z",
                })
            })
            .rev()
            .collect();
        let object = json!({
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
            "spec": spec, "status": {"history": history},
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let mut resource = Resource::of(Dialect::QuarksJob, &object).unwrap();
        resource.record = JobRecord { last: ends.len() as u64, ..JobRecord::default() };
        resource
    }

    fn job(run: u64, end: Option<JobEnd>) -> SeenJob {
        SeenJob {
            namespace: "n".into(),
            name: format!("a-{run}").into(),
            uid: format!("u-{run}").into(),
            version: 1,
            created: 0,
            dialect: Dialect::QuarksJob,
            owner: "u".into(),
            owner_name: "a".into(),
            shared: false,
            run,
            end,
            winds_up: false,
            due_at: None,
            reminded: None,
            wants: Wants::default(),
            noted: Noted::default(),
            deleting: false,
            unsure: false,
            late: false,
            takes_pods: false,
            lingers: false,
            outlasted: false,
            told: false,
            expires: false,
        }
    }

    fn failed_for(reason: &str) -> JobEnd {
        JobEnd::Failed { reason: reason.to_owned(), message: String::new(), at: 0 }
    }

    fn jobs(count: u64) -> BTreeMap<u64, SeenJob> {
        (1..=count).map(|run| (run, job(run, Some(JobEnd::Complete)))).collect()
    }

    const ENDS: [&str; 5] = ["Completed", "Failed", "Completed", "Failed", "Completed"];

    #[test]
    fn so_many_are_kept_as_the_limits_say() {
        use Disposal::{LeavesPods, TakesPods};
        for (name, spec, expected) in [
            ("none", json!({}), vec![(1, LeavesPods), (3, LeavesPods), (5, LeavesPods)]),
            ("two that succeeded", json!({"successfulJobsHistoryLimit": 2}), vec![(1, TakesPods)]),
            (
                "none that succeeded",
                json!({"successfulJobsHistoryLimit": 0}),
                vec![(1, TakesPods), (3, TakesPods), (5, TakesPods)],
            ),
            (
                "one of each",
                json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}),
                vec![(1, TakesPods), (2, TakesPods), (3, TakesPods)],
            ),
            (
                "no number",
                json!({"successfulJobsHistoryLimit": "x", "failedJobsHistoryLimit": -1}),
                vec![(1, LeavesPods), (3, LeavesPods), (5, LeavesPods)],
            ),
        ] {
            let found = disposals(&resource(spec, &ENDS), &jobs(5));
            assert_eq!(found.into_iter().collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn what_goes_on_or_is_on_its_way_is_left_alone() {
        let mut jobs = jobs(6);
        assert_eq!(disposals(&resource(json!({}), &ENDS), &jobs).get(&6), None, "it goes on");
        jobs.get_mut(&5).unwrap().deleting = true;
        assert_eq!(disposals(&resource(json!({}), &ENDS), &jobs).get(&5), None);
    }

    #[test]
    fn a_pod_that_goes_on_after_its_run_is_ended_unless_it_was_only_seen_late() {
        use Disposal::{Ends, LeavesPods, TakesPods};
        let kept = json!({"successfulJobsHistoryLimit": 9});
        let failed = || Some(failed_for("BackoffLimitExceeded"));
        for (name, run, spec, end, expected) in [
            ("it is tried again", 5, json!({}), None, Some(TakesPods)),
            ("it is tried again, and kept", 5, kept.clone(), None, Some(TakesPods)),
            ("seen late", 5, json!({}), Some(JobEnd::Complete), Some(LeavesPods)),
            ("seen late, and kept", 5, kept, Some(JobEnd::Complete), None),
            ("it failed, and goes on", 4, json!({}), None, Some(Ends)),
            ("it failed", 4, json!({}), failed(), None),
        ] {
            let mut jobs = jobs(5);
            let job = jobs.get_mut(&run).unwrap();
            (job.outlasted, job.end) = (true, end);
            assert_eq!(
                disposals(&resource(spec, &ENDS), &jobs).get(&run),
                expected.as_ref(),
                "{name}"
            );
        }
    }

    #[test]
    fn pods_go_with_a_job_once_kubernetes_has_said_that_it_has_ended() {
        use Disposal::TakesPods;
        let complete = Some(JobEnd::Complete);
        for (name, end, winds_up, lingers, expected) in [
            ("nothing is said yet", None, false, false, None),
            ("it is about to be said", complete.clone(), true, false, None),
            ("it is said", complete, false, false, Some(TakesPods)),
            ("something goes on in it", None, false, true, Some(TakesPods)),
        ] {
            let mut jobs = jobs(5);
            let job = jobs.get_mut(&5).unwrap();
            (job.takes_pods, job.end, job.winds_up, job.lingers) = (true, end, winds_up, lingers);
            let found = disposals(&resource(json!({}), &ENDS), &jobs);
            assert_eq!(found.get(&5), expected.as_ref(), "{name}");
        }
    }

    #[test]
    fn what_was_put_into_a_pod_does_not_outlive_its_run() {
        let mut jobs = jobs(5);
        for run in [4, 5] {
            let job = jobs.get_mut(&run).unwrap();
            (job.lingers, job.end) = (true, None);
        }
        for spec in [json!({}), json!({"successfulJobsHistoryLimit": 9})] {
            let found = disposals(&resource(spec, &ENDS), &jobs);
            assert_eq!(found.get(&4), Some(&Disposal::Ends));
            assert_eq!(found.get(&5), Some(&Disposal::TakesPods));
        }
        jobs.get_mut(&4).unwrap().told = true;
        assert_eq!(disposals(&resource(json!({}), &ENDS), &jobs).get(&4), None, "it is told once");
        let limited = resource(json!({"failedJobsHistoryLimit": 0}), &ENDS);
        assert_eq!(disposals(&limited, &jobs).get(&4), Some(&Disposal::TakesPods), "and may go");
    }

    #[test]
    fn what_stays_is_told_once_how_long_as_the_template_that_it_was_made_by_says() {
        let spec = json!({"template": {"spec": {"ttlSecondsAfterFinished": 60}}});
        let resource = resource(spec, &ENDS);
        let mut jobs = jobs(5);
        let told = |jobs: &BTreeMap<u64, SeenJob>| -> Vec<u64> {
            let found = disposals(&resource, jobs).into_iter();
            found.filter(|(_, it)| *it == Disposal::Expires(60)).map(|(run, _)| run).collect()
        };
        assert_eq!(told(&jobs), [2, 4], "those that have failed");
        jobs.get_mut(&2).unwrap().expires = true;
        assert_eq!(told(&jobs), [4]);
        let other: ObjectMeta =
            serde_json::from_value(json!({"annotations": {"manciple.dev/spec": "x"}})).unwrap();
        jobs.get_mut(&4).unwrap().noted = Noted::of(&other);
        assert_eq!(told(&jobs), [0; 0], "of another template");
        let annotations = json!({"manciple.dev/spec": "x", "manciple.dev/ttl": "60"});
        let other: ObjectMeta =
            serde_json::from_value(json!({"annotations": annotations})).unwrap();
        jobs.get_mut(&4).unwrap().noted = Noted::of(&other);
        assert_eq!(told(&jobs), [4], "of another, which said the same");
    }

    #[test]
    fn one_that_another_replaced_goes_with_its_pods() {
        let resource = resource(json!({}), &["Replaced", "Completed"]);
        let found = disposals(&resource, &jobs(2));
        assert_eq!(found.get(&1), Some(&Disposal::TakesPods));
    }

    #[test]
    fn one_that_another_replaced_takes_the_place_of_none_that_is_kept() {
        let spec = json!({"failedJobsHistoryLimit": 1, "successfulJobsHistoryLimit": 1});
        let found = disposals(&resource(spec, &["Failed", "Replaced", "Completed"]), &jobs(3));
        assert_eq!(found, BTreeMap::from([(2, Disposal::TakesPods)]));
    }

    #[test]
    fn one_that_comes_after_its_run_was_lost_goes_with_its_pods() {
        let resource = resource(json!({}), &["Lost", "Completed"]);
        let mut jobs = jobs(2);
        jobs.get_mut(&1).unwrap().end = None;
        assert_eq!(disposals(&resource, &jobs).get(&1), Some(&Disposal::TakesPods));
    }

    #[test]
    fn one_that_comes_after_its_run_was_carried_out_goes_with_its_pods_whatever_became_of_that() {
        let spec = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1});
        for (name, spec, run, created, late, is_taken) in [
            ("it is the one", json!({}), 1, 90, false, false),
            ("the same of one that failed", json!({}), 2, 90, false, false),
            ("clocks differ", json!({}), 1, 105, false, false),
            ("it was made after the end", json!({}), 1, 106, false, true),
            ("the same of one that failed", json!({}), 2, 106, false, true),
            ("another has been here", json!({}), 1, 100, true, true),
            ("as many are kept, and it is none of them", spec, 3, 106, false, true),
        ] {
            let mut one = job(run, None);
            (one.created, one.late) = (created, late);
            let jobs = BTreeMap::from([(run, one)]);
            let found = disposals(&resource(spec, &ENDS[..3]), &jobs);
            let takes = found.get(&run) == Some(&Disposal::TakesPods);
            assert_eq!(takes, is_taken, "{name}: {found:?}");
        }
    }

    #[test]
    fn one_that_ended_before_it_began_is_none_that_was_carried_out_by_another() {
        let mut resource = resource(json!({}), &["Failed"]);
        for (began, is_taken) in [("1970-01-01T00:01:39Z", true), ("1970-01-01T01:00:00Z", false)] {
            resource.status.history[0].started_at = began.to_owned();
            let mut one = job(1, None);
            one.created = 3_600;
            let found = disposals(&resource, &BTreeMap::from([(1, one)]));
            assert_eq!(found.get(&1) == Some(&Disposal::TakesPods), is_taken, "{began}");
        }
    }

    #[test]
    fn of_what_the_history_has_forgotten_the_job_says_how_it_ended() {
        let spec = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0});
        let mut resource = resource(spec, &ENDS);
        resource.status.history.truncate(2);
        let mut jobs = jobs(5);
        jobs.get_mut(&2).unwrap().end = Some(failed_for(""));
        let found: Vec<u64> = disposals(&resource, &jobs).into_keys().collect();
        assert_eq!(found, [1, 2, 3, 4]);
    }
}
