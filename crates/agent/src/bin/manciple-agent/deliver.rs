//! Delivers the report: writes it where the controller finds it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;

use agent::{
    Content, Error, Gathering, Logged, MAX_LOGGED_BYTES, MESSAGE_FILE, Message, Order, Report,
    SHARED_MESSAGE_BYTES, Sealed,
};
use engine::ports::RunFailure;
use engine::record::Reason;
use osb::Failure;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::say;
use crate::settle::{Ending, printed, settle};

/// Delivers the report of a run. Its lines in the log come before the message that refers to them.
pub(crate) fn deliver(order: &Order, report: Report) -> ExitCode {
    let did_its_work = report.answer.failure().is_none();
    let left = seal(order, report).map_err(|error| error.to_string()).and_then(|sealed| {
        leave(&sealed, &order.message, SHARED_MESSAGE_BYTES, Ending::default())
            .map_err(|error| error.to_string())
    });
    match left {
        Ok(()) if did_its_work => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(why) => cannot_be_left(&why),
    }
}

/// Delivers what was printed, and the files as they are now, or why one is not there.
pub(crate) fn gathered(
    gathering: &Gathering,
    printed: Option<&Content>,
    ending: Ending,
) -> ExitCode {
    let gathered = crate::outputs::gather(gathering, printed);
    let left =
        gathered.seal(&gathering.key).map_err(|error| error.to_string()).and_then(|sealed| {
            leave(&sealed, &gathering.message, gathering.message_limit, ending)
                .map_err(|error| error.to_string())
        });
    left.map_or_else(|why| cannot_be_left(&why), |()| ExitCode::SUCCESS)
}

/// Writes a message, not sealed, that there is no report.
pub(crate) fn broken(why: &str) -> ExitCode {
    say(why);
    if let Err(error) = write(Path::new(MESSAGE_FILE), &Message::Broken(why.to_owned())) {
        say(&format!("{MESSAGE_FILE} cannot be written: {error}"));
    }
    ExitCode::from(2)
}

fn cannot_be_left(why: &str) -> ExitCode {
    say(&format!("the report cannot be left: {why}"));
    ExitCode::from(2)
}

fn seal(order: &Order, report: Report) -> Result<Sealed, Error> {
    let sealed = report.seal(&order.key)?;
    if sealed.len() <= MAX_LOGGED_BYTES {
        return Ok(sealed);
    }
    let what = format!("the output takes more than {MAX_LOGGED_BYTES} bytes, which no log holds");
    let failure = RunFailure::new(Reason::OutputTooLarge, Failure::failed(what));
    Report::failed(order, failure).seal(&order.key)
}

/// Writes a sealed report into the file of the termination message, of which `limit` bytes are taken.
fn leave(sealed: &Sealed, file: &Path, limit: usize, ending: Ending) -> io::Result<()> {
    let message = Message::within(sealed, limit);
    if let Message::Logged(_) = &message {
        log(sealed, ending)?;
    }
    settle(ending);
    write(file, &message)
}

/// Writes the lines of a report to the agent's stdout.
fn log(sealed: &Sealed, ending: Ending) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if ending.shared {
        let flags = fcntl_getfl(stdout.as_fd())?;
        // Some commands change what is theirs and ours, and writes would fail instead of waiting.
        fcntl_setfl(stdout.as_fd(), flags - OFlags::NONBLOCK)?;
        // The last line before ours may lack its end.
        stdout.write_all(b"\n")?;
    }
    for line in Logged::lines(sealed) {
        let line = format!("{line}\n");
        printed(line.len());
        stdout.write_all(line.as_bytes())?;
    }
    stdout.flush()
}

/// Writes a message into the existing file: the kubelet makes it, and reads no other.
fn write(path: &Path, message: &Message) -> io::Result<()> {
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut file = OpenOptions::new().write(true).truncate(true).open(path).map_err(failed)?;
    file.write_all(message.to_string().as_bytes()).map_err(failed)
}
