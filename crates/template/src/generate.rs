//! Generates values from an expression: text in which `[classes]{count}` stands for `count` random characters.
//!
//! The original leaves out the end of each range (`[A-Z]` never gives `Z`), takes two neighbours for a range (`ab`),
//! and looks for expressions in generated text. Here a range includes its end, neighbours are themselves, and generated
//! text is not searched again.

use crate::random::{NoRandomness, Random, choose};

/// The characters of `\w`. Ranges follow this order, without the last character: `a-Z` is every letter, `a-9` every
/// letter and digit.
const WORD: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
const SYMBOLS: &[u8] = b"~!@#$%^&*()-_+={}[]\\|<,>.?/\"';:`";
/// How many characters one expression may generate.
const MOST: usize = 255;

/// How many bytes all generated values of a template may have together: as many as a Secret holds.
pub(crate) const MOST_GENERATED: usize = 1024 * 1024;

/// Why a value cannot be generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    // The original's message, with its misspelling: people search for it.
    #[error("malformed expresion syntax: [{0}]")]
    Malformed(String),
    #[error("invalid range specified: {0}")]
    Range(String),
    #[error(
        "values that are generated come to more than {MOST_GENERATED} bytes: have it generate less"
    )]
    TooLong,
    #[error("range must be within [1-255] characters ({0})")]
    Count(String),
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// Generates a value from the expressions in `from`; text outside of expressions, and what only looks like one, stays.
///
/// An expression is `[classes]{count}` with a count from 1 to 255. Classes are `\w` (letters, digits, `_`), `\d`,
/// `\a` (letters, digits), `\A` (symbols), ranges and single characters; the first has to be one with a backslash,
/// or the last a range.
///
/// Makes at most `room` bytes: an expression of a few bytes makes 255.
pub(crate) fn generate(
    from: &str,
    random: &mut dyn Random,
    room: usize,
) -> Result<String, Refused> {
    let mut made = String::with_capacity(from.len());
    let mut rest = from;
    while let Some(open) = memchr::memchr(b'[', rest.as_bytes()) {
        let (before, from_here) = rest.split_at(open);
        made.push_str(before);
        let Some((classes, count, after)) = expression(from_here) else {
            made.push('[');
            rest = &from_here[1..];
            continue;
        };
        let alphabet = alphabet(classes)?;
        let asked = count.parse().ok().filter(|asked| (1..=MOST).contains(asked));
        let asked = asked.ok_or_else(|| Refused::Count(count.to_owned()))?;
        if made.len().saturating_add(asked) > room {
            return Err(Refused::TooLong);
        }
        made.push_str(&choose(random, &alphabet, asked)?);
        rest = after;
    }
    made.push_str(rest);
    match made.len() > room {
        true => Err(Refused::TooLong),
        false => Ok(made),
    }
}

/// Parses the expression with which a text begins: its classes, its count, and the rest of the text.
fn expression(text: &str) -> Option<(&str, &str, &str)> {
    let inner = text.strip_prefix('[')?;
    let of_class = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'\\');
    let (classes, after) = inner.split_at(inner.bytes().take_while(of_class).count());
    let counted = after.strip_prefix("]{").filter(|_| !classes.is_empty())?;
    let (count, after) = counted.split_at(counted.bytes().take_while(u8::is_ascii_digit).count());
    let after = after.strip_prefix('}').filter(|_| !count.is_empty())?;
    Some((classes, count, after))
}

/// The characters of some classes, each once.
fn alphabet(classes: &str) -> Result<Vec<u8>, Refused> {
    let mut rest = classes.as_bytes();
    if !is_well_formed(rest) {
        return Err(Refused::Malformed(classes.to_owned()));
    }
    let no_range = |of: &[u8]| Refused::Range(String::from_utf8_lossy(of).into_owned());
    let mut alphabet = Vec::new();
    while let Some(first) = rest.first() {
        let (taken, characters) = match rest {
            [b'\\', _, b'-', right, ..] if right.is_ascii_alphanumeric() => (4, None),
            [b'\\', class, ..] => (2, of_class(*class)),
            [b'\\'] => (1, None),
            // A hyphen on its own stands for nothing, as in the original.
            [b'-', ..] => (1, Some(&b""[..])),
            [left, b'-', right, ..] if right.is_ascii_alphanumeric() => (3, range(*left, *right)),
            _ => (1, range(*first, *first)),
        };
        let (token, after) = rest.split_at(taken);
        alphabet.extend_from_slice(characters.ok_or_else(|| no_range(token))?);
        rest = after;
    }
    alphabet.sort_unstable();
    alphabet.dedup();
    Ok(alphabet)
}

/// Whether classes are well formed: one with a backslash comes first, or a range last.
fn is_well_formed(classes: &[u8]) -> bool {
    let begins = matches!(classes, [b'\\', b'w' | b'd' | b'a' | b'A', ..]);
    let is_range =
        |left: &u8, right: &u8| left.is_ascii_alphanumeric() && right.is_ascii_alphanumeric();
    begins || matches!(classes, [.., left, b'-', right] if is_range(left, right))
}

fn of_class(class: u8) -> Option<&'static [u8]> {
    match class {
        b'w' => Some(WORD),
        b'd' => range(b'0', b'9'),
        b'a' => range(b'a', b'9'),
        b'A' => Some(SYMBOLS),
        _ => None,
    }
}

