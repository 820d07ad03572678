//! Reads documents written by others, so that nothing in one keeps the others from being read.
//!
//! A document may be nested deeper than our decoder goes, which would refuse the whole list that it is in. So parts are
//! taken as text first, and each is parsed alone.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osb::weight::weigh;
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// How many bytes of memory a parsed document of somebody else may take. A megabyte of an API server's own OpenAPI
/// document takes some six million of them, and etcd takes 1.5 MB.
pub(crate) const HEAVIEST: usize = 16 << 20;

/// Why a part is not read; the message follows the name of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum Unread {
    /// The part is nested deeper than our decoder goes.
    #[error("is nested more than 127 levels deep: make it flatter")]
    TooDeep,
    /// The part would take too much memory.
    #[error("would take more than {} MiB of memory: let it have fewer maps and lists", HEAVIEST >> 20)]
    TooHeavy,
}

/// Parses a part; null if there is none.
///
/// # Errors
/// If the part is too deep or too heavy.
pub(crate) fn part(raw: Option<&RawValue>) -> Result<Value, Unread> {
    let Some(raw) = raw else { return Ok(Value::Null) };
    if weigh(raw.get().as_bytes()) > HEAVIEST {
        return Err(Unread::TooHeavy);
    }
    serde_json::from_str(raw.get()).map_err(|_| Unread::TooDeep)
}

/// Parses metadata, for `deserialize_with`. Without `managedFields`: they are as deep as the rest, and nobody reads
/// them.
///
/// # Errors
/// If it is no metadata.
pub(crate) fn metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let mut members = BTreeMap::<String, Box<RawValue>>::deserialize(from)?;
    members.remove("managedFields");
    let read = |(name, raw): (String, Box<RawValue>)| Some((name, part(Some(&raw)).ok()?));
    let members: Map<String, Value> = members.into_iter().filter_map(read).collect();
    ObjectMeta::deserialize(Value::Object(members)).map_err(D::Error::custom)
}

