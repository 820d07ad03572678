use std::io::Read as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::stub::{Run, Stub, answer, operation, raw, record};

#[test]
fn refusals_end_with_a_number_each() {
    let cases = [
        (400, 4),
        (401, 7),
        (403, 7),
        (404, 6),
        (409, 4),
        (410, 6),
        (422, 4),
        (429, 4),
        (500, 5),
        (503, 5),
    ];
    for (status, code) in cases {
        let stub = Stub::new(move |request| {
            let body = json!({"error": "Word", "description": "the reason"});
            (request.method == "PUT").then(|| answer(status, &body))
        });
        let run = stub.run(&["provision", "db", "small", "i", "-o", "json"]);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{status}: {run:?}");
        let error: Value = serde_json::from_str(&run.stderr).unwrap();
        assert_eq!(error["error"]["exit_code"], code);
        assert_eq!(error["error"]["status"], status);
        assert_eq!(error["error"]["error"], "Word");
        assert_eq!(error["error"]["description"], "the reason");
    }
}

#[test]
fn an_answer_that_makes_no_sense_is_the_brokers_failure() {
    let stub = Stub::new(|_| Some(raw(200, b"<html>")));
    assert_eq!(stub.run(&["catalog"]).code, 5);
}

#[test]
fn an_operation_that_failed_says_why_and_what_to_do() {
    let stub = Stub::polled(&[json!({"state": "failed", "description": "no disk left"})]);
    let run = stub.run(&["provision", "db", "small", "i"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("the provision of instance i failed: no disk left"), "{run:?}");
    assert!(run.stderr.contains("manciple retry i"), "{run:?}");
    assert!(stub.requests().iter().all(|request| request.method != "DELETE"), "left to look at");
}

#[test]
fn a_broker_that_is_not_there_is_unreachable() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
    // Nobody listens on port 1.
    let run = Run::from(
        command.env_clear().args(["catalog", "--url", "http://127.0.0.1:1"]).output().unwrap(),
    );
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("--url"), "{run:?}");
}

#[test]
fn waiting_ends_in_time_and_the_operation_goes_on() {
    let stub = Stub::polled(&[json!({"state": "in progress"})]);
    let run = stub.run(&["provision", "db", "small", "i", "--timeout", "1s"]);
    assert_eq!(run.code, 8, "{run:?}");
    assert!(run.stderr.contains("manciple status i --watch"), "{run:?}");
}

#[test]
fn a_server_that_went_away_while_it_was_waited_for_is_unreachable() {
    let polls = std::sync::atomic::AtomicU32::new(0);
    let stub = Stub::new(move |request| {
        if !request.path.ends_with("/last_operation") {
            return (request.method == "PUT").then(|| answer(202, &json!({})));
        }
        Some(match polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => answer(200, &json!({"state": "in progress", "description": "making disks"})),
            _ => crate::stub::cut_short(b"{"),
        })
    });
    let run = stub.run(&["provision", "db", "small", "i", "--timeout", "2s"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("it was last seen in progress: making disks"), "{run:?}");
    assert!(run.stderr.contains("manciple status i --watch"), "{run:?}");
}

#[test]
fn an_interrupted_wait_says_that_the_operation_goes_on() {
    for signal in ["-INT", "-TERM"] {
        let stub = Stub::polled(&[json!({"state": "in progress"})]);
        let mut child = stub.command(&["provision", "db", "small", "i"]).spawn().unwrap();
        while !stub.requests().iter().any(|request| request.path.ends_with("/last_operation")) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        assert_eq!(child.wait().unwrap().code(), Some(8));
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        assert!(stderr.contains("the provision of instance i goes on"), "{stderr}");
        assert!(stderr.contains("manciple status i --watch"), "{stderr}");
    }
}

#[test]
fn unknown_names_list_the_choices() {
    let stub = Stub::at_once();
    for (arguments, choices) in [
        (["provision", "nope", "small"], "the services are: db"),
        (["provision", "db", "nope"], "the plans are: large, small"),
    ] {
        let run = stub.run(&arguments);
        assert_eq!(run.code, 6, "{run:?}");
        assert!(run.stderr.contains(choices), "{run:?}");
    }
}

