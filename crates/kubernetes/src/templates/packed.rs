//! Compression of JSON documents: templates repeat themselves.

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde_json::Value;

use osb::weight::weigh;

use crate::deep::HEAVIEST;

/// The compression level, of 10: higher ones take much longer, and the result is hardly smaller.
const LEVEL: u8 = 4;
/// How many bytes an unpacked document may have at most; etcd takes 1.5 MB.
const LARGEST: usize = 8 << 20;

/// Compresses a document (zlib, RFC 1950).
pub(super) fn pack(document: &Value) -> Vec<u8> {
    compress_to_vec_zlib(document.to_string().as_bytes(), LEVEL)
}

/// Decompresses a packed document; `None` if it is none, or larger or heavier than is read.
pub(super) fn unpack(packed: &[u8]) -> Option<Value> {
    let text = decompress_to_vec_zlib_with_limit(packed, LARGEST).ok()?;
    (weigh(&text) <= HEAVIEST).then(|| serde_json::from_slice(&text).ok())?
}
