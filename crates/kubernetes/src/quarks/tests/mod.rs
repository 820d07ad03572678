use std::collections::BTreeMap;

use serde_json::Value;

mod outputs;
