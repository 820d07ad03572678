//! Checking everything: the pages, that every record opens, and that what stands in clear is true.

use std::path::Path;

use engine::ports::StoreError;
use rusqlite::{Connection, Row};

use super::EmbeddedStore;
use super::error::{OpenError, explain, unavailable};
use super::header;
use super::keys::{self, Keyring};
use super::open::{self, Unlocked};
use super::reader::open_reader;
use super::rows::{self, Document};
use super::schema::{self, MIGRATIONS, Role, Shape};
use crate::seal::KeySource;

/// Findings beyond so many are only counted.
const LISTED: usize = 100;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Records looked at.
    pub records: u64,
    /// What is wrong, at most 100 of them: `instance x cannot be read: …`.
    pub findings: Vec<String>,
    /// How many findings there are.
    pub found: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_good(&self) -> bool {
        self.found == 0
    }

    fn add(&mut self, finding: impl Into<String>) {
        self.found += 1;
        if self.findings.len() < LISTED {
            self.findings.push(finding.into());
        }
    }
}

impl EmbeddedStore {
    /// Checks everything as it stood when the check began, while reading and writing go on.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if it could not be finished. What it finds is not an error but in
    /// the [`Report`].
    pub async fn verify(&self) -> Result<Report, StoreError> {
        let path = self.path().to_owned();
        self.blocking(move |reader| {
            let connection = open_reader(&path, Role::Scanner)
                .map_err(|error| StoreError::Unavailable(error.to_string()))?;
            check(&connection, &reader.ring).map_err(|error| unavailable("verifying", &error))
        })
        .await
    }
}

/// Checks a backup without restoring it. Blocks: it reads the whole file.
///
/// # Errors
/// [`OpenError`] if it cannot even be opened. What is found is not an error but in the [`Report`].
pub fn verify_backup(path: &Path, key: &KeySource) -> Result<Report, OpenError> {
    header::open(path)?;
    let operator = key.read()?;
    let connection = open_reader(path, Role::Scanner)?;
    if schema::inspect(&connection, MIGRATIONS)? == Shape::Empty {
        return Err(OpenError::NotAStore);
    }
    match open::unlock(&connection, (key, &operator), None)? {
        Unlocked::Same(found) | Unlocked::Changed(found) => {
            check(&connection, &Keyring::new(keys::keys(found)?)).map_err(|error| {
                OpenError::Database { what: "verifying".to_owned(), why: explain(&error) }
            })
        }
        Unlocked::Empty => Err(OpenError::Damaged { what: "it has no data key".to_owned() }),
    }
}

/// Looks at everything on one snapshot.
///
/// # Errors
/// What SQLite says, if the check cannot be finished.
pub(super) fn check(connection: &Connection, ring: &Keyring) -> rusqlite::Result<Report> {
    let mut report = Report::default();
    let snapshot = connection.unchecked_transaction()?;
    let keys = ring.snapshot();
    let mut pages = snapshot.prepare("PRAGMA integrity_check(100)")?;
    let mut lines = pages.query([])?;
    while let Some(line) = lines.next()? {
        match line.get_ref(0)?.as_str()? {
            "ok" => {}
            finding => report.add(finding),
        }
    }

    let mut statement = snapshot.prepare(
        "SELECT instance, binding, data_key, sealed, kind, busy, deleted, updated_at, service, plan
         FROM records ORDER BY kind, instance, binding",
    )?;
    let mut records = statement.query([])?;
    while let Some(row) = records.next()? {
        report.records += 1;
        let key = rows::read_key(row, 0)?;
        let sealed = row.get_ref(3)?.as_blob()?;
        match rows::open_record(ring, &keys, &key, row.get(2)?, sealed) {
            Ok(record) if agrees(row, &record)? => {}
            Ok(_) => report.add(format!("{key} stands in clear other than it is")),
            Err(error) => report.add(error.to_string()),
        }
    }

    let mut statement =
        snapshot.prepare("SELECT data_key, sealed FROM documents WHERE name = ?1")?;
    for document in Document::ALL {
        let mut found = statement.query([document.name()])?;
        while let Some(row) = found.next()? {
            let sealed = row.get_ref(1)?.as_blob()?;
            if let Err(why) = ring.open(&keys, row.get(0)?, document.context(), sealed) {
                report.add(format!("the {} cannot be read: {why}", document.name()));
            }
        }
    }
    Ok(report)
}

fn agrees(row: &Row<'_>, record: &engine::record::Record) -> rusqlite::Result<bool> {
    Ok(row.get::<_, i64>(4)? == rows::kind(&record.key)
        && row.get::<_, bool>(5)? == record.is_busy()
        && row.get::<_, bool>(6)? != record.is_live()
        && u64::try_from(row.get::<_, i64>(7)?) == Ok(record.updated_at.0)
        && row.get_ref(8)?.as_str()? == record.ordered.service_id.as_str()
        && row.get_ref(9)?.as_str()? == record.ordered.plan_id.as_str())
}
