//! What is decided without a cluster.

mod exposed;
mod kept;
mod objects;
mod ours;
mod plans;
mod records;
mod removal;
mod secrets;
mod server;
mod waiting;

use std::sync::Arc;

use kube::discovery::ApiResource;
use ring::hmac;
use serde_json::{Value, json};

use super::kinds::ServedKind;
use super::record::{Record, StoredRecord};
use super::remove::is_orphaned;
use super::resource::{Instance, Key};
use super::seen::SeenInstance;
use super::status::{Made, Objects, Stand, State, TIMEOUT, WAITING, conditions, said_of_drift};
use super::table::Table;
use super::trouble::{Trouble, written};
use crate::calls::CallError;

fn key() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, &[7; 32])
}

fn of() -> Key {
    Key { namespace: "shop".into(), name: "i".into(), uid: "u-1".into() }
}

fn served(group: &str, kind: &str, is_namespaced: bool) -> ServedKind {
    let dot = if group.is_empty() { "" } else { "/" };
    ServedKind {
        resource: ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}{dot}v1"),
            kind: kind.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
        },
        is_namespaced,
        is_kept: true,
    }
}

fn seen(version: &str, with: &Value) -> SeenInstance {
    let mut object = json!({
        "metadata": {
            "namespace": "shop", "name": "i", "uid": "u-1", "resourceVersion": version,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"template": {"objects": []}},
    });
    for (name, value) in with.as_object().into_iter().flatten() {
        match (&mut object[name], value) {
            (Value::Object(there), Value::Object(more)) => there.extend(more.clone()),
            (there, value) => *there = value.clone(),
        }
    }
    serde_json::from_str(&object.to_string()).unwrap()
}

#[test]
fn drift_is_said_when_it_is_news() {
    let with = |condition: Value| {
        Instance::of(seen("1", &json!({"status": {"conditions": [condition]}}))).unwrap()
    };
    let none = with(json!({"type": "Ready", "status": "True"}));
    let said = |of: &Instance, objects, message: &str| {
        let conditions = said_of_drift(of, objects, message, "2026-01-01T00:00:00Z")?;
        let conditions = conditions.as_array().cloned().unwrap();
        conditions.into_iter().find(|it| it["type"] == "Drifted")
    };
    assert_eq!(said(&none, Objects::AsMade, ""), None, "it never drifted");
    let drifted = said(&none, Objects::Drifted, "a").unwrap();
    assert_eq!((&drifted["status"], &drifted["message"]), (&json!("True"), &json!("a")));
    let again = with(drifted.clone());
    assert_eq!(said(&again, Objects::Drifted, "a"), None, "it is said already");
    assert_eq!(said(&again, Objects::Drifted, "b").unwrap()["message"], "b");
    assert_eq!(said(&again, Objects::AsMade, "").unwrap()["reason"], "AsMade");
    let repaired = said(&again, Objects::Repaired, "a").unwrap();
    assert_eq!((&repaired["status"], &repaired["reason"]), (&json!("False"), &json!("Repaired")));
    assert_eq!(
        said(&with(repaired), Objects::AsMade, ""),
        None,
        "that it was repaired stays to be seen"
    );
}

#[test]
fn a_change_is_what_nobody_has_taken_up() {
    for (name, generation, status, expected) in [
        ("it is new", 1, json!({}), false),
        ("it was changed before it was begun", 2, json!({}), true),
        ("it is ready", 1, json!({"observedGeneration": 1}), false),
        ("it was ready", 2, json!({"observedGeneration": 1}), true),
        (
            "it was taken up",
            2,
            json!({"observedGeneration": 1, "change": {"generation": 2}}),
            false,
        ),
        ("it is changed again", 3, json!({"change": {"generation": 2}}), true),
        ("nobody counts", 0, json!({}), false),
    ] {
        let with = json!({"metadata": {"generation": generation}, "status": status});
        let instance = Instance::of(seen("1", &with)).unwrap();
        assert_eq!(instance.is_changed(), expected, "{name}");
    }
}

