use std::sync::atomic::Ordering;
use std::time::Duration;

use osb::{
    Action, Error, ErrorKind, InstanceId, InstanceMetadata, MaintenanceInfo, ProvisionRequest,
    ProvisionedBody, Reply,
};
use serde_json::{Value, json};

use crate::support::{Heard, INSTANCE, Rig, provision_with, put};

async fn provision(rig: &Rig, changes: Value) -> crate::support::Answer {
    rig.send(put(INSTANCE, &provision_with(changes))).await
}

#[tokio::test]
async fn item_19_a_whole_request_reaches_the_backend_as_sent() {
    let rig = Rig::new();
    let context = json!({"platform": "kubernetes", "namespace": "n", "clusterid": "c", "instance_name": "i", "namespace_annotations": {"a": "b"}});
    let changes = json!({
        "context": context, "parameters": {"size": 3, "other": [null, {"deep": true}]},
        "maintenance_info": {"version": "1.0.0", "description": 7, "more": true}, "unknown": {"ignored": 1}});
    assert_eq!(provision(&rig, changes).await.status, 201);
    let expected = ProvisionRequest {
        service_id: "db".to_owned().try_into().unwrap(),
        plan_id: "small".to_owned().try_into().unwrap(),
        organization_guid: "o".into(),
        space_guid: "s".into(),
        context: Some(context.as_object().unwrap().clone().into()),
        parameters: Some(
            json!({"size": 3, "other": [null, {"deep": true}]}).as_object().unwrap().clone().into(),
        ),
        maintenance_info: Some(MaintenanceInfo { version: "1.0.0".into(), description: None }),
    };
    assert_eq!(rig.heard(), [Heard::Provision(InstanceId::new("i").unwrap(), expected)]);
}

#[tokio::test]
async fn item_06_null_is_absent_and_unknown_fields_are_ignored() {
    let rig = Rig::new();
    let changes =
        json!({"context": null, "parameters": null, "maintenance_info": null, "x": null, "": []});
    assert_eq!(provision(&rig, changes).await.status, 201);
    let [Heard::Provision(_, request)] = &rig.heard()[..] else { panic!("one provision") };
    assert_eq!(
        (&request.context, &request.parameters, &request.maintenance_info),
        (&None, &None, &None)
    );
}

