//! Cases of keeping: what is written is read, whole, at once and after a restart.
#![expect(clippy::unwrap_used, reason = "assertions of a test suite")]

use std::sync::Arc;

use serde_json::{Value, json};

use super::Place;
use super::samples::{Lists as _, all, busy, conflicts, deleted, full, get, key, keys, put};
use super::samples::{sample, sample_binding};
use crate::ports::Kind;
use crate::record::{Lifecycle, Phase, Record, Timestamp};

pub(super) async fn a_record_reads_as_it_was_written(place: Box<dyn Place>) {
    let store = place.open().await;
    let mut phases = vec![
        Phase::Pending { not_before: None },
        Phase::Pending { not_before: Some(Timestamp(5)) },
        Phase::Started { at: Timestamp(6) },
        Phase::External { name: "n".to_owned(), polls: 9, next: Timestamp(7) },
        Phase::Succeeded,
    ];
    let mut record = full();
    phases.push(record.operation.phase.clone());
    let mut version = put(&store, record.clone()).await;
    for phase in phases {
        for lifecycle in
            [Lifecycle::Creating, Lifecycle::Ready, Lifecycle::Broken, Lifecycle::Deleted]
        {
            record.operation.phase = phase.clone();
            record.lifecycle = lifecycle;
            version = store.write(Arc::new(record.clone()), Some(&version)).await.unwrap();
            let read = get(&store, &record.key).await;
            assert_eq!(*read.record, record);
            assert_eq!(read.version, version);
        }
    }
    assert_eq!(*store.list(&all(Kind::Bindings)).await.unwrap()[0].record, record);
}

pub(super) async fn what_was_never_written_is_not_there(place: Box<dyn Place>) {
    let store = place.open().await;
    assert!(store.read(&key("i")).await.unwrap().is_none());
    assert!(store.read(&sample_binding("i", "b").key).await.unwrap().is_none());
    assert!(store.list(&all(Kind::Instances)).await.unwrap().is_empty());
    assert!(store.list(&all(Kind::Bindings)).await.unwrap().is_empty());
    assert!(store.busy().await.unwrap().is_empty());
    assert!(store.plans_in_use().await.unwrap().is_empty());
    assert!(store.catalog().await.unwrap().is_none());
}

pub(super) async fn how_an_operation_stands_is_in_the_public_part(place: Box<dyn Place>) {
    let store = place.open().await;
    assert!(store.glance_public(&key("i")).await.unwrap().is_none());
    let record = full();
    let version = put(&store, record.clone()).await;
    let seen = store.glance_public(&record.key).await.unwrap().unwrap();
    assert_eq!(seen.version, version);
    let of = |record: &Record| {
        let operation = &record.operation;
        let stands = (operation.id.clone(), operation.action, operation.phase.clone());
        let told = (operation.created_at, operation.said().map(str::to_owned));
        (record.key.clone(), record.lifecycle, record.past.clone(), stands, told)
    };
    assert_eq!(of(&seen.record), of(&record));
}

pub(super) async fn instances_and_bindings_of_one_id_are_apart(place: Box<dyn Place>) {
    let store = place.open().await;
    let records = [sample("x"), sample("y"), sample_binding("x", "x"), sample_binding("y", "x")];
    for record in &records {
        put(&store, record.clone()).await;
    }
    let version = get(&store, &records[2].key).await.version;
    store.remove(&records[2].key, &version).await.unwrap();
    assert!(store.read(&records[2].key).await.unwrap().is_none());
    for record in [&records[0], &records[1], &records[3]] {
        assert_eq!(*get(&store, &record.key).await.record, *record);
    }
}

