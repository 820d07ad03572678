//! What stays known of a run, whatever becomes of its Job and its pod.

use std::time::Duration;

use engine::names::RunName;
use serde_json::json;

use super::super::seen::{Presence, SeenJob, SeenPod};
use super::super::standing::{Standing, standing};
use super::super::watch::{KnownRuns, Watched};
use super::status::{ended, installed, of, running};
use super::{MADE, REPORT, deleted, job, pod};

fn run() -> RunName {
    RunName::parse("run-1").unwrap()
}

fn newer<W>(mut it: W, version: impl FnOnce(&mut W) -> &mut u64) -> W {
    *version(&mut it) += 10;
    it
}

fn reported() -> SeenPod {
    newer(pod("a", &of("Succeeded", &installed(), &ended(0, "Completed", REPORT))), |it| {
        &mut it.version
    })
}

/// With a Job and a pod that runs.
fn known() -> KnownRuns {
    let known = KnownRuns::default();
    known.learn(job(&json!({})));
    known.learn(pod("a", &running()));
    known
}

fn stands(known: &KnownRuns) -> Standing {
    standing(&known.get(&run()), Duration::from_secs(300), MADE + 20, 0)
}

#[test]
fn what_is_older_changes_nothing() {
    let known = known();
    known.learn(reported());
    known.learn(pod("a", &running()));
    assert!(matches!(stands(&known), Standing::Reported(_)));
}

#[test]
fn a_report_outlives_its_pod_and_its_job() {
    let known = known();
    known.learn(reported());
    known.forget(deleted(reported()));
    assert!(matches!(stands(&known), Standing::Reported(_)));
    known.forget(job(&json!({})));
    assert!(matches!(stands(&known), Standing::Reported(_)));
    assert_eq!(known.jobs(), [], "nobody releases what is not there");
}

#[test]
fn the_last_that_is_heard_of_a_pod_counts() {
    let known = known();
    known.forget(deleted(reported()));
    assert!(matches!(stands(&known), Standing::Reported(_)));
}

#[test]
fn a_job_that_is_deleted_is_not_absent() {
    let known = known();
    known.forget(job(&json!({})));
    assert!(matches!(stands(&known), Standing::Going { .. }));
    known.forget(deleted(pod("a", &running())));
    assert!(matches!(stands(&known), Standing::Lost(_)), "{:?}", stands(&known));
}

#[test]
fn a_list_that_is_old_loses_no_run() {
    let known = known();
    known.finish::<SeenJob>("n", &[]);
    assert!(matches!(stands(&known), Standing::Going { .. }));
    assert!(known.get(&run()).job.unwrap().unsure);
    known.learn(job(&json!({})));
    assert!(!known.get(&run()).job.unwrap().unsure);
}

/// What happened in a namespace whose right came late, or while a watch was away, is to be looked at.
#[tokio::test]
async fn a_list_that_nobody_waited_for_says_which_jobs_are_there() {
    let known = known();
    assert_eq!(known.finish::<SeenJob>("n", &[]), [], "all are looked at after the first lists");
    assert!(known.complete(&[]).await.is_empty());
    assert_eq!(known.finish::<SeenPod>("n", &[]), [run()]);
    assert_eq!(known.finish::<SeenPod>("another", &[]), []);
}

#[test]
fn a_run_that_was_released_stays_absent_while_its_pod_goes() {
    let known = known();
    known.change(&run(), |seen| {
        let job = seen.job.as_mut().unwrap();
        (job.released, job.presence) = (Some(0), Presence::Deleted);
    });
    known.forget(job(&json!({})));
    known.learn(deleted(pod("a", &running())));
    known.learn(pod("b", &running()));
    assert_eq!(stands(&known), Standing::Absent);
    known.forget(deleted(pod("a", &running())));
    assert_eq!(stands(&known), Standing::Absent);
}

