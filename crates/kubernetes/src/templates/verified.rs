//! The annotation that proves who ordered an instance.
//!
//! A resource does not say who made it, and whoever may make instances could name anybody as requester. So whoever
//! verifies the requester (the webhook, the broker) notes that in an annotation, sealed with our key for the namespace,
//! name and spec, and for the moment of creation. The uid is not known then, so the moment stands for it: the seal of
//! one instance is not valid for a later one of the same name. A change is sealed for the moment in which the instance
//! was created, and for the generation that the change will have: so nobody can bring an earlier spec back together
//! with its former seal.

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use ring::hmac;
use serde_json::{Value, json};

use super::names::VERIFIED;
use super::record::Values;
use super::resource::Instance;

/// The generation of an instance that was never changed.
pub const FIRST: i64 = 1;

/// How many seconds an annotation may be older or younger than its instance: clocks differ, and requests take time.
const APART: i64 = 120;

/// Who vouches that the requester is the user who orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// The webhook, to which the API server tells the user. Anybody else who reaches the webhook can obtain a seal from
    /// it: so the webhook replaces such annotations in requests, and trusts none.
    Webhook,
    /// The broker, which has checked the requester's rights. Nobody else can obtain a seal from it: so the webhook
    /// trusts it, where the request comes from the requester whom it names.
    Broker,
}

impl Word {
    const ALL: [Self; 2] = [Self::Webhook, Self::Broker];

    /// The beginning of the annotation.
    fn prefix(self) -> &'static str {
        match self {
            Self::Webhook => "webhook.",
            Self::Broker => "broker.",
        }
    }
}

/// The value of the annotation for an instance that is made, or was made at `made_at` and has now been changed to this
/// spec. `generation` is what the API server will count: 1 for a new instance, one more with each change.
pub fn seal(
    word: Word,
    namespace: &str,
    name: &str,
    spec: &Value,
    (made_at, generation): (Timestamp, i64),
    key: &hmac::Key,
) -> String {
    let (prefix, of, seconds) = (word.prefix(), key_id(key), made_at.as_second());
    let tag = hmac::sign(key, &sealed(word, namespace, name, spec, (seconds, generation)));
    format!("{prefix}{of}.{seconds}.{}", HEXLOWER.encode(tag.as_ref()))
}

/// The value of the annotation for what the broker has verified; it also seals the parameter values, because others may
/// write their Secret before it is read.
pub(super) fn seal_order(
    namespace: &str,
    name: &str,
    spec: &Value,
    values: &Values,
    (made_at, generation): (Timestamp, i64),
    key: &hmac::Key,
) -> String {
    let sealed = seal(Word::Broker, namespace, name, spec, (made_at, generation), key);
    let moment = (made_at.as_second(), generation);
    let tag = hmac::sign(key, &given(namespace, name, values, moment));
    format!("{sealed}.{}", HEXLOWER.encode(tag.as_ref()))
}

/// An identifier of the key that does not reveal it.
fn key_id(key: &hmac::Key) -> String {
    let tag = hmac::sign(key, b"template-key");
    HEXLOWER.encode(tag.as_ref().get(..4).unwrap_or_default())
}

/// Whether an instance belongs to another Manciple, because it was verified with another key. It is left alone,
/// whatever becomes of it.
pub(super) fn is_of_another(instance: &Instance, key: &hmac::Key) -> bool {
    instance.annotation(VERIFIED).is_some_and(|said| is_with_another_key(said, key))
}

/// Whether an annotation was sealed with another key.
pub(super) fn is_with_another_key(annotation: &str, key: &hmac::Key) -> bool {
    read(annotation).is_some_and(|said| said.key != key_id(key))
}

/// Checks that the requester of an instance is the user who ordered it.
///
/// # Errors
/// If that was not verified; the message says what to do about it.
pub(super) fn check(instance: &Instance, key: &hmac::Key) -> Result<(), String> {
    let Instance { key: of, created_at, generation, .. } = instance;
    let said = instance.annotation(VERIFIED);
    let verified = said.ok_or("nobody has verified that this is who made it").and_then(|said| {
        let Said { word, seconds, tag, .. } =
            read(said).ok_or("the annotation that says that it was verified cannot be read")?;
        let moment = (seconds, (*generation).max(FIRST));
        let sealed = sealed(word, &of.namespace, &of.name, instance.spec(), moment);
        hmac::verify(key, &sealed, &tag).map_err(|_| "what was verified is not what is there")?;
        match is_near(seconds, *created_at) {
            true => Ok(()),
            false => Err("what was verified is another, of the same name"),
        }
    });
    verified.map_err(|why| {
        format!(
            "spec.requester: {why}: have it made through the webhook, which verifies it, or by the broker; or \
             start the controller with --requesters=trusted where whoever may create TemplateInstances may act \
             for anybody"
        )
    })
}