#[test]
fn wrong_usage_is_two_and_json_where_it_is_wanted() {
    let stub = Stub::at_once();
    for arguments in [vec!["nope"], vec!["provision"], vec!["catalog", "--timeout", "soon"]] {
        let run = stub.run(&arguments);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{run:?}");
        let run = stub.run(&[arguments.as_slice(), &["-o", "json"]].concat());
        let error: Value = serde_json::from_str(&run.stderr).unwrap();
        assert_eq!(error["error"]["kind"], "usage", "{run:?}");
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn the_help_has_the_numbers() {
    let run = Stub::at_once().run(&["--help"]);
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("8  Waiting was interrupted"), "{run:?}");
    assert!(run.stdout.contains("9  What was asked for is done"), "{run:?}");
}

/// Runs with a standard output that takes nothing, as a disk that is full.
fn with_full_output(stub: &Stub, arguments: &[&str]) -> Run {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    Run::from(stub.command(arguments).stdout(full).output().unwrap())
}

#[test]
fn what_is_done_and_cannot_be_printed_says_how_to_see_it() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("backup");
    let to = to.to_str().unwrap();
    let cases: [(&[&str], &str); 13] = [
        (&["--version"], "the same command prints it again"),
        (&["--help"], "the same command prints it again"),
        (&["man"], "the same command prints it again"),
        (&["catalog"], "the same command prints it again"),
        (&["logs", "r-1"], "the same command prints it again"),
        (&["provision", "db", "small", "i"], "manciple status i"),
        (&["bind", "i", "b"], "the same order prints it again: manciple bind i b"),
        (&["rotate", "i", "old", "new"], "manciple rotate i old new"),
        (&["unbind", "i", "b"], "manciple status i b"),
        (&["deprovision", "i", "--quiet"], "manciple status i"),
        (&["retry", "i"], "manciple status i"),
        (&["purge", "i", "--yes"], "manciple instances --state all"),
        (&["backup", "--to", to], to),
    ];
    let stub = Stub::at_once();
    for (arguments, remedy) in cases {
        let run = with_full_output(&stub, arguments);
        assert_eq!(run.code, 9, "{arguments:?}: {run:?}");
        let said = "cannot print the result: standard output: ";
        assert!(run.stderr.contains(said), "{arguments:?}: {run:?}");
        assert!(run.stderr.contains("what was asked for is done"), "{arguments:?}: {run:?}");
        let hint = run.stderr.split_once("hint: ").map_or("", |(_, hint)| hint);
        assert!(hint.contains(remedy), "{arguments:?}: {run:?}");
    }
    stub.request("PUT /v2/service_instances/i/service_bindings/b");
    stub.request("POST /admin/v1/purge");
    assert!(std::fs::exists(to).unwrap());
}

#[test]
fn a_binding_whose_id_was_made_up_and_not_printed_can_be_asked_for() {
    let stub = Stub::at_once();
    let run = with_full_output(&stub, &["bind", "i", "-o", "json"]);
    assert_eq!(run.code, 9, "{run:?}");
    let sent = stub.requests().into_iter().find(|request| request.method == "PUT").unwrap();
    let id = sent.path.rsplit('/').next().unwrap();
    let error: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "not-printed");
    let hint = error["error"]["hint"].as_str().unwrap();
    assert!(hint.contains(&format!("manciple bind i {id}")), "{hint}");
}

