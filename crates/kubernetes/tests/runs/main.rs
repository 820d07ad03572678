//! Seeded schedules of QuarksJobs and ExtendedJobs on a real API server: users trigger them, change what they refer
//! to, and have them follow others and the clock, while controllers are killed at their n-th call, calls fail, get
//! lost or are late, watches lag and break, two lead at once, Leases are stolen and clocks are wrong. Then every
//! trigger has had its run, as its policy says, each run one Job, and its output is kept as it was asked for; no run
//! was for nothing, and nothing is left behind.
//!
//! `MANCIPLE_SCHEDULES=5000` runs more of them, `MANCIPLE_SEED=17` one, `MANCIPLE_AT_ONCE=4` so many at once;
//! `MANCIPLE_LOG=1` shows what the controllers say.

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

mod adopted;
mod behind;
mod chaos;
mod deaths;
mod hasty;
mod kept;
mod late;
mod nodes;
mod objects;
mod others;
mod outages;
mod refused;
mod shape;
mod strays;
mod town;
mod truth;
mod unread;
mod users;
mod witness;

use chaos::schedule;
use place::Place;
use seeds::{Usual, run};
use testkit::plane::ControlPlane;

const SEEDS: [u64; 40] = [
    1, 5, 6, 7, 9, 11, 14, 15, 17, 18, 19, 22, 23, 25, 26, 27, 30, 31, 33, 37, 38, 39, 41, 45, 46,
    47, 49, 54, 55, 57, 59, 62, 63, 65, 66, 67, 70, 71, 78, 79,
];
const USUAL: Usual = Usual { seeds: &SEEDS, at_once: 12, of_the_first: 500, of_everything: 500 };

#[test]
fn no_schedule_of_failures_loses_repeats_or_invents_a_run() {
    let plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let place = Place::of(&plane);
    run(&USUAL, |seed| schedule(place.clone(), seed, None));
}
