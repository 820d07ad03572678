//! Starts that a runner refuses, one after the other: how many count, and how long the pause after each is.

use engine::ports::StartError;

use super::*;

#[test]
fn refusals_count_unless_it_is_not_known_yet_how_to_start_and_each_pause_is_twice_as_long() {
    let policy = Policy {
        backoff: Duration::from_secs(1),
        backoff_max: Duration::from_secs(60),
        ..Policy::default()
    };
    let transient = || StartError::Transient("no processes left".into());
    let unready = || StartError::Unready("the catalogs are being read".into());
    let permanent = || StartError::Permanent("no such file".into());
    for (name, before, error, is_permanent, times, pause) in [
        ("the first", 0, transient(), false, 1, 1),
        ("the second", 1, transient(), false, 2, 2),
        ("the third", 2, transient(), false, 3, 4),
        ("the last before the pause is at its longest", 5, transient(), false, 6, 32),
        ("the pause is at its longest", 6, transient(), false, 7, 60),
        ("not known yet, at first", 0, unready(), false, 1, 1),
        ("not known yet, again: it is said", 1, unready(), false, 2, 2),
        ("not known yet, from then on", 2, unready(), false, 2, 2),
        ("not known yet, after others", 5, unready(), false, 5, 16),
        ("for good", 0, permanent(), true, 1, 1),
        ("for good, after others", 3, permanent(), true, 4, 8),
    ] {
        let before = (before > 0).then(|| RefusedStart {
            why: "before".into(),
            permanent: false,
            times: before,
            until: NOW,
        });
        let expected = RefusedStart {
            why: error.to_string(),
            permanent: is_permanent,
            times,
            until: NOW.plus(Duration::from_secs(pause)),
        };
        assert_eq!(RefusedStart::after(&policy, before.as_ref(), &error, NOW), expected, "{name}");
    }
}
