//! Databases of other versions.

use ring::digest::{SHA256, digest};
use schema::{MIGRATIONS, Migration};

use super::*;

/// The digests of the migrations that were released: once here, a line never changes.
const RELEASED: [&str; 1] = ["7ded68661805d26a863ab2d9f40af5d8c334917384cea155eadb7cec4c684aaa"];

#[test]
fn released_migrations_are_never_edited() {
    let digests: Vec<_> = MIGRATIONS
        .iter()
        .map(|migration| {
            data_encoding::HEXLOWER.encode(digest(&SHA256, migration.sql.as_bytes()).as_ref())
        })
        .collect();
    assert_eq!(digests, RELEASED, "append a migration instead; then append its digest here");
}

/// Written by the first version, and kept as it was.
fn fixture(home: &Home) {
    std::fs::create_dir(home.store()).unwrap();
    home.stranger().execute_batch(include_str!("v1.sql")).unwrap();
}

#[tokio::test]
async fn a_database_of_the_first_version_is_read_and_written() {
    let home = Home::new();
    fixture(&home);
    let store = home.open();
    let stored = get(&store, "instance").await;
    assert_eq!(*stored.record, with_parameter("instance", "first version"));
    assert_eq!(stored.version, Version("1".to_owned()));
    assert_eq!(store.catalog().await.unwrap(), Some(json!({"first": "version"})));
    let version = store.write(stored.record, Some(&stored.version)).await.unwrap();
    assert_eq!(version, Version("4".to_owned()), "versions go on after the last one given");
    assert!(store.verify().await.unwrap().is_good());
}

/// What a later version might do.
const LATER: &[Migration] = &[
    MIGRATIONS[0],
    Migration { sql: "ALTER TABLE records ADD COLUMN note TEXT NOT NULL DEFAULT 'none'" },
    Migration { sql: "CREATE TABLE third (x ANY) STRICT" },
];
const BROKEN: &[Migration] = &[
    MIGRATIONS[0],
    LATER[1],
    Migration { sql: "CREATE TABLE third (x ANY) STRICT; INSERT INTO fourth VALUES (1)" },
];

#[tokio::test]
async fn an_older_database_is_brought_up_step_by_step() {
    let home = Home::new();
    fixture(&home);
    // The third step fails; the second has happened, and only that.
    let error = open::open(&home.options(), BROKEN).unwrap_err();
    assert!(error.to_string().starts_with("bringing the database to version 3"), "{error}");
    let version = |connection: &Connection| {
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap()
    };
    let stranger = home.stranger();
    assert_eq!(version(&stranger), 2);
    let note: String =
        stranger.query_row("SELECT note FROM records LIMIT 1", [], |row| row.get(0)).unwrap();
    assert_eq!(note, "none");
    assert!(stranger.prepare("SELECT * FROM third").is_err(), "no half of a step");

    let store = open::open(&home.options(), LATER).unwrap();
    assert_eq!(version(&stranger), 3);
    assert_eq!(*get(&store, "instance").await.record, with_parameter("instance", "first version"));
}

#[test]
fn a_newer_database_is_refused_unchanged() {
    let home = Home::new();
    fixture(&home);
    drop(open::open(&home.options(), LATER).unwrap());
    let before = std::fs::read(home.database()).unwrap();
    let error = EmbeddedStore::open(&home.options()).unwrap_err();
    assert!(error.to_string().starts_with("the database has version 3, newer than 1"), "{error}");
    assert_eq!(std::fs::read(home.database()).unwrap(), before);
}

#[tokio::test]
async fn a_wrong_key_migrates_nothing() {
    let home = Home::new();
    fixture(&home);
    let options = Options::new(home.store(), home.key(2));
    assert!(matches!(open::open(&options, LATER), Err(OpenError::WrongKey { .. })));
    let version: i64 =
        home.stranger().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
}
