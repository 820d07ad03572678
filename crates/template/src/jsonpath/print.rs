//! Prints values as text.

use serde_json::{Map, Value};

use super::error::FindError;
use super::item::{Item, sorted};
use super::{MAX_BYTES, go};

/// How many levels of a document are printed; a parsed one has up to 128.
pub(super) const MAX_LEVELS: usize = 256;

/// How many bytes of a value are in a message.
const MAX_EXCERPT: usize = 4096;

/// Output text up to a limit.
pub(super) struct Output {
    text: String,
    limit: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self { text: String::new(), limit: MAX_BYTES }
    }
}

/// A value as Go's `%v` writes it, or its beginning.
pub(super) fn excerpt(item: Item<'_, '_>) -> String {
    let mut output = Output { text: String::new(), limit: MAX_EXCERPT };
    let written = match item {
        Item::Node(value) => output.value(value, 0),
        Item::Nothing => output.push("<invalid reflect.Value>"),
        other => output.item(other),
    };
    if written.is_err() {
        output.text.push_str("...");
    }
    output.text
}

impl Output {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    /// # Errors
    /// If the output becomes too long: its beginning has been written then.
    pub(super) fn push(&mut self, text: &str) -> Result<(), FindError> {
        let left = self.limit - self.text.len();
        if text.len() <= left {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.push_str(&text[..text.floor_char_boundary(left)]);
        Err(FindError::TooLong)
    }

    pub(super) fn item(&mut self, item: Item<'_, '_>) -> Result<(), FindError> {
        match item {
            Item::Node(value @ (Value::Array(_) | Value::Object(_))) => self.json(value, 0),
            Item::Node(scalar) => self.value(scalar, 0),
            Item::Text(text) => self.push(text),
            Item::Integer(number) => self.push(&number.to_string()),
            Item::Float(number) => self.push(&go::float(number)),
            Item::Boolean(boolean) => self.push(if boolean { "true" } else { "false" }),
            Item::Byte(byte) => self.push(&byte.to_string()),
            Item::Nothing => self.push("<no value>"),
        }
    }

    fn value(&mut self, value: &Value, level: usize) -> Result<(), FindError> {
        if level > MAX_LEVELS {
            return Err(FindError::TooDeep);
        }
        match value {
            Value::Null => self.push("<nil>"),
            Value::Bool(boolean) => self.push(if *boolean { "true" } else { "false" }),
            Value::Number(number) => self.push(&go::number(number)),
            Value::String(text) => self.push(text),
            Value::Array(list) => {
                self.push("[")?;
                for (position, value) in list.iter().enumerate() {
                    self.push(if position > 0 { " " } else { "" })?;
                    self.value(value, level + 1)?;
                }
                self.push("]")
            }
            Value::Object(object) => {
                self.push("map[")?;
                for (position, (key, value)) in sorted(object).into_iter().enumerate() {
                    self.push(if position > 0 { " " } else { "" })?;
                    self.push(key)?;
                    self.push(":")?;
                    self.value(value, level + 1)?;
                }
                self.push("]")
            }
        }
    }

    fn json(&mut self, value: &Value, level: usize) -> Result<(), FindError> {
        if level > MAX_LEVELS {
            return Err(FindError::TooDeep);
        }
        match value {
            Value::Null => self.push("null"),
            Value::Bool(boolean) => self.push(if *boolean { "true" } else { "false" }),
            Value::Number(number) => self.push(&go::json_number(number)),
            Value::String(text) => self.json_string(text),
            Value::Array(list) => {
                self.push("[")?;
                for (position, value) in list.iter().enumerate() {
                    self.push(if position > 0 { "," } else { "" })?;
                    self.json(value, level + 1)?;
                }
                self.push("]")
            }
            Value::Object(object) => self.json_object(object, level),
        }
    }

    fn json_object(&mut self, object: &Map<String, Value>, level: usize) -> Result<(), FindError> {
        self.push("{")?;
        for (position, (key, value)) in sorted(object).into_iter().enumerate() {
            self.push(if position > 0 { "," } else { "" })?;
            self.json_string(key)?;
            self.push(":")?;
            self.json(value, level + 1)?;
        }
        self.push("}")
    }

    /// Prints a JSON string as Go does: safe within HTML and JavaScript.
    fn json_string(&mut self, text: &str) -> Result<(), FindError> {
        self.push("\"")?;
        let mut plain = 0;
        for (at, character) in text.char_indices() {
            let escape = match character {
                '"' => "\\\"".to_owned(),
                '\\' => "\\\\".to_owned(),
                '\n' => "\\n".to_owned(),
                '\r' => "\\r".to_owned(),
                '\t' => "\\t".to_owned(),
                '\u{8}' => "\\b".to_owned(),
                '\u{c}' => "\\f".to_owned(),
                '\0'..'\u{20}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                    format!("\\u{:04x}", u32::from(character))
                }
                _ => continue,
            };
            self.push(&text[plain..at])?;
            self.push(&escape)?;
            plain = at + character.len_utf8();
        }
        self.push(&text[plain..])?;
        self.push("\"")
    }
}
