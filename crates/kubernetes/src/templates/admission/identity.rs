//! Whom a spec names, beside who asks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::access::Identity;

/// Whether a requester says no more than a username that is known, or nothing at all: the rest is filled in. People
/// write `requester: {username: me}` by hand, and know neither their uid nor all of their groups. Taken by the letter
/// it would be somebody with none of their groups, whom nobody means.
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

/// The group that the API server adds to whoever is impersonated.
const AUTHENTICATED: &str = "system:authenticated";

/// The members in which somebody is another, as `spec.requester` has them; of another username only that. To be named
/// without [`AUTHENTICATED`] is to be the same: whoever is acted for has it.
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

/// What an API server adds to `extra`, from 1.30 on: which credential was shown. The next one is another, and whoever shows
/// it the same. What else it adds, of the pod of an account, may be what somebody is let in by.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// What is said of somebody in `extra` that is not of a credential.
fn lasting(of: &Identity) -> BTreeMap<String, Vec<String>> {
    let said = of.extra.iter().filter(|(key, values)| !values.is_empty() && *key != CREDENTIAL);
    said.map(|(key, values)| (key.clone(), values.clone())).collect()
}

/// Whether somebody is named of whom whoever asks is no less. To whoever is impersonated the API server adds groups
/// that everybody has, and older ones know no uid of them.
pub(super) fn is_had(named: &Identity, who: &Identity) -> bool {
    named.user == who.user
        && (who.uid.is_empty() || named.uid == who.uid)
        && lasting(named) == lasting(who)
        && named.groups.iter().all(|group| who.groups.contains(group))
}
