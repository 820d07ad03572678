//! Secrets are planted everywhere and looked for everywhere.

use std::fs;
use std::path::Path;

use engine::ports::{RunState, Runner};
use engine::testing::runner_contract::until_finished;
use osb::jobs::contract::Capability;
use osb::{Action, BindingId, Object, Sensitive};
use serde_json::json;

use crate::harness::{Fixture, all_pids, command_line, run_with, supervisor_of, wait_for};

const PARAMETER: &str = "planted-parameter-1";
const CONTEXT: &str = "planted-context-2";
const CREDENTIAL: &str = "planted-credential-3";
const MOUNTED: &str = "planted-mounted-4";
const STATE: &str = "planted-state-5";
const LEFT: &str = "planted-left-6";
const IDENTITY: &str = "planted-identity-7";
const ALL: [&str; 7] = [PARAMETER, CONTEXT, CREDENTIAL, MOUNTED, STATE, LEFT, IDENTITY];

/// Prints everything it knows where it should not.
const TELLS: &str = r#"
credentials='{"credentials": {"password": "planted-credential-3"}}'
cat "$OSB_REQUEST_FILE" "$OSB_STATE_FILE" >&2
echo "password: $PASSWORD, base64: $(printf '%s' "$PASSWORD" | base64)" >&2
echo "$credentials" >&2
echo '{"left": "planted-left-6"}' | tee "$OSB_STATE_OUT_FILE" >&2
echo up >"$LEDGER/up"; while [ ! -e "$LEDGER/on" ]; do sleep 0.02; done
case $1 in bind) echo "$credentials" ;; *) echo "$credentials"; exit 5 ;; esac
"#;

fn object(value: &str) -> Sensitive<Object> {
    json!({"nested": [{"value": value}]}).as_object().cloned().unwrap().into()
}

fn secret_run(name: &str, action: Action) -> engine::ports::Run {
    let mut run = run_with(name, &Capability::ALL);
    run.work.action = action;
    run.work.binding_id = (action == Action::Bind).then(|| BindingId::new("b").unwrap());
    run.work.parameters = object(PARAMETER);
    run.work.context = object(CONTEXT);
    run.work.state = Some(json!({"value": STATE}).into());
    run.work.originating_identity =
        Some(osb::OriginatingIdentity { platform: "k".to_owned(), value: object(IDENTITY) });
    run
}

#[track_caller]
fn assert_clean(where_: &str, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    for secret in ALL {
        let encoded = data_encoding::BASE64.encode(secret.as_bytes());
        for form in [secret, encoded.trim_end_matches('=')] {
            assert!(!text.contains(form), "{form} is in {where_}");
        }
    }
}

/// Every file below a directory, its name included.
fn assert_files_clean(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        assert_clean("a name", name.as_bytes());
        match path.is_dir() {
            true => assert_files_clean(&path),
            false => assert_clean(&name, &fs::read(&path).unwrap_or_default()),
        }
    }
}

/// No process shows one in its command line, and no supervisor in its environment.
fn assert_processes_clean(fixture: &Fixture, run: &str) {
    for pid in all_pids() {
        assert_clean("a command line", command_line(pid).as_bytes());
    }
    let supervisor = supervisor_of(&fixture.path("runs").join(run)).unwrap();
    let environment = fs::read(format!("/proc/{supervisor}/environ")).unwrap_or_default();
    assert!(environment.is_empty(), "the supervisor has an environment");
}

