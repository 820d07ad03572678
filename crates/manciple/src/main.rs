//! The one command.

mod admin;
mod cli;
mod serve;

fn main() -> std::process::ExitCode {
    cli::main()
}
