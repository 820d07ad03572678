//! kubectl's JSONPath templates: what `kubectl -o jsonpath` takes, and what scripts rely on that it prints.
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
//! here too (`$` within a range is the item, `['a.b']` is two fields, a filter `[?(@.list[9])]` that fails passes),
//! with its words for errors. What differs is said at the tests that compare the two (`tests/jsonpath.rs`).
//!
//! Every input ends, and soon: see [`MAX_STEPS`], [`MAX_BYTES`] and [`MAX_RANGES`].

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

/// How many steps a template may take: each value that is looked at, and each that is found, is one, and each run of
/// an action within a range. What is found is held meanwhile, in about 24 bytes each.
pub const MAX_STEPS: usize = 1_000_000;

/// How many bytes are printed, and how many of text that the template itself makes [`JsonPath::find`] gives.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// How many ranges may be in each other.
pub const MAX_RANGES: usize = 64;

/// A template, ready to be applied to any number of documents.
#[derive(Debug, Clone)]
pub struct JsonPath {
    nodes: Vec<Node>,
    allow_missing_keys: bool,
}

/// A value that was found: borrowed if it is a node of the document, at its address there, owned if the template made
/// it (text, a number, a byte of a string).
pub type Found<'a> = Cow<'a, Value>;

impl JsonPath {
    /// Reads a template.
    ///
    /// # Errors
    /// What is wrong, in client-go's words, which name no place.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Ok(Self { nodes: parse::parse(text)?, allow_missing_keys: false })
    }

    /// Whether a field that is nowhere is nothing, as for `kubectl get`, or an error, as it is unless this is called.
    #[must_use]
    pub fn allow_missing_keys(mut self, allow: bool) -> Self {
        self.allow_missing_keys = allow;
        self
    }

    /// What is found, in the order of the template: one list for each action and each stretch of text, within a range
    /// for each item again. Values of an object come in the order of their keys.
    ///
    /// # Errors
    /// [`FindError`]; of what was found before it nothing is given.
    pub fn find<'a>(&self, data: &'a Value) -> Result<Vec<Vec<Found<'a>>>, FindError> {
        let mut steps = MAX_STEPS;
        self.find_within(data, &mut steps)
    }

    /// As [`Self::find`], with what is left of steps that several have together.
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

    /// What kubectl prints: strings as they are, lists and objects as JSON in one line with sorted keys, `<nil>` for
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
