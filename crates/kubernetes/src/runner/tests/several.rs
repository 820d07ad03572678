//! More pods of a run than one: made in the place of one that was taken away, or by a Job controller that had no answer
//! when it made the first.

use std::time::Duration;

use engine::names::RunName;
use serde_json::json;

use super::super::ending::second_pods;
use super::super::manifest::alone;
use super::super::seen::{Fence, Seen, SeenJob, SeenPod};
use super::super::standing::{Standing, standing, why_to_fence};
use super::super::watch::{KnownRuns, Watched};
use super::kinds::{killed, reported};
use super::status::{failed, installing, running};
use super::{MADE, deleted, gone, job, pod, pod_object};

fn run() -> RunName {
    RunName::parse("run-1").unwrap()
}

fn nowhere(pod: SeenPod) -> SeenPod {
    SeenPod { node: None, placed: None, ..pod }
}

fn newer(pod: SeenPod) -> SeenPod {
    SeenPod { version: pod.version + 1, ..pod }
}

/// What a watch says.
enum Heard {
    Is(SeenPod),
    Gone(SeenPod),
    /// A list has these alone.
    Listed(&'static [&'static str]),
}

#[test]
fn one_too_many_costs_a_run_nothing() {
    use Heard::{Gone, Is, Listed};
    let (a, b) = (|| pod("a", &running()), || pod("b", &running()));
    let (waits, late) = (|| nowhere(pod("a", &installing())), || nowhere(pod("b", &installing())));
    let second = || nowhere(newer(late()));
    let missed = "Kubernetes made two pods for it, and one went while pods were not watched, and may \
                  have begun";
    let killed_says = "its container ended without a report (exit status 137, Error)";
    let deleted_by_hand = "its pod was deleted: by hand, or because its node was drained";
    let cases = [
        ("it waits", vec![Is(a()), Is(late())], Ok("a")),
        ("it is taken away", vec![Is(a()), Is(late()), Is(deleted(second()))], Ok("a")),
        ("it is gone", vec![Is(a()), Is(late()), Gone(deleted(second()))], Ok("a")),
        (
            "it stays for a while, held by a finalizer",
            vec![Is(a()), Is(late()), Is(deleted(second())), Is(newer(newer(a())))],
            Ok("a"),
        ),
        (
            "it is gone, and an answer is late",
            vec![Is(a()), Is(late()), Gone(deleted(second())), Is(late())],
            Ok("a"),
        ),
        (
            "a list is without it, and it is said later that it went",
            vec![Is(a()), Is(late()), Listed(&["a"]), Gone(deleted(second()))],
            Ok("a"),
        ),
        (
            "a list that is older than it is without it",
            vec![Is(a()), Is(late()), Listed(&["a"]), Is(late())],
            Ok("a"),
        ),
        ("neither has a node", vec![Is(waits()), Is(late())], Ok("a")),
        ("the younger one has", vec![Is(waits()), Is(b())], Ok("b")),
        (
            "the older one is taken away",
            vec![Is(waits()), Is(b()), Gone(deleted(newer(waits())))],
            Ok("b"),
        ),
        (
            "and before the younger one has a node",
            vec![Is(waits()), Is(late()), Gone(deleted(newer(waits()))), Is(newer(b()))],
            Ok("b"),
        ),
        // It may have begun, and what has followed it would be the second.
        (
            "the older one had a node when it was taken away",
            vec![Is(waits()), Is(late()), Gone(deleted(newer(pod("a", &installing()))))],
            Err(deleted_by_hand),
        ),
        (
            "how the older one went was not heard",
            vec![Is(waits()), Listed(&[]), Is(b())],
            Err(missed),
        ),
        (
            "how the younger one went was not heard, nor when the older one had a node",
            vec![Is(a()), Is(late()), Listed(&["a"])],
            Err(missed),
        ),
        (
            "how the younger one went was not heard, which had none when the older one had a node",
            vec![Is(a()), Is(second()), Listed(&["a"])],
            Ok("a"),
        ),
        (
            "the younger one was given a node as it was taken away",
            vec![Is(a()), Is(late()), Is(deleted(newer(b())))],
            Err("Kubernetes made two pods for it, and both may have begun"),
        ),
        (
            "the first was taken away before it began, and the one in its place has ended",
            vec![
                Is(pod("a", &installing())),
                Is(deleted(newer(pod("a", &installing())))),
                Is(SeenPod { version: 30, placed: Some(30), ..b() }),
                Is(SeenPod { version: 31, placed: Some(31), ..pod("b", &killed()) }),
            ],
            Err(deleted_by_hand),
        ),
        (
            "the older one had a node when the younger one had ended",
            vec![Is(waits()), Is(pod("b", &killed())), Is(newer(pod("a", &installing())))],
            Err(killed_says),
        ),
        (
            "the first is taken away",
            vec![Is(a()), Is(late()), Is(deleted(a()))],
            Err(deleted_by_hand),
        ),
        ("the only one is taken away", vec![Gone(deleted(waits()))], Err(deleted_by_hand)),
        (
            "both have nodes",
            vec![Is(a()), Is(b())],
            Err("Kubernetes made two pods for it, and both may have begun"),
        ),
        (
            "they are not kept apart",
            vec![Is(a()), Is(SeenPod { node: None, ..pod("b", &installing()) })],
            Err("Kubernetes made two pods for it, and both may have begun"),
        ),
        (
            "the first was killed, and it may begin",
            vec![Is(pod("a", &killed())), Is(late())],
            Err(killed_says),
        ),
        (
            "and it was taken away then",
            vec![Is(pod("a", &killed())), Is(late()), Gone(deleted(second()))],
            Err(killed_says),
        ),
        (
            "or when it had a node by then",
            vec![Is(pod("a", &killed())), Is(late()), Is(deleted(newer(b())))],
            Err(killed_says),
        ),
    ];
    for (name, heard, expected) in cases {
        let known = KnownRuns::default();
        known.learn(job(&json!({})));
        for heard in heard {
            match heard {
                Is(pod) => known.learn(pod),
                Gone(pod) => known.forget(pod),
                Listed(uids) => {
                    let uids: Vec<String> = uids.iter().map(ToString::to_string).collect();
                    known.finish::<SeenPod>("n", &uids);
                }
            }
        }
        let seen = known.get(&run());
        let stands = match standing(&seen, Duration::from_secs(300), MADE + 20, 0) {
            Standing::Going { .. } => Ok(seen.pods[0].uid()),
            Standing::ToEnd(Fence::Lost(why)) => Err(why),
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(stands, expected.map_err(str::to_owned), "{name}");
    }
}

/// What of two pods has ended says what the run has come to, and the other is to come to nothing.
#[test]
fn one_that_has_ended_beside_another_has_the_job_fenced_off() {
    let late = || nowhere(pod("b", &installing()));
    let rejected = failed("OutOfcpu", "Pod Node didn't have enough resource: cpu");
    for (name, first, expected) in [
        ("reported", reported(), "lost: Kubernetes made two pods for it, and one has ended"),
        ("killed", killed(), "lost: its container ended without a report"),
        ("rejected", rejected, "hopeless: "),
    ] {
        let pods = vec![pod("a", &first), late()];
        let seen = Seen { job: Some(job(&json!({}))), pods, ..Seen::default() };
        let fence = match why_to_fence(&seen, MADE + 20) {
            Some(Fence::Lost(why)) => format!("lost: {why}"),
            Some(Fence::Hopeless(why)) => format!("hopeless: {why}"),
            other => panic!("{name}: {other:?}"),
        };
        assert!(fence.starts_with(expected), "{name}: {fence}");
    }
}

#[test]
fn one_without_a_node_may_begin_unless_it_keeps_away_from_others_of_its_run() {
    let nodes = json!({"nodeAffinity": {}});
    for (affinity, may_begin) in [
        (json!(null), true),
        (nodes.clone(), true),
        (json!({"podAntiAffinity": {}}), true),
        (alone("run-1", None), false),
        (alone("run-1", Some(nodes)), false),
    ] {
        let mut pod = pod_object("a", &installing());
        pod["spec"] = json!({"containers": [], "affinity": affinity});
        let pod = SeenPod::of(&serde_json::from_value(pod).unwrap()).unwrap();
        assert_eq!(pod.placed.is_some(), may_begin, "{affinity}");
    }
}

#[test]
fn a_second_pod_is_taken_away_before_it_begins() {
    let job = || job(&json!({}));
    let fenced = |why| SeenJob { fenced: Some(why), ..job() };
    let lost = || Fence::Lost("its pod was deleted".to_owned());
    let (first, second) = (|| pod("a", &running()), || pod("b", &installing()));
    let unplaced = || nowhere(second());
    let released = SeenJob { released: Some(MADE), ..fenced(lost()) };
    let cases = [
        ("it waits for the first to be gone", job(), vec![deleted(first()), unplaced()], false),
        ("a node may take it now", job(), vec![gone(first()), unplaced()], true),
        ("the first is there", job(), vec![first(), second()], false),
        ("the first is there, and it has no node", job(), vec![first(), unplaced()], false),
        ("the first has reported", job(), vec![pod("a", &reported()), unplaced()], true),
        ("the first was killed", job(), vec![pod("a", &killed()), unplaced()], true),
        ("the first goes", job(), vec![deleted(first()), second()], true),
        ("the first is gone", job(), vec![gone(first()), second()], true),
        ("the first never began", job(), vec![gone(second()), pod("c", &installing())], true),
        ("there is no second", job(), vec![gone(first())], false),
        ("it runs", job(), vec![gone(first()), pod("b", &running())], false),
        ("it is gone", job(), vec![gone(first()), gone(second())], false),
        ("fenced off", fenced(lost()), vec![gone(first()), second()], true),
        ("cancelled", fenced(Fence::Cancelled), vec![gone(first()), second()], false),
        ("released", released, vec![gone(first()), second()], false),
    ];
    for (name, job, pods, expected) in cases {
        let seen = Seen { job: Some(job), pods, ..Seen::default() };
        assert_eq!(!second_pods(&seen, MADE + 20).is_empty(), expected, "{name}");
    }
    let unknown = Seen { pods: vec![gone(first()), second()], ..Seen::default() };
    assert!(second_pods(&unknown, MADE + 20).is_empty(), "whose it is, is not known");
}
