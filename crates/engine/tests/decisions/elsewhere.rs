//! Work that a broker leaves to others: asked after until it has ended.

use super::*;

#[tokio::test(start_paused = true)]
async fn external_work_is_asked_after_when_it_is_time_and_its_answer_decides() {
    let policy = Policy::default();
    let mut record = creating().await;
    let next = NOW.plus(Duration::from_secs(5));
    record.operation.phase = Phase::External { name: "task".into(), polls: 2, next };
    let poll = RunName::poll(&record.operation.id, 1, 3);
    assert_eq!(decide(&policy, &seen(&record, RunState::Absent), NOW), Step::WaitUntil(next));
    let step = decide(&policy, &seen(&record, RunState::Absent), next);
    assert_eq!(step, Step::Start { run: poll.clone(), poll: Some("task".into()) });
    assert_eq!(decide(&policy, &seen(&record, running()), next), Step::Wait(poll));
    let goes_on = Output { external_operation: Some("task".into()), ..Output::default() };
    for state in [
        RunState::Finished(Ok(goes_on)),
        RunState::Lost { why: String::new() },
        ended(FailureKind::Transient),
        unheard(Reason::Killed),
        unheard(Reason::Timeout),
        unheard(Reason::NotStarted),
        unheard(Reason::Halted),
    ] {
        let again = written(decide(&policy, &seen(&record, state.clone()), next));
        let goes_on = matches!(again.operation.phase, Phase::External { polls: 3, .. });
        assert!(goes_on, "{state:?}: a question that is not answered ends nothing");
    }
    // Somebody else has asked, and its record is not heard of yet: the write will meet it.
    let begun = State { begun: true, ..seen(&record, RunState::Absent) };
    let again = written(decide(&policy, &begun, next));
    assert!(matches!(again.operation.phase, Phase::External { polls: 3, .. }));
    let failed = written(decide(&policy, &seen(&record, ended(FailureKind::Failed)), next));
    assert_eq!(failed.lifecycle, Lifecycle::Broken);
    let done = RunState::Finished(Ok(Output::default()));
    let done = written(decide(&policy, &seen(&record, done), next));
    assert_eq!(done.lifecycle, Lifecycle::Ready);
    let late = record.operation.created_at.plus(policy.external_timeout);
    let late = written(decide(&policy, &seen(&record, RunState::Absent), late));
    assert_eq!(reason(&late), Some(Reason::Timeout));
}

/// Nobody may be there to ask: its image is gone, or a quota is used up. That is said, once, and not for longer than it is so.
#[tokio::test(start_paused = true)]
async fn external_work_that_nobody_can_be_asked_after_says_so_and_goes_on() {
    let policy = Policy::default();
    let mut record = creating().await;
    record.operation.progress = Some("half of it".to_owned());
    record.operation.phase = Phase::External { name: "task".into(), polls: 2, next: NOW };
    let look_after = |record: &Record, permanent: bool, times: u32, pause: Duration| {
        let Phase::External { next, .. } = record.operation.phase else { panic!("{record:?}") };
        let until = next.plus(pause);
        let refused = RefusedStart { why: "no Broker has it".into(), permanent, times, until };
        let state = State { refused_start: Some(refused), ..seen(record, RunState::Absent) };
        decide(&policy, &state, next)
    };
    let look =
        |record: &Record, permanent, times| look_after(record, permanent, times, Duration::ZERO);
    assert!(matches!(look(&record, false, 1), Step::Start { .. }));
    let early = look_after(&record, false, 1, Duration::from_secs(5));
    assert_eq!(early, Step::WaitUntil(NOW.plus(Duration::from_secs(5))));
    for (permanent, times) in [(true, 1), (false, STARTS)] {
        let again = written(look(&record, permanent, times));
        let Phase::External { polls: 3, next, .. } = again.operation.phase else {
            panic!("it has ended: {again:?}")
        };
        assert!(next > NOW, "it is asked without a pause");
        let said = again.operation.said().unwrap_or_default();
        assert!(said.contains("cannot be asked after: no Broker has it"), "{said}");
        let mut of_a_build_before = again.clone();
        of_a_build_before.operation.progress = of_a_build_before.operation.waits.take();
        for (record, expected) in [(again, Some("half of it")), (of_a_build_before, None)] {
            let goes_on = Output { external_operation: Some("task".into()), ..Output::default() };
            let heard = decide(&policy, &seen(&record, RunState::Finished(Ok(goes_on))), next);
            assert_eq!(written(heard).operation.said(), expected, "it was asked");
        }
    }
}

