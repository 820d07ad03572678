//! The syntax of names (Kubernetes, "Object Names and IDs").

/// Whether a text can be the name of a namespace: a DNS label (RFC 1123) of 63 bytes at most.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Whether a text is a DNS subdomain (RFC 1123) of 253 bytes at most. Kubernetes limits the whole and not its parts.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

/// Whether a text can be the value of a label: 63 bytes at most, or none.
pub(crate) fn is_label_value(text: &str) -> bool {
    let ends = [text.chars().next(), text.chars().next_back()];
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 63
        && text.chars().all(is_inner)
        && ends.into_iter().flatten().all(|c| c.is_ascii_alphanumeric())
}

fn is_part(text: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| is_end(byte) || *byte == b'-')
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_may_be_empty_and_have_dots_and_capitals() {
        let (most, long) = ("a".repeat(63), "a".repeat(64));
        let good = ["", "a", "Foo_Bar.1", "1.2.3", &most];
        assert!(good.iter().all(|text| is_label_value(text)), "{good:?}");
        for text in [&long, "-a", "a.", "_", "a b", "a/b", "é"] {
            assert!(!is_label_value(text), "{text}");
        }
    }

    #[test]
    fn names_are_labels_and_subdomains() {
        let (most, long) = ("a".repeat(63), "a".repeat(64));
        for (text, label, subdomain) in [
            ("a", true, true),
            ("a-1", true, true),
            (&most, true, true),
            (&long, false, true),
            ("apps.example.com", false, true),
            ("", false, false),
            ("-a", false, false),
            ("a-", false, false),
            ("A", false, false),
            (" a", false, false),
            ("a/b", false, false),
            ("apps..example", false, false),
            ("*", false, false),
        ] {
            assert_eq!((is_label(text), is_subdomain(text)), (label, subdomain), "{text:?}");
        }
    }
}
