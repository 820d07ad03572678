//! Seeded schedules on a real API server: a platform orders, binds, updates and deletes while replicas are
//! killed at their n-th call, calls fail, get lost or are late, watches lag and break, Leases are stolen,
//! clocks are wrong and pods are taken away; in some of them brokers leave work to others, tell how far it is, ask for
//! pauses and leave state behind, and in some there are several, as one catalog or apart, which come, change and go. Then
//! every acknowledged operation has ended, and says why truly; no attempt ran twice; no credential was lost; nothing is
//! left behind.
//!
//! `MANCIPLE_SCHEDULES=5000` runs more of them, `MANCIPLE_SEED=17` one, `MANCIPLE_AT_ONCE=4` so many at
//! once; `MANCIPLE_LOG=1` shows what the replicas say.

#[path = "../support/deaths.rs"]
mod deaths_at;
#[path = "../support/led.rs"]
mod led;
#[path = "../support/outage.rs"]
mod outage;
#[path = "../support/place.rs"]
mod place;
#[path = "../support/seeds.rs"]
mod seeds;
#[path = "../support/skewed.rs"]
mod skewed;
#[path = "../support/stage.rs"]
mod stage;
#[path = "../support/thief.rs"]
mod thief;
#[path = "../support/twin.rs"]
mod twin;
#[path = "../support/wait.rs"]
mod wait;

mod brokers;
mod chaos;
mod deaths;
mod kept;
mod late;
mod outages;
mod pauses;
mod platform;
mod replica;
mod script;
mod truth;
mod world;

use chaos::{Manner, schedule};
use place::Place;
use seeds::{Usual, run};
use testkit::plane::ControlPlane;

const SEEDS: [u64; 12] = [5, 6, 12, 21, 29, 33, 37, 38, 39, 40, 51, 59];
const USUAL: Usual = Usual { seeds: &SEEDS, at_once: 12, of_the_first: 0, of_everything: 24 };

#[test]
fn no_schedule_of_failures_loses_repeats_or_strands_an_operation() {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let place = Place::of(&plane);
    run(&USUAL, |seed| schedule(place.clone(), seed, Manner::of(seed)));
}
