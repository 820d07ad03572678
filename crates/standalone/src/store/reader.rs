//! Reads the store: over a few read-only connections, each statement on its own snapshot of the log.
//!
//! A single record that is not among the recent ones is read on the calling thread: it takes microseconds, less than
//! handing it to another thread would, and waits for no writer (the log keeps the old pages for it). Reads of many
//! records have connections of their own, so that no list delays a single read, and run on threads that may block.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use engine::ports::{Filter, Kind, Query, Scanned, StoreError, Stored, Unreadable};
use engine::record::Key;
use osb::{PlanId, ServiceId};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params, params_from_iter, types::Value};

use super::error::{OpenError, unavailable};
use super::keys::Keyring;
use super::recent::{Recent, Sized};
use super::rows::{self, Document};
use super::schema::{self, Role};

/// Connections for reading, lent out one by one.
#[derive(Debug)]
pub(super) struct Pool {
    idle: Mutex<Vec<Connection>>,
    returned: Condvar,
}

impl Pool {
    /// Opens `size` connections.
    ///
    /// # Errors
    /// [`OpenError::Database`].
    pub(super) fn open(path: &Path, role: Role, size: usize) -> Result<Self, OpenError> {
        let idle = (0..size).map(|_| open_reader(path, role)).collect::<Result<_, _>>()?;
        Ok(Self { idle: Mutex::new(idle), returned: Condvar::new() })
    }

    /// Lends a connection to `work`; waits if all are lent.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> T {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = loop {
            match idle.pop() {
                Some(connection) => break connection,
                None => {
                    idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        drop(idle);
        let mut lent = Lent { pool: self, connection: Some(connection) };
        match &mut lent.connection {
            Some(connection) => work(connection),
            None => unreachable!("taken only by drop"),
        }
    }
}

/// A lent connection, which is returned to the pool when this is dropped.
struct Lent<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            self.pool.returned.notify_one();
        }
    }
}

/// Opens one read-only connection.
///
/// # Errors
/// [`OpenError::Database`].
pub(super) fn open_reader(path: &Path, role: Role) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
        .and_then(|connection| schema::set_up(&connection, role).map(|()| connection))
        .map_err(|error| OpenError::database("opening the database to read", &error))
}

/// The reader, which answers the reads of the port.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) single: Pool,
    pub(super) many: Pool,
    pub(super) recent: Arc<Recent>,
    pub(super) ring: Arc<Keyring>,
}

impl Reader {
    pub(super) fn read(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.recent.read(key, || self.read_row(key))
    }

    fn read_row(&self, key: &Key) -> Result<Option<Sized>, StoreError> {
        let keys = self.ring.snapshot();
        self.single.with(|connection| {
            let failed = |error| unavailable("reading a record", &error);
            let mut statement = connection
                .prepare_cached(
                    "SELECT version, data_key, sealed FROM records
                     WHERE kind = ?1 AND instance = ?2 AND binding = ?3",
                )
                .map_err(failed)?;
            let mut rows = statement
                .query(params![rows::kind(key), key.instance().as_str(), rows::binding(key)])
                .map_err(failed)?;
            let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
            let version = row.get(0).map_err(failed)?;
            let data_key = row.get(1).map_err(failed)?;
            let sealed = row.get_ref(2).and_then(|value| Ok(value.as_blob()?)).map_err(failed)?;
            let record = rows::open_record(&self.ring, &keys, key, data_key, sealed)?;
            let stored = Stored { record: Arc::new(record), version: rows::version(version) };
            Ok(Some(Sized { stored, bytes: sealed.len() as u64 }))
        })
    }

    pub(super) fn scan(&self, query: &Query) -> Result<Vec<Scanned>, StoreError> {
        let keys = self.ring.snapshot();
        let (sql, values) = select(query);
        self.many.with(|connection| {
            let failed = |error| unavailable("listing records", &error);
            let mut statement = connection.prepare_cached(&sql).map_err(failed)?;
            let mut rows = statement.query(params_from_iter(values)).map_err(failed)?;
            let mut page = Vec::new();
            while let Some(row) = rows.next().map_err(failed)? {
                let key = rows::read_key(row, 0).map_err(failed)?;
                let version = row.get(2).map_err(failed)?;
                let data_key = row.get(3).map_err(failed)?;
                let sealed =
                    row.get_ref(4).and_then(|value| Ok(value.as_blob()?)).map_err(failed)?;
                let opened = rows::open_record(&self.ring, &keys, &key, data_key, sealed);
                page.push(match opened {
                    Ok(record) => {
                        Ok(Stored { record: Arc::new(record), version: rows::version(version) })
                    }
                    Err(StoreError::Unreadable { why, .. }) => Err(Unreadable { key, why }),
                    Err(error) => return Err(error),
                });
            }
            Ok(page)
        })
    }

