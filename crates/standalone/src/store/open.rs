//! Opens a store: from a directory and a key to a store that is ready, without changing anything before it
//! is certain that the directory, the file and the key belong together.
//!
//! ```text
//! key ─▶ directory ─▶ lock ─▶ file: ours? known version? ─▶ key opens the data keys? ─▶ migrate ─▶ ready
//!                                                            └─ the previous one does: wrap again
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::{OpenError, Tried};
use super::files::Files;
use super::keys::{self, Keyring, Keys, Unwrapped};
use super::queue::Queue;
use super::reader::{Pool, Reader};
use super::recent::Recent;
use super::rotate::Rotator;
use super::schema::{self, Migration, Role, Shape};
use super::status::Status;
use super::writer::{Pace, Writer};
use super::{EmbeddedStore, Options};
use crate::data_dir::{self, sync_dir};
use crate::seal::{Cipher, KeySource};

/// The files of a store.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) dir: PathBuf,
}

impl Layout {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    pub(super) fn database(&self) -> PathBuf {
        self.dir.join("manciple.db")
    }

    /// The database and what SQLite keeps beside it: the log and the log's index.
    pub(super) fn database_files(&self) -> [PathBuf; 3] {
        ["manciple.db-wal", "manciple.db-shm", "manciple.db"].map(|name| self.dir.join(name))
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    /// The path of the file that exists while a restore replaces a store; it names the directory of the former one.
    pub(super) fn restoring(&self) -> PathBuf {
        self.dir.join("restoring")
    }
}

/// The lock on a directory for this process. The system releases it when the process ends, however it does.
#[derive(Debug)]
pub(super) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Creates the directory if need be (mode 0700) and takes it.
    ///
    /// # Errors
    /// [`OpenError::Locked`], [`OpenError::Io`].
    pub(super) fn take(layout: &Layout) -> Result<Self, OpenError> {
        data_dir::make(&layout.dir)
            .map_err(OpenError::io("creating the directory", &layout.dir))?;
        let path = layout.lock();
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(OpenError::io("creating the lock file", &path))?;
        match patiently(&file) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                let known = Read::take(&file, 64).read_to_string(&mut holder).is_ok();
                let holder = match holder.trim() {
                    pid if known && !pid.is_empty() => format!("process {pid}"),
                    _ => "another process".to_owned(),
                };
                return Err(OpenError::Locked { dir: layout.dir.clone(), holder });
            }
            Err(TryLockError::Error(source)) => {
                return Err(OpenError::Io { what: "locking", path, source });
            }
        }
        // For the message above only; a full disk is no reason not to start.
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self { _file: file })
    }
}

/// Takes the lock, with some patience: a process that was killed while it started another one leaves the lock to that
/// one for the moment until it has become its own program, which closes the file.
fn patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 0..50 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
            other => return other,
        }
    }
    file.try_lock()
}

/// See [`EmbeddedStore::open`].
pub(super) fn open(
    options: &Options,
    migrations: &[Migration],
) -> Result<EmbeddedStore, OpenError> {
    let operator = options.key.read()?;
    let previous = options.previous_key.as_ref().map(KeySource::read).transpose()?;
    let layout = Layout::new(&options.dir);
    let lock = DirLock::take(&layout)?;
    refuse_half_restored(&layout)?;
    let previous = options.previous_key.as_ref().zip(previous.as_ref());
    let (connection, keys) =
        open_database(&layout, (&options.key, &operator), previous, migrations)?;
    let last_version = connection
        .query_row("SELECT last_version FROM store", [], |row| row.get(0))
        .map_err(|error| OpenError::database("reading the last version", &error))?;
    let path = layout.database();
    let rotator = (keys.retiring() > 0).then(|| Rotator::new(&options.tuning));
    let status = Arc::new(Status::default());
    status.rotation(keys.active().id, keys.retiring(), rotator.as_ref());
    let ring = Arc::new(Keyring::new(keys));
    let recent = Arc::new(Recent::new(options.tuning.recent));
    let reader = Arc::new(reader(&path, Arc::clone(&recent), Arc::clone(&ring))?);
    let (queue, orders) = Queue::new(options.queue);
    let writer = Writer {
        connection,
        files: Files::of(layout.database_files()),
        orders,
        ring: Arc::clone(&ring),
        recent,
        operator,
        status: Arc::clone(&status),
        pace: Pace::default(),
        tuning: options.tuning.clone(),
        last_version,
        reserved: 0,
        rotator,
        // What the process before this one removed may still be in the log.
        unclean: true,
        refusing: false,
        troubled: false,
    };
    let writer = std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || writer.run())
        .map_err(OpenError::io("starting the writer of", &path))?;
    Ok(EmbeddedStore {
        queue: Some(queue),
        writer: Some(writer),
        reader,
        ring,
        status,
        path,
        one_backup: Arc::new(Mutex::new(())),
        _lock: lock,
    })
}

