//! The embedded store: the engine's [`Store`] in one SQLite file.
//!
//! ```text
//!                   ┌─ seal ─▶ queue ─▶ writer thread ─▶ one transaction for all that waits, synced
//! dyn Store ────────┤                              │             │ manciple.db(-wal), SQLite
//!                   └─ read ─▶ recent records ◀────┘             │
//!                                └─▶ a pool of read-only connections, each on its own snapshot
//! ```
//!
//! What an operator has to know of it:
//!
//! - **Files**: `manciple.db`, with `-wal` and `-shm` beside it while it is open, and `lock`. Any
//!   SQLite tool shows ids, plans and times in the table `records`; all else is sealed.
//! - **Durability**: a write returns after its transaction is synced to the disk.
//! - **One process**: a lock on the directory, released by the system when the process ends. It needs a
//!   local file system; SQLite's log does not work over a network.
//! - **The key**: 32 bytes in a file or in the environment ([`KeySource`]). To change it, open the
//!   store once with the new key and the old one as [`Options::previous_key`]. From that moment the
//!   old key opens nothing new, and everything is encrypted again in the background with a new data
//!   key. However often that is interrupted, it goes on at the next start, with or without the
//!   previous key given.
//! - **Backups**: [`EmbeddedStore::backup_to`] while it runs, [`restore`] while it does not. A backup
//!   opens with the key that was in force when it was made.
//!
//! Why SQLite: `docs/decisions/0001-embedded-store.md`.

mod backup;
mod error;
mod files;
mod header;
mod keys;
mod open;
mod queue;
mod reader;
mod recent;
mod restore;
mod rotate;
mod rows;
mod schema;
mod status;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use async_trait::async_trait;
use data_encoding::BASE64;
use engine::ports::{Query, Scanned, Store, StoreError, Stored, Version};
use engine::record::{Key, Record};
use osb::{PlanId, ServiceId};
use serde_json::Value;
use zeroize::Zeroizing;

pub use backup::{Backup, publish};
pub use error::{BackupError, OpenError, Tried};
pub use restore::{Replace, Restored, restore};
pub use status::{Rotation, Stats};
pub use verify::{Report, check_copy};

use crate::seal::{Cipher, KEY_BYTES, KeySource};
use keys::Keyring;
use open::DirLock;
use queue::{Command, Mutation, Queue, Slot};
use reader::Reader;
use rows::{Document, Sealed, SealedRecord};
use status::Status;

/// How many changes may wait for the writer before further ones are refused.
pub const DEFAULT_QUEUE: usize = 1024;

/// The options with which a store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory of its files; created (mode 0700) if need be.
    pub dir: PathBuf,
    /// The operator's key.
    pub key: KeySource,
    /// The operator's key before it was changed; ignored once the change is made.
    pub previous_key: Option<KeySource>,
    /// How many changes may wait: [`DEFAULT_QUEUE`] unless set. More are refused with
    /// [`StoreError::Overloaded`].
    pub queue: usize,
    tuning: Tuning,
}

impl Options {
    /// The default options.
    pub fn new(dir: impl Into<PathBuf>, key: KeySource) -> Self {
        Self {
            dir: dir.into(),
            key,
            previous_key: None,
            queue: DEFAULT_QUEUE,
            tuning: Tuning::default(),
        }
    }
}

/// Options that only tests change.
#[derive(Debug, Clone)]
struct Tuning {
    /// The number of messages after which a data key is replaced: half of what random nonces allow, because the
    /// messages that a crash forgets are not counted.
    messages_per_key: u64,
    /// The number of rows in one transaction of a rotation.
    rotation_slice: u64,
    /// The number of transactions after which a rotation stops, as if killed.
    rotation_slices: Option<u32>,
    /// The capacity of [`Recent`](recent::Recent): 0 has every read look at the disk.
    recent: u64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            messages_per_key: 1 << 31,
            rotation_slice: 128,
            rotation_slices: None,
            recent: recent::CAPACITY,
        }
    }
}

/// The engine's store on one machine. Dropping it writes out what waits and releases the directory.
///
/// Reads of one record and of the catalog run on the calling thread, for microseconds; lists run on
/// the runtime's threads for blocking work. Neither waits for the writer.
#[derive(Debug)]
pub struct EmbeddedStore {
    queue: Option<Queue>,
    writer: Option<JoinHandle<()>>,
    reader: Arc<Reader>,
    ring: Arc<Keyring>,
    status: Arc<Status>,
    path: PathBuf,
    /// Held while a backup is made, so that there is one at a time.
    one_backup: Arc<Mutex<()>>,
    _lock: DirLock,
}

