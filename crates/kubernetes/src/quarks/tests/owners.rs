//! Whose a Secret is that runs have written: as far as it says so itself.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};

use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::reference::Kind;
use crate::quarks::api::resource::Resource;
use crate::quarks::output::objects::Wanted;
use crate::quarks::output::writes::{Step, step};
use crate::quarks::state::held::Objects;
use crate::quarks::state::object::Object;
use crate::quarks::state::table::Table;

/// A QuarksJob `a` that refers to this Secret, and whose output fans out into such as are named `all-…`.
fn fans_out(secret: &str) -> Resource {
    let options = json!({"name": "all", "persistencemethod": "fan-out"});
    let refers = json!([{"secretRef": {"name": secret, "optional": true}}]);
    let pod = json!({"containers": [{"name": "c", "envFrom": refers}]});
    let object = json!({
        "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "updateOnConfigChange": true, "output": {"outputMap": {"c": {"o.json": options}}},
            "template": {"spec": {"template": {"spec": pod}}},
        },
    });
    Resource::of(Dialect::QuarksJob, &serde_json::from_value(object).unwrap()).unwrap()
}

/// What a run has written under this name, with this in its metadata, as JSON; a version or not. It holds `is`.
fn written(name: &str, metadata: &Value, is_version: bool) -> Value {
    let mut secret = json!({
        "metadata": {
            "name": name, "namespace": "n", "resourceVersion": "7",
            "labels": {"quarks.cloudfoundry.org/container-name": "c"},
        },
        "data": {"k": "aXM="},
    });
    secret["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    if is_version {
        let label = "quarks.cloudfoundry.org/secret-kind";
        secret["metadata"]["labels"][label] = json!("versionedSecret");
    }
    secret
}

fn seen(secret: &Value) -> Object {
    let secret: Secret = serde_json::from_value(secret.clone()).unwrap();
    Object::of_secret(&secret).unwrap()
}

/// The controller that something belongs to.
fn owner(dialect: Dialect, name: &str, uid: &str) -> Value {
    json!({"ownerReferences": [{
        "apiVersion": dialect.api_version(), "kind": dialect.kind(), "name": name, "uid": uid,
        "controller": true,
    }]})
}

fn made_by(whom: &str) -> Value {
    json!({"annotations": {"manciple.dev/made-by": whom}})
}

#[test]
fn what_another_has_made_under_the_prefix_of_what_fans_out_is_followed() {
    const OURS: Dialect = Dialect::QuarksJob;
    for (name, metadata, expected) in [
        ("it says that it is of this one", made_by("quarksjob/a"), false),
        ("it says that it is of another", made_by("quarksjob/b"), true),
        ("of one of the other kind", made_by("extendedjob/a"), true),
        ("it belongs to this one", owner(OURS, "a", "u"), false),
        ("to one of its name that was before", owner(OURS, "a", "before"), false),
        ("to another", owner(OURS, "b", "v"), true),
        ("to one of the other kind", owner(Dialect::ExtendedJob, "a", "v"), true),
        ("nothing says whose it is", json!({}), false),
        ("no run has made it", json!({"labels": {}}), true),
    ] {
        // The version that is referred to is gone, and a newer one is there.
        for (refers, there, place) in [
            ("all-else", "all-else", "secret/all-else"),
            ("all-else-v1", "all-else-v3", "secret/all-else-v*"),
        ] {
            let mut table = Table::new(2, b"key");
            let resource = fans_out(refers);
            let key = resource.key();
            table.learn(resource);
            table.objects.learn(seen(&written(there, &metadata, refers != there)));
            let look = table.look(&key, Duration::ZERO, jiff::Timestamp::UNIX_EPOCH).unwrap();
            let found = look.state.references.contains_key(place);
            assert_eq!(found, expected, "{there}: {name}");
        }
    }
}

