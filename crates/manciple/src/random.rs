//! Random text that nobody can guess: for passwords and keys that are made here, and for the identity of a process.

use anyhow::Context;
use rustls::crypto::ring::default_provider;

/// 256 random bits as text.
///
/// # Errors
/// If the system has none to give.
pub(crate) fn text() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 32];
    default_provider()
        .secure_random
        .fill(&mut bytes)
        .ok()
        .context("the system has no random numbers to give")?;
    Ok(data_encoding::BASE64URL_NOPAD.encode(&bytes))
}
