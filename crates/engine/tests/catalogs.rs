//! The catalog while processes disagree about it: a plan that somebody has is in it. And what it says of answers.

mod support;

use std::time::Duration;

use engine::Engine;
use engine::ports::{Offer, Store as _};
use engine::testing::mortal::Life;
use engine::testing::scripted_runner::{Act, fitting_output};
use osb::jobs::contract::Capability;
use osb::{Backend, Call, OperationState, Reply, ServiceId};
use serde_json::{Value, json};
use support::{
    Platform, World, asynchronous, bind, binding_id, id, offer, plan, provision, service,
};

/// Without the plan that is ordered.
fn fewer() -> Offer {
    let mut fewer = offer();
    fewer.catalog["services"][0]["plans"].as_array_mut().unwrap().remove(0);
    fewer
}

/// What two brokers offer, of which one has the service that is ordered; where it is not heard of, the other's alone.
fn of_several(can: Option<Capability>) -> Offer {
    let other = json!({
        "id": "other", "name": "other", "description": "another's", "bindable": true,
        "plans": [{"id": "other-plan", "name": "plan", "description": "d"}],
    });
    let mut several = offer();
    several.capabilities.clear();
    several.of_service.insert(ServiceId::new("other").unwrap(), vec![Capability::State]);
    let services = several.catalog["services"].as_array_mut().unwrap();
    match can {
        Some(can) => drop(several.of_service.insert(service(), vec![can])),
        None => services.clear(),
    }
    services.push(other);
    several
}

