//! What is kept of instances with something to do, and that there is a limit to it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::seen;
use crate::templates::record::{Record, StoredRecord};
use crate::templates::resource::{Instance, Key};
use crate::templates::seen::SeenInstance;
use crate::templates::status::{Made, State};
use crate::templates::table::Table;

/// In bytes; of instances of a good kilobyte there is room for two.
const MOST: usize = 2500;

fn of(name: &str) -> Key {
    Key { namespace: "shop".into(), name: name.into(), uid: format!("u-{name}").into() }
}

/// One that takes a kilobyte.
fn large(name: &str, version: &str) -> SeenInstance {
    let template = json!({"objects": [], "message": "m".repeat(1000)});
    let metadata = json!({"name": name, "uid": format!("u-{name}")});
    seen(version, &json!({"metadata": metadata, "spec": {"template": template}}))
}

fn made() -> Made {
    Made {
        api_version: "v1".to_owned(),
        kind: "Secret".to_owned(),
        namespace: "shop".to_owned(),
        name: "s".to_owned(),
        uid: "u-s".to_owned(),
        state: State::Created,
        message: String::new(),
    }
}

/// Those of which something is kept, of these.
fn kept<'a>(table: &Table, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().copied().filter(|name| !table.is_unread(&of(name))).collect()
}

fn three() -> Table {
    let mut table = Table::default();
    table.most = MOST;
    for name in ["a", "b", "c"] {
        assert_eq!(table.learn(large(name, "1")), Some(of(name)), "it has something to do");
    }
    table
}

#[test]
fn of_those_for_which_there_is_no_room_the_names_are_known() {
    let mut table = three();
    assert_eq!(kept(&table, &["a", "b", "c"]), ["a", "b"]);
    assert!(table.instance(&of("b")).is_some() && table.instance(&of("c")).is_none());
    assert_eq!(table.begun().1.len(), 3, "all have something to do");
    assert_eq!(table.learn(large("c", "1")), None, "a list tells nothing new of it");
    assert_eq!(table.learn(large("c", "2")), Some(of("c")), "a change is one");
    assert_eq!(kept(&table, &["a", "b", "c"]), ["a", "b"]);
    table.remove(&of("a"));
    assert_eq!(table.learn(large("c", "3")), Some(of("c")));
    assert_eq!(kept(&table, &["b", "c"]), ["b", "c"], "there is room again");
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    table.learn(seen("4", &json!({"metadata": {"name": "b", "uid": "u-b"}, "status": ready})));
    table.learn(large("d", "1"));
    assert_eq!(kept(&table, &["c", "d"]), ["c", "d"], "of one that has ended nothing is kept");
    table.keep(&None, &[of("d")].into());
    table.learn(large("e", "1"));
    assert_eq!(kept(&table, &["d", "e"]), ["d", "e"], "nor of one that is not listed");
}

#[test]
fn all_is_kept_of_one_that_somebody_attends_to() {
    let mut table = three();
    let weight = large("c", "1").weight();
    assert!(matches!(table.attend(&of("c")), Some(Err(known)) if known == weight));
    table.learn(large("c", "1"));
    let instance = table.instance(&of("c")).unwrap();
    assert!(Arc::ptr_eq(&instance, &table.instance(&of("c")).unwrap()));
    table.learn(large("c", "2"));
    assert_eq!(table.instance(&of("c")).unwrap().version, "2", "news of it, too");
    table.leave(&of("c"));
    assert!(table.instance(&of("c")).is_none() && table.is_unread(&of("c")));
    assert!(matches!(table.attend(&of("a")), Some(Ok(_))));
    table.leave(&of("a"));
    assert_eq!(kept(&table, &["a", "b", "c"]), ["a", "b"]);
}

/// What was made is of a revision, whether or not its record is kept.
#[test]
fn what_was_made_of_a_revision_before_counts_for_no_later_one() {
    let mut table = Table::default();
    table.most = 0;
    table.learn(large("a", "1"));
    let revision = |number: u64| {
        let instance = Instance::of(large("a", "1")).unwrap();
        let mut record = Record::of(&instance, &[], String::new(), String::new());
        record.revision = number;
        Arc::new(StoredRecord::new(record, &Value::Null))
    };
    table.attend(&of("a"));
    let work = table.work(&of("a")).unwrap();
    work.take_up(&revision(1));
    work.made.insert(0, made());
    table.leave(&of("a"));
    let work = table.work(&of("a")).unwrap();
    assert!(work.record.is_none());
    work.take_up(&revision(1));
    assert_eq!(work.made.len(), 1, "it is of this one");
    work.take_up(&revision(2));
    assert!(work.made.is_empty());
}

/// A record is as large as a Secret may be.
#[test]
fn what_is_known_of_records_counts_too() {
    let mut table = three();
    let instance = Instance::of(large("a", "1")).unwrap();
    let mut record = Record::of(&instance, &[], String::new(), String::new());
    record.parameters.insert("CERTIFICATE".to_owned(), "c".repeat(1000));
    let record = Arc::new(StoredRecord::new(record, &Value::Null));
    table.attend(&of("a"));
    table.work(&of("a")).unwrap().record = Some(Arc::clone(&record));
    table.leave(&of("a"));
    assert_eq!(kept(&table, &["a", "b"]), ["b"]);
    assert!(table.work(&of("a")).unwrap().record.is_none());
    assert_eq!(Arc::strong_count(&record), 1);
    // Whoever leads anew knows nothing of records, and counts anew.
    table.give_up();
    table.attend(&of("c"));
    table.learn(large("c", "1"));
    table.leave(&of("c"));
    assert_eq!(kept(&table, &["b", "c"]), ["b", "c"]);
}
