//! Leaves the report where the controller finds it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use agent::{Error, Logged, MAX_LOGGED_BYTES, Message, Order, Report, Sealed};
use engine::ports::RunFailure;
use engine::record::Reason;
use osb::Failure;

use crate::say;
use crate::settle::{printed, settle};

/// Where Kubernetes has it, for those who cannot read where it is.
const USUAL_MESSAGE: &str = "/dev/termination-log";

/// Leaves a report. Its lines in the log come before the message that speaks of them.
pub(crate) fn deliver(order: &Order, report: Report) -> ExitCode {
    let did_its_work = report.answer.failure().is_none();
    let left = seal(order, report)
        .map_err(|error| error.to_string())
        .and_then(|sealed| leave(order, &sealed).map_err(|error| error.to_string()));
    match left {
        Ok(()) if did_its_work => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(why) => {
            say(&format!("the report cannot be left: {why}"));
            ExitCode::from(2)
        }
    }
}

/// Says that there is no report, in the open.
pub(crate) fn broken(why: &str) -> ExitCode {
    say(why);
    if let Err(error) = write(Path::new(USUAL_MESSAGE), &Message::Broken(why.to_owned())) {
        say(&format!("{USUAL_MESSAGE} cannot be written: {error}"));
    }
    ExitCode::from(2)
}

fn seal(order: &Order, report: Report) -> Result<Sealed, Error> {
    let sealed = report.seal(&order.key)?;
    if sealed.len() <= MAX_LOGGED_BYTES {
        return Ok(sealed);
    }
    let what = format!("the output takes more than {MAX_LOGGED_BYTES} bytes, which no log holds");
    let failure = RunFailure { reason: Reason::OutputTooLarge, failure: Failure::failed(what) };
    Report::failed(order, failure).seal(&order.key)
}

fn leave(order: &Order, sealed: &Sealed) -> io::Result<()> {
    let message = Message::of(sealed);
    if let Message::Logged(_) = &message {
        let mut stdout = io::stdout().lock();
        for line in Logged::lines(sealed) {
            let line = format!("{line}\n");
            printed(line.len());
            stdout.write_all(line.as_bytes())?;
        }
        stdout.flush()?;
    }
    settle();
    write(&order.message, &message)
}

/// Into a file that is there: the kubelet makes it, and reads no other.
fn write(path: &Path, message: &Message) -> io::Result<()> {
    let failed =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let mut file = OpenOptions::new().write(true).truncate(true).open(path).map_err(failed)?;
    file.write_all(message.to_string().as_bytes()).map_err(failed)
}
