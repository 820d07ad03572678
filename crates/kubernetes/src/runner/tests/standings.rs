//! Where a run stands, by its Job and its pods together.

use std::time::Duration;

use serde_json::json;

use super::super::seen::{Fence, Presence, Seen, SeenJob, SeenPod, Warning};
use super::super::standing::{Standing, standing};
use super::kinds::{
    annotated, deleted_job, failed_job, fenced_as, forgotten, killed, late_job, made, reported,
    silent, suspended, target, with_condition,
};
use super::status::{ended, failed, installed, installing, of, running, waiting, with};
use super::{MADE, REPORT, deleted, gone, pod, warning};

const START: Duration = Duration::from_secs(300);

/// In a word, and what is said of it.
fn stands(seen: &Seen, age: i64) -> (&'static str, String) {
    stands_since(seen, age, 0)
}

/// The same, where the API server was away until this time.
fn stands_since(seen: &Seen, age: i64, back: i64) -> (&'static str, String) {
    match standing(seen, START, MADE + age, back) {
        Standing::Absent => ("absent", String::new()),
        Standing::Going { said, broker: false } => ("goes on", said.unwrap_or_default()),
        Standing::Going { said, broker: true } => ("runs", said.unwrap_or_default()),
        Standing::Reported(end) => ("reported", end.message.unwrap_or_default()),
        Standing::NeverBegan(why) => ("never began", why),
        Standing::ToEnd(Fence::Lost(why)) => ("fence: lost", why),
        Standing::ToEnd(Fence::Hopeless(why)) => ("fence: hopeless", why),
        Standing::ToEnd(Fence::Cancelled) => ("fence", String::new()),
        Standing::Halted => ("halted", String::new()),
        Standing::TimedOut(why) => ("timed out", why),
        Standing::Lost(why) => ("lost", why),
    }
}

struct Case {
    name: &'static str,
    job: SeenJob,
    pods: Vec<SeenPod>,
    warning: Option<Warning>,
    age: i64,
}

fn case(name: &'static str, job: SeenJob, pods: Vec<SeenPod>) -> Case {
    Case { name, job, pods, warning: None, age: 20 }
}

fn check(cases: Vec<(Case, &str, &str)>) {
    for (Case { name, job, pods, warning, age }, expected, words) in cases {
        let seen = Seen { job: Some(job), pods, warning, ..Seen::default() };
        let (stands, said) = stands(&seen, age);
        assert_eq!(stands, expected, "{name}: {said}");
        assert!(said.starts_with(words), "{name}: {said}");
        if words.is_empty() {
            assert_eq!(said, "", "{name}");
        }
    }
}

#[test]
fn before_its_broker_begins() {
    let quota = || warning("Job", "job", "FailedCreate", "exceeded quota: few");
    let mount = || warning("Pod", "a", "FailedMount", "configmap \"c\" not found");
    let pulls = of("Pending", &installed(), &waiting("ErrImagePull", "no such host"));
    let invalid = of("Pending", &installed(), &waiting("InvalidImageName", "no"));
    check(vec![
        (Case { age: 1, ..case("just made", made(), vec![]) }, "goes on", ""),
        (case("no pod", made(), vec![]), "goes on", "Kubernetes has made no pod for it yet"),
        (
            Case { warning: quota(), age: 1, ..case("quota", made(), vec![]) },
            "goes on",
            "Kubernetes makes no pod for it: exceeded quota: few",
        ),
        (
            Case { warning: quota(), age: 301, ..case("quota, too long", made(), vec![]) },
            "fence: hopeless",
            "Kubernetes makes no pod for it: exceeded quota: few",
        ),
        (
            Case { age: 301, ..case("no pod, too long", made(), vec![]) },
            "fence: hopeless",
            "Kubernetes made no pod for it within 300 s",
        ),
        (
            Case { age: 1, ..case("suspended", suspended(), vec![]) },
            "goes on",
            "its Job is suspended",
        ),
        (
            Case { age: 301, ..case("suspended, too long", suspended(), vec![]) },
            "fence: hopeless",
            "its Job is suspended",
        ),
        (
            Case {
                warning: quota(),
                ..case("quota, mended", made(), vec![pod("a", &installing())])
            },
            "goes on",
            "",
        ),
        (
            Case { warning: mount(), ..case("mount", made(), vec![pod("a", &installing())]) },
            "goes on",
            "the pod waits for what it mounts: configmap \"c\" not found",
        ),
        (
            Case { warning: mount(), ..case("mount, mended", made(), vec![pod("a", &running())]) },
            "runs",
            "",
        ),
        (
            Case {
                warning: mount(),
                age: 301,
                ..case("mount, too long", made(), vec![pod("a", &installing())])
            },
            "fence: hopeless",
            "the pod waits for what it mounts",
        ),
        (case("image", made(), vec![pod("a", &pulls)]), "goes on", "the image cannot be pulled"),
        (
            Case { age: 301, ..case("image, too long", made(), vec![pod("a", &pulls)]) },
            "fence: hopeless",
            "the image cannot be pulled",
        ),
        (case("image's name", made(), vec![pod("a", &invalid)]), "fence: hopeless", "the name of"),
        (
            case("rejected", failed_job(), vec![pod("a", &failed("OutOfcpu", "Pod Node didn't"))]),
            "never began",
            "its pod failed: OutOfcpu",
        ),
    ]);
}

