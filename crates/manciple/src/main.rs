//! `manciple`: the program with all its commands.

mod admin;
mod cli;
mod controller;
mod counts;
mod job;
mod limits;
mod log;
mod process;
mod random;
mod role;
mod serve;
mod template;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    limits::report_files_that_may_not_grow();
    cli::main()
}
