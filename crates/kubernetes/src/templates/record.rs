//! The values of an instance's parameters, generated ones too: kept before the first object is made, so that nobody
//! ever makes a second password.
//!
//! They are a Secret beside the instance, which goes with it. Whoever may write Secrets there could write other
//! values, and have objects of them made in the requester's name: so it is sealed with a key of ours.

use std::collections::BTreeMap;

use data_encoding::{BASE64, HEXLOWER};
use k8s_openapi::api::core::v1::Secret;
use ring::hmac;
use serde_json::{Value, json};
use template::Parameter;

use super::names::{GROUP, Kind, VERSION};
use super::resource::Instance;
use crate::names::MANAGED_BY;

/// The key of the Secret's data that the values are in, as JSON.
const PARAMETERS: &str = "parameters";
/// The key that says that they are ours.
const SEAL: &str = "seal";

/// Names and values.
pub(super) type Values = BTreeMap<String, String>;

/// The name of the Secret of an instance.
pub(super) fn name(uid: &str) -> String {
    format!("template-instance-{uid}")
}

/// What is recorded of values.
pub(super) fn values(parameters: &[Parameter]) -> Values {
    parameters.iter().map(|it| (it.name.clone(), it.value.clone())).collect()
}

/// The Secret that keeps values.
pub(super) fn secret(instance: &Instance, values: &Values, key: &hmac::Key) -> Value {
    let kept = json!(values).to_string();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name(&instance.uid),
            "labels": {MANAGED_BY.0: MANAGED_BY.1},
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": Kind::TemplateInstance.name(),
                "name": &*instance.key.name,
                "uid": &*instance.uid,
                "controller": true,
            }],
        },
        "immutable": true,
        "data": {
            PARAMETERS: BASE64.encode(kept.as_bytes()),
            SEAL: BASE64.encode(HEXLOWER.encode(seal(instance, kept.as_bytes(), key).as_ref()).as_bytes()),
        },
    })
}

/// The values that a Secret keeps.
///
/// # Errors
/// If they are not what was recorded; it never has any of them.
pub(super) fn read(
    instance: &Instance,
    secret: &Secret,
    key: &hmac::Key,
) -> Result<Values, String> {
    let wrong = |why: &str| {
        format!("Secret {}: {why}: delete the instance, and order it anew", name(&instance.uid))
    };
    let of = |key: &str| secret.data.as_ref().and_then(|data| data.get(key));
    let (Some(kept), Some(seal)) = (of(PARAMETERS), of(SEAL)) else {
        return Err(wrong("it does not hold what was recorded in it"));
    };
    let seal = HEXLOWER.decode(&seal.0).unwrap_or_default();
    hmac::verify(key, &sealed(instance, &kept.0), &seal)
        .map_err(|_| wrong("somebody else has written it"))?;
    serde_json::from_slice(&kept.0).map_err(|_| wrong("it cannot be read"))
}

fn seal(instance: &Instance, kept: &[u8], key: &hmac::Key) -> hmac::Tag {
    hmac::sign(key, &sealed(instance, kept))
}

/// The values of one instance are not those of another.
fn sealed(instance: &Instance, kept: &[u8]) -> Vec<u8> {
    [b"template-parameters\0", instance.uid.as_bytes(), b"\0", kept].concat()
}
