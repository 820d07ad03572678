//! What the schedules meet by chance, each by itself: a leader that is held up, work that goes on elsewhere, and a pod
//! too many.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent::Order;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use osb::InstanceId;
use testkit::kubelet::{Act, End, Script, progress};
use testkit::plane::ControlPlane;
use testkit::random::Random;
use tokio::time::sleep;

use crate::place::Place;
use crate::platform::{Fleet, User};
use crate::replica::{Character, Replica};
use crate::script::question;
use crate::twin;
use crate::wait::until;
use crate::world::{Sells, World, well};

/// The longest that anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn character(lease: &str, linger: Duration) -> Character {
    Character { linger, ..Character::well(lease) }
}

fn user(world: &Arc<World>, fleet: &Fleet) -> User {
    User {
        world: Arc::clone(world),
        fleet: fleet.clone(),
        random: Random::new(1),
        instance: InstanceId::new("i").unwrap(),
        acknowledged: Vec::new(),
        by_hand: false,
        service: "s",
        told: BTreeSet::new(),
    }
}

fn serve(fleet: &Fleet, replica: &Replica) {
    fleet.set(0, Some(replica.answers()));
}

/// Whether a call makes a Job.
fn makes_a_job(call: &str) -> bool {
    call.starts_with("POST ") && call.ends_with("/jobs")
}

