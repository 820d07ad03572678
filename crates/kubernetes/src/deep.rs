//! Documents of others as they are read: nothing that somebody has put into one keeps the others from being read.
//!
//! One may be nested deeper than our decoder goes, which would refuse the whole list that it is in. So parts are taken as
//! text first, and each is read alone.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What is said of one, where it stands.
pub(crate) const TOO_DEEP: &str = "is nested more than 127 levels deep: make it flatter";

/// A part; `None` if it is nested too deep.
pub(crate) fn part(raw: Option<&RawValue>) -> Option<Value> {
    raw.map_or(Some(Value::Null), |raw| serde_json::from_str(raw.get()).ok())
}

/// Metadata, for `deserialize_with`. Without `managedFields`: they are as deep as the rest, and read by nobody.
///
/// # Errors
/// If it is none.
pub(crate) fn metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let mut members = BTreeMap::<String, Box<RawValue>>::deserialize(from)?;
    members.remove("managedFields");
    let read = |(name, raw): (String, Box<RawValue>)| Some((name, part(Some(&raw))?));
    let members: Map<String, Value> = members.into_iter().filter_map(read).collect();
    ObjectMeta::deserialize(Value::Object(members)).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Read {
        #[serde(deserialize_with = "metadata")]
        metadata: ObjectMeta,
        spec: Box<RawValue>,
    }

    #[test]
    fn what_is_nested_too_deep_is_no_part_and_hides_nothing_else() {
        let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        for (levels, is_read) in [(1, true), (120, true), (500, false), (100_000, false)] {
            let fields = format!(r#"[{{"fieldsV1":{}}}]"#, deep(levels));
            let metadata = format!(r#"{{"name":"a","managedFields":{fields}}}"#);
            let text = format!(r#"[{{"metadata":{metadata},"spec":{}}}]"#, deep(levels));
            let read: Vec<Read> = serde_json::from_str(&text).unwrap();
            assert_eq!(read[0].metadata.name.as_deref(), Some("a"), "{levels}");
            assert_eq!(read[0].metadata.managed_fields, None, "{levels}");
            assert_eq!(part(Some(&read[0].spec)).is_some(), is_read, "{levels}");
        }
        assert_eq!(part(None), Some(Value::Null));
    }
}
