//! Who is told of a Secret that is a version, or may be one.

use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use serde_json::json;

use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::resource::Resource;
use crate::quarks::state::held::Objects;
use crate::quarks::state::object::Object;
use crate::quarks::state::table::Table;

/// A QuarksJob of this name, which refers to this Secret.
fn follower(name: &str, refers: &str) -> Resource {
    let pod = json!({"containers": [{"name": "c", "envFrom": [{"secretRef": {"name": refers}}]}]});
    let object: DynamicObject = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": "1"},
        "spec": {"template": {"spec": {"template": {"spec": pod}}}},
    }))
    .unwrap();
    Resource::of(Dialect::QuarksJob, &object).unwrap()
}

/// `x-v2`, marked as a version or not, as it is in this resource version.
fn secret(is_version: bool, value: &str, version: u64) -> Object {
    let label = json!({"quarks.cloudfoundry.org/secret-kind": "versionedSecret"});
    let labels = is_version.then_some(label);
    let metadata = json!({
        "name": "x-v2", "namespace": "n", "resourceVersion": version.to_string(), "labels": labels,
    });
    let secret = json!({"metadata": metadata, "data": {"k": value}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    Object::of_secret(&secret).unwrap()
}

#[test]
fn what_becomes_a_version_is_news_as_other_data_is() {
    for (name, before, after, is_news) in [
        ("nothing has changed", (false, "YQ=="), (false, "YQ=="), false),
        ("the same, of a version", (true, "YQ=="), (true, "YQ=="), false),
        ("other data", (false, "YQ=="), (false, "Yg=="), true),
        ("a label makes it a version", (false, "YQ=="), (true, "YQ=="), true),
        ("it is none any more", (true, "YQ=="), (false, "YQ=="), true),
    ] {
        let mut objects = Objects::new(b"key");
        objects.learn(secret(before.0, before.1, 1));
        assert_eq!(objects.learn(secret(after.0, after.1, 2)), is_news, "{name}");
    }
}

#[test]
fn who_follows_versions_is_told_of_what_may_be_one() {
    let mut table = Table::new(2, b"key");
    for (name, refers) in [
        ("first", "x-v1"),
        ("second", "x-v2"),
        ("plain", "x"),
        ("other", "y-v1"),
        ("longer", "a-x-v1"),
    ] {
        table.learn(follower(name, refers));
    }
    for is_version in [true, false] {
        let mut told = table.referrers(&secret(is_version, "YQ==", 1));
        told.sort();
        told.dedup();
        let told: Vec<&str> = told.iter().map(|key| &*key.name).collect();
        // Whoever follows what is named as the versions are has nothing to do, which is soon seen.
        assert_eq!(told, ["first", "plain", "second"], "{is_version}");
    }
}
