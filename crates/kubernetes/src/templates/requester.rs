//! The requester: for whom an instance is made, and in whose name every call for it is made.

use data_encoding::HEXLOWER;
use http::{HeaderMap, HeaderName, HeaderValue};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::access::Identity;

/// How many bytes an identity may have: API servers take about a megabyte of headers.
const MOST: usize = 256 * 1024;
/// How many values an identity may have.
const MANY: usize = 10_000;

/// The API server's message where we may not impersonate: `cannot impersonate resource "users"`, and from 1.36 on for
/// each of the modes, as `cannot impersonate:user-info resource "users"`.
pub(super) const MAY_NOT_IMPERSONATE: &str = "cannot impersonate";

/// A requester, from `spec.requester`, in whose name calls are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Requester {
    /// The identity of the requester.
    pub(super) identity: Identity,
    headers: HeaderMap,
}

impl Requester {
    /// Reads a requester from `spec.requester`.
    pub(super) fn of(spec: &Value) -> Result<Self, String> {
        let text = |name: &str| match &spec[name] {
            Value::Null => Ok(String::new()),
            Value::String(text) => Ok(text.clone()),
            _ => Err(format!("spec.requester.{name}: has to be a string")),
        };
        let list = |path: &str, list: &Value| -> Result<Vec<String>, String> {
            let wrong = || format!("spec.requester.{path}: has to be a list of strings");
            let items = match list {
                Value::Null => return Ok(Vec::new()),
                list => list.as_array().ok_or_else(wrong)?,
            };
            items.iter().map(|it| it.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        };
        let extra = match &spec["extra"] {
            Value::Null => Ok(Vec::new()),
            Value::Object(extra) => Ok(extra.iter().collect()),
            _ => Err("spec.requester.extra: has to be a map".to_owned()),
        }?;
        let extra = extra
            .into_iter()
            .map(|(key, values)| Ok((key.clone(), list(&format!("extra[{key:?}]"), values)?)));
        Self::new(Identity {
            user: text("username")?,
            uid: text("uid")?,
            groups: list("groups", &spec["groups"])?,
            extra: extra.collect::<Result<_, String>>()?,
        })
    }

    /// A requester with the headers that impersonate the whole identity (Kubernetes, "User impersonation").
    ///
    /// # Errors
    /// If there is no user name, or if a part of the identity cannot be sent in a header.
    pub(super) fn new(identity: Identity) -> Result<Self, String> {
        if identity.user.is_empty() {
            return Err("spec.requester.username: Required value".to_owned());
        }
        let mut headers = HeaderMap::new();
        let mut size = 0;
        let mut add = |name: &str, path: &str, value: &str| {
            let wrong = || format!("spec.requester.{path}: cannot be sent to the API server");
            size += name.len() + value.len();
            if size > MOST || headers.len() >= MANY {
                return Err(format!("spec.requester: is more than {MOST} bytes, or {MANY} values"));
            }
            // White space at the ends is lost in a header: the identity would be another.
            if value.is_empty() || value != value.trim_matches([' ', '\t']) {
                return Err(wrong());
            }
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| wrong())?;
            headers.append(name, value);
            Ok::<_, String>(())
        };
        add("impersonate-user", "username", &identity.user)?;
        if !identity.uid.is_empty() {
            add("impersonate-uid", "uid", &identity.uid)?;
        }
        for group in &identity.groups {
            add("impersonate-group", "groups", group)?;
        }
        for (key, values) in &identity.extra {
            let name = format!("impersonate-extra-{}", escaped(key));
            for value in values {
                add(&name, &format!("extra[{key:?}]"), value)?;
            }
        }
        Ok(Self { identity, headers })
    }

    /// The requester as `spec.requester` has it.
    pub(super) fn spec(&self) -> Value {
        let Identity { user, uid, groups, extra } = &self.identity;
        let mut spec = json!({"username": user});
        if !uid.is_empty() {
            spec["uid"] = json!(uid);
        }
        if !groups.is_empty() {
            spec["groups"] = json!(groups);
        }
        if !extra.is_empty() {
            spec["extra"] = json!(extra);
        }
        spec
    }

    /// A client that makes its calls in the requester's name.
    pub(super) fn client(&self, base: &Client, namespace: &str) -> Client {
        let (base, headers) = (base.clone(), self.headers.clone());
        let service = tower::service_fn(move |mut request: http::Request<Body>| {
            let base = base.clone();
            let of_request = request.headers_mut();
            headers.iter().for_each(|(name, value)| {
                of_request.append(name.clone(), value.clone());
            });
            async move { base.send(request).await }
        });
        Client::new(service, namespace)
    }
}

/// A key of `extra` as a part of a header's name: characters that may not be in one, and capitals, which would be lost,
/// become `%` and two hexadecimal digits.
fn escaped(key: &str) -> String {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._~".contains(&byte);
    let escape = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{}", HEXLOWER.encode(&[byte])),
    };
    key.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_identity_is_told() {
        let requester = Requester::of(&json!({
            "username": "alice", "uid": "7", "groups": ["a", "system:authenticated"],
            "extra": {"scopes.authorization.openshift.io": ["user:full"], "Example.org/Ä": ["1", "2"]},
        }));
        let headers = requester.unwrap().headers;
        let all = |name: &str| -> Vec<String> {
            headers.get_all(name).iter().map(|it| it.to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(all("impersonate-user"), ["alice"]);
        assert_eq!(all("impersonate-uid"), ["7"]);
        assert_eq!(all("impersonate-group"), ["a", "system:authenticated"]);
        assert_eq!(all("impersonate-extra-scopes.authorization.openshift.io"), ["user:full"]);
        assert_eq!(all("impersonate-extra-%45xample.org%2f%c3%84"), ["1", "2"]);
    }

    #[test]
    fn who_cannot_be_told_is_nobody() {
        for (name, spec, expected) in [
            ("nobody", json!(null), "spec.requester.username: Required value"),
            ("no name", json!({"uid": "7"}), "spec.requester.username: Required value"),
            (
                "another header",
                json!({"username": "a\r\nImpersonate-Group: system:masters"}),
                "spec.requester.username: cannot be sent to the API server",
            ),
            (
                "a group that is none",
                json!({"username": "a", "groups": [1]}),
                "spec.requester.groups: has to be a list of strings",
            ),
            (
                "one who becomes another on the way",
                json!({"username": "bob "}),
                "spec.requester.username: cannot be sent to the API server",
            ),
            (
                "a group that becomes another",
                json!({"username": "a", "groups": ["\tsystem:masters"]}),
                "spec.requester.groups: cannot be sent to the API server",
            ),
            (
                "another header in extra",
                json!({"username": "a", "extra": {"k": ["v\n"]}}),
                "spec.requester.extra[\"k\"]: cannot be sent to the API server",
            ),
            (
                "extra that is none",
                json!({"username": "a", "extra": {"k": "v"}}),
                "spec.requester.extra[\"k\"]: has to be a list of strings",
            ),
        ] {
            assert_eq!(Requester::of(&spec), Err(expected.to_owned()), "{name}");
        }
    }
}
