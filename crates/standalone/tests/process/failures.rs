//! Every way of failing is told apart.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use engine::ports::{RunFailure, RunState, Runner, StartError};
use engine::record::Reason;
use osb::jobs::contract::Capability;
use osb::{Action, FailureKind, Output};

use crate::harness::{Fixture, finish, kill_supervisor, run, run_with, supervisor_of, until_lost};

#[track_caller]
fn failed(result: Result<Output, RunFailure>, reason: Reason, says: &str) {
    let failure = result.unwrap_err();
    assert_eq!(failure.reason, reason, "{failure:?}");
    assert!(failure.failure.description.contains(says), "{says:?} is not in {failure:?}");
}

async fn fails(script: &str, reason: Reason, says: &str) {
    let fixture = Fixture::with_broker(script);
    failed(finish(&fixture.runner(), &run("fails-1")).await, reason, says);
}

#[tokio::test]
async fn a_status_is_told_with_the_log() {
    fails("echo no disk left >&2; exit 7", Reason::ExitStatus, "status 7: no disk left").await;
}

#[tokio::test]
async fn a_signal_is_told_by_name() {
    fails("kill -9 $$", Reason::Killed, "signal 9 (SIGKILL").await;
    fails("kill -SEGV $$", Reason::Killed, "signal 11 (SIGSEGV)").await;
}

#[tokio::test]
async fn output_that_is_not_json_is_told() {
    fails("echo hello", Reason::NotJson, "stdout must carry JSON only").await;
    fails("echo '{}'; echo done", Reason::NotJson, "text after the JSON").await;
    fails("exit 0", Reason::NotJson, "printed nothing").await;
}

#[tokio::test]
async fn output_of_a_wrong_shape_is_told_by_path() {
    fails("echo '{\"dashboard_url\": 5}'", Reason::WrongShape, "dashboard_url").await;
}

#[tokio::test]
async fn a_run_over_its_time_is_told() {
    let fixture = Fixture::with_broker("echo waiting >&2; sleep 60");
    let mut run = run("timeout-1");
    run.timeout = Duration::from_secs(1);
    let result = finish(&fixture.runner(), &run).await;
    failed(result, Reason::Timeout, "took more than 1 s and was ended: waiting");
}

#[tokio::test]
async fn a_run_that_is_ended_from_outside_was_not_halted() {
    let fixture = Fixture::with_broker("sleep 60");
    let (runner, run) = (fixture.runner(), run("stopped-1"));
    runner.start(&run).await.unwrap();
    let supervisor = supervisor_of(&fixture.path("runs/stopped-1")).unwrap();
    let pid = rustix::process::Pid::from_raw(supervisor).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    failed(finish(&runner, &run).await, Reason::Killed, "SIGTERM");
}

#[tokio::test]
async fn a_lost_run_is_told_with_its_log() {
    let fixture = Fixture::with_broker("echo up to here >&2; sleep 60");
    let (runner, run) = (fixture.runner(), run("lost-1"));
    runner.start(&run).await.unwrap();
    while !runner.log(&run.name).await.unwrap().unwrap().contains("up to here") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    kill_supervisor(&fixture.path("runs/lost-1"));
    assert!(until_lost(&runner, &run).await.contains("up to here"));
    runner.release(&run.name).await.unwrap();
    let log = runner.log(&run.name).await.unwrap();
    assert_eq!(log.as_deref(), Some("up to here\n"), "the log of a lost run is kept too");
}

#[tokio::test]
async fn a_result_that_was_tampered_with_is_not_believed() {
    let fixture = Fixture::with_broker("echo '{}'");
    let (runner, run) = (fixture.runner(), run("tampered-1"));
    finish(&runner, &run).await.unwrap();
    let path = fixture.run_file(&run.name, "result");
    let mut sealed = fs::read(&path).unwrap();
    *sealed.last_mut().unwrap() ^= 1;
    fs::write(&path, sealed).unwrap();
    assert!(until_lost(&runner, &run).await.contains("damaged"));
}

#[tokio::test]
async fn a_run_whose_order_cannot_be_read_is_lost_and_keeps_no_other_from_its_release() {
    let fixture = Fixture::with_broker(
        r#"if [ -e "$LEDGER/wait" ]; then until [ -e "$LEDGER/go" ]; do sleep 0.05; done; fi
           echo '{}'"#,
    );
    let (runner, good, spoilt) = (fixture.runner(), run("good-1"), run("spoilt-1"));
    finish(&runner, &good).await.unwrap();
    fs::write(fixture.path("ledger/wait"), "").unwrap();
    runner.start(&spoilt).await.unwrap();
    for content in ["", "{\"version\": \"told-nowhere\"}"] {
        fs::write(fixture.run_file(&spoilt.name, "run.json"), content).unwrap();
        let state = runner.observe(&spoilt.name).await.unwrap();
        assert!(matches!(state, RunState::Running { .. }), "it goes on: {state:?}");
        let unreleased = runner.unreleased().await.unwrap();
        let names: Vec<_> = unreleased.iter().map(|(name, _)| name).collect();
        assert_eq!(names, [&good.name]);
    }
    fs::write(fixture.path("ledger/go"), "").unwrap();
    let why = until_lost(&runner, &spoilt).await;
    assert!(why.contains("run.json") && !why.contains("told-nowhere"), "{why}");
    runner.release(&spoilt.name).await.unwrap();
}

