//! Jobs of somebody else that look like ours.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use crate::quarks::state::job::SeenJob;

#[test]
fn d14_a_job_is_ours_if_a_resource_of_ours_controls_it_and_else_none() {
    let ours = super::job("owner", "j");
    let owner = |more: Value| {
        let mut owner = ours["metadata"]["ownerReferences"][0].clone();
        owner.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        owner
    };
    let silent = owner(json!({"controller": null}));
    let another = owner(json!({"apiVersion": "batch/v1beta1", "kind": "CronJob"}));
    for (name, owners, is_ours) in [
        ("nothing is said of owners", Value::Null, false),
        ("no owner", json!([]), false),
        ("one that does not say whether it controls it", json!([silent]), false),
        ("one that does not control it", json!([owner(json!({"controller": false}))]), false),
        ("several that do not", json!([silent, silent]), false),
        ("one of another kind", json!([another]), false),
        ("one of another group", json!([owner(json!({"apiVersion": "v1"}))]), false),
        ("the kind of the other group", json!([owner(json!({"kind": "ExtendedJob"}))]), false),
        ("one of another kind before one that does not say", json!([another, silent]), false),
        ("one of ours", json!([owner(json!({}))]), true),
        ("one of ours after one that does not say", json!([silent, owner(json!({}))]), true),
    ] {
        let mut job = ours.clone();
        job["metadata"]["labels"] = json!({"manciple.dev/triggered": "QuarksJob"});
        job["metadata"]["ownerReferences"] = owners;
        let job: Job = serde_json::from_value(job).unwrap();
        assert_eq!(SeenJob::of(&job).is_some(), is_ours, "{name}");
    }
}
