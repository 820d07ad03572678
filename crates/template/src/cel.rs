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
    let expression = parsed(source, &["self"], false).map_err(Fault::Wrong)?;
    eval::truth(&expression, object, STEPS)
}

/// Functions beyond those of the language, by their names: what they make of what they are asked of and with; `None`:
/// there is no such function.
type Functions<'f> = &'f dyn Fn(&str, &[Value]) -> Option<Value>;

/// What an expression gives over values by their names. For trying expressions that others evaluate, as the API server
/// those of its policies. Nothing checks types beforehand.
///
/// # Errors
/// What is wrong with the expression, or missing in the values.
#[cfg(any(test, feature = "testing"))]
pub fn evaluate(
    source: &str,
    values: &[(&str, &Value)],
    functions: Functions<'_>,
) -> Result<Value, String> {
    let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
    let expression = parsed(source, &names, true)?;
    let values = values.iter().map(|(_, value)| *value);
    eval::value(&expression, values, functions, STEPS).map_err(|fault| match fault {
        Fault::NotYet(why) | Fault::Wrong(why) => why,
    })
}

fn parsed(source: &str, names: &[&str], is_open: bool) -> Result<parse::Node, String> {
    if source.len() > LENGTH {
        return Err(format!("it is longer than {LENGTH} bytes"));
    }
    parse::parse(&lex::tokens(source)?, names, is_open)
}
