//! The agent in a container of its own, beside those whose files it gathers: it waits until they have ended, and
//! delivers their files.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent::GATHERING_VARIABLE;

use crate::settle::Ending;
use crate::signals::{Caught, wait};
use crate::told::told;
use crate::{deliver, hide_memory, say};

/// The first pause between looks for the file that tells of the end. It is a link that the kubelet replaces, so it is
/// looked for by its path.
const LOOK: Duration = Duration::from_millis(100);
/// The part of the time waited so far that is the later pause.
const PART: u32 = 100;
/// The longest pause. Each look wakes a processor that may have nothing else to do.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Waits for a signal, which the kubelet sends when the other containers have ended, or for a file that is
/// not empty; then delivers the files.
///
/// A kubelet starts a native sidecar again when it has ended. The file `once` is made after the delivery if the file
/// `until` said that the containers have ended: if `once` is there at the start, nothing is delivered again, and the
/// agent waits to be ended. After a signal it is not made: a pod whose node restarts runs a second time, and what it
/// leaves then counts.
pub(crate) fn gather(once: Option<&Path>, until: Option<&Path>) -> ExitCode {
    hide_memory();
    let end = Caught::end();
    if once.is_some_and(Path::exists) {
        return wait_to_be_ended(end);
    }
    let gathering = told(GATHERING_VARIABLE, "gathering").map_err(|why| deliver::broken(&why));
    let ending = end.and_then(|end| wait_for_the_end(&end, until));
    match (gathering, ending) {
        (Err(broken), _) => broken,
        (Ok(gathering), Ok(ending)) => {
            let was_told = !ending.hurried;
            let left = deliver::gathered(&gathering, None, ending);
            // Without it, it is left again: that is the same.
            if let Some(once) = once.filter(|_| was_told && left == ExitCode::SUCCESS)
                && let Err(error) = fs::write(once, "")
            {
                say(&format!("that all is left cannot be noted: {error}"));
            }
            left
        }
        (Ok(_), Err(error)) => deliver::broken(&format!("the end cannot be waited for: {error}")),
    }
}

fn wait_to_be_ended(end: io::Result<Caught>) -> ExitCode {
    match end.and_then(|end| wait_for_the_end(&end, None)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("the end cannot be waited for: {error}"));
            ExitCode::from(2)
        }
    }
}

fn wait_for_the_end(end: &Caught, until: Option<&Path>) -> io::Result<Ending> {
    let began = Instant::now();
    loop {
        if until.is_some_and(is_written) {
            return Ok(Ending::default());
        }
        let look = until.map(|_| (began.elapsed() / PART).clamp(LOOK, LAST_LOOK));
        if wait([end.as_fd()], look)? {
            return Ok(Ending { hurried: true, ..Ending::default() });
        }
    }
}

fn is_written(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|file| file.is_file() && file.len() > 0)
}
