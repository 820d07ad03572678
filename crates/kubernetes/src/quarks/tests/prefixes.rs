//! What becomes of output where there is a prefix instead of a map, as in first releases, and of what is printed.

use agent::Content;
use serde_json::json;

use super::outputs::text;
use super::*;
use crate::quarks::Dialect;
use crate::quarks::output::objects::kept;

#[test]
fn what_a_container_prints_becomes_a_secret_of_its_own() {
    let containers = json!([
        {"name": "a", "env": [{"name": "INSTANCE_GROUP_NAME", "value": "group"}]},
        {"name": "b"},
    ]);
    let of = |prefix: &str, verbatim: bool| {
        let spec = json!({
            "template": {"spec": {"containers": containers}},
            "output": {"namePrefix": prefix, "secretLabels": {"key": "value"}},
        });
        let print = |name: &str| {
            let files = BTreeMap::from([("stdout".to_owned(), text(r#"{"k": "v"}"#))]);
            (name.to_owned(), files)
        };
        kept(Dialect::ExtendedJob, &spec, verbatim, &[print("a"), print("b")].into())
    };
    for (prefix, verbatim, expected) in [
        ("foo", false, ["foo-a", "foo-b"]),
        ("foo-", false, ["foo-a", "foo-b"]),
        ("foo", true, ["fooa", "foob"]),
        ("foo.", true, ["foo.a", "foo.b"]),
    ] {
        let kept = of(prefix, verbatim);
        let names: Vec<_> = kept.wanted.iter().map(|wanted| wanted.name.as_str()).collect();
        assert_eq!(names, expected, "{prefix}");
    }
    let kept = of("foo", false);
    let labels = |index: usize| &kept.wanted[index].labels;
    assert_eq!(labels(0)["fissile.cloudfoundry.org/instance-group"], "group");
    assert_eq!(
        labels(1).get("fissile.cloudfoundry.org/instance-group"),
        None,
        "of one, not of all"
    );
    assert_eq!(labels(1)["fissile.cloudfoundry.org/container-name"], "b");
    assert_eq!(labels(1)["key"], "value");
}

/// Those of the last releases' map lose what names of objects cannot have; those that had a prefix left them alone. What a
/// variable says was left alone by both.
#[test]
fn labels_beside_a_prefix_are_as_they_are_written() {
    let env = |group: &str, remote: &str| {
        json!([
            {"name": "INSTANCE_GROUP_NAME", "value": group}, {"name": "REMOTE_ID", "value": remote},
        ])
    };
    let plain = env("group", "remote");
    let labels = json!({"version": "1.2.3", "app": "Foo_Bar.1", "none": "a b!", "empty": ""});
    let by_prefix = json!({"namePrefix": "p", "secretLabels": labels});
    let mut by_map = json!({"outputMap": {"c": {"o.json": {"name": "p"}}}, "secretLabels": labels});
    by_map["namePrefix"] = json!("not read");
    let raw = [("app", "Foo_Bar.1"), ("empty", ""), ("none", "ab"), ("version", "1.2.3")];
    let sanitized = [("app", "foo-bar1"), ("empty", ""), ("none", "ab"), ("version", "123")];
    let odd = env("Diego_Cell.1", "Cell.0");
    for (dialect, env, output, expected, marks) in [
        (Dialect::ExtendedJob, &plain, &by_prefix, raw, vec![("instance-group", "group")]),
        (
            Dialect::QuarksJob,
            &plain,
            &by_prefix,
            raw,
            vec![("instance-group", "group"), ("remote-id", "remote")],
        ),
        (Dialect::QuarksJob, &plain, &by_map, sanitized, vec![("remote-id", "remote")]),
        (Dialect::ExtendedJob, &odd, &by_prefix, raw, vec![("instance-group", "Diego_Cell.1")]),
        (Dialect::QuarksJob, &odd, &by_map, sanitized, vec![("remote-id", "Cell.0")]),
        // The API server refuses it.
        (Dialect::QuarksJob, &env("group", "a/b"), &by_map, sanitized, vec![("remote-id", "a/b")]),
    ] {
        let pod = json!({"spec": {"containers": [{"name": "c", "env": env}]}});
        let spec = match dialect {
            Dialect::ExtendedJob => json!({"template": pod, "output": output}),
            Dialect::QuarksJob => {
                json!({"template": {"spec": {"template": pod}}, "output": output})
            }
        };
        let file = text(r#"{"k": "v"}"#);
        let files = ["o.json", "output.json", "stdout"].map(|name| (name.to_owned(), file.clone()));
        let gathered = BTreeMap::from([("c".to_owned(), files.into())]);
        let kept = kept(dialect, &spec, false, &gathered);
        let mut all: BTreeMap<String, String> =
            expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        all.insert(dialect.label("container-name"), "c".to_owned());
        all.extend(marks.iter().map(|(name, value)| (dialect.label(name), (*value).to_owned())));
        assert_eq!(kept.wanted[0].labels, all, "{dialect:?}: {env}: {output}");
    }
}

#[test]
fn a_file_of_an_extended_job_counts_before_what_it_prints() {
    let spec = json!({
        "template": {"spec": {"containers": [{"name": "a"}]}}, "output": {"namePrefix": "foo-"},
    });
    let (good, other) = (r#"{"k": "file"}"#, r#"{"k": "print"}"#);
    for (name, file, printed, expected) in [
        ("the file alone", text(good), Content::Missing, Ok("file")),
        ("both", text(good), text(other), Ok("file")),
        ("the file, and words", text(good), text("working"), Ok("file")),
        ("no file", Content::Missing, text(other), Ok("print")),
        ("neither", Content::Missing, Content::Missing, Err("container a: stdout: it was not")),
        ("a file that is none", text("x"), text(other), Err("container a: output.json: it is not")),
    ] {
        let files = [("output.json".to_owned(), file), ("stdout".to_owned(), printed)].into();
        let gathered = BTreeMap::from([("a".to_owned(), files)]);
        let kept = kept(Dialect::ExtendedJob, &spec, false, &gathered);
        let value = kept.wanted.first().map(|it| (it.name.as_str(), &*it.data["k"]));
        let fault = kept.faults.first().map(|(_, why)| why.as_str());
        match expected {
            Ok(expected) => {
                assert_eq!((value, fault), (Some(("foo-a", expected.as_bytes())), None), "{name}");
            }
            Err(words) => assert!(fault.unwrap().starts_with(words), "{name}: {fault:?}"),
        }
    }
}

#[test]
fn a_prefix_stands_in_for_a_map_as_in_the_first_releases() {
    let of = |output: Value| {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}});
        let spec = json!({"template": {"spec": {"template": pod}}, "output": output});
        let left = |name: &str| {
            let files = [("output.json".to_owned(), text("{}")), ("o".to_owned(), text("{}"))];
            (name.to_owned(), BTreeMap::from(files))
        };
        let kept = kept(Dialect::QuarksJob, &spec, false, &[left("a"), left("b")].into());
        kept.wanted.into_iter().map(|it| (it.name, it.versioned)).collect::<Vec<_>>()
    };
    let both = |versioned| [("foo-a".to_owned(), versioned), ("foo-b".to_owned(), versioned)];
    assert_eq!(of(json!({"namePrefix": "foo-"})), both(false));
    assert_eq!(of(json!({"namePrefix": "foo", "versioned": true})), both(true));
    let map = json!({"a": {"o": {"name": "mapped"}}});
    assert_eq!(of(json!({"namePrefix": "foo-", "outputMap": map})), [("mapped".to_owned(), false)]);
}
