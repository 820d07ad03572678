//! The rules of processing, one test each, named for the rule.

use serde_json::{Value, json};
use template::{Fault, Problem, Processed, Seeded, Template};

/// A template of these objects and parameters.
fn template(objects: Value, parameters: Value) -> Value {
    json!({
        "apiVersion": "template.openshift.io/v1", "kind": "Template",
        "metadata": {"name": "t"}, "objects": objects, "parameters": parameters,
    })
}

fn process(document: Value) -> Result<Processed, Vec<Fault>> {
    Template::read(document)?.process(&mut Seeded(1))
}

/// A ConfigMap that holds this.
fn holding(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

/// What has become of the only object's data.
fn data(held: Value, parameters: Value) -> Value {
    let processed = process(template(json!([holding(held)]), parameters)).unwrap();
    processed.objects[0]["data"].clone()
}

/// What is wrong, as people read it.
fn wrong(document: Value) -> Vec<String> {
    process(document).unwrap_err().iter().map(ToString::to_string).collect()
}

fn values(parameters: Value) -> Vec<String> {
    let processed = process(template(json!([]), parameters)).unwrap();
    processed.parameters.into_iter().map(|it| it.value).collect()
}

#[test]
fn a_value_wins_over_a_generator_and_a_generator_over_nothing() {
    let found = values(json!([
        {"name": "A", "value": "v", "generate": "expression", "from": "[a-a]{3}"},
        {"name": "B", "generate": "expression", "from": "x[a-a]{3}"},
        {"name": "C"},
        {"name": "D", "generate": "", "from": "[a-a]{3}"},
    ]));
    assert_eq!(found, ["v", "xaaa", "", ""]);
}

#[test]
fn what_is_required_and_empty_is_named_and_ends_it() {
    let found = wrong(template(
        json!([{"no": "kind"}]),
        json!([{"name": "A"}, {"name": "B", "required": true}, {"name": "C", "generate": "magic"}]),
    ));
    assert_eq!(
        found,
        [
            "template.parameters[1]: Required value: template.parameters[1]: parameter B is required and must \
             be specified",
            "template.parameters[2]: Invalid value: \"magic\": Unknown generator name 'magic' for parameter C",
        ],
        "and nothing of its objects"
    );
}

#[test]
fn an_expression_that_is_wrong_is_named() {
    let parameters = json!([
        {"name": "A", "generate": "expression", "from": "[ABC]{3}"},
        {"name": "B", "generate": "expression", "from": "[a-z]{256}", "required": true},
        {"name": "C", "generate": "expression", "required": true},
    ]);
    assert_eq!(
        wrong(template(json!([]), parameters)),
        [
            "template.parameters[0]: Invalid value: \"[ABC]{3}\": malformed expresion syntax: [ABC]",
            "template.parameters[1]: Invalid value: \"[a-z]{256}\": range must be within [1-255] characters (256)",
            "template.parameters[2]: Required value: template.parameters[2]: parameter C is required and must \
             be specified",
        ]
    );
}

#[test]
fn what_is_set_is_not_generated_and_an_empty_value_is_one() {
    let document = template(
        json!([]),
        json!([{"name": "A", "required": true, "generate": "expression", "from": "[a-z]{8}"}]),
    );
    let mut set = Template::read(document).unwrap();
    assert!(set.set("A", "mine") && !set.set("B", "?"));
    let processed = set.clone().process(&mut Seeded(1)).unwrap();
    assert_eq!(processed.parameters[0].value, "mine");
    set.set("A", "");
    let faults = set.process(&mut Seeded(1)).unwrap_err();
    assert_eq!(faults[0].problem, Problem::Required);
}

#[test]
fn of_two_with_a_name_both_are_set_and_the_last_is_used() {
    let document = template(
        json!([holding(json!({"k": "${A}"}))]),
        json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    );
    let mut twice = Template::read(document).unwrap();
    let processed = twice.clone().process(&mut Seeded(1)).unwrap();
    assert_eq!(processed.objects[0]["data"]["k"], "2");
    twice.set("A", "3");
    assert_eq!(twice.process(&mut Seeded(1)).unwrap().objects[0]["data"]["k"], "3");
}

#[test]
fn parameters_are_replaced_in_values_and_keys_however_deep() {
    let parameters = json!([{"name": "A", "value": "a"}, {"name": "N", "value": "5"}]);
    let held = json!({"${A}": [{"x-${A}": "${A}-${A}"}, ["${A}"]], "n": "${{N}}", "s": "${N}"});
    let found = data(held, parameters);
    assert_eq!(found, json!({"a": [{"x-a": "a-a"}, ["a"]], "n": 5, "s": "5"}));
}

#[test]
fn parameter_values_are_not_substituted() {
    let parameters = json!([{"name": "A", "value": "${B}"}, {"name": "B", "value": "b"}]);
    let found = data(json!({"one": "${A}", "chain": "${A}${B}"}), parameters);
    assert_eq!(found, json!({"one": "${B}", "chain": "b${B}"}), "but they chain");
}

#[test]
fn json_stands_for_a_whole_value() {
    let parameters = json!([
        {"name": "INTEGER", "value": "9007199254740993"},
        {"name": "WIDE", "value": "18446744073709551615"},
        {"name": "WHOLE", "value": "1.0"},
        {"name": "FLOAT", "value": "1.5"},
        {"name": "SPACED", "value": " 5 "},
        {"name": "QUOTED", "value": "\"q\""},
        {"name": "MAP", "value": "{\"a\": [\"${FLOAT}\", null]}"},
        {"name": "OCTAL", "value": "0123"},
        {"name": "WORD", "value": "yes"},
        {"name": "TRUE", "value": "true"},
        {"name": "EMPTY"},
    ]);
    let of = |name: &str| {
        data(json!({"k": format!("${{{{{name}}}}}")}), parameters.clone())["k"].clone()
    };
    assert_eq!(of("INTEGER").to_string(), "9007199254740993", "the original rounds it");
    assert_eq!(of("WIDE").to_string(), "18446744073709551615");
    assert_eq!(of("WHOLE").to_string(), "1", "as Go writes it");
    assert_eq!(of("FLOAT"), 1.5);
    assert_eq!(of("SPACED"), 5);
    assert_eq!(of("QUOTED"), "q");
    assert_eq!(of("MAP"), json!({"a": ["${FLOAT}", null]}), "spliced as it is");
    assert_eq!(of("OCTAL"), "0123", "no JSON: text");
    assert_eq!(of("WORD"), "yes");
    assert_eq!(of("TRUE"), true);
    assert_eq!(of("EMPTY"), "");
    assert_eq!(of("UNKNOWN"), "${{UNKNOWN}}");
}

#[test]
fn null_removes_the_member_and_a_literal_one_stays() {
    let parameters = json!([{"name": "N", "value": "null"}]);
    let found = data(json!({"gone": "${{N}}", "stays": null, "text": "${N}"}), parameters);
    assert_eq!(found, json!({"stays": null, "text": "null"}));
}

#[test]
fn null_in_a_list_is_an_error() {
    let document = template(
        json!([holding(json!({"l": [1, "${{N}}", null]}))]),
        json!([{"name": "N", "value": "null"}]),
    );
    assert_eq!(
        wrong(document),
        [
            "template.objects[0].data.l[1]: Invalid value: \"${{N}}\": the parameter is null, which cannot be an \
          element of a list"
        ],
        "the original panics"
    );
}

#[test]
fn a_key_that_is_no_text_is_an_error() {
    let document =
        template(json!([holding(json!({"${{N}}": "x"}))]), json!([{"name": "N", "value": "5"}]));
    assert_eq!(
        wrong(document),
        [
            "template.objects[0].data[\"${{N}}\"]: Invalid value: \"${{N}}\": the parameter is a number, and a key \
          is text"
        ],
        "the original panics"
    );
}

#[test]
fn keys_that_become_one_are_an_error() {
    for (held, last) in [(json!({"${A}": 1, "a": 2}), "a"), (json!({"${A}": 1, "${B}": 2}), "${B}")]
    {
        let parameters = json!([{"name": "A", "value": "a"}, {"name": "B", "value": "a"}]);
        let found = process(template(json!([holding(held)]), parameters)).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].problem, Problem::Duplicate(format!("{last:?}")));
    }
}

