use super::*;

fn quick() -> Polling {
    Polling {
        first_interval: Duration::from_millis(1),
        max_interval: Duration::from_millis(5),
        deadline: Duration::from_secs(20),
        ..Polling::default()
    }
}

fn state(state: &str) -> Answer {
    Answer::json(200, &json!({"state": state, "description": "d"}))
}

fn pending(action: Action) -> Pending {
    let query = LastOperationQuery { operation: Some("op".to_owned()), ..Default::default() };
    Pending { action, query }
}

#[tokio::test]
async fn polls_through_every_passing_trouble() {
    let double = Double::in_turn(vec![
        state("in progress"),
        Answer::hang_up(),
        Answer::raw(500, ""),
        Answer::raw(503, ""),
        Answer::raw(429, ""),
        Answer::raw(408, ""),
        Answer::raw(404, ""),
        Answer::raw(200, "{"),
        state("in progress"),
        state("succeeded"),
    ])
    .await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let log = heard.clone();
    let polling = quick().on_event(move |event| {
        log.lock().unwrap().push(match event {
            PollEvent::State(last) => format!("{:?}", last.state),
            PollEvent::Trouble(error) => {
                error.status().map_or("none".to_owned(), |status| status.to_string())
            }
        });
    });
    let last =
        client(&double).wait_instance(&instance(), &pending(Action::Provision), &polling).await;
    assert_eq!(last.unwrap().state, OperationState::Succeeded);
    let expected =
        ["InProgress", "none", "500", "503", "429", "408", "404", "200", "InProgress", "Succeeded"];
    assert_eq!(*heard.lock().unwrap(), expected);
    assert!(double.lines().iter().all(|line| line.ends_with("?operation=op")));
}

#[tokio::test]
async fn a_failed_operation_is_an_error_with_its_description() {
    let double = Double::in_turn(vec![state("in progress"), state("failed")]).await;
    let error = client(&double)
        .wait_binding(&instance(), &binding(), &pending(Action::Bind), &quick())
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "the operation failed: d");
    assert_eq!(
        double.lines()[0],
        "GET /v2/service_instances/i/service_bindings/b/last_operation?operation=op"
    );
}

