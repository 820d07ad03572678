//! Opening: who may, with what, and that a refusal changes nothing.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn refusal(options: &Options) -> String {
    match EmbeddedStore::open(options) {
        Ok(_) => panic!("it opened"),
        Err(error) => error.to_string(),
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_new_store_is_its_owners_alone() {
    let home = Home::new();
    let store = home.open();
    put(&store, sample("i")).await;
    assert_eq!(mode(&home.store()), 0o700);
    let files = home.bytes();
    assert_eq!(files.len(), 4, "{:?}", files.iter().map(|file| &file.0).collect::<Vec<_>>());
    for (path, _) in files {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn files_that_were_copied_in_open_to_others_are_closed() {
    let home = Home::new();
    drop(home.open());
    std::fs::set_permissions(home.database(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let _store = home.open();
    for (path, _) in home.bytes() {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_second_process_is_told_which_one_has_it() {
    let home = Home::new();
    let store = home.open();
    let message = refusal(&home.options());
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    assert!(message.contains("Stop that one first"), "{message}");
    drop(store);
    drop(home.open());
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_nothing_is_touched() {
    let home = Home::new();
    let store = home.open();
    put(&store, sample("i")).await;
    // As after a crash: the last write is only in the log.
    let crashed = Home::new();
    std::fs::create_dir(crashed.store()).unwrap();
    for (path, bytes) in home.bytes() {
        std::fs::write(crashed.store().join(path.file_name().unwrap()), bytes).unwrap();
    }
    std::fs::remove_file(crashed.store().join("manciple.db-shm")).unwrap();
    let kept = |home: &Home| {
        home.bytes()
            .into_iter()
            .filter(|(path, _)| path.ends_with("manciple.db") || path.ends_with("manciple.db-wal"))
            .collect::<Vec<_>>()
    };
    let before = kept(&crashed);
    assert!(
        before.iter().any(|(path, bytes)| path.ends_with("manciple.db-wal") && !bytes.is_empty())
    );

    let mut options = crashed.options();
    options.key = crashed.key(2);
    let message = refusal(&options);
    let KeySource::File(path) = crashed.key(2) else { unreachable!() };
    assert!(
        message
            .starts_with(&format!("the key file {} is not the key of this store", path.display())),
        "{message}"
    );
    options.previous_key = Some(crashed.key(3));
    let message = refusal(&options);
    assert!(message.starts_with("neither the key file"), "{message}");
    assert!(message.contains("(as the previous one)"), "{message}");
    assert!(kept(&crashed) == before, "nothing was changed");

    let store = crashed.open();
    get(&store, "i").await;
}

#[test]
fn without_a_key_nothing_is_made() {
    let home = Home::new();
    let options = Options::new(home.store(), KeySource::File(home.dir.path().join("none")));
    assert!(refusal(&options).contains("openssl rand -base64 32"));
    assert!(!home.store().exists());
}

#[test]
fn what_is_not_a_store_is_left_alone() {
    let home = Home::new();
    std::fs::create_dir(home.store()).unwrap();
    let text = "not a database, but long enough to be one. ".repeat(100);
    std::fs::write(home.database(), &text).unwrap();
    assert!(refusal(&home.options()).contains("not a database of manciple"));
    assert_eq!(std::fs::read_to_string(home.database()).unwrap(), text);

    std::fs::remove_file(home.database()).unwrap();
    home.stranger().execute_batch("CREATE TABLE mine (x)").unwrap();
    let before = std::fs::read(home.database()).unwrap();
    assert!(refusal(&home.options()).contains("not a database of manciple"));
    assert_eq!(std::fs::read(home.database()).unwrap(), before);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let home = Home::new();
    std::fs::write(home.dir.path().join("file"), "").unwrap();
    let options = Options::new(home.dir.path().join("file/store"), home.key(1));
    let message = refusal(&options);
    assert!(message.starts_with("creating the directory /"), "{message}");
    assert!(message.contains("file/store"), "{message}");
}

#[tokio::test]
async fn an_interrupted_creation_is_finished() {
    let home = Home::new();
    std::fs::create_dir(home.store()).unwrap();
    std::fs::write(home.database(), "").unwrap();
    drop(home.open());
    // Interrupted between the tables and the first key.
    home.stranger().execute_batch("DELETE FROM data_keys").unwrap();
    let store = home.open();
    put(&store, sample("i")).await;
    drop(store);
    // Not that, though: without its key a record is lost, which nobody should find out later.
    home.stranger().execute_batch("DELETE FROM data_keys").unwrap();
    assert!(refusal(&home.options()).contains("there are records but no data key"));
}

#[test]
fn the_writer_syncs_every_commit_and_wipes_what_is_deleted() {
    let home = Home::new();
    let store = home.open();
    let (send, answers) = std::sync::mpsc::channel();
    store.queue().unwrap().hook(move |connection| {
        let number = |pragma| {
            connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).unwrap()
        };
        let journal: String =
            connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        send.send((journal, number("synchronous"), number("secure_delete"))).unwrap();
    });
    // FULL is 2: in WAL mode, each commit syncs the log before it returns.
    assert_eq!(answers.recv().unwrap(), ("wal".to_owned(), 2, 1));
}

#[tokio::test]
async fn damage_is_found_beside_the_start() {
    let home = Home::new();
    let store = home.open();
    fill(&store, 200).await;
    drop(store);
    let whole = std::fs::read(home.database()).unwrap();
    for (damaged, found) in [(false, false), (true, true)] {
        let mut bytes = whole.clone();
        if damaged {
            // Free pages that are not there (a list that begins nowhere): nothing of it is read at a start.
            bytes[36..40].copy_from_slice(&7_u32.to_be_bytes());
        }
        std::fs::write(home.database(), bytes).unwrap();
        let store = home.open();
        assert!(!store.is_damaged());
        store.look_through().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(if found { 60 } else { 1 });
        while !store.is_damaged() && std::time::Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(store.is_damaged(), found);
        assert_eq!(get(&store, "i-00000").await.record.key, key("i-00000"), "read all the same");
        let copy = home.dir.path().join("copy");
        let _ = std::fs::remove_file(&copy);
        store.backup_to(&copy).await.unwrap();
        match check_copy(&copy) {
            Ok(records) => assert!(records == 200 && !found),
            Err(error) => assert!(found && matches!(error, OpenError::Damaged { .. }), "{error}"),
        }
    }
}
