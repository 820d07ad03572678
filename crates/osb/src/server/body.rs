use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use serde_json::Value;

use crate::error::{Error, ErrorKind};
use crate::fields::{Faults, Fields, Path};
use crate::model::{INTEGER_BITS, MAX_DEPTH, Object, is_too_deep, rounded_integers};

/// So many integers that would be rounded are named: there may be one for every 21 bytes.
const MAX_ROUNDED: usize = 16;

/// Reads a body to its end.
///
/// # Errors
/// 413 for one over the limit, before it is read where its length is said; 408 for one that does not
/// arrive in time; 400 for one that ends early.
pub(super) async fn read(body: Body, limit: usize, time: Duration) -> Result<Bytes, Error> {
    let too_large = || {
        let description = format!("the body must have at most {limit} bytes");
        Error::new(ErrorKind::PayloadTooLarge, description)
    };
    let said = body.size_hint().lower();
    if usize::try_from(said).map_or(true, |said| said > limit) {
        return Err(too_large());
    }
    match tokio::time::timeout(time, Limited::new(body, limit).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Error::bad_request("the body must arrive whole, and was cut short")),
        Err(_) => {
            let description = format!("the body must arrive within {} s", time.as_secs_f32());
            Err(Error::new(ErrorKind::RequestTimeout, description))
        }
    }
}

/// Opens a body, which must be a JSON object. An empty body counts as an empty object, so that its
/// sender learns what should be in it.
pub(super) fn open<'p>(body: &Bytes, path: &'p Path<'p>, faults: &'p Faults) -> Option<Fields<'p>> {
    if body.is_empty() {
        return Fields::open(Value::Object(Object::new()), path, faults);
    }
    match serde_json::from_slice(body) {
        Ok(value) if is_too_deep(&value) => {
            faults.add("body", format!("must not be nested more than {MAX_DEPTH} levels deep"));
            None
        }
        Ok(value @ Value::Object(_)) => {
            for path in rounded_integers(body, &value).take(MAX_ROUNDED) {
                faults.add(path, INTEGER_BITS);
            }
            Fields::open(value, path, faults)
        }
        Ok(_) => {
            faults.add("body", "must be a JSON object");
            None
        }
        Err(error) => {
            faults.add("body", format!("must be JSON: {error}"));
            None
        }
    }
}
