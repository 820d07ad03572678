//! The two candidates behind one small interface, each set up as we would run it.

use std::path::Path;
use std::sync::Mutex;

use redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};
use rusqlite::{Connection, OpenFlags, params};

/// What the benchmark asks of a candidate.
pub(crate) trait Engine: Sync {
    /// Writes all of them, or none, and returns when they survive a power loss.
    fn commit(&self, items: &[Item]);
    /// Reads a record whole; whether it is there.
    fn read(&self, n: usize) -> bool;
}

/// A record: an id of 36 bytes, 1 KiB that does not compress, and whether it is busy.
pub(crate) struct Item {
    key: String,
    body: Vec<u8>,
    busy: bool,
}

impl Item {
    /// The `n`th record; its key is spread as random ids are.
    pub(crate) fn new(n: usize, busy: bool) -> Self {
        let mut state = n as u64;
        let body =
            std::iter::repeat_with(|| mix(&mut state).to_le_bytes()).take(128).flatten().collect();
        Self { key: key(n), body, busy }
    }
}

fn key(n: usize) -> String {
    let mut state = n as u64;
    format!("{:016x}-{:019}", mix(&mut state), n)
}

/// SplitMix64.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// SQLite: WAL, `synchronous=FULL`, a writer and a reader.
pub(crate) struct SqliteStore {
    writer: Mutex<Connection>,
    reader: Mutex<Connection>,
}

impl SqliteStore {
    /// Opens or creates `dir/db`.
    pub(crate) fn open(dir: &Path) -> Self {
        let path = dir.join("db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA secure_delete=ON;
                 PRAGMA cache_size=-4096; PRAGMA mmap_size=0;
                 CREATE TABLE IF NOT EXISTS records(
                     key TEXT NOT NULL UNIQUE, busy INTEGER NOT NULL, body BLOB NOT NULL);
                 CREATE INDEX IF NOT EXISTS busy ON records(key) WHERE busy = 1;",
            )
            .unwrap();
        let reader = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
        reader.execute_batch("PRAGMA cache_size=-4096; PRAGMA mmap_size=0;").unwrap();
        Self { writer: Mutex::new(writer), reader: Mutex::new(reader) }
    }
}

impl Engine for SqliteStore {
    fn commit(&self, items: &[Item]) {
        let mut writer = self.writer.lock().unwrap();
        let transaction = writer.transaction().unwrap();
        {
            let mut write = transaction
                .prepare_cached(
                    "INSERT INTO records(key, busy, body) VALUES (?1, ?2, ?3)
                     ON CONFLICT DO UPDATE SET busy = excluded.busy, body = excluded.body",
                )
                .unwrap();
            for item in items {
                write.execute(params![item.key, item.busy, item.body]).unwrap();
            }
        }
        transaction.commit().unwrap();
    }

    fn read(&self, n: usize) -> bool {
        let reader = self.reader.lock().unwrap();
        let mut read = reader.prepare_cached("SELECT body FROM records WHERE key = ?1").unwrap();
        let body: Option<Vec<u8>> = read.query_row([key(n)], |row| row.get(0)).ok();
        body.is_some_and(|body| body.len() == 1024)
    }
}

const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
const BUSY: TableDefinition<'_, &str, ()> = TableDefinition::new("busy");

/// redb: immediate durability; optionally with quick repair.
pub(crate) struct RedbStore {
    database: Database,
    quick_repair: bool,
}

impl RedbStore {
    /// Opens or creates `dir/db`.
    pub(crate) fn open(dir: &Path, quick_repair: bool) -> Self {
        let database = Database::builder().set_cache_size(4 << 20).create(dir.join("db")).unwrap();
        let store = Self { database, quick_repair };
        let transaction = store.begin();
        transaction.open_table(RECORDS).unwrap();
        transaction.open_table(BUSY).unwrap();
        transaction.commit().unwrap();
        store
    }

    fn begin(&self) -> WriteTransaction {
        let mut transaction = self.database.begin_write().unwrap();
        transaction.set_durability(Durability::Immediate).unwrap();
        transaction.set_quick_repair(self.quick_repair);
        transaction
    }
}

impl Engine for RedbStore {
    fn commit(&self, items: &[Item]) {
        let transaction = self.begin();
        {
            let mut records = transaction.open_table(RECORDS).unwrap();
            let mut busy = transaction.open_table(BUSY).unwrap();
            for item in items {
                records.insert(item.key.as_str(), item.body.as_slice()).unwrap();
                if item.busy {
                    busy.insert(item.key.as_str(), ()).unwrap();
                } else {
                    busy.remove(item.key.as_str()).unwrap();
                }
            }
        }
        transaction.commit().unwrap();
    }

    fn read(&self, n: usize) -> bool {
        let transaction = self.database.begin_read().unwrap();
        let records = transaction.open_table(RECORDS).unwrap();
        records.get(key(n).as_str()).unwrap().is_some_and(|body| body.value().len() == 1024)
    }
}