#[test]
fn keys_may_change_places() {
    let parameters = json!([{"name": "A", "value": "${B}"}]);
    let found = data(json!({"${A}": 1, "${B}x": 2}), parameters);
    assert_eq!(found, json!({"${B}": 1, "${B}x": 2}));
}

#[test]
fn the_message_and_labels_are_text() {
    let mut document = template(
        json!([holding(json!({}))]),
        json!([{"name": "N", "value": "5"}, {"name": "A", "value": "a"}]),
    );
    document["message"] = "${{N}}".into();
    document["labels"] = json!({"${A}": "${{N}}", "b": "${A}"});
    let processed = process(document).unwrap();
    assert_eq!(processed.message, "5");
    assert_eq!(processed.objects[0]["metadata"]["labels"], json!({"a": "5", "b": "a"}));
}

#[test]
fn labels_of_the_template_win_and_no_text_is_left_out_with_a_warning() {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "labels": {"own": "stays", "app": "own", "version": 1.0}},
        "spec": {"template": {"metadata": {"labels": {"app": "own"}}}},
    });
    let mut document = template(json!([object, {"apiVersion": "v1", "kind": "Secret"}]), json!([]));
    document["labels"] = json!({"app": "t"});
    let processed = process(document.clone()).unwrap();
    let labels = |index: usize| &processed.objects[index]["metadata"]["labels"];
    assert_eq!(labels(0), &json!({"app": "t", "own": "stays"}));
    assert_eq!(labels(1), &json!({"app": "t"}), "it had no metadata");
    let pods = &processed.objects[0]["spec"]["template"]["metadata"]["labels"];
    assert_eq!(pods, &json!({"app": "own"}), "pods are matched by what their owner says");
    assert_eq!(processed.warnings.len(), 1);
    assert_eq!(
        processed.warnings[0].to_string(),
        "template.objects[0].metadata.labels: Invalid value: a number: 1 left out, for it is no string: put \
         quotes around it"
    );
    document["labels"] = json!({});
    assert_eq!(process(document).unwrap().objects[1]["metadata"]["labels"], json!({}));
}

