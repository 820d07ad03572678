//! What runs cost: processes, memory, and nothing left of either.

use std::fs;
use std::time::{Duration, Instant};

use engine::ports::Runner;
use engine::testing::runner_contract::{Behaviour, run, until_finished};

use crate::harness::{Fixture, all_pids, pids_with, supervisor_of, wait_for};

fn zombie_children() -> Vec<String> {
    let own = std::process::id().to_string();
    let stats = all_pids().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
    stats
        .filter(|stat| {
            let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
            fields[0] == "Z" && fields[1] == own
        })
        .collect()
}

fn memory_of(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_runs_at_once_end_and_leave_no_process() {
    let fixture = Fixture::new();
    let runner = fixture.runner();
    let behaviours = [Behaviour::Succeeds, Behaviour::Fails, Behaviour::Junk, Behaviour::Slow];
    let runs: Vec<_> = behaviours
        .into_iter()
        .cycle()
        .take(50)
        .enumerate()
        .map(|(n, behaviour)| (run(behaviour, &format!("many-{n}")), behaviour))
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (run, behaviour) in runs {
        let runner = runner.clone();
        tasks.spawn(async move {
            runner.start(&run).await.unwrap();
            let result = until_finished(&runner, &run.name).await;
            let good = matches!(behaviour, Behaviour::Succeeds | Behaviour::Slow);
            assert_eq!(result.is_ok(), good, "{result:?}");
            runner.release(&run.name).await.unwrap();
            run.name
        });
    }
    for name in tasks.join_all().await {
        assert_eq!(fixture.effects_of(name.as_str()), 1);
    }
    let left = || pids_with(&fixture.path("")).is_empty() && zombie_children().is_empty();
    wait_for("the end of all processes", || left().then_some(())).await;
    assert_eq!(fs::read_dir(fixture.path("exchange")).unwrap().count(), 0);
}

#[tokio::test]
async fn no_supervisor_becomes_a_zombie() {
    let fixture = Fixture::new();
    let runner = fixture.runner();
    for n in 0..10 {
        let run = run(Behaviour::Succeeds, &format!("reaped-{n}"));
        runner.start(&run).await.unwrap();
        runner.start(&run).await.unwrap();
        until_finished(&runner, &run.name).await.unwrap();
    }
    fs::remove_file(fixture.path("broker")).unwrap();
    runner.start(&run(Behaviour::Succeeds, "refused-1")).await.unwrap_err();
    let left = || zombie_children().is_empty();
    wait_for("the supervisors to be reaped", || left().then_some(())).await;
}

#[tokio::test]
async fn children_of_a_broker_become_no_zombies_either() {
    let fixture = Fixture::with_broker(
        r#"for n in 1 2 3 4 5 6 7 8; do sh -c 'sleep 0.05 & :'; done
           sh -c 'sleep 600 & echo $! >"$LEDGER/orphan"'
           sleep 0.5; echo up >"$LEDGER/up"; while [ ! -e "$LEDGER/on" ]; do sleep 0.05; done
           echo '{}'"#,
    );
    let (runner, run) = (fixture.runner(), run(Behaviour::Succeeds, "orphans-1"));
    runner.start(&run).await.unwrap();
    wait_for("the broker", || fixture.path("ledger/up").exists().then_some(())).await;
    let supervisor = supervisor_of(&fixture.path("runs/orphans-1")).unwrap();
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let orphan = fs::read_to_string(fixture.path("ledger/orphan")).unwrap();
    let broker_and_orphan = || {
        let children = fs::read_to_string(&children).unwrap();
        let children: Vec<&str> = children.split_whitespace().collect();
        (children.len() == 2 && children.contains(&orphan.trim())).then_some(())
    };
    wait_for("orphans to be reaped by the supervisor", broker_and_orphan).await;
    fs::write(fixture.path("ledger/on"), "").unwrap();
    until_finished(&runner, &run.name).await.unwrap();
}

#[tokio::test]
async fn a_supervisor_takes_little_memory_while_it_waits() {
    let fixture = Fixture::new();
    let (runner, run) = (fixture.runner(), run(Behaviour::Sleeps, "small-1"));
    runner.start(&run).await.unwrap();
    wait_for("the broker", || (fixture.effects_of("small-1") > 0).then_some(())).await;
    let memory = memory_of(supervisor_of(&fixture.path("runs/small-1")).unwrap());
    assert!(memory < 4 * 1024, "{memory} kB of its own");
    runner.release(&run.name).await.unwrap();
}

#[tokio::test]
async fn the_end_is_noticed_at_once() {
    let fixture = Fixture::new();
    let runner = fixture.runner();
    let mut took = Vec::new();
    for n in 0..10 {
        let name = format!("quick-{n}");
        let run = run(Behaviour::Succeeds, &name);
        let result = fixture.path("runs").join(&name).join("result");
        let ended = async {
            wait_for("the result", || result.exists().then_some(())).await;
            Instant::now()
        };
        let noticed = async {
            runner.start(&run).await.unwrap();
            until_finished(&runner, &run.name).await.unwrap();
            Instant::now()
        };
        let (ended, noticed) = tokio::join!(ended, noticed);
        took.push(noticed.saturating_duration_since(ended));
    }
    took.sort();
    assert!(took[took.len() / 2] < Duration::from_secs(1), "{took:?}");
}