#[tokio::test]
async fn item_19_every_missing_field_is_named_at_once() {
    let rig = Rig::new();
    let all = ["service_id", "plan_id", "organization_guid", "space_guid"];
    rig.send(put(INSTANCE, &json!({}))).await.names(&all);
    rig.send(put(INSTANCE, &json!({})).body("")).await.names(&all);
    rig.send(put(
        INSTANCE,
        &json!({"service_id": "", "plan_id": null, "organization_guid": 1, "space_guid": {}}),
    ))
    .await
    .names(&all);
    let wrong = json!({"plan_id": 5, "parameters": [], "context": "c", "maintenance_info": {"version": ""}});
    provision(&rig, wrong).await.names(&[
        "plan_id",
        "parameters",
        "context",
        "maintenance_info.version",
    ]);
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_19_services_and_plans_that_are_not_in_the_catalog_are_400() {
    let rig = Rig::new();
    for (changes, name) in [
        (json!({"service_id": "none"}), "service_id"),
        (json!({"service_id": "DB"}), "service_id"),
        (json!({"plan_id": "none"}), "plan_id"),
        (json!({"plan_id": "logs"}), "plan_id"),
        (json!({"service_id": "small"}), "service_id"),
    ] {
        provision(&rig, changes).await.names(&[name]);
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_19_parameters_that_break_the_schema_are_400_without_their_values() {
    let rig = Rig::new();
    let changes = json!({"parameters": {"size": 0, "password": "hunter2"}, "space_guid": ""});
    let description = provision(&rig, changes).await.names(&[
        "parameters/size",
        "parameters/password",
        "space_guid",
    ]);
    assert!(!description.contains("hunter2"), "{description}");
    assert_eq!(
        provision(&rig, json!({"plan_id": "large", "parameters": {"size": 0}})).await.status,
        201
    );
}

#[tokio::test]
async fn item_19_parameters_that_a_schema_requires_cannot_be_left_out() {
    let rig = Rig::new();
    let strict = |parameters: Value| json!({"service_id": "log", "plan_id": "strict", "parameters": parameters});
    for parameters in [Value::Null, json!({})] {
        provision(&rig, strict(parameters)).await.names(&["parameters"]);
    }
    assert_eq!(provision(&rig, strict(json!({"size": 1}))).await.status, 201);
}

#[tokio::test]
async fn item_22_an_asynchronous_plan_without_accepts_incomplete_is_async_required() {
    let rig = Rig::new();
    rig.backend.requires_async.store(true, Ordering::SeqCst);
    for query in ["", "?accepts_incomplete=false"] {
        let answer = rig.send(put(&format!("{INSTANCE}{query}"), &provision_with(json!({})))).await;
        let description = answer.refusal(422, "AsyncRequired");
        assert!(description.contains("accepts_incomplete: must be true in the query"));
    }
    // Some scripts have it in the body, where it means nothing.
    let body = provision_with(json!({"accepts_incomplete": true}));
    rig.send(put(INSTANCE, &body)).await.refusal(422, "AsyncRequired");
    assert_eq!(rig.heard(), []);
    assert_eq!(
        rig.backend.asked_async.lock().unwrap()[0],
        (Action::Provision, Some("small".into()))
    );
    let accepts = put(&format!("{INSTANCE}?accepts_incomplete=true"), &provision_with(json!({})));
    assert_eq!(rig.send(accepts).await.status, 201);
}

#[tokio::test]
async fn item_23_a_version_that_is_not_the_catalogs_is_maintenance_info_conflict() {
    let rig = Rig::new();
    for (plan, version) in
        [("small", "1.0.1"), ("small", "1.0.0+build"), ("small", "x"), ("large", "1.0.0")]
    {
        let changes = json!({"plan_id": plan, "maintenance_info": {"version": version}});
        provision(&rig, changes).await.refusal(422, "MaintenanceInfoConflict");
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn refusals_come_in_the_order_that_checkers_want() {
    let rig = Rig::new();
    rig.backend.requires_async.store(true, Ordering::SeqCst);
    let conflict = json!({"maintenance_info": {"version": "9.9.9"}});
    let bad = json!({"maintenance_info": {"version": "9.9.9"}, "space_guid": ""});
    let ask = |changes: &Value| put(INSTANCE, &provision_with(changes.clone()));
    rig.send(ask(&bad).without("x-broker-api-version").without("authorization"))
        .await
        .refusal(401, "Unauthorized");
    rig.send(ask(&bad).without("x-broker-api-version")).await.refusal(412, "UnsupportedVersion");
    rig.send(ask(&bad)).await.refusal(400, "BadRequest");
    rig.send(ask(&conflict)).await.refusal(422, "AsyncRequired");
    rig.backend.requires_async.store(false, Ordering::SeqCst);
    rig.send(ask(&conflict)).await.refusal(422, "MaintenanceInfoConflict");
    assert_eq!(rig.heard(), []);
}

fn known() -> ProvisionedBody {
    let labels = [("cloud".to_owned(), "near".to_owned())].into();
    ProvisionedBody {
        dashboard_url: Some("https://dash/1".into()),
        metadata: Some(InstanceMetadata { labels: Some(labels), attributes: None }),
    }
}

#[tokio::test]
async fn item_20_24_replies_become_201_200_and_202_with_what_is_known() {
    let rig = Rig::new();
    let body =
        json!({"dashboard_url": "https://dash/1", "metadata": {"labels": {"cloud": "near"}}});
    let mut accepted = body.clone();
    accepted["operation"] = json!("op-1");
    for (reply, status, body) in [
        (Reply::Created(known()), 201, body.clone()),
        (Reply::Done(known()), 200, body),
        (Reply::Accepted { operation: "op-1".into(), body: known() }, 202, accepted),
        (Reply::Created(ProvisionedBody::default()), 201, json!({})),
    ] {
        rig.answer(|answers| answers.provision = Ok(reply));
        let answer = provision(&rig, json!({})).await;
        assert_eq!((answer.status, answer.json()), (status, body));
    }
}

#[tokio::test]
async fn item_10_an_operation_that_no_platform_takes_is_left_out() {
    let rig = Rig::new();
    for (operation, told) in [
        (String::new(), None),
        ("ü".repeat(10_001), None),
        ("ü".repeat(10_000), Some("ü".repeat(10_000))),
    ] {
        rig.answer(|answers| {
            answers.provision = Ok(Reply::Accepted { operation, body: ProvisionedBody::default() });
        });
        let answer = provision(&rig, json!({})).await;
        assert_eq!(
            (answer.status, answer.json()["operation"].as_str().map(str::to_owned)),
            (202, told)
        );
    }
}

#[tokio::test]
async fn item_07_every_kind_of_error_has_its_status_and_one_word() {
    use ErrorKind::*;
    let rig = Rig::new();
    for (kind, status, word) in [
        (BadRequest, 400, "BadRequest"),
        (Conflict, 409, "Conflict"),
        (Gone, 410, "Gone"),
        (NotFound, 404, "NotFound"),
        (AsyncRequired, 422, "AsyncRequired"),
        (ConcurrencyError, 422, "ConcurrencyError"),
        (RequiresApp, 422, "RequiresApp"),
        (MaintenanceInfoConflict, 422, "MaintenanceInfoConflict"),
        (Unprocessable, 422, "Unprocessable"),
        (TooManyRequests, 429, "TooManyRequests"),
        (Internal, 500, "InternalError"),
        (Unavailable, 503, "Unavailable"),
        (Timeout, 504, "Timeout"),
    ] {
        rig.answer(|answers| {
            answers.provision =
                Err(Error::new(kind, "why").retry_after(Duration::from_millis(1500)));
        });
        let answer = provision(&rig, json!({})).await;
        assert_eq!(answer.refusal(status, word), "why");
        assert_eq!(answer.header("retry-after"), Some("2"));
        assert!(word.chars().all(char::is_alphanumeric));
    }
    rig.answer(|answers| answers.provision = Err(Error::new(Internal, "")));
    assert!(!provision(&rig, json!({})).await.refusal(500, "InternalError").is_empty());
}

#[tokio::test]
async fn item_08_a_failed_provision_never_tells_usable_or_repeatable() {
    let rig = Rig::new();
    rig.answer(|answers| {
        answers.provision = Err(Error::internal("x").instance_usable(true).update_repeatable(true));
    });
    let body = provision(&rig, json!({})).await.json();
    assert_eq!((body.get("instance_usable"), body.get("update_repeatable")), (None, None));
}