#[test]
fn without_labels_objects_are_let_be() {
    let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {"n": 1}}});
    let processed = process(template(json!([object]), json!([]))).unwrap();
    assert_eq!(processed.objects[0]["metadata"], json!({"labels": {"n": 1}}));
    assert!(processed.warnings.is_empty());
}

#[test]
fn labels_where_no_map_is_are_an_error() {
    let mut document = template(
        json!([
            {"apiVersion": "v1", "kind": "Secret", "metadata": "x"},
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": ["x"]}},
        ]),
        json!([]),
    );
    document["labels"] = json!({"a": "b"});
    assert_eq!(
        wrong(document),
        [
            "template.objects[0].metadata: Invalid value: a string: label could not be applied: has to be a map",
            "template.objects[1].metadata.labels: Invalid value: a list: label could not be applied: has to be a map",
        ]
    );
}

#[test]
fn a_namespace_goes_unless_a_parameter_says_where() {
    let parameters = json!([{"name": "NS", "value": "there"}]);
    for (namespace, left) in [
        (json!("fixed"), None),
        (json!("${NS}"), Some("there")),
        (json!("x-${NS}"), Some("x-there")),
        (json!("${UNKNOWN}"), Some("${UNKNOWN}")),
        (json!("${{NS}}"), None),
        (json!(5), None),
        (json!(""), None),
    ] {
        let mut object = holding(json!({}));
        object["metadata"]["namespace"] = namespace.clone();
        let processed = process(template(json!([object]), parameters.clone())).unwrap();
        let found = processed.objects[0]["metadata"].get("namespace").and_then(Value::as_str);
        assert_eq!(found, left, "{namespace}");
    }
}

