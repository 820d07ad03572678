//! `manciple job lint`: faults of manifests by their paths.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// What it says of these files, or of this text.
fn lint(files: &[&str], text: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
    command.args(["job", "lint"]).args(files).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const GOOD: &str = "
apiVersion: quarks.cloudfoundry.org/v1alpha1
kind: QuarksJob
metadata: {name: good}
spec:
  trigger: {strategy: once}
  template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
";

#[test]
fn the_examples_have_no_faults() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/quarks-jobs");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<String> = files.map(|path| path.display().to_string()).collect();
    files.retain(|path| path.ends_with(".yaml"));
    assert!(files.len() > 10, "{files:?}");
    let said = lint(&files.iter().map(String::as_str).collect::<Vec<_>>(), "");
    assert_eq!(said.status.code(), Some(0), "{}{}", text(&said.stdout), text(&said.stderr));
    assert_eq!(text(&said.stdout), "");
}

#[test]
fn each_fault_of_each_document_is_a_line() {
    let wrong = GOOD
        .replace("name: good", "name: wrong")
        .replace("strategy: once", "strategy: once, schedule: '61 * * * *'")
        .replacen("template: {spec", "template: {backoffLimit: 2, spec", 1);
    let config = "kind: ConfigMap\napiVersion: v1\nmetadata: {name: other}\nspec: 7\n";
    let said = lint(&["-"], &format!("{config}---{GOOD}---{wrong}"));
    let lines: Vec<String> = text(&said.stdout).lines().map(str::to_owned).collect();
    let [schedule, limit] = lines.as_slice() else { panic!("{lines:#?}") };
    assert!(schedule.starts_with("-: wrong: spec.trigger.schedule: "), "{schedule}");
    assert!(
        limit.starts_with("-: wrong: spec.template.backoffLimit: does nothing here"),
        "{limit}"
    );
    assert_eq!(said.status.code(), Some(2));
    assert!(text(&said.stderr).contains("2 faults, 2 looked at"), "{}", text(&said.stderr));
}

#[test]
fn a_program_is_told_by_a_document() {
    let said = lint(&["-o", "json", "-"], &GOOD.replace("strategy: once", "strategy: sometimes"));
    assert_eq!(said.status.code(), Some(2));
    let document: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let [fault] = document["faults"].as_array().unwrap().as_slice() else { panic!("{document}") };
    assert_eq!(document["looked_at"], 1);
    assert_eq!(fault["file"], "-");
    assert_eq!(fault["object"], "good");
    assert_eq!(fault["path"], "spec.trigger.strategy");
    assert_ne!(fault["message"], "");
    let failure: serde_json::Value = serde_json::from_slice(&said.stderr).unwrap();
    assert_eq!(failure["error"]["exit_code"], 2);
}

#[test]
fn a_list_as_kubectl_prints_it_is_looked_through() {
    let items = GOOD.trim().replace('\n', "\n    ");
    let said = lint(&["-"], &format!("kind: List\nitems:\n  - {items}\n  - {items}"));
    assert_eq!(said.status.code(), Some(0), "{}{}", text(&said.stdout), text(&said.stderr));
    assert!(text(&said.stderr).contains("2 looked at"), "{}", text(&said.stderr));
}

#[test]
fn what_cannot_be_looked_at_is_said() {
    for (files, given, words) in [
        (&["/no/such/file"][..], "", "cannot read /no/such/file"),
        (&["-"], "kind: Job", "there is no QuarksJob or ExtendedJob in -"),
        (&["-"], "a: [", "-: "),
        (&["-"], "", "there is no QuarksJob"),
        (&["-"], "hello", "there is no QuarksJob"),
        (&["-"], "- items: []", "there is no QuarksJob"),
        (&["-"], "42\n---\nitems: 1", "there is no QuarksJob"),
        (&[], "", "required"),
    ] {
        let said = lint(files, given);
        assert_eq!(said.status.code(), Some(2), "{files:?} {given}");
        assert!(text(&said.stderr).contains(words), "{}", text(&said.stderr));
    }
}