#[test]
fn what_passes_is_told_from_what_does_not() {
    let forbidden = |said: &str| CallError::Forbidden(said.to_owned());
    let refused = |said: &str| CallError::Failed(said.to_owned());
    let invalid = CallError::Invalid("spec: Invalid value".to_owned());
    let passing = |trouble: &Trouble| matches!(trouble, Trouble::Passing(_));
    let doubtful = |trouble: &Trouble| matches!(trouble, Trouble::Doubtful(_));
    let last = |trouble: &Trouble| matches!(trouble, Trouble::Final(_));
    let impersonate = |mode: &str| {
        forbidden(&format!(
            r#"users "a" is forbidden: User "m" cannot impersonate{mode} resource "users""#
        ))
    };
    type Is<'a> = &'a dyn Fn(&Trouble) -> bool;
    let cases: [(&str, CallError, Is<'_>); 13] = [
        ("we may not impersonate", impersonate(""), &passing),
        ("the same, from 1.36 on", impersonate(":user-info"), &passing),
        ("the same, of one verb", impersonate("-on:user-info:create"), &passing),
        ("a quota", forbidden("pods \"a\" is forbidden: exceeded quota: q"), &passing),
        (
            "a namespace that goes",
            forbidden("namespace x because it is being terminated"),
            &passing,
        ),
        (
            "a right that is missing",
            forbidden("pods is forbidden: User \"a\" cannot create"),
            &doubtful,
        ),
        ("a namespace that is not there", CallError::NotFound, &doubtful),
        ("what is invalid", invalid, &last),
        ("too large for etcd", refused("etcdserver: request is too large"), &last),
        (
            "too large for the API server",
            refused("Request entity too large: limit is 3145728"),
            &last,
        ),
        (
            "too large to be sent to etcd",
            refused(
                "rpc error: code = ResourceExhausted desc = trying to send message larger than max \
                 (2097258 vs. 2097152)",
            ),
            &last,
        ),
        ("a fault of the API server", refused("Internal error occurred"), &passing),
        ("no answer", CallError::NoAnswer("connection reset".to_owned()), &passing),
    ];
    for (name, error, is) in cases {
        assert!(is(&Trouble::from(error)), "{name}");
    }
}

#[test]
fn a_write_of_the_instance_that_never_goes_is_told_from_one_that_may() {
    let refused = |said: &str| CallError::Failed(said.to_owned());
    let old = |trouble: &Trouble| *trouble == Trouble::Old;
    let passing = |trouble: &Trouble| matches!(trouble, Trouble::Passing(_));
    let last = |trouble: &Trouble| matches!(trouble, Trouble::Final(_));
    type Is<'a> = &'a dyn Fn(&Trouble) -> bool;
    let cases: [(&str, CallError, Is<'_>); 4] = [
        ("somebody wrote it", CallError::Conflict, &old),
        ("it is gone", CallError::NotFound, &old),
        ("a fault of the API server", refused("Internal error occurred"), &passing),
        ("no room for more", refused("etcdserver: request is too large"), &last),
    ];
    for (name, error, is) in cases {
        assert!(is(&written::<()>(Err(error)).unwrap_err()), "{name}");
    }
}

#[test]
fn what_was_seen_later_stays() {
    let mut table = Table::default();
    assert_eq!(table.learn(seen("5", &json!({}))), Some(of()));
    assert_eq!(table.learn(seen("5", &json!({}))), None, "it is no news");
    assert_eq!(table.learn(seen("4", &json!({}))), None, "nor what is older");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    assert_eq!(table.learn(seen("6", &ready)), None, "nothing is left to do");
    assert_eq!(table.begun(), (1, Vec::new()));
    assert_eq!(table.learn(seen("5", &json!({}))), None);
    assert!(table.instance(&of()).is_none());
    let mut other = Table::default();
    assert_eq!(other.learn(seen("6", &ready)), Some(of()), "one that is ready is looked after");
    let deleted = json!({
        "metadata": {"deletionTimestamp": "2026-01-01T00:00:01Z"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    assert_eq!(table.learn(seen("7", &deleted)), Some(of()));
}

/// Thousands may wait, and what is read of one takes many times what it is read from.
#[test]
fn what_is_read_of_one_is_there_while_somebody_works_with_it() {
    let mut table = Table::default();
    table.learn(seen("5", &json!({})));
    let first = table.instance(&of()).unwrap();
    assert!(Arc::ptr_eq(&first, &table.instance(&of()).unwrap()), "it is read once");
    let read = Arc::downgrade(&first);
    drop(first);
    assert!(read.upgrade().is_none(), "nobody keeps it");
    assert_eq!(table.instance(&of()).unwrap().spec(), &json!({"template": {"objects": []}}));
    let before = table.instance(&of()).unwrap();
    table.learn(seen("6", &json!({"spec": {"template": {"objects": [1]}}})));
    let now = table.instance(&of()).unwrap();
    assert_eq!((before.version.as_str(), now.version.as_str()), ("5", "6"));
    assert_eq!(now.spec()["template"]["objects"], json!([1]));
}

/// One that takes too much fails with why, and can be removed.
#[test]
fn one_that_is_too_much_is_not_read() {
    let many = vec![json!({"": 0}); 60_000];
    let heavy = seen("5", &json!({"spec": {"template": {"objects": many}}}));
    assert_eq!(heavy.weight(), 0, "it waits for no turn");
    let heavy = Instance::of(heavy).unwrap();
    let why = "spec: would take more than 16 MiB of memory: let it have fewer maps and lists";
    assert_eq!(heavy.check(), Err(why.to_owned()));
    assert_eq!((heavy.spec(), heavy.is_held()), (&Value::Null, false));
    let less = seen("5", &json!({"spec": {"template": {"objects": vec![json!({"": 0}); 10_000]}}}));
    assert!(less.weight() > 7 << 20, "{}", less.weight());
    assert_eq!(Instance::of(less).unwrap().check(), Ok(()));
}

fn failed(was_awaited: bool) -> Stand {
    Stand::Failed { why: "why".to_owned(), was_awaited }
}

#[test]
fn conditions_keep_their_times_and_those_of_others() {
    let there = json!({"status": {"conditions": [
        {"type": "Ready", "status": "False", "reason": "Waiting", "lastTransitionTime": "then"},
        {"type": "Other", "status": "True"},
    ]}});
    let instance = Instance::of(seen("1", &there)).unwrap();
    let said = conditions(&instance, &Stand::Retrying("why".to_owned()), "now");
    let ready = json!({
        "type": "Ready", "status": "False", "reason": "Retrying", "message": "why",
        "lastTransitionTime": "then",
    });
    assert_eq!(said, json!([ready, {"type": "Other", "status": "True"}]));
    let said = conditions(&instance, &failed(false), "now");
    assert_eq!(said[0], instance.status()["conditions"][0], "as in the original");
    assert_eq!(said[2]["type"], "InstantiateFailure");
    let mut retrying = there;
    retrying["status"]["conditions"][0]["reason"] = json!("Retrying");
    let retrying = Instance::of(seen("1", &retrying)).unwrap();
    let said = conditions(&retrying, &failed(false), "now");
    assert_eq!((&said[0]["type"], &said[0]["reason"]), (&json!("Ready"), &json!("Failed")));
    let said = conditions(&instance, &Stand::Ready, "now");
    assert_eq!(said[0]["lastTransitionTime"], "now");
    assert_eq!(said[0].get("message"), None, "Kubernetes 1.20 takes an empty text for null");
}

#[test]
fn how_it_stands_is_said_in_the_words_of_the_original() {
    assert_eq!(WAITING, "Waiting for instantiated objects to report ready");
    assert_eq!(TIMEOUT, "timeout while waiting for template instance to be ready");
    let new = Instance::of(seen("1", &json!({}))).unwrap();
    let ready = |status, reason| ("Ready", status, reason);
    let failure = ("InstantiateFailure", "True", "Failed");
    for (name, stand, expected) in [
        ("waiting", Stand::Waiting(WAITING.to_owned()), vec![ready("False", "Waiting")]),
        ("ready", Stand::Ready, vec![ready("True", "Created")]),
        ("failed before it was made", failed(false), vec![failure]),
        ("failed while it was waited for", failed(true), vec![ready("False", "Failed"), failure]),
    ] {
        let said = conditions(&new, &stand, "now");
        let said = said.as_array().unwrap();
        let text = |it: &Value, of: &str| it[of].as_str().unwrap_or_default().to_owned();
        let found: Vec<[String; 3]> =
            said.iter().map(|it| ["type", "status", "reason"].map(|of| text(it, of))).collect();
        let expected: Vec<[String; 3]> =
            expected.iter().map(|&(kind, is, why)| [kind, is, why].map(str::to_owned)).collect();
        assert_eq!(found, expected, "{name}");
        assert!(said.iter().all(|it| it["lastTransitionTime"] == "now"), "{name}");
    }
}

#[test]
fn what_was_made_is_named_as_the_original_names_it() {
    let made = |namespace: &str| Made {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        name: "a".to_owned(),
        uid: "u".to_owned(),
        state: State::Created,
        message: String::new(),
    };
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u"});
    let mut placed = reference.clone();
    placed["namespace"] = json!("shop");
    for (namespace, expected) in [("shop", placed), ("", reference)] {
        let entry = made(namespace).entry();
        assert_eq!(entry["ref"], expected, "{namespace:?}");
        assert_eq!(Made::of(&entry), Some(made(namespace)), "{namespace:?}");
        // As the original has written it: without a state.
        assert_eq!(Made::of(&json!({"ref": expected})), Some(made(namespace)), "{namespace:?}");
    }
}

#[test]
fn an_instance_is_made_when_it_says_so_of_all_its_objects() {
    let objects = |count: usize| vec![json!({}); count];
    for (name, planned, made, observed, expected) in [
        ("it says nothing", 2, 0, None, false),
        ("some are there", 2, 1, Some(1), false),
        ("all are there", 2, 2, Some(1), true),
        ("of what it was before", 2, 2, Some(0), false),
        // There one without objects is made before anybody has looked at it.
        ("it has none, and nobody has looked", 0, 0, None, false),
        ("it has none", 0, 0, Some(1), true),
    ] {
        let with = json!({
            "metadata": {"generation": 1},
            "spec": {"template": {"objects": objects(planned)}},
            "status": {"objects": objects(made), "observedGeneration": observed},
        });
        let instance = Instance::of(seen("1", &with)).unwrap();
        assert_eq!(instance.is_made(), expected, "{name}");
    }
}

#[test]
fn an_instance_has_an_hour_unless_it_or_its_template_says_otherwise() {
    let timeout = |text: &str| json!({"template.manciple.dev/ready-timeout": text});
    for (name, own, of_template, until) in [
        ("nobody says", json!({}), json!({}), "2026-01-01T01:00:00Z"),
        ("the template says", json!({}), timeout("15m"), "2026-01-01T00:15:00Z"),
        ("the instance says", timeout("2h"), timeout("15m"), "2026-01-01T02:00:00Z"),
    ] {
        let with = json!({
            "metadata": {"annotations": own},
            "spec": {"template": {"metadata": {"annotations": of_template}}},
        });
        let instance = Instance::of(seen("1", &with)).unwrap();
        assert_eq!(instance.deadline(), until.parse().unwrap(), "{name}: from its creation");
    }
}

#[test]
fn nothing_further_becomes_of_what_is_ready_or_has_failed() {
    for (kind, status, expected) in [
        ("Ready", "True", true),
        ("Ready", "False", false),
        ("InstantiateFailure", "True", true),
        ("InstantiateFailure", "False", false),
        ("Other", "True", false),
    ] {
        let with = json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        let instance = Instance::of(seen("1", &with)).unwrap();
        assert_eq!(instance.has_ended(), expected, "{kind} is {status}");
    }
}

#[test]
fn objects_stay_where_whoever_deletes_says_so() {
    let (with, without) = (json!(["orphan", "x"]), json!(["x"]));
    let instance = |finalizers: &Value| {
        Instance::of(seen("1", &json!({"metadata": {"finalizers": finalizers}}))).unwrap()
    };
    let kept = |is_orphaned: bool| {
        let of = instance(&without);
        let record = Record::of(&of, &[], String::new(), String::new());
        let mut kept = StoredRecord::new(record, of.spec());
        kept.is_orphaned = is_orphaned;
        kept
    };
    for (name, finalizers, record, expected) in [
        ("nobody says so", &without, Some(kept(false)), false),
        ("it was said just now", &with, Some(kept(false)), true),
        ("before anything was recorded", &with, None, true),
        ("the garbage collector has seen to it", &without, Some(kept(true)), true),
        ("nothing was recorded", &without, None, false),
    ] {
        assert_eq!(is_orphaned(&instance(finalizers), record.as_ref()), expected, "{name}");
    }
}
