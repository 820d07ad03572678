use std::time::Duration;

use serde_json::json;

use super::*;
use crate::quarks::Dialect;
use crate::quarks::api::reference::{Kind, To};
use crate::quarks::api::resource::Resource;
use crate::quarks::output::objects::{Kept, MAX_SECRET_BYTES, kept};
use crate::quarks::state::job::SeenJob;
use crate::quarks::state::pod::SeenPod;
use crate::quarks::state::table::Table;
use agent::Content;
use engine::trigger::RunProgress;

fn spec(options: &Value) -> Value {
    let containers = json!([
        {"name": "c", "env": [{"name": "REMOTE_ID", "value": "r-1"}]},
        {"name": "other"},
    ]);
    json!({
        "template": {"spec": {"template": {"spec": {"containers": containers}}}},
        "output": {
            "outputMap": {"c": {"o.json": options}, "absent": {"o.json": {"name": "never"}}},
            "secretLabels": {"key": "value", "both": "general"},
        },
    })
}

fn of(options: &Value, content: Content) -> Kept {
    let files = BTreeMap::from([("o.json".to_owned(), content)]);
    kept(Dialect::QuarksJob, &spec(options), false, &BTreeMap::from([("c".to_owned(), files)]))
}

pub(super) fn text(text: &str) -> Content {
    Content::Text(text.to_owned())
}

