//! Seeded schedules: a platform orders, updates, binds, rotates, unbinds and deletes while the process dies
//! between any two calls to its ports, again and again. Then nothing acknowledged is lost, what is told as
//! done was done, a binding that was made has its own credentials, no run began twice, nothing is stuck and nothing is
//! left behind.
//!
//! `MANCIPLE_SCHEDULES=5000` runs more of them, `MANCIPLE_SEED=17` one.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use engine::Engine;
use engine::ports::{Filter, Kind, Query};
use engine::record::{Key, Lifecycle, Record};
use engine::testing::mortal::Life;
use engine::testing::scripted_runner::{Act, fitting_output};
use engine::testing::store_contract::Lists as _;
use osb::{Backend, BindingId, Error, ErrorKind, OperationState, Reply};
use serde_json::json;
use support::{
    World, asynchronous, bind, binding_id, deprovision, id, offer, provision, query, unbind, update,
};
use testkit::number;
use testkit::random::Random;
use tokio::sync::watch;

/// How many schedules run when nobody says otherwise.
const SCHEDULES: u64 = 200;

/// What somebody was told to be carried out: what was asked for, and the operation.
type Done = (&'static str, String);

#[test]
fn no_schedule_of_crashes_loses_repeats_or_strands_an_operation() {
    let seeds = match number("MANCIPLE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("MANCIPLE_SCHEDULES").unwrap_or(SCHEDULES) + 1,
    };
    let mut deaths = 0;
    let mut runs = 0;
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in seeds.clone() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        println!("seed {seed}");
        let (died, begun, did) = runtime.block_on(schedule(seed));
        deaths += died;
        runs += begun;
        for (what, _) in did {
            *done.entry(what).or_default() += 1;
        }
    }
    let schedules = seeds.end - seeds.start;
    println!("{schedules} schedules, {deaths} deaths, {runs} runs, done: {done:?}");
    assert!(deaths > 0, "no process died: the schedules test nothing");
    // A few schedules may have none.
    let few = schedules < SCHEDULES;
    for what in ["provision", "update", "bind", "rotation"] {
        assert!(few || done.contains_key(what), "no {what} succeeded");
    }
}

async fn schedule(seed: u64) -> (usize, usize, Vec<Done>) {
    let mut random = Random::new(seed);
    let world = Arc::new(World::default());
    let spread = random.below(3);
    world.runner.script(move |work| {
        let turn = work
            .operation_id
            .bytes()
            .fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let after = Duration::from_millis(turn % 400);
        match turn % 11 {
            0 if spread > 0 => Act::Vanish(after),
            1 if spread > 1 => Act::Hang,
            _ => Act::End(after, Ok(fitting_output(work))),
        }
    });
    let (engines, current) = watch::channel(world.mortal(&Life::of(i64::MAX)));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..3 {
        let random = Random::new(seed * 31 + number);
        clients.spawn(client(format!("i{number}"), current.clone(), random));
    }
    let mut deaths = 0;
    let mut done = Vec::new();
    loop {
        let life = Life::of(i64::try_from(5 + random.below(120)).unwrap());
        let engine = world.mortal(&life);
        engines.send_replace(engine.clone());
        let resuming = engine.clone();
        tokio::spawn(async move {
            resuming.set_offer(offer()).await.unwrap();
            resuming.resume().await
        });
        let over = async {
            while !life.is_over() {
                tokio::time::sleep(Duration::from_millis(1 + random.below(20))).await;
            }
        };
        tokio::select! {
            () = over => deaths += 1,
            ended = clients.join_next() => match ended {
                Some(ended) => done.extend(ended.unwrap()),
                None => break,
            },
        }
        if deaths == 40 {
            break;
        }
    }
    // The last process lives; the clients come to their ends with it.
    let engine = world.mortal(&Life::of(i64::MAX));
    engine.set_offer(offer()).await.unwrap();
    engines.send_replace(engine.clone());
    engine.resume().await.unwrap();
    while let Some(ended) = clients.join_next().await {
        done.extend(ended.unwrap());
    }
    settle(&engine, &world).await;
    check(&engine, &world, &done).await;
    (deaths, world.runner.begun().len(), done)
}

