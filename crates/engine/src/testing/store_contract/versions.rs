//! Cases of compare-and-set: the faster writer wins, and nothing is overwritten unseen.
#![expect(clippy::unwrap_used, clippy::panic, reason = "assertions of a test suite")]

use std::collections::HashSet;
use std::sync::Arc;

use super::Place;
use super::samples::{Lists as _, all, busy, conflicts, get, key, of_plan, put, sample};
use crate::ports::{Kind, Version};
use crate::record::Record;

pub(super) async fn creating_twice_conflicts(place: Box<dyn Place>) {
    let store = place.open().await;
    let first = put(&store, sample("i")).await;
    let second = of_plan(sample("i"), "service", "large");
    conflicts(store.write(Arc::new(second), None).await);
    let read = get(&store, &key("i")).await;
    assert_eq!((read.version, read.record.as_ref()), (first, &sample("i")));
}

pub(super) async fn of_concurrent_creations_one_wins(place: Box<dyn Place>) {
    let store = place.open().await;
    let tasks: Vec<_> = (0..16)
        .map(|n| {
            let store = Arc::clone(&store);
            let record = Arc::new(of_plan(sample("i"), "service", &format!("plan-{n}")));
            tokio::spawn(async move { store.write(record, None).await.map(|version| (n, version)) })
        })
        .collect();
    let mut won = Vec::new();
    for task in tasks {
        match task.await.unwrap() {
            Ok(winner) => won.push(winner),
            other => conflicts(other),
        }
    }
    let [(n, version)] = won.as_slice() else { panic!("{} creations won", won.len()) };
    let read = get(&store, &key("i")).await;
    assert_eq!(read.version, *version);
    assert_eq!(read.record.ordered.plan_id.as_str(), format!("plan-{n}"));
}

pub(super) async fn a_stale_version_conflicts_and_changes_nothing(place: Box<dyn Place>) {
    let store = place.open().await;
    let first = put(&store, sample("i")).await;
    let second = store.write(Arc::new(busy(sample("i"))), Some(&first)).await.unwrap();
    assert_ne!(first, second);
    conflicts(store.write(Arc::new(sample("i")), Some(&first)).await);
    let read = get(&store, &key("i")).await;
    assert_eq!((read.version, read.record.as_ref()), (second, &busy(sample("i"))));
}

pub(super) async fn a_version_fits_only_its_record(place: Box<dyn Place>) {
    let store = place.open().await;
    let first = put(&store, sample("a")).await;
    let second = put(&store, sample("b")).await;
    assert_ne!(first, second);
    conflicts(store.write(Arc::new(sample("a")), Some(&second)).await);
    conflicts(store.write(Arc::new(sample("c")), Some(&first)).await);
    conflicts(store.remove(&key("b"), &first).await);
    conflicts(store.remove(&key("c"), &first).await);
}

pub(super) async fn versions_that_were_never_given_conflict(place: Box<dyn Place>) {
    let store = place.open().await;
    put(&store, sample("i")).await;
    for version in ["", "0", "-1", "x", "1 ", "99999999999999999999999999", "1'; --"] {
        let version = Version(version.to_owned());
        conflicts(store.write(Arc::new(sample("i")), Some(&version)).await);
        conflicts(store.remove(&key("i"), &version).await);
    }
    get(&store, &key("i")).await;
}

pub(super) async fn what_is_removed_is_gone(place: Box<dyn Place>) {
    let store = place.open().await;
    let version = put(&store, busy(sample("i"))).await;
    store.remove(&key("i"), &version).await.unwrap();
    assert!(store.read(&key("i")).await.unwrap().is_none());
    assert!(store.list(&all(Kind::Instances)).await.unwrap().is_empty());
    assert!(store.busy().await.unwrap().is_empty());
    assert!(store.plans_in_use().await.unwrap().is_empty());
    conflicts(store.remove(&key("i"), &version).await);
    conflicts(store.write(Arc::new(sample("i")), Some(&version)).await);
}

pub(super) async fn what_is_recalled_is_as_it_is(place: Box<dyn Place>) {
    let store = place.open().await;
    let recalled = || store.recall(&key("i")).map(|stored| (stored.version, stored.record));
    assert_eq!(recalled(), None);
    let mut version = put(&store, busy(sample("i"))).await;
    for record in [sample("i"), busy(sample("i"))].map(Arc::new) {
        version = store.write(Arc::clone(&record), Some(&version)).await.unwrap();
        let known = (version.clone(), record);
        assert!(recalled().is_none_or(|recalled| recalled == known));
        let read = get(&store, &key("i")).await;
        assert_eq!((read.version, read.record), known);
        assert!(recalled().is_none_or(|recalled| recalled == known));
    }
    store.remove(&key("i"), &version).await.unwrap();
    assert_eq!(recalled(), None);
}

pub(super) async fn a_stale_removal_conflicts_and_removes_nothing(place: Box<dyn Place>) {
    let store = place.open().await;
    let first = put(&store, sample("i")).await;
    let second = store.write(Arc::new(sample("i")), Some(&first)).await.unwrap();
    conflicts(store.remove(&key("i"), &first).await);
    assert_eq!(get(&store, &key("i")).await.version, second);
}

pub(super) async fn a_version_never_comes_back_after_a_removal(place: Box<dyn Place>) {
    let store = place.open().await;
    let mut seen = HashSet::new();
    for _ in 0..5 {
        let created = put(&store, sample("i")).await;
        assert!(seen.insert(created.clone()), "{created:?} came back");
        let updated = store.write(Arc::new(sample("i")), Some(&created)).await.unwrap();
        assert!(seen.insert(updated.clone()), "{updated:?} came back");
        store.remove(&key("i"), &updated).await.unwrap();
        for old in &seen {
            conflicts(store.write(Arc::new(sample("i")), Some(old)).await);
        }
    }
}

pub(super) async fn a_version_never_comes_back_after_a_restart(place: Box<dyn Place>) {
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let store = place.open().await;
        let version = put(&store, sample("i")).await;
        assert!(seen.insert(version.clone()), "{version:?} came back");
        store.remove(&key("i"), &version).await.unwrap();
    }
}

pub(super) async fn concurrent_increments_lose_none(place: Box<dyn Place>) {
    const TASKS: u64 = 8;
    const EACH: u64 = 10;
    let store = place.open().await;
    put(&store, Record { sequence: 0, ..sample("i") }).await;
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let mut done = 0;
                while done < EACH {
                    let stored = get(&store, &key("i")).await;
                    let sequence = stored.record.sequence + 1;
                    let record = Record { sequence, ..Record::clone(&stored.record) };
                    match store.write(Arc::new(record), Some(&stored.version)).await {
                        Ok(_) => done += 1,
                        other => conflicts(other),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(get(&store, &key("i")).await.record.sequence, TASKS * EACH);
}
