//! `kill -9` of the real server at every boundary between store and runner, then a restart: every
//! acknowledged operation reaches its end, none runs twice within an attempt, no credential is lost,
//! nothing is stuck.
//!
//! `MANCIPLE_SCHEDULES=5000` runs more schedules, `MANCIPLE_SEED=17` one.
#![cfg(feature = "failpoints")]

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use engine::failpoint::POINTS;
use serde_json::{Value, json};
use support::{Served, Site, http};

/// Writes a line for every piece of work that it begins; its credentials name the operation.
const BROKER: &str = r#"#!/bin/sh
case $1 in
catalog)
    echo '{"services":[{"id":"s","name":"db","description":"d","bindable":true,
        "plans":[{"id":"p","name":"small","description":"d"}]}]}'
    exit ;;
esac
echo "$1 $OSB_OPERATION_ID $OSB_ATTEMPT" >>"${0%/*}/ledger"
case $1 in
bind) echo "{\"credentials\":{\"password\":\"secret-of-$OSB_OPERATION_ID\"}}" ;;
*) echo '{}' ;;
esac
"#;

/// A generator that is the same everywhere: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// The seeds, in as many tests as there are threads to run them.
fn schedules(part: u64, parts: u64) {
    let seeds: Vec<u64> = match number("MANCIPLE_SEED") {
        Some(seed) if part == 0 => vec![seed],
        Some(_) => return,
        None => (1..=number("MANCIPLE_SCHEDULES").unwrap_or(500)).collect(),
    };
    let mut deaths: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in seeds.into_iter().filter(|seed| seed % parts == part || parts == 1) {
        println!("seed {seed}");
        for point in schedule(seed) {
            *deaths.entry(point).or_default() += 1;
        }
    }
    println!("deaths by point: {deaths:?}");
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

/// Runs one schedule; the points at which the server died.
fn schedule(seed: u64) -> Vec<&'static str> {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut site = Site::new(BROKER);
    site.settings = "auth:\n  disabled: true\nbroker:\n  capabilities: [request-file]\n\
                     operations:\n  hold: {bind: 5s}\nlog:\n  level: warn,manciple=info\n"
        .to_owned();
    let mut platform = Platform::default();
    let mut deaths = Vec::new();
    for _ in 0..1 + random.below(3) {
        let point = POINTS[usize::try_from(random.below(POINTS.len() as u64)).unwrap()];
        let times = 1 + random.below(3);
        let failpoint = format!("{point}:{times}");
        let started = Served::start(site.command().env("MANCIPLE_FAILPOINT", &failpoint));
        // It may die while it takes up what the one before left.
        let Ok(mut server) = started else {
            deaths.push(point);
            continue;
        };
        for _ in 0..4 + random.below(6) {
            platform.act(&server, &mut random);
            if server.has_ended() {
                deaths.push(point);
                break;
            }
        }
        if !server.has_ended() && random.below(2) == 0 {
            server.kill();
        }
    }
    let server = site.serve();
    platform.settle(&server, seed);
    platform.check(&server, &site, seed);
    deaths
}

/// What a platform knows: what was acknowledged to it.
#[derive(Default)]
struct Platform {
    /// Operations of instances: the instance and the token of each 202.
    accepted: Vec<(String, String)>,
    /// Credentials that a 201 or a GET carried.
    credentials: BTreeMap<(String, String), Value>,
    instances: u32,
}

const IDS: &str = "service_id=s&plan_id=p";

impl Platform {
    /// Asks for something; hears an answer or does not.
    fn act(&mut self, server: &Served, random: &mut Random) {
        let instance = format!("i{}", random.below(3));
        let path = format!("/v2/service_instances/{instance}");
        let binding = format!("b{}", random.below(2));
        let bound = format!("{path}/service_bindings/{binding}");
        let address = &server.address;
        match random.below(5) {
            0 | 1 => {
                let body = json!({ "service_id": "s", "plan_id": "p",
                    "organization_guid": "o", "space_guid": "s" });
                let path = format!("{path}?accepts_incomplete=true");
                let answer = http::send(address, "PUT", &path, Some(&body));
                self.instances += 1;
                self.heard(&instance, answer);
            }
            2 => {
                let path = format!("{path}?accepts_incomplete=true&{IDS}");
                let answer = http::send(address, "DELETE", &path, None);
                self.heard(&instance, answer);
            }
            3 => {
                let body = json!({ "service_id": "s", "plan_id": "p" });
                let answer = http::send(address, "PUT", &bound, Some(&body));
                if let Some(answer) = answer.filter(|answer| matches!(answer.status, 200 | 201)) {
                    let password = answer.body["credentials"]["password"].clone();
                    self.credentials.insert((instance, binding), password);
                }
            }
            _ => {
                let path = format!("{bound}?accepts_incomplete=true&{IDS}");
                http::send(address, "DELETE", &path, None);
                self.credentials.remove(&(instance, binding));
            }
        }
        std::thread::sleep(Duration::from_millis(random.below(40)));
    }

    fn heard(&mut self, instance: &str, answer: Option<http::Answer>) {
        let Some(answer) = answer else { return };
        assert!(answer.status < 500 || answer.status == 503, "{answer:?}");
        if let Some(operation) = answer.body["operation"].as_str() {
            self.accepted.push((instance.to_owned(), operation.to_owned()));
        }
    }

    /// Waits until nothing is in progress.
    fn settle(&self, server: &Served, seed: u64) {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let busy: usize = ["instances", "bindings"]
                .iter()
                .filter_map(|kind| {
                    let path = format!("/admin/v1/{kind}?state=busy");
                    http::get(&server.address, &path)?.body["items"].as_array().map(Vec::len)
                })
                .sum();
            if busy == 0 {
                return;
            }
            assert!(Instant::now() < until, "seed {seed}: stuck\n{}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn check(&self, server: &Served, site: &Site, seed: u64) {
        let ledger = std::fs::read_to_string(site.path().join("ledger")).unwrap_or_default();
        let mut begun: BTreeMap<&str, u32> = BTreeMap::new();
        for line in ledger.lines() {
            *begun.entry(line).or_default() += 1;
        }
        for (run, times) in begun {
            assert_eq!(times, 1, "seed {seed}: {run} ran {times} times\n{}", server.log());
        }
        for (instance, operation) in &self.accepted {
            let path =
                format!("/v2/service_instances/{instance}/last_operation?operation={operation}");
            let answer = http::get(&server.address, &path).unwrap();
            assert_eq!(answer.status, 200, "seed {seed}: {operation} is forgotten: {answer:?}");
            let state = answer.body["state"].as_str().unwrap();
            assert!(matches!(state, "succeeded" | "failed"), "seed {seed}: {answer:?}");
        }
        for ((instance, binding), password) in &self.credentials {
            let path = format!("/v2/service_instances/{instance}/service_bindings/{binding}");
            let answer = http::get(&server.address, &path).unwrap();
            assert_eq!(answer.status, 200, "seed {seed}: {binding} of {instance} is lost");
            assert_eq!(&answer.body["credentials"]["password"], password, "seed {seed}");
        }
    }
}