/// Orders an instance, updates it, binds and unbinds it, deletes it; keeps to what was acknowledged. The
/// operations that it was told somebody had carried out.
async fn client(name: String, engines: watch::Receiver<Engine>, mut random: Random) -> Vec<Done> {
    let instance = id(&name);
    let mut done = Vec::new();
    for _ in 0..1 + random.below(3) {
        let parameters = json!({ "password": format!("planted-{name}") });
        let order = || async {
            let request = provision(parameters.clone());
            current(&engines).provision(&asynchronous(), &instance, request).await
        };
        let operation = accepted(insist(order).await);
        let hasty = random.below(4) == 0;
        if !hasty
            && ended(&engines, &name, None, operation.clone()).await == OperationState::Succeeded
        {
            done.extend(operation.map(|it| ("provision", it)));
            if random.below(2) == 0 {
                let updated = updated(&name, &engines, random.below(10)).await;
                done.extend(updated.map(|it| ("update", it)));
            }
            done.extend(bindings(&name, &engines, &mut random).await);
        }
        let remove = || async {
            current(&engines).deprovision(&asynchronous(), &instance, deprovision()).await
        };
        // A failed removal is asked for again, as a platform would.
        for _ in 0..20 {
            match insist(remove).await {
                Err(error) if error.kind == ErrorKind::Gone => break,
                reply => {
                    let operation = accepted(reply);
                    if ended(&engines, &name, None, operation).await == OperationState::Succeeded {
                        break;
                    }
                }
            }
        }
    }
    done
}

/// The update, if it was carried out.
async fn updated(name: &str, engines: &watch::Receiver<Engine>, size: u64) -> Option<String> {
    let change = || async {
        let request = update(json!({ "parameters": { "size": size } }));
        current(engines).update(&asynchronous(), &id(name), request).await
    };
    let operation = accepted(insist(change).await);
    let state = ended(engines, name, None, operation.clone()).await;
    operation.filter(|_| state == OperationState::Succeeded)
}

async fn bindings(name: &str, engines: &watch::Receiver<Engine>, random: &mut Random) -> Vec<Done> {
    let mut done = Vec::new();
    for number in 0..random.below(3) {
        let binding = binding_id(&format!("b{number}"));
        let order = || async {
            current(engines).bind(&asynchronous(), &id(name), &binding, bind(json!({}))).await
        };
        let operation = accepted(insist(order).await);
        let hasty = random.below(3) == 0;
        if !hasty {
            let made = made(name, engines, &binding, operation).await;
            done.extend(made.map(|it| ("bind", it)));
        }
        if random.below(3) == 0 {
            let rotated = rotated(name, engines, &binding).await;
            done.extend(rotated.map(|it| ("rotation", it)));
        }
        removed(name, engines, &binding).await;
    }
    done
}

/// Waits until a binding is made, and sees that its credentials are its own; the operation, if it was carried out.
async fn made(
    name: &str,
    engines: &watch::Receiver<Engine>,
    binding: &BindingId,
    operation: Option<String>,
) -> Option<String> {
    let operation = operation?;
    let state = ended(engines, name, Some(binding), Some(operation.clone())).await;
    if state != OperationState::Succeeded {
        return None;
    }
    let fetch = || async { current(engines).binding(&asynchronous(), &id(name), binding).await };
    let view = insist(fetch).await.expect("a binding that was made is there");
    let credentials = view.body.credentials.expect("credentials");
    let password = format!("secret-of-{operation}");
    assert_eq!(credentials.expose()["password"], json!(password), "of another");
    Some(operation)
}

/// Makes a successor of a binding, if that is there by then, and removes it; the operation, if it was carried out.
async fn rotated(
    name: &str,
    engines: &watch::Receiver<Engine>,
    predecessor: &BindingId,
) -> Option<String> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let successor = binding_id(&format!("{}-next", predecessor.as_str()));
    let order = || async {
        let mut request = bind(json!({}));
        request.predecessor_binding_id = Some(predecessor.clone());
        current(engines).bind(&asynchronous(), &id(name), &successor, request).await
    };
    // Of one that could not be made, or is not yet, there is no successor.
    let reply = insist(order).await.ok()?;
    let operation = made(name, engines, &successor, accepted(Ok(reply))).await;
    removed(name, engines, &successor).await;
    operation
}

