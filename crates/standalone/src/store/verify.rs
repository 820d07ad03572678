//! Verifies a store: its pages, that every record opens, and that the columns in clear agree with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::ports::StoreError;
use rusqlite::{Connection, Row};

use super::EmbeddedStore;
use super::error::{OpenError, unavailable};
use super::header;
use super::keys::Keyring;
use super::reader::open_reader;
use super::rows::{self, Document};
use super::schema::Role;
use super::status::Status;

/// How many findings are listed; further ones are only counted.
const LISTED: usize = 100;

/// The report of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many records were checked.
    pub records: u64,
    /// The findings, at most 100: `instance x cannot be read: …`.
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
    /// Checks everything as it was when the check began, while reading and writing go on.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the check could not be finished. Findings are no error, but in
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

/// Checks a copy of a store without its key, as its receiver can: that its pages are whole and every row can be read.
/// Blocks: it reads the whole file. Returns how many records there are.
///
/// # Errors
/// [`OpenError::NotABackup`], [`OpenError::Damaged`], or what kept it from being read.
pub fn check_copy(path: &Path) -> Result<u64, OpenError> {
    let failed = |error: rusqlite::Error| OpenError::finding("reading the copy", &error);
    header::open(path)?;
    let connection = open_reader(path, Role::Scanner)?;
    if let Some(what) = fault_of_pages(&connection).map_err(failed)? {
        return Err(OpenError::Damaged { what });
    }
    let mut statement = connection.prepare("SELECT * FROM records").map_err(failed)?;
    let columns = statement.column_count();
    let mut rows = statement.query([]).map_err(failed)?;
    let mut records = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        for column in 0..columns {
            row.get_ref(column).map_err(failed)?;
        }
        records += 1;
    }
    Ok(records)
}

/// The first fault in the pages of a database; the order of its indexes and its records are not checked.
///
/// # Errors
/// What SQLite says, if it could not be found out.
fn fault_of_pages(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let said: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((said != "ok").then_some(said))
}

/// Checks the pages of a store that was just opened, in the background, and sets its status if
/// they are damaged. The store is served meanwhile: with many records this takes longer than a start may.
///
/// # Errors
/// If no thread could be made.
pub(super) fn look_through(path: PathBuf, status: Arc<Status>) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("store-check".to_owned())
        .spawn(move || {
            let failed = |error: rusqlite::Error| OpenError::finding("looking through", &error);
            let found = open_reader(&path, Role::Scanner)
                .and_then(|reader| fault_of_pages(&reader).map_err(failed));
            match found {
                Ok(None) => {}
                Ok(Some(what)) | Err(OpenError::Damaged { what }) => {
                    tracing::error!(what, "the store's database is damaged: restore a backup");
                    status.set_damaged();
                }
                Err(error) => tracing::warn!(%error, "the store was not looked through for damage"),
            }
        })
        .map(|_| ())
}

/// Checks everything on one snapshot.
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
