//! What is on the disk: nothing that could be read, nothing that was removed, nothing that can be
//! exchanged unnoticed.

use engine::testing::store_contract::{Lists as _, sample_binding};

use super::*;

const PARAMETER: &str = "planted-parameter-1bd1";
const CREDENTIAL: &str = "planted-credential-8c0e";
const CONTEXT: &str = "planted-context-77aa";
const CATALOG: &str = "planted-catalog-secret-55f0";

fn planted(id: &str) -> Record {
    let object = |value: &str| match json!({"password": value}) {
        Value::Object(object) => object,
        _ => unreachable!(),
    };
    let mut record = sample_binding("i", id);
    record.ordered.parameters = object(PARAMETER).into();
    record.ordered.context = object(CONTEXT).into();
    record.made.state = Some(json!({"state": CREDENTIAL}).into());
    record.made.binding = Some(osb::BindingBody {
        credentials: Some(object(CREDENTIAL).into()),
        ..osb::BindingBody::default()
    });
    record
}

fn assert_nothing_readable(files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        for secret in [PARAMETER, CREDENTIAL, CONTEXT, CATALOG, "password"] {
            assert!(!contains(bytes, secret.as_bytes()), "{secret} in {}", path.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_ever_readable_in_a_file() {
    let home = Home::new();
    let store = home.open();
    for n in 0..50 {
        let version = put(&store, planted(&n.to_string())).await;
        if n % 2 == 0 {
            store.write(Arc::new(planted(&n.to_string())), Some(&version)).await.unwrap();
        }
    }
    store.save_catalog(&json!({"dashboard_client": {"secret": CATALOG}})).await.unwrap();
    assert_nothing_readable(&home.bytes());
    store.rotate_data_key().await.unwrap();
    assert_nothing_readable(&home.bytes());
    rotated(&store).await;
    let backups = home.dir.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    store.backup_to(backups.join("one")).await.unwrap();
    assert_nothing_readable(&home.bytes());
    assert_nothing_readable(&files(&backups));
    let finds = |bytes: &[u8]| contains(bytes, b"service");
    assert!(home.bytes().iter().any(|(_, bytes)| finds(bytes)), "ids are: the search works");
    let shown = format!("{store:?} {:?}", home.options());
    assert!(!shown.contains("planted"), "{shown}");
    drop(store);
    assert_nothing_readable(&home.bytes());
}

/// The sealed bytes of every record and data key.
fn ciphertexts(home: &Home) -> Vec<Vec<u8>> {
    let connection = home.stranger();
    let mut select = connection
        .prepare("SELECT sealed FROM records UNION ALL SELECT wrapped FROM data_keys")
        .unwrap();
    select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

fn found(home: &Home, ciphertexts: &[Vec<u8>]) -> usize {
    let files = home.bytes();
    // A piece from the middle: long ones are spread over pages.
    let pieces = ciphertexts.iter().map(|whole| &whole[whole.len() / 2..][..16]);
    pieces.filter(|piece| files.iter().any(|(_, bytes)| contains(bytes, piece))).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_is_gone_from_the_files() {
    let home = Home::new();
    let store = home.open();
    let mut versions = Vec::new();
    for n in 0..20 {
        let record = with_parameter(&n.to_string(), &"x".repeat(n * 700));
        versions.push((record.key.clone(), put(&store, record).await));
    }
    let sealed = ciphertexts(&home);
    assert_eq!(found(&home, &sealed), 21);
    for (key, version) in &versions {
        store.remove(key, version).await.unwrap();
    }
    until("only the data key is left", || found(&home, &sealed) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rotation_nothing_of_the_old_key_is_left() {
    let home = Home::new();
    let store = home.open();
    fill(&store, 50).await;
    let sealed = ciphertexts(&home);
    assert_eq!(found(&home, &sealed), 51);
    store.rotate_data_key().await.unwrap();
    until("all of it is gone", || found(&home, &sealed) == 0).await;
    assert_eq!(ciphertexts(&home).len(), 51);
}

#[tokio::test]
async fn rows_that_were_tampered_with_are_refused_found_and_can_be_discarded() {
    let home = Home::new();
    let store = home.open();
    for id in ["swapped-1", "swapped-2", "flipped", "cut", "renamed", "hidden", "good"] {
        put(&store, sample(id)).await;
    }
    home.stranger()
        .execute_batch(
            "CREATE TEMP TABLE former AS SELECT * FROM records;
             UPDATE records SET sealed = (SELECT sealed FROM former
                 WHERE former.instance = 'swapped-2') WHERE instance = 'swapped-1';
             UPDATE records SET sealed = (SELECT sealed FROM former
                 WHERE former.instance = 'swapped-1') WHERE instance = 'swapped-2';
             UPDATE records SET sealed = CAST(substr(sealed, 1, 40)
                 || CASE substr(sealed, 41, 1) WHEN x'00' THEN x'01' ELSE x'00' END || substr(sealed, 42)
                 AS BLOB) WHERE instance = 'flipped';
             UPDATE records SET sealed = x'01' WHERE instance = 'cut';
             UPDATE records SET instance = 'other' WHERE instance = 'renamed';
             UPDATE records SET busy = 1 WHERE instance = 'hidden';",
        )
        .unwrap();
    let unreadable = ["swapped-1", "swapped-2", "flipped", "cut", "other"];
    for id in unreadable {
        match store.read(&key(id)).await {
            Err(StoreError::Unreadable { key, .. }) => assert_eq!(key, format!("instance {id}")),
            other => panic!("{id}: {other:?}"),
        }
    }
    let report = store.verify().await.unwrap();
    assert_eq!((report.records, report.found), (7, 6), "{:?}", report.findings);
    for id in unreadable {
        assert!(report.findings.iter().any(|finding| finding.contains(id)), "{id}");
    }
    assert!(
        report.findings.contains(&"instance hidden stands in clear other than it is".to_owned())
    );

    // Lists fail rather than leave something out, or say what they leave out.
    let all = Query {
        kind: engine::ports::Kind::Instances,
        instance: None,
        filter: engine::ports::Filter::All,
        after: None,
        limit: 50,
    };
    assert!(matches!(store.list(&all).await, Err(StoreError::Unreadable { .. })));
    let scanned = store.scan(&all).await.unwrap();
    let mut left_out: Vec<&str> = scanned
        .iter()
        .filter_map(|it| it.as_ref().err())
        .map(|it| it.key.instance().as_str())
        .collect();
    left_out.sort_unstable();
    assert_eq!(left_out, ["cut", "flipped", "other", "swapped-1", "swapped-2"]);
    assert!(matches!(store.discard(&key("good")).await, Err(StoreError::Conflict)));
    assert!(matches!(store.discard(&key("never")).await, Err(StoreError::Conflict)));
    for id in unreadable {
        store.discard(&key(id)).await.unwrap();
    }
    assert_eq!(store.list(&all).await.unwrap().len(), 2);
    put(&store, sample("cut")).await;
}
