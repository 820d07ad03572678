//! Handles text that was cut, perhaps in the middle of a character.
//!
//! Redaction at a cut compares with the beginnings and ends of secrets: a replacement character would
//! hide one.

use std::borrow::Cow;

/// The last `limit` bytes of a text, or a little less.
pub fn end(text: &str, limit: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(limit))..]
}

/// Text whose end was cut off, without the half of a character there.
pub fn without_half_a_character(bytes: &[u8]) -> Cow<'_, str> {
    let whole = (0..=bytes.len().min(3))
        .map(|cut| &bytes[..bytes.len() - cut])
        .find(|bytes| std::str::from_utf8(bytes).is_ok());
    String::from_utf8_lossy(whole.unwrap_or(bytes))
}

/// Text whose start was cut off, without the half of a character there.
pub fn from_a_character(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(whole_at_start(bytes))
}

/// Text that was cut off at both ends, without the halves of characters there.
pub fn of_whole_characters(bytes: &[u8]) -> Cow<'_, str> {
    without_half_a_character(whole_at_start(bytes))
}

fn whole_at_start(bytes: &[u8]) -> &[u8] {
    let continued = bytes.iter().take(3).take_while(|&&byte| byte & 0xc0 == 0x80).count();
    &bytes[continued..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_text_is_text() {
        assert_eq!(end("äöü", 3), "ü");
        assert_eq!(end("abc", 10), "abc");
        assert_eq!(end("", 10), "");
        let cut = &"äöü".as_bytes()[1..5];
        assert_eq!(of_whole_characters(cut), "ö");
    }
}