pub(super) async fn the_catalog_is_the_last_saved(place: Box<dyn Place>) {
    let store = place.open().await;
    let first = json!({"services": [], "x": [1.5, null, "\u{1F980}"]});
    let second = json!({"services": [{"id": "y".repeat(100_000)}]});
    let with = |secret: &str| {
        let client = json!({"id": "c", "secret": secret, "redirect_uri": "https://d"});
        json!({"services": [{"id": "s", "dashboard_client": client}]})
    };
    for catalog in [&first, &second, &with("a"), &with("b"), &first] {
        store.save_catalog(catalog).await.unwrap();
        assert_eq!(store.catalog().await.unwrap().as_ref(), Some(catalog));
    }
    drop(store);
    assert_eq!(place.open().await.catalog().await.unwrap(), Some(first));
}

pub(super) async fn a_write_is_seen_by_whatever_begins_after_it(place: Box<dyn Place>) {
    let store = place.open().await;
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for n in 0..10 {
                    let record = busy(sample(&format!("{task}-{n}")));
                    let version = put(&store, record.clone()).await;
                    assert_eq!(get(&store, &record.key).await.version, version);
                    assert!(store.busy().await.unwrap().contains(&record.key));
                    let page = store.list(&all(Kind::Instances)).await.unwrap();
                    assert!(keys(&page).contains(&record.key));
                    store.remove(&record.key, &version).await.unwrap();
                    assert!(store.read(&record.key).await.unwrap().is_none());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

pub(super) async fn large_records_are_kept_whole(place: Box<dyn Place>) {
    let store = place.open().await;
    for length in [0, 1, 3_000, 4_000, 4_096, 10_000, 200_000] {
        let mut record = sample("i");
        let text: String = ('a'..='z').cycle().take(length).collect();
        let Value::Object(parameters) = json!({"text": text}) else { unreachable!() };
        record.ordered.parameters = parameters.into();
        let version = put(&store, record.clone()).await;
        assert_eq!(*get(&store, &key("i")).await.record, record, "{length}");
        store.remove(&key("i"), &version).await.unwrap();
    }
}

pub(super) async fn a_dropped_write_happens_whole_or_not_at_all(place: Box<dyn Place>) {
    let store = place.open().await;
    let version = put(&store, sample("i")).await;
    for n in 0..50 {
        let changed = busy(sample("i"));
        tokio::select! {
            biased;
            _ = store.write(Arc::new(changed), Some(&version)) => {}
            () = std::future::ready(()) => {}
        }
        tokio::select! {
            biased;
            _ = store.write(Arc::new(sample(&format!("new-{n}"))), None) => {}
            () = tokio::task::yield_now() => {}
        }
    }
    // Written through the same queue: whatever was going to happen has happened.
    put(&store, sample("last")).await;
    let read = get(&store, &key("i")).await;
    if read.version == version {
        assert_eq!(*read.record, sample("i"));
    } else {
        assert_eq!(*read.record, busy(sample("i")));
    }
    for stored in store.list(&all(Kind::Instances)).await.unwrap() {
        let read = get(&store, &stored.record.key).await;
        assert_eq!((read.version, read.record), (stored.version, stored.record));
    }
}

pub(super) async fn everything_survives_a_restart(place: Box<dyn Place>) {
    let store = place.open().await;
    let stale = put(&store, full()).await;
    let version = store.write(Arc::new(full()), Some(&stale)).await.unwrap();
    put(&store, busy(sample("working"))).await;
    put(&store, deleted(sample("gone"), 5)).await;
    drop(store);

    let store = place.open().await;
    let read = get(&store, &full().key).await;
    assert_eq!((read.record.as_ref(), &read.version), (&full(), &version));
    assert_eq!(store.busy().await.unwrap(), [key("working")]);
    assert_eq!(store.plans_in_use().await.unwrap().len(), 1);
    assert_eq!(
        keys(&store.list(&all(Kind::Instances)).await.unwrap()),
        [key("gone"), key("working")]
    );
    conflicts(store.write(Arc::new(full()), Some(&stale)).await);
    conflicts(store.write(Arc::new(full()), None).await);
    assert_ne!(store.write(Arc::new(full()), Some(&version)).await.unwrap(), version);
}
