//! `manciple-agent`: the program that goes into a pod. See the library `agent`.
//!
//! ```text
//! install <dir>   in an init container: puts itself, and what is given, where the next can use it
//! run             in the broker's container: runs the broker, and leaves a sealed report
//! ```
//!
//! It exits with 0 if the broker did its work, with 1 if not, and with 2 if there is no report.

mod broker;
mod deliver;
mod given;
mod install;
mod log;
mod output;
mod progress;
mod run;
mod settle;
mod signals;
mod watch;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: manciple-agent install <dir> | manciple-agent run";

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
        _ => {
            say(USAGE);
            ExitCode::from(2)
        }
    }
}

/// To the pod's log.
fn say(what: &str) {
    let _ = std::io::stderr().write_all(format!("manciple: {what}\n").as_bytes());
}