/// Checks that the values are those that the broker sealed, if the broker ordered the instance.
///
/// # Errors
/// If they are not; the message says what to do about it.
pub(super) fn check_values(
    instance: &Instance,
    values: &Values,
    key: &hmac::Key,
) -> Result<(), String> {
    let Instance { key: of, generation, .. } = instance;
    let said = instance.annotation(VERIFIED).and_then(read);
    let Some(Said { word: Word::Broker, seconds, values: tag, .. }) = said else { return Ok(()) };
    let given = given(&of.namespace, &of.name, values, (seconds, (*generation).max(FIRST)));
    match tag.is_some_and(|tag| hmac::verify(key, &given, &tag).is_ok()) {
        true => Ok(()),
        false => Err("spec.secret: somebody has changed what the broker was given: order it anew, and see who may write \
                      Secrets there"
            .to_owned()),
    }
}

/// Whether the broker has verified an instance that is about to be made, or a change of one that was made at `made_at`.
pub(super) fn is_ordered(
    annotation: &str,
    namespace: &str,
    name: &str,
    spec: &Value,
    (made_at, generation): (Timestamp, i64),
    key: &hmac::Key,
) -> bool {
    read(annotation).is_some_and(|Said { word, seconds, tag, .. }| {
        let sealed = sealed(word, namespace, name, spec, (seconds, generation));
        word == Word::Broker
            && is_near(seconds, made_at)
            && hmac::verify(key, &sealed, &tag).is_ok()
    })
}

/// The parsed annotation.
struct Said<'a> {
    word: Word,
    key: &'a str,
    seconds: i64,
    tag: Vec<u8>,
    /// The tag of the values.
    values: Option<Vec<u8>>,
}

fn read(annotation: &str) -> Option<Said<'_>> {
    let mut words = Word::ALL.into_iter();
    let (word, rest) =
        words.find_map(|word| Some((word, annotation.strip_prefix(word.prefix())?)))?;
    let (key, rest) = rest.split_once('.')?;
    let (seconds, tags) = rest.split_once('.')?;
    let mut tags = tags.splitn(2, '.').map(|tag| HEXLOWER.decode(tag.as_bytes()).ok());
    Some(Said {
        word,
        key,
        seconds: seconds.parse().ok()?,
        tag: tags.next()??,
        values: tags.next().map_or(Some(None), |tag| tag.map(Some))?,
    })
}

fn is_near(seconds: i64, at: Timestamp) -> bool {
    (-APART..=APART).contains(&at.as_second().saturating_sub(seconds))
}

/// Whether two documents are equal, however they are written: a seal of the one is valid for the other.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    let written = |value| {
        let mut text = Vec::new();
        write(value, &mut text);
        text
    };
    one == other || written(one) == written(other)
}

fn sealed(
    word: Word,
    namespace: &str,
    name: &str,
    spec: &Value,
    (seconds, generation): (i64, i64),
) -> Vec<u8> {
    let word = word.prefix();
    let said = format!("{word}\0{namespace}\0{name}\0{seconds}\0{generation}");
    let mut text = format!("template-requester\0{said}\0").into_bytes();
    write(spec, &mut text);
    text
}

fn given(
    namespace: &str,
    name: &str,
    values: &Values,
    (seconds, generation): (i64, i64),
) -> Vec<u8> {
    let said = format!("{namespace}\0{name}\0{seconds}\0{generation}");
    let mut text = format!("template-parameters\0{said}\0").into_bytes();
    write(&json!(values), &mut text);
    text
}

/// The SHA-256 digest of a spec, in 64 hexadecimal characters, the same however the spec is written.
pub(super) fn digest(spec: &Value) -> String {
    let mut text = Vec::new();
    write(spec, &mut text);
    HEXLOWER.encode(ring::digest::digest(&ring::digest::SHA256, &text).as_ref())
}

/// Writes a document in a canonical form: the API server keeps `1.0` as `1`, and large integers as floats.
fn write(value: &Value, to: &mut Vec<u8>) {
    match value {
        Value::Object(map) => {
            to.push(b'{');
            // A null member counts as absent.
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
