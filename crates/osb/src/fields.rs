//! Reads JSON member by member, so that a sender learns every fault at once, each by its path.
//!
//! Deserialising into a type stops at the first fault and knows no path. Catalogs and request bodies
//! are read through [`Fields`] instead: each method takes one member, and notes a fault where the
//! member is not what it should be. Paths are linked on the stack and only spelt out for a fault, so
//! reading what is right costs nothing for them. Values are never repeated, for they may be secret.

use std::cell::RefCell;
use std::fmt;

use serde_json::Value;

use crate::model::{IdError, Object};

/// One fault of a catalog or a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The path of the member: `services[0].plans[1].name`.
    pub path: String,
    /// The message: what is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// The path of a value in its document.
#[derive(Clone, Copy)]
pub(crate) enum Path<'p> {
    /// The whole document.
    Root,
    /// A member of an object.
    Member(&'p Path<'p>, &'p str),
    /// An element of an array.
    Index(&'p Path<'p>, usize),
}

impl<'p> Path<'p> {
    /// The path of a member.
    pub(crate) fn member(&'p self, name: &'p str) -> Self {
        Path::Member(self, name)
    }

    /// The path of an element.
    pub(crate) fn index(&'p self, index: usize) -> Self {
        Path::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Member(Path::Root, name) => f.write_str(name),
            Path::Member(parent, name) => write!(f, "{parent}.{name}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The faults found so far.
#[derive(Default)]
pub(crate) struct Faults(RefCell<Vec<Fault>>);

impl Faults {
    /// Notes a fault.
    pub(crate) fn add(&self, path: impl fmt::Display, message: impl Into<String>) {
        self.0.borrow_mut().push(Fault { path: path.to_string(), message: message.into() });
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Every fault, in the order found.
    pub(crate) fn into_vec(self) -> Vec<Fault> {
        self.0.into_inner()
    }
}

/// The members of one object. What is taken is removed; `null` counts as absent.
pub(crate) struct Fields<'p> {
    object: Object,
    path: &'p Path<'p>,
    faults: &'p Faults,
}

impl<'p> Fields<'p> {
    /// Opens a value, which must be an object.
    pub(crate) fn open(value: Value, path: &'p Path<'p>, faults: &'p Faults) -> Option<Self> {
        if let Value::Object(object) = value {
            return Some(Self { object, path, faults });
        }
        faults.add(path, "must be an object");
        None
    }

    /// The members that have not been taken.
    pub(crate) fn rest(self) -> Object {
        self.object
    }

    /// The path of a member.
    pub(crate) fn path<'m>(&'m self, name: &'m str) -> Path<'m> {
        self.path.member(name)
    }

    /// A member as it is.
    pub(crate) fn take(&mut self, name: &str) -> Option<Value> {
        self.object.remove(name).filter(|value| !value.is_null())
    }

    /// A required member that is a non-empty string.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            found => self.wrong(name, found.is_none(), "must be a non-empty string"),
        }
    }

    /// An optional member that is a string, maybe empty.
    pub(crate) fn optional_string(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text),
            _ => self.wrong(name, false, "must be a string"),
        }
    }

    /// A required id.
    pub(crate) fn id<T: TryFrom<String, Error = IdError>>(&mut self, name: &str) -> Option<T> {
        let text = self.text(name)?;
        self.checked_id(name, text)
    }

    /// An optional id.
    #[cfg(feature = "server")]
    pub(crate) fn optional_id<T>(&mut self, name: &str) -> Option<T>
    where
        T: TryFrom<String, Error = IdError>,
    {
        match self.take(name)? {
            Value::String(text) if !text.is_empty() => self.checked_id(name, text),
            _ => self.wrong(name, false, "must be a non-empty string"),
        }
    }

    /// A required name of something of the platform's, by the same rules as an id.
    #[cfg(feature = "server")]
    pub(crate) fn guid(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        self.checked_guid(name, text)
    }

    /// An optional name of something of the platform's, by the same rules as an id.
    #[cfg(feature = "server")]
    pub(crate) fn optional_guid(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => self.checked_guid(name, text),
            _ => self.wrong(name, false, "must be a non-empty string"),
        }
    }

    /// Does as [`Self::optional_guid`] for a member that some platforms send empty for none.
    #[cfg(feature = "server")]
    pub(crate) fn guid_if_any(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => self.checked_guid(name, text),
            _ => self.wrong(name, false, "must be a string"),
        }
    }

    /// A required boolean.
    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        match self.take(name) {
            Some(Value::Bool(value)) => Some(value),
            found => self.wrong(name, found.is_none(), "must be true or false"),
        }
    }

    /// An optional boolean.
    pub(crate) fn optional_boolean(&mut self, name: &str) -> Option<bool> {
        match self.take(name)? {
            Value::Bool(value) => Some(value),
            _ => self.wrong(name, false, "must be true or false"),
        }
    }

    /// An optional whole number from 0.
    pub(crate) fn optional_number(&mut self, name: &str) -> Option<u64> {
        let value = self.take(name)?;
        let number = value.as_u64();
        number.or_else(|| self.wrong(name, false, "must be a whole number, not negative"))
    }

    /// An optional object.
    pub(crate) fn optional_object(&mut self, name: &str) -> Option<Object> {
        match self.take(name)? {
            Value::Object(object) => Some(object),
            _ => self.wrong(name, false, "must be an object"),
        }
    }

    /// A required array, each element read by `read`.
    pub(crate) fn list<T>(
        &mut self,
        name: &str,
        read: impl FnMut(Value, &Path<'_>, &Faults) -> Option<T>,
    ) -> Option<Vec<T>> {
        match self.take(name) {
            Some(Value::Array(elements)) => Some(self.elements(name, elements, read)),
            found => self.wrong(name, found.is_none(), "must be an array"),
        }
    }

    /// An optional array, each element read by `read`; empty when absent.
    pub(crate) fn optional_list<T>(
        &mut self,
        name: &str,
        read: impl FnMut(Value, &Path<'_>, &Faults) -> Option<T>,
    ) -> Vec<T> {
        match self.take(name) {
            None => Vec::new(),
            Some(Value::Array(elements)) => self.elements(name, elements, read),
            Some(_) => self.wrong(name, false, "must be an array").unwrap_or_default(),
        }
    }

    /// An optional object, read by `read`.
    pub(crate) fn nested<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(Fields<'_>) -> Option<T>,
    ) -> Option<T> {
        let value = self.take(name)?;
        let path = self.path.member(name);
        read(Fields::open(value, &path, self.faults)?)
    }

    fn elements<T>(
        &self,
        name: &str,
        elements: Vec<Value>,
        mut read: impl FnMut(Value, &Path<'_>, &Faults) -> Option<T>,
    ) -> Vec<T> {
        let path = self.path.member(name);
        let read = |(index, value)| read(value, &path.index(index), self.faults);
        elements.into_iter().enumerate().filter_map(read).collect()
    }

    fn checked_id<T: TryFrom<String, Error = IdError>>(&self, name: &str, id: String) -> Option<T> {
        T::try_from(id).map_err(|error| self.faults.add(self.path(name), error.to_string())).ok()
    }

    #[cfg(feature = "server")]
    fn checked_guid(&self, name: &str, guid: String) -> Option<String> {
        match crate::model::check_id(&guid) {
            Ok(()) => Some(guid),
            Err(error) => {
                self.faults.add(self.path(name), error.to_string());
                None
            }
        }
    }

    fn wrong<T>(&self, name: &str, missing: bool, rule: &str) -> Option<T> {
        let message = if missing { format!("{rule}, and is missing") } else { rule.to_owned() };
        self.faults.add(self.path(name), message);
        None
    }
}

/// Reads a non-empty string out of an array.
pub(crate) fn string(value: Value, path: &Path<'_>, faults: &Faults) -> Option<String> {
    if let Value::String(text) = value {
        return Some(text);
    }
    faults.add(path, "must be a string");
    None
}
