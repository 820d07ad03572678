//! The one command.

mod admin;
mod cli;
mod controller;
mod counts;
mod job;
mod serve;
mod template;

fn main() -> std::process::ExitCode {
    cli::main()
}
