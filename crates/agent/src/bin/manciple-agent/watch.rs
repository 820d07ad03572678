//! Watches a broker until it has ended, and everything that it leaves.

use std::io;
use std::process::Child;
use std::time::{Duration, Instant};

use agent::Order;
use child::group::Leftovers;
use child::{NEVER, group};
use engine::contract::Exit;
use rustix::process::{Pid, Signal};

use crate::log::Log;
use crate::output::Output;
use crate::progress::Progress;
use crate::signals::Signals;

/// How long the pipes are read when no process is left: outside of a container, one that has left the group may hold
/// them open for ever.
const DRAIN: Duration = Duration::from_millis(500);
/// How often the agent looks for processes that are left: not all of them are its children.
const LOOK: Duration = Duration::from_millis(10);

/// The end of a broker, and what it printed.
pub(crate) struct Watched {
    pub(crate) exit: Exit,
    pub(crate) stdout: Vec<u8>,
    pub(crate) log: Log,
}

/// Watches until the broker has ended, by itself or by the agent, and nothing is left of it.
pub(crate) fn watch(
    broker: &mut Child,
    order: &Order,
    signals: &mut Signals,
    log: Log,
    mut progress: Option<Progress<'_>>,
) -> io::Result<Watched> {
    let pid = Pid::from_child(broker);
    let mut output = Output::of(broker, order.output_limit, log);
    let deadline = Instant::now() + order.timeout.min(NEVER);
    let mut ended_by_us = None;
    let mut kill_at = None;
    let status = loop {
        let wake = match (kill_at, ended_by_us) {
            (Some(kill_at), _) => kill_at,
            (None, Some(_)) => Instant::now() + NEVER,
            (None, None) => deadline,
        };
        let next = progress.as_ref().map_or(wake, |progress| progress.next().min(wake));
        output.read(signals, next)?;
        if signals.child()
            && let Some(status) = group::reap(pid, Signal::TERM)?
        {
            break status;
        }
        if let Some(progress) = &mut progress {
            progress.look();
        }
        let (now, asked_to_end) = (Instant::now(), signals.end());
        if kill_at.is_some_and(|kill_at| kill_at <= now) {
            group::signal(pid, Signal::KILL);
            kill_at = None;
        }
        let end = match ended_by_us {
            Some(_) => None,
            None => why_end(order, asked_to_end, output.is_too_much(), deadline <= now),
        };
        // One that has just ended by itself was not ended by us.
        if let Some(exit) = end
            && !group::has_ended(pid)?
        {
            group::ask_to_end(pid);
            ended_by_us = Some(exit);
            kill_at = Some(now + order.grace.min(NEVER));
        }
    };
    let grace = match ended_by_us {
        Some(_) => kill_at.unwrap_or_else(Instant::now),
        None => Instant::now() + order.grace.min(NEVER),
    };
    end_leftovers(pid, grace, signals, &mut output)?;
    let exit = match ended_by_us {
        Some(exit) => exit,
        None if output.is_too_much() => Exit::TooMuchOutput(order.output_limit as u64),
        None => group::exit_of(status),
    };
    let (stdout, log) = output.into_parts();
    Ok(Watched { exit, stdout, log })
}

/// The reason to end a broker that goes on now, if there is one. Of several the first one counts.
fn why_end(order: &Order, is_asked: bool, is_too_much: bool, is_late: bool) -> Option<Exit> {
    if is_asked {
        return Some(Exit::Halted);
    }
    if is_too_much {
        return Some(Exit::TooMuchOutput(order.output_limit as u64));
    }
    is_late.then_some(Exit::TimedOut(order.timeout.as_secs()))
}

/// Ends the processes that the broker has left: those of its group, and in a container all that there are.
fn end_leftovers(
    broker: Pid,
    grace: Instant,
    signals: &mut Signals,
    output: &mut Output,
) -> io::Result<()> {
    let leftovers = Leftovers::of(broker);
    if leftovers.are_there() {
        leftovers.ask_to_end();
    }
    let mut wait = |until: Instant| -> io::Result<()> {
        while leftovers.are_there() && Instant::now() < until {
            output.read(signals, until.min(Instant::now() + LOOK))?;
            signals.pass_over();
        }
        Ok(())
    };
    wait(grace)?;
    leftovers.kill();
    wait(Instant::now() + Leftovers::LINGER)?;
    let until = Instant::now() + DRAIN;
    while output.is_open() && Instant::now() < until {
        output.read(signals, until)?;
        signals.pass_over();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use agent::KeyPair;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_broker_is_ended_for_what_is_asked_before_its_output_and_its_time() {
        let order: Order = serde_json::from_value(json!({
            "run": "run-1", "timeout": Duration::from_secs(60), "output_limit": 1024,
            "key": KeyPair::generate().public(),
        }))
        .unwrap();
        let (too_much, late) = (Exit::TooMuchOutput(1024), Exit::TimedOut(60));
        for (name, is_asked, is_too_much, is_late, expected) in [
            ("nothing is wrong", false, false, false, None),
            ("somebody asked for it", true, false, false, Some(Exit::Halted)),
            ("it prints too much", false, true, false, Some(too_much)),
            ("its time is up", false, false, true, Some(late)),
            ("it prints too much for too long", false, true, true, Some(too_much)),
            ("all of it", true, true, true, Some(Exit::Halted)),
        ] {
            assert_eq!(why_end(&order, is_asked, is_too_much, is_late), expected, "{name}");
        }
    }
}
