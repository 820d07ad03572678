//! What the programs make of chart and overlays that people give them to.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;
use crate::clients::program;

fn output(command: &mut Command, given: &str) -> Result<String, String> {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(given.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_owned()).unwrap();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// What Helm makes of the chart and values over its own.
pub(super) fn helm(release: Release<'_>, over: &Value) -> Option<Result<String, String>> {
    let chart = root().display().to_string();
    let of = ["template", release.name, &chart, "--namespace", release.namespace, "--values", "-"];
    Some(output(Command::new(program("helm")?).args(of), &over.to_string()))
}

/// Objects in an order of their own.
pub(super) fn sorted<'t>(texts: impl IntoIterator<Item = &'t String>) -> Vec<Value> {
    let mut all: Vec<_> = texts.into_iter().flat_map(|text| objects(text).unwrap()).collect();
    all.sort_by_key(Value::to_string);
    all
}

/// The folders below one that kubectl can be given.
fn overlays(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> =
        entries.filter(|path| path.is_dir()).flat_map(|it| overlays(&it)).collect();
    found.extend(folder.join("kustomization.yaml").is_file().then(|| folder.to_owned()));
    found
}

#[test]
fn helm_finds_nothing_to_say_of_the_chart() {
    let Some(helm) = program("helm") else { return testkit::skipped("there is no Helm") };
    let said = output(Command::new(helm).args(["lint", "--strict"]).arg(root()), "").unwrap();
    assert!(said.contains("1 chart(s) linted, 0 chart(s) failed"), "{said}");
    assert!(!said.contains("WARNING") && !said.contains("ERROR"), "{said}");
}

#[test]
fn helm_refuses_what_the_schema_of_values_does_and_names_it() {
    for (values, named) in [
        (json!({"brokr": {}}), "brokr"),
        (json!({"broker": {"imagee": "b:1"}}), "imagee"),
        (json!({"replicas": "two"}), "replicas"),
        (
            json!({"broker": {"name": 20240101}}),
            "'/broker/name': got number, want boolean or string",
        ),
        (json!({"replicas": null}), "missing property 'replicas'"),
        (
            json!({"networkPolicy": {"enabled": null}}),
            "'/networkPolicy': missing property 'enabled'",
        ),
        (json!({"networkPolicy": null}), "missing property 'networkPolicy'"),
        (
            json!({"templates": {"webhook": {"enabled": null}}}),
            "'/templates/webhook': missing property 'enabled'",
        ),
        (json!({"templates": {"enabled": true, "requesters": "everybody"}}), "requesters"),
    ] {
        let Some(made) = helm(HOME, &values) else { return testkit::skipped("there is no Helm") };
        let error = made.unwrap_err();
        assert!(error.contains(named), "{values}: {error}");
    }
}

/// A chart that this one is part of, as `helm create` would make it.
#[test]
fn helm_takes_the_chart_as_a_part_of_another_and_lets_that_one_leave_it_out() {
    let Some(helm) = program("helm") else { return testkit::skipped("there is no Helm") };
    let whole = std::env::temp_dir().join(format!("manciple-whole-{}", std::process::id()));
    let part = whole.join("charts/manciple");
    std::fs::create_dir_all(&part).unwrap();
    let copied = Command::new("cp").arg("-R").arg(root().join(".")).arg(&part).status();
    assert!(copied.unwrap().success());
    let about = "{apiVersion: v2, name: whole, version: 0.1.0, \
                 dependencies: [{name: manciple, version: 0.1.0, condition: manciple.enabled}]}";
    std::fs::write(whole.join("Chart.yaml"), about).unwrap();
    let template = |values: Value| {
        let of =
            ["template", "whole", &whole.display().to_string(), "--values", "-"].map(str::to_owned);
        output(Command::new(&helm).args(of), &values.to_string())
    };
    for (values, count) in [
        (json!({}), 1),
        (json!({"manciple": {"enabled": true}, "global": {"registry": "r"}}), 1),
        (json!({"manciple": {"enabled": false}}), 0),
    ] {
        let made = template(values.clone()).unwrap();
        assert_eq!(made.matches("kind: Deployment").count(), count, "{values}");
    }
    let error = template(json!({"manciple": {"networkPolicy": {"enabled": null}}})).unwrap_err();
    assert!(error.contains("'/networkPolicy': missing property 'enabled'"), "{error}");
    std::fs::remove_dir_all(&whole).unwrap();
}

/// The oldest is the cluster's, and of the words that the newest calls deprecated it knows no others.
#[test]
fn the_newest_kubectl_and_the_oldest_make_the_same_of_every_overlay() {
    let oldest = crate::cluster::program("kubectl").filter(|path| path.is_file());
    let (Some(newest), Some(oldest)) = (program("kubectl"), oldest) else {
        return testkit::skipped("there are not both");
    };
    let top = root().join("../..");
    let overlays = ["deploy", "examples"].map(|folder| overlays(&top.join(folder))).concat();
    assert!(overlays.len() > 10, "{overlays:?}");
    for overlay in overlays {
        let made_by = |kubectl: &Path| {
            let made = output(Command::new(kubectl).arg("kustomize").arg(&overlay), "");
            let mut made =
                sorted([&made.unwrap_or_else(|error| panic!("{}: {error}", overlay.display()))]);
            made.iter_mut().for_each(in_order);
            // The oldest says a namespace of what has none.
            for object in made.iter_mut().filter(|it| crate::kubectl::is_of_cluster(it)) {
                object["metadata"].as_object_mut().unwrap().remove("namespace");
            }
            made
        };
        let made = made_by(&newest);
        assert!(!made.is_empty(), "{}", overlay.display());
        // Servers that have these are newer than any kubectl of the old words.
        let is_policy =
            |it: &Value| it["kind"].as_str().is_some_and(|it| it.ends_with("AdmissionPolicy"));
        if !made.iter().any(is_policy) {
            assert_eq!(made, made_by(&oldest), "{}", overlay.display());
        }
    }
}