#[test]
fn while_the_api_server_was_away_nobody_could_begin() {
    let unheard = || vec![pod("a", &installing())];
    let cases: [(&str, Vec<SeenPod>, i64, i64, &str); 7] = [
        ("no pod, back just now", vec![], 400, 390, "goes on"),
        ("no pod, back for long", vec![], 691, 390, "fence: hopeless"),
        ("no pod, away before it was made", vec![], 301, -500, "fence: hopeless"),
        ("no pod, was never away", vec![], 301, -MADE, "fence: hopeless"),
        ("a pod, back just now", unheard(), 400, 390, "goes on"),
        ("a pod, back for long", unheard(), 691, 390, "fence: hopeless"),
        ("a pod whose kubelet says that it runs", vec![pod("a", &running())], 400, 390, "runs"),
    ];
    for (name, pods, age, back, expected) in cases {
        let seen = Seen { job: Some(made()), pods, ..Seen::default() };
        assert_eq!(stands_since(&seen, age, MADE + back).0, expected, "{name}");
    }
    // Its deadline was in the outage: that it had ended before nobody could say.
    for (back, expected) in [(390, "runs"), (-MADE, "lost")] {
        let job = SeenJob { until: Some(MADE + 100), ..made() };
        let seen = Seen { job: Some(job), pods: vec![pod("a", &running())], ..Seen::default() };
        assert_eq!(stands_since(&seen, 400, MADE + back).0, expected, "back after {back}");
    }
}

#[test]
fn when_its_pod_has_ended() {
    let evicted = || pod("a", &failed("Evicted", "The node was low on resource: memory."));
    check(vec![
        (case("reported", made(), vec![pod("a", &reported())]), "reported", REPORT),
        (
            case("reported, then gone", made(), vec![gone(pod("a", &reported()))]),
            "reported",
            REPORT,
        ),
        (
            case("killed", failed_job(), vec![pod("a", &killed())]),
            "lost",
            "its container ended without",
        ),
        (
            case(
                "memory",
                failed_job(),
                vec![pod("a", &of("Failed", &installed(), &ended(137, "OOMKilled", "")))],
            ),
            "lost",
            "its container ran out of memory and was killed (OOMKilled)",
        ),
        (
            case("evicted", failed_job(), vec![evicted()]),
            "lost",
            "its pod failed: Evicted: The node was low",
        ),
        (
            case("complete, pod unseen", with_condition("Complete", "", ""), vec![]),
            "lost",
            "its pod had ended well, and was deleted before its report was read",
        ),
        (
            case("failed, pod unseen", failed_job(), vec![]),
            "lost",
            "its pod had failed, and was deleted before its report was read",
        ),
        (
            case(
                "released",
                annotated("manciple.dev/released-until", "1"),
                vec![pod("a", &reported())],
            ),
            "absent",
            "",
        ),
    ]);
}

