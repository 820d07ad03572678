//! The two programs that a process runner needs, as small as they can be: a supervisor, and a server
//! that starts runs. The tests use both, and kill the second.
//!
//! ```text
//! process_runner supervise <run directory>
//! process_runner serve <directory> <run name>...
//! ```

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use engine::ports::Runner;
use engine::testing::runner_contract::{Behaviour, run};
use standalone::process::{ProcessRunner, ProcessSettings, RunnerKey, supervisor};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["supervise", directory] => supervisor::main(Path::new(directory)),
        ["serve", directory, names @ ..] => serve(Path::new(directory), names),
        _ => ExitCode::FAILURE,
    }
}

/// Starts the runs one after the other and waits to be killed.
#[tokio::main]
async fn serve(directory: &Path, names: &[&str]) -> ExitCode {
    let Ok(program) = std::env::current_exe() else { return ExitCode::FAILURE };
    let supervisor = vec![program.into(), "supervise".into()];
    let key = RunnerKey::new([7; 32]);
    let settings = ProcessSettings {
        config_dir: Some(directory.join("config")),
        exchange: Some(directory.join("exchange")),
        grace: Duration::from_secs(1),
        ..ProcessSettings::new(directory.join("broker"), directory.join("runs"), key, supervisor)
    };
    let Ok(runner) = ProcessRunner::open(settings) else { return ExitCode::FAILURE };
    for name in names {
        if runner.start(&run(Behaviour::Slow, name)).await.is_err() {
            return ExitCode::FAILURE;
        }
    }
    std::future::pending().await
}
