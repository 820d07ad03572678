use agent::MAX_CONTAINERS;
use serde_json::{Value, json};

use crate::quarks::faults;

fn good() -> Value {
    json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {"name": "a"},
        "spec": {
            "trigger": {"strategy": "once", "schedule": "0 3 * * *", "inputs": [{"name": "A"}]},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"backoffLimit": 1, "podReplacementPolicy": "Failed", "template": {
                    "metadata": {"annotations": {"c": "d"}},
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "c", "image": "i", "env": [{"name": "E", "value": "v"}],
                            "resources": {"limits": {"cpu": 1, "memory": "8Mi"}}}],
                    },
                }},
            },
            "output": {"outputMap": {"c": {"o.json": {"name": "s", "persistencemethod": "fan-out"}}}},
        },
    })
}

#[test]
fn what_is_as_it_should_be_has_no_fault() {
    assert_eq!(faults(&good()), [""; 0]);
    for file in ["./o.json", "/o.json", "sub/./o.json"] {
        let mut cleaned = good();
        cleaned["spec"]["output"]["outputMap"]["c"] = json!({file: {"name": "s"}});
        assert_eq!(faults(&cleaned), [""; 0], "{file}");
    }
    let mut of_one_name = good();
    of_one_name["spec"]["output"]["outputMap"]["c"] = json!({
        "plain.json": {"name": "s"},
        "versions.json": {"name": "s", "versioned": true},
        "each.json": {"name": "s", "persistencemethod": "fan-out"},
        "map.json": {"name": "s", "kind": "ConfigMap"},
    });
    assert_eq!(faults(&of_one_name), [""; 0], "each has a name of its own");
    let extended = json!({
        "apiVersion": "fissile.cloudfoundry.org/v1alpha1", "kind": "ExtendedJob",
        "metadata": {"generateName": "a-"},
        "spec": {
            "trigger": {"strategy": "manual"},
            "output": {"namePrefix": "p", "versioned": true},
            "template": {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "c"}]}},
        },
    });
    assert_eq!(faults(&extended), [""; 0]);
    let mut of_job = extended;
    of_job["spec"]["template"] = good()["spec"]["template"].clone();
    assert_eq!(faults(&of_job), [""; 0], "as in their last releases");
    of_job["spec"]["template"]["backoffLimit"] = json!(2);
    let words = "spec.template.backoffLimit: does nothing here: it belongs to spec.template.spec.backoffLimit";
    assert_eq!(faults(&of_job), [words]);
}

