//! Items 19 to 24 and 29 to 35: provision, fetch, update.

use std::time::Duration;

use engine::testing::scripted_runner::{Act, fitting_output};
use http::Method;
use serde_json::{Value, json};

use crate::harness::{
    Api, FIXED, LARGE, SERVICE, SMALL, Setup, binding, held, ids, instance, merge, order,
};

/// Every run from now on makes this of an instance.
fn makes(api: &Api, body: Value) {
    let body: osb::ProvisionedBody = serde_json::from_value(body).unwrap();
    api.runner.script(move |work| {
        let mut output = fitting_output(work);
        output.dashboard_url.clone_from(&body.dashboard_url);
        output.metadata.clone_from(&body.metadata);
        Act::End(Duration::from_secs(1), Ok(output))
    });
}

#[tokio::test(start_paused = true)]
async fn item_19_a_missing_empty_or_unknown_member_is_400_and_named() {
    let api = Api::new().await;
    for name in ["service_id", "plan_id", "organization_guid", "space_guid"] {
        for value in [json!(null), json!(""), json!(3), json!({})] {
            let body = order(json!({ name: value }));
            let answer = api.send(Method::PUT, &instance("i"), Some(body)).await;
            answer.refused(400, "BadRequest", name);
        }
    }
    for (name, value) in [("service_id", "unknown"), ("plan_id", "unknown")] {
        let answer = api.provision("i", json!({ name: value })).await;
        answer.refused(400, "BadRequest", name);
    }
    let answer = api.provision("i", json!({ "parameters": { "size": 11 } })).await;
    answer.refused(400, "BadRequest", "/size");
    for value in [json!([]), json!("x"), json!(1)] {
        let body = order(json!({ "parameters": value }));
        let answer = api.send(Method::PUT, &instance("i"), Some(body)).await;
        answer.refused(400, "BadRequest", "parameters");
    }
}

