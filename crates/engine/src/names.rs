//! Names of operations and runs, derived from what is recorded.
//!
//! Every external effect has a name derived from what asked for it, so that two tries have one effect: of two replicas
//! that record an operation one succeeds, and a process that starts a run again after a crash finds the run that is
//! already there.

use std::fmt;

use osb::Action;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::key::Key;

/// The name of a run: one attempt of an operation, or one question after external work.
///
/// At most 63 characters of `[a-z0-9-]`, starting with a letter: a file name and a Kubernetes name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunName(String);

impl RunName {
    /// The name of the run of an attempt.
    pub fn attempt(operation: &str, attempt: u32) -> Self {
        Self(format!("{operation}-{attempt}"))
    }

    /// The name of the run of the `poll`th question after external work.
    pub fn poll(operation: &str, attempt: u32, poll: u32) -> Self {
        Self(format!("{operation}-{attempt}-p{poll}"))
    }

    /// Parses a name that somebody typed.
    ///
    /// `None` unless it has the form that this module gives names: it may become a path.
    pub fn parse(name: &str) -> Option<Self> {
        let good = !name.is_empty()
            && name.len() <= 63
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        good.then(|| Self(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id of a record's `sequence`th operation: the action and 26 characters of
/// base32(SHA-256(broker, instance, binding, sequence)), 130 bits.
pub fn operation_id(broker: &str, key: &Key, action: Action, sequence: u64) -> String {
    let mut hash = Context::new(&SHA256);
    let binding = key.binding().map_or("", osb::BindingId::as_str);
    for part in [broker, key.instance().as_str(), binding] {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.update(&[u8::from(key.binding().is_some())]);
    hash.update(&sequence.to_be_bytes());
    let mut encoded = data_encoding::BASE32_NOPAD.encode(hash.finish().as_ref());
    encoded.truncate(26);
    encoded.make_ascii_lowercase();
    format!("{action}-{encoded}")
}

/// Whether a token has the form of an [`operation_id`]: that of a platform which is moved here from another broker has
/// not.
pub(crate) fn is_operation_id(token: &str) -> bool {
    let Some((action, word)) = token.split_once('-') else { return false };
    let is_action = Action::ALL.iter().any(|known| known.as_str() == action);
    is_action && word.len() == 26 && word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'2'..=b'7'))
}

/// Whether a run is one of an operation's.
pub(crate) fn belongs(run: &str, operation: &str) -> bool {
    run.strip_prefix(operation).is_some_and(|rest| rest.starts_with('-'))
}

/// The hash by which two requests are compared: SHA-256 over the JSON with sorted keys, in hex.
///
/// It is kept only inside sealed records: a hash of a guessable parameter is as good as the parameter.
pub fn request_hash(request: &Value) -> String {
    let mut hash = Context::new(&SHA256);
    hash_value(&mut hash, request);
    data_encoding::HEXLOWER.encode(hash.finish().as_ref())
}

fn hash_value(hash: &mut Context, value: &Value) {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<_> = members.keys().collect();
            keys.sort_unstable();
            hash.update(b"{");
            for key in keys {
                hash_text(hash, key);
                hash_value(hash, &members[key]);
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            for item in items {
                hash_value(hash, item);
            }
            hash.update(b"]");
        }
        Value::String(text) => hash_text(hash, text),
        other => {
            hash.update(b"#");
            hash.update(other.to_string().as_bytes());
            hash.update(b";");
        }
    }
}

fn hash_text(hash: &mut Context, text: &str) {
    hash.update(b"\"");
    hash.update(&(text.len() as u64).to_be_bytes());
    hash.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use osb::{BindingId, InstanceId};

    use super::*;

    fn instance(id: &str) -> Key {
        Key::Instance(InstanceId::new(id).unwrap())
    }

    fn binding(instance: &str, id: &str) -> Key {
        Key::Binding(InstanceId::new(instance).unwrap(), BindingId::new(id).unwrap())
    }

    /// By other names what is in progress would be begun again, beside the runs that it has.
    #[test]
    fn names_are_those_under_which_there_is_something() {
        let provision = operation_id("b", &instance("i"), Action::Provision, 1);
        let attempt = RunName::attempt(&provision, 2).to_string();
        let poll = RunName::poll(&provision, 2, 3).to_string();
        for (name, expected) in [
            (provision, "provision-2ggc62ajfdm7vm4bbpfr2lhsw2"),
            (attempt, "provision-2ggc62ajfdm7vm4bbpfr2lhsw2-2"),
            (poll, "provision-2ggc62ajfdm7vm4bbpfr2lhsw2-2-p3"),
            (
                operation_id("b", &binding("i", "x"), Action::Bind, 2),
                "bind-vsokrzqyxyey3tmdtk2d5gotu3",
            ),
            (
                operation_id("b", &instance("\u{FC}"), Action::Deprovision, u64::MAX),
                "deprovision-biywpaouufblw7wcfgkpajaov3",
            ),
        ] {
            assert_eq!(name, expected);
        }
    }

    #[test]
    fn request_hashes_are_those_that_are_recorded() {
        let every = serde_json::json!({
            "size": 1, "tags": ["x", "\u{FC}"], "large": u64::MAX, "ratio": 0.5, "on": true,
            "none": null,
        });
        for (request, expected) in [
            (Value::Null, "dcd4759b76699ac4134a045973cf853914157da8da057048aff16f62167b0ad8"),
            (every, "f99feda2edd2692f01e8cf426c019abc15d83292e0f8c779f42c00e56a3f304d"),
        ] {
            assert_eq!(request_hash(&request), expected, "{request}");
        }
    }

    #[test]
    fn operation_ids_differ_in_every_part() {
        let ids = [
            operation_id("b", &instance("i"), Action::Provision, 1),
            operation_id("c", &instance("i"), Action::Provision, 1),
            operation_id("b", &instance("j"), Action::Provision, 1),
            operation_id("b", &instance("i"), Action::Provision, 2),
            operation_id("b", &binding("i", "x"), Action::Provision, 1),
            operation_id("b", &binding("ix", "y"), Action::Provision, 1),
            operation_id("b", &binding("i", "xy"), Action::Provision, 1),
        ];
        let distinct: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
    }

    #[test]
    fn run_names_are_file_and_kubernetes_names() {
        let hostile = instance("../../etc/passwd \u{1F980}\"';--");
        for action in Action::ALL {
            let id = operation_id("b", &hostile, action, u64::MAX);
            for name in [RunName::attempt(&id, u32::MAX), RunName::poll(&id, 99_999, 99_999)] {
                assert_eq!(RunName::parse(name.as_str()), Some(name.clone()), "{name}");
            }
        }
    }

    #[test]
    fn request_hashes_ignore_the_order_of_members_and_nothing_else() {
        use serde_json::json;
        let hash = |value: &Value| request_hash(value);
        let one: Value = serde_json::from_str(r#"{"a":1,"b":[true,null]}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b":[true,null],"a":1}"#).unwrap();
        assert_eq!(hash(&one), hash(&two));
        let others = [
            json!({"a": 1, "b": [null, true]}),
            json!({"a": "1", "b": [true, null]}),
            json!({"a": 1}),
            json!([["a"], []]),
            json!([["a", []]]),
            json!(["ab", "c"]),
            json!(["a", "bc"]),
        ];
        let distinct: std::collections::BTreeSet<_> =
            others.iter().chain([&one]).map(hash).collect();
        assert_eq!(distinct.len(), others.len() + 1);
    }

    #[test]
    fn names_that_would_leave_a_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "A", "-a", "1a", "a\0", &"a".repeat(64)] {
            assert_eq!(RunName::parse(name), None, "{name:?}");
        }
    }
}