#[test]
fn each_fault_has_its_path_and_a_remedy() {
    let container = "/spec/template/spec/template/spec/containers/0";
    for (pointer, member, value, expected) in [
        (
            "/spec/output",
            "outputMap",
            json!(null),
            "spec.output.outputMap: is missing: nothing is kept",
        ),
        (
            "/spec/output",
            "namePrefix",
            json!("p"),
            "spec.output.namePrefix: does nothing beside outputMap: remove it",
        ),
        ("/spec/output", "versioned", json!(1), "spec.output.versioned: has to be true or false"),
        (
            "/spec/template",
            "backoffLimit",
            json!(2),
            "spec.template.backoffLimit: does nothing here: it belongs to spec.template.spec.backoffLimit",
        ),
        (
            "/spec/template/spec",
            "restartPolicy",
            json!("Never"),
            "spec.template.spec.restartPolicy: does nothing here: it belongs to spec.template.spec.template.spec.restartPolicy",
        ),
        (
            container,
            "comand",
            json!([]),
            "spec.template.spec.template.spec.containers[0].comand: is not known, and does nothing: remove it",
        ),
        (container, "image", json!(7), "spec.template.spec.template.spec.containers[0].image: "),
        (
            "/spec/template/spec/template/spec",
            "restartPolicy",
            json!("Always"),
            "spec.template.spec.template.spec.restartPolicy: has to be Never or OnFailure in a Job",
        ),
        (
            "/spec/template/spec/template/spec",
            "containers",
            json!([]),
            "spec.template.spec.template.spec.containers: is missing",
        ),
        (
            "/spec",
            "updateonconfigchange",
            json!(true),
            "spec.updateonconfigchange: is spelled updateOnConfigChange",
        ),
        (
            "/spec",
            "updateOnConfigChange",
            json!("yes"),
            "spec.updateOnConfigChange: has to be true or false",
        ),
        (
            "/spec",
            "concurrencyPolicy",
            json!("Skip"),
            "spec.concurrencyPolicy: has to be one of Allow, Forbid, Queue, Replace",
        ),
        (
            "/spec",
            "failedJobsHistoryLimit",
            json!(-1),
            "spec.failedJobsHistoryLimit: has to be a whole number",
        ),
        ("/spec", "dependsOn", json!("other"), "spec.dependsOn: has to be a list of names"),
        ("/spec", "template", Value::Null, "spec.template: is missing"),
        (
            "/spec/trigger",
            "strategy",
            json!("never"),
            "spec.trigger.strategy: has to be one of manual",
        ),
        (
            "/spec/trigger",
            "strategy",
            Value::Null,
            "spec.trigger.strategy: is missing: it never runs",
        ),
        ("/spec/trigger", "schedule", json!("0 25 * * *"), "spec.trigger.schedule: "),
        ("/spec/trigger", "schedule", json!(7), "spec.trigger.schedule: has to be a string"),
        ("/spec/trigger", "timeZone", json!("Vienna"), "spec.trigger.timeZone: Vienna is no zone"),
        (
            "/spec/trigger",
            "inputs",
            json!([{"value": "x"}]),
            "spec.trigger.inputs[0].name: has to be",
        ),
        (
            "/spec/output",
            "secretLabels",
            json!({"a": 1}),
            "spec.output.secretLabels: has to be an object whose values are strings",
        ),
        (
            "/spec/output/outputMap",
            "other",
            json!({"o.json": {"name": "t"}}),
            "spec.output.outputMap.other: there is no container",
        ),
        (
            "/spec/output/outputMap/c",
            "p.json",
            json!({"name": "s", "persistencemethod": "fan-out"}),
            "spec.output.outputMap.c[\"p.json\"]: goes where another file goes",
        ),
        (
            "/spec/output/outputMap/c",
            "../p.json",
            json!({"name": "t"}),
            "spec.output.outputMap.c[\"../p.json\"]: is no path within /mnt/quarks",
        ),
        (
            "/spec/output/outputMap/c",
            "/mnt/quarks/p.json",
            json!({"name": "t"}),
            "spec.output.outputMap.c[\"/mnt/quarks/p.json\"]: is looked for within /mnt/quarks",
        ),
        (
            "/spec/output/outputMap/c",
            "",
            json!({"name": "t"}),
            "spec.output.outputMap.c[\"\"]: is no path within /mnt/quarks",
        ),
        (
            "/spec/output/outputMap/c/o.json",
            "persistenceMethod",
            json!("fan-out"),
            "spec.output.outputMap.c[\"o.json\"].persistenceMethod: is spelled persistencemethod",
        ),
        (
            "/spec/output/outputMap/c/o.json",
            "persistencemethod",
            json!("fanout"),
            "spec.output.outputMap.c[\"o.json\"].persistencemethod: has to be one of one-to-one, fan-out",
        ),
        (
            "/spec/output/outputMap/c/o.json",
            "name",
            json!("My_Secret"),
            "spec.output.outputMap.c[\"o.json\"].name: becomes my-secret: write it so",
        ),
        (
            "/spec/output/outputMap/c/o.json",
            "kind",
            json!("configmap"),
            "spec.output.outputMap.c[\"o.json\"].kind: has to be one of Secret, ConfigMap",
        ),
    ] {
        let mut object = good();
        object.pointer_mut(pointer).unwrap()[member] = value;
        let found = faults(&object);
        assert!(
            matches!(found.as_slice(), [fault] if fault.starts_with(expected)),
            "{pointer}/{member}: {found:#?}, not {expected}"
        );
    }
}

