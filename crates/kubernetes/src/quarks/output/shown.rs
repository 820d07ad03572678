//! Messages on keys and values of output, which never show what those hold: pure.

/// The longest key of a Secret.
pub(crate) const MAX_KEY_BYTES: usize = 253;

/// Whether a Secret may have this key.
pub(crate) fn is_key(key: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !key.is_empty() && key.len() <= MAX_KEY_BYTES && key.bytes().all(good)
}

/// A key for people: one that a Secret cannot have may be anything, and is not shown.
pub(crate) fn shown(key: &str) -> String {
    match is_key(key) {
        true => format!("key {key:?}"),
        false => format!("a key of {} bytes", key.len()),
    }
}

/// Why a value that is no string cannot be in a Secret, by its first character.
pub(crate) fn not_text(first: Option<&u8>) -> String {
    let what = match first {
        Some(b't' | b'f') => "a boolean",
        Some(b'[') => "a list",
        Some(b'{') => "an object",
        _ => "a number",
    };
    format!(
        "the value is {what}, and has to be a string: print it as one, or set spec.output.stringifyValues"
    )
}
