//! What the agent takes that waits in a sidecar for a minute's job, from its start to its end: it unpacks itself, waits, is
//! told that the others have ended, and brings home what they have left. The program as pods have it, by itself.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::{GATHERING_VARIABLE, Gathering, KeyPair, Outputs};

use crate::process::load;

/// `SIDECAR_SECONDS` waits for another time.
const LASTS: u64 = 60;

pub(crate) fn bench() {
    let seconds = std::env::var("SIDECAR_SECONDS").ok().and_then(|text| text.parse().ok());
    let lasts = Duration::from_secs(seconds.unwrap_or(LASTS));
    let program = testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}"));
    let pod = tempfile::tempdir().unwrap();
    for folder in ["out", "told"] {
        std::fs::create_dir(pod.path().join(folder)).unwrap();
    }
    std::fs::write(pod.path().join("message"), "").unwrap();
    let outputs = Outputs {
        directory: pod.path().join("out"),
        files: vec!["o.json".to_owned()],
        stdout: None,
    };
    let outputs = BTreeMap::from([("c".to_owned(), outputs)]);
    let gathering = Gathering::new("bench-1", outputs, KeyPair::generate().public().clone());
    let gathering = Gathering { message: pod.path().join("message"), ..gathering };
    let mut agent = Command::new(&program);
    agent.args(["gather", "--until"]).arg(pod.path().join("told/ended"));
    agent.env("MANCIPLE_AGENT", pod.path().join("agent"));
    agent.env(GATHERING_VARIABLE, gathering.to_variable().unwrap());
    let mut agent = agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    println!("the agent in a sidecar, waiting for {} s; load {}", lasts.as_secs(), load());
    std::thread::sleep(lasts);
    let mut most = resident(&agent).unwrap();
    std::fs::write(pod.path().join("out/o.json"), r#"{"password": "of the bench"}"#).unwrap();
    std::fs::write(pod.path().join("told/ended"), "true").unwrap();
    let told = Instant::now();
    while state(&agent) != "Z" {
        assert!(told.elapsed() < Duration::from_secs(30), "it does not end");
        most = resident(&agent).unwrap_or(most);
        std::thread::sleep(Duration::from_millis(1));
    }
    println!(
        "  {:.3} s of CPU, {most:.1} MB resident at most; over after {:.0?}",
        cpu(&agent),
        told.elapsed()
    );
    let message = std::fs::metadata(pod.path().join("message")).unwrap();
    assert!(agent.wait().unwrap().success() && message.len() > 0, "it brings nothing home");
}

/// `Z`: it has ended, and nobody has waited for it yet.
fn state(agent: &Child) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", agent.id())).unwrap();
    let after = stat.rsplit(')').next().unwrap_or_default();
    after.split_whitespace().next().unwrap_or_default().to_owned()
}

/// From its start, in its one thread.
fn cpu(agent: &Child) -> f64 {
    let file = format!("/proc/{}/schedstat", agent.id());
    let nanoseconds = std::fs::read_to_string(file).unwrap();
    nanoseconds.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// At most; `None` of one that has ended.
fn resident(agent: &Child) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    let most = status.lines().find(|line| line.starts_with("VmHWM"))?;
    Some(most.split_whitespace().nth(1)?.parse::<f64>().ok()? * 1024.0 / 1e6)
}