#[test]
fn old_kinds_get_their_group() {
    for (version, kind, current) in [
        ("v1", "DeploymentConfig", "apps.openshift.io/v1"),
        ("v1", "Route", "route.openshift.io/v1"),
        ("v1", "RoleBinding", "authorization.openshift.io/v1"),
        ("v1", "ImageStream", "image.openshift.io/v1"),
        ("v1", "BuildConfig", "build.openshift.io/v1"),
        ("v1", "Template", "template.openshift.io/v1"),
        ("v1", "Service", "v1"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding", "rbac.authorization.k8s.io/v1"),
    ] {
        let object = json!({"apiVersion": version, "kind": kind});
        let processed = process(template(json!([object]), json!([]))).unwrap();
        assert_eq!(processed.objects[0]["apiVersion"], current, "{kind}");
    }
    let parameters = json!([{"name": "K", "value": "Route"}]);
    let object = json!({"apiVersion": "v1", "kind": "${K}"});
    let processed = process(template(json!([object]), parameters)).unwrap();
    assert_eq!(processed.objects[0]["apiVersion"], "route.openshift.io/v1", "once it is known");
}

#[test]
fn faults_of_objects_are_gathered_from_all() {
    let found = wrong(template(
        json!([
            {"apiVersion": "v1"},
            null,
            "text",
            {"apiVersion": "a/b/c", "kind": "X"},
            {"kind": "X"},
            {"apiVersion": "v1", "kind": "${{N}}"},
            holding(json!({})),
        ]),
        json!([{"name": "N", "value": "5"}]),
    ));
    assert_eq!(
        found,
        [
            "template.objects[0]: Invalid value: a map: unable to handle object: Object 'Kind' is missing",
            "template.objects[1]: Invalid value: null: unable to handle object: Object 'Kind' is missing",
            "template.objects[2]: Invalid value: \"text\": unable to handle object: Object 'Kind' is missing",
            "template.objects[3].apiVersion: Invalid value: a string: has to be VERSION or GROUP/VERSION",
            "template.objects[4].apiVersion: Invalid value: null: has to be VERSION or GROUP/VERSION",
            "template.objects[5].kind: Invalid value: a number: has to be a string, and not empty",
        ]
    );
}

#[test]
fn what_is_of_another_type_is_named_all_at_once_and_no_value_is_shown() {
    let document = json!({
        "apiVersion": "v2", "kind": "Template", "message": 1, "labels": {"a": true}, "objects": {},
        "parameters": [
            {"name": 5, "value": 4711, "required": "yes"},
            "x",
        ],
    });
    let found = Template::read(document).unwrap_err();
    let paths: Vec<_> = found.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "template.apiVersion",
            "template.message",
            "template.objects",
            "template.labels.a",
            "template.parameters[0].required",
            "template.parameters[0].name",
            "template.parameters[0].value",
            "template.parameters[1]",
        ]
    );
    assert!(found.iter().all(|fault| !fault.to_string().contains("4711")), "{found:?}");
}

#[test]
fn the_order_of_objects_stays() {
    let names: Vec<String> = (0..50).map(|number| format!("o{number}")).collect();
    let objects = names
        .iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}));
    let processed = process(template(objects.collect(), json!([]))).unwrap();
    let found: Vec<_> = processed.objects.iter().map(|it| it["metadata"]["name"].clone()).collect();
    assert_eq!(found, names);
}

#[test]
fn no_fault_has_what_a_parameter_holds() {
    for object in [
        json!({"apiVersion": "v1", "kind": "X", "metadata": "${P}"}),
        json!({"apiVersion": "v1", "kind": "X", "metadata": {"labels": "${{P}}"}}),
        json!({"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"${P}": 5}}}),
        json!({"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"n": "${{N}}"}}}),
        json!({"apiVersion": "${P}/a/b", "kind": "X"}),
        json!({"apiVersion": "v1", "kind": "X", "${P}": 1, "${{P}}": 2}),
    ] {
        let parameters = json!([{"name": "P", "value": "hunter2"}, {"name": "N", "value": "4711"}]);
        let mut document = template(json!([object.clone()]), parameters);
        document["labels"] = json!({"a": "b"});
        let said = match process(document) {
            Ok(processed) => format!("{:?}", processed.warnings),
            Err(faults) => format!("{faults:?}"),
        };
        assert!(
            said.contains("path") && !said.contains("hunter2") && !said.contains("4711"),
            "{said}"
        );
    }
}

#[test]
fn a_long_value_is_looked_through_once() {
    // By what it costs: a hundred thousand references to a megabyte end at once.
    let large = "x".repeat(1 << 20);
    let objects: Vec<Value> =
        (0..100).map(|_| holding(json!({"k": "${A} ".repeat(1000)}))).collect();
    let faults =
        process(template(objects.into(), json!([{"name": "A", "value": large}]))).unwrap_err();
    assert_eq!(faults.len(), 1);
}

#[test]
fn what_would_grow_beyond_measure_is_refused_once() {
    let large = "x".repeat(1 << 20);
    let objects: Vec<Value> =
        (0..100).map(|_| holding(json!({"k": "${A}", "l": "${{A}}"}))).collect();
    let found =
        process(template(objects.into(), json!([{"name": "A", "value": large}]))).unwrap_err();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].problem, Problem::TooLong);
}

#[test]
fn a_million_references_take_no_longer_than_they_have_to() {
    let text = "${A}".repeat(250_000);
    let unknown = "${UNKNOWN_}".repeat(90_000);
    let found = data(json!({"a": text, "u": unknown}), json!([{"name": "A", "value": "b"}]));
    assert_eq!(found["a"].as_str().unwrap().len(), 250_000);
    assert_eq!(found["u"], unknown);
}