async fn refused(fixture: &Fixture, says: &[&str]) {
    let (runner, run) = (fixture.runner(), run("refused-1"));
    let Err(StartError::Permanent(why)) = runner.start(&run).await else {
        panic!("was not refused for good");
    };
    for says in says {
        assert!(why.contains(says), "{says:?} is not in {why:?}");
    }
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    assert!(!fixture.path("exchange/refused-1").exists());
}

#[tokio::test]
async fn a_broker_that_cannot_be_executed_is_refused_with_a_remedy() {
    let fixture = Fixture::new();
    let broker = fixture.path("broker");
    let path = broker.to_str().unwrap();

    fs::remove_file(&broker).unwrap();
    refused(&fixture, &[path, "no such executable"]).await;

    fixture.set_broker("#!/no/such/interpreter\n");
    refused(&fixture, &[path, "interpreter"]).await;

    fixture.set_broker("echo '{}'");
    fs::set_permissions(&broker, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&fixture, &[path, "chmod +x"]).await;

    fs::write(&broker, [0x7f, b'E', b'L', b'F', 0, 0, 0]).unwrap();
    fs::set_permissions(&broker, fs::Permissions::from_mode(0o755)).unwrap();
    refused(&fixture, &[path, "#!"]).await;

    fs::remove_file(&broker).unwrap();
    fs::create_dir(&broker).unwrap();
    refused(&fixture, &[path]).await;
}

#[tokio::test]
async fn a_run_that_was_refused_can_be_started_when_it_is_mended() {
    let fixture = Fixture::new();
    fs::remove_file(fixture.path("broker")).unwrap();
    refused(&fixture, &["no such executable"]).await;
    fixture.set_broker(engine::testing::runner_contract::BROKER);
    finish(&fixture.runner(), &run("refused-1")).await.unwrap();
    assert_eq!(fixture.effects_of("refused-1"), 1);
}

#[tokio::test]
async fn a_configuration_that_is_not_there_is_refused() {
    let fixture = Fixture::new();
    fs::remove_dir(fixture.path("secret")).unwrap();
    refused(&fixture, &["the secret in", "secret"]).await;
}

#[tokio::test]
async fn a_supervisor_that_is_not_there_or_says_nothing_is_told() {
    let fixture = Fixture::new();
    let runner = fixture.runner_with(|settings| settings.supervisor = vec!["/no/such".into()]);
    let refusal = runner.start(&run("a-1")).await.unwrap_err();
    assert!(matches!(&refusal, StartError::Permanent(why) if why.contains("/no/such")));

    let broken = ["sh", "-c", "echo library missing >&2; exit 127"];
    let runner =
        fixture.runner_with(|settings| settings.supervisor = broken.map(Into::into).to_vec());
    let refusal = runner.start(&run("b-1")).await.unwrap_err();
    assert!(matches!(&refusal, StartError::Transient(why) if why.contains("library missing")));
    assert_eq!(runner.observe(&run("b-1").name).await.unwrap(), RunState::Absent);
}

#[tokio::test]
async fn a_subcommand_that_was_not_declared_is_never_run() {
    let fixture = Fixture::new();
    let runner = fixture.runner();
    let mut update = run("update-1");
    update.work.action = Action::Update;
    let mut poll = run("poll-1");
    poll.work.external_operation = Some("x".to_owned());
    for run in [update, poll] {
        let refusal = runner.start(&run).await.unwrap_err();
        assert!(matches!(refusal, StartError::Permanent(_)), "{refusal:?}");
        assert_eq!(fixture.effects_of(run.name.as_str()), 0);
    }
}

#[tokio::test]
async fn a_structured_error_is_passed_on_without_secrets() {
    let script = r#"echo '{"description": "bad password hunter22", "retry_after": 9}'; exit 75"#;
    let fixture = Fixture::with_broker(script);
    fs::write(fixture.path("secret/password"), "hunter22\n").unwrap();
    let declared = [Capability::StructuredErrors, Capability::ExitCodes];
    let failure = finish(&fixture.runner(), &run_with("told-1", &declared)).await.unwrap_err();
    assert_eq!(failure.reason, Reason::Reported);
    assert_eq!(failure.failure.kind, FailureKind::Transient);
    assert_eq!(failure.failure.retry_after, Some(9));
    assert_eq!(failure.failure.description, "bad password [redacted]");
}

#[tokio::test]
async fn a_catalog_that_fails_is_told() {
    for (script, reason, says) in [
        ("exit 3", Reason::ExitStatus, "status 3"),
        ("echo hello", Reason::NotJson, "catalog printed"),
        ("echo '[]'", Reason::WrongShape, "catalog"),
        ("sleep 60", Reason::Timeout, "catalog took more than 1 s"),
        ("head -c 3000000 /dev/zero", Reason::OutputTooLarge, "catalog printed more than"),
    ] {
        let fixture = Fixture::with_broker(script);
        let runner =
            fixture.runner_with(|settings| settings.catalog_timeout = Duration::from_secs(1));
        let failure = runner.offer().await.unwrap_err();
        assert_eq!(failure.reason, reason, "{failure:?}");
        assert!(failure.failure.description.contains(says), "{failure:?}");
        assert_eq!(fs::read_dir(fixture.path("runs")).unwrap().count(), 0, "nothing is kept");
        assert_eq!(fs::read_dir(fixture.path("exchange")).unwrap().count(), 0);
    }
    let fixture = Fixture::new();
    fs::remove_file(fixture.path("broker")).unwrap();
    assert_eq!(fixture.runner().offer().await.unwrap_err().reason, Reason::NotStarted);
}
