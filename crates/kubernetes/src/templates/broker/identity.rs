//! The requester: the originating identity that a platform sends with each request, which is mandatory here.

use std::collections::BTreeMap;

use osb::{Error, OriginatingIdentity};
use serde_json::Value;

use crate::access::Identity;
use crate::templates::requester::Requester;

/// The only platform whose identities are accepted.
const PLATFORM: &str = "kubernetes";

/// The requester that an identity names. Members may begin with capital letters: Go's decoder accepts them, and
/// OpenShift's own client sends them so.
///
/// # Errors
/// 400, in the words of OpenShift's broker, if there is no identity, or none of Kubernetes.
pub(super) fn requester(identity: Option<&OriginatingIdentity>) -> Result<Requester, Error> {
    let wrong = |why: &str| {
        Error::bad_request(format!(
            "couldn't parse X-Broker-API-Originating-Identity header: {why}"
        ))
    };
    let identity = identity.ok_or_else(|| wrong("it is mandatory for templates"))?;
    if !identity.platform.eq_ignore_ascii_case(PLATFORM) {
        return Err(wrong("the platform has to be kubernetes"));
    }
    let value = identity.value.expose();
    for name in ["username", "uid", "groups", "extra"] {
        // Another reader might take the spelling that is ignored here.
        if value.keys().filter(|key| key.eq_ignore_ascii_case(name)).count() > 1 {
            return Err(wrong(&format!("{name} is there more than once")));
        }
    }
    let member = |name: &str| {
        let found = value.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|it| it.1);
        found.filter(|value| !value.is_null())
    };
    let text = |name: &str| match member(name) {
        None => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(wrong(&format!("{name} has to be a string"))),
    };
    let list = |name: &str, value: &Value| -> Result<Vec<String>, Error> {
        let fault = || wrong(&format!("{name} has to be a list of strings"));
        let items = value.as_array().ok_or_else(fault)?;
        items.iter().map(|it| it.as_str().map(str::to_owned).ok_or_else(fault)).collect()
    };
    let groups = member("groups").map_or(Ok(Vec::new()), |groups| list("groups", groups))?;
    let mut extra = BTreeMap::new();
    match member("extra") {
        None => {}
        Some(Value::Object(members)) => {
            for (key, values) in members.iter().filter(|(_, values)| !values.is_null()) {
                extra.insert(key.clone(), list("extra", values)?);
            }
        }
        Some(_) => return Err(wrong("extra has to be a map")),
    }
    let identity = Identity { user: text("username")?, uid: text("uid")?, groups, extra };
    Requester::new(identity).map_err(|why| wrong(&why))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(platform: &str, value: Value) -> Result<Identity, String> {
        let value = value.as_object().unwrap().clone();
        let identity = OriginatingIdentity { platform: platform.to_owned(), value: value.into() };
        requester(Some(&identity)).map(|it| it.identity).map_err(|error| error.to_string())
    }

    #[test]
    fn both_spellings_are_taken() {
        let expected = Identity {
            user: "alice".to_owned(),
            uid: "7".to_owned(),
            groups: vec!["a".to_owned()],
            extra: BTreeMap::from([("k".to_owned(), vec!["v".to_owned()])]),
        };
        for value in [
            json!({"username": "alice", "uid": "7", "groups": ["a"], "extra": {"k": ["v"]}}),
            json!({"Username": "alice", "UID": "7", "Groups": ["a"], "Extra": {"k": ["v"]}}),
        ] {
            assert_eq!(of("Kubernetes", value).unwrap(), expected);
        }
        let empty = json!({"username": "alice", "Groups": null, "extra": null});
        assert_eq!(of("kubernetes", empty).unwrap().groups, Vec::<String>::new());
    }

    #[test]
    fn what_is_no_identity_of_kubernetes_is_refused() {
        assert!(requester(None).is_err(), "it is mandatory");
        for (platform, value, expected) in [
            ("cloudfoundry", json!({"user_id": "7"}), "the platform has to be kubernetes"),
            ("kubernetes", json!({}), "spec.requester.username: Required value"),
            ("kubernetes", json!({"username": 7}), "username has to be a string"),
            (
                "kubernetes",
                json!({"username": "a", "Username": "b"}),
                "username is there more than once",
            ),
            ("kubernetes", json!({"username": "a", "groups": "b"}), "groups has to be a list"),
            ("kubernetes", json!({"username": "a", "extra": []}), "extra has to be a map"),
        ] {
            let said = of(platform, value).unwrap_err();
            assert!(said.contains(expected), "{said}");
        }
    }
}
