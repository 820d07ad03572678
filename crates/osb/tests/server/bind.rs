use std::sync::atomic::Ordering;

use osb::{Action, BindRequest, BindResource, BindingBody, BindingId, Error, InstanceId, Reply};
use serde_json::{Value, json};

use crate::support::{Answer, BINDING, Heard, Rig, bind_with, put};

async fn bind(rig: &Rig, changes: Value) -> Answer {
    rig.send(put(BINDING, &bind_with(changes))).await
}

#[tokio::test]
async fn item_36_52_a_whole_request_reaches_the_backend_as_sent() {
    let rig = Rig::new();
    let context =
        json!({"platform": "cloudfoundry", "organization_guid": "o", "space_annotations": {}});
    let resource = json!({"app_guid": "app", "route": "r.example.com", "space_guid": "s", "app_annotations": {"a": "b"}, "credential_client_id": "c"});
    let changes = json!({"context": context, "app_guid": "app", "bind_resource": resource, "parameters": {"size": 1}});
    assert_eq!(bind(&rig, changes).await.status, 201);
    let object = |value: Value| value.as_object().unwrap().clone();
    let expected = BindRequest {
        service_id: Some("db".to_owned().try_into().unwrap()),
        plan_id: Some("small".to_owned().try_into().unwrap()),
        context: Some(object(context).into()),
        app_guid: Some("app".into()),
        bind_resource: Some(BindResource {
            app_guid: Some("app".into()),
            route: Some("r.example.com".into()),
            other: object(
                json!({"space_guid": "s", "app_annotations": {"a": "b"}, "credential_client_id": "c"}),
            ),
        }),
        parameters: Some(object(json!({"size": 1})).into()),
        predecessor_binding_id: None,
    };
    let (instance, binding) = (InstanceId::new("i").unwrap(), BindingId::new("b").unwrap());
    assert_eq!(rig.heard(), [Heard::Bind(instance, binding, expected)]);
}

#[tokio::test]
async fn item_06_unknown_members_of_a_bind_resource_are_handed_on_whatever_they_are() {
    let rig = Rig::new();
    let resource = json!({
        "space_guid": "s", "app_annotations": {"a": {"b": [1]}}, "credential_client_id": "",
        "backup_agent": true, "vendor": [7, null], "none": null,
    });
    assert_eq!(bind(&rig, json!({"bind_resource": resource})).await.status, 201);
    let [Heard::Bind(_, _, request)] = &rig.heard()[..] else { panic!("one bind") };
    let heard = request.bind_resource.as_ref().unwrap();
    assert_eq!(serde_json::to_value(heard).unwrap(), resource);
}

#[tokio::test]
async fn item_36_missing_empty_and_unknown_ids_are_400() {
    let rig = Rig::new();
    rig.send(put(BINDING, &json!({}))).await.names(&["service_id", "plan_id"]);
    rig.send(put(BINDING, &json!({"service_id": "", "plan_id": []})))
        .await
        .names(&["service_id", "plan_id"]);
    bind(&rig, json!({"service_id": "none"})).await.names(&["service_id"]);
    bind(&rig, json!({"plan_id": "logs"})).await.names(&["plan_id"]);
    bind(&rig, json!({"parameters": {"size": "x"}})).await.names(&["parameters/size"]);
    bind(&rig, json!({"bind_resource": "x", "app_guid": 1, "context": 1})).await.names(&[
        "bind_resource",
        "app_guid",
        "context",
    ]);
    bind(&rig, json!({"bind_resource": {"app_guid": 1, "route": []}}))
        .await
        .names(&["bind_resource.app_guid", "bind_resource.route"]);
    assert_eq!(rig.heard(), []);
}

/// Korifi sends it so for a key, which is for no application.
#[tokio::test]
async fn item_36_an_empty_application_or_route_is_none() {
    let rig = Rig::new();
    let empty = json!({"app_guid": "", "bind_resource": {"app_guid": "", "route": ""}});
    assert_eq!(bind(&rig, empty).await.status, 201);
    let [Heard::Bind(_, _, request)] = &rig.heard()[..] else { panic!("one bind") };
    let resource = request.bind_resource.as_ref().unwrap();
    assert_eq!((&request.app_guid, &resource.app_guid, &resource.route), (&None, &None, &None));
}

#[tokio::test]
async fn item_36_202_carries_no_credentials_but_the_operation() {
    let rig = Rig::new();
    let secret = BindingBody {
        credentials: Some(json!({"p": "hunter2"}).as_object().unwrap().clone().into()),
        ..BindingBody::default()
    };
    for (reply, status, body) in [
        (Reply::Created(secret.clone()), 201, json!({"credentials": {"p": "hunter2"}})),
        (Reply::Done(secret.clone()), 200, json!({"credentials": {"p": "hunter2"}})),
        (Reply::Accepted { operation: "op".into(), body: secret }, 202, json!({"operation": "op"})),
    ] {
        rig.answer(|answers| answers.bind = Ok(reply));
        let answer = bind(&rig, json!({})).await;
        assert_eq!((answer.status, answer.json()), (status, body));
    }
}