/// What a run of `a` is to leave: this value, going with it or not.
fn wanted(name: &str, value: &str, owned: bool) -> Wanted {
    let label = ("quarks.cloudfoundry.org/container-name".to_owned(), "c".to_owned());
    Wanted {
        kind: Kind::Secret,
        name: name.to_owned(),
        data: BTreeMap::from([("k".to_owned(), value.as_bytes().to_vec())]),
        labels: BTreeMap::from([label]),
        annotations: BTreeMap::new(),
        versioned: false,
        versions: None,
        owned,
    }
}

/// What is done for it, in a word.
fn done(objects: &Objects, wanted: &Wanted) -> String {
    match step(objects, &fans_out("none"), "job", wanted, true) {
        Ok((_, Step::Nothing)) => "nothing".to_owned(),
        Ok((name, Step::Create(_))) => format!("create {name}"),
        Ok((_, Step::Replace(_, version))) => format!("replace {version}"),
        Ok((_, Step::Take(left))) => format!("take {}", left.version()),
        Err(why) if why.contains("belongs to another") => "refused: owned".to_owned(),
        Err(why) if why.contains("not made by a run") => "refused: by hand".to_owned(),
        Err(why) if why.contains("immutable") => "refused: immutable".to_owned(),
        Err(why) => why,
    }
}

#[test]
fn what_is_there_is_written_over_taken_away_or_refused_by_whose_it_is() {
    const OURS: Dialect = Dialect::QuarksJob;
    const OTHER: Dialect = Dialect::ExtendedJob;
    const OWNED: &str = "refused: owned";
    let deployment = json!({"ownerReferences": [{
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "a", "uid": "v", "controller": true,
    }]});
    let beside = |uid: &str| {
        json!({"ownerReferences": [{
            "apiVersion": "example.com/v1", "kind": "Certificate", "name": "tls", "uid": uid,
        }]})
    };
    let given = || {
        let mut given = beside("v");
        given["annotations"] = made_by("quarksjob/a")["annotations"].clone();
        given
    };
    let both = |uid: &str| {
        let mut both = owner(OURS, "a", uid);
        let other = beside("v")["ownerReferences"][0].clone();
        both["ownerReferences"].as_array_mut().unwrap().push(other);
        both
    };
    // Of what is to go with the QuarksJob and what is not, each: what holds the same, and what holds something else.
    for (name, metadata, owned, free) in [
        ("its own", owner(OURS, "a", "u"), ["nothing", "replace 7"], ["replace 7", "replace 7"]),
        ("its own, for nobody", made_by("quarksjob/a"), ["replace 7"; 2], ["nothing", "replace 7"]),
        ("another's, for nobody", made_by("quarksjob/b"), ["replace 7"; 2], ["replace 7"; 2]),
        ("nobody says whose", json!({}), ["replace 7"; 2], ["replace 7"; 2]),
        ("by hand", json!({"labels": {}}), ["refused: by hand"; 2], ["replace 7"; 2]),
        (
            "of one of its name that is gone",
            owner(OURS, "a", "before"),
            ["take 7"; 2],
            ["take 7"; 2],
        ),
        ("of another", owner(OURS, "b", "v"), [OWNED; 2], ["nothing", OWNED]),
        (
            "of one of its name, of the other kind",
            owner(OTHER, "a", "v"),
            [OWNED; 2],
            ["nothing", OWNED],
        ),
        ("of one of its name, of neither", deployment, [OWNED; 2], ["nothing", OWNED]),
        (
            "of one that does not say that it controls it",
            beside("v"),
            [OWNED; 2],
            ["nothing", OWNED],
        ),
        ("made here, and given another owner since", given(), [OWNED; 2], ["nothing", OWNED]),
        ("its own, and another's", both("u"), ["nothing", OWNED], [OWNED; 2]),
        (
            "of one of its name that is gone, and another's",
            both("before"),
            [OWNED; 2],
            ["nothing", OWNED],
        ),
        ("its own, which somebody has said", beside("u"), ["replace 7"; 2], ["replace 7"; 2]),
    ] {
        for (owned, expected) in [(true, owned), (false, free)] {
            for (value, expected) in ["is", "new"].into_iter().zip(expected) {
                let mut objects = Objects::new(b"key");
                let wanted = wanted("made", value, owned);
                assert_eq!(done(&objects, &wanted), "create made");
                objects.learn(seen(&written("made", &metadata, false)));
                assert_eq!(done(&objects, &wanted), expected, "{name}, owned: {owned}, {value}");
            }
        }
    }
}

