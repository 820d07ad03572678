//! Changing keys: interrupted anywhere, under load, by itself, and with rows that do not open.

use super::*;

const RECORDS: usize = 60;

impl Home {
    /// Opens with key `new`, `old` as the previous one, and at most so many slices of rotation.
    fn change_key(&self, old: u8, new: u8, slices: Option<u32>) -> EmbeddedStore {
        let mut options = Options::new(self.store(), self.key(new));
        options.previous_key = Some(self.key(old));
        options.tuning.rotation_slice = 10;
        options.tuning.rotation_slices = slices;
        EmbeddedStore::open(&options).unwrap()
    }

    fn refuses(&self, n: u8) {
        let options = Options::new(self.store(), self.key(n));
        assert!(
            matches!(EmbeddedStore::open(&options), Err(OpenError::WrongKey { .. })),
            "key {n} should be refused"
        );
    }
}

async fn all_are_readable(store: &EmbeddedStore) {
    for n in 0..RECORDS {
        let id = format!("i-{n:05}");
        let expected = with_parameter(&id, &format!("value-{n}"));
        assert_eq!(*get(store, &id).await.record, expected);
    }
    assert_eq!(store.catalog().await.unwrap(), Some(json!({"catalog": 1})));
    let report = store.verify().await.unwrap();
    assert!(report.is_good(), "{report:?}");
}

async fn filled(home: &Home) {
    let store = home.open();
    fill(&store, RECORDS).await;
    store.save_catalog(&json!({"catalog": 1})).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_key_goes_on_wherever_it_was_interrupted() {
    // 6 slices re-encrypt, 1 ends that pass, 7 confirm.
    for slices in 0..=14 {
        let home = Home::new();
        filled(&home).await;
        let store = home.change_key(1, 2, Some(slices));
        until("it stops", || !store.rotation().running).await;
        let rotation = store.rotation();
        assert_eq!(rotation.retiring_keys, usize::from(slices < 14), "{slices}: {rotation:?}");
        all_are_readable(&store).await;
        drop(store);
        home.refuses(1);
        // It goes on without being told again.
        let store = EmbeddedStore::open(&Options::new(home.store(), home.key(2))).unwrap();
        rotated(&store).await;
        all_are_readable(&store).await;
        drop(store);
        home.refuses(1);
    }
}

/// Else a crash would forget how often a key was used.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_not_taken_for_reserved_by_a_transaction_that_was_not_committed() {
    let home = Home::new();
    let store = home.open();
    // What violates it is found by COMMIT, after all else was written.
    home.stranger()
        .execute_batch(
            "CREATE TABLE nobody (id INTEGER PRIMARY KEY);
             CREATE TABLE lost (id INTEGER REFERENCES nobody (id) DEFERRABLE INITIALLY DEFERRED);
             CREATE TRIGGER loses AFTER INSERT ON records BEGIN INSERT INTO lost VALUES (1); END;",
        )
        .unwrap();
    let enforced = |on: bool| {
        store.queue().unwrap().hook(move |connection| {
            connection.pragma_update(None, "foreign_keys", on).unwrap();
        });
    };
    let reserved = || -> i64 {
        let select = "SELECT reserved FROM data_keys";
        home.stranger().query_row(select, [], |row| row.get(0)).unwrap()
    };
    let before = reserved();
    enforced(true);
    store.write(Arc::new(sample("i")), None).await.unwrap_err();
    assert_eq!(reserved(), before);
    enforced(false);
    put(&store, sample("i")).await;
    assert!(reserved() > before, "{} of {before}", reserved());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_may_be_changed_again_before_the_first_change_is_through() {
    let home = Home::new();
    filled(&home).await;
    for (old, new) in [(1, 2), (2, 3), (3, 1), (1, 4)] {
        let store = home.change_key(old, new, Some(3));
        until("it stops", || !store.rotation().running).await;
        all_are_readable(&store).await;
    }
    let store = home.change_key(1, 4, None);
    rotated(&store).await;
    all_are_readable(&store).await;
    drop(store);
    for key in [1, 2, 3] {
        home.refuses(key);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_previous_key_may_stay_in_the_configuration() {
    let home = Home::new();
    filled(&home).await;
    rotated(&home.change_key(1, 2, None)).await;
    let store = home.change_key(1, 2, None);
    assert_eq!(store.rotation().retiring_keys, 0, "nothing to do");
    let active = store.rotation().active_key;
    all_are_readable(&store).await;
    drop(store);
    // A new store with a previous key in the configuration is just new.
    let other = Home::new();
    let store = other.change_key(1, 2, None);
    put(&store, sample("i")).await;
    assert_eq!((store.rotation().active_key, active), (1, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn rotating_under_load_loses_nothing_and_comes_to_its_end() {
    let home = Home::new();
    filled(&home).await;
    let store = Arc::new(home.change_key(1, 2, None));
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|n| {
            let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
            tokio::spawn(async move {
                let id = format!("writer-{n}");
                let mut version = put(&store, with_parameter(&id, "0")).await;
                let mut count = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    count += 1;
                    let record = Arc::new(with_parameter(&id, &count.to_string()));
                    version = store.write(record.clone(), Some(&version)).await.unwrap();
                    let read = store.read(&record.key).await.unwrap().unwrap();
                    assert_eq!((read.record, &read.version), (record, &version));
                }
            })
        })
        .collect();
    for _ in 0..5 {
        rotated(&store).await;
        store.rotate_data_key().await.unwrap();
    }
    rotated(&store).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    all_are_readable(&store).await;
    assert_eq!(store.rotation().active_key, 7, "{:?}", store.rotation());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worn_data_key_is_replaced_by_itself() {
    let home = Home::new();
    let mut options = home.options();
    options.tuning.messages_per_key = 200;
    let store = EmbeddedStore::open(&options).unwrap();
    let mut version = put(&store, sample("i")).await;
    for _ in 0..250 {
        version = store.write(Arc::new(sample("i")), Some(&version)).await.unwrap();
    }
    rotated(&store).await;
    assert_eq!(store.rotation().active_key, 2);
    get(&store, "i").await;
}

#[tokio::test]
async fn messages_are_counted_over_crashes() {
    let home = Home::new();
    let store = home.open();
    put(&store, sample("i")).await;
    let reserved = || -> i64 {
        home.stranger().query_row("SELECT reserved FROM data_keys", [], |row| row.get(0)).unwrap()
    };
    let first = reserved();
    assert!(first >= 1 << 16);
    drop(store);
    // What was reserved counts as used.
    let store = home.open();
    let version = get(&store, "i").await.version;
    store.write(Arc::new(sample("i")), Some(&version)).await.unwrap();
    assert!(reserved() > first + (1 << 15));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_does_not_open_keeps_its_key_until_it_is_discarded() {
    let home = Home::new();
    filled(&home).await;
    home.stranger()
        .execute("UPDATE records SET sealed = x'01020304' WHERE instance = 'i-00033'", [])
        .unwrap();
    let store = home.change_key(1, 2, None);
    until("it gives up", || !store.rotation().running).await;
    let rotation = store.rotation();
    assert_eq!((rotation.retiring_keys, rotation.unreadable), (1, 1), "{rotation:?}");
    get(&store, "i-00034").await;
    store.discard(&key("i-00033")).await.unwrap();
    rotated(&store).await;
    assert!(store.verify().await.unwrap().is_good());
}