#[tokio::test]
async fn gone_is_the_success_of_a_deletion_and_of_nothing_else() {
    for (action, succeeds) in [
        (Action::Deprovision, true),
        (Action::Unbind, true),
        (Action::Provision, false),
        (Action::Update, false),
        (Action::Bind, false),
    ] {
        let double = Double::in_turn(vec![state("in progress"), Answer::raw(410, "")]).await;
        let ended = client(&double).wait_instance(&instance(), &pending(action), &quick()).await;
        match ended {
            Ok(last) => assert!(succeeds && last.state == OperationState::Succeeded, "{action}"),
            Err(error) => {
                let gives_up =
                    matches!(error, WaitError::Unclear { source: ClientError::Refused(_), .. });
                assert!(!succeeds && gives_up, "{action}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn senseless_answers_end_the_polling_only_in_a_row() {
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.extend(vec![Answer::raw(401, ""); 4]);
        answers.push(state("in progress"));
    }
    answers.push(Answer::raw(401, ""));
    let double = Double::in_turn(answers).await;
    let ended =
        client(&double).wait_instance(&instance(), &pending(Action::Provision), &quick()).await;
    match ended {
        Err(WaitError::Unclear { last: Some(last), .. }) => {
            assert_eq!(last.description.as_deref(), Some("d"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(double.lines().len(), 20);
}

#[tokio::test]
async fn retry_after_goes_before_the_interval() {
    let slow = Polling {
        first_interval: Duration::from_millis(1),
        max_interval: Duration::from_secs(60),
        deadline: Duration::from_secs(60),
        ..Polling::default()
    };
    let wait = |answers| {
        let slow = slow.clone();
        async move {
            let double = Double::in_turn(answers).await;
            let started = std::time::Instant::now();
            let pending = pending(Action::Provision);
            client(&double).wait_instance(&instance(), &pending, &slow).await.unwrap();
            started.elapsed()
        }
    };
    let asked = state("in progress").header("retry-after", "2");
    assert!(wait(vec![asked, state("succeeded")]).await >= Duration::from_secs(2));
    let asked = Answer::raw(503, "").header("retry-after", "2");
    assert!(wait(vec![asked, state("succeeded")]).await >= Duration::from_secs(2));
    assert!(wait(vec![state("in progress"), state("succeeded")]).await < Duration::from_secs(2));
}

#[tokio::test]
async fn the_deadline_ends_the_polling_after_a_last_look() {
    let asked = state("in progress").header("retry-after", "3600");
    let polling = Polling { deadline: Duration::from_millis(100), ..quick() };
    for (last, succeeds) in [(asked.clone(), false), (state("succeeded"), true)] {
        let double = Double::in_turn(vec![asked.clone(), last]).await;
        let pending = pending(Action::Provision);
        let ended = client(&double).wait_instance(&instance(), &pending, &polling).await;
        assert_eq!(ended.is_ok(), succeeds, "{ended:?}");
        assert_eq!(double.lines().len(), 2);
    }
}

#[tokio::test]
async fn a_plan_may_limit_the_polling_and_not_break_the_clock() {
    let plan = |seconds: Option<u64>| {
        let mut plan = json!({"id": "p", "name": "p", "description": "p"});
        if let Some(seconds) = seconds {
            plan["maximum_polling_duration"] = json!(seconds);
        }
        Polling::for_plan(&read(plan))
    };
    assert_eq!(plan(Some(90)).deadline, Duration::from_secs(90));
    assert_eq!(plan(None).deadline, Polling::default().deadline);
    let double = Double::in_turn(vec![state("succeeded")]).await;
    let polling = Polling { first_interval: Duration::from_millis(1), ..plan(Some(u64::MAX)) };
    client(&double).wait_instance(&instance(), &pending(Action::Update), &polling).await.unwrap();
}

/// Polls as the command line does, with answers by how many seconds have passed; and how many that took.
async fn polled(
    answer: impl Fn(u64) -> Result<LastOperation, ClientError>,
) -> (Result<LastOperation, WaitError>, u64) {
    let polling = Polling { max_interval: Duration::from_secs(5), ..Polling::default() };
    let started = tokio::time::Instant::now();
    let ended = polling::wait(Action::Provision, &polling, || {
        let answer = answer(started.elapsed().as_secs());
        async {
            answer.map(|body| Response {
                status: 200,
                body,
                retry_after: None,
                etag: None,
                request_identity: String::new(),
            })
        }
    })
    .await;
    (ended, started.elapsed().as_secs())
}

fn refused() -> ClientError {
    let source = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    ClientError::Transport { sent: false, source: Box::new(source) }
}

fn stands(state: &str) -> LastOperation {
    read(json!({"state": state, "description": "making disks"}))
}

#[tokio::test(start_paused = true)]
async fn nobody_asks_for_days_where_nobody_answers() {
    let (ended, took) = polled(|seconds| match seconds {
        0..10 => Ok(stands("in progress")),
        _ => Err(refused()),
    })
    .await;
    match ended {
        Err(WaitError::Silent { after, last: Some(last), source }) => {
            assert!(after >= Duration::from_secs(300), "{after:?}");
            assert_eq!(last.description.as_deref(), Some("making disks"));
            assert_eq!(source.to_string(), "the broker cannot be reached");
        }
        other => panic!("{other:?}"),
    }
    assert!((310..330).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_restart_ends_no_polling() {
    let unavailable = || ClientError::Refused(Refusal { status: 503, ..Refusal::default() });
    let (ended, took) = polled(|seconds| match seconds {
        0..240 | 600..840 => Err(refused()),
        240..300 => Ok(stands("in progress")),
        300..600 => Err(unavailable()),
        840..900 => Err(unavailable()),
        900..1140 => Err(ClientError::Timeout { after: Duration::from_secs(60) }),
        _ => Ok(stands("succeeded")),
    })
    .await;
    assert_eq!(ended.unwrap().state, OperationState::Succeeded);
    assert!((1140..1150).contains(&took), "{took}");
}

#[tokio::test]
async fn what_asks_to_be_asked_at_once_is_not_asked_without_a_pause() {
    let asked = state("in progress").header("retry-after", "0");
    let polling = Polling {
        first_interval: Duration::from_millis(100),
        deadline: Duration::from_secs(1),
        ..quick()
    };
    let double = Double::in_turn(vec![asked]).await;
    let ended =
        client(&double).wait_instance(&instance(), &pending(Action::Provision), &polling).await;
    assert!(matches!(ended, Err(WaitError::Deadline { .. })), "{ended:?}");
    assert!(double.lines().len() <= 11, "{}", double.lines().len());
}
