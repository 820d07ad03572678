//! How objects are planned.

use std::time::{Duration, Instant};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::{key, of, served};
use crate::templates::kinds::{Kinds, ServedKind};
use crate::templates::plan::{Planned, plan};
use crate::templates::prepare::{plan_all, unplanned};
use crate::templates::record::Former;
use crate::templates::resource::Key;
use crate::templates::trouble::Trouble;

fn planned(kind: &str, metadata: Value) -> Result<Planned, String> {
    let object = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    plan(&of(), 3, object, served("", kind, kind != "Namespace"), &key())
}

#[test]
fn names_that_are_generated_are_the_same_whoever_comes_after() {
    let first = planned("ConfigMap", json!({"generateName": "web-"})).unwrap();
    let again = planned("ConfigMap", json!({"generateName": "web-"})).unwrap();
    assert_eq!(first.name, again.name);
    assert!(first.name.starts_with("web-") && first.name.len() == 12, "{}", first.name);
    assert_eq!(first.object["metadata"].get("generateName"), None);
}

#[test]
fn what_cannot_be_planned_says_why() {
    for (name, kind, metadata, expected) in [
        ("no name", "ConfigMap", json!({}), "metadata.name: Required value"),
        ("a path", "ConfigMap", json!({"name": "../x"}), "metadata.name: Invalid value: \"../x\""),
        ("a space", "ConfigMap", json!({"name": "My App"}), "metadata.name: Invalid value"),
        (
            "a namespace that is a path",
            "ConfigMap",
            json!({"name": "a", "namespace": "x/y"}),
            "metadata.namespace: Invalid value",
        ),
        (
            "labels that are none",
            "ConfigMap",
            json!({"name": "a", "labels": []}),
            "metadata.labels: has to be a map",
        ),
    ] {
        let why = planned(kind, metadata).unwrap_err();
        assert!(why.starts_with(expected), "{name}: {why}");
    }
}

#[test]
fn what_is_taken_for_ours_cannot_be_copied() {
    let near = planned("ConfigMap", json!({"name": "a"})).unwrap();
    let far = planned("ConfigMap", json!({"name": "a", "namespace": "other"})).unwrap();
    let wide = planned("Namespace", json!({"name": "a"})).unwrap();
    assert_eq!(near.namespace.as_deref(), Some("shop"));
    assert_eq!(wide.namespace, None);
    for planned in [&near, &far, &wide] {
        assert!(planned.is(&of(), &planned.object, &key()), "{}", planned.words());
        let mut bare = planned.object.clone();
        bare["metadata"]["ownerReferences"] = json!([]);
        bare["metadata"]["annotations"] = json!({});
        assert!(!planned.is(&of(), &bare, &key()), "a label alone anybody can write");
        let other = Key { uid: "u-2".into(), ..of() };
        assert!(!planned.is(&other, &planned.object, &key()), "it is another instance's");
    }
    let mut copied = wide.object.clone();
    copied["metadata"]["annotations"] = far.object["metadata"]["annotations"].clone();
    assert!(!wide.is(&of(), &copied, &key()), "a mark is of one object");
    assert_eq!(near.object["metadata"].get("annotations"), None, "what is owned needs no mark");
}

#[test]
fn what_was_made_under_a_former_group_is_ours() {
    let of_group = |group: &str| {
        let object = json!({"kind": "Ingress", "metadata": {"name": "a", "namespace": "other"}});
        let resource = kube::discovery::ApiResource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{group}/v1"),
            kind: "Ingress".to_owned(),
            plural: "ingresses".to_owned(),
        };
        plan(&of(), 0, object, ServedKind { resource, is_namespaced: true, is_kept: true }, &key())
            .unwrap()
    };
    let [old, new, another] = ["extensions", "networking.k8s.io", "example.com"].map(of_group);
    assert!(new.is(&of(), &old.object, &key()));
    assert!(!another.is(&of(), &old.object, &key()), "this group has objects of its own");
    assert!(!new.is(&of(), &another.object, &key()));
}

#[test]
fn what_others_need_comes_first() {
    let rank = |group: &str, kind: &str| {
        let object = json!({"metadata": {"name": "a"}});
        plan(&of(), 0, object, served(group, kind, true), &key()).unwrap().rank
    };
    let rbac = "rbac.authorization.k8s.io";
    let ranks = [
        rank("", "Namespace"),
        rank("", "Secret"),
        rank(rbac, "RoleBinding"),
        rank("apps", "Deployment"),
    ];
    assert_eq!(ranks, [0, 1, 2, 3]);
    assert_eq!(rank(rbac, "Role"), rank("", "ServiceAccount"));
    assert_eq!(rank("example.org", "Thing"), rank("", "Pod"));
}

/// As Go reads it, and as who writes `annotations:` with nothing behind it means it.
#[test]
fn what_is_null_is_absent() {
    let nulls = json!({"annotations": null, "ownerReferences": null, "labels": null});
    for (name, namespace) in [("what is owned", "shop"), ("what nothing owns", "other")] {
        let mut metadata = json!({"name": "a", "namespace": namespace});
        let expected = planned("ConfigMap", metadata.clone()).unwrap().object;
        metadata.as_object_mut().unwrap().extend(nulls.as_object().unwrap().clone());
        let mut found = planned("ConfigMap", metadata).unwrap().object;
        let members = found["metadata"].as_object_mut().unwrap();
        members.retain(|_, value| !value.is_null());
        assert_eq!(found, expected, "{name}");
    }
}

/// An API server that knows ConfigMaps.
fn kinds() -> Kinds {
    let service = tower::service_fn(async |_: Request<Body>| {
        let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
        let list = json!({"groupVersion": "v1", "resources": [{
            "name": "configmaps", "singularName": "", "namespaced": true, "kind": "ConfigMap",
            "verbs": verbs,
        }]});
        let response = Response::new(Body::from(list.to_string().into_bytes()));
        Ok::<_, tower::BoxError>(response)
    });
    Kinds::of(Client::new(service, "n"))
}

/// A template has room for 20,000 of them: where each is compared with each that takes minutes.
#[tokio::test]
async fn many_objects_are_planned_in_no_time() {
    let map =
        |name: String| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let maps = |count: usize| (0..count).map(|index| map(format!("m-{index}"))).collect();
    let begun = Instant::now();
    let plan = plan_all(&kinds(), &of(), maps(20_000), &key()).await.unwrap();
    let formers = plan.iter().chain(&plan).map(Former::from);
    let left = unplanned(formers, &plan[1..]);
    assert_eq!(left, [Former::from(&plan[0])], "the one that is not planned, once");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let mut twice: Vec<Value> = maps(3);
    twice.push(map("m-1".to_owned()));
    let Err(Trouble::Final(why)) = plan_all(&kinds(), &of(), twice, &key()).await else { panic!() };
    assert_eq!(why, "template.objects[3]: Duplicate value: configmaps, Name=m-1");
}

/// What is read of it later has a few levels more, and nobody reads more than 127.
#[tokio::test]
async fn what_is_nested_too_deep_is_not_made() {
    for (levels, is_planned) in [(98, true), (99, false), (120, false)] {
        let mut object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        object["data"] = (0..levels).fold(json!("secret"), |within, _| json!([within]));
        match plan_all(&kinds(), &of(), vec![object], &key()).await {
            Ok(_) => assert!(is_planned, "{levels}"),
            Err(trouble) => {
                assert!(!is_planned, "{levels}: {trouble:?}");
                let why = "template.objects[0]: Invalid value: it is nested more than 100 levels deep: make it flatter";
                assert_eq!(trouble, Trouble::Final(why.to_owned()));
            }
        }
    }
}
