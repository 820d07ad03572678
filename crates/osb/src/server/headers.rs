//! Reads the headers of a request: each may come at most once, in the form that the specification gives it.

use data_encoding::BASE64_NOPAD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::settings::MissingVersion;
use crate::API_VERSION;
use crate::error::{Error, ErrorKind};
use crate::fields::Faults;
use crate::model::{OriginatingIdentity, is_too_deep, rounded_integers};

pub(super) const VERSION: HeaderName = HeaderName::from_static("x-broker-api-version");
pub(super) const ORIGINATING_IDENTITY: HeaderName =
    HeaderName::from_static("x-broker-api-originating-identity");
pub(super) const REQUEST_IDENTITY: HeaderName =
    HeaderName::from_static("x-broker-api-request-identity");

/// The longest `X-Broker-API-Request-Identity`, in bytes: it goes into every line of a log.
const MAX_REQUEST_IDENTITY: usize = 1024;

/// The oldest minor version whose platforms this server understands.
const OLDEST_MINOR: u32 = 3;

/// Checks the version that a platform speaks.
///
/// # Errors
/// 412 for a version that this server does not speak, naming the one wanted; 400 for two headers; for none as `missing`
/// says.
pub(super) fn check_version(headers: &HeaderMap, missing: MissingVersion) -> Result<(), Error> {
    let faults = Faults::default();
    let Some(version) = single(headers, &VERSION, "X-Broker-API-Version", &faults) else {
        if let Some(fault) = faults.into_vec().first() {
            return Err(Error::bad_request(fault.to_string()));
        }
        let description = format!("X-Broker-API-Version: must be sent, such as {API_VERSION}");
        return match missing {
            MissingVersion::PreconditionFailed => {
                Err(Error::new(ErrorKind::UnsupportedVersion, description))
            }
            MissingVersion::BadRequest => Err(Error::bad_request(description)),
            MissingVersion::Accept => Ok(()),
        };
    };
    let digits = |text: &str| {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u32>().ok().filter(|_| plain)
    };
    let numbers = version.to_str().ok().and_then(|version| version.split_once('.'));
    match numbers.map(|(major, minor)| (digits(major), digits(minor))) {
        Some((Some(2), Some(minor))) if minor >= OLDEST_MINOR => Ok(()),
        _ => Err(Error::new(
            ErrorKind::UnsupportedVersion,
            format!(
                "X-Broker-API-Version: is not supported; send {API_VERSION}, or any 2.x from \
                 2.{OLDEST_MINOR} on"
            ),
        )),
    }
}

/// The identity of the request, to be logged and echoed. Empty counts as absent.
///
/// # Errors
/// The rule that the identity breaks; it is not echoed then.
pub(super) fn request_identity(headers: &HeaderMap) -> Result<Option<&HeaderValue>, &'static str> {
    let mut sent = headers.get_all(&REQUEST_IDENTITY).iter();
    let Some(identity) = sent.next().filter(|identity| !identity.is_empty()) else {
        return Ok(None);
    };
    if sent.next().is_some() {
        return Err("must not be sent more than once");
    }
    if identity.len() > MAX_REQUEST_IDENTITY {
        return Err("must have at most 1024 bytes");
    }
    if !identity.as_bytes().iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err("must consist of printable ASCII characters");
    }
    Ok(Some(identity))
}

/// The user who asked the platform: `<platform> <Base64 of a JSON object>`. Empty counts as absent.
pub(super) fn originating_identity(
    headers: &HeaderMap,
    faults: &Faults,
) -> Option<OriginatingIdentity> {
    const NAME: &str = "X-Broker-API-Originating-Identity";
    let sent = single(headers, &ORIGINATING_IDENTITY, NAME, faults)?;
    let parsed = parse_identity(sent.as_bytes());
    if parsed.is_none() {
        faults.add(
            NAME,
            "must be the platform's name, a space, and a JSON object of at most 64 levels, and with no \
             integer of more than 64 bits, in Base64",
        );
    }
    parsed
}

fn parse_identity(sent: &[u8]) -> Option<OriginatingIdentity> {
    let (platform, value) = sent.split_at(sent.iter().position(|byte| *byte == b' ')?);
    let platform = std::str::from_utf8(platform).ok().filter(|platform| !platform.is_empty())?;
    let mut value = value.trim_ascii();
    while let [rest @ .., b'='] = value {
        value = rest;
    }
    let json = BASE64_NOPAD.decode(value).ok()?;
    let value = serde_json::from_slice(&json).ok().filter(|value| !is_too_deep(value))?;
    if rounded_integers(&json, &value).next().is_some() {
        return None;
    }
    let Value::Object(value) = value else { return None };
    Some(OriginatingIdentity { platform: platform.to_owned(), value: value.into() })
}

/// Notes a fault if a body that is read has another type than JSON; without a type it is taken for JSON.
pub(super) fn check_content_type(headers: &HeaderMap, body_is_read: bool, faults: &Faults) {
    let Some(sent) = single(headers, &CONTENT_TYPE, "Content-Type", faults) else { return };
    let essence = sent.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
    if body_is_read && !essence.trim_ascii().eq_ignore_ascii_case(b"application/json") {
        faults.add("Content-Type", "must be application/json");
    }
}

/// A header that may be sent only once; empty counts as absent.
fn single<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    spelt: &str,
    faults: &Faults,
) -> Option<&'h HeaderValue> {
    let mut sent = headers.get_all(name).iter();
    let first = sent.next()?;
    if sent.next().is_some() {
        faults.add(spelt, "must not be sent more than once");
        return None;
    }
    Some(first).filter(|value| !value.is_empty())
}
