use osb::{
    BindingBody, BindingId, BindingView, Error, ErrorKind, InstanceId, InstanceView, LastOperation,
    LastOperationQuery, OperationState,
};
use serde_json::json;

use crate::support::{BINDING, Heard, INSTANCE, Rig, get};

fn view(service: &str) -> InstanceView {
    InstanceView {
        service_id: service.to_owned().try_into().unwrap(),
        plan_id: "small".to_owned().try_into().unwrap(),
        dashboard_url: None,
        parameters: Some(json!({"size": 1}).as_object().unwrap().clone().into()),
        maintenance_info: None,
        metadata: None,
    }
}

fn operation(state: OperationState) -> LastOperation {
    LastOperation {
        state,
        description: Some("at work".into()),
        instance_usable: Some(true),
        update_repeatable: Some(false),
        retry_after: Some(7),
    }
}

#[tokio::test]
async fn item_30_an_instance_is_told_where_the_catalog_does_not_forbid_it() {
    let rig = Rig::new();
    for service in ["db", "left-the-catalog"] {
        rig.answer(|answers| answers.instance = Ok(view(service)));
        let answer = rig.send(get(INSTANCE)).await;
        let body = json!({"service_id": service, "plan_id": "small", "parameters": {"size": 1}});
        assert_eq!((answer.status, answer.json()), (200, body));
    }
    rig.answer(|answers| answers.instance = Ok(view("log")));
    let description = rig.send(get(INSTANCE)).await.refusal(404, "NotFound");
    assert!(description.contains("instances_retrievable"));
    rig.answer(|answers| {
        answers.instance = Err(Error::new(ErrorKind::ConcurrencyError, "being updated"));
    });
    rig.send(get(INSTANCE)).await.refusal(422, "ConcurrencyError");
}

#[tokio::test]
async fn item_45_a_binding_is_told_where_the_catalog_does_not_forbid_it() {
    let rig = Rig::new();
    let credentials = json!({"user": "u"}).as_object().unwrap().clone();
    let body = BindingBody { credentials: Some(credentials.into()), ..BindingBody::default() };
    rig.answer(|answers| answers.binding = Ok(BindingView { body, parameters: None }));
    for query in ["", "?service_id=db", "?service_id=left-the-catalog"] {
        let answer = rig.send(get(&format!("{BINDING}{query}"))).await;
        assert_eq!(
            (answer.status, answer.json()),
            (200, json!({"credentials": {"user": "u"}})),
            "{query}"
        );
    }
    let description = rig
        .send(get(&format!("{BINDING}?service_id=log&plan_id=logs")))
        .await
        .refusal(404, "NotFound");
    assert!(description.contains("bindings_retrievable"));
}

#[tokio::test]
async fn item_27_hints_are_optional_and_reach_the_backend() {
    let rig = Rig::new();
    let query = "service_id=db&plan_id=old%20plan&operation=task%2010%2Fx";
    let hints = LastOperationQuery {
        service_id: Some("db".into()),
        plan_id: Some("old plan".into()),
        operation: Some("task 10/x".into()),
    };
    let (instance, binding) = (InstanceId::new("i").unwrap(), BindingId::new("b").unwrap());
    for (query, hints) in [
        (query, hints),
        ("", LastOperationQuery::default()),
        ("operation=&service_id=&plan_id", LastOperationQuery::default()),
    ] {
        assert_eq!(rig.send(get(&format!("{INSTANCE}/last_operation?{query}"))).await.status, 200);
        assert_eq!(rig.send(get(&format!("{BINDING}/last_operation?{query}"))).await.status, 200);
        let expected = [
            Heard::InstanceLastOperation(instance.clone(), hints.clone()),
            Heard::BindingLastOperation(instance.clone(), binding.clone(), hints),
        ];
        assert_eq!(rig.heard(), expected);
    }
    let longest = "x".repeat(10_000);
    assert_eq!(
        rig.send(get(&format!("{INSTANCE}/last_operation?operation={longest}"))).await.status,
        200
    );
}

#[tokio::test]
async fn what_concerns_only_changes_is_ignored_by_what_reads() {
    let rig = Rig::new();
    for path in [format!("{INSTANCE}/last_operation"), "/v2/catalog".to_owned()] {
        let ask =
            get(&format!("{path}?accepts_incomplete=maybe")).header("content-type", "text/plain");
        assert_eq!(rig.send(ask).await.status, 200);
    }
    let calls = rig.heard_calls();
    assert!(!calls[0].0.accepts_incomplete);
}

#[tokio::test]
async fn item_26_hints_that_no_platform_was_given_are_400() {
    let rig = Rig::new();
    let long = "x".repeat(10_001);
    for (query, name) in [
        (format!("operation={long}"), "operation"),
        ("operation=%00".to_owned(), "operation"),
        ("operation=a&operation=a".to_owned(), "operation"),
        ("operation=%FF".to_owned(), "operation"),
        (format!("service_id={long}"), "service_id"),
        ("plan_id=%1F".to_owned(), "plan_id"),
    ] {
        for path in [INSTANCE, BINDING] {
            rig.send(get(&format!("{path}/last_operation?{query}"))).await.names(&[name]);
        }
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_25_states_are_told_with_retry_after_as_a_header() {
    let rig = Rig::new();
    for (state, word) in
        [(OperationState::InProgress, "in progress"), (OperationState::Succeeded, "succeeded")]
    {
        rig.answer(|answers| answers.last_operation = Ok(operation(state)));
        for path in [INSTANCE, BINDING] {
            let answer = rig.send(get(&format!("{path}/last_operation"))).await;
            assert_eq!(answer.json(), json!({"state": word, "description": "at work"}));
            assert_eq!(answer.header("retry-after"), Some("7"));
        }
    }
    let mut silent = operation(OperationState::Succeeded);
    silent.description = Some(String::new());
    rig.answer(|answers| answers.last_operation = Ok(silent));
    let answer = rig.send(get(&format!("{INSTANCE}/last_operation"))).await;
    assert_eq!(answer.json(), json!({"state": "succeeded"}));
}

#[tokio::test]
async fn item_08_46_usable_and_repeatable_are_told_only_of_failed_instances() {
    let rig = Rig::new();
    rig.answer(|answers| answers.last_operation = Ok(operation(OperationState::Failed)));
    let failed = json!({"state": "failed", "description": "at work", "instance_usable": true, "update_repeatable": false});
    assert_eq!(rig.send(get(&format!("{INSTANCE}/last_operation"))).await.json(), failed);
    let failed = json!({"state": "failed", "description": "at work"});
    assert_eq!(rig.send(get(&format!("{BINDING}/last_operation"))).await.json(), failed);
    rig.answer(|answers| {
        answers.last_operation = Err(Error::new(ErrorKind::Gone, "gone").instance_usable(true));
    });
    let answer = rig.send(get(&format!("{INSTANCE}/last_operation"))).await;
    assert_eq!(answer.json(), json!({"error": "Gone", "description": "gone"}));
}
