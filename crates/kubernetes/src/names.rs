//! Names of resources, labels and annotations.
//!
//! The platform chooses ids: up to 1,024 bytes of anything. Names are derived from a hash of them, so that any id can
//! be kept, and none can be chosen to collide with another's resource; the ids themselves are in the spec.

use data_encoding::BASE32_NOPAD;
use engine::record::Key;
use kube::api::ObjectMeta;
use ring::digest::{Context, Digest, SHA256};
use ring::rand::{SecureRandom, SystemRandom};

/// The group of our resources, and the prefix of our labels and annotations.
pub const GROUP: &str = "manciple.dev";
/// The version of our resources.
pub const VERSION: &str = "v1alpha1";
/// The label of the broker that a resource belongs to.
pub const BROKER: &str = "manciple.dev/broker";
/// The label with the home namespace of the broker of a Job, a pod or its Secret, because brokers of the same name may
/// have theirs in the same namespace.
pub const HOME: &str = "manciple.dev/home";
/// The label of a resource with the name of its instance's resource.
pub const INSTANCE: &str = "manciple.dev/instance";
/// The label that says what a ConfigMap is kept for.
pub(crate) const KEEPS: &str = "manciple.dev/keeps";
/// The value of [`KEEPS`] for a saved catalog.
pub(crate) const KEEPS_CATALOG: &str = "catalog";
/// The annotation with the name of the broker whose catalog a ConfigMap keeps.
pub(crate) const BROKER_NAME: &str = "manciple.dev/broker-name";
/// The annotation with a record as it was first written, superseded by `status.record`.
pub const RECORD: &str = "manciple.dev/record";
/// The annotation that says when the newest key of a Secret of keys was made (RFC 3339).
pub(crate) const ROTATED: &str = "manciple.dev/rotated";
/// The annotation with the id of the key before the newest.
pub(crate) const FORMER_KEY: &str = "manciple.dev/former-key";
/// The annotation that changes when a record's Secret is tidied up, so that all writes in progress fail.
pub(crate) const TIDIED: &str = "manciple.dev/tidied";
/// The finalizer that holds a resource until its instance or binding is gone.
pub const FINALIZER: &str = "manciple.dev/deprovision";
/// The standard label that says who manages a resource, and its value.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "manciple");

/// The name of a record's resource and of its Secret: `instance-` or `binding-` and 26 characters of
/// base32(SHA-256(broker, instance, binding)), 130 bits.
pub fn resource(broker: &str, key: &Key) -> String {
    let (kind, binding) = match key {
        Key::Instance(_) => ("instance", None),
        Key::Binding(_, binding) => ("binding", Some(binding.as_str())),
    };
    let parts = [Some(broker), Some(key.instance().as_str()), binding];
    format!("{kind}-{}", hash(parts.into_iter().flatten()))
}

/// The annotation of Jobs that keeps Stakater's Reloader from making them anew under their names when what they mount
/// has changed.
pub(crate) const RELOADER: (&str, &str) = ("reloader.stakater.com/auto", "false");

/// The value of the label [`BROKER`], because a label cannot hold any text: 26 characters of base32(SHA-256(broker)).
pub(crate) fn broker_label(broker: &str) -> String {
    hash([broker])
}

/// Whether a Job or a pod with the label of a broker belongs to the broker with this home. Earlier releases did not
/// note that.
pub(crate) fn is_at_home(metadata: &ObjectMeta, home: &str) -> bool {
    let said = metadata.labels.as_ref().and_then(|labels| labels.get(HOME));
    said.is_none_or(|said| said == home)
}

/// The name of the ConfigMap and the Secret with the catalog of a broker, by the broker's label.
pub(crate) fn catalog(label: &str) -> String {
    format!("catalog-{label}")
}

/// The name of the Secret with the keys for a broker's reports, by the broker's label.
pub(crate) fn keys(label: &str) -> String {
    format!("keys-{label}")
}

/// A unique word of 80 random bits; `None` if there are no random numbers.
pub(crate) fn random_word() -> Option<String> {
    let mut bytes = [0; 10];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(BASE32_NOPAD.encode(&bytes).to_ascii_lowercase())
}

/// The name of the ConfigMap of an agent: `agent-` and 26 characters of base32(SHA-256(content)).
pub fn agent(content: &[u8]) -> String {
    format!("agent-{}", hash([content]))
}

pub(crate) fn hash<'a, T: AsRef<[u8]> + ?Sized + 'a>(
    parts: impl IntoIterator<Item = &'a T>,
) -> String {
    let mut encoded = BASE32_NOPAD.encode(digest(parts).as_ref());
    encoded.truncate(26);
    encoded.make_ascii_lowercase();
    encoded
}

/// The digest of parts, each after its length, so that no other parts have the same.
pub(crate) fn digest<'a, T: AsRef<[u8]> + ?Sized + 'a>(
    parts: impl IntoIterator<Item = &'a T>,
) -> Digest {
    let mut hash = Context::new(&SHA256);
    for part in parts {
        let part = part.as_ref();
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finish()
}

#[cfg(test)]
mod tests {
    use osb::{BindingId, InstanceId};

    use super::*;

    #[test]
    fn names_are_those_under_which_there_is_something() {
        let instance = InstanceId::new("a").unwrap();
        let binding = Key::Binding(instance.clone(), BindingId::new("c").unwrap());
        for (name, expected) in [
            (resource("b", &Key::Instance(instance)), "instance-thpp7fyfghlswvemzkfnyqk62e"),
            (resource("b", &binding), "binding-jpsalfzsjhwofwouvi2vtg2tpn"),
            (broker_label("b"), "lrjvqxw5t3bjn5ktp4a77hsh4k"),
            (agent(b"x"), "agent-akhq35nylfx3zuims4qlpjdyj6"),
        ] {
            assert_eq!(name, expected);
        }
    }

    #[test]
    fn names_are_apart_and_fit() {
        let instance = |id: &str| Key::Instance(InstanceId::new(id).unwrap());
        let binding = |instance: &str, id: &str| {
            Key::Binding(InstanceId::new(instance).unwrap(), BindingId::new(id).unwrap())
        };
        let long = "x".repeat(osb::MAX_ID_BYTES);
        let keys = [
            ("b", instance("a")),
            ("b", instance("A")),
            ("c", instance("a")),
            ("b", binding("a", "b")),
            ("b", binding("b", "a")),
            ("b", binding("ab", "c")),
            ("b", binding("a", "bc")),
            ("b", instance(&long)),
            ("b", instance("../../etc")),
            ("b", instance("\u{202E}\u{1F980}")),
        ];
        let mut names: Vec<_> = keys.iter().map(|(broker, key)| resource(broker, key)).collect();
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        assert!(names.iter().all(|name| name.len() <= 40 && name.bytes().all(good)), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), keys.len());
    }
}
