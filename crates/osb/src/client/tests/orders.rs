use super::*;

fn order() -> FollowOptions {
    let brief = Duration::from_millis(1);
    FollowOptions {
        polling: Polling {
            first_interval: brief,
            max_interval: brief,
            deadline: Duration::from_secs(20),
            ..Polling::default()
        },
        mitigation: Some(Retries { attempts: 4, first_pause: brief, max_pause: brief }),
    }
}

fn ok() -> Answer {
    Answer::json(200, &json!({}))
}

fn accepted() -> Answer {
    Answer::json(202, &json!({"operation": "op", "dashboard_url": "http://d"}))
}

fn state(state: &str) -> Answer {
    Answer::json(200, &json!({"state": state}))
}

/// The methods that were asked for, `GET …/last_operation` as `POLL`.
fn calls(double: &Double) -> Vec<String> {
    let name = |seen: &Seen| {
        let poll = seen.path.ends_with("last_operation");
        if poll { "POLL".to_owned() } else { seen.method.to_string() }
    };
    double.seen().iter().map(name).collect()
}

async fn provision(
    answers: Vec<Answer>,
    order: &FollowOptions,
) -> (Result<crate::ProvisionedBody, OrderError>, Vec<String>) {
    let double = Double::in_turn(answers).await;
    let settings =
        ClientSettings { timeout: Duration::from_secs(1), ..ClientSettings::new(double.url()) };
    let client = Client::new(settings).unwrap();
    let result = client.provision_and_wait(&instance(), &provision_request(), order).await;
    (result, calls(&double))
}

#[tokio::test]
async fn an_accepted_provision_is_followed_with_its_operation() {
    let double = Double::in_turn(vec![accepted(), state("in progress"), state("succeeded")]).await;
    let body =
        client(&double).provision_and_wait(&instance(), &provision_request(), &order()).await;
    assert_eq!(body.unwrap().dashboard_url.as_deref(), Some("http://d"));
    let poll = "GET /v2/service_instances/i/last_operation?service_id=s&plan_id=p&operation=op";
    assert_eq!(double.lines()[1..], [poll, poll]);
}

#[tokio::test]
async fn a_provision_at_once_is_not_polled() {
    for status in [200, 201] {
        let (result, calls) = provision(vec![Answer::json(status, &json!({}))], &order()).await;
        assert!(result.is_ok());
        assert_eq!(calls, ["PUT"]);
    }
}

#[tokio::test]
async fn failures_that_may_leave_something_are_cleaned_up() {
    let slow = || ok().after(Duration::from_secs(5));
    let cases: Vec<(&str, Vec<Answer>, Vec<&str>)> = vec![
        ("500", vec![Answer::raw(500, ""), ok()], vec!["PUT", "DELETE"]),
        ("already gone", vec![Answer::raw(500, ""), Answer::raw(410, "")], vec!["PUT", "DELETE"]),
        ("malformed 201", vec![Answer::raw(201, "{"), ok()], vec!["PUT", "DELETE"]),
        ("malformed 202", vec![Answer::raw(202, "{"), ok()], vec!["PUT", "DELETE"]),
        ("204", vec![Answer::raw(204, ""), ok()], vec!["PUT", "DELETE"]),
        ("timeout", vec![slow(), ok()], vec!["PUT", "DELETE"]),
        ("hung up", vec![Answer::hang_up(), ok()], vec!["PUT", "DELETE"]),
        (
            "failed",
            vec![accepted(), state("failed"), accepted(), state("in progress"), state("succeeded")],
            vec!["PUT", "POLL", "DELETE", "POLL", "POLL"],
        ),
        (
            "stubborn",
            vec![
                Answer::raw(500, ""),
                Answer::raw(503, ""),
                Answer::json(422, &json!({"error": "ConcurrencyError"})),
                Answer::hang_up(),
                ok(),
            ],
            vec!["PUT", "DELETE", "DELETE", "DELETE", "DELETE"],
        ),
        (
            "a deletion that fails once",
            vec![
                Answer::raw(500, ""),
                accepted(),
                state("failed"),
                accepted(),
                Answer::raw(410, ""),
            ],
            vec!["PUT", "DELETE", "POLL", "DELETE", "POLL"],
        ),
    ];
    for (name, answers, expected) in cases {
        let (result, calls) = provision(answers, &order()).await;
        let error = result.unwrap_err();
        assert!(matches!(error.mitigated, Mitigated::Done), "{name}: {error:?}");
        assert_eq!(calls, expected, "{name}");
    }
}

#[tokio::test]
async fn refusals_leave_nothing_and_are_not_cleaned_up() {
    for status in [400, 401, 408, 409, 412, 422, 429, 302] {
        let (result, calls) = provision(vec![Answer::raw(status, "")], &order()).await;
        assert!(matches!(result.unwrap_err().mitigated, Mitigated::NotNeeded), "{status}");
        assert_eq!(calls, ["PUT"], "{status}");
    }
    let (result, calls) = provision(vec![Answer::raw(200, "{")], &order()).await;
    assert!(matches!(result.unwrap_err().mitigated, Mitigated::NotNeeded));
    assert_eq!(calls, ["PUT"]);
}

#[tokio::test]
async fn cleaning_up_is_bounded_and_ends_at_a_refusal() {
    let (result, calls) = provision(vec![Answer::raw(500, "")], &order()).await;
    assert!(matches!(result.unwrap_err().mitigated, Mitigated::Failed(_)));
    assert_eq!(calls, ["PUT", "DELETE", "DELETE", "DELETE", "DELETE"]);

    let (result, calls) =
        provision(vec![Answer::raw(500, ""), Answer::raw(401, "")], &order()).await;
    let error = result.unwrap_err();
    let said = "the broker answered 500 (what it may have made could not be deleted: the broker answered 401)";
    assert_eq!(error.to_string(), said);
    assert_eq!(calls, ["PUT", "DELETE"]);
}