#[test]
fn one_of_the_same_name_begins_anew() {
    let known = known();
    known.learn(reported());
    known.forget(job(&json!({})));
    known.learn(job(&json!({"metadata": {"uid": "another", "resourceVersion": "90"}})));
    assert!(matches!(stands(&known), Standing::Going { .. }), "{:?}", stands(&known));
}

#[test]
fn the_oldest_pod_is_the_first() {
    let known = KnownRuns::default();
    known.learn(job(&json!({})));
    for name in ["c", "a", "b"] {
        known.learn(pod(name, &running()));
    }
    let pods = known.get(&run()).pods;
    assert_eq!(pods.iter().map(Watched::uid).collect::<Vec<_>>(), ["a", "b", "c"]);
}

#[test]
fn a_period_that_somebody_wrote_on_a_job_is_no_longer_than_an_api_server_takes() {
    let grace = |grace: u64| {
        let kept = json!({"startTimeout": grace, "grace": grace, "succeeded": 0, "failed": grace});
        let kept = json!({"metadata": {"annotations": {"manciple.dev/kept": kept.to_string()}}});
        job(&kept).periods.map(|it| [it.start_timeout, it.grace, it.succeeded, it.failed])
    };
    let most = 2_147_483_647;
    assert_eq!(grace(10), Some([10, 10, 0, 10]));
    assert_eq!(grace(u64::MAX), Some([most, most, 0, most]), "no clock counts to it");
}

/// Labels are anybody's to give.
#[test]
fn what_has_but_the_label_of_a_run_is_none_of_its_pods() {
    let forged = || newer(reported(), |it| &mut it.version);
    let in_another = || SeenPod { namespace: "another".to_owned(), ..forged() };
    for (name, forged) in [
        ("of nobody", SeenPod { job: None, ..forged() }),
        ("of another Job", SeenPod { job: Some("other".to_owned()), ..forged() }),
        ("in another namespace", in_another()),
        ("there, of nobody", SeenPod { job: None, ..in_another() }),
    ] {
        let forged = SeenPod { uid: "forged".to_owned(), ..forged };
        let known = known();
        known.learn(forged.clone());
        assert!(matches!(stands(&known), Standing::Going { .. }), "{name}: {:?}", stands(&known));
        // Heard of before the Job is.
        let late = KnownRuns::default();
        late.learn(forged);
        late.learn(pod("a", &running()));
        late.learn(job(&json!({})));
        assert!(matches!(stands(&late), Standing::Going { .. }), "{name}: {:?}", stands(&late));
        assert_eq!(late.get(&run()).pods.iter().map(Watched::uid).collect::<Vec<_>>(), ["a"]);
    }
}

/// `kubectl delete job --cascade=orphan` takes the owner away from its pods.
#[test]
fn a_pod_that_its_job_leaves_behind_stays_its_own() {
    let known = known();
    known.learn(SeenPod { job: None, ..newer(pod("a", &running()), |it| &mut it.version) });
    known.forget(job(&json!({})));
    assert_eq!(known.get(&run()).pods.len(), 1);
    assert!(matches!(stands(&known), Standing::Going { .. }), "{:?}", stands(&known));
}

#[test]
fn a_job_in_another_namespace_takes_the_place_of_none_that_is_held() {
    let other = || {
        let metadata = json!({"uid": "other", "namespace": "another", "resourceVersion": "90"});
        job(&json!({ "metadata": metadata }))
    };
    let held = |known: &KnownRuns| known.get(&run()).job.unwrap().uid;
    let known = known();
    known.learn(other());
    assert_eq!(held(&known), "job");
    known.forget(other());
    assert!(matches!(stands(&known), Standing::Going { .. }), "{:?}", stands(&known));
    // One that is done with holds no name elsewhere.
    known.change(&run(), |seen| seen.job.as_mut().unwrap().released = Some(0));
    known.learn(other());
    assert_eq!(held(&known), "other");
}
