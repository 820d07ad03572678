//! What QuarksJobs cost, beside what bare Jobs do in the same run.
//!
//! `cargo bench -p kubernetes --bench quarks -- [plane] [memory] [pods] [exits] [sidecar]`: before an API server of its own,
//! whose pods run nothing, and for `pods` and `exits` on a cluster (`KUBECONFIG`, or `cargo xtask cluster up`). The
//! controller is a process of its own: this program again, or the one that `CONTROLLER_BINARY` names.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic, reason = "a bench")]

#[allow(unused_imports, reason = "shared with the tests")]
#[path = "../../tests/support/mod.rs"]
mod support;

mod exits;
#[path = "../jobs/machine.rs"]
mod machine;
mod memory;
mod pods;
mod process;
mod sidecar;
mod started;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [command, kubeconfig, namespace, monitored] = arguments.as_slice()
        && command == process::COMMAND
    {
        return process::run(kubeconfig, namespace, monitored).await;
    }
    let all = ["plane", "memory", "pods", "exits", "sidecar"];
    let asked = |what: &str| {
        let named = |argument: &String| all.contains(&argument.as_str());
        !arguments.iter().any(named) || arguments.iter().any(|argument| argument == what)
    };
    if asked("plane") {
        started::bench().await;
    }
    if asked("memory") {
        memory::bench().await;
    }
    if asked("pods") {
        pods::bench().await;
    }
    if asked("exits") {
        exits::bench().await;
    }
    if asked("sidecar") {
        sidecar::bench();
    }
}
