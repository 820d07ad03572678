//! What an instance was begun with: the values of its parameters, generated ones too, and in whose name. Kept before
//! the first object is made, so that nobody ever makes a second password.
//!
//! It is a Secret beside the instance, which goes with it. Whoever may write Secrets there could write other values,
//! or another requester, and have objects made or removed in somebody else's name: so it is sealed with a key of ours,
//! and what is removed is removed by what it says, not by what the instance says later.

use std::collections::BTreeMap;

use data_encoding::{BASE64, HEXLOWER};
use k8s_openapi::api::core::v1::Secret;
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use template::Parameter;

use super::names::{GROUP, HOLDS_RECORD, Kind, VERSION};
use super::resource::{Instance, Key};
use super::verified;
use crate::names::MANAGED_BY;

/// The key of the Secret's data that it is in, as JSON.
const RECORD: &str = "record";
/// The key that says that it is ours.
const SEAL: &str = "seal";

/// Names and values.
pub(super) type Values = BTreeMap<String, String>;

/// What an instance was begun with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    /// The values of parameters.
    pub(super) parameters: Values,
    /// As `spec.requester` had it.
    pub(super) requester: Value,
    /// What the spec was, by its digest.
    pub(super) spec: String,
    /// What the template says to whoever instantiates it: it may have values in it.
    #[serde(default)]
    pub(super) message: String,
}

impl Record {
    pub(super) fn of(instance: &Instance, parameters: &[Parameter], message: String) -> Self {
        Self {
            parameters: parameters.iter().map(|it| (it.name.clone(), it.value.clone())).collect(),
            requester: instance.spec()["requester"].clone(),
            spec: verified::digest(instance.spec()),
            message,
        }
    }

    /// Whether it says that nothing is to be made any more.
    pub(super) fn is_withdrawn(&self) -> bool {
        self.spec.is_empty()
    }

    /// Whether the spec is still what it was.
    pub(super) fn is_of(&self, instance: &Instance) -> bool {
        self.spec == verified::digest(instance.spec())
    }
}

/// The name of the Secret of an instance.
pub(super) fn name(uid: &str) -> String {
    format!("template-instance-{uid}")
}

/// The Secret that keeps a record.
pub(super) fn secret(of: &Key, record: &Record, key: &hmac::Key) -> Value {
    let kept = json!(record).to_string();
    let seal = HEXLOWER.encode(hmac::sign(key, &sealed(of, kept.as_bytes())).as_ref());
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name(&of.uid),
            "labels": {MANAGED_BY.0: MANAGED_BY.1},
            // A namespace that goes takes Secrets first: not this one, before what it says is removed.
            "finalizers": [HOLDS_RECORD],
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": Kind::TemplateInstance.name(),
                "name": &*of.name,
                "uid": &*of.uid,
                "controller": true,
            }],
        },
        "immutable": true,
        "data": {
            RECORD: BASE64.encode(kept.as_bytes()),
            SEAL: BASE64.encode(seal.as_bytes()),
        },
    })
}

/// What takes the place of a record where there is none, so that nobody makes one any more. Nothing holds it.
pub(super) fn withdrawn(of: &Key, key: &hmac::Key) -> Value {
    let record = Record {
        parameters: Values::new(),
        requester: Value::Null,
        spec: String::new(),
        message: String::new(),
    };
    let mut secret = secret(of, &record, key);
    if let Some(metadata) = secret["metadata"].as_object_mut() {
        metadata.remove("finalizers");
    }
    secret
}

/// What a Secret keeps.
///
/// # Errors
/// If it is not what was recorded; it never has any of it.
pub(super) fn read(of: &Key, secret: &Secret, key: &hmac::Key) -> Result<Record, String> {
    let wrong = |why: &str| {
        format!("Secret {}: {why}: delete the instance, and order it anew", name(&of.uid))
    };
    let data = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    let (Some(kept), Some(seal)) = (data(RECORD), data(SEAL)) else {
        return Err(wrong("it does not hold what was recorded in it"));
    };
    let seal = HEXLOWER.decode(&seal.0).unwrap_or_default();
    hmac::verify(key, &sealed(of, &kept.0), &seal)
        .map_err(|_| wrong("somebody else has written it"))?;
    serde_json::from_slice(&kept.0).map_err(|_| wrong("it cannot be read"))
}

/// That an object which nothing owns is of an instance: an annotation that nobody can copy to another.
pub(super) fn mark(of: &Key, resource: &str, place: &str, key: &hmac::Key) -> String {
    let text = format!("template-object\0{}\0{resource}\0{place}", of.uid);
    HEXLOWER.encode(hmac::sign(key, text.as_bytes()).as_ref())
}

/// The record of one instance is not that of another.
fn sealed(of: &Key, kept: &[u8]) -> Vec<u8> {
    [b"template-record\0", of.uid.as_bytes(), b"\0", kept].concat()
}
