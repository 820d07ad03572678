//! Evaluates CEL expressions over an object: whether one is true.
//!
//! The expressions come from users' templates, and the process that evaluates them serves everybody: none may crash it
//! or keep it busy. The crate `cel` (0.15) bounds how deep brackets nest, but not how long a row of operators is, how
//! long evaluation takes or how much it allocates: three nested loops over a list of 200 take eight seconds. So this is
//! the part of the language that a question about an object needs, with every step counted, over the object as it is.
//!
//! ```text
//! source ──lex──▶ tokens ──parse──▶ Node ──eval, with the object as `self`──▶ bool
//! ```
//!
//! Supported: null, booleans, int, uint, double, string, lists and maps, all operators with `? :` and `in`, fields and
//! indexes, the macros `has`, `all`, `exists`, `exists_one`, `map` and `filter`, and the functions `size`, `contains`,
//! `startsWith`, `endsWith`, `int`, `uint`, `double` and `string`. Not supported: regular expressions, bytes, times,
//! types as values, protocol buffers. What is not supported is reported when the expression is parsed.

mod arithmetic;
mod eval;
mod lex;
mod parse;
#[cfg(test)]
mod tests;
mod value;

use serde_json::Value;

/// How many bytes an expression may have.
const LENGTH: usize = 4096;
/// How deep an expression may nest, each operator being one level. That takes less than a megabyte of stack,
/// unoptimised.
const DEPTH: u16 = 32;
/// How many steps an evaluation may take: one for each operand, and one for each element or 64 bytes of text that an
/// operator reads or makes. All of them take about a tenth of a second and some 30 MB at most.
const STEPS: u64 = 500_000;

/// Why an expression is neither true nor false. The text quotes nothing of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The object lacks a value that the expression needs; it may come.
    NotYet(String),
    /// The expression is wrong, whatever the object becomes.
    Wrong(String),
}

/// Whether an expression is true of `self`.
pub(crate) fn holds(source: &str, object: &Value) -> Result<bool, Fault> {
    let expression = parsed(source, &["self"], false).map_err(Fault::Wrong)?;
    eval::truth(&expression, object, STEPS)
}

/// Functions beyond those of the language, by name: the result for a receiver and arguments; `None` if there is no such
/// function.
type Functions<'f> = &'f dyn Fn(&str, &[Value]) -> Option<Value>;

/// Evaluates an expression over named values. For trying out expressions that others evaluate, such as the API server
/// those of its policies. Nothing checks types beforehand.
///
/// # Errors
/// If the expression is wrong, or a value is missing.
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
