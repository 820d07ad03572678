//! How many pods a Job wants, and what its pods say of its end where a container was put into them that goes on.
//!
//! Kubernetes counts a pod when its last container has ended, and a mesh's proxy never ends. So a run is over when as
//! many pods as the Job asks for have done the work of their template. While some are missing, Kubernetes is told to
//! have one more pod at once for each that is done and lingers. All of that is decided by what is seen.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};

use super::indexes::Indexes;
use super::pod::SeenPod;

/// The annotation of a Job with how many pods go on at once by the template: the Job may be told otherwise.
pub(crate) const PARALLELISM: &str = "manciple.dev/parallelism";

/// The controller that makes the pods of a Job, unless its spec names another.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// How many pods a Job wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// How many pods are to succeed; `None`: they share their work, and the Job is done when all have ended.
    completions: Option<u32>,
    /// How many pods go on at once.
    parallelism: u32,
    /// How many go on at once by the template, if that is noted.
    planned: Option<u32>,
    /// `suspend` is true: somebody has stopped the Job.
    suspended: bool,
    /// Its pods are made by somebody else's controller, maybe in another cluster.
    pub(crate) is_anothers: bool,
    /// How many pods there are and were, once Kubernetes has counted a success: where pods share their work it makes no
    /// others then.
    made: Option<u32>,
    /// What an indexed Job says of the numbers of its pods.
    indexes: Indexes,
}

impl Wants {
    /// Reads what a Job wants from its spec, status and annotations.
    pub(crate) fn of(
        spec: &JobSpec,
        status: Option<&JobStatus>,
        annotations: Option<&BTreeMap<String, String>>,
    ) -> Self {
        let count = |number: Option<i32>| number.and_then(|it| u32::try_from(it).ok());
        let made = status.filter(|it| count(it.succeeded) > Some(0)).map(|it| {
            let counted = [it.active, it.succeeded, it.failed].map(count);
            let ended = it.uncounted_terminated_pods.as_ref();
            let uncounted = ended
                .map(|it| [&it.succeeded, &it.failed].map(|uids| uids.iter().flatten().count()));
            let uncounted: usize = uncounted.into_iter().flatten().sum();
            let counted: u32 = counted.into_iter().flatten().sum();
            counted.saturating_add(u32::try_from(uncounted).unwrap_or(u32::MAX))
        });
        Self {
            made,
            completions: count(spec.completions),
            parallelism: count(spec.parallelism).unwrap_or(1),
            planned: annotations.and_then(|all| all.get(PARALLELISM)?.parse().ok()),
            suspended: spec.suspend == Some(true),
            indexes: Indexes::of(spec, status),
            is_anothers: spec.managed_by.as_deref().is_some_and(|by| by != JOB_CONTROLLER),
        }
    }

