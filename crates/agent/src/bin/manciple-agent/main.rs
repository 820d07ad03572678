//! `manciple-agent`: the program that goes into a pod. See the library `agent`.
//!
//! ```text
//! install <dir>                          in an init container: puts itself, and what is given, where the next can use it
//! run                                    in the broker's container: runs the broker, and leaves a sealed report
//! wrap [--] <command> …                  in any container: runs its command, and leaves its files, sealed
//! gather                                 beside others, until a signal: leaves their files, sealed
//! gather [--once <left>] --until <file>  the same, or until there is something in the file, and then makes the other when
//!                                        all is left; begun again with that there it leaves nothing more
//! ```
//!
//! It exits with 0 if the broker did its work, with 1 if not, and with 2 if there is no report; `wrap` as its
//! command did; `gather` with 0, or with 2 if there is no report.

mod beside;
mod broker;
mod deliver;
mod gather;
mod given;
mod install;
mod log;
mod output;
mod outputs;
mod printed;
mod progress;
mod run;
mod settle;
mod signals;
mod told;
mod watch;
mod wrap;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

const USAGE: &str = "usage: manciple-agent install <dir> | manciple-agent run | \
                     manciple-agent wrap [--] <command> [arguments] | \
                     manciple-agent gather [[--once <file>] --until <file>]";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [command, directory] if command == "install" => {
            match install::install(Path::new(directory)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    say(&error);
                    ExitCode::from(2)
                }
            }
        }
        [command] if command == "run" => run::run(),
        [command, wrapped @ ..] if command == "wrap" => wrap(wrapped),
        [command, how @ ..] if command == "gather" => match how {
            [] => gather::gather(None, None),
            [until, file] if until == "--until" => gather::gather(None, Some(Path::new(file))),
            [once, left, until, file] if once == "--once" && until == "--until" => {
                gather::gather(Some(Path::new(left)), Some(Path::new(file)))
            }
            _ => usage(),
        },
        _ => usage(),
    }
}

fn wrap(wrapped: &[OsString]) -> ExitCode {
    let wrapped = match wrapped {
        [dashes, command @ ..] if dashes == "--" => command,
        command => command,
    };
    let Some((program, arguments)) = wrapped.split_first() else { return usage() };
    wrap::wrap(program, arguments)
}

fn usage() -> ExitCode {
    say(USAGE);
    ExitCode::from(2)
}

/// Hides this process's memory from others of the same user: what is given and made is in it.
fn hide_memory() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Writes a line to the pod's log.
fn say(what: &str) {
    let _ = std::io::stderr().write_all(format!("manciple: {what}\n").as_bytes());
}
