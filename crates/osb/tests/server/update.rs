use std::sync::atomic::Ordering;

use osb::{
    Action, Error, ErrorKind, InstanceId, PreviousValues, ProvisionedBody, Reply, UpdateRequest,
};
use serde_json::{Value, json};

use crate::support::{Answer, Heard, INSTANCE, Rig, patch};

async fn update(rig: &Rig, body: Value) -> Answer {
    rig.send(patch(INSTANCE, &body)).await
}

#[tokio::test]
async fn item_31_only_the_service_is_required_and_what_is_absent_stays_absent() {
    let rig = Rig::new();
    assert_eq!(update(&rig, json!({"service_id": "db"})).await.status, 200);
    let expected = UpdateRequest {
        service_id: "db".to_owned().try_into().unwrap(),
        plan_id: None,
        parameters: None,
        context: None,
        previous_values: None,
        maintenance_info: None,
    };
    assert_eq!(rig.heard(), [Heard::Update(InstanceId::new("i").unwrap(), expected)]);
    for body in [
        json!({}),
        json!({"service_id": ""}),
        json!({"service_id": null}),
        json!({"service_id": "none"}),
    ] {
        update(&rig, body).await.names(&["service_id"]);
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_31_previous_values_are_carried_and_only_their_types_judged() {
    let rig = Rig::new();
    let previous = json!({"service_id": "gone", "plan_id": "", "organization_id": "o", "space_id": null,
                          "maintenance_info": {"version": "0.1.0"}, "more": 1});
    assert_eq!(
        update(&rig, json!({"service_id": "db", "previous_values": previous})).await.status,
        200
    );
    let [Heard::Update(_, request)] = &rig.heard()[..] else { panic!("one update") };
    let Some(PreviousValues { service_id, plan_id, organization_id, space_id, maintenance_info }) =
        &request.previous_values
    else {
        panic!("previous values")
    };
    assert_eq!((service_id.as_deref(), plan_id.as_deref()), (Some("gone"), Some("")));
    assert_eq!((organization_id.as_deref(), space_id.as_deref()), (Some("o"), None));
    assert_eq!(maintenance_info.as_ref().unwrap().version, "0.1.0");
    let wrong = json!({"service_id": 1, "plan_id": [], "organization_id": {}, "space_id": true, "maintenance_info": {}});
    update(&rig, json!({"service_id": "db", "previous_values": wrong})).await.names(&[
        "previous_values.service_id",
        "previous_values.plan_id",
        "previous_values.organization_id",
        "previous_values.space_id",
        "previous_values.maintenance_info.version",
    ]);
    update(&rig, json!({"service_id": "db", "previous_values": []}))
        .await
        .names(&["previous_values"]);
}

#[tokio::test]
async fn item_31_a_plan_is_judged_and_its_schema_with_it() {
    let rig = Rig::new();
    for (body, name) in [
        (json!({"service_id": "db", "plan_id": "none"}), "plan_id"),
        (json!({"service_id": "db", "plan_id": "logs"}), "plan_id"),
        (json!({"service_id": "db", "plan_id": ""}), "plan_id"),
        (
            json!({"service_id": "db", "plan_id": "small", "parameters": {"size": "x"}}),
            "parameters/size",
        ),
        (json!({"service_id": "db", "parameters": "x"}), "parameters"),
    ] {
        update(&rig, body).await.names(&[name]);
    }
    assert_eq!(rig.heard(), []);
    // Without a plan the backend knows the schema.
    assert_eq!(
        update(&rig, json!({"service_id": "db", "parameters": {"size": "x"}})).await.status,
        200
    );
}

#[tokio::test]
async fn item_31_absent_parameters_are_not_held_against_the_schema() {
    let rig = Rig::new();
    let strict = json!({"service_id": "log", "plan_id": "strict"});
    assert_eq!(update(&rig, strict).await.status, 200);
    let strict = json!({"service_id": "log", "plan_id": "strict", "parameters": {}});
    update(&rig, strict).await.names(&["parameters"]);
}

#[tokio::test]
async fn item_33_async_required_and_maintenance_info_conflict() {
    let rig = Rig::new();
    update(
        &rig,
        json!({"service_id": "db", "plan_id": "small", "maintenance_info": {"version": "2.0.0"}}),
    )
    .await
    .refusal(422, "MaintenanceInfoConflict");
    rig.backend.requires_async.store(true, Ordering::SeqCst);
    update(
        &rig,
        json!({"service_id": "db", "plan_id": "small", "maintenance_info": {"version": "2.0.0"}}),
    )
    .await
    .refusal(422, "AsyncRequired");
    update(&rig, json!({"service_id": "db"})).await.refusal(422, "AsyncRequired");
    let asked = rig.backend.asked_async.lock().unwrap().clone();
    assert_eq!(asked[1..], [(Action::Update, Some("small".to_owned())), (Action::Update, None)]);
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_32_replies_become_200_and_202() {
    let rig = Rig::new();
    let body = ProvisionedBody { dashboard_url: Some("https://d".into()), metadata: None };
    for (reply, status, expected) in [
        (Reply::Done(ProvisionedBody::default()), 200, json!({})),
        (Reply::Done(body.clone()), 200, json!({"dashboard_url": "https://d"})),
        (Reply::Created(body.clone()), 200, json!({"dashboard_url": "https://d"})),
        (
            Reply::Accepted { operation: "op".into(), body },
            202,
            json!({"dashboard_url": "https://d", "operation": "op"}),
        ),
    ] {
        rig.answer(|answers| answers.update = Ok(reply));
        let answer = update(&rig, json!({"service_id": "db"})).await;
        assert_eq!((answer.status, answer.json()), (status, expected));
    }
}

#[tokio::test]
async fn item_08_a_failed_update_tells_usable_and_repeatable() {
    let rig = Rig::new();
    let error =
        Error::new(ErrorKind::Unprocessable, "no").instance_usable(false).update_repeatable(true);
    rig.answer(|answers| answers.update = Err(error));
    let body = update(&rig, json!({"service_id": "db"})).await.json();
    let expected = json!({"error": "Unprocessable", "description": "no", "instance_usable": false, "update_repeatable": true});
    assert_eq!(body, expected);
}
