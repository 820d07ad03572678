use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use serde_json::{Value, json};

use super::contract::{Capability, variable};
use super::*;
use crate::broker::FailureKind;
use crate::model::{BindingBody, Catalog, Sensitive};

mod documents;

/// A broker that notes its work and answers as it is told.
#[derive(Default)]
struct Noting {
    answer: Option<Result<Output, Failure>>,
    standing: Option<Standing>,
    seen: Mutex<Vec<(Work, Option<String>)>>,
}

impl Noting {
    fn answering(answer: Result<Output, Failure>) -> Self {
        Self { answer: Some(answer), ..Self::default() }
    }

    fn note(&self, work: Work) -> Result<Output, Failure> {
        work.progress.report("half way");
        self.seen.lock().unwrap().push((work, None));
        self.answer.clone().unwrap_or_else(|| Ok(Output::default()))
    }

    fn work(&self) -> Work {
        self.seen.lock().unwrap()[0].0.clone()
    }
}

impl Broker for Noting {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        self.answer.clone().transpose()?;
        Ok(Catalog::default())
    }
    async fn provision(&self, work: Work) -> Result<Output, Failure> {
        self.note(work)
    }
    async fn update(&self, work: Work) -> Result<Output, Failure> {
        self.note(work)
    }
    async fn bind(&self, work: Work) -> Result<Output, Failure> {
        self.note(work)
    }
    async fn unbind(&self, work: Work) -> Result<Output, Failure> {
        self.note(work)
    }
    async fn deprovision(&self, work: Work) -> Result<Output, Failure> {
        self.note(work)
    }
    async fn last_operation(&self, work: Work, operation: &str) -> Result<Standing, Failure> {
        self.seen.lock().unwrap().push((work, Some(operation.to_owned())));
        Ok(self.standing.clone().unwrap())
    }
}

/// Only what has to be written.
struct Minimal;

impl Broker for Minimal {
    async fn catalog(&self) -> Result<Catalog, Failure> {
        Ok(Catalog::default())
    }
    async fn provision(&self, _: Work) -> Result<Output, Failure> {
        Ok(Output::default())
    }
    async fn deprovision(&self, _: Work) -> Result<Output, Failure> {
        Ok(Output::default())
    }
}

struct Ran {
    code: u8,
    stdout: String,
    stderr: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

async fn ran<B: Broker>(broker: &B, arguments: &str, variables: &[(&str, String)]) -> Ran {
    let variables: HashMap<&str, OsString> =
        variables.iter().map(|(name, value)| (*name, OsString::from(value))).collect();
    let arguments = arguments.split_whitespace().map(OsString::from);
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let get = |name: &str| variables.get(name).cloned();
    let code = run(broker, arguments, get, &mut stdout, &mut stderr).await;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code, stdout: text(stdout), stderr: text(stderr) }
}

const FLAGS: &str = "--service-id s --plan-id p --instance-id i --binding-id b";

/// A directory with a request file, and the variables that name it and its neighbours.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new(request: &Value) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("request.json"), request.to_string()).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.path(name).display().to_string();
        vec![
            (variable::REQUEST_FILE, path("request.json")),
            (variable::STATE_FILE, path("state")),
            (variable::STATE_OUT_FILE, path("state.out")),
            (variable::PROGRESS_FILE, path("progress")),
        ]
    }

    fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn request(action: &str) -> Value {
    json!({
        "operation_id": "op", "attempt": 1, "action": action, "service_id": "s", "plan_id": "p",
        "instance_id": "i", "binding_id": "b", "parameters": {"size": 3, "password": "hunter2"},
        "context": {"platform": "kubernetes"}, "bind_resource": {"app_guid": "a", "space": "x"},
        "originating_identity": {"platform": "kubernetes", "value": {"username": "u"}},
    })
}

