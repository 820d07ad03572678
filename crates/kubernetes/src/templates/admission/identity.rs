//! Compares the requester that a spec names with the user who makes the request.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::access::Identity;

/// Whether a requester names no more than the known username, or nothing at all: the rest is filled in. People write
/// `requester: {username: me}` by hand, and know neither their uid nor all of their groups. Taken literally it would be
/// a user with none of their groups, whom nobody means.
pub(super) fn is_left_open(requester: &Value, username: Option<&str>) -> bool {
    let Some(members) = requester.as_object() else { return requester.is_null() };
    let is_said = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Bool(_) | Value::Number(_) => true,
    };
    let mut said = members.iter().filter(|(_, value)| is_said(value));
    let only = (said.next(), said.next());
    matches!(only, (Some((member, Value::String(name))), None)
        if member == "username" && Some(name.as_str()) == username)
}

/// The group that the API server adds to every impersonated user.
const AUTHENTICATED: &str = "system:authenticated";

/// The members in which two identities differ, as `spec.requester` names them; of another username only that. A missing
/// [`AUTHENTICATED`] is no difference: every impersonated user gets it.
pub(super) fn differences(named: &Identity, who: &Identity) -> Vec<&'static str> {
    if named.user != who.user {
        return vec!["username"];
    }
    let set = |groups: &[String]| groups.iter().cloned().collect::<BTreeSet<String>>();
    let (named_groups, mut groups) = (set(&named.groups), set(&who.groups));
    if !named_groups.contains(AUTHENTICATED) {
        groups.remove(AUTHENTICATED);
    }
    let differ = [
        ("uid", named.uid != who.uid),
        ("groups", named_groups != groups),
        ("extra", lasting(named) != lasting(who)),
    ];
    differ.into_iter().filter_map(|(member, differs)| differs.then_some(member)).collect()
}

/// The key of `extra` by which the API server, from Kubernetes 1.30 on, tells which credential was shown. The same user
/// may show another one next time. What else it adds, such as the pod of a service account, may be what rights depend
/// on.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// The entries of a user's `extra` that do not depend on the credential.
fn lasting(of: &Identity) -> BTreeMap<String, Vec<String>> {
    let said = of.extra.iter().filter(|(key, values)| !values.is_empty() && *key != CREDENTIAL);
    said.map(|(key, values)| (key.clone(), values.clone())).collect()
}

/// Whether the user who asks has everything that the named identity has. The API server adds groups that everybody has
/// to an impersonated user, and older ones do not know the uid.
pub(super) fn is_had(named: &Identity, who: &Identity) -> bool {
    named.user == who.user
        && (who.uid.is_empty() || named.uid == who.uid)
        && lasting(named) == lasting(who)
        && named.groups.iter().all(|group| who.groups.contains(group))
}