impl EmbeddedStore {
    /// Opens a store, or makes a new one in an empty directory.
    ///
    /// Takes milliseconds, however much is kept. Blocks: it reads files.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is changed by an attempt that fails on the key, the lock or the
    /// version.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        open::open(options, schema::MIGRATIONS)
    }

    /// The figures of the store.
    pub fn stats(&self) -> Stats {
        self.status.stats(self.queue.as_ref().map_or(0, Queue::waiting))
    }

    /// The reason why the last write failed, in words that everybody may read; `None` if it did not. After a
    /// failure, a write that changes nothing is tried once a second, so this recovers by itself.
    pub fn refusing(&self) -> Option<&'static str> {
        self.status.refusing()
    }

    /// Checks the pages of the database in the background; [`Self::is_damaged`] says what was found.
    ///
    /// # Errors
    /// If no thread could be made for it.
    pub fn look_through(&self) -> std::io::Result<()> {
        verify::look_through(self.path.clone(), Arc::clone(&self.status))
    }

    /// Whether [`Self::look_through`] has found damage. Records that can be read are still served.
    pub fn is_damaged(&self) -> bool {
        self.status.is_damaged()
    }

    /// The progress of a change of the data key.
    pub fn rotation(&self) -> Rotation {
        self.status.rotation_now()
    }

    /// Makes a new data key and encrypts everything again with it, in the background. Returns when
    /// the new key is in use, durably; [`Self::rotation`] tells the rest. An interruption loses
    /// nothing: the next start goes on.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    pub async fn rotate_data_key(&self) -> Result<(), StoreError> {
        self.queue()?.ask(Command::Rotate).await.map(|_| ())
    }

    /// The key of the process runner, which seals with it what its runs leave on the disk: 32 random bytes that are
    /// made once and kept as the records are. They outlive every change of a key.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]; [`StoreError::Unreadable`] if they are damaged.
    pub async fn runner_key(&self) -> Result<Zeroizing<[u8; KEY_BYTES]>, StoreError> {
        if let Some(saved) = self.reader.document(Document::RunnerKey)? {
            let bytes = saved.as_str().and_then(|text| BASE64.decode(text.as_bytes()).ok());
            let key = bytes.and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
            let unreadable =
                || StoreError::Unreadable { key: "the runner key".into(), why: "malformed".into() };
            return key.map(Zeroizing::new).ok_or_else(unreadable);
        }
        let (_, key) =
            Cipher::generate().map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let content = Value::String(BASE64.encode(&*key));
        let slot = self.queue()?.slot()?;
        let sealed =
            Sealed::document(Document::RunnerKey, &content, self.ring.snapshot().active())?;
        self.change(slot, Mutation::Save(Document::RunnerKey, sealed)).await?;
        Ok(key)
    }

    fn queue(&self) -> Result<&Queue, StoreError> {
        self.queue.as_ref().ok_or_else(|| StoreError::Unavailable("it is closed".to_owned()))
    }

    async fn change(&self, slot: Slot, what: Mutation) -> Result<i64, StoreError> {
        self.queue()?.change(slot, what).await
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let reader = Arc::clone(&self.reader);
        tokio::task::spawn_blocking(move || work(&reader))
            .await
            .map_err(|error| StoreError::Unavailable(error.to_string()))?
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.reader.read(key)
    }

    fn recall(&self, key: &Key) -> Option<Stored> {
        self.reader.recent.recall(key)
    }

    async fn write(
        &self,
        record: Arc<Record>,
        expected: Option<&Version>,
    ) -> Result<Version, StoreError> {
        let expected = expected
            .map(|version| rows::version_number(version).ok_or(StoreError::Conflict))
            .transpose()?;
        let slot = self.queue()?.slot()?;
        let record = Box::new(SealedRecord::new(record, self.ring.snapshot().active())?);
        self.change(slot, Mutation::Write { record, expected }).await.map(rows::version)
    }

    async fn remove(&self, key: &Key, expected: &Version) -> Result<(), StoreError> {
        let expected = rows::version_number(expected).ok_or(StoreError::Conflict)?;
        let slot = self.queue()?.slot()?;
        self.change(slot, Mutation::Remove { key: key.clone(), expected }).await.map(|_| ())
    }

    async fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        let query = query.clone();
        self.blocking(move |reader| reader.scan(&query)).await
    }

    async fn discard(&self, key: &Key) -> Result<(), StoreError> {
        self.change(self.queue()?.slot()?, Mutation::Discard(key.clone())).await.map(|_| ())
    }

    async fn busy(&self) -> Result<Vec<Key>, StoreError> {
        self.blocking(Reader::busy).await
    }

    async fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError> {
        self.blocking(Reader::plans_in_use).await
    }

    async fn catalog(&self) -> Result<Option<Value>, StoreError> {
        self.reader.document(Document::Catalog)
    }

    async fn save_catalog(&self, catalog: &Value) -> Result<(), StoreError> {
        let slot = self.queue()?.slot()?;
        let sealed = Sealed::document(Document::Catalog, catalog, self.ring.snapshot().active())?;
        self.change(slot, Mutation::Save(Document::Catalog, sealed)).await.map(|_| ())
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            // It panics on nothing; if it did, there is nobody left to tell.
            let _ = writer.join();
        }
    }
}