#[tokio::test]
async fn a_catalog_declares_everything_and_can_be_served_without() {
    let ran = ran(&Minimal, "catalog", &[]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let mut catalog = ran.json();
    let words = [
        "request-file",
        "update",
        "progress",
        "state",
        "structured-errors",
        "exit-codes",
        "last-operation",
    ];
    assert_eq!(catalog["jobs"], json!({"version": 2, "capabilities": words}));
    assert_eq!(Extension::ours().capabilities, Capability::ALL);
    catalog.as_object_mut().unwrap().remove("jobs");
    assert_eq!(catalog, json!({"services": []}));
}

#[tokio::test]
async fn the_flags_of_version_1_are_the_work() {
    for (action, binding) in [
        (Action::Provision, None),
        (Action::Update, None),
        (Action::Deprovision, None),
        (Action::Bind, Some("b")),
        (Action::Unbind, Some("b")),
    ] {
        let broker = Noting::default();
        let spaced = ran(&broker, &format!("{action} {FLAGS}"), &[]).await;
        assert_eq!((spaced.code, spaced.stdout.as_str(), spaced.stderr.as_str()), (0, "{}\n", ""));
        let work = broker.work();
        assert_eq!(work.action, action);
        let ids = (work.service_id.as_str(), work.plan_id.as_str(), work.instance_id.as_str());
        assert_eq!(ids, ("s", "p", "i"));
        assert_eq!(work.binding_id.as_ref().map(crate::BindingId::as_str), binding);
        assert_eq!((work.attempt, work.deadline), (1, None));

        let joined = Noting::default();
        let flags = FLAGS.replace("-id ", "-id=");
        assert_eq!(ran(&joined, &format!("{flags} {action}"), &[]).await.code, 0);
        assert_eq!(joined.work(), work, "the same operation in every attempt");
    }
}

#[tokio::test]
async fn a_wrong_command_line_is_refused_in_words() {
    let cases = [
        ("", "a subcommand is needed; --help lists what there is"),
        ("brew", "unknown subcommand \"brew\"; --help lists what there is"),
        ("catalog --colour red", "unknown flag \"--colour\"; --help lists what there is"),
        ("catalog now", "unexpected argument \"now\"; --help lists what there is"),
        ("catalog --plan-id", "--plan-id needs a value"),
        ("catalog --plan-id a --plan-id=b", "--plan-id is given twice"),
        ("provision --service-id s --plan-id p", "provision needs --instance-id"),
        ("provision --instance-id i --plan-id p", "provision needs --service-id"),
        ("provision --instance-id i --service-id s", "provision needs --plan-id"),
        ("bind --service-id s --plan-id p --instance-id i", "bind needs --binding-id"),
        (
            "unbind --service-id s --plan-id p --instance-id i --binding-id=",
            "unbind needs --binding-id",
        ),
        ("last-operation", "last-operation needs --operation"),
        ("last-operation --operation o", "last-operation needs OSB_REQUEST_FILE"),
    ];
    for (arguments, why) in cases {
        let ran = ran(&Minimal, arguments, &[]).await;
        let expected = (1, "", format!("broker: {why}\n"));
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr), expected, "{arguments}");
    }
}

#[tokio::test]
async fn every_flag_comes_with_every_subcommand() {
    for subcommand in ["catalog", "provision", "bind", "unbind", "deprovision", "update"] {
        let ran =
            ran(&Noting::default(), &format!("{subcommand} {FLAGS} --operation x"), &[]).await;
        assert_eq!(ran.code, 0, "{subcommand}: {}", ran.stderr);
    }
    assert!(ran(&Minimal, "--help", &[]).await.stdout.starts_with("Usage: broker"));
}

#[tokio::test]
async fn a_failure_of_version_1_is_words_on_stderr_and_1() {
    for kind in [FailureKind::Failed, FailureKind::Busy, FailureKind::Gone] {
        let broker = Noting::answering(Err(Failure::new(kind, "no room")));
        for subcommand in ["catalog", "provision"] {
            let ran = ran(&broker, &format!("{subcommand} {FLAGS}"), &[]).await;
            let expected = (1, "", "broker: no room\n");
            assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), expected);
        }
    }
}

#[tokio::test]
async fn the_request_file_is_the_work() {
    let files = Files::new(&request("bind"));
    std::fs::write(files.path("state"), r#"{"user": "hunter2"}"#).unwrap();
    let broker = Noting::default();
    let ran = ran(&broker, &format!("bind {FLAGS}"), &files.variables()).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));

    let work = broker.work();
    assert_eq!((work.operation_id.as_str(), work.attempt, work.deadline), ("op", 1, None));
    assert_eq!(work.parameters.expose()["size"], 3);
    assert_eq!(work.bind_resource.as_ref().unwrap().other["space"], "x");
    assert_eq!(work.originating_identity.as_ref().unwrap().value.expose()["username"], "u");
    assert_eq!(work.state.as_ref().unwrap().expose()["user"], "hunter2");
    assert_eq!(files.read("progress"), json!({"description": "half way"}));
    assert!(!format!("{work:?}").contains("hunter2"));
}

#[tokio::test]
async fn variables_go_before_the_request_file() {
    let files = Files::new(&request("provision"));
    let mut variables = files.variables();
    variables.extend([
        (variable::OPERATION_ID, "other".to_owned()),
        (variable::ATTEMPT, "4".to_owned()),
        (variable::DEADLINE, "1700000000".to_owned()),
    ]);
    let broker = Noting::default();
    assert_eq!(ran(&broker, "provision", &variables).await.code, 0);
    let work = broker.work();
    let expected = ("other", 4, Some(1_700_000_000));
    assert_eq!((work.operation_id.as_str(), work.attempt, work.deadline), expected);
}

