//! The API server, or its etcd, is away while runs go on.

use std::sync::Arc;
use std::time::Duration;

use testkit::number;
use testkit::plane::ControlPlane;
use tokio::runtime::Builder;

use crate::chaos::schedule;
use crate::outage::{Outage, until_one_goes_on};
use crate::place::Place;

/// After this long a schedule is in the middle of its runs.
const MIDDLE: Duration = Duration::from_millis(2500);
const AWAY: Duration = Duration::from_secs(3);
/// Longer than a Lease, a call and a run may last.
const STILL: u64 = 30;

/// Schedules in which controllers do not die (1, 2, 9) and in which they do (3, 12), and this happens to all of
/// them at once. In the second something is deleted and made anew: what that had left Kubernetes' collector may leave
/// where it is.
fn survives(away: impl FnOnce(&mut ControlPlane)) {
    crate::seeds::log();
    let mut plane = ControlPlane::start(&kubernetes::definitions()).unwrap();
    let place = Place::of(&plane);
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let outage: Arc<Outage> = Arc::default();
    let begin = |seed| runtime.spawn(schedule(place.clone(), seed, Some(Arc::clone(&outage))));
    let running: Vec<_> = [1, 2, 3, 9, 12].map(begin).into();
    std::thread::sleep(MIDDLE);
    until_one_goes_on(&plane, &running);
    outage.during(|| away(&mut plane));
    for schedule in running {
        let tally = runtime.block_on(schedule).unwrap();
        assert!(tally.runs > 0, "{tally:?}");
    }
}

#[test]
fn an_api_server_that_is_killed_while_runs_go_on_loses_and_repeats_none() {
    survives(|plane| {
        plane.kill_api_server().unwrap();
        std::thread::sleep(AWAY);
        plane.start_api_server().unwrap();
    });
}

/// `MANCIPLE_ETCD_PAUSE=60` pauses it for so many seconds.
#[test]
fn an_etcd_that_stands_still_while_runs_go_on_loses_and_repeats_none() {
    survives(|plane| {
        plane.pause_etcd().unwrap();
        std::thread::sleep(Duration::from_secs(number("MANCIPLE_ETCD_PAUSE").unwrap_or(STILL)));
        plane.resume_etcd().unwrap();
    });
}