/// Opens the database for writing, and migrates it once it is certain that the key fits.
fn open_database(
    layout: &Layout,
    key: NamedKey<'_>,
    previous: Option<NamedKey<'_>>,
    migrations: &[Migration],
) -> Result<(Connection, Keys), OpenError> {
    let path = layout.database();
    create_file(&path)?;
    let mut connection = open_unchanged(&path)?;
    let shape = schema::inspect(&connection, migrations)?;
    let unlocked = match shape {
        Shape::Empty => Unlocked::Empty,
        Shape::Version(_) => unlock(&connection, key, previous)?,
    };

    schema::set_up(&connection, Role::Writer)
        .and_then(|()| connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false))
        .map_err(|error| OpenError::database("preparing the database for writing", &error))?;
    schema::migrate(&mut connection, shape, migrations)?;
    let (_, operator) = key;
    let keys = settle_keys(&mut connection, unlocked, operator)?;
    sync_dir(&layout.dir).map_err(OpenError::io("syncing the directory", &layout.dir))?;
    restrict(layout);
    let _ = std::fs::remove_file(super::backup::unnamed(&path));
    Ok((connection, keys))
}

/// Makes the reader: it reads single records on as many connections as there are cores, within bounds, and lists on two
/// others.
fn reader(path: &Path, recent: Arc<Recent>, ring: Arc<Keyring>) -> Result<Reader, OpenError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Reader {
        single: Pool::open(path, Role::Reader, cores.clamp(2, 4))?,
        many: Pool::open(path, Role::Scanner, 2)?,
        recent,
        ring,
    })
}

fn refuse_half_restored(layout: &Layout) -> Result<(), OpenError> {
    match std::fs::read_to_string(layout.restoring()) {
        Ok(aside) => Err(OpenError::RestoreInterrupted {
            dir: layout.dir.clone(),
            aside: layout.dir.join(aside.trim()),
        }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(OpenError::io("reading", &layout.restoring())(error)),
    }
}

/// Creates the file with its permissions, which SQLite gives to the files beside it.
fn create_file(path: &Path) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(OpenError::io("creating the database", path)(error)),
    }
}

/// Opens a database in such a way that closing it again leaves it as it was.
///
/// # Errors
/// [`OpenError::Database`].
pub(super) fn open_unchanged(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)
        .map_err(|error| OpenError::database("opening the database", &error))?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(|error| OpenError::database("opening the database", &error))?;
    Ok(connection)
}

/// The key that fits.
pub(super) enum Unlocked {
    /// There are no data keys yet.
    Empty,
    /// The given key fits.
    Same(Vec<keys::Found>),
    /// The previous key fits.
    Changed(Vec<keys::Found>),
}

/// A key and its source.
pub(super) type NamedKey<'a> = (&'a KeySource, &'a Cipher);

/// Finds the key that fits; changes nothing.
///
/// # Errors
/// [`OpenError::WrongKey`] if none does.
pub(super) fn unlock(
    connection: &Connection,
    (source, operator): NamedKey<'_>,
    previous: Option<NamedKey<'_>>,
) -> Result<Unlocked, OpenError> {
    match keys::unwrap_all(connection, operator)? {
        Unwrapped::None => return Ok(Unlocked::Empty),
        Unwrapped::All(found) => return Ok(Unlocked::Same(found)),
        Unwrapped::WrongKey => {}
    }
    if let Some((_, previous)) = previous
        && let Unwrapped::All(found) = keys::unwrap_all(connection, previous)?
    {
        return Ok(Unlocked::Changed(found));
    }
    Err(OpenError::WrongKey {
        tried: Tried { key: source.clone(), previous: previous.map(|(source, _)| source.clone()) },
    })
}

/// Makes the first data key, or wraps the data keys with a changed operator's key and begins a
/// rotation: somebody who has the old key and an old copy knows the data keys of that time.
fn settle_keys(
    connection: &mut Connection,
    unlocked: Unlocked,
    operator: &Cipher,
) -> Result<Keys, OpenError> {
    match unlocked {
        Unlocked::Same(found) => keys::keys(found),
        Unlocked::Changed(found) => {
            let active = keys::transact(connection, |transaction| {
                keys::wrap_again(transaction, &found, operator)?;
                keys::make_active(transaction, operator)
            })?;
            tracing::info!("the store's key was changed; the previous one opens it no more");
            Ok(keys::keys(found)?.with_active(active))
        }
        Unlocked::Empty => {
            let records: bool = connection
                .query_row("SELECT EXISTS (SELECT 1 FROM records)", [], |row| row.get(0))
                .map_err(|error| OpenError::database("reading the records", &error))?;
            if records {
                let what = "there are records but no data key".to_owned();
                return Err(OpenError::Damaged { what });
            }
            let active =
                keys::transact(connection, |transaction| keys::make_active(transaction, operator))?;
            Ok(keys::first(active))
        }
    }
}

/// Takes the permissions of other users from the files: those that were copied here by hand may be open to others.
fn restrict(layout: &Layout) {
    for path in layout.database_files() {
        if let Ok(metadata) = path.metadata()
            && metadata.permissions().mode() & 0o077 != 0
        {
            let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600));
        }
    }
}