#[tokio::test]
async fn item_37_a_service_that_needs_an_app_says_requires_app() {
    let rig = Rig::new();
    let log = |changes: Value| {
        let mut body = json!({"service_id": "log", "plan_id": "logs"});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        put(BINDING, &body)
    };
    for changes in [
        json!({}),
        json!({"bind_resource": {}}),
        json!({"bind_resource": {"space_guid": "s"}}),
        json!({"app_guid": null}),
        json!({"app_guid": "", "bind_resource": {"app_guid": "", "route": ""}}),
    ] {
        let description = rig.send(log(changes)).await.refusal(422, "RequiresApp");
        assert!(description.starts_with("bind_resource.app_guid: "));
    }
    assert_eq!(rig.heard(), []);
    for changes in [
        json!({"app_guid": "a"}),
        json!({"bind_resource": {"app_guid": "a"}}),
        json!({"bind_resource": {"route": "r"}}),
    ] {
        assert_eq!(rig.send(log(changes)).await.status, 201);
    }
    assert_eq!(bind(&rig, json!({})).await.status, 201);
}

#[tokio::test]
async fn item_37_async_required_goes_before_requires_app() {
    let rig = Rig::new();
    rig.backend.requires_async.store(true, Ordering::SeqCst);
    let log = json!({"service_id": "log", "plan_id": "logs"});
    rig.send(put(BINDING, &log)).await.refusal(422, "AsyncRequired");
    assert_eq!(rig.backend.asked_async.lock().unwrap()[0], (Action::Bind, Some("logs".to_owned())));
}

#[tokio::test]
async fn item_41_a_plan_that_cannot_be_bound_is_400() {
    let rig = Rig::new();
    bind(&rig, json!({"plan_id": "unbindable"})).await.names(&["plan_id"]);
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_42_a_rotation_needs_only_the_predecessor() {
    let rig = Rig::new();
    for body in [
        json!({"predecessor_binding_id": "old"}),
        json!({"predecessor_binding_id": "old", "service_id": "db", "plan_id": "small"}),
        json!({"predecessor_binding_id": "old", "service_id": "db"}),
        json!({"predecessor_binding_id": "old", "service_id": null, "plan_id": null, "parameters": {}}),
    ] {
        assert_eq!(rig.send(put(BINDING, &body)).await.status, 201, "{body}");
        let [Heard::Bind(_, _, request)] = &rig.heard()[..] else { panic!("one bind") };
        assert_eq!(request.predecessor_binding_id, Some(BindingId::new("old").unwrap()));
        assert_eq!(request.service_id.is_some(), body["service_id"].is_string());
        assert_eq!(request.parameters.is_some(), body["parameters"].is_object());
    }
    for (body, name) in [
        (json!({"predecessor_binding_id": ""}), "predecessor_binding_id"),
        (json!({"predecessor_binding_id": 5}), "predecessor_binding_id"),
        (json!({"predecessor_binding_id": "old", "service_id": "none"}), "service_id"),
        (
            json!({"predecessor_binding_id": "old", "service_id": "db", "plan_id": "logs"}),
            "plan_id",
        ),
        (json!({"predecessor_binding_id": "old", "plan_id": ""}), "plan_id"),
    ] {
        rig.send(put(BINDING, &body)).await.names(&[name]);
    }
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_42_a_rotation_takes_application_and_parameters_from_the_predecessor() {
    let rig = Rig::new();
    let strict = |changes: Value| {
        let mut body = json!({"service_id": "log", "plan_id": "strict"});
        body.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        put(BINDING, &body)
    };
    let successor = strict(json!({"predecessor_binding_id": "old"}));
    assert_eq!(rig.send(successor).await.status, 201);
    let wrong = json!({"predecessor_binding_id": "old", "parameters": {}});
    rig.send(strict(wrong)).await.names(&["parameters"]);
    rig.send(strict(json!({"app_guid": "a"}))).await.names(&["parameters"]);
    rig.send(strict(json!({"parameters": {"size": 1}}))).await.refusal(422, "RequiresApp");
}

#[tokio::test]
async fn item_43_44_a_successor_needs_a_rotatable_plan_and_an_id_of_its_own() {
    let rig = Rig::new();
    bind(&rig, json!({"plan_id": "large", "predecessor_binding_id": "old"}))
        .await
        .names(&["predecessor_binding_id"]);
    bind(&rig, json!({"predecessor_binding_id": "b"})).await.names(&["predecessor_binding_id"]);
    assert_eq!(rig.heard(), []);
}

#[tokio::test]
async fn item_08_a_failed_bind_never_tells_usable_or_repeatable() {
    let rig = Rig::new();
    rig.answer(|answers| {
        answers.bind = Err(Error::internal("x").instance_usable(true).update_repeatable(true));
    });
    assert_eq!(
        bind(&rig, json!({})).await.json(),
        json!({"error": "InternalError", "description": "x"})
    );
}
