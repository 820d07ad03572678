//! A request and its answer, as the checks see them.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;

use super::report::Verdict;
use crate::broker::Action;
use crate::client::path;

/// The routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Catalog,
    Provision,
    Update,
    Deprovision,
    Instance,
    InstanceLast,
    Bind,
    Unbind,
    Binding,
    BindingLast,
}

impl Kind {
    pub(super) const ALL: [Self; 10] = [
        Self::Catalog,
        Self::Provision,
        Self::Update,
        Self::Deprovision,
        Self::Instance,
        Self::InstanceLast,
        Self::Bind,
        Self::Unbind,
        Self::Binding,
        Self::BindingLast,
    ];

    pub(super) fn method(self) -> Method {
        match self {
            Self::Provision | Self::Bind => Method::PUT,
            Self::Update => Method::PATCH,
            Self::Deprovision | Self::Unbind => Method::DELETE,
            _ => Method::GET,
        }
    }

    /// The name of the route for people.
    fn name(self) -> &'static str {
        match self {
            Self::Catalog => "GET catalog",
            Self::Provision => "PUT instance",
            Self::Update => "PATCH instance",
            Self::Deprovision => "DELETE instance",
            Self::Instance => "GET instance",
            Self::InstanceLast => "GET instance's last_operation",
            Self::Bind => "PUT binding",
            Self::Unbind => "DELETE binding",
            Self::Binding => "GET binding",
            Self::BindingLast => "GET binding's last_operation",
        }
    }

    /// The action that a request asks for that changes something.
    pub(super) fn action(self) -> Action {
        match self {
            Self::Update => Action::Update,
            Self::Deprovision => Action::Deprovision,
            Self::Bind => Action::Bind,
            Self::Unbind => Action::Unbind,
            _ => Action::Provision,
        }
    }

    pub(super) fn last_operation(self) -> Self {
        match self {
            Self::Bind | Self::Unbind | Self::Binding | Self::BindingLast => Self::BindingLast,
            _ => Self::InstanceLast,
        }
    }
}

/// A request, to be changed at will.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    pub(super) kind: Kind,
    pub(super) instance: String,
    pub(super) binding: String,
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) headers: HeaderMap,
    pub(super) body: Option<Value>,
    /// The bytes to send instead of the body.
    pub(super) raw: Option<&'static [u8]>,
}

impl Ask {
    pub(super) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    pub(super) fn without_header(mut self, name: HeaderName) -> Self {
        self.headers.remove(name);
        self
    }

    /// Sets a member of the body.
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        if let Some(body) = self.body.as_mut().and_then(Value::as_object_mut) {
            body.insert(name.to_owned(), value);
        }
        self
    }

    /// Leaves a member out: of the body or, without a body, of the query.
    pub(super) fn without(mut self, name: &str) -> Self {
        match self.body.as_mut().and_then(Value::as_object_mut) {
            Some(body) => drop(body.remove(name)),
            None => self.query.retain(|(known, _)| *known != name),
        }
        self
    }

    /// Sends the body as these bytes.
    pub(super) fn raw(mut self, bytes: &'static [u8]) -> Self {
        self.raw = Some(bytes);
        self
    }

    /// Leaves `accepts_incomplete` out.
    pub(super) fn at_once(mut self) -> Self {
        self.query.retain(|(name, _)| *name != "accepts_incomplete");
        self
    }

    pub(super) fn path(&self) -> String {
        let pairs: Vec<_> =
            self.query.iter().map(|(name, value)| (*name, Some(value.as_str()))).collect();
        let query = path::query(&pairs);
        match self.kind {
            Kind::Catalog => format!("/v2/catalog{query}"),
            Kind::Provision | Kind::Update | Kind::Deprovision | Kind::Instance => {
                path::instance(&self.instance, &query)
            }
            Kind::InstanceLast => {
                path::instance(&self.instance, &format!("/last_operation{query}"))
            }
            Kind::Bind | Kind::Unbind | Kind::Binding => {
                path::binding(&self.instance, &self.binding, &query)
            }
            Kind::BindingLast => {
                path::binding(&self.instance, &self.binding, &format!("/last_operation{query}"))
            }
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) ask: Ask,
    /// The status; 0 if there was no answer.
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// The body; null if it is no JSON.
    pub(super) json: Value,
    pub(super) elapsed: Duration,
    /// The reason why there was no answer.
    pub(super) trouble: String,
}

impl Answer {
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub(super) fn is_refusal(&self) -> bool {
        self.status >= 400
    }

    pub(super) fn word(&self) -> &str {
        self.json["error"].as_str().unwrap_or_default()
    }

    /// Passes if the status is one of these.
    pub(super) fn expect(&self, statuses: &[u16]) -> Verdict {
        Verdict::of(statuses.contains(&self.status), || {
            let expected: Vec<_> = statuses.iter().map(u16::to_string).collect();
            format!("{}; expected {}", self.seen(), expected.join(" or "))
        })
    }

    /// Passes if it is a 422 with this word.
    pub(super) fn expect_word(&self, word: &str) -> Verdict {
        Verdict::of(self.status == 422 && self.word() == word, || {
            format!("{}; expected 422 {word}", self.seen())
        })
    }

    /// A failure with what was seen, and why it is wrong.
    pub(super) fn fault(&self, why: &str) -> Verdict {
        Verdict::Fail(format!("{}: {why}", self.seen()))
    }

    pub(super) fn seen(&self) -> String {
        let name = self.ask.kind.name();
        if self.status == 0 {
            return format!("{name} was not answered ({})", self.trouble);
        }
        let text = |member: &str| {
            let text = self.json[member].as_str().filter(|_| self.is_refusal());
            text.map(|text| format!(" {}", text.chars().take(200).collect::<String>()))
        };
        let (word, why) = (text("error"), text("description"));
        format!(
            "{name} was answered {}{}{}",
            self.status,
            word.unwrap_or_default(),
            why.unwrap_or_default()
        )
    }
}
