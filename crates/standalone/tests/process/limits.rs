//! Brokers that print too much, do not end, or leave something behind.

use std::fs;
use std::time::{Duration, Instant};

use engine::ports::Runner;
use engine::record::Reason;
use engine::testing::runner_contract::until_finished;

use crate::harness::{Fixture, finish, is_alive, run, supervisor_of, wait_for};

fn pid_in(fixture: &Fixture, name: &str) -> Option<i32> {
    let text = fs::read_to_string(fixture.path("ledger").join(name)).ok()?;
    text.trim().parse().ok()
}

#[tokio::test]
async fn a_broker_that_ignores_sigterm_is_killed_at_its_time() {
    let fixture =
        Fixture::with_broker(r#"trap '' TERM; echo $$ >"$LEDGER/pid"; while :; do sleep 1; done"#);
    let (runner, mut run) = (fixture.runner(), run("stubborn-1"));
    run.timeout = Duration::from_secs(1);
    let begun = Instant::now();
    assert_eq!(finish(&runner, &run).await.unwrap_err().reason, Reason::Timeout);
    assert!(begun.elapsed() >= Duration::from_secs(2), "it had its grace");
    assert!(!is_alive(pid_in(&fixture, "pid").unwrap()));
}

#[tokio::test]
async fn a_broker_may_put_things_right_on_sigterm() {
    let fixture = Fixture::with_broker(
        r#"trap 'echo put right >&2; exit 0' TERM; echo up >"$LEDGER/up"
           while :; do sleep 0.05; done"#,
    );
    let (runner, run) = (fixture.runner(), run("polite-1"));
    runner.start(&run).await.unwrap();
    wait_for("the broker", || fixture.path("ledger/up").exists().then_some(())).await;
    runner.cancel(&run.name).await.unwrap();
    let failure = until_finished(&runner, &run.name).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Halted);
    let log = runner.log(&run.name).await.unwrap().unwrap();
    assert!(log.ends_with("put right\n"), "{log}");
}

