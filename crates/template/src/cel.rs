//! Whether an expression in CEL is true of an object.
//!
//! The expressions come from the templates of users, and the process that asks serves everybody: none may crash it
//! or keep it busy. The crate `cel` (0.15) bounds how deep brackets nest, but not how long a row of operators is, how
//! long it runs or how much it makes: three loops in each other over a list of 200 take eight seconds. So this is the
//! part of the language that a question about an object needs, every step counted, over the object as it is.
//!
//! ```text
//! source ──lex──▶ tokens ──parse──▶ Node ──eval, with the object as `self`──▶ bool
//! ```
//!
//! There are: null, booleans, int, uint, double, string, lists and maps, all operators with `? :` and `in`, fields and
//! indexes, the macros `has`, `all`, `exists`, `exists_one`, `map` and `filter`, and the functions `size`, `contains`,
//! `startsWith`, `endsWith`, `int`, `uint`, `double` and `string`. There are not: regular expressions, bytes, times,
//! types as values, protocol buffers. What is not there is said when the expression is parsed.

mod arithmetic;
mod eval;
mod lex;
mod parse;
#[cfg(test)]
mod tests;
mod value;

use serde_json::Value;

/// How long an expression may be, in bytes.
const LENGTH: usize = 4096;
/// How deep it may nest, each operator being one level. It takes less than a megabyte of stack, unoptimised.
const DEPTH: u16 = 32;
/// How many steps it may take: one for each operand, and one for each element or 64 bytes of text that an operator
/// looks at or makes. All of them take about a tenth of a second and some 30 MB at most.
const STEPS: u64 = 500_000;

/// Why an expression says neither yes nor no. It has nothing of what the object holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The object lacks what is asked for; it may come.
    NotYet(String),
    /// The expression is not right, whatever comes.
    Wrong(String),
}

/// Whether an expression is true of `self`.
pub(crate) fn holds(source: &str, object: &Value) -> Result<bool, Fault> {
    if source.len() > LENGTH {
        return Err(Fault::Wrong(format!("it is longer than {LENGTH} bytes")));
    }
    let tokens = lex::tokens(source).map_err(Fault::Wrong)?;
    let expression = parse::parse(&tokens).map_err(Fault::Wrong)?;
    eval::truth(&expression, object, STEPS)
}
