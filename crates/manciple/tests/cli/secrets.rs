use std::time::Duration;

use serde_json::json;

use crate::stub::{Stub, answer};

const BASIC: &str = "Basic dTpodW50ZXIy";

#[test]
fn a_password_comes_from_the_environment_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    std::fs::write(&path, "hunter2\n").unwrap();
    let stub = Stub::at_once();
    let arguments = ["catalog", "--user", "u", "--password-file", path.to_str().unwrap()];
    assert_eq!(stub.run(&arguments).code, 0);
    let mut command = stub.command(&["catalog"]);
    command.env("MANCIPLE_USER", "u").env("MANCIPLE_PASSWORD", "hunter2");
    assert!(command.output().unwrap().status.success());
    for request in stub.requests() {
        assert_eq!(request.authorization.as_deref(), Some(BASIC));
    }
}

#[test]
fn a_token_comes_from_the_environment_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    std::fs::write(&path, "t0ken\n").unwrap();
    let stub = Stub::at_once();
    assert_eq!(stub.run(&["--token-file", path.to_str().unwrap(), "catalog"]).code, 0);
    assert!(
        stub.command(&["catalog"])
            .env("MANCIPLE_TOKEN", "t0ken")
            .output()
            .unwrap()
            .status
            .success()
    );
    for request in stub.requests() {
        assert_eq!(request.authorization.as_deref(), Some("Bearer t0ken"));
    }
}

#[test]
fn credentials_that_contradict_each_other_are_refused() {
    let stub = Stub::at_once();
    type Case = (&'static [&'static str], &'static [(&'static str, &'static str)]);
    let cases: [Case; 4] = [
        (&["catalog", "--user", "u"], &[]),
        (&["catalog", "--password-file", "p"], &[]),
        (&["catalog", "--user", "u", "--token-file", "t"], &[]),
        (&["catalog"], &[("MANCIPLE_USER", "u"), ("MANCIPLE_TOKEN", "hunter2")]),
    ];
    for (arguments, environment) in cases {
        let output = stub.command(arguments).envs(environment.iter().copied()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!String::from_utf8(output.stderr).unwrap().contains("hunter2"));
    }
    assert!(stub.requests().is_empty());
}

#[test]
fn a_password_is_in_no_argument_and_no_output() {
    let stub = Stub::new(|request| {
        let slow = request.path.ends_with("/catalog");
        if slow {
            std::thread::sleep(Duration::from_millis(500));
        }
        slow.then(|| answer(401, &json!({"description": "wrong password"})))
    });
    let mut command = stub.command(&["catalog", "--user", "u"]);
    let child = command.env("MANCIPLE_PASSWORD", "hunter2").spawn().unwrap();
    while stub.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let line = std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    let line = String::from_utf8(line).unwrap();
    assert!(line.contains("catalog") && !line.contains("hunter2"), "{line}");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let printed = [output.stdout, output.stderr].concat();
    assert!(!String::from_utf8(printed).unwrap().contains("hunter2"));
}

#[test]
fn a_password_as_an_argument_is_refused_and_not_repeated() {
    let stub = Stub::at_once();
    for arguments in [
        vec!["catalog", "--password=hunter2"],
        vec!["catalog", "--url", "http://u:hunter2@127.0.0.1"],
    ] {
        let run = stub.run(&arguments);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(!run.stderr.contains("hunter2"), "{run:?}");
    }
}

#[test]
fn parameters_are_not_repeated_in_errors() {
    let stub = Stub::at_once();
    for parameters in ["hunter2", "[\"hunter2\"]", "{\"a\": hunter2}"] {
        let run = stub.run(&["provision", "db", "small", "--parameters", parameters]);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(!run.stderr.contains("hunter2"), "{run:?}");
    }
    assert!(stub.requests().is_empty());
}
