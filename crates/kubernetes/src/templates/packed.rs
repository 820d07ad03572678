//! Documents, small: templates repeat themselves.

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde_json::Value;

use osb::weight::weigh;

use crate::deep::HEAVIEST;

/// How hard it is tried to make it small, of 10: beyond this it takes much longer, and is hardly smaller.
const LEVEL: u8 = 4;
/// How large a document may be when it is unpacked; etcd takes 1.5 MB.
const LARGEST: usize = 8 << 20;

/// A document, packed (RFC 1950).
pub(super) fn pack(document: &Value) -> Vec<u8> {
    compress_to_vec_zlib(document.to_string().as_bytes(), LEVEL)
}

/// What was packed; `None` if it is something else, or more than is read.
pub(super) fn unpack(packed: &[u8]) -> Option<Value> {
    let text = decompress_to_vec_zlib_with_limit(packed, LARGEST).ok()?;
    (weigh(&text) <= HEAVIEST).then(|| serde_json::from_slice(&text).ok())?
}
