//! Items 36 to 46: bind, rotate, fetch.

use std::time::Duration;

use engine::testing::scripted_runner::{Act, fitting_output};
use http::Method;
use serde_json::{Value, json};

use crate::harness::{Api, FIXED, LARGE, SERVICE, SMALL, Setup, binding, catalog, held, instance};

/// Makes bindings with this body.
fn binds(api: &Api, body: Value) {
    let body: osb::BindingBody = serde_json::from_value(body).unwrap();
    api.runner.script(move |work| {
        let mut output = fitting_output(work);
        output.binding = work.binding_id.is_some().then(|| body.clone());
        Act::End(Duration::ZERO, Ok(output))
    });
}

#[tokio::test(start_paused = true)]
async fn item_36_a_bind_is_202_without_credentials_201_when_held_200_when_it_is_so_already() {
    let api = Api::new().await;
    api.provisioned("i").await;
    for name in ["service_id", "plan_id"] {
        for value in [json!(null), json!(""), json!(7)] {
            let mut body = json!({ "service_id": SERVICE, "plan_id": SMALL });
            crate::harness::merge(&mut body, json!({ name: value }));
            let answer = api.send(Method::PUT, &binding("i", "b"), Some(body)).await;
            answer.refused(400, "BadRequest", name);
        }
    }
    let first = api.bind("i", "b", json!({})).await;
    assert_eq!(first.is(202).body.as_object().unwrap().len(), 1, "{first:?}");
    assert_eq!(api.bind("i", "b", json!({})).await.operation(), first.operation());
    // 409 comes before the mismatch of the plan.
    let other = json!({ "plan_id": LARGE, "parameters": { "size": 1 } });
    api.bind("i", "b", other.clone()).await.refused(409, "Conflict", "other attributes");
    api.succeeds(&binding("i", "b"), &first.operation()).await;
    let again = api.bind("i", "b", json!({})).await;
    let password = again.is(200).body["credentials"]["password"].clone();
    assert!(password.as_str().unwrap().starts_with("secret-of-bind-"));
    api.bind("i", "b", other).await.refused(409, "Conflict", "other attributes");
    api.bind("i", "c", json!({ "plan_id": LARGE })).await.refused(400, "BadRequest", "plan_id");
    let body = json!({ "service_id": SERVICE, "plan_id": SMALL });
    let answer = api.put(&held(&binding("i", "d")), body).await;
    assert!(answer.is(201).body["credentials"]["password"].is_string());
}

#[tokio::test(start_paused = true)]
async fn item_37_an_app_is_asked_for_where_one_is_needed() {
    let mut draining = catalog();
    draining["services"][0]["requires"] = json!(["syslog_drain"]);
    let api = Api::with(Setup { catalog: draining, ..Setup::default() }).await;
    api.provisioned("i").await;
    api.bind("i", "b", json!({})).await.refused(422, "RequiresApp", "app_guid");
    api.bind("i", "b", json!({ "bind_resource": { "app_guid": "a" } })).await.is(202);
    api.bind("i", "c", json!({ "app_guid": "a" })).await.is(202);
}

#[tokio::test(start_paused = true)]
async fn item_37_a_busy_instance_is_422_concurrency_error() {
    let api = Api::new().await;
    api.slow(Duration::from_secs(60));
    let operation = api.provision("i", json!({})).await.operation();
    api.bind("i", "b", json!({})).await.refused(422, "ConcurrencyError", "busy");
    api.succeeds(&instance("i"), &operation).await;
    api.bind("i", "b", json!({})).await.is(202);
    api.bind("i", "c", json!({})).await.is(202);
    let answer = api.update("i", json!({ "parameters": { "size": 2 } })).await;
    answer.refused(422, "ConcurrencyError", "binding");
}

