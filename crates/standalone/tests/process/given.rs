//! What a broker is given: exactly that, and nothing else.

use std::collections::BTreeMap;
use std::fs;

use engine::ports::{RunState, Runner};
use engine::testing::runner_contract::until;
use osb::jobs::contract::Capability;
use osb::{Action, BindingId, Object, Sensitive};
use serde_json::{Value, json};

use crate::harness::{Fixture, finish, run, run_with};

const ALL: &[Capability] = &Capability::ALL;

/// Notes down its arguments, environment and files.
const NOTES: &str = r#"
for argument; do echo "$argument"; done >"$LEDGER/arguments"
env -0 >"$LEDGER/environment"
pwd >"$LEDGER/directory"
cat >"$LEDGER/stdin"
ls -l /proc/self/fd >"$LEDGER/descriptors"
cat /proc/self/status >"$LEDGER/status"
cat /proc/self/stat >"$LEDGER/stat"
for file in "$OSB_REQUEST_FILE" "$OSB_STATE_FILE"; do
    [ -e "$file" ] && cp "$file" "$LEDGER/"
done
echo '{}'
"#;

fn noted(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.path("ledger").join(name)).unwrap()
}

fn environment(fixture: &Fixture) -> BTreeMap<String, String> {
    let text = noted(fixture, "environment");
    let pairs = text.split_terminator('\0').map(|pair| pair.split_once('=').unwrap());
    // The shell's own.
    pairs
        .filter(|(name, _)| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn object(json: Value) -> Sensitive<Object> {
    json.as_object().cloned().unwrap().into()
}

#[tokio::test]
async fn version_1_is_given_what_the_seed_says_and_nothing_else() {
    let fixture = Fixture::with_broker(NOTES);
    fs::write(fixture.path("config/aws.region"), "eu").unwrap();
    fs::write(fixture.path("config/both"), "of config").unwrap();
    fs::write(fixture.path("secret/both"), "of secret").unwrap();
    fs::write(fixture.path("secret/aws.secret.key"), "s3cret\n").unwrap();
    let mut run = run("given-1");
    run.work.parameters = object(json!({"size": "large-one"}));
    run.work.state = Some(json!("left").into());
    finish(&fixture.runner(), &run).await.unwrap();

    assert_eq!(
        noted(&fixture, "arguments"),
        "provision\n--service-id\nservice\n--plan-id\nsucceeds\n--instance-id\ngiven-1\n"
    );
    let ledger = fixture.path("ledger").to_str().unwrap().to_owned();
    let mut expected: BTreeMap<String, String> = [
        ("AWS_REGION", "eu"),
        ("AWS_SECRET_KEY", "s3cret\n"),
        ("BOTH", "of secret"),
        ("LEDGER", &ledger),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    for name in ["PATH", "HOME", "LANG", "TZ", "TMPDIR"] {
        expected.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
    }
    assert_eq!(environment(&fixture), expected);
    assert_eq!(noted(&fixture, "stdin"), "");
}

#[tokio::test]
async fn bindings_are_named_and_fixed_arguments_come_first() {
    let fixture = Fixture::with_broker(NOTES);
    let runner = fixture.runner_with(|settings| settings.arguments = vec!["--fixed".into()]);
    let mut run = run("given-1");
    run.work.action = Action::Unbind;
    run.work.binding_id = Some(BindingId::new("binding 1").unwrap());
    finish(&runner, &run).await.unwrap();
    assert_eq!(
        noted(&fixture, "arguments"),
        "--fixed\nunbind\n--service-id\nservice\n--plan-id\nsucceeds\n--instance-id\ngiven-1\n\
         --binding-id\nbinding 1\n"
    );
}

#[tokio::test]
async fn a_process_begins_clean() {
    let fixture = Fixture::with_broker(NOTES);
    finish(&fixture.runner(), &run("clean-1")).await.unwrap();
    let directory = fixture.path("exchange/clean-1/work");
    assert_eq!(noted(&fixture, "directory").trim(), directory.to_str().unwrap());
    // Whoever runs the tests may have left some of its own open.
    let descriptors = noted(&fixture, "descriptors");
    let ours = |line: &&str| line.contains(fixture.path("").to_str().unwrap());
    let ours: Vec<&str> = descriptors.lines().filter(ours).collect();
    assert!(ours.iter().all(|line| line.ends_with("ledger/descriptors")), "{ours:?}");
    let status = noted(&fixture, "status");
    for mask in ["SigBlk", "SigIgn"] {
        let line = status.lines().find(|line| line.starts_with(mask)).unwrap();
        let signals = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        // The first two real-time signals are the C library's own.
        assert_eq!(signals & 0x7fff_ffff, 0, "{line}");
    }
    let stat = noted(&fixture, "stat");
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    assert_eq!(fields[1], fields[2], "the broker leads the process group of its child");
    assert_ne!(fields[2], fields[3], "and not the session");
}

#[tokio::test]
async fn version_2_is_given_files_as_declared() {
    let fixture = Fixture::with_broker(NOTES);
    let mut run = run_with("given-1", ALL);
    run.work.parameters = object(json!({"size": "large-one"}));
    run.work.state = Some(json!({"node": 3}).into());
    run.work.deadline = Some(4_000_000_000);
    finish(&fixture.runner(), &run).await.unwrap();
    let exchange = fixture.path("exchange/given-1");
    let path = |name: &str| exchange.join(name).to_str().unwrap().to_owned();
    let contract: Vec<_> =
        environment(&fixture).into_iter().filter(|(name, _)| name.starts_with("OSB_")).collect();
    let expected = [
        ("OSB_ATTEMPT", "1".to_owned()),
        ("OSB_CONFIG_DIR", fixture.path("config").to_str().unwrap().to_owned()),
        ("OSB_DEADLINE", "4000000000".to_owned()),
        ("OSB_OPERATION_ID", "given-1".to_owned()),
        ("OSB_PROGRESS_FILE", path("progress")),
        ("OSB_REQUEST_FILE", path("request.json")),
        ("OSB_SECRET_DIR", fixture.path("secret").to_str().unwrap().to_owned()),
        ("OSB_STATE_FILE", path("state.json")),
        ("OSB_STATE_OUT_FILE", path("state.out")),
    ];
    assert_eq!(contract, expected.map(|(name, value)| (name.to_owned(), value)));
    let request: Value = serde_json::from_str(&noted(&fixture, "request.json")).unwrap();
    assert_eq!(request["parameters"], json!({"size": "large-one"}));
    assert_eq!(request["deadline"], 4_000_000_000_u64);
    assert_eq!(request.get("state"), None);
    assert_eq!(noted(&fixture, "state.json"), "{\"node\":3}");
    assert!(!exchange.exists(), "the files are gone with the run");
}

#[tokio::test]
async fn one_capability_gives_its_files_only() {
    let fixture = Fixture::with_broker(NOTES);
    finish(&fixture.runner(), &run_with("given-1", &[Capability::Progress])).await.unwrap();
    let environment = environment(&fixture);
    let names: Vec<_> = environment.keys().filter(|name| name.starts_with("OSB_")).collect();
    let expected = ["OSB_ATTEMPT", "OSB_DEADLINE", "OSB_OPERATION_ID", "OSB_PROGRESS_FILE"];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn reserved_names_are_not_shadowed_and_the_log_says_so() {
    let fixture = Fixture::with_broker(NOTES);
    fs::write(fixture.path("config/osb.operation.id"), "forged").unwrap();
    fs::write(fixture.path("config/osb.new"), "forged").unwrap();
    let (runner, run) = (fixture.runner(), run_with("given-1", ALL));
    finish(&runner, &run).await.unwrap();
    assert_eq!(environment(&fixture)["OSB_OPERATION_ID"], "given-1");
    assert!(!environment(&fixture).contains_key("OSB_NEW"));
    let log = runner.log(&run.name).await.unwrap().unwrap();
    assert!(log.contains("osb.new is offered as a file only"), "{log}");
    assert!(!log.contains("forged"));
}

#[tokio::test]
async fn nothing_of_our_own_environment_is_passed_unless_it_is_named() {
    let fixture = Fixture::with_broker(NOTES);
    let runner = fixture.runner_with(|settings| {
        settings.pass_environment = vec!["CARGO_PKG_NAME".to_owned(), "NOT_SET".to_owned()];
    });
    finish(&runner, &run("given-1")).await.unwrap();
    let environment = environment(&fixture);
    assert_eq!(environment["CARGO_PKG_NAME"], "standalone");
    assert!(
        !environment.contains_key("CARGO_MANIFEST_DIR") && !environment.contains_key("NOT_SET")
    );
}

#[tokio::test]
async fn catalog_is_asked_without_flags() {
    let catalog = r#"echo '{"services": [], "jobs": {"version": 2, "capabilities": ["state"]}}'"#;
    let fixture = Fixture::with_broker(&NOTES.replace("echo '{}'", catalog));
    let offer = fixture.runner().offer().await.unwrap();
    assert_eq!(offer.catalog, json!({"services": []}));
    assert_eq!(offer.capabilities, [Capability::State]);
    assert_eq!(noted(&fixture, "arguments"), "catalog\n");
    assert!(!environment(&fixture).keys().any(|name| name.starts_with("OSB_")));
}

#[tokio::test]
async fn state_is_left_for_later_operations() {
    let fixture = Fixture::with_broker(
        r#"[ -e "$OSB_STATE_FILE" ] && exit 1
           echo '{"node": 4}' >"$OSB_STATE_OUT_FILE"; echo '{}'"#,
    );
    let output = finish(&fixture.runner(), &run_with("state-1", ALL)).await.unwrap();
    assert_eq!(output.state.unwrap().expose(), &json!({"node": 4}));
}

#[tokio::test]
async fn external_work_is_asked_after_by_name() {
    let fixture = Fixture::with_broker(
        r#"echo "$@" >>"$LEDGER/arguments"
           case $1 in
               provision) echo '{"operation": "task 7", "async": true}' ;;
               last-operation) echo '{"state": "in progress", "description": "at 40%"}' ;;
           esac"#,
    );
    let runner = fixture.runner();
    let output = finish(&runner, &run_with("external-1", ALL)).await.unwrap();
    assert_eq!(output.external_operation.as_deref(), Some("task 7"));
    let mut poll = run_with("external-1-p1", ALL);
    poll.work.external_operation = output.external_operation;
    let output = finish(&runner, &poll).await.unwrap();
    assert_eq!(output.external_operation.as_deref(), Some("task 7"));
    assert_eq!(output.description.as_deref(), Some("at 40%"));
    let arguments = noted(&fixture, "arguments");
    assert!(arguments.lines().next().unwrap().ends_with("--instance-id external-1"));
    let poll = "last-operation --service-id service --plan-id succeeds --instance-id external-1-p1 \
                --operation task 7";
    assert_eq!(arguments.lines().last(), Some(poll));
}

#[tokio::test]
async fn what_was_declared_when_a_run_began_stays_in_force() {
    let fixture = Fixture::with_broker("exit 10");
    let (runner, run) = (fixture.runner(), run_with("in-force-1", ALL));
    finish(&runner, &run).await.unwrap();
    let state = fixture.runner().observe(&run.name).await.unwrap();
    assert!(matches!(state, RunState::Finished(Ok(_))), "{state:?}");
}

#[tokio::test]
async fn progress_is_redacted_and_follows() {
    let fixture = Fixture::with_broker(
        r#"echo 'with hunter22' >"$OSB_PROGRESS_FILE"
           while [ ! -e "$LEDGER/on" ]; do sleep 0.05; done
           echo '{"description": "more", "percent": 7}' >"$OSB_PROGRESS_FILE"
           sleep 60"#,
    );
    fs::write(fixture.path("secret/password"), "hunter22\n").unwrap();
    let (runner, run) = (fixture.runner(), run_with("progress-1", &[Capability::Progress]));
    runner.start(&run).await.unwrap();
    for said in ["with [redacted]", "more (7%)"] {
        let says = |state: &RunState| matches!(state, RunState::Running { progress: Some(text) } if text == said);
        until(&runner, &run.name, says).await;
        fs::write(fixture.path("ledger/on"), "").unwrap();
    }
    runner.release(&run.name).await.unwrap();
}
