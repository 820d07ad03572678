//! Numbers and characters in Go's notation.

use serde_json::Number;

/// A number as `%v` prints it: integers as they are, whatever their size.
pub(crate) fn number(number: &Number) -> String {
    written(number, float)
}

/// A number as Go writes it in JSON.
pub(super) fn json_number(number: &Number) -> String {
    written(number, json_float)
}

fn written(number: &Number, fraction: fn(f64) -> String) -> String {
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(number) => fraction(number),
        None => number.to_string(),
    }
}

/// A float as `%v` prints it: with an exponent from a million on, and below a ten-thousandth.
pub(super) fn float(number: f64) -> String {
    let (mantissa, exponent) = parts(number);
    if number == 0.0 || (-4..6).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// A float as Go writes it in JSON, which uses an exponent less often.
fn json_float(number: f64) -> String {
    let (mantissa, exponent) = parts(number);
    if number == 0.0 || (-6..21).contains(&exponent) {
        return number.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{}", exponent.unsigned_abs())
}

/// The fewest digits that identify the number, and its exponent, as in Go.
fn parts(number: f64) -> (String, i32) {
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.to_owned(), exponent.parse().unwrap_or(0))
}

/// A character as `%#U` prints it: its number, and itself if it is printable.
pub(super) fn character(character: char) -> String {
    let number = format!("U+{:04X}", u32::from(character));
    // After a letter, because a combining mark alone is escaped, too.
    let shown = format!("a{character}");
    let is_seen = matches!(character, '\'' | '"' | '\\') || shown.escape_debug().eq(shown.chars());
    if is_seen { format!("{number} '{character}'") } else { number }
}