#[tokio::test]
async fn flags_that_contradict_the_request_file_stop_the_work() {
    let cases = [
        ("unbind", "the subcommand contradicts the request file"),
        ("bind --service-id x", "--service-id contradicts the request file"),
        ("bind --plan-id x", "--plan-id contradicts the request file"),
        ("bind --instance-id x", "--instance-id contradicts the request file"),
        ("bind --binding-id x", "--binding-id contradicts the request file"),
    ];
    let files = Files::new(&request("bind"));
    for (arguments, why) in cases {
        let broker = Noting::default();
        let ran = ran(&broker, arguments, &files.variables()).await;
        assert_eq!((ran.code, ran.stderr), (1, format!("broker: {why}\n")));
        assert!(broker.seen.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn files_and_variables_that_cannot_be_read_stop_the_work_and_show_no_value() {
    let bad = |text: &str| Files::new(&Value::String(text.to_owned()));
    let mut without_binding = request("bind");
    without_binding.as_object_mut().unwrap().remove("binding_id");
    let cases = [
        (bad("hunter2"), vec![], "cannot be read: expected an object"),
        (Files::new(&without_binding), vec![], "bind needs a binding_id in the request file"),
        (
            Files::new(&request("bind")),
            vec![(variable::ATTEMPT, "hunter2")],
            "OSB_ATTEMPT cannot be read",
        ),
        (
            Files::new(&request("bind")),
            vec![(variable::REQUEST_FILE, "/nowhere/at/all")],
            "(os error 2)",
        ),
    ];
    for (files, extra, why) in cases {
        let mut variables = files.variables();
        variables.extend(extra.into_iter().map(|(name, value)| (name, value.to_owned())));
        let ran = ran(&Noting::default(), "bind", &variables).await;
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.trim_end().ends_with(why), "{}", ran.stderr);
        assert!(!ran.stderr.contains("hunter2"));
    }
    let files = Files::new(&request("bind"));
    std::fs::write(files.path("state"), "hunter2").unwrap();
    let ran = ran(&Noting::default(), "bind", &files.variables()).await;
    assert!(ran.code == 1 && !ran.stderr.contains("hunter2"), "{}", ran.stderr);
}

#[tokio::test]
async fn empty_variables_and_files_count_as_absent() {
    let variables = [(variable::REQUEST_FILE, String::new()), (variable::ATTEMPT, String::new())];
    let broker = Noting::default();
    assert_eq!(ran(&broker, &format!("provision {FLAGS}"), &variables).await.code, 0);
    assert_eq!(broker.work().attempt, 1);

    let files = Files::new(&request("provision"));
    std::fs::write(files.path("state"), "").unwrap();
    let broker = Noting::default();
    assert_eq!(ran(&broker, "provision", &files.variables()).await.code, 0);
    assert_eq!(broker.work().state, None);
}

#[tokio::test]
async fn state_goes_to_its_file_and_nowhere_else() {
    let state = Some(Sensitive::new(json!({"user": "hunter2"})));
    let output = Output { state, ..Output::default() };
    let files = Files::new(&request("provision"));
    let done = ran(&Noting::answering(Ok(output.clone())), "provision", &files.variables()).await;
    assert_eq!((done.code, done.stdout.as_str(), done.stderr.as_str()), (0, "{}\n", ""));
    assert_eq!(files.read("state.out"), json!({"user": "hunter2"}));
    assert_eq!(files.names(), ["progress", "request.json", "state.out"]);
    assert_private(&files.path("state.out"));

    let without = ran(&Noting::answering(Ok(output)), &format!("provision {FLAGS}"), &[]).await;
    assert_eq!(without.code, 0);
    assert_eq!(without.stderr, "broker: the platform keeps no state; it is lost\n");
}

#[cfg(unix)]
fn assert_private(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn state_that_nobody_can_keep_is_a_failure() {
    let state = json!("x".repeat(contract::MAX_STATE_BYTES));
    let output = Output { state: Some(state.into()), ..Output::default() };
    let files = Files::new(&request("provision"));
    let ran = ran(&Noting::answering(Ok(output)), "provision", &files.variables()).await;
    assert_eq!(ran.code, 1);
    assert_eq!(ran.json()["error"], "Failed");
    assert!(!files.names().contains(&"state.out".to_owned()));
}

#[tokio::test]
async fn a_failure_of_version_2_is_a_report_and_its_own_code() {
    let cases = [
        (FailureKind::Failed, 1, "Failed"),
        (FailureKind::Unsupported, 8, "Unsupported"),
        (FailureKind::Conflict, 11, "Conflict"),
        (FailureKind::Gone, 12, "Gone"),
        (FailureKind::Invalid, 13, "BadRequest"),
        (FailureKind::Busy, 14, "ConcurrencyError"),
        (FailureKind::Transient, 75, "Unavailable"),
    ];
    let files = Files::new(&request("update"));
    for (kind, code, word) in cases {
        let failure = Failure {
            instance_usable: Some(true),
            update_repeatable: Some(false),
            retry_after: Some(9),
            ..Failure::new(kind, "no room")
        };
        let ran = ran(&Noting::answering(Err(failure)), "update", &files.variables()).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (code, "broker: no room\n"));
        let expected = json!({
            "error": word, "description": "no room", "instance_usable": true,
            "update_repeatable": false, "retry_after": 9,
        });
        assert_eq!(ran.json(), expected);
        assert_eq!(contract::failure_kind(i32::from(ran.code)), Some(kind));
    }
}

#[tokio::test]
async fn what_a_broker_does_not_do_is_unsupported() {
    let files = Files::new(&request("update"));
    let ran = ran(&Minimal, "update", &files.variables()).await;
    assert_eq!((ran.code, ran.json()["error"].clone()), (8, json!("Unsupported")));
    assert_eq!(ran.stderr, "broker: this broker does not support update\n");
}

/// It has done the work, or begun it: that is not what is missing.
#[tokio::test]
async fn a_broker_that_cannot_be_asked_how_far_work_has_come_says_which_method_it_lacks() {
    let files = Files::new(&request("provision"));
    let ran = ran(&Minimal, "last-operation --operation task-7", &files.variables()).await;
    assert_eq!(ran.code, 8);
    let words =
        "this broker cannot say how far a provision has come: it lacks Broker::last_operation";
    assert_eq!(ran.stderr, format!("broker: {words}\n"));
}

#[tokio::test]
async fn work_that_goes_on_elsewhere_is_asked_after() {
    let files = Files::new(&request("bind"));
    let elsewhere = Output { external_operation: Some("task-7".to_owned()), ..Output::default() };
    let started = ran(&Noting::answering(Ok(elsewhere.clone())), "bind", &files.variables()).await;
    assert_eq!(started.json(), json!({"async": true, "operation": "task-7"}));

    let old = ran(&Noting::answering(Ok(elsewhere)), &format!("bind {FLAGS}"), &[]).await;
    assert_eq!((old.code, old.stdout.as_str()), (1, ""), "version 1 would take it for done");

    let asked = "last-operation --operation task-7";
    let credentials = json!({"uri": "u"}).as_object().cloned().map(Sensitive::new);
    let output = Output {
        binding: Some(BindingBody { credentials, ..BindingBody::default() }),
        state: Some(json!(1).into()),
        ..Output::default()
    };
    let standings = [
        (
            Standing::InProgress { description: Some("half".to_owned()), retry_after: Some(5) },
            json!({"state": "in progress", "description": "half", "retry_after": 5}),
        ),
        (
            Standing::Succeeded(Box::new(output)),
            json!({"state": "succeeded", "credentials": {"uri": "u"}}),
        ),
    ];
    for (standing, expected) in standings {
        let broker = Noting { standing: Some(standing), ..Noting::default() };
        let ran = ran(&broker, asked, &files.variables()).await;
        assert_eq!((ran.code, ran.json()), (0, expected));
        let (work, operation) = broker.seen.lock().unwrap()[0].clone();
        assert_eq!((work.action, operation.as_deref()), (Action::Bind, Some("task-7")));
    }
    assert_eq!(files.read("state.out"), json!(1));
}

#[tokio::test]
async fn a_description_is_for_version_2() {
    let output = Output { description: Some("on node 3".to_owned()), ..Output::default() };
    let (broker, files) = (Noting::answering(Ok(output)), Files::new(&request("provision")));
    let new = ran(&broker, "provision", &files.variables()).await;
    assert_eq!(new.json(), json!({"description": "on node 3"}));
    assert_eq!(ran(&broker, &format!("provision {FLAGS}"), &[]).await.json(), json!({}));
}

#[tokio::test]
async fn a_result_that_cannot_be_written_is_a_failure() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut stderr = Vec::new();
    let arguments = ["catalog".into()];
    let code = run(&Minimal, arguments, |_| None, &mut Full, &mut stderr).await;
    assert_eq!(code, 1);
    assert!(!stderr.is_empty());
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_named_and_not_shown() {
    #[derive(Debug, serde::Deserialize)]
    struct Wanted {
        #[serde(rename = "password")]
        _password: u32,
    }
    let files = Files::new(&request("provision"));
    let broker = Noting::default();
    ran(&broker, "provision", &files.variables()).await;
    let failure = broker.work().parameters::<Wanted>().unwrap_err();
    assert_eq!(failure.kind, FailureKind::Invalid);
    assert_eq!(failure.description, "parameters do not fit: password: expected u32");
}
