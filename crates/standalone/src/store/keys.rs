//! The data keys: they are made here, kept in the database wrapped with the operator's key, and held in memory.
//!
//! ```text
//! active ──rotation begins──▶ retiring ──no row uses it──▶ gone
//! ```
//!
//! Exactly one is active; everything new is sealed with it. All are wrapped with the same operator's
//! key at any time, because a change of that key wraps them all again in one transaction.

use std::fmt::Display;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use engine::ports::StoreError;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use zeroize::Zeroizing;

use super::error::{OpenError, unavailable};
use crate::seal::{Cipher, KEY_BYTES, NoRandomness, Sealing};

/// The size of the blocks in which messages are counted, so that counting costs one write per block.
pub(super) const BLOCK: u64 = 1 << 16;

/// A data key in memory.
#[derive(Debug)]
pub(super) struct DataKey {
    pub(super) id: i64,
    cipher: Cipher,
    /// How many messages were sealed with it, those of former processes rounded up.
    sealed: AtomicU64,
}

impl DataKey {
    pub(super) fn seal(&self, context: &[u8], content: &[u8]) -> Result<Vec<u8>, StoreError> {
        self.seal_written(context, content.len(), |sealing| sealing.write_all(content))
    }

    /// Seals what `write` writes, mostly no more than `room` bytes.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] without randomness, or with what `write` says.
    pub(super) fn seal_written<E: Display>(
        &self,
        context: &[u8],
        room: usize,
        write: impl FnOnce(&mut Sealing<'_>) -> Result<(), E>,
    ) -> Result<Vec<u8>, StoreError> {
        let no_randomness = |error: NoRandomness| StoreError::Unavailable(error.to_string());
        self.sealed.fetch_add(1, Ordering::Relaxed);
        let mut sealing = self.cipher.begin(room).map_err(no_randomness)?;
        write(&mut sealing).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        sealing.end(context).map_err(no_randomness)
    }

    /// Whether at least `limit` messages were sealed with the key, so that it should be replaced.
    pub(super) fn is_worn(&self, limit: u64) -> bool {
        self.sealed.load(Ordering::Relaxed) >= limit
    }
}

/// The data keys at one moment.
#[derive(Debug)]
pub(super) struct Keys {
    active: Arc<DataKey>,
    retiring: Vec<Arc<DataKey>>,
}

impl Keys {
    /// The key that new content is sealed with.
    pub(super) fn active(&self) -> &DataKey {
        &self.active
    }

    /// How many keys are kept beside the active one.
    pub(super) fn retiring(&self) -> usize {
        self.retiring.len()
    }

    /// The keys with a new active one; the former one is retiring.
    pub(super) fn with_active(&self, key: DataKey) -> Self {
        let mut retiring = self.retiring.clone();
        retiring.push(Arc::clone(&self.active));
        Self { active: Arc::new(key), retiring }
    }

    /// The keys without any but the active one.
    pub(super) fn only_active(&self) -> Self {
        Self { active: Arc::clone(&self.active), retiring: Vec::new() }
    }

    fn find(&self, id: i64) -> Option<&DataKey> {
        std::iter::once(&self.active)
            .chain(&self.retiring)
            .find(|key| key.id == id)
            .map(Arc::as_ref)
    }
}

/// The data keys, shared by readers and the writer.
#[derive(Debug)]
pub(super) struct Keyring {
    now: RwLock<Arc<Keys>>,
}

impl Keyring {
    pub(super) fn new(keys: Keys) -> Self {
        Self { now: RwLock::new(Arc::new(keys)) }
    }