/// The characters of a range, with both ends.
fn range(left: u8, right: u8) -> Option<&'static [u8]> {
    let place = |of: u8| memchr::memchr(of, WORD);
    WORD.get(place(left)?..=place(right)?).filter(|range| !range.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seeded;

    fn generated(from: &str) -> Result<String, String> {
        generate(from, &mut Seeded(1), MOST_GENERATED).map_err(|refused| refused.to_string())
    }

    /// Every character that one of these can be.
    fn all(classes: &str) -> String {
        String::from_utf8(alphabet(classes).unwrap()).unwrap()
    }

    #[test]
    fn no_more_is_generated_than_there_is_room_for() {
        let many = "[a-z]{255}".repeat(5_000);
        for (name, from, room, expected) in [
            ("it fits", "a[a-z]{3}", 4, Ok(4)),
            ("one letter too many", "a[a-z]{3}", 3, Err(Refused::TooLong)),
            ("the text alone", "abcd", 3, Err(Refused::TooLong)),
            ("the text after it", "[a-z]{3}d", 3, Err(Refused::TooLong)),
            ("a template that blows up", &*many, MOST_GENERATED, Err(Refused::TooLong)),
        ] {
            let made = generate(from, &mut Seeded(1), room).map(|made| made.len());
            assert_eq!(made, expected, "{name}");
        }
    }

    #[test]
    fn a_range_has_its_end() {
        assert_eq!(all("A-Z"), "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        assert_eq!(all("0-9"), "0123456789");
        assert_eq!(all("0-1"), "01");
        assert_eq!(all("a-a"), "a", "the original panics");
        assert_eq!(all("a-Z").len(), 52, "lower before upper before digits");
        assert_eq!(all("a-9").len(), 62);
    }

    #[test]
    fn classes_are_sets() {
        assert_eq!(all(r"\d"), "0123456789");
        assert_eq!(all(r"\a").len(), 62);
        assert_eq!(all(r"\w").len(), 63);
        assert!(all(r"\w").contains('_') && !all(r"\a").contains('_'));
        assert_eq!(all(r"\A").len(), SYMBOLS.len(), "{}", all(r"\A"));
        assert_eq!(all(r"\d\d0-3"), "0123456789", "each once");
        assert_eq!(all("abx-z"), "abxyz", "neighbours are no range");
        assert_eq!(all(r"\wA-Z"), all(r"\w"), "the original takes symbols for this");
        assert_eq!(all("-a-c"), "abc");
    }

    #[test]
    fn symbols_are_those_of_the_original() {
        let mut symbols = br#"~!@#$%^&*()-_+={}[]\|<,>.?/"';:`"#.to_vec();
        symbols.sort_unstable();
        assert_eq!(all(r"\A").into_bytes(), symbols);
    }

    #[test]
    fn counts_are_from_1_to_255() {
        for (count, is_one) in [(0, false), (1, true), (255, true), (256, false)] {
            let value = generated(&format!("[a-z]{{{count}}}"));
            let said = format!("range must be within [1-255] characters ({count})");
            let expected = if is_one { Ok(count) } else { Err(said) };
            assert_eq!(value.map(|it| it.len()), expected, "{count}");
        }
    }

    #[test]
    fn every_character_of_a_range_comes() {
        for classes in ["[A-Z]", r"[\w]", r"[\A]", "[0-1]"] {
            let inner = &classes[1..classes.len() - 1];
            let mut seen = generated(&format!("{classes}{{255}}").repeat(20)).unwrap().into_bytes();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(String::from_utf8(seen).unwrap(), all(inner), "{classes}");
        }
    }

    #[test]
    fn text_around_expressions_stays() {
        let value = generated("test[A-Z0-9]{4}template").unwrap();
        assert!(value.starts_with("test") && value.ends_with("template"), "{value}");
        assert_eq!(value.len(), 16);
        for literal in ["", "plain", "[a-z]", "[a-z]{}", "[é]{3}", "[a_b]{3}", "[]{3}", "{3}", "[["]
        {
            assert_eq!(generated(literal).as_deref(), Ok(literal));
        }
        assert_eq!(generated("[[a-a]{2}").as_deref(), Ok("[aa"));
        assert_eq!(generated("é[a-a]{1}ü[b-b]{2}").as_deref(), Ok("éaübb"));
    }

    #[test]
    fn what_was_generated_is_text() {
        // In the original symbols can make another expression.
        let value = generated(r"[\A]{255}[\A]{255}").unwrap();
        assert_eq!(value.len(), 510);
        // There what is made here, `[a-b]{2}`, is one.
        assert_eq!(generated("[[a-a]{1}-b]{2}").as_deref(), Ok("[a-b]{2}"));
    }

    #[test]
    fn what_cannot_be_generated_is_said() {
        for (from, said) in [
            ("[ABC]{3}", "malformed expresion syntax: [ABC]"),
            ("[A-Zabc]{3}", "malformed expresion syntax: [A-Zabc]"),
            ("[Z-A]{3}", "invalid range specified: Z-A"),
            ("[A-z]{3}", "invalid range specified: A-z"),
            (r"[\w\x]{3}", r"invalid range specified: \x"),
            (r"[\w\]{3}", r"invalid range specified: \"),
            (r"[\w-Z]{3}", r"invalid range specified: \w-Z"),
            ("[a-z]{0}", "range must be within [1-255] characters (0)"),
            ("[a-z]{256}", "range must be within [1-255] characters (256)"),
            (
                "[a-z]{99999999999999999999}",
                "range must be within [1-255] characters (99999999999999999999)",
            ),
        ] {
            assert_eq!(generated(from), Err(said.to_owned()), "{from}");
        }
    }

    #[test]
    fn nothing_is_made_up_without_randomness() {
        struct None;
        impl Random for None {
            fn fill(&mut self, _: &mut [u8]) -> Result<(), NoRandomness> {
                Err(NoRandomness)
            }
        }
        assert_eq!(
            generate("[a-z]{8}", &mut None, MOST_GENERATED),
            Err(Refused::NoRandomness(NoRandomness))
        );
    }
}