#[tokio::test]
async fn planted_secrets_are_found_nowhere() {
    let fixture = Fixture::with_broker(TELLS);
    fs::write(fixture.path("secret/password"), format!("{MOUNTED}\n")).unwrap();
    let runner = fixture.runner();
    for (name, action) in [("tells-1", Action::Provision), ("tells-2", Action::Bind)] {
        let run = secret_run(name, action);
        runner.start(&run).await.unwrap();
        let up = fixture.path("ledger/up");
        wait_for("the broker", || up.exists().then_some(())).await;

        assert_processes_clean(&fixture, name);
        assert_files_clean(&fixture.path("runs"));
        let log = runner.log(&run.name).await.unwrap().unwrap();
        for masked in ["password: [redacted]", "base64: [redacted]"] {
            assert!(log.contains(masked), "{log}");
        }
        // What the broker has yet to give is not known yet.
        let log = log.replace(CREDENTIAL, "").replace(LEFT, "");
        assert_clean("the log while it runs", log.as_bytes());

        fs::write(fixture.path("ledger/on"), "").unwrap();
        let result = until_finished(&runner, &run.name).await;
        assert_files_clean(&fixture.path("runs"));
        assert!(!fixture.path("exchange").join(name).exists());
        assert_clean("the log", runner.log(&run.name).await.unwrap().unwrap().as_bytes());
        match result {
            Ok(output) => {
                let credentials = output.binding.unwrap().credentials.unwrap();
                assert_eq!(credentials.expose()["password"], CREDENTIAL, "it does arrive");
                assert_eq!(output.state.unwrap().expose()["left"], LEFT);
            }
            Err(failure) => {
                let told = format!("{failure:?}");
                assert!(told.contains("[redacted]"), "{told}");
                assert_clean("the failure", told.as_bytes());
            }
        }
        runner.release(&run.name).await.unwrap();
        assert_files_clean(&fixture.path("runs"));
        fs::remove_file(fixture.path("ledger/on")).unwrap();
        fs::remove_file(up).unwrap();
    }
}

#[tokio::test]
async fn a_lost_run_shows_no_secret_either() {
    let fixture = Fixture::with_broker(TELLS);
    fs::write(fixture.path("secret/password"), format!("{MOUNTED}\n")).unwrap();
    let (runner, run) = (fixture.runner(), secret_run("tells-1", Action::Provision));
    runner.start(&run).await.unwrap();
    wait_for("the broker", || fixture.path("ledger/up").exists().then_some(())).await;
    crate::harness::kill_supervisor(&fixture.path("runs/tells-1"));
    let why = crate::harness::until_lost(&runner, &run).await;
    // Credentials that were never handed over are known to nobody.
    let why = why.replace(CREDENTIAL, "").replace(LEFT, "");
    assert_clean("what is told of it", why.as_bytes());
    runner.release(&run.name).await.unwrap();
    assert!(!fixture.path("exchange/tells-1").exists());
}

#[tokio::test]
async fn files_of_a_run_are_for_its_user_alone() {
    use std::os::unix::fs::MetadataExt;
    let fixture = Fixture::with_broker(TELLS);
    fs::write(fixture.path("secret/password"), MOUNTED).unwrap();
    let (runner, run) = (fixture.runner(), secret_run("modes-1", Action::Provision));
    runner.start(&run).await.unwrap();
    wait_for("the broker", || fixture.path("ledger/up").exists().then_some(())).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    for directory in ["runs", "exchange", "runs/modes-1", "exchange/modes-1"] {
        assert_eq!(mode(&fixture.path(directory)), 0o700, "{directory}");
    }
    for file in ["exchange/modes-1/request.json", "exchange/modes-1/state.json"] {
        assert_eq!(mode(&fixture.path(file)), 0o600, "{file}");
    }
    fs::write(fixture.path("ledger/on"), "").unwrap();
    let _ = until_finished(&runner, &run.name).await;
    for file in ["result", "stderr.log", "run.json"] {
        assert_eq!(mode(&fixture.run_file(&run.name, file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn a_result_is_for_the_key_that_it_was_sealed_under() {
    let fixture = Fixture::with_broker("echo '{}'");
    let (runner, run) = (fixture.runner(), run_with("key-1", &[]));
    crate::harness::finish(&runner, &run).await.unwrap();
    let other = fixture.runner_with(|settings| {
        settings.key = standalone::process::RunnerKey::new([8; 32]);
    });
    let state = other.observe(&run.name).await.unwrap();
    assert!(matches!(state, RunState::Lost { .. }), "{state:?}");
}
