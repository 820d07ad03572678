//! `GET /v2/catalog`: bytes made once, and 304 for platforms that have them (RFC 9110, 13).

use axum::body::Body;
use axum::response::Response;
use http::header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::{HeaderMap, StatusCode};

use super::respond;
use crate::catalog::CompiledCatalog;

/// The catalog, or that the platform has it already.
pub(super) fn respond(catalog: &CompiledCatalog, headers: &HeaderMap) -> Response {
    let mut response = if is_known(catalog, headers) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        respond::raw(StatusCode::OK, catalog.body().clone())
    };
    let [etag, last_modified] = catalog.validators();
    response.headers_mut().insert(ETAG, etag.clone());
    response.headers_mut().insert(LAST_MODIFIED, last_modified.clone());
    response
}

fn is_known(catalog: &CompiledCatalog, headers: &HeaderMap) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        // A tag goes before a date, whatever the date says.
        let mut sent = headers.get_all(IF_NONE_MATCH).iter();
        return sent.any(|tags| lists(tags.as_bytes(), catalog.etag().as_bytes()));
    }
    let since = headers.get(IF_MODIFIED_SINCE).and_then(|since| since.to_str().ok());
    let since = since.and_then(|since| httpdate::parse_http_date(since).ok());
    since.is_some_and(|since| catalog.last_modified() <= since)
}

/// Whether a list of entity tags, strong or weak, holds ours. No tag of ours holds a comma.
fn lists(tags: &[u8], ours: &[u8]) -> bool {
    tags.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|tag| {
        let tag = tag.strip_prefix(b"W/").unwrap_or(tag);
        tag == b"*" || tag == ours
    })
}