    pub(super) fn busy(&self) -> Result<Vec<Key>, StoreError> {
        self.many.with(|connection| {
            connection
                .prepare_cached(BUSY)
                .and_then(|mut busy| busy.query_map([], |row| rows::read_key(row, 0))?.collect())
                .map_err(|error| unavailable("listing busy records", &error))
        })
    }

    pub(super) fn plans_in_use(&self) -> Result<Vec<(ServiceId, PlanId)>, StoreError> {
        let ids: Vec<(String, String)> = self.many.with(|connection| {
            connection
                .prepare_cached(PLANS_IN_USE)
                .and_then(|mut plans| {
                    plans.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
                })
                .map_err(|error| unavailable("listing the plans in use", &error))
        })?;
        ids.into_iter()
            .map(|(service, plan)| Ok((ServiceId::new(service)?, PlanId::new(plan)?)))
            .collect::<Result<_, osb::IdError>>()
            .map_err(|error| StoreError::Unavailable(format!("a plan's id {error}")))
    }

    pub(super) fn document(
        &self,
        document: Document,
    ) -> Result<Option<serde_json::Value>, StoreError> {
        let keys = self.ring.snapshot();
        let row: Option<(i64, Vec<u8>)> = self
            .single
            .with(|connection| {
                connection
                    .prepare_cached("SELECT data_key, sealed FROM documents WHERE name = ?1")?
                    .query_row([document.name()], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()
            })
            .map_err(|error| unavailable("reading a document", &error))?;
        let Some((data_key, sealed)) = row else { return Ok(None) };
        let unreadable =
            |why| StoreError::Unreadable { key: format!("the {}", document.name()), why };
        let json =
            self.ring.open(&keys, data_key, document.context(), &sealed).map_err(unreadable)?;
        serde_json::from_slice(&json)
            .map(Some)
            .map_err(|error| unreadable(format!("it is not JSON ({:?})", error.classify())))
    }
}

pub(super) const BUSY: &str = "SELECT instance, binding FROM records
     WHERE busy = 1 ORDER BY kind, instance, binding";

/// The query for the plans in use: it steps from one plan to the next instead of over all records.
pub(super) const PLANS_IN_USE: &str = "WITH RECURSIVE used (service, plan) AS (
         SELECT * FROM (SELECT service, plan FROM records WHERE deleted = 0
                        ORDER BY service, plan LIMIT 1)
         UNION ALL
         SELECT next.service, next.plan FROM used, records AS next
         WHERE next.id = (SELECT id FROM records
                          WHERE deleted = 0 AND (service, plan) > (used.service, used.plan)
                          ORDER BY service, plan LIMIT 1))
     SELECT service, plan FROM used";

/// The statement of a query and its values. Partial indexes are named: without statistics, the planner
/// does not know that few records are busy or deleted.
pub(super) fn select(query: &Query) -> (String, Vec<Value>) {
    let index = match query.filter {
        Filter::All | Filter::Live => "",
        Filter::Busy => " INDEXED BY busy_records",
        Filter::DeletedBefore(_) => " INDEXED BY deleted_records",
    };
    let mut sql = format!(
        "SELECT instance, binding, version, data_key, sealed FROM records{index} WHERE kind = ?"
    );
    let kind = match query.kind {
        Kind::Instances => 0,
        Kind::Bindings => 1,
    };
    let mut values = vec![Value::Integer(kind)];
    let text = |text: &str| Value::Text(text.to_owned());
    if let Some(instance) = &query.instance {
        sql.push_str(" AND instance = ?");
        values.push(text(instance.as_str()));
    }
    match query.filter {
        Filter::All => {}
        Filter::Live => sql.push_str(" AND deleted = 0"),
        Filter::Busy => sql.push_str(" AND busy = 1"),
        Filter::DeletedBefore(before) => {
            sql.push_str(" AND deleted = 1 AND updated_at < ?");
            values.push(Value::Integer(i64::try_from(before.0).unwrap_or(i64::MAX)));
        }
    }
    if let Some(after) = &query.after {
        // All instances come before all bindings.
        match rows::kind(after).cmp(&kind) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                sql.push_str(" AND (instance, binding) > (?, ?)");
                values.push(text(after.instance().as_str()));
                values.push(text(rows::binding(after)));
            }
            std::cmp::Ordering::Greater => sql.push_str(" AND FALSE"),
        }
    }
    sql.push_str(" ORDER BY instance, binding LIMIT ?");
    values.push(Value::Integer(i64::try_from(query.limit).unwrap_or(i64::MAX)));
    (sql, values)
}
