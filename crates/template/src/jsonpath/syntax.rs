//! What a template consists of.

/// A step of a path: it makes values of values.
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
    /// Everything within that has something within, from the outside in.
    Descent,
    Slice(Slice),
    /// The results of all, one after the other.
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
    /// Is an error only when it is met.
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
    /// Is an error only when it is met.
    Other(String),
}

/// Elements of a list; what is negative counts from its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slice {
    pub(super) start: i64,
    pub(super) end: End,
    pub(super) step: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The end of the list.
    Open,
    Before(i64),
    /// One element.
    Single,
}

impl Slice {
    pub(super) const ALL: Self = Self { start: 0, end: End::Open, step: None };
}
