//! Unquotes text: Go's escapes, in single quotes as in double ones.

use super::error::ParseError;

/// The text that a quoted one stands for.
pub(super) fn unquote(quoted: &str) -> Result<String, ParseError> {
    let invalid = || ParseError::Escape(quoted.to_owned());
    let (quote, within) = match quoted.as_bytes() {
        [open @ (b'"' | b'\''), .., close] if open == close => {
            (*open, &quoted[1..quoted.len() - 1])
        }
        _ => return Err(invalid()),
    };
    let mut rest = within.as_bytes();
    let mut text = Vec::with_capacity(rest.len());
    while let [first, after @ ..] = rest {
        rest = match *first {
            b'\\' => escape(after, quote, &mut text).ok_or_else(invalid)?,
            byte if byte == quote => return Err(invalid()),
            byte => {
                text.push(byte);
                after
            }
        };
    }
    String::from_utf8(text).map_err(|_| ParseError::NotText(quoted.to_owned()))
}

/// Decodes an escape, after its backslash; returns the rest.
fn escape<'t>(escape: &'t [u8], quote: u8, text: &mut Vec<u8>) -> Option<&'t [u8]> {
    let (kind, rest) = escape.split_first()?;
    let byte = match *kind {
        b'a' => 0x07,
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 0x0b,
        b'\\' => b'\\',
        byte @ (b'"' | b'\'') if byte == quote => byte,
        b'x' => {
            let (value, rest) = number(rest, 2, 16)?;
            text.push(u8::try_from(value).ok()?);
            return Some(rest);
        }
        kind @ (b'u' | b'U') => {
            let (value, rest) = number(rest, if kind == b'u' { 4 } else { 8 }, 16)?;
            let mut buffer = [0; 4];
            text.extend_from_slice(char::from_u32(value)?.encode_utf8(&mut buffer).as_bytes());
            return Some(rest);
        }
        b'0'..=b'7' => {
            let (value, rest) = number(escape, 3, 8)?;
            text.push(u8::try_from(value).ok()?);
            return Some(rest);
        }
        _ => return None,
    };
    text.push(byte);
    Some(rest)
}

/// Parses a number of exactly `digits` digits; returns the rest, too.
fn number(text: &[u8], digits: usize, radix: u32) -> Option<(u32, &[u8])> {
    let (digits, rest) = text.split_at_checked(digits)?;
    let value = digits.iter().try_fold(0_u32, |value, digit| {
        value.checked_mul(radix)?.checked_add(char::from(*digit).to_digit(radix)?)
    });
    Some((value?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_those_of_go() {
        let good = [
            (r#""""#, ""),
            ("''", ""),
            (r#""a'b""#, "a'b"),
            (r#"'a"b'"#, "a\"b"),
            (r#""a\"b""#, "a\"b"),
            (r"'a\'b'", "a'b"),
            (r#""\a\b\f\n\r\t\v\\""#, "\u{7}\u{8}\u{c}\n\r\t\u{b}\\"),
            (r#""\x41\101\u0041\U00000041""#, "AAAA"),
            (r#""\u20ac""#, "€"),
            (r#""\xe2\x82\xac""#, "€"),
            ("\"\t€\"", "\t€"),
        ];
        for (quoted, text) in good {
            assert_eq!(unquote(quoted).as_deref(), Ok(text), "{quoted}");
        }
        let bad = [
            r#"""#,
            r#""a'"#,
            r#""\"#,
            r#""\q""#,
            r#""\'""#,
            r#"'\"'"#,
            r#""\x4""#,
            r#""\xg0""#,
            r#""\ud800""#,
            r#""\U00110000""#,
            r#""\08""#,
            r#""\400""#,
            r#""\7""#,
            r#""a\\"b""#,
        ];
        for quoted in bad {
            assert_eq!(unquote(quoted), Err(ParseError::Escape(quoted.to_owned())), "{quoted}");
        }
        let bytes = r#""\xff""#;
        assert_eq!(unquote(bytes), Err(ParseError::NotText(bytes.to_owned())));
    }
}
