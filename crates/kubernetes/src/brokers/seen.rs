//! A `Broker` as it is read: in parts, so that a part that cannot be read does not hide the others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osb::catalog::Fault;
use osb::weight::weigh;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::definition::{KIND, PLURAL};
use crate::deep::{self, part, resource};
use crate::names::{GROUP, VERSION};

/// How many bytes a spec may take once it is parsed: each is kept, and goes into the settings of each run.
const HEAVIEST: usize = 4 << 20;

/// A `Broker` with its parts as text.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct SeenBroker {
    #[serde(default, deserialize_with = "deep::metadata")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

impl SeenBroker {
    /// The spec; null if there is none.
    ///
    /// # Errors
    /// If the spec cannot be read.
    pub(super) fn spec(&self) -> Result<Value, Fault> {
        let fault = |why: String| Fault { path: "spec".to_owned(), message: why };
        let raw = self.spec.as_deref();
        if raw.is_some_and(|raw| weigh(raw.get().as_bytes()) > HEAVIEST) {
            let most = HEAVIEST >> 20;
            return Err(fault(format!(
                "would take more than {most} MiB of memory: let it have fewer maps and lists"
            )));
        }
        part(raw).map_err(|unread| fault(unread.to_string()))
    }

    /// The status. It is written by us: a status that cannot be read was not.
    pub(super) fn status(&self) -> Value {
        part(self.status.as_deref()).unwrap_or_default()
    }
}

resource!(SeenBroker, GROUP, VERSION, KIND, PLURAL);
