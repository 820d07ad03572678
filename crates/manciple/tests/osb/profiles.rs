//! Items 51 and 52: what the profiles of the two platforms send reaches the broker whole.

use data_encoding::BASE64;
use http::Method;
use serde_json::{Value, json};

use crate::harness::{Api, SERVICE, SMALL, binding, instance, order};

async fn ordered(context: Value, identity: Value, bind_resource: Value) -> Vec<osb::Work> {
    let api = Api::new().await;
    let platform = context["platform"].as_str().unwrap().to_owned();
    let identity = format!("{platform} {}", BASE64.encode(identity.to_string().as_bytes()));
    let headers = [("X-Broker-API-Originating-Identity", identity.as_str())];
    let body = order(json!({ "context": context }));
    let answer = api.send_with(Method::PUT, &instance("i"), Some(body), &headers).await;
    api.succeeds(&instance("i"), &answer.operation()).await;
    let body = json!({
        "service_id": SERVICE, "plan_id": SMALL, "context": context, "bind_resource": bind_resource,
    });
    let answer = api.send_with(Method::PUT, &binding("i", "b"), Some(body), &headers).await;
    api.succeeds(&binding("i", "b"), &answer.operation()).await;
    api.runner.works()
}

fn same(work: &osb::Work, context: &Value, identity: &Value) {
    assert_eq!(&Value::Object(work.context.expose().clone()), context);
    let seen = work.originating_identity.clone().unwrap().value.into_inner();
    assert_eq!(&Value::Object(seen), identity);
}

#[tokio::test(start_paused = true)]
async fn item_51_kubernetes() {
    let context = json!({
        "platform": "kubernetes", "namespace": "development", "clusterid": "8263feae",
        "instance_name": "my-db", "namespace_annotations": { "a/b": "c" },
        "instance_annotations": { "d/e": "f" },
    });
    let identity = json!({
        "username": "duke", "uid": "c2dde242", "groups": ["admin", "dev"],
        "extra": { "mydata": ["data1", "data3"] },
    });
    for work in ordered(context.clone(), identity.clone(), json!({})).await {
        same(&work, &context, &identity);
    }
}

#[tokio::test(start_paused = true)]
async fn item_52_cloud_foundry() {
    let context = json!({
        "platform": "cloudfoundry", "organization_guid": "o", "organization_name": "on",
        "space_guid": "s", "space_name": "sn", "instance_name": "in",
        "organization_annotations": { "a": "b" }, "space_annotations": {},
        "instance_annotations": {},
    });
    let identity = json!({ "user_id": "683ea748" });
    let resource = json!({
        "app_guid": "app", "space_guid": "s", "app_annotations": { "x": "y" },
        "credential_client_id": "client",
    });
    let works = ordered(context.clone(), identity.clone(), resource.clone()).await;
    for work in &works {
        same(work, &context, &identity);
    }
    let seen = works[1].bind_resource.clone().unwrap();
    assert_eq!(serde_json::to_value(seen).unwrap(), resource);
}