    /// The keys as of now. Taken before rows are read, it opens all of them; see [`Self::open`].
    pub(super) fn snapshot(&self) -> Arc<Keys> {
        Arc::clone(&self.now.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens a row that was read after `before` was taken.
    ///
    /// Its key was in the ring at the moment of reading: either `before` has it, even if it has been
    /// retired since, or it is newer than `before` and in the ring now.
    pub(super) fn open(
        &self,
        before: &Keys,
        id: i64,
        context: &[u8],
        sealed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, String> {
        let now;
        let key = match before.find(id) {
            Some(key) => Some(key),
            None => {
                now = self.snapshot();
                now.find(id)
            }
        };
        let key = key.ok_or_else(|| format!("its data key {id} is not there"))?;
        key.cipher.open(context, sealed).map_err(|error| error.to_string())
    }

    /// Replaces the keys in memory by those that the database holds now.
    pub(super) fn replace(&self, keys: Keys) {
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }
}

/// A data key as it was found in the database, with its bytes, to wrap it again.
pub(super) struct Found {
    key: DataKey,
    bytes: Zeroizing<Vec<u8>>,
    active: bool,
}

/// The result of opening the data keys.
pub(super) enum Unwrapped {
    /// There is none yet.
    None,
    /// All of them opened.
    All(Vec<Found>),
    /// The data keys are not wrapped with this operator's key.
    WrongKey,
}

/// Opens all data keys with an operator's key.
///
/// # Errors
/// [`OpenError::Damaged`] if the operator's key opens some but not others.
pub(super) fn unwrap_all(
    connection: &Connection,
    operator: &Cipher,
) -> Result<Unwrapped, OpenError> {
    let rows = read_rows(connection)
        .map_err(|error| OpenError::database("reading the data keys", &error))?;
    let count = rows.len();
    let found: Vec<Found> = rows.into_iter().filter_map(|row| row.unwrap(operator)).collect();
    match found.len() {
        _ if count == 0 => Ok(Unwrapped::None),
        0 => Ok(Unwrapped::WrongKey),
        some if some == count => Ok(Unwrapped::All(found)),
        some => Err(OpenError::Damaged {
            what: format!("{} of {count} data keys do not open with the key", count - some),
        }),
    }
}

/// The keys that [`unwrap_all`] found, for use.
///
/// # Errors
/// [`OpenError::Damaged`] if none of them is active.
pub(super) fn keys(found: Vec<Found>) -> Result<Keys, OpenError> {
    let (active, retiring): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| found.active);
    let mut active = active.into_iter().map(|found| Arc::new(found.key));
    let retiring = retiring.into_iter().map(|found| Arc::new(found.key)).collect();
    match active.next() {
        Some(active) => Ok(Keys { active, retiring }),
        None => Err(OpenError::Damaged { what: "no data key is active".to_owned() }),
    }
}

/// The keys of a new store.
pub(super) fn first(active: DataKey) -> Keys {
    Keys { active: Arc::new(active), retiring: Vec::new() }
}

/// Wraps all data keys with another operator's key.
///
/// # Errors
/// No randomness, or what SQLite says; the transaction is the caller's to roll back.
pub(super) fn wrap_again(
    transaction: &Transaction<'_>,
    found: &[Found],
    operator: &Cipher,
) -> Result<(), KeyFault> {
    for Found { key, bytes, .. } in found {
        let wrapped = operator.seal(&context(key.id), bytes)?;
        transaction
            .execute("UPDATE data_keys SET wrapped = ?2 WHERE id = ?1", params![key.id, wrapped])?;
    }
    Ok(())
}

/// Makes a new data key the active one; the former one still opens what it sealed.
///
/// # Errors
/// No randomness, or what SQLite says; the transaction is the caller's to roll back.
pub(super) fn make_active(
    transaction: &Transaction<'_>,
    operator: &Cipher,
) -> Result<DataKey, KeyFault> {
    let (cipher, bytes) = Cipher::generate()?;
    transaction.execute("UPDATE data_keys SET active = 0 WHERE active = 1", [])?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    transaction.execute(
        "INSERT INTO data_keys (active, created_at, reserved, wrapped) VALUES (1, ?1, ?2, x'')",
        params![i64::try_from(now).unwrap_or(i64::MAX), BLOCK.cast_signed()],
    )?;
    let id = transaction.last_insert_rowid();
    let wrapped = operator.seal(&context(id), &*bytes)?;
    transaction.execute("UPDATE data_keys SET wrapped = ?2 WHERE id = ?1", params![id, wrapped])?;
    Ok(DataKey { id, cipher, sealed: AtomicU64::new(0) })
}

/// Keeps the count of messages in the database ahead of the count in memory, so that a crash forgets
/// none of them. The next block is reserved when one is half used: what is sealed but not yet written
/// never fills half a block. Returns the count that is reserved once the transaction is committed.
pub(super) fn reserve(
    transaction: &Transaction<'_>,
    active: &DataKey,
    reserved: u64,
) -> rusqlite::Result<u64> {
    let sealed = active.sealed.load(Ordering::Relaxed);
    if sealed + BLOCK / 2 <= reserved {
        return Ok(reserved);
    }
    let next = sealed.saturating_add(BLOCK);
    transaction
        .prepare_cached("UPDATE data_keys SET reserved = ?2 WHERE id = ?1")?
        .execute(params![active.id, next.cast_signed()])?;
    Ok(next)
}

/// The reason why keys could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeyFault {
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
}

impl From<KeyFault> for OpenError {
    fn from(fault: KeyFault) -> Self {
        match fault {
            KeyFault::NoRandomness(error) => error.into(),
            KeyFault::Database(error) => Self::database("writing the data keys", &error),
        }
    }
}

impl From<KeyFault> for StoreError {
    fn from(fault: KeyFault) -> Self {
        match fault {
            KeyFault::NoRandomness(error) => Self::Unavailable(error.to_string()),
            KeyFault::Database(error) => unavailable("writing the data keys", &error),
        }
    }
}

/// Does all of `work` in a transaction, or nothing.
///
/// # Errors
/// Those of `work`, and what SQLite says.
pub(super) fn transact<T>(
    connection: &mut Connection,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, KeyFault>,
) -> Result<T, KeyFault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

struct KeyRow {
    id: i64,
    active: bool,
    reserved: u64,
    wrapped: Vec<u8>,
}

impl KeyRow {
    fn unwrap(self, operator: &Cipher) -> Option<Found> {
        let bytes = operator.open(&context(self.id), &self.wrapped).ok()?;
        let cipher = Cipher::new(<&[u8; KEY_BYTES]>::try_from(bytes.as_slice()).ok()?);
        let key = DataKey { id: self.id, cipher, sealed: AtomicU64::new(self.reserved) };
        Some(Found { key, bytes, active: self.active })
    }
}

fn read_rows(connection: &Connection) -> rusqlite::Result<Vec<KeyRow>> {
    connection
        .prepare("SELECT id, active, reserved, wrapped FROM data_keys ORDER BY id")?
        .query_map([], |row| {
            Ok(KeyRow {
                id: row.get(0)?,
                active: row.get(1)?,
                reserved: row.get::<_, i64>(2)?.cast_unsigned(),
                wrapped: row.get(3)?,
            })
        })?
        .collect()
}

/// The context that binds a wrapped key to its row.
fn context(id: i64) -> Vec<u8> {
    let mut context = b"manciple data key ".to_vec();
    context.extend_from_slice(&id.to_be_bytes());
    context
}
