//! The writer: group commit, limits, faults, and that nobody waits for it to read.

use std::sync::mpsc;

use engine::ports::{Filter, Kind};
use engine::testing::store_contract::Lists as _;

use super::*;

/// Holds the writer, in the middle of a transaction, until the sender is dropped.
fn hold(store: &EmbeddedStore) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel();
    let (held, holding) = mpsc::channel();
    store.queue().unwrap().hook(move |connection| {
        connection.execute_batch("BEGIN IMMEDIATE; UPDATE store SET last_version = 0").unwrap();
        held.send(()).unwrap();
        let _ = released.recv();
        connection.execute_batch("ROLLBACK").unwrap();
    });
    holding.recv().unwrap();
    release
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_that_wait_share_a_transaction() {
    let home = Home::new();
    let store = home.open();
    let release = hold(&store);
    let mut writes: Vec<_> =
        (0..100).map(|n| Box::pin(store.write(Arc::new(sample(&format!("i{n}"))), None))).collect();
    // Each is polled once, which puts it into the queue.
    let waiting = join_all(writes.iter_mut().map(|write| async {
        std::future::poll_fn(|context| std::task::Poll::Ready(write.as_mut().poll(context))).await
    }))
    .await;
    assert!(waiting.iter().all(std::task::Poll::is_pending));
    assert_eq!(store.stats().waiting, 100);
    drop(release);
    for written in join_all(writes.into_iter()).await {
        written.unwrap();
    }
    // They are counted down once they were answered.
    while store.stats().waiting > 0 {
        tokio::task::yield_now().await;
    }
    let stats = store.stats();
    assert_eq!((stats.changes, stats.transactions), (100, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_shared_transaction_a_conflict_fails_alone() {
    let home = Home::new();
    let store = home.open();
    let version = put(&store, sample("there")).await;
    let release = hold(&store);
    let stale = Version("0".to_owned());
    let write = |id: &str, expected: Option<&Version>| {
        let (store, record, expected) = (&store, Arc::new(sample(id)), expected.cloned());
        Box::pin(async move { store.write(record, expected.as_ref()).await })
    };
    let writes = [
        write("new", None),
        write("there", None),
        write("there", Some(&stale)),
        write("there", Some(&version)),
        // Of the same version, after it was used.
        write("there", Some(&version)),
        write("new", None),
        write("other", None),
    ];
    let answers = tokio::join!(join_all(writes.into_iter()), async {
        until("all wait", || store.stats().waiting == 7).await;
        drop(release);
    });
    let conflicts: Vec<_> =
        answers.0.iter().map(|answer| matches!(answer, Err(StoreError::Conflict))).collect();
    assert_eq!(conflicts, [false, true, true, false, true, true, false]);
    for id in ["new", "there", "other"] {
        get(&store, id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exceeds_the_queue_is_refused_at_once() {
    let home = Home::new();
    let mut options = home.options();
    options.queue = 4;
    let store = Arc::new(EmbeddedStore::open(&options).unwrap());
    let release = hold(&store);
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.write(Arc::new(sample(&format!("i{n}"))), None).await })
        })
        .collect();
    until("the others were refused", || {
        tasks.iter().filter(|task| task.is_finished()).count() == 6
    })
    .await;
    assert_eq!(store.stats().waiting, 4);
    drop(release);
    let mut written = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => written += 1,
            Err(StoreError::Overloaded) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(written, 4);
    put(&store, sample("later")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_never_waits_for_the_writer() {
    let home = Home::new();
    let store = home.open();
    fill(&store, 20).await;
    store.save_catalog(&json!({})).await.unwrap();
    let release = hold(&store);
    let query = Query {
        kind: Kind::Instances,
        instance: None,
        filter: Filter::All,
        after: None,
        limit: 50,
    };
    tokio::time::timeout(Duration::from_secs(60), async {
        for _ in 0..100 {
            get(&store, "i-00001").await;
        }
        assert_eq!(store.list(&query).await.unwrap().len(), 20);
        assert!(store.busy().await.unwrap().is_empty());
        assert_eq!(store.plans_in_use().await.unwrap().len(), 1);
        assert!(store.catalog().await.unwrap().is_some());
        assert!(store.verify().await.unwrap().is_good());
        store.backup_to(home.dir.path().join("backup")).await.unwrap();
    })
    .await
    .unwrap();
    drop(release);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_goes_away_changes_nothing() {
    let home = Home::new();
    let store = home.open();
    let release = hold(&store);
    tokio::select! {
        biased;
        _ = store.write(Arc::new(sample("i")), None) => unreachable!("the writer is held"),
        () = std::future::ready(()) => {}
    }
    assert_eq!(store.stats().waiting, 1);
    drop(release);
    put(&store, sample("after")).await;
    get(&store, "i").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_fails_writes_until_there_is_space() {
    let home = Home::new();
    let store = home.open();
    let version = put(&store, with_parameter("i", "before")).await;
    let limit = |pages: i64| {
        store.queue().unwrap().hook(move |connection| {
            connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        });
    };
    limit(1);
    let large = "x".repeat(20_000);
    let writes = (0..5).map(|n| {
        let record = Arc::new(with_parameter(&format!("n{n}"), &large));
        store.write(record, None)
    });
    for answer in join_all(writes).await {
        match answer {
            Err(StoreError::Unavailable(why)) => {
                assert!(why.contains("full") && why.contains("free some space"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(store.stats().failures > 0);
    // What was there is as it was, and what needs no space goes on.
    assert_eq!(get(&store, "i").await.version, version);
    assert!(store.read(&key("n0")).await.unwrap().is_none());
    store.write(Arc::new(with_parameter("i", "after")), Some(&version)).await.unwrap();
    limit(1_000_000);
    put(&store, with_parameter("n0", &large)).await;
    assert!(store.verify().await.unwrap().is_good());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_refuses_says_why_until_it_could_write_without_being_asked_to() {
    let home = Home::new();
    let store = home.open();
    let version = put(&store, with_parameter("i", "before")).await;
    assert_eq!(store.refusing(), None);
    let read_only = |on: bool| {
        store.queue().unwrap().hook(move |connection| {
            connection.pragma_update(None, "query_only", on).unwrap();
        });
    };
    read_only(true);
    let refused = store.write(Arc::new(with_parameter("i", "x")), Some(&version)).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(store.refusing(), Some("its files cannot be written to"));
    // It is tried, and fails.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(store.refusing(), Some("its files cannot be written to"));
    read_only(false);
    while store.refusing().is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let next = store.write(Arc::new(with_parameter("i", "y")), Some(&version)).await.unwrap();
    assert_ne!(next, version);
    // One that succeeds by itself is as good.
    read_only(true);
    store.write(Arc::new(with_parameter("i", "x")), Some(&next)).await.unwrap_err();
    read_only(false);
    store.write(Arc::new(with_parameter("i", "z")), Some(&next)).await.unwrap();
    assert_eq!(store.refusing(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_into_files_that_were_removed_or_replaced() {
    let home = Home::new();
    let store = home.open();
    for name in ["manciple.db", "manciple.db-wal"] {
        let (file, aside) = (home.store().join(name), home.store().join("aside"));
        let before = put(&store, sample(name)).await;
        std::fs::rename(&file, &aside).unwrap();
        for replaced in [false, true] {
            if replaced {
                std::fs::copy(&aside, &file).unwrap();
            }
            let refused = store.write(Arc::new(sample("later")), None).await;
            let Err(StoreError::Unavailable(why)) = refused else { panic!("{refused:?}") };
            assert!(why.contains("make a backup of what this process still has"), "{why}");
            assert_eq!(store.refusing(), Some("its files were removed or replaced"));
            assert_eq!(get(&store, name).await.version, before);
        }
        std::fs::rename(&aside, &file).unwrap();
        while store.refusing().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    put(&store, sample("later")).await;
    assert!(store.verify().await.unwrap().is_good());
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_writes_out_what_waits() {
    let home = Home::new();
    let store = Arc::new(home.open());
    let release = hold(&store);
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let record = Arc::new(sample(&format!("i{n}")));
                tokio::select! {
                    biased;
                    _ = store.write(record, None) => unreachable!("the writer is held"),
                    () = std::future::ready(()) => {}
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    drop(release);
    drop(Arc::into_inner(store).unwrap());
    let store = home.open();
    for n in 0..10 {
        get(&store, &format!("i{n}")).await;
    }
}