#[tokio::test(start_paused = true)]
async fn item_20_provision_is_202_then_202_with_the_same_operation_then_200() {
    let api = Api::new().await;
    let first = api.provision("i", json!({ "parameters": { "size": 1 } })).await.operation();
    let again = api.provision("i", json!({ "parameters": { "size": 1 } })).await.operation();
    assert_eq!(first, again);
    api.succeeds(&instance("i"), &first).await;
    api.provision("i", json!({ "parameters": { "size": 1 } })).await.is(200);
    assert_eq!(api.runner.works().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn item_20_a_synchronous_provision_is_201() {
    let mut setup = Setup::default();
    setup.policy.hold.provision = Duration::from_secs(30);
    let api = Api::with(setup).await;
    api.put(&held(&instance("i")), order(json!({}))).await.is(201);
    api.put(&held(&instance("i")), order(json!({}))).await.is(200);
}

#[tokio::test(start_paused = true)]
async fn item_21_the_same_id_with_other_attributes_is_409_while_and_after_it_is_made() {
    let api = Api::new().await;
    let operation = api.provision("i", json!({ "parameters": { "size": 1 } })).await.operation();
    let different = [
        json!({ "parameters": { "size": 2 } }),
        json!({}),
        json!({ "plan_id": LARGE, "parameters": { "size": 1 } }),
        json!({ "organization_guid": "other", "parameters": { "size": 1 } }),
        json!({ "space_guid": "other", "parameters": { "size": 1 } }),
    ];
    for members in &different {
        api.provision("i", members.clone()).await.refused(409, "Conflict", "other attributes");
    }
    api.succeeds(&instance("i"), &operation).await;
    for members in &different {
        api.provision("i", members.clone()).await.refused(409, "Conflict", "other attributes");
    }
}

#[tokio::test(start_paused = true)]
async fn item_22_a_slow_operation_without_accepts_incomplete_is_422_async_required() {
    let api = Api::new().await;
    for path in [held(&instance("i")), format!("{}?accepts_incomplete=false", held(&instance("i")))]
    {
        api.put(&path, order(json!({}))).await.refused(422, "AsyncRequired", "accepts_incomplete");
    }
    let path = format!("{}?accepts_incomplete=1", held(&instance("i")));
    let answer = api.put(&path, order(json!({}))).await;
    answer.refused(400, "BadRequest", "accepts_incomplete");
    assert_eq!(api.store.writes(), 0);
}

#[tokio::test(start_paused = true)]
async fn item_23_another_maintenance_version_is_422_maintenance_info_conflict() {
    let api = Api::new().await;
    let info = |version: &str| json!({ "maintenance_info": { "version": version } });
    let answer = api.provision("i", info("1.2.4")).await;
    answer.refused(422, "MaintenanceInfoConflict", "1.2.3");
    let described =
        json!({ "maintenance_info": { "version": "1.2.3", "description": "another one" } });
    api.provision("i", described).await.is(202);
    let answer =
        api.provision("j", json!({ "plan_id": LARGE, "maintenance_info": { "version": "1.2.3" } }));
    answer.await.refused(422, "MaintenanceInfoConflict", "maintenance_info");
}

#[tokio::test(start_paused = true)]
async fn item_23_of_maintenance_info_the_version_alone_tells_updates_apart() {
    let api = Api::new().await;
    api.provisioned("i").await;
    let info = |description: &str| json!({ "maintenance_info": { "version": "1.2.3", "description": description } });
    let first = api.update("i", info("one")).await.operation();
    assert_eq!(api.update("i", info("another")).await.operation(), first);
    api.succeeds(&instance("i"), &first).await;
    api.update("i", info("a third")).await.is(200);
}

#[tokio::test(start_paused = true)]
async fn item_30_the_version_of_a_plan_is_not_told_of_the_next() {
    let api = Api::new().await;
    let info = json!({ "maintenance_info": { "version": "1.2.3" } });
    let made = api.provision("i", info).await.operation();
    api.succeeds(&instance("i"), &made).await;
    let version =
        async || api.get("/v2/service_instances/i").await.body["maintenance_info"].clone();
    assert_eq!(version().await, json!({ "version": "1.2.3" }));
    let changed = api.update("i", json!({ "plan_id": LARGE })).await.operation();
    api.succeeds(&instance("i"), &changed).await;
    assert_eq!(version().await, json!(null));
    assert_eq!(api.runner.works().pop().unwrap().maintenance_info, None);
}

#[tokio::test(start_paused = true)]
async fn item_24_the_dashboard_is_in_the_first_answer() {
    let mut setup = Setup::default();
    setup.policy.dashboard_url = Some("https://dashboard.example/{instance_id}".into());
    let api = Api::with(setup).await;
    let answer = api.provision("a%2Fb", json!({})).await;
    assert_eq!(answer.is(202).body["dashboard_url"], "https://dashboard.example/a%2Fb");
    api.succeeds(&instance("a%2Fb"), &answer.operation()).await;
    let again = api.provision("a%2Fb", json!({})).await;
    assert_eq!(again.is(200).body["dashboard_url"], "https://dashboard.example/a%2Fb");
}

#[tokio::test(start_paused = true)]
async fn item_24_30_what_the_broker_says_of_an_instance_is_in_every_later_answer() {
    let made = json!({
        "dashboard_url": "https://broker.example/i",
        "metadata": { "labels": { "zone": "a" }, "attributes": { "size": 4, "nested": [null] } },
    });
    let api = Api::new().await;
    makes(&api, made.clone());
    let first = api.provision("i", json!({})).await;
    assert_eq!(first.body, json!({ "operation": first.operation() }), "it is not known yet");
    api.succeeds(&instance("i"), &first.operation()).await;
    assert_eq!(api.provision("i", json!({})).await.is(200).body, made);
    let mut view = json!({ "service_id": SERVICE, "plan_id": SMALL });
    merge(&mut view, made.clone());
    assert_eq!(api.get("/v2/service_instances/i").await.is(200).body, view);

    // What the operator's template promised gives way to what the broker says.
    let mut setup = Setup::default();
    setup.policy.dashboard_url = Some("https://dashboard.example/{instance_id}".into());
    setup.policy.hold.provision = Duration::from_secs(30);
    let api = Api::with(setup).await;
    makes(&api, made.clone());
    let path = held(&instance("i"));
    assert_eq!(api.put(&path, order(json!({}))).await.is(201).body, made);
    assert_eq!(api.put(&path, order(json!({}))).await.is(200).body, made);
    assert_eq!(api.get(&path).await.is(200).body, view);
}

#[tokio::test(start_paused = true)]
async fn item_29_an_instance_can_be_fetched_as_soon_as_it_succeeded_and_not_before() {
    let api = Api::new().await;
    let get = || api.get("/v2/service_instances/i");
    get().await.refused(404, "NotFound", "instance");
    let operation = api.provision("i", json!({})).await.operation();
    get().await.refused(404, "NotFound", "instance");
    api.succeeds(&instance("i"), &operation).await;
    get().await.is(200);
    let operation = api.update("i", json!({ "parameters": { "size": 3 } })).await.operation();
    get().await.refused(422, "ConcurrencyError", "busy");
    api.succeeds(&instance("i"), &operation).await;
    get().await.is(200);
}

#[tokio::test(start_paused = true)]
async fn item_30_a_fetched_instance_says_what_it_is() {
    let api = Api::new().await;
    let members =
        json!({ "parameters": { "size": 4 }, "maintenance_info": { "version": "1.2.3" } });
    let operation = api.provision("i", members).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    let view = api.get("/v2/service_instances/i").await;
    let expected = json!({
        "service_id": SERVICE, "plan_id": SMALL, "parameters": { "size": 4 },
        "maintenance_info": { "version": "1.2.3" },
    });
    assert_eq!(view.is(200).body, expected);
}

#[tokio::test(start_paused = true)]
async fn item_31_an_update_changes_only_what_it_names() {
    let api = Api::new().await;
    let operation =
        api.provision("i", json!({ "parameters": { "size": 1, "name": "n" } })).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    for value in [json!(null), json!(""), json!("unknown")] {
        let mut body = json!({});
        merge(&mut body, json!({ "service_id": value }));
        let answer = api.send(Method::PATCH, &instance("i"), Some(body)).await;
        answer.refused(400, "BadRequest", "service_id");
    }
    let view = async || api.get("/v2/service_instances/i").await.body;
    let operation = api.update("i", json!({ "plan_id": LARGE })).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    assert_eq!(view().await["parameters"], json!({ "size": 1, "name": "n" }));
    assert_eq!(view().await["plan_id"], LARGE);
    let operation = api.update("i", json!({ "parameters": { "size": 2 } })).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    assert_eq!(view().await["parameters"], json!({ "size": 2, "name": "n" }));
    assert_eq!(view().await["plan_id"], LARGE);
    let work = api.runner.works().pop().unwrap();
    assert_eq!(work.previous_values.unwrap().plan_id.as_deref(), Some(LARGE));
}

#[tokio::test(start_paused = true)]
async fn item_32_an_update_is_202_repeated_with_the_same_operation_and_200_when_it_is_so_already() {
    let api = Api::new().await;
    api.provisioned("i").await;
    let members = json!({ "parameters": { "size": 5 }, "previous_values": { "plan_id": SMALL } });
    let first = api.update("i", members).await.operation();
    let again = api.update("i", json!({ "parameters": { "size": 5 } })).await.operation();
    assert_eq!(first, again);
    api.succeeds(&instance("i"), &first).await;
    assert_eq!(
        api.update("i", json!({ "parameters": { "size": 5 } })).await.is(200).body,
        json!({})
    );
    assert_eq!(api.runner.works().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn item_32_an_update_keeps_the_dashboard_but_for_a_new_one() {
    let of = |number: u8| {
        json!({ "dashboard_url": format!("https://broker.example/{number}"),
                "metadata": { "labels": { "number": number.to_string() } } })
    };
    let mut setup = Setup::default();
    setup.policy.hold.update = Duration::from_secs(30);
    let api = Api::with(setup).await;
    let view = async || {
        let view = api.get("/v2/service_instances/i").await;
        view.is(200);
        json!({ "dashboard_url": view.body["dashboard_url"], "metadata": view.body["metadata"] })
    };
    let size = |size: u8| json!({ "service_id": SERVICE, "parameters": { "size": size } });
    makes(&api, of(1));
    api.provisioned("i").await;

    // Absent, or null: as they were, in the first answer and after.
    makes(&api, json!({ "dashboard_url": null, "metadata": null }));
    let first = api.patch(&instance("i"), size(2)).await;
    let mut expected = of(1);
    merge(&mut expected, json!({ "operation": first.operation() }));
    assert_eq!(first.body, expected);
    api.succeeds(&instance("i"), &first.operation()).await;
    assert_eq!(view().await, of(1));
    let path = held(&instance("i"));
    assert_eq!(api.patch(&path, size(3)).await.is(200).body, of(1));
    assert_eq!(view().await, of(1));

    // New: in the first answer that knows of it, in that of a repetition, and after.
    makes(&api, of(4));
    assert_eq!(api.patch(&path, size(4)).await.is(200).body, of(4));
    assert_eq!(api.patch(&path, size(4)).await.is(200).body, of(4));
    assert_eq!(view().await, of(4));
    makes(&api, of(5));
    let operation = api.patch(&instance("i"), size(5)).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    assert_eq!(api.patch(&instance("i"), size(5)).await.is(200).body, of(5));
    assert_eq!(view().await, of(5));
}

#[tokio::test(start_paused = true)]
async fn item_33_what_cannot_be_updated_is_422() {
    let api = Api::new().await;
    let operation = api.provision("fixed", json!({ "plan_id": FIXED })).await.operation();
    api.update("fixed", json!({ "plan_id": LARGE })).await.refused(422, "ConcurrencyError", "busy");
    // What is wrong with the request itself is said first.
    let answer = api.update("fixed", json!({ "maintenance_info": { "version": "9.0.0" } })).await;
    answer.refused(422, "MaintenanceInfoConflict", "maintenance_info");
    api.succeeds(&instance("fixed"), &operation).await;
    let answer = api.update("fixed", json!({ "plan_id": LARGE })).await;
    answer.refused(422, "Unprocessable", "plan_id");
    assert_eq!(answer.body["update_repeatable"], false);
    api.provisioned("i").await;
    let answer = api.update("i", json!({ "plan_id": FIXED })).await;
    answer.refused(422, "Unprocessable", "plan_id");
    let answer = api.update("i", json!({ "maintenance_info": { "version": "9.0.0" } })).await;
    answer.refused(422, "MaintenanceInfoConflict", "1.2.3");
    let body = json!({ "service_id": SERVICE, "plan_id": LARGE });
    let answer = api.patch(&held(&instance("i")), body).await;
    answer.refused(422, "AsyncRequired", "accepts_incomplete");
}

#[tokio::test(start_paused = true)]
async fn item_34_a_refused_or_failed_update_applies_nothing() {
    use engine::record::Reason;
    use engine::testing::scripted_runner::{Act, failure};
    let api = Api::new().await;
    api.provisioned("i").await;
    api.update("i", json!({ "plan_id": LARGE, "parameters": { "size": true } })).await.is(202);
    tokio::time::sleep(Duration::from_secs(5)).await;
    api.runner.script(|_| Act::End(Duration::ZERO, Err(failure(Reason::ExitStatus, "no"))));
    let operation = api.update("i", json!({ "plan_id": SMALL, "parameters": { "size": 1 } })).await;
    let answer = api.finish(&instance("i"), &operation.operation()).await;
    assert_eq!(answer.body["state"], "failed");
    let view = api.get("/v2/service_instances/i").await;
    assert_eq!(view.body["plan_id"], LARGE);
    assert_eq!(view.body["parameters"], json!({ "size": true }));
}

#[tokio::test(start_paused = true)]
async fn item_35_a_change_of_the_context_alone_needs_permission() {
    let api = Api::new().await;
    let known = json!({ "context": { "platform": "custom", "instance_name": "old" } });
    let made = api.provision("i", known.clone()).await.operation();
    api.succeeds(&instance("i"), &made).await;
    let context = json!({ "context": { "platform": "custom", "instance_name": "new" } });
    api.update("i", context.clone()).await.refused(422, "Unprocessable", "context");
    // Whatever it says of before; and to be told what is known already is no change.
    let beside = json!({ "plan_id": SMALL, "context": context["context"] });
    api.update("i", beside).await.refused(422, "Unprocessable", "context");
    api.update("i", known).await.is(200);
    api.update("unknown", json!({ "plan_id": LARGE })).await.refused(404, "NotFound", "instance");

    let mut allowed = crate::harness::catalog();
    allowed["services"][0]["allow_context_updates"] = json!(true);
    let api = Api::with(Setup { catalog: allowed, ..Setup::default() }).await;
    api.provisioned("i").await;
    let operation = api.update("i", context).await.operation();
    api.succeeds(&instance("i"), &operation).await;
    let work = api.runner.works().pop().unwrap();
    assert_eq!(work.context.expose()["instance_name"], "new");
}

/// What the server decides alone is in `refusals_come_in_the_order_that_checkers_want` of `osb`.
#[tokio::test(start_paused = true)]
async fn what_is_known_goes_before_what_is_busy() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    api.slow(Duration::from_secs(60));
    let change = json!({ "parameters": { "size": 2 } });
    let operation = api.update("i", change.clone()).await.operation();

    // One order whose faults are mended one by one.
    let version = json!({ "maintenance_info": { "version": "9.0.0" }, "space_guid": "other" });
    let synchronous = order(version.clone());
    api.put(&held(&instance("i")), synchronous).await.refused(422, "AsyncRequired", "");
    api.provision("i", version).await.refused(422, "MaintenanceInfoConflict", "");
    api.provision("i", json!({ "space_guid": "other" })).await.refused(409, "Conflict", "");
    api.provision("i", json!({})).await.refused(422, "ConcurrencyError", "busy");

    // 404, 410, 200 and 202 as if nothing were going on.
    api.update("unknown", change.clone()).await.refused(404, "NotFound", "instance");
    api.bind("unknown", "b", json!({})).await.refused(404, "NotFound", "instance");
    api.get("/v2/service_instances/unknown").await.refused(404, "NotFound", "instance");
    api.get("/v2/service_instances/i/service_bindings/c").await.refused(404, "NotFound", "");
    api.deprovision("unknown").await.refused(410, "Gone", "instance");
    api.unbind("i", "unknown").await.refused(410, "Gone", "binding");
    api.bind("i", "b", json!({})).await.is(200);
    api.bind("i", "b", change.clone()).await.refused(409, "Conflict", "other attributes");
    assert_eq!(api.update("i", change.clone()).await.operation(), operation);

    // What is left is what the update is in the way of.
    let other = json!({ "parameters": { "size": 3 } });
    api.update("i", other.clone()).await.refused(422, "ConcurrencyError", "busy");
    api.get("/v2/service_instances/i").await.refused(422, "ConcurrencyError", "busy");
    api.bind("i", "c", json!({})).await.refused(422, "ConcurrencyError", "busy");
    api.unbind("i", "b").await.refused(422, "ConcurrencyError", "busy");
    api.deprovision("i").await.refused(422, "ConcurrencyError", "busy");
    api.succeeds(&instance("i"), &operation).await;

    // A removal is in the way of everything, and yet another order is told that it is another.
    let unbinding = api.unbind("i", "b").await.operation();
    api.bind("i", "b", other).await.refused(409, "Conflict", "other attributes");
    api.bind("i", "b", json!({})).await.refused(422, "ConcurrencyError", "busy");
    api.succeeds(&binding("i", "b"), &unbinding).await;
    let removal = api.deprovision("i").await.operation();
    api.provision("i", json!({ "space_guid": "other" })).await.refused(409, "Conflict", "");
    api.provision("i", json!({ "parameters": { "size": 2 } })).await.refused(
        422,
        "ConcurrencyError",
        "busy",
    );
    api.update("i", change).await.refused(422, "ConcurrencyError", "busy");
    let path = format!("{}?{}", held(&instance("i")), ids());
    api.delete(&path).await.refused(422, "AsyncRequired", "accepts_incomplete");
    api.succeeds(&instance("i"), &removal).await;
    api.deprovision("i").await.refused(410, "Gone", "instance");
}
