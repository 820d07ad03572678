//! What the README has a newcomer paste does what it says.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

const README: &str = include_str!("../../../README.md");

/// The first commands of a section.
fn commands(section: &str) -> &str {
    let section = README.split_once(&format!("\n## {section}\n")).unwrap().1;
    let commands = section.split_once("```sh\n").unwrap().1;
    commands.split_once("```\n").unwrap().0
}

#[test]
fn a_broker_is_written_served_ordered_from_and_ended_as_the_readme_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    // The program is built already, and elsewhere.
    let building = ["cargo build ", "export PATH="];
    let lines = commands("Your own broker").lines();
    let (built, pasted): (Vec<_>, Vec<_>) =
        lines.partition(|line| building.iter().any(|start| line.starts_with(start)));
    assert_eq!(built.len(), building.len(), "{built:?}");
    // Whatever fails, the server ends.
    let script =
        format!("trap 'kill $! 2>/dev/null || :; wait' EXIT\n{}\nwait\n", pasted.join("\n"));
    let programs = Path::new(env!("CARGO_BIN_EXE_manciple")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let run = Command::new("bash")
        .args(["-e", "-c", &script])
        .env_clear()
        .env("PATH", path)
        .env("TMPDIR", folder.path())
        .env("MANCIPLE_LISTEN", &address)
        .env("MANCIPLE_URL", format!("http://{address}"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    for part in [
        "greeting  polite",
        "provision succeeded",
        "greeting    Hello",
        "unbind succeeded",
        "deprovision succeeded",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
