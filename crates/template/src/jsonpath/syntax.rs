//! The syntax tree of a template.

/// A step of a path, which maps values to values.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// An action, from `{` to `}`.
    Action(Vec<Node>),
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Word(Word),
    Field(String),
    /// All values of an object or of a list, or the bytes of a string.
    Wildcard,
    /// All nested values that may have others within, from the outside in.
    Descent,
    Slice(Slice),
    /// A union: the results of all paths, one after the other.
    Union(Vec<Vec<Node>>),
    Filter {
        left: Vec<Node>,
        operator: Operator,
        right: Vec<Node>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    Range,
    End,
    /// An unknown one, which is an error only when it is evaluated.
    Other(String),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operator {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// An unknown one, which is an error only when it is evaluated.
    Other(String),
}

/// A slice of a list; negative numbers count from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) start: i64,
    pub(super) end: End,
    pub(super) step: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Up to the end of the list.
    Open,
    Before(i64),
    /// A single element.
    Single,
}

impl Slice {
    pub(super) const ALL: Self = Self { start: 0, end: End::Open, step: None };
}