/// Waits until a replica has sent the call that makes a Job, which may be held up.
async fn until_it_makes_a_job(replica: &Replica) {
    until("it never comes to make the Job", PATIENCE, async || {
        let made = replica.proxy.made();
        if made.iter().any(|call| makes_a_job(call)) { Ok(()) } else { Err(made) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_held_up_finds_the_name_of_its_job_taken_and_runs_nothing_again() {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let world = World::new(&Place::of(&plane), "held-up", well(Duration::from_millis(100))).await;
    let (world, fleet) = (Arc::new(world), Fleet::default());
    let linger = Duration::from_secs(8);

    // Two lead: each has a Lease of its own.
    let late = Replica::open(&world, character("late", linger)).await.unwrap();
    late.proxy.hold_up(makes_a_job);
    serve(&fleet, &late);
    let mut user = user(&world, &fleet);
    let token = user.provision("small", 0).await;
    until_it_makes_a_job(&late).await;
    let other = Replica::open(&world, character("other", linger)).await.unwrap();
    serve(&fleet, &other);
    assert!(user.ended(None, token, osb::Action::Provision).await, "the other makes it");

    let jobs: Api<Job> = Api::namespaced(world.client.clone(), &world.namespace);
    let all = ListParams::default();
    assert_eq!(jobs.list(&all).await.unwrap().items.len(), 1, "its name is taken");
    late.proxy.hold_up(|_| false);
    until("something is left of it in the end", PATIENCE, async || {
        let left = jobs.list(&all).await.unwrap().items;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
    // Whoever was late has been heard by now.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(jobs.list(&all).await.unwrap().items.len(), 0, "it was made again");
    world.attempts.assert_one_job_each(|_| true);
    let ledger = world.kubelet.ledger();
    assert!(ledger.values().all(|entry| entry.begun.len() == 1), "{ledger:?}");
}

/// The Job of a run that failed is kept, and has the name that whoever comes too late takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_hears_of_nothing_leaves_a_failed_run_as_it_is_and_runs_nothing_again() {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let script: Script = Arc::new(|_: &Order| {
        let (begins, lasts) = (Duration::from_millis(20), Duration::from_millis(100));
        Act { begins, lasts, end: End::Fails("no disk left".to_owned()), again: None }
    });
    let world = Arc::new(World::new(&Place::of(&plane), "unheard", script).await);
    let fleet = Fleet::default();
    // Its one call lasts for as long as it leads.
    let keeps =
        |lease| Character { keep_failed: PATIENCE, lasts: PATIENCE, ..Character::well(lease) };
    let late = Replica::open(&world, keeps("late")).await.unwrap();
    late.proxy.hold_up(makes_a_job);
    serve(&fleet, &late);
    let mut user = user(&world, &fleet);
    let token = user.provision("small", 0).await;
    until_it_makes_a_job(&late).await;
    late.proxy.silence(|path| path.ends_with("/serviceinstances"));
    late.proxy.made();
    let other = Replica::open(&world, keeps("other")).await.unwrap();
    serve(&fleet, &other);
    assert!(!user.ended(None, token, osb::Action::Provision).await, "the other tries, and fails");

    let jobs: Api<Job> = Api::namespaced(world.client.clone(), &world.namespace);
    let of_runs = ListParams::default().labels("manciple.dev/run");
    let kept = async || {
        let found = jobs.list(&of_runs).await.unwrap().items;
        found.iter().map(|job| (job.name_any(), job.uid().unwrap())).collect::<Vec<_>>()
    };
    let before = kept().await;
    late.proxy.hold_up(|_| false);
    until("it does not see that it is late", PATIENCE, async || {
        let made = late.proxy.made();
        let reads = |call: &String| call.starts_with("GET ") && call.contains("/serviceinstances/");
        if made.iter().any(reads) { Ok(()) } else { Err(made) }
    })
    .await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(kept().await, before, "what is kept of a failed run is gone, or it ran again");
    world.attempts.assert_one_job_each(|_| true);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_elsewhere_that_says_how_far_it_is_is_told_to_the_platform_and_makes_no_warning() {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let script: Script = Arc::new(|order: &Order| {
        let is_over = question(&order.run).is_some_and(|(_, number)| number > 2);
        let end = if is_over { End::Well } else { End::Elsewhere(progress(&order.run)) };
        let (begins, lasts) = (Duration::from_millis(20), Duration::from_millis(300));
        Act { begins, lasts, end, again: None }
    });
    let sells = Sells { extended: true, ..Sells::default() };
    let world = World::selling(&Place::of(&plane), "elsewhere", sells, script).await;
    let (world, fleet) = (Arc::new(world), Fleet::default());
    let replica = Replica::open(&world, character("it", Duration::ZERO)).await.unwrap();
    serve(&fleet, &replica);
    let mut user = user(&world, &fleet);
    let token = user.provision("small", 0).await;
    assert!(user.ended(None, token, osb::Action::Provision).await);
    assert_eq!(user.told.len(), 1, "nobody was told how far it was");
    let ledger = world.kubelet.ledger();
    assert_eq!(ledger.keys().filter(|run| question(run).is_some()).count(), 3, "{ledger:?}");
    // Events are written by the way.
    sleep(Duration::from_secs(1)).await;
    let events: Api<Event> = Api::namespaced(world.client.clone(), &world.namespace);
    let warnings = ListParams::default().fields("type=Warning");
    let told: Vec<_> = events.list(&warnings).await.unwrap().items;
    assert!(told.is_empty(), "{told:#?}");
}

/// A Job controller that had no answer when it made a pod makes another, and takes one away when it has seen both.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_too_many_costs_a_run_nothing_and_has_it_begin_once() {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let script = well(Duration::from_secs(12));
    let (world, fleet) =
        (World::new(&Place::of(&plane), "too-many", script).await, Fleet::default());
    let world = Arc::new(world);
    let replica = Replica::open(&world, character("it", Duration::ZERO)).await.unwrap();
    serve(&fleet, &replica);
    let mut user = user(&world, &fleet);
    let token = user.provision("small", 0).await;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let of_runs = ListParams::default().labels("manciple.dev/run");
    let is_provision = |pod: &Pod| pod.name_any().starts_with("provision-");
    let begun =
        |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
    let pod = until("it never begins", PATIENCE, async || {
        let found = pods.list(&of_runs).await.unwrap().items;
        found.iter().find(|pod| is_provision(pod) && begun(pod)).cloned().ok_or(found)
    })
    .await;
    twin::come_and_go(&pods, &pod, PATIENCE).await;
    let ended = user.ended(None, token, osb::Action::Provision).await;
    let ledger = world.kubelet.ledger();
    assert!(ended, "{ledger:?}");
    assert!(ledger.values().all(|entry| entry.begun.len() == 1), "{ledger:?}");
}
