//! Seeded schedules of TemplateInstances on a real API server: instances are ordered, changed and deleted while two
//! controllers are killed at their n-th call, calls fail, get lost, are late or are sent twice, watches lag and break.
//! Then each that was not deleted is ready as it was last ordered, with one password and each of its objects once, and
//! of the others nothing is left, in no namespace.
//!
//! `MANCIPLE_SCHEDULES=500` runs more of them, `MANCIPLE_SEED=17` one, `MANCIPLE_AT_ONCE=4` so many at once;
//! `MANCIPLE_LOG=1` shows what the controllers say. With `MANCIPLE_BOTH_LEAD=1` both lead all the time, which nothing but
//! a Lease prevents: one that is killed between an object that nothing owns and the look at an instance that is gone by
//! then may leave that object.

#[path = "../support/led.rs"]
mod led;
#[path = "../support/seeds.rs"]
mod seeds;

mod town;

use kubernetes::templates::definition;
use kubernetes::templates::names::Kind;
use seeds::{Usual, run};
use testkit::plane::ControlPlane;
use town::schedule;

const SEEDS: [u64; 10] = [6, 11, 15, 17, 24, 26, 27, 32, 35, 40];
const USUAL: Usual = Usual { seeds: &SEEDS, at_once: 10, of_the_first: 0, of_everything: 16 };

#[test]
fn no_schedule_of_failures_makes_anything_twice_or_leaves_anything() {
    let plane = ControlPlane::start(&Kind::ALL.map(definition)).unwrap();
    let kubeconfig = plane.kubeconfig();
    run(&USUAL, |seed| schedule(kubeconfig.clone(), seed));
}
