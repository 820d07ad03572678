//! kubectl's JSONPath templates: what `kubectl -o jsonpath` accepts, with the output that scripts rely on.
//!
//! ```text
//! names: {range .items[?(@.ready==true)]}{.metadata.name}{"\n"}{end}
//! │      │                                │              │     └ goes on with the next item
//! │      │                                │              └ text with escapes
//! │      │                                └ an action: a path, from what it is now, to any number of values
//! │      └ from here everything is done once for each value of the path
//! └ text as it is
//! ```
//!
//! The language is that of client-go's `util/jsonpath`: there is no specification but its code, so its oddities are
//! here, too (`$` within a range is the item, `['a.b']` is two fields, a filter `[?(@.list[9])]` that fails passes),
//! with its error messages. The differences are listed at the tests that compare the two (`tests/jsonpath.rs`).
//!
//! Evaluation always ends, and soon: see [`MAX_STEPS`], [`MAX_BYTES`] and [`MAX_RANGES`].

mod compare;
mod error;
mod go;
mod item;
mod parse;
mod plain;
mod print;
mod quote;
mod syntax;
#[cfg(test)]
mod tests;
mod walk;

use std::borrow::Cow;

use serde_json::Value;

pub use error::{FindError, ParseError};
pub(crate) use go::number;
pub(crate) use plain::Piece;
use print::Output;
use syntax::Node;
use walk::Walk;

/// How many steps a template may take: each value that is read, each that is found, and each run of an action within a
/// range is one. The found values are held meanwhile, in about 24 bytes each.
pub const MAX_STEPS: usize = 1_000_000;

/// How many bytes may be printed, and how many bytes of text made by the template itself [`JsonPath::find`] returns.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// How deep ranges may be nested.
pub const MAX_RANGES: usize = 64;

/// A parsed template, ready to be applied to any number of documents.
#[derive(Debug, Clone)]
pub struct JsonPath {
    nodes: Vec<Node>,
    allow_missing_keys: bool,
}

/// A value that was found: borrowed if it is a node of the document, at its address there, owned if the template made
/// it (text, a number, a byte of a string).
pub type Found<'a> = Cow<'a, Value>;

impl JsonPath {
    /// Parses a template.
    ///
    /// # Errors
    /// If the template is wrong, in client-go's words, which name no place.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Ok(Self { nodes: parse::parse(text)?, allow_missing_keys: false })
    }

    /// Sets whether a missing field gives nothing, as for `kubectl get`, or is an error, which is the default.
    #[must_use]
    pub fn allow_missing_keys(mut self, allow: bool) -> Self {
        self.allow_missing_keys = allow;
        self
    }

    /// The found values, in the order of the template: one list for each action and each stretch of text, within a
    /// range for each item again. Values of an object come in the order of their keys.
    ///
    /// # Errors
    /// [`FindError`]; the values found before it are not returned.
    pub fn find<'a>(&self, data: &'a Value) -> Result<Vec<Vec<Found<'a>>>, FindError> {
        let mut steps = MAX_STEPS;
        self.find_within(data, &mut steps)
    }

    /// Like [`Self::find`], with a number of steps shared by several calls.
    pub(crate) fn find_within<'a>(
        &self,
        data: &'a Value,
        steps: &mut usize,
    ) -> Result<Vec<Vec<Found<'a>>>, FindError> {
        let mut bytes = MAX_BYTES;
        let found = self.walk(data, steps)?;
        let lists = found.into_iter().map(|items| {
            items.into_iter().map(|item| item.into_found(&mut bytes)).collect::<Result<Vec<_>, _>>()
        });
        lists.collect()
    }

    /// The output of kubectl: strings as they are, lists and objects as JSON in one line with sorted keys, `<nil>` for
    /// null, and a space between values of one action.
    ///
    /// # Errors
    /// Those of [`Self::find`], and [`FindError::TooLong`].
    pub fn print(&self, data: &Value) -> Result<String, FindError> {
        let (mut output, mut steps) = (Output::default(), MAX_STEPS);
        for items in self.walk(data, &mut steps)? {
            for (position, item) in items.into_iter().enumerate() {
                if position > 0 {
                    output.push(" ")?;
                }
                output.item(item)?;
            }
        }
        Ok(output.into_text())
    }

    fn walk<'d>(
        &self,
        data: &'d Value,
        steps: &mut usize,
    ) -> Result<Vec<Vec<item::Item<'d, '_>>>, FindError> {
        let mut walk = Walk::new(&self.nodes, self.allow_missing_keys, *steps);
        let results = walk.results(data);
        *steps = walk.steps_left;
        results
    }
}