/// Implements what the client needs for a namespaced kind that is read in parts beside its `metadata`.
macro_rules! resource {
    ($seen:ty, $group:expr, $version:expr, $kind:expr, $plural:expr) => {
        impl kube::Resource for $seen {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use resource;

/// An object as it was read.
pub(crate) struct Object {
    pub(crate) object: Value,
    /// Why something of it was left out, `managedFields` apart.
    pub(crate) unread: Option<Unread>,
    /// Why these were left out: few read them, and they are as deep and as heavy as the rest.
    pub(crate) fields: Option<Unread>,
}

/// An object of whatever kind, without what of it is nested too deep or too heavy: a part, or one of its metadata. All of
/// it takes no more than [`HEAVIEST`].
///
/// # Errors
/// If the text is no object.
pub(crate) fn object(text: &str) -> serde_json::Result<Object> {
    // Nearly all are light, and flat.
    if weigh(text.as_bytes()) <= HEAVIEST
        && let Ok(object) = serde_json::from_str(text)
    {
        return Ok(Object { object, unread: None, fields: None });
    }
    let mut parts: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
    let mut room = Room::default();
    let mut object = Map::new();
    let fields = parts.remove("metadata").and_then(|metadata| {
        let (metadata, fields) = room.metadata(metadata);
        object.insert("metadata".to_owned(), Value::Object(metadata));
        fields
    });
    object.extend(room.parts(parts));
    let unread = room.unread.take();
    let fields = fields.and_then(|raw| room.part(raw));
    if let (Some(fields), Some(metadata)) = (fields, object.get_mut("metadata")) {
        metadata["managedFields"] = fields;
    }
    Ok(Object { object: Value::Object(object), unread, fields: room.unread })
}

/// What identifies an object: its kind, and its metadata but for `managedFields` and what is nested too deep or too heavy.
///
/// # Errors
/// If it is no object.
pub(crate) fn head(text: &str) -> serde_json::Result<Value> {
    let mut parts: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
    let metadata = parts.remove("metadata");
    parts.retain(|name, _| matches!(name.as_str(), "apiVersion" | "kind"));
    let mut room = Room::default();
    let mut head: Map<String, Value> = room.parts(parts).collect();
    if let Some(metadata) = metadata {
        head.insert("metadata".to_owned(), Value::Object(room.metadata(metadata).0));
    }
    Ok(Value::Object(head))
}

/// What somebody wants an object to be: all of it but its status, which others write, and `managedFields`; null if there is
/// none.
///
/// # Errors
/// If a part of that is not read.
pub(crate) fn desired(raw: Option<&RawValue>) -> Result<Value, Unread> {
    let Some(raw) = raw else { return Ok(Value::Null) };
    let Ok(mut parts) = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get()) else {
        return part(Some(raw));
    };
    parts.remove("status");
    let mut room = Room::default();
    let metadata = parts.get("metadata").filter(|raw| raw.get().starts_with('{'));
    let metadata = metadata.map(|raw| room.metadata(raw).0);
    if metadata.is_some() {
        parts.remove("metadata");
    }
    let mut desired: Map<String, Value> = room.parts(parts).collect();
    desired.extend(metadata.map(|it| ("metadata".to_owned(), Value::Object(it))));
    room.unread.map_or(Ok(Value::Object(desired)), Err)
}

/// What there is room for of an object, in bytes, and why something of it was left out.
struct Room {
    left: usize,
    unread: Option<Unread>,
}

impl Default for Room {
    fn default() -> Self {
        Self { left: HEAVIEST, unread: None }
    }
}

impl Room {
    /// A part, if it is read.
    fn part(&mut self, raw: &RawValue) -> Option<Value> {
        let weight = weigh(raw.get().as_bytes());
        let read = match weight > self.left {
            true => Err(Unread::TooHeavy),
            false => part(Some(raw)),
        };
        match read {
            Ok(part) => {
                self.left -= weight;
                Some(part)
            }
            Err(why) => {
                self.unread = self.unread.max(Some(why));
                None
            }
        }
    }

    /// Those of some parts that are read.
    fn parts(
        &mut self,
        parts: BTreeMap<String, &RawValue>,
    ) -> impl Iterator<Item = (String, Value)> {
        parts.into_iter().filter_map(|(name, raw)| Some((name, self.part(raw)?)))
    }

    /// Those of metadata, and `managedFields`, which are not read.
    fn metadata<'a>(&mut self, raw: &'a RawValue) -> (Map<String, Value>, Option<&'a RawValue>) {
        let mut members: BTreeMap<String, &RawValue> =
            serde_json::from_str(raw.get()).unwrap_or_default();
        let fields = members.remove("managedFields");
        (self.parts(members).collect(), fields)
    }
}

/// How many bytes a piece of a too heavy part may take to be kept whole.
const LIGHT: usize = 64 << 10;
/// How many bytes an element of a list, such as a container, may take to be kept whole.
const LIGHT_IN_LIST: usize = 2 << 10;
/// The limits for pieces that are too heavy: longer lists are left out, and so are maps of more members, and deeper
/// levels.
const LIST: usize = 32;
const MAP: usize = 1000;
const LEVELS: usize = 8;

/// Parses an object without its metadata, and without what makes it heavy: of a part that takes more than half of
/// [`HEAVIEST`] large pieces are left out, and small ones stay where they are. Takes some 20 MiB at most. `None` if it
/// is no object.
pub(crate) fn gist(text: &str) -> Option<Value> {
    let mut parts: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    parts.remove("metadata");
    let read = |(name, raw): (String, &RawValue)| {
        let read = match weigh(raw.get().as_bytes()) > HEAVIEST / 2 {
            true => light(raw, LIGHT, LEVELS, true),
            false => part(Some(raw)).ok(),
        };
        Some((name, read?))
    };
    Some(Value::Object(parts.into_iter().filter_map(read).collect()))
}

/// The pieces of a part that take no more than `room` bytes, down to this many levels, entering a list once.
fn light(raw: &RawValue, room: usize, levels: usize, enters_lists: bool) -> Option<Value> {
    let text = raw.get();
    if weigh(text.as_bytes()) <= room {
        return serde_json::from_str(text).ok();
    }
    let levels = levels.checked_sub(1)?;
    if text.starts_with('[') {
        // The elements are counted before memory is allocated for them.
        let count = serde_json::from_str::<Vec<IgnoredAny>>(text).ok()?.len();
        if !enters_lists || count > LIST {
            return None;
        }
        let elements: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let read = |raw: &RawValue| light(raw, LIGHT_IN_LIST, levels, false);
        return Some(Value::Array(elements.into_iter().filter_map(read).collect()));
    }
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    if members.len() > MAP {
        return None;
    }
    let read =
        |(name, raw): (String, &RawValue)| Some((name, light(raw, room, levels, enters_lists)?));
    Some(Value::Object(members.into_iter().filter_map(read).collect()))
}

/// Whether a document has more levels than `levels`.
pub(crate) fn is_deeper(document: &Value, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else { return true };
    match document {
        Value::Object(map) => map.values().any(|value| is_deeper(value, levels)),
        Value::Array(list) => list.iter().any(|value| is_deeper(value, levels)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Deserialize)]
    struct Read {
        #[serde(deserialize_with = "metadata")]
        metadata: ObjectMeta,
        spec: Box<RawValue>,
    }

    fn deep(levels: usize) -> String {
        format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels))
    }

    #[test]
    fn of_an_object_is_read_what_is_not_nested_too_deep() {
        for (name, fields, spec, expected) in [
            ("flat", 2, 2, json!(["metadata.name", "metadata.managedFields", "spec", "kind"])),
            ("its fields", 500, 2, json!(["metadata.name", "spec", "kind"])),
            ("a part", 2, 100_000, json!(["metadata.name", "metadata.managedFields", "kind"])),
            ("both", 500, 500, json!(["metadata.name", "kind"])),
        ] {
            let metadata = format!(r#"{{"name":"a","managedFields":[{}]}}"#, deep(fields));
            let text = format!(r#"{{"kind":"K","metadata":{metadata},"spec":{}}}"#, deep(spec));
            let Object { object: read, unread, fields: unread_fields } = object(&text).unwrap();
            let why = |levels: usize| match levels {
                0..=2 => None,
                3..=500 => Some(Unread::TooDeep),
                _ => Some(Unread::TooHeavy),
            };
            assert_eq!((unread, unread_fields), (why(spec), why(fields)), "{name}");
            let of = |path: &str| read.pointer(&format!("/{}", path.replace('.', "/"))).is_some();
            let paths = ["metadata.name", "metadata.managedFields", "spec", "kind"];
            let found: Vec<&str> = paths.into_iter().filter(|path| of(path)).collect();
            assert_eq!(json!(found), expected, "{name}");
        }
        assert!(object("[1").is_err() && object("{").is_err());
    }

    #[test]
    fn of_an_object_is_read_what_is_not_too_heavy() {
        let maps = |count: usize| format!("[{}{{}}]", r#"{"":0},"#.repeat(count));
        let (light, half, heavy) = (maps(10), maps(15_000), maps(200_000));
        let too_heavy = Some(Unread::TooHeavy);
        for (name, fields, spec, status, expected, unread) in [
            ("light", &light, &light, &light, vec!["fields", "spec", "status"], (None, None)),
            ("its fields", &heavy, &light, &light, vec!["spec", "status"], (None, too_heavy)),
            ("a part", &light, &heavy, &light, vec!["fields", "status"], (too_heavy, None)),
            ("both halves", &light, &half, &half, vec!["fields", "spec"], (too_heavy, None)),
            ("all of it", &heavy, &heavy, &heavy, vec![], (too_heavy, too_heavy)),
        ] {
            let metadata = format!(r#"{{"managedFields":{fields},"name":"a","uid":"u"}}"#);
            let text =
                format!(r#"{{"kind":"K","metadata":{metadata},"spec":{spec},"status":{status}}}"#);
            let read = object(&text).unwrap();
            assert_eq!((read.unread, read.fields), unread, "{name}");
            let of = |path: &str| read.object.pointer(path).is_some();
            let paths =
                [("fields", "/metadata/managedFields"), ("spec", "/spec"), ("status", "/status")];
            let found: Vec<_> = paths.into_iter().filter(|(_, path)| of(path)).collect();
            let found: Vec<&str> = found.into_iter().map(|(name, _)| name).collect();
            assert_eq!(found, expected, "{name}");
            assert!(weigh(read.object.to_string().as_bytes()) <= HEAVIEST + (1 << 10), "{name}");
            let expected = json!({"kind": "K", "metadata": {"name": "a", "uid": "u"}});
            assert_eq!(head(&text).unwrap(), expected, "{name}");
        }
        assert!(head("[1]").is_err());
    }

    #[test]
    fn of_what_is_too_heavy_stays_what_is_small() {
        let many = format!("[{}{{}}]", r#"{"name":"A"},"#.repeat(200_000));
        let some = format!("[{}{{}}]", r#"{"name":"A"},"#.repeat(40));
        let members: Vec<String> = (0..200_000).map(|number| format!(r#""{number}":"""#)).collect();
        let members = format!("{{{}}}", members.join(","));
        let container = |env: &str| format!(r#"{{"name":"c","env":{env}}}"#);
        let containers =
            |count: usize, env: &str| format!("[{}]", vec![container(env); count].join(","));
        let of =
            |spec: &str| gist(&format!(r#"{{"kind":"K","metadata":{{}},"spec":{spec}}}"#)).unwrap();
        for (name, spec, expected) in [
            (
                "it is light",
                format!(r#"{{"env":{some}}}"#),
                json!({"env": serde_json::from_str::<Value>(&some).unwrap()}),
            ),
            ("a list", format!(r#"{{"a":1,"env":{many}}}"#), json!({"a": 1})),
            ("a map", format!(r#"{{"a":1,"m":{members}}}"#), json!({"a": 1})),
            (
                "a list in one of a list",
                format!(r#"{{"containers":{}}}"#, containers(1, &many)),
                json!({"containers": [{"name": "c"}]}),
            ),
            (
                "a short list in one of a list",
                format!(r#"{{"big":{many},"containers":{}}}"#, containers(30, &some)),
                json!({"containers": vec![json!({"name": "c"}); 30]}),
            ),
            (
                "a list of many",
                format!(r#"{{"a":1,"big":{many},"containers":{}}}"#, containers(33, &some)),
                json!({"a": 1}),
            ),
        ] {
            let expected = json!({"kind": "K", "spec": expected});
            assert!(of(&spec) == expected, "{name}");
        }
        assert!(!is_deeper(&of(&deep(100_000)), LEVELS + 2), "maps without end");
        assert_eq!(gist("[1]"), None);
    }

    #[test]
    fn levels_are_counted() {
        for (levels, expected) in [(1, false), (3, false), (4, true)] {
            let text = deep(levels - 1);
            for document in [text.replace("{\"a\":", "[").replace('}', "]"), text] {
                let document: Value = serde_json::from_str(&document).unwrap();
                assert_eq!(is_deeper(&document, 3), expected, "{document}");
            }
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_no_part_and_hides_nothing_else() {
        let too_deep = Err(Unread::TooDeep);
        for (levels, expected) in [
            (1, Ok(())),
            (120, Ok(())),
            (500, too_deep),
            (20_000, too_deep),
            (100_000, Err(Unread::TooHeavy)),
        ] {
            let fields = format!(r#"[{{"fieldsV1":{}}}]"#, deep(levels));
            let metadata = format!(r#"{{"name":"a","managedFields":{fields}}}"#);
            let text = format!(r#"[{{"metadata":{metadata},"spec":{}}}]"#, deep(levels));
            let read: Vec<Read> = serde_json::from_str(&text).unwrap();
            assert_eq!(read[0].metadata.name.as_deref(), Some("a"), "{levels}");
            assert_eq!(read[0].metadata.managed_fields, None, "{levels}");
            assert_eq!(part(Some(&read[0].spec)).map(drop), expected, "{levels}");
        }
        assert_eq!(part(None), Ok(Value::Null));
    }
}
