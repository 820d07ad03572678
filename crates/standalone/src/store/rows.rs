//! Records as rows: some columns in clear, and the sealed rest, which is bound to them.
//!
//! In clear are the values that an operator looks for and queries select by: ids, service, plan, flags,
//! times. Everything else is one sealed JSON, bound to the record's key, so that one row's content
//! cannot be put into another.

use std::sync::Arc;

use engine::ports::{StoreError, Version};
use engine::record::{Key, Record};
use osb::{BindingId, InstanceId};
use rusqlite::Row;
use serde_json::Value;
use zeroize::Zeroizing;

use super::keys::{DataKey, Keyring, Keys};

/// The buffer for a record's JSON, in bytes; most records are shorter.
const ROOM: usize = 2048;

/// A record ready to be written.
#[derive(Debug)]
pub(super) struct SealedRecord {
    pub(super) record: Arc<Record>,
    pub(super) sealed: Sealed,
}

/// Sealed bytes, and the data key that sealed them.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) data_key: i64,
    pub(super) bytes: Vec<u8>,
}

impl SealedRecord {
    /// Seals a record.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] without randomness.
    pub(super) fn new(record: Arc<Record>, active: &DataKey) -> Result<Self, StoreError> {
        let context = record_context(&record.key);
        let bytes = active.seal_written(&context, ROOM, |sealing| {
            serde_json::to_writer(sealing, &*record)
                .map_err(|error| format!("{} is not JSON: {error}", record.key))
        })?;
        Ok(Self { record, sealed: Sealed { data_key: active.id, bytes } })
    }
}

impl Sealed {
    fn new(context: &[u8], content: &[u8], active: &DataKey) -> Result<Self, StoreError> {
        Ok(Self { data_key: active.id, bytes: active.seal(context, content)? })
    }

    /// Seals a document.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] without randomness.
    pub(super) fn document(
        document: Document,
        content: &Value,
        active: &DataKey,
    ) -> Result<Self, StoreError> {
        let json = Zeroizing::new(content.to_string().into_bytes());
        Self::new(document.context(), &json, active)
    }

    /// Seals the content again with the active key; `None` if it is sealed with it already.
    ///
    /// # Errors
    /// The reason why the content does not open.
    pub(super) fn brought_over(
        &self,
        context: &[u8],
        ring: &Keyring,
    ) -> Result<Option<Self>, String> {
        let keys = ring.snapshot();
        if self.data_key == keys.active().id {
            return Ok(None);
        }
        let content = ring.open(&keys, self.data_key, context, &self.bytes)?;
        let again = Self::new(context, &content, keys.active());
        again.map(Some).map_err(|error| error.to_string())
    }
}

/// The documents that are kept beside the records, under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Document {
    /// The last good catalog.
    Catalog,
    /// The key from which the keys of runs' results are derived.
    RunnerKey,
}

impl Document {
    /// All documents.
    pub(super) const ALL: [Self; 2] = [Self::Catalog, Self::RunnerKey];

    /// The name of the document in the database.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::RunnerKey => "runner key",
        }
    }

    /// The context that the sealed document is bound to.
    pub(super) fn context(self) -> &'static [u8] {
        match self {
            Self::Catalog => b"manciple document catalog",
            Self::RunnerKey => b"manciple document runner key",
        }
    }
}

/// The context that a sealed record is bound to. Lengths come before parts, so that no two keys give the same bytes.
pub(super) fn record_context(key: &Key) -> Vec<u8> {
    let instance = key.instance().as_str();
    let binding = key.binding().map_or("", BindingId::as_str);
    let mut context = Vec::with_capacity(40 + instance.len() + binding.len());
    context.extend_from_slice(b"manciple record ");
    for part in [instance, binding] {
        context.extend_from_slice(&(part.len() as u64).to_be_bytes());
        context.extend_from_slice(part.as_bytes());
    }
    context
}

/// Opens a row that was read after `before` was taken.
///
/// # Errors
/// [`StoreError::Unreadable`].
pub(super) fn open_record(
    ring: &Keyring,
    before: &Keys,
    key: &Key,
    data_key: i64,
    sealed: &[u8],
) -> Result<Record, StoreError> {
    let unreadable = |why| StoreError::Unreadable { key: key.to_string(), why };
    let json = ring.open(before, data_key, &record_context(key), sealed).map_err(unreadable)?;
    // The message of serde_json may quote content; its category may not.
    let record: Record = serde_json::from_slice(&json).map_err(|error| {
        unreadable(format!("it is not a record of this version ({:?})", error.classify()))
    })?;
    if record.key != *key {
        return Err(unreadable(format!("it holds {}", record.key)));
    }
    Ok(record)
}

/// The name of a kind in the database.
pub(super) fn kind(key: &Key) -> i64 {
    i64::from(key.binding().is_some())
}

/// The `binding` column.
pub(super) fn binding(key: &Key) -> &str {
    key.binding().map_or("", BindingId::as_str)
}

/// Reads a key from the columns `instance` and `binding` at `at`.
///
/// # Errors
/// What SQLite says, or [`rusqlite::Error::FromSqlConversionFailure`] for what is no id.
pub(super) fn read_key(row: &Row<'_>, at: usize) -> rusqlite::Result<Key> {
    let id = |column: usize, error: osb::IdError| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            Box::new(error),
        )
    };
    let text = |column: usize| row.get_ref(column).and_then(|value| Ok(value.as_str()?));
    let instance = InstanceId::new(text(at)?).map_err(|error| id(at, error))?;
    Ok(match text(at + 1)? {
        "" => Key::Instance(instance),
        binding => {
            Key::Binding(instance, BindingId::new(binding).map_err(|error| id(at + 1, error))?)
        }
    })
}

/// A version in the form of the port.
pub(super) fn version(number: i64) -> Version {
    Version(number.to_string())
}

/// The column `updated_at`.
pub(super) fn updated_at(record: &Record) -> i64 {
    i64::try_from(record.updated_at.0).unwrap_or(i64::MAX)
}

/// The number of a version; `None` if this store never gave a version of that form.
pub(super) fn version_number(version: &Version) -> Option<i64> {
    version.0.parse().ok()
}
