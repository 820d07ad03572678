use std::collections::BTreeMap;

use serde_json::{Value, json};

mod bounds;
mod captures;
mod dependents;
mod foreign;
mod histories;
mod lints;
mod many;
mod namesakes;
mod outputs;
mod owners;
mod pods;
mod prefixes;
mod recalled;
mod strays;
mod totals;
mod versions;

pub(super) use self::pods::pod;

/// A Job of this uid, of the first run of the QuarksJob `a` of that uid, as an API server has it.
pub(super) fn job(owner: &str, uid: &str) -> Value {
    json!({
        "metadata": {
            "name": "a-1", "namespace": "n", "uid": uid, "resourceVersion": "1",
            "annotations": {"manciple.dev/run-id": "1"},
            "ownerReferences": [{
                "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob", "name": "a",
                "uid": owner, "controller": true,
            }],
        },
        "spec": {"completions": 1, "template": {"spec": {"containers": []}}},
    })
}
