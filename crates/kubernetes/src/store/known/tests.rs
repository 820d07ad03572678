use engine::ports::Filter;
use engine::record::{Phase, Record};
use engine::testing::store_contract::{sample, sample_binding};
use osb::Action;

use super::*;
use crate::split::Places;
use crate::store::entry::StandsIn;

fn entry(record: &Record, version: u64) -> Entry {
    let entry = Entry::new(record, Places::default(), "{}".into(), StandsIn::Resource);
    Entry { version, uid: "uid".to_owned(), ..entry }
}

fn known(known: &KnownRecords, record: &Record) -> Option<u64> {
    known.get(&record.key).map(|entry| entry.version)
}

#[test]
fn what_a_list_has_that_began_later_is_so_though_it_is_older() {
    let record = sample("i");
    let table = KnownRecords::default();
    let list = |versions: &[u64]| {
        for version in versions {
            table.hear(entry(&record, *version), Source::List);
        }
        table.finish(Watched::Instances);
    };
    table.begin(Watched::Instances);
    list(&[5]);
    table.hear(entry(&record, 7), Source::Event);
    table.hear(entry(&record, 6), Source::Event);
    assert_eq!(known(&table, &record), Some(7), "an event that comes late");

    table.begin(Watched::Instances);
    table.hear(entry(&record, 9), Source::Event);
    list(&[7]);
    assert_eq!(known(&table, &record), Some(9), "written while the list was read");

    table.begin(Watched::Instances);
    list(&[4]);
    assert_eq!(known(&table, &record), Some(4), "etcd was put back");

    table.removed(&entry(&record, 4));
    table.hear(entry(&record, 8), Source::Event);
    assert_eq!(known(&table, &record), None, "what a watch has yet to say of what was removed");
    table.forget(&entry(&record, 8));
    table.learn(Arc::new(entry(&record, 8)));
    assert_eq!(known(&table, &record), None, "a read that was begun before it went");
    table.begin(Watched::Instances);
    list(&[3]);
    assert_eq!(known(&table, &record), Some(3), "etcd was put back to before it was removed");
    table.begin(Watched::Instances);
    list(&[]);
    assert_eq!(known(&table, &record), None, "etcd was put back to before it was made");
}

#[test]
fn what_a_list_of_an_instance_was_without_is_not_brought_back_by_a_watch_that_is_behind() {
    let [record, other] = ["i", "j"].map(sample);
    let table = KnownRecords::default();
    let instance = record.key.instance().clone();
    table.hear(entry(&record, 5), Source::Event);
    table.hear(Entry { uid: "other".to_owned(), ..entry(&other, 5) }, Source::Event);

    table.take_list(&instance, Records::Instances, Vec::new(), 4);
    assert_eq!(known(&table, &record), Some(5), "written after the list");
    table.take_list(&instance, Records::Instances, Vec::new(), 6);
    assert_eq!(known(&table, &record), None);
    assert_eq!(known(&table, &other), Some(5), "another's");
    table.hear(entry(&record, 4), Source::Event);
    assert_eq!(known(&table, &record), None, "what it was before it went");
    let anew = Entry { uid: "anew".to_owned(), ..entry(&record, 9) };
    table.hear(anew, Source::Event);
    assert_eq!(known(&table, &record), Some(9), "one that was made anew");
}

#[test]
fn of_an_instance_is_looked_at_what_it_has_alone() {
    let table = KnownRecords::default();
    let mut entries = BTreeMap::new();
    for instance in ["h", "i", "i ", "i2", "j"] {
        let bindings = [" ", " a", "b", "c"].map(|id| sample_binding(instance, id));
        for record in bindings.into_iter().chain([sample(instance)]) {
            let uid = record.key.to_string();
            let entry = Arc::new(Entry { uid, ..entry(&record, 5) });
            entries.insert(record.key.clone(), Held { entry: Arc::clone(&entry), list: 0 });
            table.hear(entry, Source::Event);
        }
    }
    let binding = |instance: &str, id: &str| sample_binding(instance, id).key;
    let of = |ids: &[&str]| ids.iter().map(|id| binding("i", id)).collect::<Vec<_>>();
    let i = sample("i").key;
    for (name, kind, after, limit, expected) in [
        ("all", Records::Bindings, None, 9, of(&[" ", " a", "b", "c"])),
        ("some", Records::Bindings, None, 2, of(&[" ", " a"])),
        ("after one", Records::Bindings, Some(binding("i", " a")), 9, of(&["b", "c"])),
        ("after the last", Records::Bindings, Some(binding("i", "c")), 9, of(&[])),
        ("after another's", Records::Bindings, Some(binding("h", "z")), 1, of(&[" "])),
        ("after a later one", Records::Bindings, Some(binding("i2", "a")), 9, of(&[])),
        ("itself", Records::Instances, None, 9, vec![i.clone()]),
        ("nothing after itself", Records::Instances, Some(i.clone()), 9, of(&[])),
    ] {
        let looked_at = within(&entries, kind, Some(i.instance()), after.as_ref());
        let others = looked_at.filter(|(key, _)| key.instance() != i.instance()).count();
        assert_eq!(others, 0, "{name}");
        let instance = Some(i.instance().clone());
        let query = Query { kind, instance, filter: Filter::All, after, limit };
        let page = table.page(&query).iter().map(|it| it.key.clone()).collect::<Vec<_>>();
        assert_eq!(page, expected, "{name}");
    }
    let kept = Arc::clone(&table.get(&binding("i", "b")).unwrap());
    table.take_list(i.instance(), Records::Bindings, vec![kept], 6);
    let is_known = |key: Key| table.get(&key).is_some();
    assert_eq!(
        [" ", " a", "b", "c"].map(|id| is_known(binding("i", id))),
        [false, false, true, false]
    );
    assert!(is_known(i) && is_known(binding("i ", "b")) && is_known(binding("i2", " ")));
}

#[test]
fn a_deleted_resource_asks_for_what_a_deprovision_would() {
    let is_unwanted = |action: Action, phase: Phase| {
        let mut record = sample("i");
        record.operation.action = action;
        record.operation.phase = phase;
        RecordChange::of(&Entry { deleting: true, ..entry(&record, 1) }).unwanted
    };
    let begun = || Phase::Pending { not_before: None };
    for (name, action, phase, unwanted) in [
        ("there", Action::Provision, Phase::Succeeded, true),
        ("being made: what makes it is halted", Action::Provision, begun(), true),
        ("being updated: that ends first", Action::Update, begun(), false),
        ("going already", Action::Deprovision, begun(), false),
    ] {
        assert_eq!(is_unwanted(action, phase), unwanted, "{name}");
    }
}

#[test]
fn a_resource_that_others_hold_is_let_go_once() {
    let mut record = sample("i");
    record.lifecycle = engine::record::Lifecycle::Deleted;
    record.operation.phase = Phase::Succeeded;
    let gone =
        |held, deleting| RecordChange::of(&Entry { held, deleting, ..entry(&record, 1) }).gone;
    assert!(gone(true, false) && gone(true, true), "ours is on it");
    assert!(gone(false, false), "nobody has deleted it");
    assert!(!gone(false, true), "it waits for others alone");
}
