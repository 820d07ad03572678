//! The forms in which programs print a value: as it is, in base64, percent-encoded, JSON-escaped.

use std::collections::BTreeSet;
use std::fmt::Write;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, Encoding};

/// The length up to which a value is looked for in every encoding. Longer values (bundles of certificates) are looked
/// for only as they are and JSON-escaped: the other forms would take megabytes.
const MAX_ENCODED_BYTES: usize = 8 * 1024;

/// The length from which a value is looked for in the middle of an encoded text: four characters of base64
/// are found everywhere.
const MIN_EMBEDDED_BYTES: usize = 6;

/// The length from which a piece of text in a binary value is looked for.
const MIN_TEXT_RUN: usize = 8;

/// The lengths at which `base64` and `openssl` break their lines.
const BASE64_LINES: [usize; 2] = [76, 64];

/// The forms of a value as it is and as JSON has it, each at least four bytes of text.
pub(super) fn plain(value: &[u8]) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    match std::str::from_utf8(value) {
        Ok(text) => {
            forms.insert(text.to_owned());
            forms.extend(json_escaped(text));
        }
        Err(_) => forms.extend(
            value
                .utf8_chunks()
                .map(|chunk| chunk.valid())
                .filter(|run| run.len() >= MIN_TEXT_RUN)
                .map(str::to_owned),
        ),
    }
    forms
}

/// The forms of a value in base64 and percent-encoded; none if it is too long.
pub(super) fn encoded(value: &[u8]) -> BTreeSet<String> {
    let mut forms = BTreeSet::new();
    if value.len() <= MAX_ENCODED_BYTES {
        for encoding in [&BASE64_NOPAD, &BASE64URL_NOPAD] {
            base64(value, encoding, &mut forms);
        }
        forms.extend(percent_encoded(value));
    }
    forms
}

/// The base64 forms of a value: as a text of its own, whole and in lines, and in the middle of another. Three bytes
/// become four characters, so what stands before shifts the value to one of three places. The characters that also
/// depend on what stands beside it are left out.
fn base64(value: &[u8], encoding: &Encoding, forms: &mut BTreeSet<String>) {
    let whole = encoding.encode(value);
    for width in BASE64_LINES {
        let mut lines = whole.as_bytes().chunks(width);
        if whole.len() > width {
            // The last line may be a few characters; what is left of it says little.
            let full = lines.by_ref().filter(|line| line.len() >= MIN_TEXT_RUN);
            forms.extend(full.map(|line| String::from_utf8_lossy(line).into_owned()));
        }
    }
    if value.len() >= MIN_EMBEDDED_BYTES {
        for before in 0..3 {
            let mut shifted = vec![0; before];
            shifted.extend_from_slice(value);
            let first = (before * 8).div_ceil(6);
            let last = shifted.len() * 8 / 6;
            forms.insert(encoding.encode(&shifted)[first..last].to_owned());
        }
    }
    forms.insert(whole);
}

/// The percent-encoded forms of a value: with unreserved characters kept (RFC 3986), in upper and lower case; as HTML
/// forms send it; and as browsers encode a whole address.
fn percent_encoded(value: &[u8]) -> [String; 4] {
    let unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |keep: &dyn Fn(u8) -> bool, lower: bool| {
        value.iter().fold(String::new(), |mut text, &byte| {
            // Writing to a string does not fail.
            let _ = match (keep(byte), lower) {
                (true, _) => write!(text, "{}", char::from(byte)),
                (false, false) => write!(text, "%{byte:02X}"),
                (false, true) => write!(text, "%{byte:02x}"),
            };
            text
        })
    };
    let upper = encode(&unreserved, false);
    let form = upper.replace("%20", "+");
    let address = encode(&|byte| unreserved(byte) || b";,/?:@&=+$!*'()#".contains(&byte), false);
    [encode(&unreserved, true), upper, form, address]
}

/// The JSON-escaped forms of a text, as libraries differ: plain, with `\/`, and with `\u` for everything that is not
/// ASCII.
fn json_escaped(text: &str) -> [String; 3] {
    let plain = serde_json::Value::from(text).to_string();
    let plain = plain[1..plain.len() - 1].to_owned();
    let ascii = plain.chars().fold(String::new(), |mut ascii, character| {
        if character.is_ascii() {
            ascii.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(ascii, "\\u{unit:04x}");
            }
        }
        ascii
    });
    [plain.replace('/', "\\/"), ascii, plain]
}