#[test]
fn a_file_becomes_a_secret_with_labels_and_annotations() {
    let options = json!({
        "name": "Foo_Bar",
        "secretLabels": {"both": "Of_File", "version": "1.0"},
        "secretAnnotations": {"note": "As It Is"},
    });
    let kept = of(&options, text(r#"{"foo": "1", "bar": "baz"}"#));
    assert_eq!(kept.faults, []);
    let [secret] = kept.wanted.as_slice() else { panic!("{kept:?}") };
    assert_eq!(secret.name, "foo-bar");
    let expected = [("bar", "baz"), ("foo", "1")];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
    assert_eq!(secret.data, BTreeMap::from(expected));
    let expected = [
        ("both", "of-file"),
        ("key", "value"),
        ("quarks.cloudfoundry.org/container-name", "c"),
        ("quarks.cloudfoundry.org/remote-id", "r-1"),
        ("version", "10"),
    ];
    let labels: Vec<_> = secret.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(labels, expected);
    assert_eq!(secret.annotations["note"], "As It Is");
    assert!(!secret.versioned);
}

/// Whoever reads the file cleans its name.
#[test]
fn a_file_is_told_of_by_its_name_as_it_is_written() {
    for name in ["./o.json", "/o.json"] {
        let mut spec = spec(&json!({}));
        spec["output"]["outputMap"]["c"] = json!({name: {"name": "s"}});
        let of = |content: Content| {
            let files = BTreeMap::from([(name.to_owned(), content)]);
            kept(Dialect::QuarksJob, &spec, false, &BTreeMap::from([("c".to_owned(), files)]))
        };
        let (there, missing) = (of(text("{}")), of(Content::Missing));
        assert_eq!((there.wanted.len(), there.faults), (1, vec![]), "{name}");
        let [("OutputMissing", why)] = &*missing.faults else { panic!("{missing:?}") };
        assert!(why.starts_with(&format!("container c: {name}: ")), "{why}");
    }
}

#[test]
fn a_file_that_does_not_say_is_versioned_as_the_whole_output() {
    for (general, options, expected) in [
        (json!(true), json!({"name": "s"}), true),
        (json!(true), json!({"name": "s", "versioned": false}), false),
        (json!(true), json!({"name": "s", "kind": "ConfigMap"}), false),
        (json!(null), json!({"name": "s", "versioned": true}), true),
        (json!(null), json!({"name": "s", "versioned": null}), false),
    ] {
        let mut spec = spec(&options);
        spec["output"]["versioned"] = general.clone();
        let files = BTreeMap::from([("o.json".to_owned(), text("{}"))]);
        let gathered = BTreeMap::from([("c".to_owned(), files)]);
        let kept = kept(Dialect::QuarksJob, &spec, false, &gathered);
        assert_eq!(kept.wanted[0].versioned, expected, "{general} {options}");
    }
}

#[test]
fn options_of_the_wrong_type_are_named() {
    for (options, words) in [
        (json!({"name": "s", "secretLabels": {"n": 1}}), ", secretLabels.n: expected is a string"),
        (json!({"name": 5}), ", name: expected is a string"),
        (json!({"name": "s", "versioned": "yes"}), ", versioned: expected is a boolean"),
        (json!(null), " has to be an object with a name"),
        (json!("s"), " has to be an object with a name"),
    ] {
        let kept = of(&options, text("{}"));
        let [(reason, why)] = kept.faults.as_slice() else { panic!("{kept:?}") };
        assert_eq!(*reason, "OutputInvalid");
        assert!(why.ends_with(&format!("its entry in outputMap{words}")), "{why}");
    }
}

#[test]
fn fan_out_makes_a_secret_of_each_key() {
    let options = json!({"name": "fan", "persistencemethod": "fan-out", "versioned": true});
    let kept = of(&options, text(r#"{"a": "{\"k\": \"1\"}", "b": "{\"k\": \"2\"}"}"#));
    assert_eq!(kept.faults, []);
    let names: Vec<_> = kept.wanted.iter().map(|wanted| wanted.name.as_str()).collect();
    assert_eq!(names, ["fan-a", "fan-b"]);
    assert!(kept.wanted.iter().all(|wanted| wanted.versioned && wanted.data.contains_key("k")));
}

#[test]
fn what_fans_out_is_named_by_the_whole_of_its_name_and_its_key() {
    let long = "l".repeat(200);
    for (name, key, expected) in [
        ("link-", "a", "link--a"),
        ("Link_", "A", "link--a"),
        ("link.", "a", "link.-a"),
        ("-link", "a", "link-a"),
        ("link", "a-", "link-a"),
        ("link", "_a", "link--a"),
        (&*long, "a", &*format!("{long}-a")),
    ] {
        let options = json!({"name": name, "persistencemethod": "fan-out"});
        let kept = of(&options, text(&json!({key: "{}"}).to_string()));
        let names: Vec<_> = kept.wanted.iter().map(|wanted| wanted.name.as_str()).collect();
        assert_eq!(names, [expected], "{name} {key}: {:?}", kept.faults);
        let files = json!({"c": {"o.json": options}});
        let made_by = resource(Dialect::QuarksJob, &json!({"output": {"outputMap": files}}));
        assert!(made_by.makes(To::Object(Kind::Secret), expected, false, None), "{expected}");
    }
}

#[test]
fn any_other_way_to_keep_it_is_one_to_one() {
    for method in [json!("fanout"), json!("one-to-one"), json!(""), json!(null)] {
        let options = json!({"name": "one", "persistencemethod": method});
        let kept = of(&options, text(r#"{"a": "{\"k\": \"1\"}", "b": "2"}"#));
        assert_eq!(kept.faults, [], "{method}");
        let names: Vec<_> = kept.wanted.iter().map(|wanted| wanted.name.as_str()).collect();
        assert_eq!(names, ["one"], "{method}");
        assert_eq!(kept.wanted[0].data.len(), 2, "{method}");
    }
}

#[test]
fn what_cannot_be_a_secret_is_said_and_never_shown() {
    let fan_out = json!({"name": "s", "persistencemethod": "fan-out"});
    let plain = json!({"name": "s"});
    let large = format!(r#"{{"a": "{}"}}"#, "x".repeat(MAX_SECRET_BYTES + 1));
    for (options, content, reason, words) in [
        (&plain, Content::Missing, "OutputMissing", "not there"),
        (&plain, Content::TooLarge(2_097_152), "OutputTooLarge", "2097152 bytes"),
        (&plain, Content::NotText, "OutputInvalid", "UTF-8"),
        (&plain, text("{\"planted\": "), "OutputInvalid", "not JSON (line 1"),
        (&plain, text("[\"planted\"]"), "OutputInvalid", "one object"),
        (&plain, text("{\"k\": 271828}"), "OutputInvalid", "key \"k\": the value is a number"),
        (&plain, text("{\"k\": {\"planted\": \"planted\"}}"), "OutputInvalid", "an object"),
        (&plain, text("{\"a b\": \"planted\"}"), "OutputInvalid", "a key of 3 bytes cannot be one"),
        (&plain, text(&large), "OutputInvalid", "1048577 bytes"),
        (&plain, text("{\"k\": [\"planted\"]}"), "OutputInvalid", "a list"),
        (&plain, text("{\"k\": \"\\ud800\"}"), "OutputInvalid", "no string of Unicode"),
        (&fan_out, text("{\"k\": \"planted\"}"), "OutputInvalid", "key \"k\": it is not JSON"),
        (&fan_out, text("{\"k\": true}"), "OutputInvalid", "a boolean"),
        (&fan_out, text("{\"\": \"{}\"}"), "OutputInvalid", "leaves nothing that can be in a name"),
        (
            &fan_out,
            text("{\"ü_\": \"{}\"}"),
            "OutputInvalid",
            "leaves nothing that can be in a name",
        ),
        (&json!({}), text("{}"), "OutputInvalid", "names no Secret"),
        (
            &json!({"name": "s", "kind": "ConfigMap", "versioned": true}),
            text("{}"),
            "OutputInvalid",
            "a ConfigMap has no versions",
        ),
        (&plain, text("{\"k\": 1e999}"), "OutputInvalid", "a number"),
    ] {
        let kept = of(options, content);
        let [(found, why)] = kept.faults.as_slice() else { panic!("{kept:?}") };
        assert_eq!((*found, kept.wanted.len()), (reason, 0), "{why}");
        assert!(why.starts_with("container c: o.json: ") && why.contains(words), "{why}");
        assert!(!why.contains("planted") && !why.contains("271828"), "{why}");
    }
}

#[test]
fn values_that_are_no_strings_become_their_json_where_the_spec_says_so() {
    let printed =
        r#"{"n": 12345678901234567890123, "b": true, "l": [1, "x"], "s": "t", "e": 1e999}"#;
    let files = BTreeMap::from([("o.json".to_owned(), text(printed))]);
    let mut spec = spec(&json!({"name": "s"}));
    spec["output"]["stringifyValues"] = json!(true);
    let kept = kept(Dialect::QuarksJob, &spec, false, &BTreeMap::from([("c".to_owned(), files)]));
    assert_eq!(kept.faults, []);
    let data = &kept.wanted[0].data;
    let data: Vec<_> = data.iter().map(|(k, v)| (k.as_str(), str::from_utf8(v).unwrap())).collect();
    let expected = [
        ("b", "true"),
        ("e", "1e999"),
        ("l", r#"[1, "x"]"#),
        ("n", "12345678901234567890123"),
        ("s", "t"),
    ];
    assert_eq!(data, expected);
}

#[test]
fn a_file_becomes_a_config_map_where_the_spec_says_so() {
    let mut spec = spec(&json!({"name": "both", "kind": "ConfigMap"}));
    spec["output"]["outputMap"]["other"] = json!({"x.json": {"name": "both"}});
    let file = |name: &str| BTreeMap::from([(name.to_owned(), text("{}"))]);
    let files =
        BTreeMap::from([("c".to_owned(), file("o.json")), ("other".to_owned(), file("x.json"))]);
    let kept = kept(Dialect::QuarksJob, &spec, false, &files);
    assert_eq!(kept.faults, [], "one of each kind may have the name");
    let kinds: Vec<_> = kept.wanted.iter().map(|wanted| wanted.kind).collect();
    assert_eq!(kinds, [Kind::ConfigMap, Kind::Secret]);
}

#[test]
fn null_is_nothing_as_in_the_original() {
    let kept = of(&json!({"name": "s"}), text(r#"{"k": null}"#));
    assert_eq!(kept.wanted[0].data["k"], b"");
}

#[test]
fn a_member_of_an_entry_that_is_null_is_as_one_that_is_not_there() {
    let without = of(&json!({"name": "s"}), text("{}")).wanted;
    assert_eq!(without.len(), 1);
    for (member, nothing) in [
        ("secretLabels", json!(null)),
        ("secretLabels", json!({"both": null})),
        ("secretAnnotations", json!(null)),
        ("secretAnnotations", json!({"note": null})),
        ("kind", json!(null)),
        ("persistencemethod", json!(null)),
        ("versioned", json!(null)),
    ] {
        let mut options = json!({"name": "s"});
        options[member] = nothing;
        let kept = of(&options, text("{}"));
        assert_eq!((kept.faults, kept.wanted), (vec![], without.clone()), "{options}");
    }
    let kept = of(&json!({"name": null}), text("{}"));
    assert!(kept.faults[0].1.contains("names no Secret"), "{kept:?}");
}

#[test]
fn what_is_good_is_kept_though_something_else_is_not() {
    let mut spec = spec(&json!({"name": "good"}));
    spec["output"]["outputMap"]["other"] = json!({"x.json": {"name": "bad"}});
    let files = BTreeMap::from([("o.json".to_owned(), text("{}"))]);
    let kept = kept(Dialect::QuarksJob, &spec, false, &BTreeMap::from([("c".to_owned(), files)]));
    let names: Vec<_> = kept.wanted.iter().map(|wanted| wanted.name.as_str()).collect();
    assert_eq!((names, kept.faults.len()), (vec!["good"], 1));
}

#[test]
fn what_fans_out_has_its_limit() {
    let fanned = |count: usize| {
        let keys: BTreeMap<String, &str> = (0..count).map(|n| (format!("k{n}"), "{}")).collect();
        let options = json!({"name": "s", "persistencemethod": "fan-out"});
        of(&options, text(&serde_json::to_string(&keys).unwrap()))
    };
    assert_eq!(fanned(1000).wanted.len(), 1000);
    let kept = fanned(1001);
    assert_eq!(kept.wanted, []);
    let [("OutputTooLarge", why)] = &*kept.faults else { panic!("{kept:?}") };
    assert!(why.contains("it has 1001 keys, of which 1000 can fan out"), "{why}");
}

#[test]
fn keys_too_long_for_a_name_fan_out_into_one_each() {
    let [one, two] = ["1", "2"].map(|last| format!("{}{last}", "k".repeat(252)));
    let options = json!({"name": "s", "persistencemethod": "fan-out"});
    let kept = of(&options, text(&json!({one: "{}", two: "{}"}).to_string()));
    assert_eq!(kept.faults, []);
    let [one, two] = &*kept.wanted else { panic!("{kept:?}") };
    assert_ne!(one.name, two.name);
    assert!(one.name.len() <= 253 && one.name.starts_with("s-kkk"), "{}", one.name);
}

#[test]
fn a_label_that_is_no_string_takes_no_other_with_it() {
    let mut spec = spec(&json!({"name": "s"}));
    spec["output"]["secretLabels"] = json!({"good": "yes", "number": 1});
    let files = BTreeMap::from([("o.json".to_owned(), text("{}"))]);
    let kept = kept(Dialect::QuarksJob, &spec, false, &BTreeMap::from([("c".to_owned(), files)]));
    assert_eq!(kept.wanted[0].labels["good"], "yes");
    let note = "secretLabels, number: it is no string, and left out; quote it";
    assert!(kept.notes.iter().any(|it| it == note), "{:?}", kept.notes);
}

fn resource(dialect: Dialect, spec: &Value) -> Resource {
    let object = serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}, "spec": spec,
    }));
    Resource::of(dialect, &object.unwrap()).unwrap()
}

#[test]
fn what_a_run_writes_itself_is_known_by_its_name() {
    let extended = json!({
        "template": {"spec": {"containers": [{"name": "a"}]}}, "output": {"namePrefix": "foo"},
    });
    let extended = resource(Dialect::ExtendedJob, &extended);
    for (name, verbatim, expected) in [
        ("foo-a", false, true),
        ("fooa", false, false),
        ("foo-a", true, false),
        ("fooa", true, true),
    ] {
        let made = extended.makes(To::Object(Kind::Secret), name, verbatim, None);
        assert_eq!(made, expected, "{name}, verbatim: {verbatim}");
    }
    let files = json!({"c": {
        "one.json": {"name": "one"}, "map.json": {"name": "map", "kind": "ConfigMap"},
        "all.json": {"name": "all", "persistencemethod": "fan-out"},
        "ca.json": {"name": "ca", "versioned": true},
        "each.json": {"name": "each", "persistencemethod": "fan-out", "versioned": true},
    }});
    let quarks = resource(Dialect::QuarksJob, &json!({"output": {"outputMap": files}}));
    for (kind, name, made, expected) in [
        (Kind::Secret, "one", None, true),
        (Kind::Secret, "one", Some(false), true),
        // Somebody's versions, and somebody's Secret of the name of its own.
        (Kind::Secret, "one-v3", None, false),
        (Kind::Secret, "ca", None, false),
        (Kind::Secret, "ca-v3", None, true),
        (Kind::Secret, "one-more", None, false),
        (Kind::ConfigMap, "one", None, false),
        (Kind::ConfigMap, "map", None, true),
        // Of what fans out the keys are not known.
        (Kind::Secret, "all-keys", None, true),
        (Kind::Secret, "all-keys", Some(true), true),
        (Kind::Secret, "all-keys", Some(false), false),
        (Kind::Secret, "all-keys-v2", Some(true), true),
        (Kind::Secret, "each-key", Some(true), false),
        (Kind::Secret, "each-key-v2", Some(true), true),
        (Kind::Secret, "all", None, false),
        (Kind::Secret, "all-", None, false),
        (Kind::ConfigMap, "all-keys", None, false),
    ] {
        let found = quarks.makes(To::Object(kind), name, false, made);
        assert_eq!(found, expected, "{name}, made by a run: {made:?}");
    }
}

/// As many as a spec has room for, each asked for at every look.
#[test]
fn what_is_kept_is_found_by_its_name_however_many_files_are() {
    let files: serde_json::Map<String, Value> =
        (0..17_000).map(|file| (file.to_string(), json!({"name": format!("s{file}")}))).collect();
    let mut spec = spec(&json!({"name": "s"}));
    spec["output"]["outputMap"]["c"] = json!(files);
    spec["output"]["versioned"] = json!(true);
    let quarks = resource(Dialect::QuarksJob, &spec);
    let long = "x".repeat(250);
    let begun = std::time::Instant::now();
    for reference in 0..1_000 {
        let name = format!("{reference}{long}");
        assert!(!quarks.makes(To::Object(Kind::Secret), &name[..250], false, None));
    }
    assert!(quarks.makes(To::Object(Kind::Secret), "s16999-v1", false, None));
    // By one after the other it is some ten million comparisons.
    assert!(begun.elapsed() < std::time::Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn of_two_files_that_go_into_one_secret_the_last_is_kept() {
    for versioned in [true, false] {
        let options = json!({"name": "one", "versioned": versioned});
        let mut spec = spec(&options);
        spec["output"]["outputMap"]["c"]["p.json"] = options;
        let files = [("o.json", text(r#"{"k": "first"}"#)), ("p.json", text(r#"{"k": "last"}"#))];
        let files = files.map(|(file, content)| (file.to_owned(), content));
        let left = BTreeMap::from([("c".to_owned(), BTreeMap::from(files))]);
        let kept = kept(Dialect::QuarksJob, &spec, false, &left);
        let values: Vec<_> = kept.wanted.iter().map(|it| it.data["k"].as_slice()).collect();
        assert_eq!(values, [b"last"], "versioned: {versioned}");
        assert_eq!(kept.faults, [], "as in the original, the run succeeds");
        let note = kept.notes.last().map(String::as_str);
        assert_eq!(note, Some("several files go into secret/one: the last is kept"));
    }
}

#[test]
fn what_is_followed_under_the_prefix_of_what_fans_out_is_followed_though_it_goes() {
    let options = json!({"name": "all", "persistencemethod": "fan-out"});
    let refers = json!([{"secretRef": {"name": "all-else", "optional": true}}]);
    let object = |record: &Value| {
        let object = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1",
                "annotations": {"manciple.dev/runs": record.to_string()},
            },
            "spec": {
                "updateOnConfigChange": true, "output": {"outputMap": {"c": {"o.json": options}}},
                "template": {"spec": {"template": {"spec": {
                    "containers": [{"name": "c", "envFrom": refers}],
                }}}},
            },
        }));
        Resource::of(Dialect::QuarksJob, &object.unwrap()).unwrap()
    };
    for (name, references, expected) in [
        ("it was somebody's", json!({"secret/all-else": "digest"}), true),
        ("it never was there", json!({}), false),
    ] {
        let mut table = Table::new(2, b"key");
        let resource = object(&json!({"last": 1, "references": references}));
        let key = resource.key();
        table.learn(resource);
        let look = table.look(&key, Duration::ZERO, jiff::Timestamp::UNIX_EPOCH).unwrap();
        let found = look.state.references.contains_key("secret/all-else");
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_run_that_failed_is_waited_for_as_it_was_begun() {
    let object = |keeps: bool| {
        let open = json!({"id": 1, "trigger": "now", "at": "1970-01-01T00:00:00Z"});
        let object = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1",
                "annotations": {"manciple.dev/runs": json!({"last": 1, "open": [open]}).to_string()},
            },
            "spec": {
                "output": {
                    "writeOnFailure": keeps,
                    "outputMap": {"c": {"o.json": {"name": "one"}}},
                },
                "template": {"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}},
            },
        }));
        Resource::of(Dialect::QuarksJob, &object.unwrap()).unwrap()
    };
    for (kind, begun, now, expected) in [
        ("Failed", Some(true), false, RunProgress::Going),
        ("Failed", Some(false), true, RunProgress::Ended),
        ("Failed", None, true, RunProgress::Going),
        ("Failed", None, false, RunProgress::Ended),
        // From Kubernetes 1.31 on it has failed when all its pods are over, and was given up before that.
        ("FailureTarget", None, true, RunProgress::Going),
        ("FailureTarget", None, false, RunProgress::Ended),
        // What has succeeded is over, whatever ends still.
        ("SuccessCriteriaMet", None, true, RunProgress::Ended),
    ] {
        let mut table = Table::new(2, b"key");
        let resource = object(now);
        let key = resource.key();
        table.learn(resource);
        let mut job = super::job("u", "j");
        if let Some(begun) = begun {
            let output = json!({"writeOnFailure": begun}).to_string();
            job["metadata"]["annotations"]["manciple.dev/output"] = output.into();
        }
        job["status"] = json!({"conditions": [{
            "type": kind, "status": "True", "reason": "DeadlineExceeded",
            "lastTransitionTime": "1970-01-01T00:01:00Z",
        }]});
        let job = SeenJob::of(&serde_json::from_value(job).unwrap()).unwrap();
        assert_eq!(job.has_ended(), kind == "Failed");
        table.learn_job(job);
        // It is told to end, and does not yet.
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "n", "uid": "p", "resourceVersion": "1",
                "deletionTimestamp": "1970-01-01T00:01:30Z", "deletionGracePeriodSeconds": 30,
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": "a-1", "uid": "j", "controller": true},
                ],
            },
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}},
            }]},
        });
        drop(table.learn_pod(SeenPod::of(&serde_json::from_value(pod).unwrap()).unwrap()));
        let at = "1970-01-01T00:01:10Z".parse().unwrap();
        let look = table.look(&key, Duration::ZERO, at).unwrap();
        assert_eq!(look.state.runs.get(&1), Some(&expected), "begun with {begun:?}, now {now}");
    }
}
