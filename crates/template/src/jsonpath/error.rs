//! Errors of JSONPath templates, and of evaluating them. Messages that client-go has, too, are its own, to the letter:
//! scripts read them.

use super::print::MAX_LEVELS;
use super::{MAX_BYTES, MAX_RANGES, MAX_STEPS};

/// Why a text is no valid template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A line, or everything, ends before `}`.
    #[error("unclosed action")]
    Unclosed,
    /// A character that begins nothing, as client-go shows it.
    #[error("unrecognized character in action: {0}")]
    Character(String),
    /// `..` after `..`.
    #[error("invalid multiple recursive descent")]
    Descent,
    /// A number that cannot be parsed, as it is written.
    #[error("cannot parse number {0}")]
    Number(String),
    /// No `]` in the line.
    #[error("unterminated array")]
    Array,
    /// The content of brackets is neither a key nor a slice.
    #[error("invalid array index {0}")]
    Index(String),
    /// A part of a slice is no 64-bit number.
    #[error("array index {0} is not a number")]
    IndexNumber(String),
    /// No `)` in the line, outside of quotes.
    #[error("unterminated filter")]
    Filter,
    /// No `]` right after the `)` of a filter.
    #[error("unclosed array expect ]")]
    FilterEnd,
    /// No closing quote in the line.
    #[error("unterminated quoted string")]
    Quote,
    /// A bad escape, as it is written.
    #[error("unquote string {0} error invalid syntax")]
    Escape(String),
    /// Escapes give bytes that are no text. client-go prints them.
    #[error("unquote string {0} error invalid UTF-8")]
    NotText(String),
}

/// Why a template has no result for a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// None of the values has this field.
    #[error("{0} is not found")]
    NotFound(String),
    /// An index or a slice of something that is no list; with Go's type of it.
    #[error("{0} is not array or slice")]
    NotAList(&'static str),
    /// A filter of something that is no list. The message has the beginning of the value: it is as secret as the
    /// document.
    #[error("{0} is not array or slice and cannot be filtered")]
    NotFilterable(String),
    /// There is no such element.
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds {
        /// The index, counted from the start of the list; negative if before it.
        index: i64,
        /// The length of the list.
        length: i64,
    },
    /// A slice backwards.
    #[error("starting index {start} is greater than ending index {end}")]
    Backwards {
        /// The start, counted from the start of the list.
        start: i64,
        /// The end, counted from the start of the list.
        end: i64,
    },
    /// A slice with a step that is not positive.
    #[error("step must be > 0")]
    Step,
    /// A side of a filter is several values.
    #[error("can only compare one element at a time")]
    Several,
    /// An unknown operator of a filter, such as `<>`.
    #[error("unrecognized filter operator {0}")]
    Operator(String),
    /// A side of a filter is a list, an object or null, or booleans are to be ordered.
    #[error("invalid type for comparison")]
    Incomparable,
    /// The sides of a filter are of different types; an integer and a fraction are too.
    #[error("incompatible types for comparison")]
    Incompatible,
    /// A word that is neither `range`, `end`, `true` nor `false`.
    #[error("unrecognized identifier {0}")]
    Identifier(String),
    /// An `end` too many.
    #[error("not in range, nothing to end")]
    NotInRange,
    /// A range over the item of an empty range, or of one over null. client-go panics.
    #[error("<no value> cannot be ranged over")]
    NoValue,
    /// More than [`MAX_STEPS`]. client-go has no limit.
    #[error("the template takes more than {MAX_STEPS} steps: ranges or .. go over too much")]
    TooManySteps,
    /// More than [`MAX_BYTES`]. client-go has no limit.
    #[error("the output has more than {MAX_BYTES} bytes")]
    TooLong,
    /// More than [`MAX_RANGES`] within each other. client-go has no limit.
    #[error("more than {MAX_RANGES} ranges are in each other")]
    TooManyRanges,
    /// A value to be printed has too many levels. client-go has no limit.
    #[error("a value has more than {MAX_LEVELS} levels")]
    TooDeep,
}

impl FindError {
    /// Whether the error also ends a filter that takes other errors for an answer.
    pub(crate) fn is_limit(&self) -> bool {
        matches!(self, Self::TooManySteps)
    }
}
