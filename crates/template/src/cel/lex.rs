//! The lexer of CEL: turns text into tokens.

use std::iter::Peekable;
use std::str::CharIndices;

/// A token: a word, and the character, from 1, at which it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) word: Word,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    Name(String),
    Text(String),
    /// An integer without a sign.
    Int(u64),
    Uint(u64),
    Double(f64),
    Symbol(&'static str),
}

/// The symbols, longer ones first.
const SYMBOLS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", ".", ",",
    "(", ")", "[", "]", "{", "}", "=",
];

pub(super) fn tokens(source: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = source;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']);
        if rest.is_empty() {
            return Ok(tokens);
        }
        if let Some(comment) = rest.strip_prefix("//") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after);
            continue;
        }
        let at = source[..source.len() - rest.len()].chars().count() + 1;
        let (word, length) = word(rest).map_err(|wrong| format!("at character {at}: {wrong}"))?;
        tokens.push(Token { at, word });
        rest = rest.get(length..).unwrap_or_default();
    }
}

/// The word with which a text begins, and its length in bytes.
fn word(rest: &str) -> Result<(Word, usize), String> {
    if let Some((text, length)) = text(rest)? {
        return Ok((Word::Text(text), length));
    }
    let fraction = rest.strip_prefix('.').unwrap_or(rest);
    if fraction.starts_with(|first: char| first.is_ascii_digit()) {
        return number(rest);
    }
    let name = |each: char| each.is_ascii_alphanumeric() || each == '_';
    let length = rest.find(|each| !name(each)).unwrap_or(rest.len());
    if length > 0 {
        return Ok((Word::Name(rest[..length].to_owned()), length));
    }
    let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
    symbol
        .map(|symbol| (Word::Symbol(symbol), symbol.len()))
        .ok_or_else(|| "this character means nothing here".to_owned())
}

fn number(rest: &str) -> Result<(Word, usize), String> {
    let wrong = || "it is no number that can be held".to_owned();
    let digits = |text: &str, hex: bool| {
        let is_digit =
            |each: char| if hex { each.is_ascii_hexdigit() } else { each.is_ascii_digit() };
        text.find(|each| !is_digit(each)).unwrap_or(text.len())
    };
    let hex = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
    let (whole, length) = match hex {
        Some(hex) => {
            let length = digits(hex, true);
            (u64::from_str_radix(&hex[..length], 16), length + 2)
        }
        None => {
            let length = digits(rest, false);
            (rest[..length].parse(), length)
        }
    };
    let after = &rest[length..];
    let mut end = length;
    if hex.is_none() {
        if let Some(fraction) = after.strip_prefix('.') {
            let places = digits(fraction, false);
            end += if places == 0 { 0 } else { places + 1 };
        }
        if let Some(power) = rest[end..].strip_prefix(['e', 'E']) {
            let sign = usize::from(power.starts_with(['+', '-']));
            let places = digits(&power[sign..], false);
            end += if places == 0 { 0 } else { places + sign + 1 };
        }
    }
    if end > length {
        let double: f64 = rest[..end].parse().map_err(|_| wrong())?;
        return Ok((Word::Double(double), end));
    }
    let whole = whole.map_err(|_| wrong())?;
    match after.starts_with(['u', 'U']) {
        true => Ok((Word::Uint(whole), length + 1)),
        false => Ok((Word::Int(whole), length)),
    }
}

/// A text in quotes, and its whole length; `None` if there is none.
fn text(rest: &str) -> Result<Option<(String, usize)>, String> {
    let prefix = rest.find(['\'', '"']).filter(|prefix| *prefix <= 2);
    let Some(prefix) = prefix else { return Ok(None) };
    let raw = match &rest[..prefix] {
        "" => false,
        "r" | "R" => true,
        "b" | "B" | "rb" | "Rb" | "rB" | "RB" | "br" | "bR" | "Br" | "BR" => {
            return Err("bytes are not supported".to_owned());
        }
        _ => return Ok(None),
    };
    let quoted = &rest[prefix..];
    let quote = ["'''", "\"\"\"", "'", "\""].into_iter().find(|quote| quoted.starts_with(quote));
    let Some(quote) = quote else { return Ok(None) };
    let body = &quoted[quote.len()..];
    let mut text = String::new();
    let mut characters = body.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        if body[at..].starts_with(quote) {
            return Ok(Some((text, prefix + quote.len() * 2 + at)));
        }
        match character {
            '\n' | '\r' if quote.len() == 1 => break,
            '\\' if !raw => text.push(escaped(&mut characters)?),
            _ => text.push(character),
        }
    }
    Err("the text that begins here does not end".to_owned())
}

/// The character for an escape, after its backslash.
fn escaped(characters: &mut Peekable<CharIndices<'_>>) -> Result<char, String> {
    let wrong = || "an escape in this text is none".to_owned();
    let (_, character) = characters.next().ok_or_else(wrong)?;
    let (radix, places, begun) = match character {
        'a' => return Ok('\x07'),
        'b' => return Ok('\x08'),
        'f' => return Ok('\x0c'),
        'n' => return Ok('\n'),
        'r' => return Ok('\r'),
        't' => return Ok('\t'),
        'v' => return Ok('\x0b'),
        '\\' | '\'' | '"' | '`' | '?' => return Ok(character),
        'x' | 'X' => (16, 2, 0),
        'u' => (16, 4, 0),
        'U' => (16, 8, 0),
        '0'..='3' => (8, 2, character.to_digit(8).unwrap_or_default()),
        _ => return Err(wrong()),
    };
    let mut code = begun;
    for _ in 0..places {
        let digit = characters.next().and_then(|(_, digit)| digit.to_digit(radix));
        let digit = digit.ok_or_else(wrong)?;
        code =
            code.checked_mul(radix).and_then(|code| code.checked_add(digit)).ok_or_else(wrong)?;
    }
    char::from_u32(code).ok_or_else(wrong)
}
