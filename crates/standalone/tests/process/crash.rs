//! Whoever is killed, whenever: each run takes effect once, and ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use engine::ports::{RunState, Runner, StartError};
use engine::record::Reason;
use engine::testing::runner_contract::{Behaviour, run, until, until_finished};

use standalone::process::ProcessRunner;

use crate::harness::{
    self, Fixture, finish, is_alive, kill, kill_supervisor, pids_with, program, supervisor_of,
    until_lost, wait_for,
};

/// A server in a process of its own, which starts runs of [`Behaviour::Slow`].
struct Server(Child);

impl Server {
    fn start(fixture: &Fixture, names: &[String]) -> Self {
        let server = Command::new(program())
            .arg("serve")
            .arg(fixture.path(""))
            .args(names)
            .stdin(Stdio::null())
            .spawn();
        Self(server.unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn a_run_goes_on_without_its_server_and_is_adopted() {
    let fixture = Fixture::new();
    let name = "adopted-1".to_owned();
    let mut server = Server::start(&fixture, std::slice::from_ref(&name));
    wait_for("the run", || (fixture.effects_of(&name) > 0).then_some(())).await;
    server.kill();
    let (runner, run) = (fixture.runner(), run(Behaviour::Slow, &name));
    assert!(matches!(runner.observe(&run.name).await.unwrap(), RunState::Running { .. }));
    until_finished(&runner, &run.name).await.unwrap();
    assert_eq!(fixture.effects_of(&name), 1);
}

#[tokio::test]
async fn a_run_is_collected_where_its_directory_was_moved_to() {
    let wait = "until [ -e \"$LEDGER/go\" ]; do sleep 0.05; done; echo '{}'";
    let fixture = Fixture::with_broker(wait);
    let run = harness::run("moved-1");
    fixture.runner().start(&run).await.unwrap();
    fs::rename(fixture.path("runs"), fixture.path("moved")).unwrap();
    fs::write(fixture.path("ledger/go"), "").unwrap();
    let runner = fixture.runner_with(|settings| settings.runs = fixture.path("moved"));
    until_finished(&runner, &run.name).await.unwrap();
}

#[tokio::test]
async fn a_time_limit_holds_without_a_server() {
    let fixture = Fixture::with_broker("echo 1 >>\"$LEDGER/limited-1\"; sleep 600");
    let runner = fixture.runner();
    let mut run = run(Behaviour::Slow, "limited-1");
    run.timeout = Duration::from_secs(1);
    runner.start(&run).await.unwrap();
    drop(runner);
    wait_for("the result", || fixture.run_file(&run.name, "result").exists().then_some(())).await;
    let failure = until_finished(&fixture.runner(), &run.name).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Timeout);
}

/// The server is killed at all sorts of instants while it starts runs; the next one does as the engine
/// does: it starts what is absent, and collects the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_at_any_instant_starts_each_run_once() {
    let fixture = Fixture::new();
    fixture.set_broker(&engine::testing::runner_contract::BROKER.replace("sleep 2", "sleep 0.05"));
    let mut halfway = 0;
    for round in 0..24_u64 {
        let names: Vec<String> = (0..4).map(|n| format!("round-{round}-{n}")).collect();
        let mut server = Server::start(&fixture, &names);
        match round {
            // One has begun by then, however slow the disk is.
            20.. => {
                let begun = || (fixture.effects_of(&names[0]) > 0).then_some(());
                wait_for("the first run", begun).await;
            }
            _ => tokio::time::sleep(Duration::from_micros(round * 4000)).await,
        }
        server.kill();
        let runner = fixture.runner();
        for name in &names {
            let run = run(Behaviour::Slow, name);
            if runner.observe(&run.name).await.unwrap() == RunState::Absent {
                // Nobody starts it behind our back.
                tokio::time::sleep(Duration::from_millis(round % 2 * 40)).await;
                assert_eq!(fixture.effects_of(name), 0, "{name} is absent and took effect");
                runner.start(&run).await.unwrap();
            } else {
                halfway += 1;
            }
            until_finished(&runner, &run.name).await.unwrap();
            assert_eq!(fixture.effects_of(name), 1, "{name}");
            runner.release(&run.name).await.unwrap();
        }
    }
    assert!(halfway > 0, "no server lived long enough to start anything");
}

/// A runner whose supervisors are started by a shell script: `$0` is the directory.
fn runner_over(fixture: &Fixture, script: &str) -> ProcessRunner {
    let script = script.replace("SUPERVISE", &format!("{} supervise", program().display()));
    fixture.runner_with(|settings| {
        settings.supervisor = ["sh", "-c", &script].map(Into::into).to_vec();
    })
}

#[tokio::test]
async fn a_supervisor_whose_server_is_gone_before_it_says_go_starts_nothing() {
    let fixture = Fixture::new();
    // Of what the server says, the supervisor hears the order only.
    let deaf = runner_over(&fixture, r#"head -n 1 | SUPERVISE "$0""#);
    let run = run(Behaviour::Succeeds, "unsaid-1");
    let refusal = deaf.start(&run).await.unwrap_err();
    assert!(matches!(refusal, StartError::Transient(_)), "{refusal:?}");
    assert_eq!(deaf.observe(&run.name).await.unwrap(), RunState::Absent);
    assert_eq!(fixture.effects_of("unsaid-1"), 0);
    fixture.runner().start(&run).await.unwrap();
    until_finished(&deaf, &run.name).await.unwrap();
    assert_eq!(fixture.effects_of("unsaid-1"), 1);
}

#[tokio::test]
async fn half_an_order_starts_nothing() {
    let fixture = Fixture::new();
    let deaf = runner_over(&fixture, r#"head -c 200 | SUPERVISE "$0""#);
    let run = run(Behaviour::Succeeds, "half-1");
    assert!(deaf.start(&run).await.is_err());
    assert_eq!(deaf.observe(&run.name).await.unwrap(), RunState::Absent);
    assert_eq!(fixture.effects_of("half-1"), 0);
}

/// Whether there is a run is not said before its supervisor has begun or given up.
#[tokio::test]
async fn a_supervisor_that_may_yet_begin_is_waited_for() {
    let fixture = Fixture::new();
    let slow = runner_over(&fixture, r#"(head -n 1; sleep 1) | SUPERVISE "$0""#);
    let run = run(Behaviour::Succeeds, "undecided-1");
    let starting = tokio::spawn({
        let (slow, run) = (slow.clone(), run.clone());
        async move { slow.start(&run).await }
    });
    let locked = || supervisor_of(&fixture.path("runs/undecided-1"));
    wait_for("the supervisor", locked).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let runner = fixture.runner();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    runner.start(&run).await.unwrap();
    starting.await.unwrap().unwrap_err();
    until_finished(&runner, &run.name).await.unwrap();
    assert_eq!(fixture.effects_of("undecided-1"), 1);
}

/// It was ordered when there was no run; another server has since started it, and released it.
#[tokio::test]
async fn a_supervisor_that_comes_late_finds_the_run_taken() {
    let fixture = Fixture::new();
    let runner = fixture.runner();
    for released in [false, true] {
        let name = format!("late-{released}");
        let run = run(Behaviour::Succeeds, &name);
        let late = runner_over(&fixture, r#"sleep 1; exec SUPERVISE "$0""#);
        let starting = tokio::spawn({
            let run = run.clone();
            async move { late.start(&run).await }
        });
        wait_for("the order", || fixture.path("runs").join(&name).exists().then_some(())).await;
        runner.start(&run).await.unwrap();
        until_finished(&runner, &run.name).await.unwrap();
        if released {
            runner.release(&run.name).await.unwrap();
        }
        starting.await.unwrap().unwrap();
        let over = || pids_with(&fixture.path("runs")).is_empty().then_some(());
        wait_for("the end of all supervisors", over).await;
        assert_eq!(fixture.effects_of(&name), 1);
    }
}

/// Both find nothing and start it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_that_start_the_same_runs_start_each_once() {
    let fixture = Fixture::new();
    fixture.set_broker(&engine::testing::runner_contract::BROKER.replace("sleep 2", "sleep 0.05"));
    let names: Vec<String> = (0..20).map(|n| format!("race-{n}")).collect();
    let servers: Vec<Server> = (0..3).map(|_| Server::start(&fixture, &names)).collect();
    let runner = fixture.runner();
    for name in &names {
        let run = run(Behaviour::Slow, name);
        runner.start(&run).await.unwrap();
        until_finished(&runner, &run.name).await.unwrap();
    }
    for mut server in servers {
        server.kill();
    }
    for name in &names {
        assert_eq!(fixture.effects_of(name), 1, "{name}");
    }
}

#[tokio::test]
async fn a_broker_whose_supervisor_was_killed_is_ended_before_the_run_is_lost() {
    ended_before_it_is_lost("orphan-1", |_| {}).await;
}

#[tokio::test]
async fn so_is_one_whose_supervisor_was_killed_before_it_noted_it_or_while_it_did() {
    ended_before_it_is_lost("orphan-2", |note| fs::remove_file(note).unwrap()).await;
    ended_before_it_is_lost("orphan-3", |note| fs::write(note, "{\"sess").unwrap()).await;
}

/// `spoil` is given the note that the supervisor had made of its broker.
async fn ended_before_it_is_lost(name: &str, spoil: impl FnOnce(PathBuf)) {
    let fixture = Fixture::with_broker(
        r#"trap '' TERM HUP; echo $$ >"$LEDGER/pid"; sleep 600 & echo $! >"$LEDGER/child"
           while :; do sleep 0.1; done"#,
    );
    let (runner, run) = (fixture.runner(), run(Behaviour::Slow, name));
    runner.start(&run).await.unwrap();
    let pid = |name: &str| {
        fs::read_to_string(fixture.path("ledger").join(name)).ok()?.trim().parse().ok()
    };
    let broker: i32 = wait_for("the broker", || pid("pid")).await;
    let child: i32 = wait_for("its child", || pid("child")).await;
    kill_supervisor(&fixture.path("runs").join(name));
    spoil(fixture.run_file(&run.name, "broker"));
    until_lost(&runner, &run).await;
    assert!(!is_alive(broker) && !is_alive(child), "they went on behind a lost run");
}

#[tokio::test]
async fn a_supervisor_killed_at_any_instant_leaves_a_run_that_ends() {
    let fixture = Fixture::new();
    let broker = engine::testing::runner_contract::BROKER.replace("sleep 2", "sleep 0.03");
    fixture.set_broker(&broker);
    let runner = fixture.runner();
    let (mut lost, mut finished) = (0, 0);
    for round in 0..30_u64 {
        let name = format!("killed-{round}");
        let run = run(Behaviour::Slow, &name);
        runner.start(&run).await.unwrap();
        let directory = fixture.path("runs").join(&name);
        let supervisor = supervisor_of(&directory);
        match round {
            // It is over by then, however slow the disk is.
            25.. => {
                wait_for("the result", || directory.join("result").exists().then_some(())).await;
            }
            _ => tokio::time::sleep(Duration::from_millis(round * 3)).await,
        }
        if let Some(supervisor) = supervisor.filter(|pid| is_alive(*pid)) {
            kill(supervisor);
        }
        let over = |state: &RunState| !matches!(state, RunState::Running { .. });
        match until(&runner, &run.name, over).await {
            RunState::Lost { .. } => lost += 1,
            RunState::Finished(result) => {
                result.unwrap();
                finished += 1;
            }
            state => panic!("{state:?}"),
        }
        assert!(fixture.effects_of(&name) <= 1);
        runner.release(&run.name).await.unwrap();
        assert!(!fixture.path("exchange").join(&name).exists());
    }
    assert!(lost > 0 && finished > 0, "{lost} lost, {finished} finished");
}

#[tokio::test]
async fn a_result_that_the_disk_does_not_take_is_written_later() {
    let fixture = Fixture::new();
    let obstacle = fixture.path("runs/full-1/result.new");
    fixture.set_broker(&format!("mkdir {}; echo '{{}}'", obstacle.display()));
    let (runner, run) = (fixture.runner(), run(Behaviour::Succeeds, "full-1"));
    runner.start(&run).await.unwrap();
    wait_for("the log", || fixture.run_file(&run.name, "exit.json").exists().then_some(())).await;
    let state = runner.observe(&run.name).await.unwrap();
    assert!(matches!(state, RunState::Running { .. }), "{state:?}");
    fs::remove_dir(obstacle).unwrap();
    until_finished(&runner, &run.name).await.unwrap();
}

#[tokio::test]
async fn a_supervisor_whose_result_the_disk_does_not_take_ends_with_its_directory() {
    let fixture = Fixture::new();
    let directory = fixture.path("runs/full-2");
    let obstacle = directory.join("result.new");
    fixture.set_broker(&format!("mkdir {}; echo '{{}}'", obstacle.display()));
    let (runner, run) = (fixture.runner(), run(Behaviour::Succeeds, "full-2"));
    runner.start(&run).await.unwrap();
    wait_for("the log", || fixture.run_file(&run.name, "exit.json").exists().then_some(())).await;
    let supervisor = supervisor_of(&directory).unwrap();
    // It may just be tried: what is written meanwhile goes with the next try of ours.
    wait_for("its removal", || fs::remove_dir_all(&directory).ok()).await;
    wait_for("its end", || (!is_alive(supervisor)).then_some(())).await;
    assert!(!fixture.path("exchange/full-2").exists(), "what is secret is left");
}

#[tokio::test]
async fn a_supervisor_whose_directory_is_gone_ends() {
    let fixture = Fixture::new();
    let directory = fixture.path("runs/gone-1");
    // What takes the directory away is the broker: nothing can be written after it.
    fixture.set_broker(&format!("sleep 0.3; rm -rf {}", directory.display()));
    let (runner, run) = (fixture.runner(), run(Behaviour::Succeeds, "gone-1"));
    runner.start(&run).await.unwrap();
    let supervisor = supervisor_of(&directory).unwrap();
    wait_for("its end", || (!is_alive(supervisor)).then_some(())).await;
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
}

#[tokio::test]
async fn a_run_that_was_cancelled_before_it_began_does_not_begin() {
    let fixture = Fixture::new();
    let (runner, run) = (fixture.runner(), run(Behaviour::Slow, "cancelled-1"));
    fs::create_dir(fixture.path("runs/cancelled-1")).unwrap();
    runner.cancel(&run.name).await.unwrap();
    runner.start(&run).await.unwrap();
    let failure = until_finished(&runner, &run.name).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Halted);
    assert_eq!(fixture.effects_of("cancelled-1"), 0);
}

#[tokio::test]
async fn a_directory_without_a_run_is_no_run() {
    let fixture = Fixture::new();
    let (runner, run) = (fixture.runner(), run(Behaviour::Succeeds, "prepared-1"));
    fs::create_dir(fixture.path("runs/prepared-1")).unwrap();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    assert_eq!(runner.unreleased().await.unwrap(), []);
    runner.start(&run).await.unwrap();
    until_finished(&runner, &run.name).await.unwrap();
    assert_eq!(fixture.effects_of("prepared-1"), 1);
}

#[tokio::test]
async fn nothing_is_left_in_memory_of_a_server_that_ended() {
    let fixture = Fixture::with_broker(
        r#"pwd >"$LEDGER/directory"; until [ -e "$LEDGER/go" ]; do sleep 0.05; done; echo '{}'"#,
    );
    let open = || fixture.runner_with(|settings| settings.exchange = None);
    let works_in = async || {
        let ledger = fixture.path("ledger/directory");
        let read = || fs::read_to_string(&ledger).ok().filter(|path| path.ends_with('\n'));
        let path = std::path::PathBuf::from(wait_for("the broker", read).await.trim_end());
        fs::remove_file(ledger).unwrap();
        path.ancestors().nth(2).unwrap().to_owned()
    };
    let (runner, bystander) = (open(), open());
    let waits = harness::run("memory-1");
    runner.start(&waits).await.unwrap();
    let memory = works_in().await;
    if !memory.starts_with("/dev/shm") {
        testkit::skipped("/dev/shm cannot be used");
        return;
    }
    // Its supervisor's end is waited for by a task, which has a share in the runner.
    drop(runner);
    fs::write(fixture.path("ledger/go"), "").unwrap();
    finish(&bystander, &waits).await.unwrap();
    bystander.release(&waits.name).await.unwrap();
    wait_for("its end", || (!memory.exists()).then_some(())).await;

    // One that was open before is not harmed: the next run makes it anew.
    let again = harness::run("memory-2");
    finish(&bystander, &again).await.unwrap();
    assert_eq!(works_in().await, memory);
    bystander.release(&again.name).await.unwrap();
    drop(bystander);
    wait_for("its end", || (!memory.exists()).then_some(())).await;
}
