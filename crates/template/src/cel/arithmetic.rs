//! Arithmetic of CEL.

use super::eval::{Outcome, mismatch, not_yet};
use super::parse::Binary;
use super::value::Data;

pub(super) fn arithmetic<'a>(of: Binary, left: &Data<'a>, right: &Data<'a>) -> Outcome<Data<'a>> {
    let symbol = match of {
        Binary::Add => "+",
        Binary::Subtract => "-",
        Binary::Multiply => "*",
        Binary::Divide => "/",
        _ => "%",
    };
    let result = match (left, right) {
        (Data::Int(left), Data::Int(right)) => match of {
            Binary::Add => left.checked_add(*right),
            Binary::Subtract => left.checked_sub(*right),
            Binary::Multiply => left.checked_mul(*right),
            Binary::Divide => left.checked_div(*right),
            _ => left.checked_rem(*right),
        }
        .map(Data::Int),
        (Data::Uint(left), Data::Uint(right)) => match of {
            Binary::Add => left.checked_add(*right),
            Binary::Subtract => left.checked_sub(*right),
            Binary::Multiply => left.checked_mul(*right),
            Binary::Divide => left.checked_div(*right),
            _ => left.checked_rem(*right),
        }
        .map(Data::Uint),
        (Data::Double(left), Data::Double(right)) if of != Binary::Remainder => {
            Some(Data::Double(match of {
                Binary::Add => left + right,
                Binary::Subtract => left - right,
                Binary::Multiply => left * right,
                _ => left / right,
            }))
        }
        // A number of an object may be an integer or a fraction by chance: 0.5, and then 1.
        (Data::Double(_), Data::Int(_) | Data::Uint(_))
        | (Data::Int(_) | Data::Uint(_), Data::Double(_))
            if of != Binary::Remainder =>
        {
            return arithmetic(of, &double(left), &double(right));
        }
        _ => return Err(mismatch(symbol, &[left, right])),
    };
    result.ok_or_else(|| not_yet(format!("`{symbol}` gives no number that can be held")))
}

/// Converts a number, or the text of one, to an integer.
pub(super) fn convert<'a>(
    name: &str,
    of: &Data<'a>,
    fits: impl Fn(i128) -> Option<Data<'a>>,
) -> Outcome<Data<'a>> {
    let whole = match (of, of.as_text()) {
        (_, Some(text)) => text.parse::<i128>().ok(),
        // A number that is too large ends up beyond what fits.
        (Data::Double(double), _) if double.is_finite() => Some(double.trunc() as i128),
        (Data::Double(_), _) => None,
        _ => Some(of.whole().ok_or_else(|| mismatch(name, &[of]))?),
    };
    let none = || not_yet(format!("{name}() meets what is no such number"));
    whole.and_then(fits).ok_or_else(none)
}

fn double<'a>(of: &Data<'a>) -> Data<'a> {
    match of {
        Data::Int(whole) => Data::Double(*whole as f64),
        Data::Uint(whole) => Data::Double(*whole as f64),
        other => other.clone(),
    }
}
