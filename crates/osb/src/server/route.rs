//! Finds the route of the API in a path as it was sent.
//!
//! An id is any non-empty string (section "URL Properties"): it may hold a percent-encoded slash, be
//! `.` or `..`, or be written in any script. So the path is split before it is decoded, and nothing
//! in it is ever resolved.

use std::borrow::Cow;

use http::{HeaderValue, Method};

/// The routes of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    Catalog,
    Instance,
    InstanceLastOperation,
    Binding,
    BindingLastOperation,
    OpenApi,
}

/// A route, with the ids of its path still encoded; empty where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target<'p> {
    pub(super) route: Route,
    pub(super) instance: &'p str,
    pub(super) binding: &'p str,
}

impl<'p> Target<'p> {
    /// The route of a path; `None` if the API has none.
    pub(super) fn find(path: &'p str) -> Option<Self> {
        let mut segments = [""; 6];
        let mut count = 0;
        for segment in path.strip_prefix('/')?.split('/') {
            *segments.get_mut(count)? = segment;
            count += 1;
        }
        let (route, instance, binding) = match segments.get(..count)? {
            ["openapi.json"] => (Route::OpenApi, "", ""),
            ["v2", "catalog"] => (Route::Catalog, "", ""),
            ["v2", "service_instances", instance] => (Route::Instance, *instance, ""),
            ["v2", "service_instances", instance, "last_operation"] => {
                (Route::InstanceLastOperation, *instance, "")
            }
            ["v2", "service_instances", instance, "service_bindings", binding] => {
                (Route::Binding, *instance, *binding)
            }
            [
                "v2",
                "service_instances",
                instance,
                "service_bindings",
                binding,
                "last_operation",
            ] => (Route::BindingLastOperation, *instance, *binding),
            _ => return None,
        };
        Some(Self { route, instance, binding })
    }
}

impl Route {
    /// The route without ids.
    pub(super) fn template(self) -> &'static str {
        match self {
            Self::Catalog => "/v2/catalog",
            Self::Instance => "/v2/service_instances/{instance_id}",
            Self::InstanceLastOperation => "/v2/service_instances/{instance_id}/last_operation",
            Self::Binding => "/v2/service_instances/{instance_id}/service_bindings/{binding_id}",
            Self::BindingLastOperation => {
                "/v2/service_instances/{instance_id}/service_bindings/{binding_id}/last_operation"
            }
            Self::OpenApi => "/openapi.json",
        }
    }

    /// Whether the route has a method. `HEAD` is `GET` everywhere; its answer is sent without the body.
    pub(super) fn allows(self, method: &Method) -> bool {
        match *method {
            Method::GET | Method::HEAD => true,
            Method::PUT | Method::DELETE => matches!(self, Self::Instance | Self::Binding),
            Method::PATCH => self == Self::Instance,
            _ => false,
        }
    }

    /// The value of `Allow` on a 405.
    pub(super) fn allow(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Instance => "GET, HEAD, PUT, PATCH, DELETE",
            Self::Binding => "GET, HEAD, PUT, DELETE",
            _ => "GET, HEAD",
        })
    }
}

/// Whether the path is one of the API, known or not: those need a version.
pub(super) fn is_versioned(path: &str) -> bool {
    path == "/v2" || path.starts_with("/v2/")
}

/// Decodes a segment of a path or, with `plus_is_space`, a part of a query.
///
/// # Errors
/// The rule that the encoding breaks.
pub fn decode(text: &str, plus_is_space: bool) -> Result<Cow<'_, str>, &'static str> {
    let is_plain = |byte: u8| byte != b'%' && !(plus_is_space && byte == b'+');
    if text.bytes().all(is_plain) {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(bytes.next()), digit(bytes.next()));
                let value =
                    high.zip(low).and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
                value.ok_or("must have two hexadecimal digits after each %")?
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| "must be UTF-8, percent-encoded")
}
