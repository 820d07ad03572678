//! What a run is, by where it stands.

use engine::ports::{RunFailure, RunState};
use engine::record::Reason;
use osb::Failure;

use super::super::seen::Fence;
use super::super::standing::Standing;
use super::MADE;
use super::logs::ended_at;

#[test]
fn a_run_is_what_its_standing_says_unless_there_is_more_to_be_read() {
    let why = || "its node is gone".to_owned();
    let going =
        |said: Option<&str>, broker| Standing::Going { said: said.map(str::to_owned), broker };
    let running =
        |progress: Option<&str>| Some(RunState::Running { progress: progress.map(str::to_owned) });
    let failed = |reason, why: &str| {
        Some(RunState::Finished(Err(RunFailure::new(reason, Failure::failed(why)))))
    };
    let ended = Some("it is being ended: its node is gone");
    for (name, standing, expected, goes_on) in [
        ("there is none", Standing::Absent, Some(RunState::Absent), false),
        ("its pod begins", going(None, false), running(None), true),
        ("its pod waits", going(Some("for a node"), false), running(Some("for a node")), true),
        ("its broker is at work", going(None, true), None, true),
        ("its node is silent", going(Some("silent"), true), running(Some("silent")), true),
        ("it has reported", Standing::Reported(ended_at(MADE)), None, false),
        ("somebody ends it", Standing::ToEnd(Fence::Cancelled), running(None), true),
        ("it would be done twice", Standing::ToEnd(Fence::Lost(why())), running(ended), true),
        ("it does not begin", Standing::ToEnd(Fence::Hopeless(why())), running(ended), true),
        (
            "it never began",
            Standing::NeverBegan(why()),
            failed(Reason::NotStarted, "its node is gone"),
            false,
        ),
        (
            "somebody ended it",
            Standing::Halted,
            failed(Reason::Halted, "it was ended before it had done its work"),
            false,
        ),
        (
            "its time was up",
            Standing::TimedOut("600 s".to_owned()),
            failed(Reason::Timeout, "its time was up: 600 s"),
            false,
        ),
        ("it is lost", Standing::Lost(why()), Some(RunState::Lost { why: why() }), false),
    ] {
        assert_eq!(standing.state(), expected, "{name}");
        assert_eq!(standing.goes_on(), goes_on, "{name}");
    }
}