#[test]
fn when_its_pod_is_taken_away() {
    let drained = json!([{"type": "DisruptionTarget", "status": "True",
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}]);
    let lost = || fenced_as(&json!({"lost": "its pod was deleted"}));
    check(vec![
        (
            case("deleted", made(), vec![deleted(pod("a", &running()))]),
            "fence: lost",
            "its pod was deleted",
        ),
        (
            case("forced", made(), vec![gone(pod("a", &running()))]),
            "fence: lost",
            "its pod was deleted",
        ),
        (
            case(
                "1.30: evicted",
                made(),
                vec![deleted(pod("a", &with(running(), "conditions", drained)))],
            ),
            "fence: lost",
            "its pod was taken away: EvictionByEvictionAPI: Eviction API: evicting",
        ),
        (
            case("replaced", made(), vec![gone(pod("a", &running())), pod("b", &installing())]),
            "fence: lost",
            "its pod was deleted",
        ),
        (
            case(
                "replaced while nobody watched",
                made(),
                vec![deleted(pod("a", &killed())), pod("b", &running())],
            ),
            "fence: lost",
            "its pod was deleted",
        ),
        (
            case("fenced, and ends", lost(), vec![deleted(pod("a", &running()))]),
            "goes on",
            "it is being ended: its pod was deleted",
        ),
        (
            case(
                "fenced, another ends",
                lost(),
                vec![gone(pod("a", &running())), deleted(pod("b", &installing()))],
            ),
            "goes on",
            "it is being ended: its pod was deleted",
        ),
        (case("over", lost(), vec![gone(pod("a", &running()))]), "lost", "its pod was deleted"),
        (case("over, seen by another", lost(), vec![]), "lost", "its pod was deleted"),
        (case("its last word", lost(), vec![deleted(pod("a", &reported()))]), "reported", REPORT),
    ]);
}

#[test]
fn when_it_is_ended_by_us() {
    let cancelled = || fenced_as(&json!("cancelled"));
    let hopeless = || fenced_as(&json!({"hopeless": "the image cannot be pulled"}));
    let began = |pod: SeenPod| SeenPod { began: true, ..pod };
    check(vec![
        (
            case("cancelled", cancelled(), vec![deleted(pod("a", &running()))]),
            "goes on",
            "it is being ended: somebody asked for it",
        ),
        (case("halted", cancelled(), vec![gone(pod("a", &running()))]), "halted", ""),
        (case("halted, seen by another", cancelled(), vec![]), "halted", ""),
        (
            case(
                "halted, and at its deadline",
                SeenJob { end: late_job().end, ..cancelled() },
                vec![],
            ),
            "halted",
            "",
        ),
        (case("done before", cancelled(), vec![pod("a", &reported())]), "reported", REPORT),
        (
            case("hopeless", hopeless(), vec![gone(pod("a", &installing()))]),
            "never began",
            "the image cannot be pulled",
        ),
        (
            case("begun after all", hopeless(), vec![gone(began(pod("a", &installing())))]),
            "lost",
            "it began only when it was to be ended",
        ),
    ]);
}

#[test]
fn when_its_time_is_up() {
    let said = "Job was active longer than specified deadline";
    check(vec![
        (
            case("is ended", late_job(), vec![deleted(pod("a", &running()))]),
            "goes on",
            "it is being ended: its time is up",
        ),
        (case("is over", late_job(), vec![gone(pod("a", &running()))]), "timed out", said),
        (case("seen by another", late_job(), vec![]), "timed out", said),
        (
            case("never begun", late_job(), vec![gone(pod("a", &installing()))]),
            "never began",
            "its time was up before it began",
        ),
        (
            case("1.31: its pod has ended first", target(), vec![pod("a", &killed())]),
            "timed out",
            said,
        ),
        (
            case("1.31: is ended", target(), vec![deleted(pod("a", &running()))]),
            "goes on",
            "it is being ended",
        ),
        (
            Case {
                age: 600,
                ..case("gone before the Job says so", made(), vec![gone(pod("a", &running()))])
            },
            "timed out",
            said,
        ),
        (
            Case {
                age: 600,
                ..case("before the Job says so", made(), vec![deleted(pod("a", &running()))])
            },
            "runs",
            "",
        ),
    ]);
}

#[test]
fn when_its_node_is_silent() {
    let cancelled = || fenced_as(&json!("cancelled"));
    check(vec![
        (case("silent", made(), vec![silent()]), "runs", "the node node-1 is not heard of"),
        (
            case("and drained", made(), vec![deleted(silent())]),
            "fence: lost",
            "its pod was deleted",
        ),
        (
            case("and cancelled", cancelled(), vec![deleted(silent())]),
            "goes on",
            "it is being ended: somebody asked for it; the node node-1 is not heard of",
        ),
        (
            Case {
                age: 661,
                ..case("for longer than it can run", cancelled(), vec![deleted(silent())])
            },
            "lost",
            "the node node-1 is not heard of",
        ),
        (
            Case { age: 661, ..case("at its deadline", late_job(), vec![deleted(silent())]) },
            "lost",
            "the node node-1 is not heard of: its kubelet is stopped, or cut off, and the time of the run is over",
        ),
        (
            Case { age: 601, ..case("as its time is up", late_job(), vec![deleted(silent())]) },
            "goes on",
            "it is being ended: its time is up: Job was active longer than specified deadline; the node node-1 is \
             not heard of",
        ),
        (
            Case { age: 601, ..case("its pod is gone", late_job(), vec![gone(silent())]) },
            "timed out",
            "Job was active longer than specified deadline",
        ),
    ]);
}

