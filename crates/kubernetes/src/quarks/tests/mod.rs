use std::collections::BTreeMap;

use serde_json::Value;

mod captures;
mod lints;
mod namesakes;
mod outputs;
mod owners;
mod pods;
mod strays;

pub(super) use self::pods::pod;