#[tokio::test(start_paused = true)]
async fn item_38_drains_routes_and_volumes_need_their_permission() {
    let mount = json!([{ "driver": "nfs", "container_dir": "/data", "mode": "rw",
        "device_type": "shared", "device": { "volume_id": "v" } }]);
    let bodies = [
        ("syslog_drain", json!({ "syslog_drain_url": "syslog://logs.example:514" })),
        ("route_forwarding", json!({ "route_service_url": "https://route.example" })),
        ("volume_mount", json!({ "volume_mounts": mount })),
    ];
    for (permission, body) in bodies {
        for granted in [false, true] {
            let mut catalog = catalog();
            if granted {
                catalog["services"][0]["requires"] = json!([permission]);
            }
            let api = Api::with(Setup { catalog, ..Setup::default() }).await;
            api.provisioned("i").await;
            binds(&api, body.clone());
            let resource = json!({ "bind_resource": { "app_guid": "a" } });
            let operation = api.bind("i", "b", resource).await.operation();
            let answer = api.finish(&binding("i", "b"), &operation).await;
            let state = if granted { "succeeded" } else { "failed" };
            assert_eq!(answer.body["state"], state, "{permission}: {answer:?}");
            if !granted {
                let said = answer.body["description"].as_str().unwrap();
                assert!(said.contains(permission), "{said}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn item_39_mounts_and_endpoints_have_their_form() {
    let mut mounting = catalog();
    mounting["services"][0]["requires"] = json!(["volume_mount"]);
    let api = Api::with(Setup { catalog: mounting, ..Setup::default() }).await;
    api.provisioned("i").await;
    let mount = |container_dir: &str, device_type: &str| {
        json!({ "volume_mounts": [{ "driver": "nfs", "container_dir": container_dir, "mode": "r",
            "device_type": device_type, "device": { "volume_id": "v" } }] })
    };
    let endpoint =
        |ports: Value| json!({ "endpoints": [{ "host": "db.example", "ports": ports }] });
    let cases = [
        (true, mount("/data", "shared")),
        (false, mount("/data", "private")),
        (false, mount("", "shared")),
        (true, endpoint(json!(["443", "9000-9010"]))),
        (true, json!({ "endpoints": [] })),
        (false, endpoint(json!([]))),
        (false, endpoint(json!([""]))),
        (false, endpoint(json!(["http"]))),
    ];
    for (number, (good, body)) in cases.into_iter().enumerate() {
        binds(&api, body.clone());
        let name = format!("b{number}");
        let app = json!({ "bind_resource": { "app_guid": "a" } });
        let operation = api.bind("i", &name, app).await.operation();
        let answer = api.finish(&binding("i", &name), &operation).await;
        let state = if good { "succeeded" } else { "failed" };
        assert_eq!(answer.body["state"], state, "{body}: {answer:?}");
        if good {
            assert_eq!(api.get(&held(&binding("i", &name))).await.is(200).body, body);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn item_40_expiry_and_renewal_have_their_form_and_order() {
    let api = Api::new().await;
    api.provisioned("i").await;
    let metadata = |expires: &str, renew: &str| json!({ "metadata": { "expires_at": expires, "renew_before": renew }, "credentials": {} });
    let cases = [
        (true, metadata("2031-01-02T03:04:05.0Z", "2031-01-01T03:04:05.0Z")),
        (false, metadata("2031-01-01T03:04:05.0Z", "2031-01-02T03:04:05.0Z")),
        (false, metadata("tomorrow", "2031-01-01T03:04:05.0Z")),
        (false, metadata("2031-01-02T03:04:05+02:00", "2031-01-01T03:04:05.0Z")),
    ];
    for (number, (good, body)) in cases.into_iter().enumerate() {
        binds(&api, body.clone());
        let name = format!("b{number}");
        let operation = api.bind("i", &name, json!({})).await.operation();
        let answer = api.finish(&binding("i", &name), &operation).await;
        let state = if good { "succeeded" } else { "failed" };
        assert_eq!(answer.body["state"], state, "{body}: {answer:?}");
        if good {
            let path = held(&binding("i", &name));
            assert_eq!(api.get(&path).await.body["metadata"], body["metadata"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn item_41_a_plan_that_cannot_be_bound_is_400_and_an_unknown_instance_404() {
    let api = Api::new().await;
    let operation = api.provision("i", json!({ "plan_id": FIXED })).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    let answer = api.bind("i", "b", json!({ "plan_id": FIXED })).await;
    answer.refused(400, "BadRequest", "plan_id");
    api.bind("unknown", "b", json!({})).await.refused(404, "NotFound", "instance");
}

#[tokio::test(start_paused = true)]
async fn item_42_a_rotation_needs_only_its_predecessor_and_takes_over_its_parameters() {
    let api = Api::new().await;
    api.provisioned("i").await;
    let operation = api.bind("i", "old", json!({ "parameters": { "size": 3 } })).await.operation();
    api.succeeds(&binding("i", "old"), &operation).await;
    let body = json!({ "predecessor_binding_id": "old" });
    let operation = api.put(&binding("i", "new"), body).await.operation();
    api.succeeds(&binding("i", "new"), &operation).await;
    let work = api.runner.works().pop().unwrap();
    assert_eq!(work.parameters.expose()["size"], 3);
    assert_eq!(work.predecessor_binding_id.unwrap().as_str(), "old");
    // With ids, as the published document has it.
    let answer = api.bind("i", "newer", json!({ "predecessor_binding_id": "new" })).await;
    answer.is(202);
    // What it cannot be is not passed over.
    let mut body = json!({ "predecessor_binding_id": "new", "parameters": { "size": 3 } });
    api.put(&binding("i", "same"), body.clone()).await.is(202);
    for (member, other) in [("parameters", json!({ "size": 4 })), ("plan_id", json!(LARGE))] {
        let before = body.clone();
        body[member] = other;
        api.put(&binding("i", "other"), body.clone()).await.refused(400, "BadRequest", member);
        let again = api.put(&binding("i", "same"), body).await.status;
        assert!(again.is_client_error(), "{member}: {again}");
        body = before;
    }
}

#[tokio::test(start_paused = true)]
async fn item_42_a_successor_is_of_the_plan_that_its_instance_has_by_now() {
    let api = Api::new().await;
    let operation = api.provision("i", json!({ "plan_id": LARGE })).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    let operation = api.bind("i", "old", json!({ "plan_id": LARGE })).await.operation();
    api.succeeds(&binding("i", "old"), &operation).await;
    let operation = api.update("i", json!({ "plan_id": SMALL })).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    let body = json!({ "predecessor_binding_id": "old" });
    let operation = api.put(&binding("i", "new"), body).await.operation();
    api.succeeds(&binding("i", "new"), &operation).await;
    assert_eq!(api.runner.works().pop().unwrap().plan_id.as_str(), SMALL);
}

#[tokio::test(start_paused = true)]
async fn item_43_a_predecessor_is_of_the_same_instance_not_expired_and_its_plan_rotates() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.provisioned("j").await;
    api.bound("j", "elsewhere").await;
    let rotate = |id: &str, predecessor: &str| {
        let body = json!({ "predecessor_binding_id": predecessor });
        let path = binding(id, "new");
        let api = &api;
        async move { api.put(&path, body).await }
    };
    rotate("i", "unknown").await.refused(400, "BadRequest", "predecessor_binding_id");
    rotate("i", "elsewhere").await.refused(400, "BadRequest", "predecessor_binding_id");
    let body = json!({ "metadata": { "expires_at": "2001-01-01T00:00:00.0Z" }, "credentials": {} });
    binds(&api, body);
    api.bound("i", "expired").await;
    rotate("i", "expired").await.refused(422, "Unprocessable", "expired");
    let operation = api.provision("l", json!({ "plan_id": LARGE })).await.operation();
    api.succeeds(&instance("l"), &operation).await;
    let operation = api.bind("l", "old", json!({ "plan_id": LARGE })).await.operation();
    api.succeeds(&binding("l", "old"), &operation).await;
    rotate("l", "old").await.refused(400, "BadRequest", "rotated");
}

#[tokio::test(start_paused = true)]
async fn item_44_both_bindings_stay_good_and_a_repeated_rotation_is_the_same() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.bound("i", "old").await;
    let path = binding("i", "new");
    let rotate = || api.put(&path, json!({ "predecessor_binding_id": "old" }));
    let first = rotate().await.operation();
    assert_eq!(rotate().await.operation(), first);
    api.succeeds(&binding("i", "new"), &first).await;
    let secret = async |name: &str| {
        let view = api.get(&held(&binding("i", name))).await;
        view.is(200).body["credentials"]["password"].clone()
    };
    assert_ne!(secret("old").await, secret("new").await);
    api.unbind("i", "old").await.is(202);
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Its predecessor is gone, yet it is the same request.
    rotate().await.is(200);
    secret("new").await;
}

#[tokio::test(start_paused = true)]
async fn item_45_a_binding_can_be_fetched_with_its_credentials_as_soon_as_it_succeeded() {
    let api = Api::new().await;
    api.provisioned("i").await;
    let get = || api.get("/v2/service_instances/i/service_bindings/b");
    get().await.refused(404, "NotFound", "binding");
    let operation = api.bind("i", "b", json!({ "parameters": { "size": 1 } })).await.operation();
    get().await.refused(404, "NotFound", "binding");
    api.succeeds(&binding("i", "b"), &operation).await;
    let view = get().await;
    assert_eq!(view.is(200).body["parameters"], json!({ "size": 1 }));
    let secret = format!("secret-of-{operation}");
    assert_eq!(view.body["credentials"], json!({ "password": secret }));
}

#[tokio::test(start_paused = true)]
async fn item_45_a_fetched_binding_has_its_endpoints_and_metadata_beside_its_credentials() {
    let api = Api::new().await;
    api.provisioned("i").await;
    let mut body = json!({
        "credentials": { "uri": "db://user:word@db.example" },
        "endpoints": [
            { "host": "db.example", "ports": ["5432", "9000-9010"], "protocol": "tcp" },
            { "host": "10.0.0.0/24", "ports": ["53"], "protocol": "all" },
            { "host": "log.example", "ports": ["514"], "protocol": "udp" },
            { "host": "plain.example", "ports": ["80"] },
        ],
        "metadata": { "expires_at": "2031-01-02T03:04:05.0Z",
                      "renew_before": "2031-01-01T03:04:05.0Z" },
    });
    binds(&api, body.clone());
    let parameters = json!({ "parameters": { "size": 1 } });
    let operation = api.bind("i", "b", parameters.clone()).await.operation();
    api.succeeds(&binding("i", "b"), &operation).await;
    assert_eq!(api.bind("i", "b", parameters.clone()).await.is(200).body, body);
    crate::harness::merge(&mut body, parameters);
    assert_eq!(api.get(&held(&binding("i", "b"))).await.is(200).body, body);
}

#[tokio::test(start_paused = true)]
async fn item_46_the_last_operation_of_a_binding_is_told_without_the_flags() {
    use engine::record::Reason;
    let api = Api::new().await;
    api.provisioned("i").await;
    let last = "/v2/service_instances/i/service_bindings/b/last_operation";
    api.get(last).await.refused(404, "NotFound", "no such");
    api.runner.script(|_| {
        let mut failed = engine::testing::scripted_runner::failure(Reason::Reported, "no");
        failed.failure.instance_usable = Some(true);
        Act::End(Duration::from_secs(3), Err(failed))
    });
    let operation = api.bind("i", "b", json!({})).await.operation();
    let answer = api.get(last).await;
    assert_eq!(answer.is(200).body["state"], "in progress");
    assert!(answer.header("retry-after").is_some());
    let answer = api.finish(&binding("i", "b"), &operation).await;
    assert_eq!(answer.body, json!({ "state": "failed", "description": "no" }));
}
