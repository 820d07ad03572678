//! Cases of pages, filters and the lists that a start reads.
#![expect(clippy::unwrap_used, reason = "assertions of a test suite")]

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use osb::InstanceId;

use super::Place;
use super::samples::{
    Lists as _, all, busy, deleted, get, key, keys, of_plan, put, sample, sample_binding,
};
use crate::ports::{Filter, Kind, Query};
use crate::record::{Key, Timestamp};

/// Ids that break what is quoted, split, folded, normalised, matched or cut.
fn hostile_ids() -> Vec<String> {
    let mut ids: Vec<String> = [
        "a",
        "A",
        "aa",
        "a ",
        " a",
        "a/b",
        "a/",
        "/",
        "..",
        ".",
        "a%2Fb",
        "a%",
        "a_",
        "_",
        "%",
        "*",
        "a'b",
        "'; DROP TABLE records; --",
        "\"",
        "`",
        "\\",
        "\\0",
        "a\\",
        "-1",
        "0",
        "00",
        "1e3",
        "null",
        "{}",
        "[\"a\",\"b\"]",
        "ß",
        "SS",
        "ss",
        "é",
        "e\u{301}",
        "\u{1F980}",
        "\u{FF}",
        "\u{FFFD}",
        "\u{10FFFF}",
        "\u{202E}abc",
        "İ",
        "i",
        "ı",
        "a,b",
        "a\u{A0}b",
        "~",
    ]
    .map(str::to_owned)
    .into();
    ids.push("x".repeat(osb::MAX_ID_BYTES));
    ids.push("x".repeat(osb::MAX_ID_BYTES - 1));
    ids
}

pub(super) async fn hostile_ids_are_ids_like_others(place: Box<dyn Place>) {
    let store = place.open().await;
    let ids = hostile_ids();
    let mut expected = BTreeMap::new();
    for (n, id) in ids.iter().enumerate() {
        let other = &ids[(n + 1) % ids.len()];
        for record in [sample(id), sample_binding(id, other), sample_binding(other, id)] {
            if let Entry::Vacant(vacant) = expected.entry(record.key.clone()) {
                vacant.insert(put(&store, record).await);
            }
        }
    }
    for (key, version) in &expected {
        let read = get(&store, key).await;
        assert_eq!((&read.record.key, &read.version), (key, version));
    }
    let mut listed = keys(&store.list(&all(Kind::Instances)).await.unwrap());
    listed.extend(keys(&store.list(&all(Kind::Bindings)).await.unwrap()));
    assert!(listed.iter().eq(expected.keys()), "in the order of keys");
    for id in &ids {
        let instance = Some(InstanceId::new(id).unwrap());
        let of_one = Query { instance, ..all(Kind::Bindings) };
        let listed = keys(&store.list(&of_one).await.unwrap());
        let bindings = expected.keys().filter(|key| key.binding().is_some());
        assert!(listed.iter().eq(bindings.filter(|key| key.instance().as_str() == id)), "{id}");
    }
}

pub(super) async fn pages_hold_everything_once_and_in_order(place: Box<dyn Place>) {
    let store = place.open().await;
    let mut expected = BTreeSet::new();
    for n in 0..30 {
        // Written out of order; several bindings of each instance.
        let record = sample_binding(&format!("i{}", n * 7 % 10), &format!("b{}", n * 11 % 30));
        expected.insert(record.key.clone());
        put(&store, record).await;
        put(&store, sample(&format!("other-{n}"))).await;
    }
    for limit in [1, 2, 7, 29, 30, 31, usize::MAX] {
        let mut query = Query { limit, ..all(Kind::Bindings) };
        let mut seen = Vec::new();
        loop {
            let page = keys(&store.list(&query).await.unwrap());
            assert!(page.len() <= limit);
            let Some(last) = page.last() else { break };
            query.after = Some(last.clone());
            seen.extend(page);
        }
        assert!(seen.iter().eq(&expected), "pages of {limit}: {seen:?}");
    }
    let nothing = Query { limit: 0, ..all(Kind::Bindings) };
    assert!(store.list(&nothing).await.unwrap().is_empty());
}

pub(super) async fn a_page_begins_after_any_key(place: Box<dyn Place>) {
    let store = place.open().await;
    for record in [sample("b"), sample("d"), sample_binding("b", "1"), sample_binding("d", "1")] {
        put(&store, record).await;
    }
    let after = |kind, key: Key| {
        let (store, query) = (Arc::clone(&store), Query { after: Some(key), ..all(kind) });
        async move { store.list(&query).await.unwrap().len() }
    };
    let binding = |instance, id| sample_binding(instance, id).key;
    // What is not, or no longer, there.
    for (id, count) in [("a", 2), ("b", 1), ("c", 1), ("d", 0), ("e", 0)] {
        assert_eq!(after(Kind::Instances, key(id)).await, count, "{id}");
    }
    for (instance, id, count) in
        [("b", "0", 2), ("b", "1", 1), ("b", "2", 1), ("c", "9", 1), ("d", "0", 1), ("d", "1", 0)]
    {
        assert_eq!(after(Kind::Bindings, binding(instance, id)).await, count, "{instance} {id}");
    }
    // All instances come before all bindings.
    assert_eq!(after(Kind::Bindings, key("z")).await, 2);
    assert_eq!(after(Kind::Instances, binding("a", "1")).await, 0);
}

