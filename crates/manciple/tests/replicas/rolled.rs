//! One replica takes the place of another, as where a Deployment rolls: it is begun beside that, which is then told to end.
//! With `MANCIPLE_OLDER` they are of two builds: an upgrade, and back.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, WatchEvent, WatchParams};
use rustix::process::Signal;
use testkit::plane::ControlPlane;
use testkit::random::Random;

use super::support::platform::Platform;
use super::support::{Served, builds, http, order, within};
use super::{Town, ends_well, is_clean, plane, runtime, seeds};

/// So many instances are ordered for each that comes, the first of them before it is there.
const ORDERED: usize = 30;
const BEFORE: usize = 4;

/// A replica that is ready.
fn begun(plane: &ControlPlane, town: &Town, build: &Path) -> Served {
    let kubeconfig = std::fs::read_to_string(plane.kubeconfig()).unwrap();
    let server = Served::start(&mut town.command_of(build, &kubeconfig)).unwrap();
    order::ready(&server);
    server
}

/// It was told to, and ends well.
fn ended(server: &mut Served) {
    let status = within(90, || server.has_ended().then(|| server.wait())).flatten();
    assert!(status.is_some_and(|status| status.success()), "{}", server.log());
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref().and_then(|it| it.holder_identity.clone())
}

/// Who holds the Lease from now on, one after the other.
fn holders(town: &Town) -> Arc<Mutex<Vec<Option<String>>>> {
    let before = town.lease();
    let version = before.metadata.resource_version.clone().unwrap();
    let leases: Api<Lease> = Api::namespaced(town.client.clone(), &town.namespace);
    let holders = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&holders);
    town.runtime.spawn(async move {
        let events = leases.watch(&WatchParams::default(), &version).await.unwrap();
        futures_util::pin_mut!(events);
        let mut last = holder(&before);
        while let Some(Ok(event)) = events.next().await {
            if let WatchEvent::Modified(lease) = event
                && holder(&lease) != last
            {
                last = holder(&lease);
                heard.lock().unwrap().push(last.clone());
            }
        }
    });
    holders
}

/// Orders instances while one takes the place of another; the one that came.
fn rolls(
    town: &Town,
    mut old: Served,
    begin: impl FnOnce() -> Served,
    instances: &[String],
) -> Served {
    // It is alone: who came before it may have given the Lease back just now.
    within(30, || holder(&town.lease())).expect("who serves leads");
    let (before, meanwhile) = instances.split_at(BEFORE);
    for instance in before {
        assert_eq!(order::provision(&old, instance, &order::body("p")).status, 202);
    }
    let new = begin();
    let holders = holders(town);
    old.signal(Signal::TERM);
    // As a load balancer: who does not answer at all is asked no more.
    let mut live = vec![&old.address, &new.address];
    for instance in meanwhile {
        let body = order::body("p");
        let path = format!("{}?accepts_incomplete=true", order::path(instance));
        let answer = loop {
            let address = live.first().expect("one answers");
            match http::send(address, "PUT", &path, Some(&body)) {
                Some(answer) => break answer,
                None => drop(live.remove(0)),
            }
        };
        assert_eq!(answer.status, 202, "{answer:?}");
    }
    for instance in instances {
        let last = order::settled(&new, instance);
        assert_eq!(last["state"], "succeeded", "{instance}: {last}");
    }
    ended(&mut old);
    let first = within(10, || holders.lock().unwrap().first().cloned());
    assert_eq!(first, Some(None), "who ends gives the Lease back");
    new
}

#[test]
fn a_rolling_upgrade_loses_nothing_and_fails_no_request() {
    let (plane, runtime) = (plane(), runtime());
    let town = Town::new(&plane, &runtime, "upgrade", Duration::from_secs(1));
    let builds = builds::rolled();
    let mut serving = begun(&plane, &town, &builds[0]);
    for (roll, build) in (1..).zip(&builds[1..]) {
        let instances: Vec<_> = (0..ORDERED).map(|n| format!("i{roll}-{n}")).collect();
        serving = rolls(&town, serving, || begun(&plane, &town, build), &instances);
    }
    town.has_one_job_each();
    let ledger = town.kubelet.ledger();
    let provisions: Vec<_> =
        ledger.iter().filter(|(run, _)| run.starts_with("provision-")).collect();
    assert_eq!(provisions.len(), ORDERED * (builds.len() - 1));
    assert!(provisions.iter().all(|(_, entry)| entry.begun.len() == 1), "{provisions:?}");
}

/// Has a platform ask these so often, any of them each time.
fn asks(platform: &mut Platform, random: &mut Random, replicas: &[&Served], times: usize) {
    for _ in 0..times {
        let any = usize::try_from(random.below(replicas.len() as u64)).unwrap();
        platform.act(replicas[any], random);
    }
}

#[test]
fn what_one_replica_has_begun_and_made_is_what_the_next_goes_on_with() {
    let (plane, runtime) = (plane(), runtime());
    for seed in seeds(1) {
        println!("seed {seed}");
        let town = Town::new(&plane, &runtime, &format!("rolls-{seed}"), Duration::from_millis(50));
        let (mut platform, mut random) = (Platform::default(), Random::new(seed));
        let builds = builds::rolled();
        let mut old = begun(&plane, &town, &builds[0]);
        for build in &builds[1..] {
            asks(&mut platform, &mut random, &[&old], 30);
            let new = begun(&plane, &town, build);
            asks(&mut platform, &mut random, &[&old, &new], 30);
            old.signal(Signal::TERM);
            asks(&mut platform, &mut random, &[&old, &new], 30);
            ended(&mut old);
            old = new;
        }
        asks(&mut platform, &mut random, &[&old], 10);
        ends_well(&town, &old, &mut platform, seed);
        is_clean(&old, seed, || town.kept());
    }
}
