//! The one command.

mod admin;
mod cli;
mod controller;
mod serve;

fn main() -> std::process::ExitCode {
    cli::main()
}