#[test]
fn that_an_operation_failed_is_more_than_that_it_cannot_be_printed() {
    let stub = Stub::new(|request| {
        if request.path.ends_with("/last_operation") {
            return Some(answer(200, &json!({"state": "failed", "description": "no disk left"})));
        }
        let busy = record("i", None, "creating", &operation("provision", "running"));
        (request.path == "/admin/v1/record").then(|| answer(200, &busy))
    });
    let run = with_full_output(&stub, &["status", "i", "--watch"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("no disk left"), "{run:?}");
}

#[test]
fn an_operation_that_is_not_known_is_an_answer_that_is_not_understood() {
    for command in [["status", "i", "--watch"], ["retry", "i", "--quiet"]] {
        let stub = Stub::new(|request| {
            let unknown = record("i", None, "ready", &operation("migrate", "running"));
            request.path.starts_with("/admin/v1/").then(|| answer(200, &unknown))
        });
        let run = stub.run(&command);
        assert_eq!(run.code, 5, "{run:?}");
        assert!(run.stderr.contains("an operation of a newer server"), "{run:?}");
    }
}

#[test]
fn completions_and_man_pages_come_from_the_command_line() {
    let stub = Stub::at_once();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = stub.run(&["completions", shell]);
        assert!(run.code == 0 && run.stdout.contains("deprovision"), "{shell}");
    }
    let run = stub.run(&["man"]);
    for part in [".SH \"EXIT STATUS\"", ".SH ENVIRONMENT", "manciple\\-provision(1)"] {
        assert!(run.stdout.contains(part), "{part}: {}", run.stdout);
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(stub.run(&["man", "--dir", dir.path().to_str().unwrap()]).code, 0);
    for page in ["manciple-provision.1", "manciple-job.1", "manciple-job-run.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    assert!(!dir.path().join("manciple-supervise.1").exists());
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let items = |count: usize| {
        let operation = crate::stub::operation("provision", "succeeded");
        let item = crate::stub::record("i", None, "ready", &operation);
        json!({"items": vec![item; count]})
    };
    let stub = Stub::new(move |request| {
        (request.path == "/admin/v1/instances").then(|| answer(200, &items(5000)))
    });
    let mut child = stub.command(&["instances"]).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(stderr, "");
}

#[test]
fn a_certificate_is_trusted_only_by_name() {
    let (stub, certificate) = Stub::over_tls();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, certificate).unwrap();
    let run = stub.run(&["catalog", "--ca-file", path.to_str().unwrap()]);
    assert_eq!(run.code, 0, "{run:?}");

    let (other, _) = Stub::over_tls();
    let run = other.run(&["catalog", "--ca-file", path.to_str().unwrap()]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("hint: name the authority"), "{run:?}");
}

#[test]
fn a_certificate_that_does_not_fit_is_refused_with_what_to_do_about_it() {
    use rcgen::{BasicConstraints, IsCa, date_time_ymd};
    type Spoil = fn(&mut rcgen::CertificateParams);
    let cases: [(&str, Spoil, &[&str]); 3] = [
        (
            "an authority's, as openssl makes it",
            |made| made.is_ca = IsCa::Ca(BasicConstraints::Unconstrained),
            &["CA:TRUE", "basicConstraints=critical,CA:FALSE", "--ca-file tls.crt"],
        ),
        (
            "for another name",
            |made| made.subject_alt_names.truncate(0),
            &["hint: --url must name the broker by a name"],
        ),
        (
            "expired",
            |made| made.not_after = date_time_ymd(2020, 1, 1),
            &["hint: the broker needs a new certificate"],
        ),
    ];
    for (case, spoil, hints) in cases {
        let (stub, certificate) = Stub::over_tls_with(spoil);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        std::fs::write(&path, certificate).unwrap();
        let run = stub.run(&["catalog", "--ca-file", path.to_str().unwrap()]);
        assert_eq!(run.code, 3, "{case}: {run:?}");
        for hint in hints {
            assert!(run.stderr.contains(hint), "{case}: {run:?}");
        }
    }
}

#[test]
fn an_empty_variable_counts_as_absent() {
    // Neither is to begin its work.
    let ended = |command: &[&str], variables: &[(&str, &str)]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_manciple"));
        program.env_clear().env("KUBECONFIG", "/no/such").args(command);
        program.envs(variables.iter().copied());
        let run = Run::from(program.output().unwrap());
        (run.code, run.stderr)
    };
    let serve = ["MANCIPLE_OPEN_METRICS", "MANCIPLE_LOG_FORMAT"];
    let controller = ["MANCIPLE_DRIFT", "MANCIPLE_STRICT", "APPLY_CRD", "MAX_WORKERS", "LOG_LEVEL"];
    for (command, variables) in
        [(&["serve", "--config", "/no/such"][..], &serve[..]), (&["controller"], &controller)]
    {
        let bare = ended(command, &[]);
        let empty: Vec<_> = variables.iter().map(|name| (*name, "")).collect();
        assert_eq!(ended(command, &empty), bare, "{command:?}");
        for name in variables {
            assert_ne!(ended(command, &[(name, "no/such")]), bare, "{command:?}: {name} is read");
        }
    }
}
