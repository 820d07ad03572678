//! Orders that are repeated while they are carried out, by platforms that wait for the answer and by those that take a
//! 202: whoever was told of an operation finds it.

mod support;

use std::time::Duration;

use engine::record::{Key, Lifecycle};
use engine::testing::scripted_runner::{Act, fitting_output};
use osb::{Action, BindingBody, Call, Error, ErrorKind, OperationState, Reply};
use serde_json::json;
use support::{Platform, World, asynchronous, bind, binding_id, id, offer, operation};

/// Longer than a request is held.
const LONG: Duration = Duration::from_secs(90);
const MOMENT: Duration = Duration::from_secs(5);

/// A platform whose binds take long, with an instance.
async fn slow() -> (World, Platform) {
    let world = World::default();
    let platform = Platform(world.engine().await);
    platform.provisioned().await;
    world.runner.script(|work| match work.action {
        Action::Bind => Act::End(LONG, Ok(fitting_output(work))),
        _ => Act::End(Duration::ZERO, Ok(fitting_output(work))),
    });
    (world, platform)
}

async fn bound(platform: &Platform, call: Call) -> Result<Reply<BindingBody>, Error> {
    use osb::Backend as _;
    platform.0.bind(&call, &id("i"), &binding_id("b"), bind(json!({}))).await
}

fn is_late(answer: Result<Reply<BindingBody>, Error>) -> bool {
    answer.is_err_and(|error| error.kind == ErrorKind::Timeout)
}

#[tokio::test(start_paused = true)]
async fn who_repeats_an_order_and_waits_in_vain_takes_nothing_from_who_was_told_of_it() {
    let (_, platform) = slow().await;
    let token = operation(bound(&platform, asynchronous()).await.unwrap());
    assert!(is_late(bound(&platform, Call::default()).await));
    assert_eq!(platform.wait_binding(&token).await.state, OperationState::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_is_held_is_not_undone_once_somebody_was_told_of_it() {
    let (_, platform) = slow().await;
    let later = async {
        tokio::time::sleep(MOMENT).await;
        operation(bound(&platform, asynchronous()).await.unwrap())
    };
    let (held, token) = tokio::join!(bound(&platform, Call::default()), later);
    assert!(is_late(held));
    assert_eq!(platform.wait_binding(&token).await.state, OperationState::Succeeded);
}

/// What the request says of its service, if anything, is not looked at here.
#[tokio::test(start_paused = true)]
async fn a_binding_is_not_shown_where_its_service_says_that_bindings_are_not() {
    use osb::Backend as _;
    let (_, platform) = slow().await;
    operation(bound(&platform, asynchronous()).await.unwrap());
    tokio::time::sleep(LONG + MOMENT).await;
    let fetched =
        async || platform.0.binding(&Call::default(), &id("i"), &binding_id("b")).await.err();
    assert_eq!(fetched().await, None);
    let mut offer = offer();
    offer.catalog["services"][0]["bindings_retrievable"] = json!(false);
    platform.0.set_offer(offer).await.unwrap();
    assert_eq!(fetched().await.map(|error| error.kind), Some(ErrorKind::NotFound));
}

#[tokio::test(start_paused = true)]
async fn an_order_that_is_held_twice_and_nobody_was_told_of_is_undone() {
    let (world, platform) = slow().await;
    let later = async {
        tokio::time::sleep(MOMENT).await;
        bound(&platform, Call::default()).await
    };
    let (held, joined) = tokio::join!(bound(&platform, Call::default()), later);
    assert!(is_late(held));
    assert!(joined.is_err(), "{joined:?}");
    tokio::time::sleep(MOMENT).await;
    let record = world.record(&Key::Binding(id("i"), binding_id("b"))).await.unwrap();
    assert_eq!(record.lifecycle, Lifecycle::Deleted);
}
