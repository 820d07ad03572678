//! Text of which there is only room for some.

/// As much of the beginning as fits into so many bytes, without half of a character.
pub(crate) fn head(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (text, most, expected) in [
            ("", 2, ""),
            ("ab", 2, "ab"),
            ("abc", 2, "ab"),
            ("abc", 0, ""),
            ("aü", 3, "aü"),
            ("aü", 2, "a"),
            ("\u{1F980}", 3, ""),
        ] {
            assert_eq!(head(text, most), expected, "{text:?} in {most}");
        }
    }
}