#[test]
fn what_cannot_be_changed_is_taken_away_where_its_owner_is_gone_and_else_refused() {
    for (name, expected) in [("a", "take 7"), ("b", "refused: owned")] {
        let mut secret = written("made", &owner(Dialect::QuarksJob, name, "before"), false);
        secret["immutable"] = json!(true);
        let mut objects = Objects::new(b"key");
        objects.learn(seen(&secret));
        assert_eq!(done(&objects, &wanted("made", "new", true)), expected, "{name}");
    }
    // Where versions may be changed, that is not for an output that has the name of one.
    let mut objects = Objects::new(b"key");
    let mut version = Wanted { versioned: true, ..wanted("v", "is", true) };
    let (name, made) = step(&objects, &fans_out("none"), "job", &version, false).unwrap();
    let Step::Create(mut made) = made else { panic!("{made:?}") };
    assert_eq!(made["immutable"], json!(null));
    made["metadata"]["namespace"] = json!("n");
    made["metadata"]["resourceVersion"] = json!("7");
    objects.learn(seen(&made));
    version.name = name;
    version.versioned = false;
    let refused = "secret/v-v1 is there and a version";
    assert!(done(&objects, &version).starts_with(refused), "{}", done(&objects, &version));
    let mut map = written("made", &owner(Dialect::QuarksJob, "a", "before"), false);
    map["data"] = json!({"k": "is"});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    let mut objects = Objects::new(b"key");
    objects.learn(Object::of_config_map(&map).unwrap());
    let wanted = Wanted { kind: Kind::ConfigMap, ..wanted("made", "new", true) };
    assert_eq!(done(&objects, &wanted), "take 7", "a ConfigMap");
}

#[test]
fn a_version_that_goes_with_one_that_is_gone_stands_for_no_output() {
    const OURS: Dialect = Dialect::QuarksJob;
    let by_this_run = json!({"annotations": {"manciple.dev/written-by": "job"}});
    for (name, metadata, same, other) in [
        ("its own", owner(OURS, "a", "u"), "nothing", "create made-v4"),
        ("another's", owner(OURS, "b", "v"), "nothing", "create made-v4"),
        ("somebody's", json!({}), "nothing", "create made-v4"),
        (
            "of one of its name that is gone",
            owner(OURS, "a", "before"),
            "create made-v4",
            "create made-v4",
        ),
        ("of this run", by_this_run, "nothing", "nothing"),
    ] {
        let mut objects = Objects::new(b"key");
        objects.learn(seen(&written("made-v3", &metadata, true)));
        for (value, expected) in [("is", same), ("new", other)] {
            let wanted = Wanted { versioned: true, ..wanted("made", value, false) };
            assert_eq!(done(&objects, &wanted), expected, "{name}, {value}");
        }
    }
}

#[test]
fn what_belongs_to_nobody_says_whose_runs_write_it() {
    let objects = Objects::new(b"key");
    for (owned, expected) in [(true, Value::Null), (false, json!("quarksjob/a"))] {
        let made = step(&objects, &fans_out("none"), "job", &wanted("made", "is", owned), true);
        let Ok((_, Step::Create(object))) = made else { panic!("{made:?}") };
        let metadata = &object["metadata"];
        assert_eq!(metadata["annotations"]["manciple.dev/made-by"], expected, "owned: {owned}");
        assert_eq!(metadata["ownerReferences"].as_array().unwrap().len(), usize::from(owned));
    }
}
