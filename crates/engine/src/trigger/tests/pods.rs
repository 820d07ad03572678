//! Pods that a job follows.

use super::*;

pub(super) fn pods(all: &[(&str, bool)]) -> BTreeMap<String, Pod> {
    let pod = |(uid, is): &(&str, bool)| {
        ((*uid).to_owned(), Pod { name: format!("pod-{uid}"), is: *is, version: 0 })
    };
    all.iter().map(pod).collect()
}

/// One that waits for pods to be so, or for their end; what it knows of, and what is there.
pub(super) fn follower(
    deletion: bool,
    known: Option<&[(&str, bool)]>,
    now: &[(&str, bool)],
) -> State {
    let of = || "ready".to_owned();
    State {
        strategy: Strategy::PodState,
        pods: Some(FollowedPods { of: of(), deletion, pods: pods(now), newest: 0 }),
        record: JobRecord {
            pods: known.map(|known| RecordedPods {
                of: of(),
                pods: pods(known),
                ..RecordedPods::default()
            }),
            ..JobRecord::default()
        },
        ..State::default()
    }
}

#[test]
fn a_pod_that_comes_to_be_as_it_is_waited_for_is_a_trigger_once() {
    for (name, deletion, known, now, run, after) in [
        ("nothing was seen yet", false, None, &[("a", true)][..], None, Some(&[("a", true)][..])),
        ("a new one is so", false, Some(&[][..]), &[("a", true)], Some("a"), Some(&[("a", true)])),
        (
            "one comes to be so",
            false,
            Some(&[("a", false)]),
            &[("a", true)],
            Some("a"),
            Some(&[("a", true)]),
        ),
        ("it still is", false, Some(&[("a", true)]), &[("a", true)], None, None),
        ("a new one is not yet so", false, Some(&[]), &[("a", false)], None, None),
        (
            "it is so no more",
            false,
            Some(&[("a", true)]),
            &[("a", false)],
            None,
            Some(&[("a", false)]),
        ),
        ("it is gone", false, Some(&[("a", true)]), &[], None, None),
        (
            "one after the other",
            false,
            Some(&[("c", true)]),
            &[("a", true), ("b", true)],
            Some("a"),
            Some(&[("a", true), ("b", false)]),
        ),
        ("of its end: a new one", true, Some(&[]), &[("a", true)], None, Some(&[("a", true)])),
        ("of its end: it is there", true, Some(&[("a", true)]), &[("a", true)], None, None),
        ("of its end: it is gone", true, Some(&[("a", true)]), &[], Some("a"), Some(&[])),
        (
            "of its end: two are gone",
            true,
            Some(&[("a", true), ("b", true)]),
            &[],
            Some("a"),
            Some(&[("b", true)]),
        ),
    ] {
        let steps = decide(&follower(deletion, known, now), NOW).steps;
        let Some(after) = after else {
            assert_eq!(steps, [], "{name}");
            continue;
        };
        let [Step::Record { record, strategy: Strategy::PodState, .. }] = steps.as_slice() else {
            panic!("{name}: {steps:?}")
        };
        assert_eq!(record.pods.as_ref().unwrap().pods, pods(after), "{name}");
        let found = record.open.first().map(|run| run.pod.as_ref().unwrap().name.as_str());
        assert_eq!(found, run.map(|uid| format!("pod-{uid}")).as_deref(), "{name}");
        assert!(record.open.iter().all(|run| run.trigger == Trigger::PodState), "{name}");
    }
}

