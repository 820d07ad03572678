//! What is said of Secrets that the API server refuses: conditions, Events and logs are read by many.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::server::{Server, controller};
use super::{key, of, seen};
use crate::templates::names::BINDING_TYPE;
use crate::templates::record::{self, Record, StoredRecord};
use crate::templates::resource::Instance;
use crate::templates::seen::SeenInstance;

/// Ready, and workloads can be bound to it.
fn ordered() -> SeenInstance {
    let metadata = json!({"annotations": {BINDING_TYPE: "postgresql"}});
    let template = json!({"metadata": metadata, "objects": []});
    let spec = json!({"requester": {"username": "somebody"}, "template": template});
    seen("1", &json!({"spec": spec}))
}

/// What is recorded of it.
fn kept() -> StoredRecord {
    let read = Instance::of(ordered()).unwrap();
    let mut record = Record::of(&read, &[], String::new(), String::new());
    record.parameters.insert("PASSWORD".to_owned(), "PLANTED".to_owned());
    StoredRecord::new(record, read.spec())
}

/// With which status it answers a call, if not as it would.
type Refuses = fn(&str, &Value) -> Option<u16>;

#[tokio::test]
async fn a_refusal_of_a_secret_says_where_the_fault_is_and_nothing_that_it_holds() {
    let refusals: [(&str, Refuses, &str); 2] = [
        ("a fault", |path, _| path.ends_with("/secrets").then_some(422), "is invalid: data[k]"),
        ("no right", |path, _| path.ends_with("/secrets").then_some(403), "refused: all of it"),
    ];
    for (name, refuses, expected) in refusals {
        let record = record::secret(&of(), &kept(), &key());
        let (instance, writes) = (Value::Null, Vec::new());
        let controller =
            controller(&Arc::new(Mutex::new(Server { instance, record, refuses, writes })));
        let said = |why: Option<String>, what: &str| {
            let why = why.unwrap();
            assert!(why.ends_with(expected), "{name}, {what}: {why}");
            assert!(!why.contains("PLANTED"), "{name}, {what}: {why}");
        };
        let recorded = controller.record(&of(), Arc::new(kept())).await;
        said(recorded.unwrap_err().reason(), "record");
        controller.table().learn(ordered());
        let instance = controller.known(&of()).unwrap();
        let bound = controller.bind(&instance, &[]).await;
        said(bound.unwrap_err().reason(), "binding");
        let withdrawn = controller.withdraw_record(&of()).await;
        if let Err(trouble) = withdrawn {
            said(trouble.reason(), "withdrawn");
        }
    }
}
