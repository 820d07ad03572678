//! `kill -9` of the real server at every boundary between store and runner, then a restart: every
//! acknowledged operation reaches its end, none runs twice within an attempt, no credential is lost,
//! nothing is stuck.
//!
//! `MANCIPLE_SCHEDULES=5000` runs more schedules, `MANCIPLE_SEED=17` one.
#![cfg(feature = "failpoints")]

mod support;

use std::collections::BTreeMap;

use engine::failpoint::POINTS;
use support::platform::Platform;
use support::{Served, Site, for_seconds};
use testkit::number;
use testkit::random::Random;

/// Writes a line for every piece of work that it begins; its credentials name the operation. What is of the
/// plan `q` takes its time to be made, so that it may be deleted meanwhile.
const BROKER: &str = r#"#!/bin/sh
case $1 in
catalog)
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,"plan_updateable":true,
        "plans":[{"id":"p","name":"small","description":"d","binding_rotatable":true},
                 {"id":"q","name":"slow","description":"d","binding_rotatable":true}]}]}'
    exit ;;
esac
echo "$1 $OSB_OPERATION_ID $OSB_ATTEMPT" >>"${0%/*}/ledger"
for _ in 1 2 3 4 5 6 7 8 9 10; do
    [ ! -e "${0%/*}/slow" ] || sleep 0.5
done
case "$1 $*" in
provision*" --plan-id q"*) sleep 0.2 ;;
esac
case $1 in
bind) echo "{\"credentials\":{\"password\":\"secret-of-$OSB_OPERATION_ID\"}}" ;;
*) echo '{}' ;;
esac
"#;

/// The seeds, in as many tests as there are threads to run them.
fn schedules(part: u64, parts: u64) {
    let seeds: Vec<u64> = match number("MANCIPLE_SEED") {
        Some(seed) if part == 0 => vec![seed],
        Some(_) => return,
        None => (1..=number("MANCIPLE_SCHEDULES").unwrap_or(200)).collect(),
    };
    let mut deaths: BTreeMap<&str, u32> = BTreeMap::new();
    let mut credentials = 0;
    let many = seeds.len() >= 20;
    for seed in seeds.into_iter().filter(|seed| seed % parts == part || parts == 1) {
        println!("seed {seed}");
        let (died, checked) = schedule(seed);
        credentials += checked;
        for point in died {
            *deaths.entry(point).or_default() += 1;
        }
    }
    println!("{credentials} credentials, deaths by point: {deaths:?}");
    // A few schedules are not enough for each.
    if many {
        let spared: Vec<_> = POINTS.iter().filter(|point| !deaths.contains_key(*point)).collect();
        assert!(spared.is_empty(), "nothing died at {spared:?}: the schedules do not test it");
        assert!(credentials > 0, "no credentials were looked for");
    }
}

#[test]
fn every_schedule_of_kills_ends_well_1_of_2() {
    schedules(0, if number("MANCIPLE_SEED").is_some() { 1 } else { 2 });
}

#[test]
fn every_schedule_of_kills_ends_well_2_of_2() {
    if number("MANCIPLE_SEED").is_none() {
        schedules(1, 2);
    }
}

/// Runs one schedule; the points at which the server died, and how many credentials had to be there in the end.
fn schedule(seed: u64) -> (Vec<&'static str>, usize) {
    let mut random = Random::new(seed);
    let mut site = Site::new(BROKER);
    site.settings = "auth:\n  disabled: true\nbroker:\n  capabilities: [request-file, update]\n\
                     operations:\n  hold: {bind: 5s}\nlog:\n  level: warn,manciple=info\n"
        .to_owned();
    let mut platform = Platform::default();
    let mut deaths = Vec::new();
    for round in 0..1 + random.below(3) {
        // Each in its turn first.
        let point = if round == 0 { seed / 2 } else { random.below(POINTS.len() as u64) };
        let point = POINTS[usize::try_from(point).unwrap() % POINTS.len()];
        // Few things are cancelled, or take long.
        let seldom = ["after-cancel", "after-started"].contains(&point);
        let times = if seldom { 1 } else { 1 + random.below(3) };
        let failpoint = format!("{point}:{times}");
        // That a run was started is recorded only once it has lasted for a while, which takes its time here.
        let slow = point == "after-started" && (seed / 18).is_multiple_of(2);
        if slow {
            site.write("slow", "");
        }
        let started = Served::start(site.command().env("MANCIPLE_FAILPOINT", &failpoint));
        // It may die while it takes up what the one before left.
        let Ok(mut server) = started else {
            deaths.push(point);
            continue;
        };
        // Where the disk is slow, what was asked reaches the point late, and what is in its way is refused until then.
        let patient = slow || random.below(2) == 0;
        for _ in 0..if patient { 3 } else { 1 } {
            for _ in 0..4 + random.below(6) {
                platform.act(&server, &mut random);
                if server.has_ended() {
                    break;
                }
            }
            if point == "after-cancel" {
                platform.think_better(&server);
            }
            if patient {
                let is_over = || (server.has_ended() || !platform.goes_on(&server)).then_some(());
                let _ = for_seconds(10, is_over);
            }
            if server.has_ended() {
                break;
            }
        }
        if slow {
            std::fs::remove_file(site.path().join("slow")).unwrap();
        }
        if server.has_ended() {
            deaths.push(point);
        }
        if !server.has_ended() && random.below(2) == 0 {
            server.kill();
        }
    }
    let _ = std::fs::remove_file(site.path().join("slow"));
    let server = site.serve();
    platform.settle(&server, seed);
    check(&server, &site, seed);
    let ledger = site.read("ledger");
    let begun =
        |operation: &str| ledger.lines().any(|line| line.split(' ').nth(1) == Some(operation));
    let credentials = platform.check(&server, begun, seed);
    (deaths, credentials)
}

/// No piece of work was begun twice.
fn check(server: &Served, site: &Site, seed: u64) {
    let ledger = site.read("ledger");
    let mut begun: BTreeMap<&str, u32> = BTreeMap::new();
    for line in ledger.lines() {
        *begun.entry(line).or_default() += 1;
    }
    for (run, times) in begun {
        assert_eq!(times, 1, "seed {seed}: {run} ran {times} times\n{}", server.log());
    }
}
