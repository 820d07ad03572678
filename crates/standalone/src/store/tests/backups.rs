//! Backups and restores: whole, of one moment, never over something else, never half.

use engine::testing::store_contract::Lists as _;

use super::*;

/// How many records a backup has that can be restored, which is to say, of which nothing is wrong.
fn records_of(home: &Home, backup: &Path) -> u64 {
    let elsewhere = Home::new();
    restore(backup, &elsewhere.store(), &home.key(1), Replace::Refuse).unwrap().records
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_a_store_in_use_is_whole_and_of_one_moment() {
    let home = Home::new();
    let store = Arc::new(home.open());
    fill(&store, 300).await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    // Two records that always have the same content at the end of a pair of writes, in this order.
    let writer = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        tokio::spawn(async move {
            let mut first = put(&store, with_parameter("first", "0")).await;
            let mut second = put(&store, with_parameter("second", "0")).await;
            let mut count = 0_u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                count += 1;
                let content = count.to_string();
                let record = Arc::new(with_parameter("first", &content));
                first = store.write(record, Some(&first)).await.unwrap();
                let record = Arc::new(with_parameter("second", &content));
                second = store.write(record, Some(&second)).await.unwrap();
            }
            count
        })
    };
    until("it writes", || store.stats().changes > 320).await;
    let written = store.stats().changes;
    let path = home.dir.path().join("backup");
    let backup = store.backup_to(&path).await.unwrap();
    assert_eq!((backup.path.as_path(), backup.records), (path.as_path(), 302));
    assert_eq!(backup.bytes, path.metadata().unwrap().len());
    until("writers went on", || store.stats().changes > written + 20).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.await.unwrap();

    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let other = home.dir.path().join("restored");
    let restored = restore(&path, &other, &home.key(1), Replace::Refuse).unwrap();
    assert_eq!(restored, Restored { records: 302, aside: None });
    let copy = EmbeddedStore::open(&Options::new(other, home.key(1))).unwrap();
    let count = |stored: &Stored| -> u32 {
        stored.record.ordered.parameters.expose()["parameter"].as_str().unwrap().parse().unwrap()
    };
    let (first, second) = (count(&get(&copy, "first").await), count(&get(&copy, "second").await));
    assert!(first == second || first == second + 1, "{first} {second}");
    assert_eq!(*get(&copy, "i-00299").await.record, with_parameter("i-00299", "value-299"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_replaces_nothing_and_leaves_nothing_half() {
    let home = Home::new();
    let store = home.open();
    put(&store, sample("i")).await;
    let path = home.dir.path().join("backup");
    std::fs::write(&path, "precious").unwrap();
    let error = store.backup_to(&path).await.unwrap_err();
    assert!(matches!(error, BackupError::Exists(_)), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");

    let nowhere = home.dir.path().join("missing/backup");
    let message = store.backup_to(&nowhere).await.unwrap_err().to_string();
    assert!(message.starts_with("creating") && message.contains("missing/backup"), "{message}");

    // The rest of one that was interrupted is no obstacle.
    std::fs::remove_file(&path).unwrap();
    let partial = home.dir.path().join("backup.partial");
    std::fs::write(&partial, "half of an older one").unwrap();
    store.backup_to(&path).await.unwrap();
    assert!(!partial.exists());
    assert_eq!(records_of(&home, &path), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_backups_at_once_are_both_whole() {
    let home = Home::new();
    let store = home.open();
    fill(&store, 50).await;
    let path = |n| home.dir.path().join(format!("backup-{n}"));
    let (a, b, same) =
        tokio::join!(store.backup_to(path(1)), store.backup_to(path(2)), store.backup_to(path(1)));
    b.unwrap();
    assert!(a.is_ok() != same.is_ok(), "of two of one name, one is made");
    for n in [1, 2] {
        assert_eq!(records_of(&home, &path(n)), 50);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_without_a_name_leaves_nothing_whoever_waits_for_it_or_dies() {
    let home = Home::new();
    let store = home.open();
    fill(&store, 50).await;
    let names = || {
        let entries = std::fs::read_dir(home.store()).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    // Begun, and not waited for: what comes next waits for its end.
    let mut given_up = Box::pin(store.backup());
    tokio::select! {
        biased;
        _ = &mut given_up => {}
        () = std::future::ready(()) => {}
    }
    drop(given_up);
    let mut copy = store.backup().await.unwrap();
    assert_eq!(names(), before);
    let path = home.dir.path().join("backup");
    std::io::copy(&mut copy, &mut std::fs::File::create(&path).unwrap()).unwrap();
    assert_eq!(records_of(&home, &path), 50);

    drop(store);
    let killed = home.store().join("manciple.db.copy");
    std::fs::write(&killed, "half of a backup").unwrap();
    let store = home.open();
    assert!(!killed.exists(), "a start removes it");
    std::fs::write(&killed, "half of a backup").unwrap();
    store.backup().await.unwrap();
    assert!(!killed.exists(), "the next one removes it");
}

/// A store with one instance `old`, and a backup of one with an instance `new`.
async fn before_restore(home: &Home) -> PathBuf {
    let path = home.dir.path().join("backup");
    let source = Home::new();
    let store = source.open();
    put(&store, with_parameter("new", "from the backup")).await;
    store.backup_to(&path).await.unwrap();
    let store = home.open();
    put(&store, sample("old")).await;
    path
}

async fn ids(store: &EmbeddedStore) -> Vec<String> {
    let all = Query {
        kind: engine::ports::Kind::Instances,
        instance: None,
        filter: engine::ports::Filter::All,
        after: None,
        limit: 50,
    };
    let page = store.list(&all).await.unwrap();
    page.iter().map(|stored| stored.record.key.instance().to_string()).collect()
}

#[tokio::test]
async fn a_restore_keeps_what_it_replaces() {
    let home = Home::new();
    let backup = before_restore(&home).await;
    let refused = restore(&backup, &home.store(), &home.key(1), Replace::Refuse).unwrap_err();
    assert!(matches!(refused, OpenError::Occupied { .. }), "{refused}");
    assert_eq!(ids(&home.open()).await, ["old"]);

    let restored = restore(&backup, &home.store(), &home.key(1), Replace::KeepAside).unwrap();
    assert_eq!(restored.records, 1);
    assert_eq!(ids(&home.open()).await, ["new"]);
    let aside = restored.aside.unwrap();
    assert_eq!(aside.parent().unwrap(), home.store());
    let former = EmbeddedStore::open(&Options::new(aside, home.key(1))).unwrap();
    assert_eq!(ids(&former).await, ["old"]);
}

#[tokio::test]
async fn a_restore_is_refused_while_the_store_is_open() {
    let home = Home::new();
    let backup = before_restore(&home).await;
    let store = home.open();
    let refused = restore(&backup, &home.store(), &home.key(1), Replace::KeepAside).unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused}");
    assert_eq!(ids(&store).await, ["old"]);
}

#[tokio::test]
async fn what_is_not_a_good_backup_of_this_key_is_not_restored() {
    let home = Home::new();
    let backup = before_restore(&home).await;
    let good = std::fs::read(&backup).unwrap();
    let try_with = |bytes: &[u8], key: u8| {
        std::fs::write(&backup, bytes).unwrap();
        restore(&backup, &home.store(), &home.key(key), Replace::KeepAside).unwrap_err()
    };
    let error = try_with(&good, 2);
    assert!(matches!(error, OpenError::WrongKey { .. }), "{error}");
    let error = try_with(b"nothing of the kind, and not a database", 1);
    assert!(matches!(error, OpenError::NotABackup { .. }), "{error}");
    let error = try_with(b"", 1);
    assert!(matches!(error, OpenError::NotABackup { .. }), "{error}");
    let error = try_with(&good[..good.len() / 2], 1);
    assert!(error.to_string().contains("it was cut short"), "{error}");
    // A single bit of a sealed record.
    let source = Connection::open(&backup).unwrap();
    std::fs::write(&backup, &good).unwrap();
    source
        .execute("UPDATE records SET sealed = CAST(substr(sealed, 1, 50) || x'00' AS BLOB)", [])
        .unwrap();
    drop(source);
    let error = try_with(&std::fs::read(&backup).unwrap(), 1);
    assert!(
        matches!(&error, OpenError::Damaged { what } if what.starts_with("instance new cannot")),
        "{error}"
    );
    let missing = home.dir.path().join("missing");
    assert!(restore(&missing, &home.store(), &home.key(1), Replace::KeepAside).is_err());
    let nowhere = home.dir.path().join("nowhere");
    std::fs::write(&backup, &good).unwrap();
    restore(&backup, &nowhere, &home.key(2), Replace::Refuse).unwrap_err();
    assert!(!nowhere.exists(), "where there was nothing there is nothing");

    assert_eq!(ids(&home.open()).await, ["old"], "the store is as it was");
    let names: Vec<_> = home.bytes().into_iter().map(|(path, _)| path).collect();
    assert!(!names.iter().any(|path| path.to_string_lossy().contains("new")), "{names:?}");
}

#[tokio::test]
async fn versions_from_after_the_backup_never_come_back() {
    let home = Home::new();
    let store = home.open();
    let version = put(&store, sample("i")).await;
    let backup = home.dir.path().join("backup");
    store.backup_to(&backup).await.unwrap();
    let mut given = std::collections::HashSet::new();
    let mut last = version.clone();
    for _ in 0..20 {
        last = store.write(Arc::new(sample("i")), Some(&last)).await.unwrap();
        given.insert(last.clone());
    }
    drop(store);
    restore(&backup, &home.store(), &home.key(1), Replace::KeepAside).unwrap();
    let store = home.open();
    let mut last = get(&store, "i").await.version;
    assert_eq!(last, version);
    for _ in 0..20 {
        last = store.write(Arc::new(sample("i")), Some(&last)).await.unwrap();
        assert!(!given.contains(&last), "{last:?} came back");
    }
}

#[test]
fn what_cannot_be_a_backup_is_refused_before_anything_is_made() {
    let home = Home::new();
    let path = |name: &str| home.dir.path().join(name);
    std::fs::create_dir(path("directory")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), fifo, 0o600.into(), 0).unwrap();
    std::fs::write(path("empty"), "").unwrap();
    std::fs::write(path("text"), "kind: Text\n".repeat(20)).unwrap();
    Connection::open(path("foreign")).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    for (name, why) in [
        ("directory", "it is a directory"),
        ("pipe", "it is a pipe"),
        ("/dev/null", "it is a pipe, a socket or a device"),
        ("empty", "it is empty"),
        ("text", "it is not a database"),
        ("foreign", "it is a database of something else"),
        ("missing", "No such file"),
    ] {
        let into = path("new");
        let error = restore(&path(name), &into, &home.key(1), Replace::Refuse).unwrap_err();
        assert!(error.to_string().contains(why), "{name}: {error}");
        assert!(!into.exists(), "{name}");
    }
}

/// Every state in which a restore can be interrupted once it moves things.
#[tokio::test]
async fn an_interrupted_restore_opens_nothing_and_can_be_finished() {
    for moved in 0..=3 {
        for placed in [false, true] {
            if placed && moved < 3 {
                continue;
            }
            let home = Home::new();
            let backup = before_restore(&home).await;
            let (dir, aside) = (home.store(), home.store().join("replaced-1"));
            // A log as after a crash, so that there is something to keep together.
            std::fs::write(dir.join("manciple.db-wal"), "").unwrap();
            std::fs::write(dir.join("manciple.db-shm"), "").unwrap();
            std::fs::write(dir.join("restoring"), "replaced-1").unwrap();
            std::fs::create_dir(&aside).unwrap();
            for name in ["manciple.db-wal", "manciple.db-shm", "manciple.db"].iter().take(moved) {
                std::fs::rename(dir.join(name), aside.join(name)).unwrap();
            }
            if placed {
                std::fs::copy(&backup, home.database()).unwrap();
            }
            let refused = EmbeddedStore::open(&home.options()).unwrap_err();
            assert!(matches!(refused, OpenError::RestoreInterrupted { .. }), "{refused}");
            assert!(refused.to_string().contains("run the same restore again"), "{refused}");

            let restored = restore(&backup, &dir, &home.key(1), Replace::KeepAside).unwrap();
            assert_eq!(restored.aside.as_ref(), Some(&aside));
            assert_eq!(ids(&home.open()).await, ["new"], "{moved} {placed}");
            let former = EmbeddedStore::open(&Options::new(&aside, home.key(1))).unwrap();
            assert_eq!(ids(&former).await, ["old"], "{moved} {placed}");
        }
    }
}
