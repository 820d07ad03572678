//! The values of CEL: parts of the object where they are, and values that the expression makes.

use std::cmp::Ordering;
use std::rc::Rc;

use serde_json::{Map, Number, Value};

#[derive(Debug, Clone)]
pub(super) enum Data<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    /// A text of the object.
    Text(&'a str),
    /// A list of the object.
    Array(&'a [Value]),
    /// A map of the object.
    Object(&'a Map<String, Value>),
    /// A text of the expression.
    OwnText(Rc<str>),
    /// A list of the expression.
    OwnList(Rc<[Data<'a>]>),
    /// A map of the expression: keys and values.
    OwnMap(Rc<[(Data<'a>, Data<'a>)]>),
}

impl<'a> Data<'a> {
    pub(super) fn of(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(truth) => Self::Bool(*truth),
            Value::String(text) => Self::Text(text),
            Value::Array(list) => Self::Array(list),
            Value::Object(map) => Self::Object(map),
            Value::Number(number) => Self::number(number),
        }
    }

    fn number(number: &Number) -> Self {
        match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Self::Int(int),
            (None, Some(uint)) => Self::Uint(uint),
            (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
        }
    }

    /// A value that owns its data.
    pub(super) fn owned(value: Value) -> Self {
        match value {
            Value::String(text) => Self::text(text),
            Value::Array(list) => Self::OwnList(list.into_iter().map(Self::owned).collect()),
            Value::Object(map) => {
                let entries = map.into_iter();
                Self::OwnMap(
                    entries.map(|(key, value)| (Self::text(key), Self::owned(value))).collect(),
                )
            }
            Value::Number(number) => Self::number(&number),
            Value::Bool(truth) => Self::Bool(truth),
            Value::Null => Self::Null,
        }
    }

    /// The value as JSON, in which keys are texts.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(truth) => (*truth).into(),
            Self::Int(int) => (*int).into(),
            Self::Uint(uint) => (*uint).into(),
            Self::Double(double) => (*double).into(),
            Self::Text(text) => (*text).into(),
            Self::OwnText(text) => text.as_ref().into(),
            Self::Array(list) => list.to_vec().into(),
            Self::Object(map) => (*map).clone().into(),
            Self::OwnList(list) => list.iter().map(Self::value).collect(),
            Self::OwnMap(map) => {
                let key = |key: &Self| match key.value() {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                map.iter().map(|(each, value)| (key(each), value.value())).collect()
            }
        }
    }

    pub(super) fn text(text: String) -> Self {
        Self::OwnText(text.into())
    }

    /// The name of the type in CEL.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::Text(_) | Self::OwnText(_) => "string",
            Self::Array(_) | Self::OwnList(_) => "list",
            Self::Object(_) | Self::OwnMap(_) => "map",
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::OwnText(text) => Some(text),
            _ => None,
        }
    }

    /// The number of elements of a list, or of entries of a map.
    pub(super) fn count(&self) -> Option<usize> {
        match self {
            Self::Array(list) => Some(list.len()),
            Self::OwnList(list) => Some(list.len()),
            Self::Object(map) => Some(map.len()),
            Self::OwnMap(map) => Some(map.len()),
            _ => None,
        }
    }

    pub(super) fn is_list(&self) -> bool {
        matches!(self, Self::Array(_) | Self::OwnList(_))
    }

    pub(super) fn is_map(&self) -> bool {
        matches!(self, Self::Object(_) | Self::OwnMap(_))
    }

    /// The elements of a list, or the keys of a map.
    pub(super) fn elements(&self) -> Vec<Data<'a>> {
        match self {
            Self::Array(list) => list.iter().map(Data::of).collect(),
            Self::OwnList(list) => list.to_vec(),
            Self::Object(map) => map.keys().map(|key| Data::Text(key)).collect(),
            Self::OwnMap(map) => map.iter().map(|(key, _)| key.clone()).collect(),
            _ => Vec::new(),
        }
    }

    /// An element of a list.
    pub(super) fn element(&self, index: usize) -> Option<Data<'a>> {
        match self {
            Self::Array(list) => list.get(index).map(Data::of),
            Self::OwnList(list) => list.get(index).cloned(),
            _ => None,
        }
    }

    /// Compares two values; `Err` if their types have no order, `None` if one is not a number.
    pub(super) fn order(&self, other: &Self) -> Result<Option<Ordering>, ()> {
        if let (Some(left), Some(right)) = (self.as_text(), other.as_text()) {
            return Ok(Some(left.cmp(right)));
        }
        match (self, other) {
            (Self::Bool(left), Self::Bool(right)) => Ok(Some(left.cmp(right))),
            (Self::Double(left), Self::Double(right)) => Ok(left.partial_cmp(right)),
            (Self::Double(left), _) => {
                let right = other.whole().ok_or(())?;
                Ok(order(right, *left).map(Ordering::reverse))
            }
            (_, Self::Double(right)) => Ok(order(self.whole().ok_or(())?, *right)),
            _ => Ok(Some(self.whole().ok_or(())?.cmp(&other.whole().ok_or(())?))),
        }
    }

    pub(super) fn whole(&self) -> Option<i128> {
        match self {
            Self::Int(int) => Some((*int).into()),
            Self::Uint(uint) => Some((*uint).into()),
            _ => None,
        }
    }
}

/// Compares an integer with a double, exactly, though a double does not hold every integer.
fn order(whole: i128, double: f64) -> Option<Ordering> {
    match (whole as f64).partial_cmp(&double)? {
        Ordering::Equal => Some(whole.cmp(&(double as i128))),
        other => Some(other),
    }
}