    /// Whether its pods say that the Job has succeeded (`true`) or failed (`false`); `None`: they say neither, and
    /// Kubernetes decides.
    pub(crate) fn end<'p>(&self, pods: impl Iterator<Item = &'p SeenPod>) -> Option<bool> {
        let (mut over, mut well, mut all, mut hangs) = (0_u32, 0_u32, 0_u32, false);
        let mut done = BTreeSet::new();
        for pod in pods {
            all += u32::from(pod.is_over() || !pod.gone);
            over += u32::from(pod.is_over());
            // A pod that ends with 0 because it was told to end has done nothing; if Kubernetes counts it all the same,
            // it says so itself.
            well += u32::from(pod.did_its_work());
            done.extend(pod.index.filter(|_| pod.did_its_work()));
            // Kubernetes would wait for such a pod, and try no other.
            hangs |= pod.lingers() && !pod.has_succeeded();
        }
        let is_done = match self.completions {
            _ if self.indexes.are_enough(&done) => true,
            Some(completions) => well >= completions.max(1),
            // A pod that failed before any has succeeded is replaced, by one that may not be seen yet.
            None => {
                let none_is_replaced = self.made.is_some_and(|made| over >= made);
                well > 0 && over == all && (well >= self.parallelism || none_is_replaced)
            }
        };
        // The other pods have done their work, and these never will.
        let is_given_up = self.indexes.failed > 0
            && self.completions.is_some_and(|all| well.saturating_add(self.indexes.failed) >= all);
        (is_done || hangs || is_given_up).then_some(is_done)
    }

    /// What in its spec keeps the Job from beginning, for people.
    pub(crate) fn stopped(&self) -> Option<&'static str> {
        match self.parallelism {
            _ if self.suspended => Some("suspend is true"),
            0 => Some("parallelism is 0"),
            _ => None,
        }
    }

    /// How many pods are to go on at once, if that is more than now: one more for each that is done and lingers.
    pub(crate) fn more<'p>(&self, pods: impl Iterator<Item = &'p SeenPod>) -> Option<u32> {
        let lingering = pods.filter(|pod| pod.has_succeeded() && pod.lingers()).count();
        let lingering = u32::try_from(lingering).unwrap_or(u32::MAX);
        let wanted = self.planned?.saturating_add(lingering).min(self.completions?);
        // If `parallelism` is 0, somebody has stopped the Job.
        (lingering > 0 && self.parallelism > 0 && wanted > self.parallelism).then_some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::quarks::tests::pod;

    fn wants(spec: Value, planned: Option<&str>) -> Wants {
        counted(spec, planned, &json!({}))
    }

    fn counted(spec: Value, planned: Option<&str>, status: &Value) -> Wants {
        let spec = serde_json::from_value(spec).unwrap();
        let status: JobStatus = serde_json::from_value(status.clone()).unwrap();
        let noted = planned.map(|it| BTreeMap::from([(PARALLELISM.to_owned(), it.to_owned())]));
        Wants::of(&spec, Some(&status), noted.as_ref())
    }

    /// One for each letter: it goes on, is gone, is done, is done and lingers, failed, failed and lingers.
    fn pods(letters: &str) -> Vec<SeenPod> {
        let of = |letter| match letter {
            'g' => pod(&[("c", None)], None),
            'x' => SeenPod { gone: true, ..pod(&[("c", None)], None) },
            'd' => pod(&[("c", Some(0))], None),
            'l' => pod(&[("c", Some(0)), ("mesh", None)], None),
            'f' => pod(&[("c", Some(1))], None),
            'h' => pod(&[("c", Some(1)), ("mesh", None)], None),
            other => panic!("{other}"),
        };
        letters.chars().map(of).collect()
    }

    fn spec(completions: Option<i32>, parallelism: i32) -> Value {
        json!({"completions": completions, "parallelism": parallelism, "template": {}})
    }

    #[test]
    fn a_run_is_over_when_as_many_pods_are_done_as_its_job_wants() {
        let (well, badly) = (Some(true), Some(false));
        for (name, completions, parallelism, letters, end) in [
            ("one that goes on", Some(1), 1, "g", None),
            ("one is done", Some(1), 1, "d", well),
            ("one is done, and lingers", Some(1), 1, "l", well),
            ("Kubernetes tries another", Some(1), 1, "f", None),
            ("it tried, and that is done", Some(1), 1, "fd", well),
            ("it would wait for what lingers", Some(1), 1, "h", badly),
            ("two of three", Some(3), 2, "dl", None),
            ("three of three, whatever lingers", Some(3), 2, "dll", well),
            ("more than were asked for", Some(2), 2, "ddd", well),
            ("one of several hangs", Some(3), 2, "lhg", badly),
            ("one of several failed", Some(3), 2, "lfg", None),
            ("several of one piece of work: one is done", None, 3, "dgg", None),
            ("all are, and linger", None, 3, "lll", well),
            ("one failed: another may take its place", None, 3, "lfd", None),
            ("one took the place of one that failed, and goes on", None, 2, "dfg", None),
            ("the same, and it is not seen yet", None, 2, "df", None),
            ("all are, and one that failed was replaced", None, 2, "dfl", well),
            ("one was taken away, and others took its place", None, 2, "xld", well),
            ("more than go on at once, and one of them does", None, 2, "ddg", None),
            ("none of them is done", None, 2, "ff", None),
            ("nothing is said of how many", None, 1, "l", well),
            ("stopped before it began", Some(1), 0, "", None),
            ("the same of one piece of work", None, 0, "", None),
        ] {
            let pods = pods(letters);
            assert_eq!(wants(spec(completions, parallelism), None).end(pods.iter()), end, "{name}");
        }
    }

    #[test]
    fn pods_that_share_their_work_are_none_more_once_kubernetes_has_counted_a_success() {
        for (name, parallelism, letters, status, end) in [
            ("nothing is counted", 2, "lf", json!({"active": 1, "failed": 1}), None),
            ("all are seen", 2, "df", json!({"succeeded": 1, "failed": 1}), Some(true)),
            (
                "one lingers",
                3,
                "lfd",
                json!({"active": 1, "succeeded": 1, "failed": 1}),
                Some(true),
            ),
            ("one goes on", 2, "dfg", json!({"active": 1, "succeeded": 1, "failed": 1}), None),
            (
                "one is not seen yet",
                2,
                "df",
                json!({"active": 1, "succeeded": 1, "failed": 1}),
                None,
            ),
            (
                "one is not seen yet, and one not counted",
                2,
                "df",
                json!({"active": 1, "succeeded": 1, "uncountedTerminatedPods": {"failed": ["u"]}}),
                None,
            ),
        ] {
            let wants = counted(spec(None, parallelism), None, &status);
            assert_eq!(wants.end(pods(letters).iter()), end, "{name}");
        }
    }

    /// Pods that are done and linger have the number of their place among these.
    #[test]
    fn a_run_whose_pods_have_numbers_is_over_when_what_is_enough_is_done_or_the_rest_is_given_up() {
        let leader = json!({"rules": [{"succeededIndexes": "0"}]});
        for (name, policy, failed, letters, end) in [
            ("all are to be done", Value::Null, "", "lg", None),
            ("the leader is, and lingers", leader.clone(), "", "lgg", Some(true)),
            ("another is", leader.clone(), "", "gl", None),
            ("one is given up, and two linger", Value::Null, "2", "ll", Some(false)),
            ("one is given up, and one goes on", Value::Null, "2", "lg", None),
            ("the leader is done, and another given up", leader, "1", "l", Some(true)),
        ] {
            let mut spec = spec(Some(3), 3);
            spec["completionMode"] = json!("Indexed");
            if !policy.is_null() {
                spec["successPolicy"] = policy;
            }
            let wants = counted(spec, None, &json!({"failedIndexes": failed}));
            let mut pods = pods(letters);
            for (index, pod) in (0..).zip(&mut pods) {
                pod.index = Some(index);
            }
            assert_eq!(wants.end(pods.iter()), end, "{name}");
        }
    }

    #[test]
    fn what_ended_well_because_it_was_told_to_has_not_done_its_work() {
        for (name, letters, deletion, is_done) in [
            ("by itself", "d", None, true),
            ("by itself, and a mesh goes on", "l", None, true),
            ("told to", "d", Some(100), false),
            ("it failed", "f", None, false),
            ("it goes on", "g", None, false),
        ] {
            let mut pods = pods(letters);
            pods[0].deletion = deletion;
            let end = wants(spec(Some(1), 1), None).end(pods.iter());
            assert_eq!(end == Some(true), is_done, "{name}");
        }
    }

    #[test]
    fn one_that_lingers_gives_its_place_to_another() {
        for (name, completions, parallelism, planned, letters, more) in [
            ("nothing lingers", Some(3), 1, Some("1"), "dg", None),
            ("one does", Some(3), 1, Some("1"), "l", Some(2)),
            ("its place is taken", Some(3), 2, Some("1"), "lg", None),
            ("a further one", Some(3), 2, Some("1"), "ll", Some(3)),
            ("no more than are wanted", Some(3), 3, Some("2"), "lll", None),
            ("two at once", Some(9), 2, Some("2"), "ll", Some(4)),
            ("beside what has ended", Some(9), 2, Some("2"), "ddl", Some(3)),
            ("one that hangs has no place to give", Some(3), 1, Some("1"), "h", None),
            ("a Job of one", Some(1), 1, Some("1"), "l", None),
            ("one piece of work", None, 2, Some("2"), "l", None),
            ("of a version that noted nothing", Some(3), 1, None, "l", None),
            ("somebody noted nonsense", Some(3), 1, Some("x"), "l", None),
            ("somebody stopped it", Some(3), 0, Some("1"), "l", None),
            ("somebody wants more", Some(9), 5, Some("1"), "l", None),
        ] {
            let pods = pods(letters);
            let wants = wants(spec(completions, parallelism), planned);
            assert_eq!(wants.more(pods.iter()), more, "{name}");
        }
    }
}
