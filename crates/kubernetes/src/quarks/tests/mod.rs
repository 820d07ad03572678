use std::collections::BTreeMap;

use serde_json::Value;

mod captures;
mod outputs;
mod pods;
