//! As the first process of a container: everything there is, is the agent's to reap and to end.

use std::process::Command;

use engine::record::Reason;
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Pod, is_alive};

/// Runs the agent as the first process of a namespace of its own; `None` where that is not allowed.
fn command(pod: &Pod, order: &agent::Order) -> Option<Command> {
    const UNSHARE: [&str; 5] = ["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    let allowed = Command::new("unshare").args(UNSHARE).arg("true").output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        testkit::skipped("no namespaces to be had");
        return None;
    }
    let agent = pod.command(order);
    let mut command = Command::new("unshare");
    command.args(UNSHARE).arg(agent.get_program()).args(agent.get_args());
    command.envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let log = std::fs::OpenOptions::new().append(true).open(pod.path("log")).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    Some(command)
}

#[test]
fn daemons_and_orphans_are_ended_too() {
    let pod = Pod::new(
        r#"setsid sh -c 'echo $$ >"$PID"; trap "" TERM; while :; do sleep 1; done' &
           while [ ! -s "$PID" ]; do sleep 0.02; done
           i=0; while [ $i -lt 50 ]; do (true &); i=$((i+1)); done; sleep 0.1
           [ "$(grep -l 'State:.Z' /proc/[0-9]*/status | wc -l)" = 0 ] || exit 9
           [ $PPID = 1 ] || exit 8
           echo '{}'"#,
    );
    pod.key_file("config", "pid", pod.path("pid").to_str().unwrap());
    let order = pod.order();
    let Some(mut command) = command(&pod, &order) else { return };
    let ended = pod.ended(command.spawn().unwrap(), &order);
    ended.output();
    let mine = |pid: &str| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ).contains(pod.path("pid").to_str().unwrap())
    };
    let left = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        (name.parse::<i32>().is_ok() && mine(&name) && is_alive(&name)).then_some(name)
    });
    assert_eq!(left.collect::<Vec<_>>(), [] as [&str; 0]);
}

#[test]
fn what_an_image_is_stopped_by_reaches_the_first_process() {
    for stop in [Signal::TERM, Signal::QUIT, Signal::USR1, Signal::WINCH] {
        let pod = Pod::new(r#"echo $$ >"$PID"; sleep 60"#);
        pod.key_file("config", "pid", pod.path("pid").to_str().unwrap());
        let order = pod.order();
        let Some(mut command) = command(&pod, &order) else { return };
        let unshare = command.spawn().unwrap();
        pod.wait_for("pid");
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let agent = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(agent).unwrap(), stop).unwrap();
        pod.ended(unshare, &order).failed(Reason::Halted);
    }
}
