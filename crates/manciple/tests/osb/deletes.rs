//! Items 47 to 50: deletes, and what a platform's orphan mitigation meets.

use std::time::Duration;

use engine::policy::OnBound;
use engine::record::Reason;
use engine::testing::scripted_runner::{Act, failure, fitting_output};
use http::Method;
use osb::Action;
use serde_json::json;

use crate::harness::{Api, SERVICE, SMALL, Setup, binding, catalog, held, ids, instance, order};

#[tokio::test(start_paused = true)]
async fn item_47_a_delete_needs_its_ids_is_202_repeated_with_the_same_operation_then_410() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    for path in [instance("i"), binding("i", "b")] {
        for query in [
            String::new(),
            format!("&service_id={SERVICE}"),
            format!("&plan_id={SMALL}"),
            format!("&service_id=&plan_id={SMALL}"),
        ] {
            let answer = api.delete(&format!("{path}{query}")).await;
            answer.refused(400, "BadRequest", "_id");
        }
        // Korifi once sent them in the body.
        let body = json!({ "service_id": SERVICE, "plan_id": SMALL });
        let answer = api.send(Method::DELETE, &path, Some(body)).await;
        answer.refused(400, "BadRequest", "query");
    }
    let sync = api.delete(&format!("/v2/service_instances/i?{}", ids())).await;
    sync.refused(422, "AsyncRequired", "accepts_incomplete");
    // AsyncRequired comes before 410.
    let sync = api.delete(&format!("/v2/service_instances/unknown?{}", ids())).await;
    sync.refused(422, "AsyncRequired", "accepts_incomplete");

    let first = api.unbind("i", "b").await.operation();
    assert_eq!(api.unbind("i", "b").await.operation(), first);
    api.succeeds(&binding("i", "b"), &first).await;
    api.unbind("i", "b").await.refused(410, "Gone", "binding");

    let first = api.deprovision("i").await.operation();
    assert_eq!(api.deprovision("i").await.operation(), first);
    api.bind("i", "c", json!({})).await.refused(422, "ConcurrencyError", "busy");
    api.succeeds(&instance("i"), &first).await;
    api.deprovision("i").await.refused(410, "Gone", "instance");
    api.get("/v2/service_instances/i").await.is(404);
}

#[tokio::test(start_paused = true)]
async fn item_47_a_held_unbind_is_200() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    let path = format!("{}?{}", held(&binding("i", "b")), ids());
    assert_eq!(api.delete(&path).await.is(200).body, json!({}));
    api.delete(&path).await.refused(410, "Gone", "binding");
}

#[tokio::test(start_paused = true)]
async fn item_47_a_delete_during_an_update_is_422_concurrency_error_and_does_not_disturb_it() {
    for bound in [OnBound::Refuse, OnBound::Cascade] {
        let mut setup = Setup::default();
        setup.policy.bound = bound;
        let api = Api::with(setup).await;
        api.provisioned("i").await;
        api.bound("i", "b").await;
        api.slow(Duration::from_secs(60));
        let update = api.update("i", json!({ "parameters": { "size": 2 } })).await.operation();
        let busy = |answer: &crate::harness::Answer| {
            answer.refused(422, "ConcurrencyError", "update is in progress");
            // That a delete leaves the instance usable is not known while it changes.
            assert_eq!(answer.body.as_object().unwrap().len(), 2, "{answer:?}");
        };
        for _ in 0..2 {
            busy(&api.deprovision("i").await);
            busy(&api.unbind("i", "b").await);
            busy(&api.delete(&format!("{}?{}", held(&binding("i", "b")), ids())).await);
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        assert_eq!(api.finish(&instance("i"), &update).await.body["state"], "succeeded");
        api.get(&held(&binding("i", "b"))).await.is(200);
        assert_eq!(api.runner.works().len(), 3, "provision, bind and update");

        let unbind = api.unbind("i", "b").await.operation();
        assert_eq!(api.finish(&binding("i", "b"), &unbind).await.body["state"], "succeeded");
        let deprovision = api.deprovision("i").await.operation();
        assert_eq!(api.finish(&instance("i"), &deprovision).await.body["state"], "succeeded");
    }
}

#[tokio::test(start_paused = true)]
async fn item_47_a_delete_of_an_instance_whose_binding_is_busy_is_422() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.slow(Duration::from_secs(60));
    let bind = api.bind("i", "b", json!({})).await.operation();
    let answer = api.deprovision("i").await;
    answer.refused(422, "Unprocessable", "unbind");
    assert_eq!(answer.body["instance_usable"], true);
    assert_eq!(api.finish(&binding("i", "b"), &bind).await.body["state"], "succeeded");
    let unbind = api.unbind("i", "b").await.operation();
    api.deprovision("i").await.refused(422, "Unprocessable", "unbind");
    assert_eq!(api.finish(&binding("i", "b"), &unbind).await.body["state"], "succeeded");
    api.deprovision("i").await.is(202);
}

