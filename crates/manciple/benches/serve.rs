//! The server as a platform meets it: the real process, over loopback, with credentials, validation
//! and the durable store on.
//!
//! ```text
//! cargo bench -p manciple --bench serve                 all of it, about two minutes
//! cargo bench -p manciple --bench serve -- requests     one part: requests, start, memory, provisions
//! SERVE_SECONDS=10 SERVE_CONNECTIONS=64 SERVE_BINARY=$PWD/target/dist/manciple cargo bench …
//! ```
//!
//! `SERVE_BINARY` is measured but where a disk is slow: there it is the program that was built with this.
//!
//! CPU is user and system time of the server's process alone, from `/proc`, by request: it holds on a
//! machine that others use as well, where rates do not. Beside it stands what a bare handler costs,
//! which answers the same bytes and does nothing else, in a process of its own under the same load.
#![expect(clippy::print_stdout, clippy::panic, clippy::unwrap_used, reason = "a benchmark")]

#[path = "serve/load.rs"]
mod load;
#[path = "serve/parts.rs"]
mod parts;
#[path = "serve/process.rs"]
mod process;
#[path = "../tests/support/slow.rs"]
mod slow;

use std::time::Duration;

/// As the server has it: what the store does alone, and a bare handler, are measured with the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "bare") {
        return process::serve_bare(&arguments[1]);
    }
    if arguments.first().is_some_and(|first| first == "commits") {
        return process::print_commit_rate(&arguments[1..]);
    }
    let number =
        |name: &str, default| std::env::var(name).map_or(default, |n| n.parse::<u64>().unwrap());
    let plan = parts::Plan {
        slice: Duration::from_secs(number("SERVE_SECONDS", 4)),
        connections: usize::try_from(number("SERVE_CONNECTIONS", 64)).unwrap(),
    };
    let wanted = |name: &str| {
        let mut named = arguments.iter().filter(|argument| !argument.starts_with('-')).peekable();
        named.peek().is_none() || named.any(|argument| argument == name)
    };
    if wanted("requests") {
        parts::requests(&plan);
    }
    if wanted("start") {
        parts::start();
    }
    if wanted("memory") {
        parts::memory(&plan);
    }
    if wanted("provisions") {
        parts::provisions(&plan);
    }
}

/// One figure, with what it is.
fn row(name: &str, figure: f64, unit: &str) {
    println!("{name:<76}{figure:>12.1} {unit}");
}