/// What is said in the middle of it counts at its end, where it succeeds; what was left counts in any case.
#[tokio::test(start_paused = true)]
async fn what_an_update_says_of_its_instance_holds_once_it_has_succeeded() {
    let policy = Policy::default();
    let dashboard = |name: &str| Some(format!("https://{name}.example"));
    let mut updating = started(creating().await);
    updating.lifecycle = Lifecycle::Ready;
    updating.operation.action = Action::Update;
    updating.made.dashboard_url = dashboard("old");
    let goes_on = Output {
        external_operation: Some("task".into()),
        dashboard_url: dashboard("new"),
        metadata: Some(InstanceMetadata::default()),
        state: Some(serde_json::json!("left").into()),
        ..Output::default()
    };
    let ends = |record: &Record, run: RunState| {
        let Phase::External { next, .. } = record.operation.phase else { panic!("{record:?}") };
        written(decide(&policy, &seen(record, run), next))
    };
    let external = written(decide(&policy, &seen(&updating, RunState::Finished(Ok(goes_on))), NOW));
    let latest = Output { dashboard_url: dashboard("latest"), ..Output::default() };
    for (run, shown, metadata) in [
        (RunState::Finished(Ok(Output::default())), "new", true),
        (RunState::Finished(Ok(latest)), "latest", true),
        (ended(FailureKind::Failed), "old", false),
    ] {
        assert_eq!(external.made.dashboard_url, dashboard("old"), "it may fail yet");
        let ended = ends(&external, run);
        assert_eq!(ended.made.dashboard_url, dashboard(shown));
        assert_eq!(ended.made.metadata.is_some(), metadata, "{shown}");
        assert_eq!(ended.made.state, Some(serde_json::json!("left").into()), "{shown}");
        assert_eq!(ended.operation.shown, Shown::default(), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_a_broker_asks_for_is_granted_up_to_an_hour() {
    let policy = Policy::default();
    let hour = 60 * 60;
    let creating = started(creating().await);
    let external = Record {
        operation: Operation {
            phase: Phase::External { name: "x".to_owned(), polls: 0, next: NOW },
            ..creating.operation.clone()
        },
        ..creating.clone()
    };
    let last = Record {
        operation: Operation { attempt: policy.attempts, ..creating.operation.clone() },
        ..creating.clone()
    };
    for (asked, granted) in [(100, 100), (hour, hour), (hour + 1, hour), (u64::MAX, hour)] {
        let until = Some(NOW.plus(Duration::from_secs(granted)));
        let failed = ended_asking(FailureKind::Transient, Some(asked));
        let again = written(decide(&policy, &seen(&creating, failed.clone()), NOW));
        assert_eq!(again.operation.phase, Phase::Pending { not_before: until });

        let external_operation = Some("x".to_owned());
        let output = Output { external_operation, retry_after: Some(asked), ..Output::default() };
        let goes_on = RunState::Finished(Ok(output));
        for (record, run) in
            [(&creating, goes_on.clone()), (&external, goes_on), (&external, failed)]
        {
            let next = written(decide(&policy, &seen(record, run), NOW));
            let Phase::External { next, .. } = next.operation.phase else { panic!("{next:?}") };
            assert_eq!(Some(next), until);
        }
        for kind in [FailureKind::Transient, FailureKind::Busy] {
            let run = ended_asking(kind, Some(asked));
            let next = written(decide(&policy, &seen(&last, run), NOW));
            let Phase::Failed(failure) = &next.operation.phase else { panic!("{next:?}") };
            assert_eq!(failure.retry_after, Some(granted), "{kind:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn external_work_is_asked_after_when_its_time_is_up_whatever_pause_it_asks_for() {
    let policy = Policy { external_timeout: Duration::from_secs(300), ..Policy::default() };
    let record = started(creating().await);
    let output = Output {
        external_operation: Some("x".to_owned()),
        retry_after: Some(3000),
        ..Output::default()
    };
    let next = written(decide(&policy, &seen(&record, RunState::Finished(Ok(output))), NOW));
    let up = record.operation.created_at.plus(policy.external_timeout);
    let Phase::External { next, .. } = next.operation.phase else { panic!("{next:?}") };
    assert_eq!(next, up);
}