#[tokio::test(start_paused = true)]
async fn item_47_an_unbind_during_a_cascade_is_202_with_its_operation() {
    let mut setup = Setup::default();
    setup.policy.bound = OnBound::Cascade;
    let api = Api::with(setup).await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    api.slow(Duration::from_secs(60));
    let deprovision = api.deprovision("i").await.operation();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let unbind = api.unbind("i", "b").await.operation();
    assert_eq!(api.unbind("i", "b").await.operation(), unbind);
    assert_eq!(api.finish(&binding("i", "b"), &unbind).await.body["state"], "succeeded");
    assert_eq!(api.finish(&instance("i"), &deprovision).await.body["state"], "succeeded");
    let actions: Vec<_> = api.runner.works().iter().skip(2).map(|work| work.action).collect();
    assert_eq!(actions, [Action::Unbind, Action::Deprovision]);
}

#[tokio::test(start_paused = true)]
async fn item_48_an_unbind_during_a_bind_halts_it_and_cleans_up() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.runner.script(|work| match work.action {
        Action::Bind => Act::Hang,
        _ => Act::End(Duration::from_secs(2), Ok(fitting_output(work))),
    });
    let bind = api.bind("i", "b", json!({})).await.operation();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let unbind = api.unbind("i", "b").await.operation();
    assert_ne!(bind, unbind);
    assert_eq!(api.unbind("i", "b").await.operation(), unbind);
    let last = "/v2/service_instances/i/service_bindings/b/last_operation";
    assert_eq!(api.get(last).await.body["state"], "in progress");
    let of_bind = api.get(&format!("{last}?operation={bind}")).await;
    assert_eq!(of_bind.is(200).body["state"], "failed");
    assert_eq!(api.finish(&binding("i", "b"), &unbind).await.body["state"], "succeeded");
    let actions: Vec<_> = api.runner.works().iter().skip(1).map(|work| work.action).collect();
    assert_eq!(actions, [Action::Bind, Action::Unbind]);
    assert_eq!(api.runner.kept(), []);
    api.unbind("i", "b").await.refused(410, "Gone", "binding");
}

#[tokio::test(start_paused = true)]
async fn item_48_a_delete_during_a_create_halts_it_and_cleans_up() {
    let api = Api::new().await;
    api.runner.script(|work| match work.action {
        Action::Provision => Act::Hang,
        _ => Act::End(Duration::from_secs(2), Ok(fitting_output(work))),
    });
    let create = api.provision("i", json!({})).await.operation();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let delete = api.deprovision("i").await.operation();
    assert_ne!(create, delete);
    let last = "/v2/service_instances/i/last_operation";
    assert_eq!(api.get(last).await.body["state"], "in progress");
    let of_create = api.get(&format!("{last}?operation={create}")).await;
    assert_eq!(of_create.is(200).body["state"], "failed");
    let answer = api.finish(&instance("i"), &delete).await;
    assert_eq!(answer.body["state"], "succeeded");
    let actions: Vec<_> = api.runner.works().iter().map(|work| work.action).collect();
    assert_eq!(actions, [Action::Provision, Action::Deprovision]);
    assert_eq!(api.runner.kept(), []);
}

#[tokio::test(start_paused = true)]
async fn item_48_a_held_create_that_is_deleted_shows_failed() {
    let mut setup = Setup::default();
    setup.policy.hold.provision = Duration::from_secs(50);
    let api = Api::with(setup).await;
    api.slow(Duration::from_secs(40));
    let create = async { api.put(&held(&instance("i")), order(json!({}))).await };
    let delete = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        api.deprovision("i").await
    };
    let (create, delete) = tokio::join!(create, delete);
    delete.is(202);
    create.refused(500, "InternalError", "halted");
}

#[tokio::test(start_paused = true)]
async fn item_49_a_bound_instance_is_refused_or_unbound_first_by_choice() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    api.deprovision("i").await.refused(422, "Unprocessable", "unbind");

    let mut setup = Setup::default();
    setup.policy.bound = OnBound::Cascade;
    let api = Api::with(setup).await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    api.bound("i", "c").await;
    let operation = api.deprovision("i").await.operation();
    let answer = api.finish(&instance("i"), &operation).await;
    assert_eq!(answer.body["state"], "succeeded");
    let actions: Vec<_> = api.runner.works().iter().skip(3).map(|work| work.action).collect();
    assert_eq!(actions, [Action::Unbind, Action::Unbind, Action::Deprovision]);
}