fn has(engine: &Engine, name: &str) -> bool {
    engine.catalog().is_some_and(|catalog| catalog.plan(&service(), &plan(name)).is_some())
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_before_is_not_put_over_what_was_answered_since() {
    let world = World::default();
    let engine = world.engine().await;
    world.runner.offer_after(Duration::from_secs(60), offer());
    let slow = tokio::spawn({
        let engine = engine.clone();
        async move { engine.refresh_catalog().await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Nobody waits for who is slow.
    world.runner.set_offer(fewer());
    let newer = engine.refresh_catalog();
    tokio::time::timeout(Duration::from_secs(1), newer).await.unwrap().unwrap();
    assert!(!has(&engine, "small"));
    slow.await.unwrap().unwrap();
    assert!(!has(&engine, "small"), "the older answer came last");
    let other = world.mortal(&Life::of(i64::MAX));
    assert!(other.load_catalog().await.unwrap());
    assert!(!has(&other, "small"), "saved");
}

#[tokio::test(start_paused = true)]
async fn what_was_ordered_is_carried_out_once_it_is_known_what_its_broker_can() {
    let world = World::default();
    // Recorded, and the process died before it began.
    let life = Life::of(i64::MAX);
    let dying = world.mortal(&life);
    dying.set_offer(offer()).await.unwrap();
    let order = dying.provision(&asynchronous(), &id("i"), provision(json!({}))).await.unwrap();
    life.end();
    let Reply::Accepted { operation, .. } = order else { panic!("not accepted") };

    // The catalog that was saved is gone, or no longer good.
    let platform = Platform(world.mortal(&Life::of(i64::MAX)));
    platform.0.resume().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(world.runner.begun().is_empty(), "{:?}", world.runner.begun());
    let waits = platform.poll(&operation).await.unwrap();
    assert_eq!(waits.state, OperationState::InProgress);
    let told = waits.description.unwrap();
    assert!(told.contains("the catalog of its broker is not known yet"), "{told}");

    platform.0.set_offer(offer()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(platform.poll(&operation).await.unwrap().state, OperationState::Succeeded);
    assert_eq!(world.runner.works().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_ordered_while_it_leaves_is_put_back_and_no_longer_sold() {
    let world = World::default();
    let leader = world.engine().await;
    let other = world.mortal(&Life::of(i64::MAX));
    assert!(other.load_catalog().await.unwrap());
    leader.set_offer(fewer()).await.unwrap();
    assert!(!has(&leader, "small"), "nobody has it");
    assert!(!leader.lacks_a_plan().await.unwrap());

    // The other has not heard of that, and sells it.
    Platform(other.clone()).provisioned().await;
    assert!(leader.lacks_a_plan().await.unwrap());
    world.runner.set_offer(fewer());
    let keeper = tokio::spawn(leader.clone().keep_catalog(Duration::ZERO));
    tokio::time::sleep(Duration::from_secs(30)).await;
    keeper.abort();
    assert!(has(&leader, "small"), "an instance has it");
    let sold = leader.provision(&asynchronous(), &id("j"), provision(json!({}))).await;
    assert!(sold.unwrap_err().to_string().contains("withdrawn"));
    Platform(leader.clone()).bound().await;
    assert!(other.load_catalog().await.unwrap());
    assert!(has(&other, "small"), "it was saved");
}

#[tokio::test(start_paused = true)]
async fn a_catalog_that_is_too_large_with_what_has_left_it_is_saved_without() {
    let catalog = async |world: &World| world.store.catalog().await.unwrap().unwrap();
    let bytes = |saved: &Value| saved.to_string().len();
    let whole = {
        let world = World::default();
        world.engine().await.set_offer(fewer()).await.unwrap();
        catalog(&world).await
    };
    assert!(whole["former"].is_array(), "{whole}");
    let mut bare = whole.clone();
    bare.as_object_mut().unwrap().remove("former");
    for (name, room, is_saved, is_remembered) in [
        ("room for all", bytes(&whole), true, true),
        ("room for the catalog alone", bytes(&whole) - 1, true, false),
        ("just so", bytes(&bare), true, false),
        ("no room", bytes(&bare) - 1, false, false),
    ] {
        let world = World::default();
        let engine = world.engine().await;
        let other = world.mortal(&Life::of(i64::MAX));
        assert!(other.load_catalog().await.unwrap());
        world.store.keep_at_most(room);
        let set = engine.set_offer(fewer()).await;
        assert_eq!(set.is_ok(), is_saved, "{name}");
        assert_eq!(has(&engine, "small"), !is_saved, "{name}: what is saved is in force");
        let saved = catalog(&world).await;
        assert_eq!(saved["catalog"] == bare["catalog"], is_saved, "{name}");
        assert_eq!(saved.get("former").is_some(), is_remembered, "{name}");
        // Who has put it in force knows what has left it all the same.
        world.store.keep_at_most(usize::MAX);
        Platform(other).provisioned().await;
        assert_eq!(engine.lacks_a_plan().await.unwrap(), is_saved, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_begins_to_carry_out_has_a_catalog_at_once() {
    let world = World::default();
    world.runner.set_offer(offer());
    let engine = world.mortal(&Life::of(i64::MAX));
    engine.set_driving(false);
    let keeper = tokio::spawn(engine.clone().keep_catalog(Duration::ZERO));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(engine.catalog().is_none(), "another is to ask for it");
    engine.set_driving(true);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(has(&engine, "small"));
    keeper.abort();
}

#[tokio::test(start_paused = true)]
async fn what_a_broker_declared_counts_while_it_is_not_heard_of() {
    let (update, progress) = (Capability::Update, Capability::Progress);
    let world = World::default();
    let engine = world.mortal(&Life::of(i64::MAX));
    let declared =
        |engine: &Engine| engine.offer_in_force().unwrap().of_service.get(&service()).cloned();
    engine.set_offer(of_several(Some(update))).await.unwrap();
    let other = world.mortal(&Life::of(i64::MAX));
    assert!(other.load_catalog().await.unwrap());

    engine.set_offer(of_several(None)).await.unwrap();
    assert!(!has(&engine, "small"), "nobody has it");
    Platform(other).provisioned().await;
    for time in ["it was ordered as it left", "it is not heard of again"] {
        engine.set_offer(of_several(None)).await.unwrap();
        assert!(has(&engine, "small"), "{time}");
        assert_eq!(declared(&engine), Some(vec![update]), "{time}");
    }
    let later = world.mortal(&Life::of(i64::MAX));
    assert!(later.load_catalog().await.unwrap());
    assert_eq!(declared(&later), Some(vec![update]), "it was saved");
    later.set_offer(of_several(Some(progress))).await.unwrap();
    assert_eq!(declared(&later), Some(vec![progress]), "what it says now counts");

    let alone = World::default();
    let engine = alone.engine().await;
    Platform(engine.clone()).provisioned().await;
    engine.set_offer(Offer { catalog: json!({"services": []}), ..offer() }).await.unwrap();
    assert!(has(&engine, "small"));
    assert_eq!(declared(&engine), None, "one broker can do what it says of all");
}

/// A platform could not fetch the credentials of one that it is told of before it has ended.
#[tokio::test(start_paused = true)]
async fn a_binding_that_cannot_be_fetched_is_waited_for_though_the_platform_would_ask_again() {
    for (retrievable, takes, expected) in [
        (json!(false), 1, "done"),
        (json!(false), 60, "bind did not end in time; its service has bindings_retrievable: false"),
        (json!(true), 1, "accepted"),
        (Value::Null, 1, "accepted"),
    ] {
        let world = World::default();
        let engine = world.engine().await;
        let mut offer = offer();
        offer.catalog["services"][0]["bindings_retrievable"] = retrievable.clone();
        engine.set_offer(offer).await.unwrap();
        let platform = Platform(engine);
        platform.provisioned().await;
        world
            .runner
            .script(move |work| Act::End(Duration::from_secs(takes), Ok(fitting_output(work))));
        let call = Call { accepts_incomplete: true, ..Call::default() };
        let answer = platform.0.bind(&call, &id("i"), &binding_id("b"), bind(json!({}))).await;
        let told = match answer {
            Ok(Reply::Created(body)) if body.credentials.is_some() => "done".to_owned(),
            Ok(Reply::Accepted { .. }) => "accepted".to_owned(),
            Ok(other) => panic!("{other:?}"),
            Err(error) => error.to_string(),
        };
        assert!(told.contains(expected), "{retrievable}, {takes} s: {told}");
    }
}
