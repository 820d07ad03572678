//! Splits a record into three parts: a public one, for everybody who may read resources, and two confidential ones in a
//! Secret.
//!
//! The part `order` is what a run is given, in the words of the request, so that a run's pod can be given it unchanged.
//! The part `rest` is what only we need. An empty part is not kept.

use engine::record::Record;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::resources::Since;

/// The confidential members of an operation, by their names in [`osb::Work`].
const OF_OPERATION: [&str; 2] = ["previous_values", "originating_identity"];
const OF_ORDER: [&str; 2] = ["parameters", "context"];
/// The places of the part `rest` in a record.
const REST: [&str; 4] = ["/made/binding", "/made/state", "/ordered/parameters", "/ordered/context"];
/// The request hash, as confidential as the request.
const HASH: &str = "/operation/request_hash";

/// A split record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parts {
    /// The part without anything confidential.
    pub(crate) public: Value,
    pub(crate) order: Map<String, Value>,
    pub(crate) rest: Map<String, Value>,
}

/// The keys of the Secret under which the confidential parts of a record are; `None` for an empty part.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Places {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) order: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rest: Option<String>,
}

impl Places {
    /// All keys.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        [&self.order, &self.rest].into_iter().flatten()
    }

    /// Whether a key is one of these.
    pub(crate) fn names(&self, key: &String) -> bool {
        self.keys().any(|known| known == key)
    }

    /// The keys that `other` does not have.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let only = |key: &Option<String>| key.clone().filter(|key| !other.names(key));
        Self { order: only(&self.order), rest: only(&self.rest) }
    }
}

/// The content of a resource: the public part, and the keys of the others.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) record: Value,
    /// A word that is unique to each write: otherwise a write that changes nothing would not give a new version.
    pub(crate) write: String,
    /// The times of the conditions; a tombstone has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Since>,
    #[serde(flatten)]
    pub(crate) places: Places,
}

/// Splits a record.
pub(crate) fn split(record: &Record) -> serde_json::Result<Parts> {
    let mut public = serde_json::to_value(record)?;
    let mut order = Map::new();
    let mut rest = Map::new();
    let ordered = if record.operation.target.is_some() { "/operation/target" } else { "/ordered" };
    for (object, names) in [(ordered, OF_ORDER), ("/operation", OF_OPERATION)] {
        for name in names {
            if let Some(value) = take(&mut public, &format!("{object}/{name}")) {
                order.insert(name.to_owned(), value);
            }
        }
    }
    for pointer in REST {
        if let Some(value) = take(&mut public, pointer) {
            rest.insert(pointer.to_owned(), value);
        }
    }
    let confidential = !order.is_empty() || !rest.is_empty();
    if let Some(hash) = confidential.then(|| take(&mut public, HASH)).flatten() {
        rest.insert(HASH.to_owned(), hash);
    }
    Ok(Parts { public, order, rest })
}

/// Joins the parts to the record again.
pub(crate) fn join(parts: Parts) -> serde_json::Result<Record> {
    let Parts { mut public, order, rest } = parts;
    let updates = public.pointer("/operation/target").is_some();
    let ordered = if updates { "/operation/target" } else { "/ordered" };
    for (name, value) in order {
        let object = if OF_ORDER.contains(&name.as_str()) { ordered } else { "/operation" };
        put(&mut public, object, &name, value);
    }
    for (pointer, value) in rest {
        if let Some((object, name)) = pointer.rsplit_once('/') {
            put(&mut public, object, name, value);
        }
    }
    // An empty hash is not confidential, but not optional either.
    if let Some(operation) = public.get_mut("operation").and_then(Value::as_object_mut) {
        operation.entry("request_hash").or_insert_with(|| Value::String(String::new()));
    }
    serde_json::from_value(public)
}

/// Takes a member out of the public part. Members that are empty and not optional in a record come back by themselves.
fn take(value: &mut Value, pointer: &str) -> Option<Value> {
    let (object, name) = pointer.rsplit_once('/')?;
    let member = value.pointer_mut(object)?.as_object_mut()?.remove(name)?;
    let empty = match &member {
        Value::Null => true,
        Value::Object(members) => OF_ORDER.contains(&name) && members.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    (!empty).then_some(member)
}

fn put(value: &mut Value, object: &str, name: &str, member: Value) {
    if let Some(members) = value.pointer_mut(object).and_then(Value::as_object_mut) {
        members.insert(name.to_owned(), member);
    }
}

#[cfg(test)]
mod tests {
    use engine::testing::store_contract::sample;
    use osb::{BindingBody, Object, OriginatingIdentity, PreviousValues};
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        value.as_object().unwrap().clone()
    }

    fn confidential() -> Record {
        let mut record = sample("i");
        record.ordered.parameters = object(json!({"password": "planted-1"})).into();
        record.ordered.context = object(json!({"space": "planted-2"})).into();
        record.operation.target = Some(record.ordered.clone());
        record.operation.request_hash = "planted-3".to_owned();
        record.operation.originating_identity = Some(OriginatingIdentity {
            platform: "kubernetes".to_owned(),
            value: object(json!({"user": "planted-4"})).into(),
        });
        record.operation.previous_values =
            Some(PreviousValues { plan_id: Some("planted-5".into()), ..Default::default() });
        record.made.binding = Some(BindingBody {
            credentials: Some(object(json!({"uri": "planted-6"})).into()),
            ..Default::default()
        });
        record.made.state = Some(json!({"token": "planted-7"}).into());
        record
    }

    #[test]
    fn nothing_confidential_is_public() {
        let parts = split(&confidential()).unwrap();
        assert!(!parts.public.to_string().contains("planted"), "{}", parts.public);
    }

    #[test]
    fn what_was_taken_apart_goes_together_again() {
        let mut without_target = confidential();
        without_target.operation.target = None;
        let mut empty = sample("i");
        empty.made.binding = Some(BindingBody::default());
        empty.made.state = Some(json!({}).into());
        let mut null = sample("i");
        null.operation.request_hash = String::new();
        for record in [confidential(), without_target, empty, null, sample("plain")] {
            assert_eq!(join(split(&record).unwrap()).unwrap(), record);
        }
    }

    #[test]
    fn a_run_is_given_what_it_is_to_carry_out() {
        let mut record = confidential();
        record.operation.target.as_mut().unwrap().parameters = object(json!({"size": 2})).into();
        let order = split(&record).unwrap().order;
        assert_eq!(order["parameters"], json!({"size": 2}));
        assert_eq!(order["context"], json!({"space": "planted-2"}));
        assert!(
            order.contains_key("originating_identity") && order.contains_key("previous_values")
        );
    }

    #[test]
    fn an_order_without_confidences_needs_no_secret() {
        let mut record = sample("i");
        record.operation.request_hash = "of nothing secret".to_owned();
        let parts = split(&record).unwrap();
        assert!(parts.order.is_empty() && parts.rest.is_empty());
        assert_eq!(parts.public["operation"]["request_hash"], "of nothing secret");
    }
}
