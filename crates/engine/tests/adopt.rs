//! What was made elsewhere is known here.

mod support;

use engine::record::{Key, Lifecycle, Made, Ordered};
use osb::{Backend, BindingBody, Call, ErrorKind, OperationState};
use serde_json::{Value, json};
use support::{Platform, World, binding_id, id, operation};

fn ordered(parameters: Value) -> Ordered {
    serde_json::from_value(json!({
        "service_id": "service", "plan_id": "small", "parameters": parameters, "context": {},
    }))
    .unwrap()
}

fn bound() -> Made {
    let credentials = json!({"user": "ada"}).as_object().cloned().unwrap_or_default();
    let binding = BindingBody { credentials: Some(credentials.into()), ..BindingBody::default() };
    Made { binding: Some(binding), ..Made::default() }
}

#[tokio::test(start_paused = true)]
async fn what_is_adopted_is_fetched_changed_and_removed_and_nothing_is_run_for_it() {
    let world = World::default();
    let engine = world.engine().await;
    let (call, instance, binding) = (Call::default(), id("i"), binding_id("b"));
    let keys = [Key::Instance(instance.clone()), Key::Binding(instance.clone(), binding.clone())];
    assert!(
        engine.adopt(&keys[0], ordered(json!({"size": 1})), Ok(Made::default())).await.unwrap()
    );
    assert!(engine.adopt(&keys[1], ordered(json!({})), Ok(bound())).await.unwrap());
    assert_eq!(engine.in_progress(), 0);
    assert_eq!(engine.resume().await.unwrap(), 0, "nothing is left to do");

    let view = engine.instance(&call, &instance).await.unwrap();
    assert_eq!(view.parameters.unwrap().expose()["size"], 1);
    let fetched = engine.binding(&call, &instance, &binding).await.unwrap();
    assert_eq!(fetched.body.credentials.unwrap().expose()["user"], "ada");
    let last = engine.instance_last_operation(&call, &instance, Default::default()).await.unwrap();
    assert_eq!(last.state, OperationState::Succeeded);

    let platform = Platform(engine);
    let changed = platform.update(json!({"parameters": {"size": 2}})).await.unwrap();
    assert_eq!(platform.wait(&operation(changed)).await.state, OperationState::Succeeded);
    let unbound = platform.unbind().await.unwrap();
    assert_eq!(platform.wait_binding(&operation(unbound)).await.state, OperationState::Succeeded);
    let removed = platform.deprovision().await.unwrap();
    assert_eq!(platform.wait(&operation(removed)).await.state, OperationState::Succeeded);
    assert_eq!(world.record(&keys[0]).await.unwrap().lifecycle, Lifecycle::Deleted);
}

#[tokio::test(start_paused = true)]
async fn what_is_recorded_is_not_adopted_not_even_over_a_tombstone() {
    let world = World::default();
    let engine = world.engine().await;
    let (call, key) = (Call::default(), Key::Instance(id("i")));
    assert!(engine.adopt(&key, ordered(json!({"size": 1})), Ok(Made::default())).await.unwrap());
    assert!(!engine.adopt(&key, ordered(json!({"size": 2})), Ok(Made::default())).await.unwrap());
    let view = engine.instance(&call, &id("i")).await.unwrap();
    assert_eq!(view.parameters.unwrap().expose()["size"], 1);
    let platform = Platform(engine.clone());
    let removed = platform.deprovision().await.unwrap();
    assert_eq!(platform.wait(&operation(removed)).await.state, OperationState::Succeeded);
    assert!(!engine.adopt(&key, ordered(json!({})), Ok(Made::default())).await.unwrap());
    let gone = engine.instance(&call, &id("i")).await.unwrap_err();
    assert_eq!(gone.kind, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)]
async fn what_failed_elsewhere_has_failed_here_and_can_be_removed() {
    let world = World::default();
    let engine = world.engine().await;
    let (call, key) = (Call::default(), Key::Instance(id("i")));
    let failed = Err("no room".to_owned());
    assert!(engine.adopt(&key, ordered(json!({})), failed).await.unwrap());
    let last = engine.instance_last_operation(&call, &id("i"), Default::default()).await.unwrap();
    assert_eq!(last.state, OperationState::Failed);
    assert_eq!(last.description.as_deref(), Some("no room"));
    let platform = Platform(engine);
    let removed = platform.deprovision().await.unwrap();
    assert_eq!(platform.wait(&operation(removed)).await.state, OperationState::Succeeded);
}