#[tokio::test]
async fn remains_stay_when_someone_wants_to_inspect_them() {
    let order = FollowOptions { mitigation: None, ..order() };
    let (result, calls) = provision(vec![Answer::raw(500, "")], &order).await;
    assert!(matches!(result.unwrap_err().mitigated, Mitigated::Declined));
    assert_eq!(calls, ["PUT"]);
}

#[tokio::test]
async fn an_update_is_followed_by_its_old_plan_and_never_cleaned_up() {
    let request: UpdateRequest = read(json!({
        "service_id": "s", "plan_id": "new", "previous_values": {"plan_id": "old"},
    }));
    for (answers, expected) in [
        (vec![Answer::raw(500, "")], vec!["PATCH"]),
        (vec![accepted(), state("failed")], vec!["PATCH", "POLL"]),
    ] {
        let double = Double::in_turn(answers).await;
        let result = client(&double).update_and_wait(&instance(), &request, &order()).await;
        assert!(matches!(result.unwrap_err().mitigated, Mitigated::NotNeeded));
        assert_eq!(calls(&double), expected);
        let poll = double.lines().into_iter().nth(1);
        assert!(poll.is_none_or(|line| line.contains("plan_id=old")));
    }
}

#[tokio::test]
async fn an_asynchronous_binding_is_fetched() {
    let credentials =
        Answer::json(200, &json!({"credentials": {"uri": "hunter2"}, "parameters": {}}));
    let double = Double::in_turn(vec![
        Answer::json(202, &json!({})),
        state("succeeded"),
        Answer::raw(503, ""),
        credentials,
    ])
    .await;
    let body =
        client(&double).bind_and_wait(&instance(), &binding(), &bind_request(), &order()).await;
    let body = body.unwrap();
    assert_eq!(body.credentials.as_ref().unwrap().expose()["uri"], "hunter2");
    assert!(!format!("{body:?}").contains("hunter2"));
    assert_eq!(calls(&double), ["PUT", "POLL", "GET", "GET"]);
}

#[tokio::test]
async fn a_binding_that_cannot_be_had_is_removed() {
    for (answers, expected) in [
        (vec![Answer::raw(500, ""), ok()], vec!["PUT", "DELETE"]),
        (
            vec![accepted(), state("succeeded"), Answer::raw(404, ""), ok()],
            vec!["PUT", "POLL", "GET", "DELETE"],
        ),
    ] {
        let double = Double::in_turn(answers).await;
        let result =
            client(&double).bind_and_wait(&instance(), &binding(), &bind_request(), &order()).await;
        assert!(matches!(result.unwrap_err().mitigated, Mitigated::Done));
        assert_eq!(calls(&double), expected);
        let last = double.lines().pop().unwrap();
        let path = "/v2/service_instances/i/service_bindings/b";
        assert_eq!(last, format!("DELETE {path}?service_id=s&plan_id=p&accepts_incomplete=true"));
    }
}

#[tokio::test]
async fn a_rotation_without_service_and_plan_cannot_be_cleaned_up() {
    let double = Double::in_turn(vec![Answer::raw(500, "")]).await;
    let rotation: BindRequest = read(json!({"predecessor_binding_id": "old"}));
    let result = client(&double).bind_and_wait(&instance(), &binding(), &rotation, &order()).await;
    assert!(matches!(result.unwrap_err().mitigated, Mitigated::Declined));
    assert_eq!(calls(&double), ["PUT"]);
}

#[tokio::test]
async fn a_removal_ends_when_it_is_gone() {
    type Case = (&'static str, Vec<Answer>, Option<Removed>, Vec<&'static str>);
    let cases: Vec<Case> = vec![
        ("at once", vec![ok()], Some(Removed::Deleted), vec!["DELETE"]),
        ("absent", vec![Answer::raw(410, "")], Some(Removed::Absent), vec!["DELETE"]),
        (
            "polled",
            vec![accepted(), state("succeeded")],
            Some(Removed::Deleted),
            vec!["DELETE", "POLL"],
        ),
        (
            "polled away",
            vec![accepted(), Answer::raw(410, "")],
            Some(Removed::Deleted),
            vec!["DELETE", "POLL"],
        ),
        (
            "5xx once",
            vec![Answer::raw(500, ""), ok()],
            Some(Removed::Deleted),
            vec!["DELETE", "DELETE"],
        ),
        ("5xx", vec![Answer::raw(500, "")], None, vec!["DELETE"; 4]),
        (
            "failed once",
            vec![accepted(), state("failed"), ok()],
            Some(Removed::Deleted),
            vec!["DELETE", "POLL", "DELETE"],
        ),
        ("lost", vec![Answer::hang_up()], None, vec!["DELETE"]),
        ("refused", vec![Answer::raw(422, "")], None, vec!["DELETE"]),
    ];
    for (name, answers, expected, made) in cases {
        let double = Double::in_turn(answers.clone()).await;
        let result = client(&double)
            .deprovision_and_wait(&instance(), &deprovision_request(), &order())
            .await;
        assert_eq!(result.ok(), expected, "{name}");
        assert_eq!(calls(&double), made, "{name}");
        let double = Double::in_turn(answers).await;
        let result = client(&double)
            .unbind_and_wait(&instance(), &binding(), &unbind_request(), &order())
            .await;
        assert_eq!(result.ok(), expected, "{name}");
    }
}
