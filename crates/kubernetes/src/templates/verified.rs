//! That it was verified who ordered an instance.
//!
//! A resource does not say who made it, and whoever may make instances could name anybody. So whoever has verified
//! it (the webhook, the broker) says so in an annotation, sealed with a key of ours: for this namespace, name and
//! spec, and for the moment in which it is made.

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use ring::hmac;
use serde_json::Value;

use super::names::VERIFIED;
use super::resource::Instance;

/// How long an annotation may be older than its instance, or younger: clocks differ, and requests take time.
const APART: i64 = 120;

/// The annotation's value, for one that is made now.
pub fn seal(namespace: &str, name: &str, spec: &Value, now: Timestamp, key: &hmac::Key) -> String {
    let seconds = now.as_second();
    let tag = hmac::sign(key, &sealed(namespace, name, spec, seconds));
    format!("{seconds}.{}", HEXLOWER.encode(tag.as_ref()))
}

/// Checks that the requester of an instance is who ordered it.
///
/// # Errors
/// If nobody has verified it: what to do about it.
pub(super) fn check(instance: &Instance, key: &hmac::Key) -> Result<(), String> {
    let why = |why: &str| {
        Err(format!(
            "spec.requester: {why}: have it made through the webhook, which verifies it, or by the broker; or \
             start the controller with --requesters=trusted where whoever may create TemplateInstances may act \
             for anybody"
        ))
    };
    let Some(said) = instance.annotation(VERIFIED) else {
        return why("nobody has verified that this is who made it");
    };
    let parsed = said.split_once('.').and_then(|(seconds, tag)| {
        Some((seconds.parse().ok()?, HEXLOWER.decode(tag.as_bytes()).ok()?))
    });
    let Some((seconds, tag)) = parsed else {
        return why("the annotation that says that it was verified cannot be read");
    };
    let Instance { key: of, created_at, .. } = instance;
    if hmac::verify(key, &sealed(&of.namespace, &of.name, instance.spec(), seconds), &tag).is_err()
    {
        return why("what was verified is not what is there");
    }
    let apart = created_at.as_second().saturating_sub(seconds);
    match (-APART..=APART).contains(&apart) {
        true => Ok(()),
        false => why("what was verified is another, of the same name"),
    }
}

fn sealed(namespace: &str, name: &str, spec: &Value, seconds: i64) -> Vec<u8> {
    let mut text = format!("template-requester\0{namespace}\0{name}\0{seconds}\0").into_bytes();
    write(spec, &mut text);
    text
}

/// What a spec is, in 64 characters, however it is written.
pub(super) fn digest(spec: &Value) -> String {
    let mut text = Vec::new();
    write(spec, &mut text);
    HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, &text).as_ref())
}

/// A document as it is, however it is written: the API server keeps `1.0` as `1`, and large integers as floats.
fn write(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            to.push(b'{');
            // What is null is as good as absent.
            for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
                write_text(key, to);
                write(value, to);
            }
            to.push(b'}');
        }
        Value::Array(list) => {
            to.push(b'[');
            list.iter().for_each(|value| write(value, to));
            to.push(b']');
        }
        Value::String(text) => write_text(text, to),
        Value::Number(number) => {
            to.push(b'#');
            let number = number.as_f64().unwrap_or_default();
            to.extend(number.to_bits().to_be_bytes());
        }
        Value::Bool(truth) => to.push(if *truth { b't' } else { b'f' }),
        Value::Null => to.push(b'n'),
    }
}

fn write_text(text: &str, to: &mut Vec<u8>) {
    to.push(b'"');
    to.extend((text.len() as u64).to_be_bytes());
    to.extend(text.as_bytes());
}
