//! What is deployed, before the newest schemas of its kinds: the test cluster's Kubernetes 1.20 has no `policy/v1`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// All objects of a folder of `deploy`, by file.
fn deployed(folder: &str) -> Vec<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(folder);
    let (mut folders, mut found) = (vec![root], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let objects: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
                found.extend(objects.into_iter().map(|object| (path.clone(), object)));
            }
        }
    }
    found
}

/// What is there of an object that its kind does not have, or has otherwise.
fn unknown<K: DeserializeOwned + Serialize>(object: &Value) -> String {
    match serde_json::from_value::<K>(object.clone()) {
        Ok(known) => lost("", object, &serde_json::to_value(known).unwrap()),
        Err(error) => error.to_string(),
    }
}

/// The members of one that the other has not, by path; an empty one may be left out.
fn lost(path: &str, before: &Value, after: &Value) -> String {
    let mut found = String::new();
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let after = after.get(name).unwrap_or(&Value::Null);
                found += &lost(&format!("{path}.{name}"), value, after);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (n, (before, after)) in before.iter().zip(after).enumerate() {
                found += &lost(&format!("{path}[{n}]"), before, after);
            }
        }
        (before, after) if before == after || (*before == json!([]) && after.is_null()) => {}
        (before, _) => {
            let _ = write!(found, "{path} {before}; ");
        }
    }
    found
}

#[test]
fn what_is_deployed_has_only_what_its_kinds_have() {
    let mut budgets = 0;
    for (path, object) in deployed(".") {
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let unknown = match (version.unwrap_or_default(), kind.unwrap_or_default()) {
            ("apps/v1", "Deployment") => unknown::<Deployment>(&object),
            ("networking.k8s.io/v1", "NetworkPolicy") => unknown::<NetworkPolicy>(&object),
            ("policy/v1", "PodDisruptionBudget") => {
                budgets += 1;
                unknown::<PodDisruptionBudget>(&object)
            }
            ("rbac.authorization.k8s.io/v1", "ClusterRole") => unknown::<ClusterRole>(&object),
            ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding") => {
                unknown::<ClusterRoleBinding>(&object)
            }
            ("rbac.authorization.k8s.io/v1", "Role") => unknown::<Role>(&object),
            ("rbac.authorization.k8s.io/v1", "RoleBinding") => unknown::<RoleBinding>(&object),
            ("v1", "ConfigMap") => unknown::<ConfigMap>(&object),
            ("v1", "Namespace") => unknown::<Namespace>(&object),
            ("v1", "Service") => unknown::<Service>(&object),
            ("v1", "ServiceAccount") => unknown::<ServiceAccount>(&object),
            _ => continue,
        };
        assert_eq!(unknown, "", "{}", path.display());
    }
    assert!(budgets > 0, "no disruption budget was looked at");
}
