//! The agent around a container's command, as the first process: it runs the command as if there were no agent, and
//! delivers the files that it left.
//!
//! ```text
//! start ─▶ signals to it, orphans reaped ─▶ it has ended ─▶ what it left is ended ─▶ files, sealed ─▶ its status
//!       └▶ what it prints, if that is taken ───────────────────────────────────────┘
//! ```

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use agent::{GATHERING_VARIABLE, Gathering, TARGET_VARIABLE};
use child::group::Leftovers;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, set_child_subreaper, wait,
};

use crate::printed::Printed;
use crate::settle::Ending;
use crate::signals::{self, Caught};
use crate::told::told;
use crate::{deliver, hide_memory, say};

/// The signals that are sent to the first process of a container, and are meant for the command.
const FORWARDED: [Signal; 9] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::POWER,
    Signal::CONT,
];
/// The variables that are the agent's and not the command's: what it is told, and what tells the loader where to put
/// it.
const OURS: [&str; 2] = [GATHERING_VARIABLE, TARGET_VARIABLE];

/// The exit status for a command that is not found, as in shells.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTED: u8 = 126;
const SIGNALLED: i32 = 128;

/// How often the agent looks whether killed processes are gone.
const LOOK: Duration = Duration::from_millis(5);

/// Runs the command and delivers its files; exits as the command did, even if they could not be delivered.
pub(crate) fn wrap(program: &OsString, arguments: &[OsString]) -> ExitCode {
    // Outside of a container orphans would go to somebody else.
    let _ = set_child_subreaper(Some(getpid()));
    let gathering = told::<Gathering>(GATHERING_VARIABLE, "gathering");
    let gathering = gathering.map_err(|why| deliver::broken(&why)).ok();
    let mut ending = Ending { shared: true, hurried: false };
    let mut printed = gathering.as_ref().and_then(Printed::taken);
    // Nothing else is confidential before the command has ended, and what hides memory closes `/proc/1/fd/1` too:
    // scripts print there, and images link their logs to it.
    if printed.is_some() {
        hide_memory();
    }
    let status = run(program, arguments, &mut ending, &mut printed).unwrap_or_else(|error| {
        let program = Path::new(program).display();
        say(&format!("{program} cannot be run: {error}"));
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NOTDIR) => NOT_FOUND,
            _ => NOT_EXECUTED,
        }
    });
    end_leftovers();
    hide_memory();
    let printed = printed.map(Printed::end);
    if let Some(gathering) = gathering {
        // What cannot be left was said, and is no reason for the command to have failed.
        let _ = deliver::gathered(&gathering, printed.as_ref(), ending);
    }
    ExitCode::from(status)
}

fn run(
    program: &OsString,
    arguments: &[OsString],
    ending: &mut Ending,
    printed: &mut Option<Printed>,
) -> io::Result<u8> {
    let mut child = Caught::catch(Signal::CHILD)?;
    // What is caught is as usual again in the command, whatever we were started with.
    let forwarded = FORWARDED.into_iter().map(|signal| Ok((signal, Caught::catch(signal)?)));
    let mut forwarded = forwarded.collect::<io::Result<Vec<_>>>()?;
    let mut command = Command::new(program);
    OURS.iter().for_each(|variable| {
        command.env_remove(variable);
    });
    if printed.is_some() {
        command.stdout(Stdio::piped());
    }
    let mut command = command.args(arguments).spawn()?;
    if let (Some(printed), Some(stdout)) = (printed.as_mut(), command.stdout.take()) {
        printed.read_from(stdout)?;
    }
    let command = Pid::from_child(&command);
    loop {
        let signals = forwarded.iter().map(|(_, caught)| caught).chain([&child]).map(AsFd::as_fd);
        signals::wait(signals.chain(printed.as_ref().and_then(Printed::fd)), None)?;
        if let Some(printed) = printed {
            printed.read();
        }
        if child.came()
            && let Some(status) = reap(command)?
        {
            return Ok(as_shells_say(status));
        }
        for signal in forwarded.iter_mut().filter_map(|(signal, it)| it.came().then_some(*signal)) {
            ending.hurried |= signal == Signal::TERM;
            // One that has just ended needs none.
            let _ = kill_process(command, signal);
        }
    }
}

/// Reaps all processes that have ended; returns the status of the command, if it is among them.
fn reap(command: Pid) -> io::Result<Option<WaitStatus>> {
    let mut status = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, ended))) if pid == command => status = Some(ended),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(Errno::CHILD) => return Ok(status),
            Err(error) => return Err(error.into()),
        }
    }
}

fn as_shells_say(status: WaitStatus) -> u8 {
    let signalled = status.terminating_signal().map(|signal| SIGNALLED + signal);
    let status = status.exit_status().or(signalled);
    status.and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX)
}

/// Ends the processes that the command has left, as the kernel does when the first process of a container ends:
/// otherwise they could print between the lines of the report.
fn end_leftovers() {
    let Some(leftovers) = Leftovers::of_container() else { return };
    leftovers.kill();
    let until = Instant::now() + Leftovers::LINGER;
    while leftovers.are_there() && Instant::now() < until {
        sleep(LOOK);
    }
}
