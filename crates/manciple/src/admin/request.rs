//! Reads the requests to the operator's API, strictly: a wrong parameter is refused by name, and nothing is
//! looked up or removed under a name that was guessed.

use std::error::Error as _;
use std::fmt;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use http::StatusCode;
use osb::server::decode;
use osb::{Error, ErrorKind};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::model::Target;

/// The largest body, in bytes.
pub(super) const BODY_LIMIT: usize = 64 * 1024;

/// The parameters of a query, in the order of their `names`; others are ignored.
///
/// # Errors
/// If a parameter is badly encoded, or there twice.
pub(super) fn parameters<const N: usize>(
    query: Option<&str>,
    names: [&str; N],
) -> Result<[Option<String>; N], Error> {
    let mut found = [const { None }; N];
    for pair in query.unwrap_or_default().split('&') {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Ok(name) = decode(name, true) else { continue };
        let Some(at) = names.iter().position(|known| *known == name) else { continue };
        let value = decode(value, true)
            .map_err(|rule| Error::bad_request(format!("{}: {rule}", names[at])))?;
        if found[at].replace(value.into_owned()).is_some() {
            let twice = format!("{}: must not be in the query more than once", names[at]);
            return Err(Error::bad_request(twice));
        }
    }
    Ok(found)
}

/// Returns a parameter, or the refusal if it is absent.
pub(super) fn required(name: &str, value: Option<String>) -> Result<String, Error> {
    value.ok_or_else(|| Error::bad_request(format!("{name}: must be in the query, and is missing")))
}

/// The record that a query names.
pub(super) fn target_of_query(query: Option<&str>) -> Result<Target, Error> {
    let [instance, binding_id] = parameters(query, ["instance_id", "binding_id"])?;
    Ok(Target { instance_id: required("instance_id", instance)?, binding_id })
}

/// The record that a body names.
pub(super) fn target_of_body(body: Result<Json<Members>, JsonRejection>) -> Result<Target, Error> {
    let Json(Members(mut members)) = body.map_err(|rejection| refused(&rejection))?;
    let instance_id = match members.remove("instance_id") {
        Some(Value::String(id)) => id,
        Some(_) => return Err(Error::bad_request("instance_id: must be a string")),
        None => return Err(Error::bad_request("instance_id: must be in the body, and is missing")),
    };
    let binding_id = match members.remove("binding_id") {
        Some(Value::String(id)) => Some(id),
        Some(Value::Null) | None => None,
        Some(_) => return Err(Error::bad_request("binding_id: must be a string")),
    };
    Ok(Target { instance_id, binding_id })
}

fn refused(rejection: &JsonRejection) -> Error {
    if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
        let description = format!("the body must have at most {BODY_LIMIT} bytes");
        return Error::new(ErrorKind::PayloadTooLarge, description);
    }
    // The innermost words are serde_json's or ours; those around them speak of Rust's types.
    let mut said = rejection.source();
    while let Some(inner) = said.and_then(|error| error.source()) {
        said = Some(inner);
    }
    match (rejection, said) {
        (JsonRejection::JsonDataError(_), Some(said)) => {
            Error::bad_request(format!("body: {said}"))
        }
        (JsonRejection::JsonSyntaxError(_), Some(said)) => {
            Error::bad_request(format!("body: must be JSON: {said}"))
        }
        (JsonRejection::MissingJsonContentType(_), _) => {
            Error::bad_request("Content-Type: must be application/json")
        }
        _ => Error::bad_request("the body must arrive whole, and was cut short"),
    }
}

/// The members of a JSON object, each there once.
pub(super) struct Members(Map<String, Value>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Members;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Members, A::Error> {
        let mut members = Map::new();
        while let Some((name, value)) = given.next_entry::<String, Value>()? {
            if members.contains_key(&name) {
                return Err(A::Error::custom(format!("{name} must not be there more than once")));
            }
            members.insert(name, value);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_by_name_and_decoded() {
        for (query, expected) in [
            (None, [None, None]),
            (Some(""), [None, None]),
            (Some("b=2&a=1"), [Some("1"), Some("2")]),
            (Some("a=x%2Fy+z"), [Some("x/y z"), None]),
            (Some("%61=1&other=%zz&%zz=1"), [Some("1"), None]),
            (Some("a"), [Some(""), None]),
        ] {
            let found = parameters(query, ["a", "b"]).unwrap();
            assert_eq!(found.each_ref().map(Option::as_deref), expected, "{query:?}");
        }
    }

    #[test]
    fn parameters_that_cannot_be_read_are_refused_by_name() {
        for (query, words) in [
            ("a=%ff", "a: must be UTF-8"),
            ("b=%zz", "b: must have two hexadecimal digits"),
            ("a=1&b=%4", "b: must have two hexadecimal digits"),
            ("a=1&a=1", "a: must not be in the query more than once"),
        ] {
            let error = parameters(Some(query), ["a", "b"]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadRequest);
            assert!(error.description.contains(words), "{query}: {}", error.description);
        }
    }
}
