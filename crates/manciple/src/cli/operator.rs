//! The requests to the operator's API, whose bodies are in [`crate::admin::model`].

use std::cmp::Reverse;

use http::Method;
use jiff::Timestamp;
use osb::client::{ClientError, Download};
use serde::de::{DeserializeOwned, IgnoredAny};

use super::args::StateFilter;
use super::connection::{Connection, Subject};
use super::failure::Failure;
use crate::admin::model::{Done, LogView, OperationsPage, Page, RecordView, Target};

/// How many records are asked for at a time.
const PAGE: usize = 500;

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Instances.
    Instances,
    /// Bindings.
    Bindings,
}

/// A query for records.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Instances or bindings.
    pub(crate) kind: Kind,
    /// Bindings: only those of this instance.
    pub(crate) instance: Option<String>,
    /// Only records in this state.
    pub(crate) state: StateFilter,
    /// The place where to go on.
    pub(crate) after: Option<String>,
    /// The most records to return.
    pub(crate) limit: Option<u32>,
}

impl Connection {
    /// Reads records, page after page until there are enough.
    pub(crate) async fn records(&self, wanted: &Wanted) -> Result<Page, Failure> {
        let (path, what) = match wanted.kind {
            Kind::Instances => ("/admin/v1/instances", "list instances"),
            Kind::Bindings => ("/admin/v1/bindings", "list bindings"),
        };
        let limit = wanted.limit.map_or(usize::MAX, |limit| limit as usize);
        let mut all =
            Page { items: Vec::new(), unreadable: Vec::new(), next: wanted.after.clone() };
        loop {
            let number = PAGE.min(limit - all.items.len()).to_string();
            let query = [
                ("instance", wanted.instance.as_deref()),
                ("state", Some(wanted.state.as_str())),
                ("after", all.next.as_deref()),
                ("limit", Some(number.as_str())),
            ];
            let page: Page = self.get(path, &query).await.map_err(|e| self.refused(what, &e))?;
            let empty = page.items.is_empty() && page.unreadable.is_empty();
            all.items.extend(page.items);
            all.unreadable.extend(page.unreadable);
            all.next = page.next;
            if all.next.is_none() || empty || all.items.len() >= limit {
                return Ok(all);
            }
        }
    }

    /// Reads the operations that are `which` (`all`, `busy` or `failed`), the newest first, up to a limit. The server
    /// has them in another order: every page is read, and no more are held than may be wanted.
    pub(crate) async fn operations(
        &self,
        instance: Option<&str>,
        which: &str,
        limit: Option<u32>,
    ) -> Result<Vec<Done>, Failure> {
        let what = match instance {
            Some(instance) => format!("list the operations of {}", Subject::new(instance, None)?),
            None => "list operations".to_owned(),
        };
        let most = limit.map_or(usize::MAX, |limit| limit as usize);
        let (mut newest, mut after) = (Newest { most, found: Vec::new() }, None::<String>);
        let number = PAGE.to_string();
        loop {
            let query = [
                ("instance", instance),
                ("state", Some(which)),
                ("after", after.as_deref()),
                ("limit", Some(number.as_str())),
            ];
            let page = self.get::<OperationsPage>("/admin/v1/operations", &query).await;
            let page = page.map_err(|error| self.refused(&what, &error))?;
            newest.add(page.items);
            // A page may be empty and not the last: the server looks at so much at a time.
            after = page.next;
            if after.is_none() {
                return Ok(newest.list());
            }
        }
    }

    /// Reads the record of an instance or a binding.
    pub(crate) async fn record(&self, subject: &Subject) -> Result<RecordView, ClientError> {
        let query = [
            ("instance_id", Some(subject.instance.as_str())),
            ("binding_id", subject.binding.as_ref().map(osb::BindingId::as_str)),
        ];
        self.get("/admin/v1/record", &query).await
    }

    /// Reads the log of a run, as far as it is written.
    pub(crate) async fn log(&self, run: &str) -> Result<LogView, ClientError> {
        self.get("/admin/v1/logs", &[("run", Some(run))]).await
    }

