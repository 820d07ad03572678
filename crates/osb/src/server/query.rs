//! The query of a request, read once for all routes (sections "Asynchronous Operations", "Unbinding", "Deprovisioning"
//! and "Polling Last Operation for Service Instances").

use std::borrow::Cow;

use super::route::decode;
use crate::fields::Faults;
use crate::model::{IdError, LastOperationQuery, MAX_ID_BYTES};

/// The longest `operation`, in characters (section "Polling Last Operation for Service Instances").
pub(super) const MAX_OPERATION_CHARS: usize = 10_000;

/// The members of a query that the API knows; others are ignored.
#[derive(Debug, Default)]
pub(super) struct Query<'q> {
    accepts_incomplete: Option<Cow<'q, str>>,
    service_id: Option<Cow<'q, str>>,
    plan_id: Option<Cow<'q, str>>,
    operation: Option<Cow<'q, str>>,
}

impl<'q> Query<'q> {
    /// Reads a query; notes what is sent twice or badly encoded.
    pub(super) fn read(query: Option<&'q str>, faults: &Faults) -> Self {
        let mut read = Self::default();
        let Some(query) = query else { return read };
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Ok(name) = decode(name, true) else { continue };
            let (member, name) = match &*name {
                "accepts_incomplete" => (&mut read.accepts_incomplete, "accepts_incomplete"),
                "service_id" => (&mut read.service_id, "service_id"),
                "plan_id" => (&mut read.plan_id, "plan_id"),
                "operation" => (&mut read.operation, "operation"),
                _ => continue,
            };
            if member.is_some() {
                faults.add(name, "must not be in the query more than once");
            }
            match decode(value, true) {
                Ok(value) => *member = Some(value),
                Err(rule) => {
                    faults.add(name, rule);
                    // Not empty, so that it is not said to be missing as well.
                    *member = Some(Cow::Borrowed("%"));
                }
            }
        }
        read
    }

    /// Whether the platform is ready to poll; absent is no.
    pub(super) fn accepts_incomplete(&self, faults: &Faults) -> bool {
        match self.accepts_incomplete.as_deref() {
            Some("true") => true,
            Some("false") | None => false,
            Some(_) => {
                faults.add("accepts_incomplete", "must be true or false");
                false
            }
        }
    }

    /// The ids that a `DELETE` needs. `with_body` says that the request has a body, where some
    /// platforms once put them.
    pub(super) fn ids<S, P>(&self, with_body: bool, faults: &Faults) -> Option<(S, P)>
    where
        S: TryFrom<String, Error = IdError>,
        P: TryFrom<String, Error = IdError>,
    {
        let service = required(self.service_id.as_deref(), "service_id", with_body, faults);
        let plan = required(self.plan_id.as_deref(), "plan_id", with_body, faults);
        Some((service?, plan?))
    }

    /// The service, if the query names one.
    pub(super) fn service_id(&self) -> Option<&str> {
        self.service_id.as_deref()
    }

    /// The hints of a `last_operation` route; an empty one hints at nothing.
    pub(super) fn hints(self, faults: &Faults) -> LastOperationQuery {
        let hint = |hint: Option<Cow<'_, str>>, name: &str, rule: &str, fits: fn(&str) -> bool| {
            let hint = hint.filter(|hint| !hint.is_empty())?;
            if !fits(&hint) {
                faults.add(name, rule);
            }
            Some(hint.into_owned())
        };
        let id = |text: &str| crate::model::check_id(text).is_ok();
        let rule = format!("must have at most {MAX_ID_BYTES} bytes and no control characters");
        let operation = |text: &str| {
            text.chars().count() <= MAX_OPERATION_CHARS && !text.chars().any(char::is_control)
        };
        LastOperationQuery {
            service_id: hint(self.service_id, "service_id", &rule, id),
            plan_id: hint(self.plan_id, "plan_id", &rule, id),
            operation: hint(
                self.operation,
                "operation",
                "must have at most 10,000 characters and no control characters",
                operation,
            ),
        }
    }
}

fn required<T: TryFrom<String, Error = IdError>>(
    id: Option<&str>,
    name: &str,
    with_body: bool,
    faults: &Faults,
) -> Option<T> {
    let Some(id) = id else {
        faults.add(
            name,
            if with_body {
                "must be in the query, and is missing; the body of a DELETE is not read"
            } else {
                "must be in the query, and is missing"
            },
        );
        return None;
    };
    T::try_from(id.to_owned()).map_err(|error| faults.add(name, error.to_string())).ok()
}