#[tokio::test(start_paused = true)]
async fn item_49_a_cascade_that_meets_a_stuck_binding_fails_and_says_which() {
    let mut setup = Setup::default();
    setup.policy.bound = OnBound::Cascade;
    let api = Api::with(setup).await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    api.runner
        .script(|_| Act::End(Duration::ZERO, Err(failure(Reason::ExitStatus, "role in use"))));
    let operation = api.deprovision("i").await.operation();
    let answer = api.finish(&instance("i"), &operation).await;
    assert_eq!(answer.body["state"], "failed");
    let said = answer.body["description"].as_str().unwrap();
    assert!(said.contains("binding b") && said.contains("role in use"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn item_49_a_plan_that_left_the_catalog_can_still_be_deleted() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.bound("i", "b").await;
    let mut shrunk = catalog();
    shrunk["services"][0]["plans"].as_array_mut().unwrap().remove(0);
    let offer = engine::ports::Offer { catalog: shrunk, ..Default::default() };
    api.engine.set_offer(offer.clone()).await.unwrap();
    let plans = |answer: crate::harness::Answer| {
        let plans = answer.body["services"][0]["plans"].as_array().unwrap().clone();
        plans.iter().filter(|plan| plan["id"] == SMALL).count()
    };
    assert_eq!(plans(api.get("/v2/catalog").await), 1, "a plan in use is never dropped");
    let operation = api.unbind("i", "b").await.operation();
    api.succeeds(&binding("i", "b"), &operation).await;
    let operation = api.deprovision("i").await.operation();
    api.succeeds(&instance("i"), &operation).await;
    api.engine.set_offer(offer).await.unwrap();
    assert_eq!(plans(api.get("/v2/catalog").await), 0, "a plan out of use is");
}

#[tokio::test(start_paused = true)]
async fn item_50_orphan_mitigation_finds_every_delete_safe() {
    let api = Api::new().await;
    // Never seen: 410, for instances and bindings.
    api.deprovision("never").await.refused(410, "Gone", "instance");
    api.unbind("never", "b").await.refused(410, "Gone", "binding");
    // After a failed create: the broker removes what it may have made.
    api.runner.script(|work| match work.action {
        Action::Provision => Act::End(Duration::ZERO, Err(failure(Reason::Timeout, "slow"))),
        _ => Act::End(Duration::ZERO, Ok(fitting_output(work))),
    });
    let operation = api.provision("i", json!({})).await.operation();
    assert_eq!(api.finish(&instance("i"), &operation).await.body["state"], "failed");
    let operation = api.deprovision("i").await.operation();
    assert_eq!(api.finish(&instance("i"), &operation).await.body["state"], "succeeded");
    assert_eq!(api.runner.works().last().unwrap().action, Action::Deprovision);
}

#[tokio::test(start_paused = true)]
async fn item_50_a_failure_that_made_nothing_is_a_4xx_and_leaves_nothing() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.runner.script(|_| {
        let failure = osb::Failure::new(osb::FailureKind::Invalid, "no such region");
        let reason = Reason::Reported;
        Act::End(Duration::ZERO, Err(engine::ports::RunFailure::new(reason, failure)))
    });
    let body = json!({ "service_id": SERVICE, "plan_id": SMALL });
    let path = held(&binding("i", "b"));
    api.put(&path, body).await.refused(400, "BadRequest", "no such region");
    api.unbind("i", "b").await.refused(410, "Gone", "binding");
}

#[tokio::test(start_paused = true)]
async fn item_50_a_held_bind_that_runs_over_is_504_and_undone() {
    let api = Api::new().await;
    api.provisioned("i").await;
    api.runner.script(|work| match work.action {
        Action::Bind => Act::Hang,
        _ => Act::End(Duration::ZERO, Ok(fitting_output(work))),
    });
    let body = json!({ "service_id": SERVICE, "plan_id": SMALL });
    let begun = tokio::time::Instant::now();
    let answer = api.put(&held(&binding("i", "b")), body).await;
    answer.refused(504, "Timeout", "accepts_incomplete=true");
    assert!(begun.elapsed() < Duration::from_secs(60), "platforms give up at 60 s");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(api.runner.works().last().unwrap().action, Action::Unbind);
    api.unbind("i", "b").await.refused(410, "Gone", "binding");
    assert_eq!(api.runner.kept(), []);
}