    /// Asks the server to repeat a failed operation.
    pub(crate) async fn order_retry(&self, subject: &Subject) -> Result<RecordView, ClientError> {
        self.post("/admin/v1/retry", &Target::from(subject)).await
    }

    /// Asks the server to forget a record.
    pub(crate) async fn order_purge(&self, subject: &Subject) -> Result<(), ClientError> {
        self.post::<IgnoredAny>("/admin/v1/purge", &Target::from(subject)).await.map(|_| ())
    }

    /// Has the broker read its catalog anew.
    pub(crate) async fn refresh_catalog(&self) -> Result<(), ClientError> {
        let none = None::<&()>;
        let path = "/admin/v1/catalog/refresh";
        self.client.own::<IgnoredAny>(Method::POST, path, &[], none).await.map(|_| ())
    }

    /// Begins to download a backup of all records.
    pub(crate) async fn open_backup(&self) -> Result<Download, ClientError> {
        self.client.download("/admin/v1/backup").await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
    ) -> Result<T, ClientError> {
        self.client.own(Method::GET, path, query, None::<&()>).await.map(|answer| answer.body)
    }

    async fn post<T: DeserializeOwned>(&self, path: &str, body: &Target) -> Result<T, ClientError> {
        self.client.own(Method::POST, path, &[], Some(body)).await.map(|answer| answer.body)
    }
}

/// A collection of the newest operations: of a long history it holds no more than a page and twice as many as are
/// wanted.
struct Newest {
    most: usize,
    found: Vec<Done>,
}

impl Newest {
    fn add(&mut self, page: Vec<Done>) {
        self.found.extend(page);
        // Not for every page: what stays would be sorted as often.
        if self.found.len() / 2 >= self.most {
            self.cut();
        }
    }

    /// The operations, the newest first; those of the same time in the order in which they were added.
    fn list(mut self) -> Vec<Done> {
        self.cut();
        self.found
    }

    fn cut(&mut self) {
        let begun = |done: &Done| done.operation.created_at.parse::<Timestamp>().ok();
        self.found.sort_by_cached_key(|done| Reverse(begun(done)));
        self.found.truncate(self.most);
    }
}

impl StateFilter {
    fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Live => "live",
            Self::Busy => "busy",
            Self::Deleted => "deleted",
        }
    }
}

impl From<&Subject> for Target {
    fn from(subject: &Subject) -> Self {
        Self {
            instance_id: subject.instance.to_string(),
            binding_id: subject.binding.as_ref().map(ToString::to_string),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One that began in this second, if that is a number.
    fn done(id: &str, second: &str) -> Done {
        serde_json::from_value(json!({
            "instance_id": id, "service_id": "s", "plan_id": "p", "id": "o", "action": "bind",
            "state": "succeeded", "attempt": 1, "run": "o-1",
            "created_at": format!("2026-05-04T12:00:0{second}Z"),
        }))
        .unwrap()
    }

    #[test]
    fn the_newest_are_the_same_on_one_page_and_on_many() {
        let found = [("a", "3"), ("b", "1"), ("c", "3"), ("d", "?"), ("e", "4"), ("f", "1")];
        for (case, most, expected) in [
            ("all of them", usize::MAX, "eacbfd"),
            ("as many as there are", 6, "eacbfd"),
            ("of the same time those that come first", 2, "ea"),
            ("one", 1, "e"),
            ("half", 3, "eac"),
        ] {
            for on_a_page in 1..=found.len() {
                let mut newest = Newest { most, found: Vec::new() };
                for page in found.chunks(on_a_page) {
                    newest.add(page.iter().map(|(id, second)| done(id, second)).collect());
                    let held = newest.found.len();
                    assert!(held / 2 < most, "{case}: {held} are held");
                }
                let listed: String = newest.list().into_iter().map(|it| it.instance_id).collect();
                assert_eq!(listed, expected, "{case}, by {on_a_page}");
            }
        }
    }
}
