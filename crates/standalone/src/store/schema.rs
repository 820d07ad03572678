//! The shape of the database, and how an older one becomes the present one.
//!
//! `application_id` says that a file is ours, `user_version` which shape it has. Each migration is
//! one transaction that also raises `user_version`: an interrupted one has not happened, and the next
//! start does it again. A file of a newer shape is refused: this version does not know what it would
//! lose.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

use super::error::OpenError;

/// The application id "MANC", which marks the files of this program (`file` and `sqlite3` show it).
pub(super) const APPLICATION_ID: i32 = 0x4d41_4e43;

/// A step from one shape to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Migration {
    /// The SQL of the step.
    pub(super) sql: &'static str,
}

/// All migrations; the `n`th, from 0, makes shape `n + 1`. Only ever appended to.
pub(super) const MIGRATIONS: &[Migration] = &[Migration { sql: include_str!("schema_v1.sql") }];

/// The shape of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// An empty file: just created, or its creation was interrupted.
    Empty,
    /// A database of this program, of this version.
    Version(usize),
}

/// The role of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The only one that writes.
    Writer,
    /// Reads single records.
    Reader,
    /// Reads many records: lists, checks, backups.
    Scanner,
}

impl Role {
    /// The size of the page cache, in KiB. What it misses, the system's cache has.
    fn cache_kib(self) -> i64 {
        match self {
            Self::Writer => 512,
            Self::Reader => 256,
            Self::Scanner => 256,
        }
    }
}

/// Finds the shape of a file without changing it.
///
/// # Errors
/// [`OpenError::NotAStore`], [`OpenError::Newer`], [`OpenError::Database`].
pub(super) fn inspect(
    connection: &Connection,
    migrations: &[Migration],
) -> Result<Shape, OpenError> {
    let number = |pragma: &str| {
        connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0)).map_err(|error| {
            match error.sqlite_error_code() {
                Some(rusqlite::ErrorCode::NotADatabase) => OpenError::NotAStore,
                _ => OpenError::database("reading the header of the database", &error),
            }
        })
    };
    let application = number("application_id")?;
    let version = number("user_version")?;
    let objects: i64 = connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| OpenError::database("reading the schema", &error))?;
    match (application, usize::try_from(version)) {
        (0, Ok(0)) if objects == 0 => Ok(Shape::Empty),
        (APPLICATION_ID, Ok(version)) if version > migrations.len() => {
            Err(OpenError::Newer { found: version, known: migrations.len() })
        }
        (APPLICATION_ID, Ok(version)) if version > 0 => Ok(Shape::Version(version)),
        _ => Err(OpenError::NotAStore),
    }
}

/// Brings a file from the shape it has to the newest one.
///
/// # Errors
/// [`OpenError::Database`]; the file has the shape of the last migration that succeeded.
pub(super) fn migrate(
    connection: &mut Connection,
    from: Shape,
    migrations: &[Migration],
) -> Result<(), OpenError> {
    let have = match from {
        Shape::Empty => 0,
        Shape::Version(version) => version,
    };
    for (number, migration) in migrations.iter().enumerate().skip(have) {
        let version = number + 1;
        migrate_once(connection, version, migration).map_err(|error| {
            OpenError::database(&format!("bringing the database to version {version}"), &error)
        })?;
        tracing::info!(version, "the store's database has a new shape");
    }
    Ok(())
}

fn migrate_once(
    connection: &mut Connection,
    version: usize,
    migration: &Migration,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(migration.sql)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", i64::try_from(version).unwrap_or(i64::MAX))?;
    transaction.commit()
}

/// Sets a connection up for its role. A writer's makes the file a WAL database.
///
/// - `synchronous=FULL`: a commit returns after the log is synced.
/// - `secure_delete`: what is deleted or replaced is overwritten with zeros.
/// - `trusted_schema` off, `DEFENSIVE` on: a prepared file (a restored backup) runs nothing of its own.
///
/// # Errors
/// What SQLite says.
pub(super) fn set_up(connection: &Connection, role: Role) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cache_size", -role.cache_kib())?;
    // A transaction that is larger than the cache stays in memory until it is committed: written in parts, some
    // pages would be written twice.
    connection.pragma_update(None, "cache_spill", false)?;
    connection.pragma_update(None, "mmap_size", 0)?;
    connection.set_prepared_statement_cache_capacity(32);
    if role == Role::Writer {
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update_and_check(None, "secure_delete", true, |_| Ok(()))?;
        connection.pragma_update_and_check(None, "wal_autocheckpoint", 1000, |_| Ok(()))?;
        // A log that grew under a long backup shrinks again.
        connection.pragma_update_and_check(None, "journal_size_limit", 16 << 20, |_| Ok(()))?;
        connection.busy_timeout(std::time::Duration::from_millis(50))?;
    } else {
        connection.pragma_update(None, "query_only", true)?;
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
    }
    Ok(())
}
