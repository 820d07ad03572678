//! Decides whether an object belongs to an instance.
//!
//! Others may have written what a status names, and anybody can copy a label. So whoever reads, changes or removes an
//! object checks what the object itself bears:
//!
//! ```text
//!                                    to be read                      to be changed or removed
//! in the namespace of the instance   owner's reference, or label     owner's reference and label
//! anywhere else                      mark                            mark and label
//! ```
//!
//! A mark is sealed for one object. Whoever may write an owner reference or a label of an object may read it, too.

use kube::discovery::ApiResource;
use ring::hmac;
use serde_json::Value;

use super::kinds::ServedKind;
use super::names::{MARK, OWNER};
use super::plan::mark;
use super::resource::Key;
use super::status::Made;

/// What an object has to bear to count as the instance's.
#[derive(Clone, Copy)]
pub(super) struct Ours<'a> {
    of: &'a Key,
    seal: &'a hmac::Key,
    is_read: bool,
}

impl<'a> Ours<'a> {
    /// The strict check, for objects that are changed or removed. `seal`: the sealing key.
    pub(super) fn of(of: &'a Key, seal: &'a hmac::Key) -> Self {
        Self { of, seal, is_read: false }
    }

    /// The lenient check, for objects that are only read. An object that lost its label still exists; and OpenShift's
    /// controller sets only a label.
    pub(super) fn to_read(of: &'a Key, seal: &'a hmac::Key) -> Self {
        Self { of, seal, is_read: true }
    }

    /// Whether an object that was found is the instance's.
    pub(super) fn is(
        &self,
        served: &ServedKind,
        namespace: Option<&str>,
        name: &str,
        found: &Value,
    ) -> bool {
        let is_labelled = found["metadata"]["labels"][OWNER] == *self.of.uid;
        let in_place = namespace == Some(&*self.of.namespace);
        let is_marked = || {
            let said = found["metadata"]["annotations"][MARK].as_str().unwrap_or_default();
            let ApiResource { group, plural, .. } = &served.resource;
            let of_group = |group| mark(self.of, [plural, group], namespace, name, self.seal);
            groups(group).any(|group| of_group(group) == said)
        };
        let is_proven = if in_place { is_owned(self.of, found) } else { is_marked() };
        match self.is_read {
            true => is_proven || (in_place && is_labelled),
            false => is_proven && is_labelled,
        }
    }

    /// Whether the object that was found in the place of `made` is that object, and the instance's.
    pub(super) fn has_made(&self, served: &ServedKind, made: &Made, found: &Value) -> bool {
        let namespace = Some(&*made.namespace).filter(|_| served.is_namespaced);
        found["metadata"]["uid"] == *made.uid
            && served.can_be_in(&made.namespace)
            && self.is(served, namespace, &made.name, found)
    }
}

/// A group, and another one that serves, or served, the same objects.
fn groups(group: &str) -> impl Iterator<Item = &str> {
    let former = match group {
        "apps" | "networking.k8s.io" | "policy" => Some("extensions"),
        "events.k8s.io" => Some(""),
        "extensions" => None,
        group if group.ends_with(".openshift.io") => Some(""),
        _ => None,
    };
    [group].into_iter().chain(former)
}

/// Whether Kubernetes collects an object when the instance is gone.
pub(super) fn is_owned(of: &Key, found: &Value) -> bool {
    let owners = found["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().any(|owner| owner["uid"] == *of.uid)
}
