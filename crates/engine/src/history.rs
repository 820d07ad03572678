//! Lists the operations of all records, those that have ended included, page after page.
//!
//! An operation has no place of its own: it is looked for in its record. A request looks at [`LOOKED_AT`]
//! records at most, so a page may be short, even empty, and still have a next one.

use std::sync::Arc;

use osb::{Error, InstanceId};
use serde::{Deserialize, Serialize};

use crate::backend::store_error;
use crate::engine::Engine;
use crate::ports::{Filter, Kind, Query, Stored};
use crate::record::{Key, Operation, PastOperation, Phase, Record};

/// How many records a request looks at before it returns where to go on.
pub const LOOKED_AT: usize = 2000;
/// How many records are read at a time.
const AT_A_TIME: usize = 200;

/// A filter of operations by their state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OperationFilter {
    /// All.
    #[default]
    All,
    /// Operations in progress.
    Busy,
    /// Operations that failed.
    Failed,
}

/// A query for one page of operations.
#[derive(Debug, Clone)]
pub struct OperationQuery {
    /// Only of this instance and its bindings.
    pub instance: Option<InstanceId>,
    /// Only operations that pass this filter.
    pub filter: OperationFilter,
    /// The place where the page before has ended.
    pub after: Option<Cursor>,
    /// The most operations that the page holds; from 1.
    pub limit: usize,
}

/// A place between two operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    key: Key,
    /// Behind this operation of the record; behind all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
}

/// A page of operations in the order of their records' keys, those of one record from the oldest on.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The operations.
    pub items: Vec<OperationEntry>,
    /// Where to go on, unless all were looked at.
    pub next: Option<Cursor>,
}

/// An operation, in its record.
#[derive(Debug, Clone)]
pub struct OperationEntry {
    /// The record.
    pub record: Arc<Record>,
    /// The place of the operation in [`Record::past`]; `None`: it is [`Record::operation`].
    past: Option<usize>,
}

/// The parts of an operation that its record keeps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum KeptOperation<'r> {
    /// The record's last.
    Last(&'r Operation),
    /// One before.
    Past(&'r PastOperation),
}

impl OperationEntry {
    /// The operation, as its record keeps it.
    pub fn operation(&self) -> KeptOperation<'_> {
        match self.past.and_then(|place| self.record.past.get(place)) {
            Some(past) => KeptOperation::Past(past),
            None => KeptOperation::Last(&self.record.operation),
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor { key: self.record.key.clone(), operation: Some(self.operation().id().to_owned()) }
    }
}

impl KeptOperation<'_> {
    /// The token that platforms poll with.
    pub fn id(&self) -> &str {
        match self {
            Self::Last(operation) => &operation.id,
            Self::Past(past) => &past.id,
        }
    }

    fn passes(&self, filter: OperationFilter) -> bool {
        let (busy, failed) = match self {
            Self::Last(operation) => {
                let phase = &operation.phase;
                (!phase.is_terminal(), matches!(phase, Phase::Failed(_)))
            }
            Self::Past(past) => (false, past.failure.is_some()),
        };
        match filter {
            OperationFilter::All => true,
            OperationFilter::Busy => busy,
            OperationFilter::Failed => failed,
        }
    }
}

/// The operations of a record that pass the filter, behind `after`: all of them if that is not kept any more,
/// for what is forgotten is older than all that is kept.
fn entries(
    record: &Arc<Record>,
    filter: OperationFilter,
    after: Option<&str>,
) -> Vec<OperationEntry> {
    let places = (0..record.past.len()).map(Some).chain([None]);
    let all: Vec<_> =
        places.map(|past| OperationEntry { record: Arc::clone(record), past }).collect();
    let known = after.and_then(|id| all.iter().position(|one| one.operation().id() == id));
    let behind = all.into_iter().skip(known.map_or(0, |place| place + 1));
    behind.filter(|one| one.operation().passes(filter)).collect()
}

impl Engine {
    /// Returns a page of operations.
    ///
    /// # Errors
    /// 404 for an unknown instance; if the store fails.
    pub async fn operations(&self, query: &OperationQuery) -> Result<Page, Error> {
        let mut page = Page::default();
        if let Some(Cursor { key, operation: Some(behind) }) = &query.after {
            // What the page before has left of its last record.
            let stored = self.shared.store.read(key).await.map_err(store_error)?;
            let rest = stored.map(|stored| entries(&stored.record, query.filter, Some(behind)));
            if page.take(rest.unwrap_or_default(), query.limit) {
                return Ok(page);
            }
        } else if let (Some(instance), None) = (&query.instance, &query.after) {
            self.record(&Key::Instance(instance.clone())).await?;
        }
        let mut after = query.after.as_ref().map(|cursor| cursor.key.clone());
        let mut left = LOOKED_AT;
        // All instances come before all bindings, so one cursor serves both.
        for kind in [Kind::Instances, Kind::Bindings] {
            loop {
                let next = Query {
                    kind,
                    instance: query.instance.clone(),
                    filter: match query.filter {
                        OperationFilter::Busy => Filter::Busy,
                        OperationFilter::All | OperationFilter::Failed => Filter::All,
                    },
                    after: after.clone(),
                    limit: AT_A_TIME,
                };
                let records = self.scan(&next).await?;
                for record in &records {
                    // Of one that cannot be read nothing is known.
                    if let Ok(stored) = record
                        && page.take(entries(&stored.record, query.filter, None), query.limit)
                    {
                        return Ok(page);
                    }
                    after = Some(Stored::key_of(record).clone());
                }
                left = left.saturating_sub(records.len());
                if records.len() < AT_A_TIME {
                    break;
                }
                if left == 0 {
                    page.next = after.map(|key| Cursor { key, operation: None });
                    return Ok(page);
                }
            }
        }
        Ok(page)
    }
}

impl Page {
    /// Adds entries while there is room; `true`, with the place to go on from, if the page is full.
    fn take(&mut self, entries: Vec<OperationEntry>, limit: usize) -> bool {
        let room = limit.saturating_sub(self.items.len());
        self.items.extend(entries.into_iter().take(room));
        let full = self.items.len() >= limit;
        self.next = self.items.last().filter(|_| full).map(OperationEntry::cursor);
        full
    }
}