async fn removed(name: &str, engines: &watch::Receiver<Engine>, binding: &BindingId) {
    let remove =
        || async { current(engines).unbind(&asynchronous(), &id(name), binding, unbind()).await };
    loop {
        match insist(remove).await {
            Ok(_) => tokio::time::sleep(Duration::from_secs(2)).await,
            Err(error) if error.kind == ErrorKind::Gone => break,
            Err(error) => panic!("refused: {error}"),
        }
    }
}

fn current(engines: &watch::Receiver<Engine>) -> Engine {
    engines.borrow().clone()
}

/// Repeats a request until somebody answers it, as a platform does that heard nothing.
async fn insist<T, F>(request: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match tokio::time::timeout(Duration::from_secs(5), request()).await {
            // A catalog is in force a moment after the start.
            Ok(Err(error))
                if matches!(error.kind, ErrorKind::ConcurrencyError | ErrorKind::Unavailable) =>
            {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Ok(answer) => return answer,
            Err(_) => {}
        }
    }
}

fn accepted<T: std::fmt::Debug>(reply: Result<Reply<T>, Error>) -> Option<String> {
    match reply {
        Ok(Reply::Accepted { operation, .. }) => Some(operation),
        Ok(_) => None,
        Err(error) => panic!("refused: {error}"),
    }
}

async fn ended(
    engines: &watch::Receiver<Engine>,
    name: &str,
    binding: Option<&BindingId>,
    operation: Option<String>,
) -> OperationState {
    let Some(operation) = operation else { return OperationState::Succeeded };
    for _ in 0..10_000 {
        let instance = id(name);
        let poll = || async {
            let (engine, call, query) = (current(engines), asynchronous(), query(&operation));
            match binding {
                Some(binding) => {
                    engine.binding_last_operation(&call, &instance, binding, query).await
                }
                None => engine.instance_last_operation(&call, &instance, query).await,
            }
        };
        let answer = insist(poll).await.expect("an acknowledged operation is known");
        if answer.state != OperationState::InProgress {
            return answer.state;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("{operation} of {name} is stuck");
}

async fn records(world: &World) -> Vec<Arc<Record>> {
    let mut all = Vec::new();
    for kind in [Kind::Instances, Kind::Bindings] {
        let query =
            Query { kind, instance: None, filter: Filter::All, after: None, limit: usize::MAX };
        all.extend(world.store.list(&query).await.unwrap().into_iter().map(|s| s.record));
    }
    all
}

async fn settle(engine: &Engine, world: &World) {
    for _ in 0..100_000 {
        if engine.in_progress() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let busy: Vec<_> = records(world).await.into_iter().filter(|r| r.is_busy()).collect();
    panic!("stuck: {busy:#?}");
}

async fn check(engine: &Engine, world: &World, done: &[Done]) {
    let begun = world.runner.begun();
    for (run, times) in &begun {
        assert_eq!(*times, 1, "{run} began {times} times");
    }
    for (_, operation) in done {
        let run = format!("{operation}-");
        let did = begun.iter().any(|(begun, _)| begun.as_str().starts_with(&run));
        assert!(did, "{operation} succeeded, and nobody did it");
    }
    for record in records(world).await {
        assert!(!record.is_busy(), "in progress and nobody looks after it: {record:?}");
        if record.lifecycle == Lifecycle::Deleted {
            let kept = serde_json::to_string(&*record).unwrap();
            assert!(!kept.contains("planted"), "a tombstone keeps a secret: {kept}");
        }
        if let Key::Binding(instance, _) = &record.key {
            let parent = world.record(&Key::Instance(instance.clone())).await;
            let parent_live = parent.is_some_and(|parent| parent.is_live());
            assert!(parent_live || !record.is_live(), "a binding without instance: {record:?}");
        }
    }
    engine.sweep_once().await.unwrap();
    assert_eq!(world.runner.kept(), [], "runs are left behind");
}