pub(super) async fn filters_select(place: Box<dyn Place>) {
    let store = place.open().await;
    for record in [
        sample("ready"),
        busy(sample("working")),
        deleted(sample("gone-5"), 5),
        deleted(sample("gone-6"), 6),
        deleted(busy(sample("odd")), 4),
    ] {
        put(&store, record).await;
    }
    let none: [&str; 0] = [];
    for (filter, expected) in [
        (Filter::All, ["gone-5", "gone-6", "odd", "ready", "working"].as_slice()),
        (Filter::Live, &["ready", "working"]),
        (Filter::Busy, &["odd", "working"]),
        (Filter::DeletedBefore(Timestamp(4)), &none),
        (Filter::DeletedBefore(Timestamp(5)), &["odd"]),
        (Filter::DeletedBefore(Timestamp(6)), &["gone-5", "odd"]),
        (Filter::DeletedBefore(Timestamp(u64::MAX)), &["gone-5", "gone-6", "odd"]),
    ] {
        let query = Query { filter, ..all(Kind::Instances) };
        let listed = keys(&store.list(&query).await.unwrap());
        let expected: Vec<_> = expected.iter().map(|id| key(id)).collect();
        assert_eq!(listed, expected, "{filter:?}");
        // The same in pages of one.
        let mut query = Query { limit: 1, ..query };
        for key in expected {
            let page = keys(&store.list(&query).await.unwrap());
            query.after = Some(key);
            assert_eq!(page, query.after.as_slice(), "{filter:?}");
        }
        assert!(store.list(&query).await.unwrap().is_empty());
    }
}

pub(super) async fn lists_of_one_instance_hold_no_others(place: Box<dyn Place>) {
    let store = place.open().await;
    for instance in ["i", "i2", "I", "i "] {
        put(&store, sample(instance)).await;
        put(&store, sample_binding(instance, "1")).await;
    }
    put(&store, sample_binding("i", "2")).await;
    let query =
        |kind, filter| Query { instance: Some(InstanceId::new("i").unwrap()), filter, ..all(kind) };
    let list = async |query: Query| keys(&store.list(&query).await.unwrap());
    let expected = [sample_binding("i", "1").key, sample_binding("i", "2").key];
    assert_eq!(list(query(Kind::Bindings, Filter::All)).await, expected);
    assert_eq!(list(query(Kind::Bindings, Filter::Live)).await, expected);
    assert!(list(query(Kind::Bindings, Filter::Busy)).await.is_empty());
    assert_eq!(list(query(Kind::Instances, Filter::All)).await, [key("i")]);
}

pub(super) async fn busy_is_what_has_an_operation_in_progress(place: Box<dyn Place>) {
    let store = place.open().await;
    let working = busy(sample_binding("i", "working"));
    put(&store, sample("idle")).await;
    let version = put(&store, busy(sample("i"))).await;
    put(&store, working.clone()).await;
    assert_eq!(store.busy().await.unwrap(), [key("i"), working.key.clone()]);
    let version = store.write(Arc::new(sample("i")), Some(&version)).await.unwrap();
    assert_eq!(store.busy().await.unwrap(), std::slice::from_ref(&working.key));
    store.write(Arc::new(busy(sample("i"))), Some(&version)).await.unwrap();
    assert_eq!(store.busy().await.unwrap(), [key("i"), working.key]);
}

pub(super) async fn plans_in_use_are_those_of_live_records_once(place: Box<dyn Place>) {
    let store = place.open().await;
    for n in 0..5 {
        put(&store, of_plan(sample(&format!("a{n}")), "s1", "p1")).await;
    }
    let version = put(&store, of_plan(sample("b"), "s1", "p2")).await;
    put(&store, of_plan(sample_binding("a0", "x"), "s2", "p1")).await;
    put(&store, deleted(of_plan(sample("c"), "s3", "p1"), 5)).await;
    let plans = async || -> BTreeSet<(String, String)> {
        let plans = store.plans_in_use().await.unwrap();
        let set: BTreeSet<_> = plans
            .iter()
            .map(|(service, plan)| (service.as_str().to_owned(), plan.as_str().to_owned()))
            .collect();
        assert_eq!(set.len(), plans.len(), "each once");
        set
    };
    let pairs = |pairs: &[(&str, &str)]| -> BTreeSet<_> {
        pairs.iter().map(|(service, plan)| ((*service).to_owned(), (*plan).to_owned())).collect()
    };
    assert_eq!(plans().await, pairs(&[("s1", "p1"), ("s1", "p2"), ("s2", "p1")]));
    let gone = deleted(of_plan(sample("b"), "s1", "p2"), 6);
    store.write(Arc::new(gone), Some(&version)).await.unwrap();
    assert_eq!(plans().await, pairs(&[("s1", "p1"), ("s2", "p1")]));
}
