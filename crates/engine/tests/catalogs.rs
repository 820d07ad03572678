//! The catalog while processes disagree about it: a plan that somebody has is in it.

mod support;

use std::time::Duration;

use engine::Engine;
use engine::ports::Offer;
use engine::testing::mortal::Life;
use osb::Backend;
use serde_json::json;
use support::{Platform, World, asynchronous, id, offer, plan, provision, service};

/// Without the plan that is ordered.
fn fewer() -> Offer {
    let mut fewer = offer();
    fewer.catalog["services"][0]["plans"].as_array_mut().unwrap().remove(0);
    fewer
}

fn has(engine: &Engine, name: &str) -> bool {
    engine.catalog().is_some_and(|catalog| catalog.plan(&service(), &plan(name)).is_some())
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