#[tokio::test]
async fn a_broker_that_stopped_itself_is_ended_too() {
    let fixture = Fixture::with_broker(r#"echo $$ >"$LEDGER/pid"; kill -STOP $$; echo '{}'"#);
    let runner = fixture.runner_with(|settings| settings.grace = Duration::from_secs(30));
    let mut run = run("stopped-1");
    run.timeout = Duration::from_secs(1);
    let begun = Instant::now();
    assert_eq!(finish(&runner, &run).await.unwrap_err().reason, Reason::Timeout);
    assert!(begun.elapsed() < Duration::from_secs(20), "it heard of SIGTERM");
    assert!(!is_alive(pid_in(&fixture, "pid").unwrap()));
}

#[tokio::test]
async fn what_is_left_in_the_group_is_ended_with_the_broker() {
    let fixture = Fixture::with_broker(
        r#"sh -c 'trap "" TERM HUP; echo $$ >"$LEDGER/pid"; sleep 600' &
           while [ ! -s "$LEDGER/pid" ]; do sleep 0.02; done; echo '{}'"#,
    );
    let begun = Instant::now();
    finish(&fixture.runner(), &run("background-1")).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(!is_alive(pid_in(&fixture, "pid").unwrap()));
}

#[tokio::test]
async fn what_is_left_in_the_group_is_asked_to_end_first() {
    let fixture = Fixture::with_broker(
        r#"sh -c 'trap "sleep 0.5; echo cleaned >$LEDGER/cleaned; exit" TERM
                  echo $$ >"$LEDGER/pid"; while :; do sleep 0.05; done' &
           while [ ! -s "$LEDGER/pid" ]; do sleep 0.02; done; echo '{}'"#,
    );
    finish(&fixture.runner(), &run("cleans-1")).await.unwrap();
    assert!(!is_alive(pid_in(&fixture, "pid").unwrap()));
    assert_eq!(fs::read_to_string(fixture.path("ledger/cleaned")).unwrap(), "cleaned\n");
}

#[tokio::test]
async fn a_daemon_that_holds_the_pipes_is_not_waited_for() {
    let fixture = Fixture::with_broker(
        r#"setsid sh -c 'echo $$ >"$LEDGER/pid"; sleep 600' &
           while [ ! -s "$LEDGER/pid" ]; do sleep 0.02; done; echo '{"dashboard_url": "d"}'"#,
    );
    let begun = Instant::now();
    let output = finish(&fixture.runner(), &run("daemon-1")).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(output.dashboard_url.as_deref(), Some("d"));
    let daemon = pid_in(&fixture, "pid").unwrap();
    assert!(is_alive(daemon), "what leaves the group on purpose goes on");
    crate::harness::kill(daemon);
}

#[tokio::test]
async fn a_flood_on_stdout_is_stopped() {
    let fixture = Fixture::with_broker("exec cat /dev/zero");
    let (runner, run) = (fixture.runner(), run("flood-1"));
    let failure = finish(&runner, &run).await.unwrap_err();
    assert_eq!(failure.reason, Reason::OutputTooLarge);
    assert!(fs::metadata(fixture.run_file(&run.name, "result")).unwrap().len() < 3_000_000);
}

#[tokio::test]
async fn output_at_the_limit_is_taken_and_one_byte_more_is_not() {
    let fixture = Fixture::with_broker(
        r#"head=$(printf '{"dashboard_url": "'); printf '%s' "$head"
           head -c $((SIZE - ${#head} - 2)) /dev/zero | tr '\0' x; printf '"}'"#,
    );
    let runner = fixture.runner_with(|settings| settings.output_limit = 100_000);
    for (size, name) in [(100_000, "fits-1"), (100_001, "over-1")] {
        fs::write(fixture.path("config/size"), size.to_string()).unwrap();
        let result = finish(&runner, &run(name)).await;
        match size {
            100_000 => drop(result.unwrap()),
            _ => assert_eq!(result.unwrap_err().reason, Reason::OutputTooLarge),
        }
    }
}

#[tokio::test]
async fn a_flood_on_stderr_is_capped_on_disk_and_in_memory() {
    let fixture = Fixture::with_broker(
        r#"echo first >&2; head -c 100000000 /dev/zero | tr '\0' x >&2; echo last >&2
           echo flooded >"$LEDGER/flooded"; while [ ! -e "$LEDGER/on" ]; do sleep 0.05; done
           echo '{}'"#,
    );
    let (runner, run) = (fixture.runner(), run("flood-1"));
    runner.start(&run).await.unwrap();
    wait_for("the flood", || fixture.path("ledger/flooded").exists().then_some(())).await;

    let supervisor = supervisor_of(&fixture.path("runs/flood-1")).unwrap();
    let status = fs::read_to_string(format!("/proc/{supervisor}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    assert!(peak < 32 * 1024, "the supervisor took {peak} kB");
    let exchange = fs::read_dir(fixture.path("exchange/flood-1")).unwrap();
    let size: u64 = exchange.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(size < 2 * 1024 * 1024, "{size} bytes while it runs");

    fs::write(fixture.path("ledger/on"), "").unwrap();
    until_finished(&runner, &run.name).await.unwrap();
    let log = runner.log(&run.name).await.unwrap().unwrap();
    assert!(log.len() <= 1024 * 1024 + 100, "{}", log.len());
    assert!(log.starts_with("first\n") && log.ends_with("last\n"));
    assert!(log.contains("bytes left out]"));
}

#[tokio::test]
async fn a_timeout_of_a_broker_that_floods_is_kept() {
    let fixture = Fixture::with_broker("exec yes >&2");
    let (runner, mut run) = (fixture.runner(), run("flood-1"));
    run.timeout = Duration::from_secs(1);
    assert_eq!(finish(&runner, &run).await.unwrap_err().reason, Reason::Timeout);
}
