//! What the agent takes that waits in a sidecar for a minute's job: the program as it is given away, by itself.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agent::{GATHERING_VARIABLE, Gathering, KeyPair, Outputs};

use crate::process::load;

/// `SIDECAR_SECONDS` waits for another time.
const LASTS: u64 = 60;

pub(crate) fn bench() {
    let seconds = std::env::var("SIDECAR_SECONDS").ok().and_then(|text| text.parse().ok());
    let lasts = Duration::from_secs(seconds.unwrap_or(LASTS));
    let packed = testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}"));
    let program = packed.with_file_name("manciple-agent");
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
    agent.env(GATHERING_VARIABLE, gathering.to_variable().unwrap());
    let mut agent = agent.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    println!("the agent in a sidecar, waiting for {} s; load {}", lasts.as_secs(), load());
    std::thread::sleep(lasts);
    assert!(agent.try_wait().unwrap().is_none(), "it has ended");
    println!("  {:.3} s of CPU, {:.1} MB resident at most", cpu(&agent), resident(&agent));
    agent.kill().unwrap();
    agent.wait().unwrap();
}

/// From its start, unpacking left out: the program is not packed here.
fn cpu(agent: &Child) -> f64 {
    let file = format!("/proc/{}/schedstat", agent.id());
    let nanoseconds = std::fs::read_to_string(file).unwrap();
    nanoseconds.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn resident(agent: &Child) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
    let most = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    most.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
}