#[test]
fn other_pods_that_are_to_be_followed_are_looked_at_anew() {
    let mut state = follower(false, Some(&[]), &[("a", true)]);
    state.record.pods.as_mut().unwrap().of = "created".to_owned();
    let steps = decide(&state, NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(
        (record.open.len(), &record.pods.as_ref().unwrap().pods),
        (0, &pods(&[("a", true)]))
    );
}

#[test]
fn pods_that_are_not_known_yet_are_not_forgotten() {
    let mut state = follower(true, Some(&[("a", true)]), &[]);
    state.pods = None;
    assert_eq!(decide(&state, NOW), Decision::default());
    state.schedule = Some(Schedule { of: "* * * * *".to_owned(), is_due: false });
    let steps = decide(&state, NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(record.pods, state.record.pods);
}

/// What is seen of pods, one look after the other: what is recorded after all of them, of one that queues for the end
/// of a run, or that waits for something that is missing.
fn after(queues: bool, looks: &[&[(&str, bool)]]) -> State {
    let mut state = follower(false, Some(&[]), &[]);
    match queues {
        true => {
            state.concurrency = Concurrency::Queue;
            state.record.last = 1;
            state.record.open = vec![run(1, Trigger::PodState)];
            state.runs.insert(1, RunProgress::Going);
        }
        false => state.missing = vec!["secret/late".to_owned()],
    }
    for look in looks {
        state.pods.as_mut().unwrap().pods = pods(look);
        let decision = decide(&state, NOW);
        match decision.steps.as_slice() {
            [] => {}
            [Step::Record { record, .. }] => {
                assert_eq!(record.last, state.record.last, "no run begins: {look:?}");
                state.record = record.clone();
                assert_eq!(decide(&state, NOW).steps, [], "one write for each: {look:?}");
            }
            steps => panic!("{look:?}: {steps:?}"),
        }
    }
    state
}

/// The pods that have runs, in the order in which they do, once there is nothing to wait for.
fn runs(mut state: State) -> Vec<String> {
    let mut names = Vec::new();
    state.missing.clear();
    loop {
        state.settled.extend(state.record.open.iter().map(|run| run.id));
        state.runs.clear();
        let steps = decide(&state, NOW).steps;
        let Some(Step::Record { record, .. }) = steps.last() else { return names };
        names.extend(record.open.last().and_then(|run| Some(run.pod.as_ref()?.name.clone())));
        state.record = record.clone();
        assert!(names.len() < 2000, "it runs for ever: {names:?}");
    }
}

#[test]
fn what_comes_to_be_so_while_a_trigger_waits_has_a_run_though_it_is_so_no_more() {
    for (name, looks, expected) in [
        ("it still is", &[&[("a", true)][..]][..], &["pod-a"][..]),
        ("it is so no more", &[&[("a", true)], &[("a", false)]], &["pod-a"]),
        ("it is gone", &[&[("a", true)], &[]], &["pod-a"]),
        ("it was not so before", &[&[("a", false)], &[("a", true)], &[]], &["pod-a"]),
        ("it is so again", &[&[("a", true)], &[("a", false)], &[("a", true)]], &["pod-a"]),
        ("it never was", &[&[("a", false)], &[]], &[]),
        ("two, one after the other", &[&[("b", true)], &[("a", true)], &[]], &["pod-a", "pod-b"]),
        (
            "two at once, of which one is left",
            &[&[("a", true), ("b", true)], &[("a", false), ("b", true)]],
            &["pod-a", "pod-b"],
        ),
    ] {
        for queues in [true, false] {
            assert_eq!(runs(after(queues, looks)), expected, "{name}, it queues: {queues}");
        }
    }
}

#[test]
fn of_those_that_are_due_as_many_are_remembered_as_there_is_room_for() {
    let many: Vec<String> = (0..1500).map(|number| format!("{number:036}")).collect();
    let all: Vec<(&str, bool)> = many.iter().map(|uid| (uid.as_str(), true)).collect();
    let state = after(true, &[&all, &[]]);
    let due = serde_json::to_string(&state.record.pods.as_ref().unwrap().due).unwrap();
    assert!(due.len() < 100 * 1024, "annotations have room for 256 KiB: {}", due.len());
    let ran = runs(state).len();
    assert!((500..1500).contains(&ran), "{ran} of those that are gone");
    assert_eq!(runs(after(true, &[&all])).len(), 1500, "what still is so needs none of it");
    // Of those whose end is waited for the same are remembered.
    let mut ended = follower(true, Some(&all), &[]);
    ended.missing = vec!["secret/late".to_owned()];
    ended.schedule = Some(Schedule { of: "0 3 * * *".to_owned(), is_due: false });
    let steps = decide(&ended, NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    let left = record.pods.as_ref().unwrap().pods.len();
    assert!((500..1500).contains(&left), "{left} of those that are gone");
}

#[test]
fn whose_run_is_recorded_is_due_no_more_and_the_others_are() {
    let state = follower(false, Some(&[]), &[("a", true), ("b", true)]);
    let steps = decide(&state, NOW).steps;
    let [Step::Record { record, .. }] = steps.as_slice() else { panic!("{steps:?}") };
    let known = record.pods.as_ref().unwrap();
    let due = BTreeMap::from([("b".to_owned(), "pod-b".to_owned())]);
    assert_eq!((&known.due, &known.pods), (&due, &pods(&[("a", true), ("b", false)])));
    // In the moment before its own it is so no more.
    let mut state = State { record: record.clone(), ..state };
    state.pods.as_mut().unwrap().pods = pods(&[("a", true)]);
    let steps = decide(&state, NOW).steps;
    let Some(Step::Record { record, .. }) = steps.last() else { panic!("{steps:?}") };
    assert_eq!(record.open.last().unwrap().pod.as_ref().unwrap().name, "pod-b");
    assert_eq!(record.pods.as_ref().unwrap().due, BTreeMap::new());
}

/// Another has led, and has seen more of them.
#[test]
fn what_is_seen_of_pods_counts_if_it_is_no_older_than_what_another_has_written_down() {
    let at = |version: u64, is: bool| Pod { name: "pod-a".to_owned(), is, version };
    for (name, known, seen, newest, run) in [
        ("it was not so, and is now", at(7, false), Some(at(9, true)), 9, true),
        ("it was so, as was seen before", at(7, true), Some(at(5, false)), 9, false),
        ("it was not so any more", at(7, false), Some(at(5, true)), 9, false),
        ("it is not seen yet", at(7, true), None, 5, false),
        ("nobody knows as of when", at(0, false), Some(at(0, true)), 0, true),
    ] {
        let mut state = follower(false, Some(&[]), &[]);
        let followed = state.pods.as_mut().unwrap();
        followed.pods.extend(seen.map(|pod| ("a".to_owned(), pod)));
        followed.newest = newest;
        let pods = &mut state.record.pods.as_mut().unwrap().pods;
        pods.insert("a".to_owned(), known.clone());
        let decision = decide(&state, "now");
        let recorded = decision.steps.iter().find_map(|step| match step {
            Step::Record { record, .. } => Some(record),
            _ => None,
        });
        let runs = recorded.is_some_and(|record| !record.open.is_empty());
        assert_eq!(runs, run, "{name}: {decision:?}");
        // What is older than what is known is not written down either, nor is it forgotten.
        let kept = recorded.and_then(|record| record.pods.as_ref()).map(|known| known.pods["a"].is);
        assert_eq!(kept.unwrap_or(known.is), known.is || run, "{name}");
    }
}

#[test]
fn one_that_is_gone_is_forgotten_by_whoever_has_heard_of_something_newer() {
    let known = Pod { name: "pod-a".to_owned(), is: true, version: 7 };
    for (newest, stays) in [(6, true), (7, false), (8, false)] {
        let now = FollowedPods { of: "ready".to_owned(), newest, ..FollowedPods::default() };
        let before = RecordedPods {
            of: "ready".to_owned(),
            pods: BTreeMap::from([("a".to_owned(), known.clone())]),
            ..RecordedPods::default()
        };
        assert_eq!(now.recorded(Some(&before), None).pods.contains_key("a"), stays, "{newest}");
    }
}

/// Of two that lead the one has had the run of a pod that is gone, and has forgotten it; the other sees it still.
#[test]
fn what_is_not_written_down_any_more_is_gone_for_whoever_is_behind() {
    for (name, deletion, version, newest, counts) in [
        ("it came after what was written", false, 9, 8, true),
        ("it was there when that was written", false, 8, 8, false),
        ("of its end: it came after that", true, 9, 8, true),
        ("of its end: it was there", true, 8, 8, false),
        ("nobody knows as of when that was written", false, 8, 0, true),
        ("nobody knows as of when it is", false, 0, 8, true),
    ] {
        let mut state = follower(deletion, Some(&[]), &[("a", true)]);
        state.pods.as_mut().unwrap().pods.get_mut("a").unwrap().version = version;
        state.record.pods.as_mut().unwrap().newest = newest;
        let steps = decide(&state, NOW).steps;
        assert_eq!(!steps.is_empty(), counts, "{name}: {steps:?}");
        let Some(Step::Record { record, .. }) = steps.first() else { continue };
        assert_eq!(record.open.len(), usize::from(!deletion), "{name}");
        assert!(record.pods.as_ref().unwrap().pods.contains_key("a"), "{name}");
    }
}