#[test]
fn a_pod_of_which_output_is_kept_has_no_more_containers_than_can_say_where_it_is() {
    let named = |name: &str, count: usize| -> Vec<Value> {
        (0..count).map(|at| json!({"name": format!("{name}-{at}"), "image": "i"})).collect()
    };
    let quarks = |containers: usize, first: usize| {
        let mut object = good();
        let pod = &mut object["spec"]["template"]["spec"]["template"]["spec"];
        pod["containers"].as_array_mut().unwrap().extend(named("d", containers - 1));
        pod["initContainers"] = named("first", first).into();
        object
    };
    let without_output = |mut object: Value| {
        object["spec"].as_object_mut().unwrap().remove("output");
        object
    };
    let extended = |command: Value| {
        let mut containers = named("c", MAX_CONTAINERS + 1);
        containers[0]["command"] = command;
        json!({
            "apiVersion": "fissile.cloudfoundry.org/v1alpha1", "kind": "ExtendedJob",
            "metadata": {"name": "a"},
            "spec": {
                "trigger": {"strategy": "manual"},
                "output": {"namePrefix": "p"},
                "template": {"spec": {"restartPolicy": "Never", "containers": containers}},
            },
        })
    };
    let (most, job) = (MAX_CONTAINERS, "spec.template.spec.template.spec.containers");
    for (name, object, path) in [
        ("as many as may be", quarks(most, 0), None),
        ("as many, with those of the beginning", quarks(most - 3, 3), None),
        ("one more", quarks(most + 1, 0), Some(job)),
        ("one more of the beginning", quarks(most, 1), Some(job)),
        ("one more, and nothing is kept", without_output(quarks(most + 1, 0)), None),
        ("one more, and there are logs", extended(Value::Null), None),
        (
            "one more, around a command",
            extended(json!(["c"])),
            Some("spec.template.spec.containers"),
        ),
    ] {
        let expected: Vec<String> = path
            .map(|path| {
                format!(
                    "{path}: has {} with initContainers, of {most} whose output can be kept: have fewer in one pod",
                    most + 1
                )
            })
            .into_iter()
            .collect();
        assert_eq!(faults(&object), expected, "{name}");
    }
}

#[test]
fn a_name_without_room_for_the_numbers_of_many_versions_is_a_fault() {
    let said = |length: usize, versioned: bool, kind: &str| {
        let mut object = good();
        object["spec"]["output"]["outputMap"]["c"]["o.json"] =
            json!({"name": "s".repeat(length), "versioned": versioned, "kind": kind});
        faults(&object)
    };
    for (name, length, versioned, is_at_fault) in [
        ("the longest", 245, true, false),
        ("one letter more", 246, true, true),
        ("room for nine", 250, true, true),
        ("no versions", 250, false, false),
    ] {
        let path = r#"spec.output.outputMap.c["o.json"].name"#;
        let expected = format!(
            "{path}: has {length} letters, of 245 that leave room for the numbers of a million versions; each further one \
             leaves room for a tenth: write a shorter name"
        );
        let expected: Vec<String> = is_at_fault.then_some(expected).into_iter().collect();
        assert_eq!(said(length, versioned, "Secret"), expected, "{name}");
    }
}

#[test]
fn all_faults_are_said_at_once() {
    let mut object = good();
    object["spec"] = json!({"strategy": "now"});
    assert_eq!(faults(&object).len(), 3, "{:#?}", faults(&object));
    assert_eq!(faults(&json!({"kind": "Job"})).len(), 1);
}

#[test]
fn nothing_is_too_odd_to_be_looked_at() {
    let mut object = good();
    for odd in [json!(null), json!(7), json!("x"), json!([1, {}]), json!({"a": {"b": [null]}})] {
        for pointer in [
            "",
            "/spec",
            "/spec/trigger",
            "/spec/template",
            "/spec/template/spec",
            "/spec/output",
            "/spec/output/outputMap",
            "/spec/output/outputMap/c",
            "/spec/output/outputMap/c/o.json",
        ] {
            let mut odder = object.clone();
            *odder.pointer_mut(pointer).unwrap() = odd.clone();
            faults(&odder);
        }
    }
    object["spec"]["trigger"]["inputs"] = json!([null, 1, []]);
    assert_eq!(faults(&object).len(), 3);
}

#[test]
fn what_is_found_where_something_else_is_expected_is_not_shown() {
    let container = "/spec/template/spec/template/spec/containers/0";
    for (pointer, member, value) in [
        ("/spec/trigger", "inputs", json!([{"name": "A", "valueFrom": "planted"}])),
        ("/spec/trigger", "inputs", json!([{"name": "A", "value": ["planted"]}])),
        (container, "env", json!("planted")),
        (container, "env", json!([{"name": "A", "valueFrom": "planted"}])),
    ] {
        let mut object = good();
        object.pointer_mut(pointer).unwrap()[member] = value;
        let found = faults(&object);
        assert!(!found.is_empty() && !found.concat().contains("planted"), "{found:?}");
    }
}