#[test]
fn when_a_kubelet_does_not_take_up_what_its_node_was_given() {
    let given = || pod("a", &json!({"phase": "Pending"}));
    let taken = || pod("a", &json!({"phase": "Pending", "startTime": "2026-11-21T18:00:01Z"}));
    let unplaced = || SeenPod { node: None, unheard: false, ..given() };
    let silence = "the node node-1 has not said a word of its pod";
    check(vec![
        (Case { age: 5, ..case("at first", made(), vec![given()]) }, "goes on", ""),
        (case("for longer", made(), vec![given()]), "goes on", silence),
        (case("it took it", made(), vec![taken()]), "goes on", ""),
        (
            Case { age: 31, ..case("it took it, and says no more", made(), vec![taken()]) },
            "goes on",
            "the node node-1 makes its pod for more than 30 s, and says no more",
        ),
        (case("no node yet", made(), vec![unplaced()]), "goes on", ""),
        (
            Case { age: 301, ..case("for too long", made(), vec![given()]) },
            "fence: hopeless",
            "its pod did not begin within 300 s; the node node-1 has not said a word of its pod",
        ),
    ]);
}

#[test]
fn when_its_job_is_deleted() {
    let deleting = || SeenJob { presence: Presence::Deleting, ..made() };
    check(vec![
        (
            case("pod goes on", deleted_job(), vec![pod("a", &running())]),
            "runs",
            "its Job was deleted, and its pod goes on",
        ),
        (
            case("pod reported", deleted_job(), vec![gone(pod("a", &reported()))]),
            "reported",
            REPORT,
        ),
        (
            case("pod is gone", deleted_job(), vec![gone(pod("a", &running()))]),
            "lost",
            "its Job was deleted",
        ),
        (case("no pod", deleted_job(), vec![]), "lost", "its Job was deleted"),
        (
            case("its kubelet forgot it", deleted_job(), vec![forgotten()]),
            "lost",
            "its Job was deleted",
        ),
        (
            case("its kubelet alone forgot it", made(), vec![forgotten()]),
            "lost",
            "its pod failed, and how its broker ended is not known",
        ),
        (
            case("in the foreground", deleting(), vec![deleted(pod("a", &running()))]),
            "runs",
            "its Job was deleted",
        ),
        (case("no pod yet", deleting(), vec![]), "lost", "its Job was deleted"),
    ]);
    assert_eq!(stands(&Seen::default(), 20), ("absent", String::new()));
}

#[test]
fn warnings_that_say_nothing_are_passed_over() {
    let cases = [
        ("Pod", "MissingClusterDNS", "kubelet does not have ClusterDNS IP configured", false),
        ("Pod", "Failed", "Error: ErrImagePull", false),
        ("Job", "BackoffLimitExceeded", "Job has reached the specified backoff limit", false),
        ("Job", "FailedCreate", "exceeded quota: few", true),
        ("Pod", "FailedMount", "configmap \"c\" not found", true),
        ("Pod", "FailedCreatePodSandBox", "failed to setup network", true),
    ];
    for (kind, reason, said, taken) in cases {
        assert_eq!(warning(kind, "a", reason, said).is_some(), taken, "{reason}");
    }
    let mut known = warning("Pod", "a", "FailedMount", "configmap \"c\" not found").unwrap();
    let told = "MountVolume.SetUp failed for volume \"config\" : configmap \"c\" not found";
    let told = warning("Pod", "a", "FailedMount", told);
    assert_eq!(told.as_ref(), Some(&known), "the same in fewer words");
    let vague = "Unable to attach or mount volumes: timed out waiting for the condition";
    known.update(warning("Pod", "a", "FailedMount", vague).unwrap());
    assert!(known.of("a").unwrap().why.contains("\"c\" not found"));
    assert_eq!(known.of("another"), None);
}
