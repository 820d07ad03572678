//! What is taken for an instance's, where others may have written its status.

use serde_json::{Value, json};

use super::{key, of, served};
use crate::templates::kinds::ServedKind;
use crate::templates::make::made;
use crate::templates::names::OWNER;
use crate::templates::ours::Ours;
use crate::templates::plan::{Planned, plan};
use crate::templates::resource::Key;
use crate::templates::status::{Made, State};

fn planned(served: ServedKind, metadata: Value) -> Planned {
    let object = json!({"apiVersion": "v1", "kind": served.resource.kind, "metadata": metadata});
    plan(&of(), 0, object, served, &key()).unwrap()
}

/// As the API server has it.
fn there(planned: &Planned) -> Value {
    let mut object = planned.object.clone();
    object["metadata"]["uid"] = json!("u");
    object
}

#[test]
fn what_a_status_names_is_taken_for_an_instances_by_what_it_bears() {
    let map = || served("", "ConfigMap", true);
    let near = planned(map(), json!({"name": "a"}));
    let far = planned(map(), json!({"name": "a", "namespace": "other"}));
    let wide = planned(served("", "PersistentVolume", false), json!({"name": "a"}));
    let with = |of: &Planned, member: &str, value: Value| {
        let mut object = there(of);
        object["metadata"][member] = value;
        object
    };
    let label = |uid: &str| json!({OWNER: uid});
    let marked_as = |of: &Planned| of.object["metadata"]["annotations"].clone();
    let owned = near.object["metadata"]["ownerReferences"].clone();
    let mut owned_far = with(&far, "annotations", json!({}));
    owned_far["metadata"]["ownerReferences"] = owned.clone();
    let mut bare = with(&near, "ownerReferences", json!([]));
    bare["metadata"]["labels"] = json!({});
    for (name, planned, found, is_ours, is_read) in [
        ("made in its namespace", &near, there(&near), true, true),
        ("made in another", &far, there(&far), true, true),
        ("made of the cluster", &wide, there(&wide), true, true),
        ("another uid", &near, with(&near, "uid", json!("u-2")), false, false),
        ("no label", &near, with(&near, "labels", json!({})), false, true),
        ("neither label nor owner", &near, bare, false, false),
        ("another's label", &near, with(&near, "labels", label("u-2")), false, true),
        ("marked, and without the label", &far, with(&far, "labels", json!({})), false, true),
        (
            "the label alone, in its namespace",
            &near,
            with(&near, "ownerReferences", json!([])),
            false,
            true,
        ),
        ("the label alone, in another", &far, with(&far, "annotations", json!({})), false, false),
        (
            "the label alone, of the cluster",
            &wide,
            with(&wide, "annotations", json!({})),
            false,
            false,
        ),
        ("label and owner, in another", &far, owned_far, false, false),
        (
            "the mark of another object",
            &far,
            with(&far, "annotations", marked_as(&wide)),
            false,
            false,
        ),
    ] {
        let (of, key) = (of(), key());
        let said = Made { uid: "u".to_owned(), ..made(planned, &planned.object) };
        let has_made = |ours: Ours<'_>| ours.has_made(&planned.served, &said, &found);
        assert_eq!(has_made(Ours::of(&of, &key)), is_ours, "{name}");
        assert_eq!(has_made(Ours::to_read(&of, &key)), is_read, "{name}");
        let other = Key { uid: "u-3".into(), ..of.clone() };
        assert!(!has_made(Ours::to_read(&other, &key)), "{name}: another instance's");
    }
}

/// A kind that has no namespaces would be looked for in none, and be taken for what Kubernetes collects.
#[test]
fn what_cannot_be_where_it_is_said_to_be_is_nobodys() {
    let (of, key) = (of(), key());
    let near = planned(served("", "ConfigMap", true), json!({"name": "a"}));
    let wide = planned(served("", "PersistentVolume", false), json!({"name": "a"}));
    for (name, planned, namespace) in
        [("of the cluster, in a namespace", &wide, "shop"), ("in no namespace", &near, "")]
    {
        let mut found = there(planned);
        found["metadata"]["ownerReferences"] = near.object["metadata"]["ownerReferences"].clone();
        let said = made(planned, &found);
        assert!(Ours::of(&of, &key).has_made(&planned.served, &said, &found), "{name}");
        let said = Made { namespace: namespace.to_owned(), ..said };
        assert!(!Ours::of(&of, &key).has_made(&planned.served, &said, &found), "{name}");
    }
}

#[test]
fn a_reference_that_is_no_part_of_a_path_names_nothing() {
    let of = |member: &str, value: &str| {
        let mut reference = json!({
            "apiVersion": "v1", "kind": "Service", "namespace": "shop", "name": "web", "uid": "u",
        });
        reference[member] = json!(value);
        Made::of(&json!({"ref": reference}))
    };
    for (name, member, value, is_one) in [
        ("a plain one", "name", "web", true),
        ("of the cluster", "namespace", "", true),
        ("a name as those of roles", "name", "system:node", true),
        ("a group", "apiVersion", "networking.k8s.io/v1", true),
        ("the proxy of the API server", "name", "web:80/proxy/admin", false),
        ("a subresource", "name", "web/status", false),
        ("a query", "name", "web?watch=1", false),
        ("a fragment", "name", "web#", false),
        ("what is escaped", "name", "web%2fproxy", false),
        ("the place above", "name", "..", false),
        ("this place", "name", ".", false),
        ("no name", "name", "", false),
        ("another object in its namespace", "namespace", "shop/configmaps/prey?x=", false),
        ("a namespace above", "namespace", "..", false),
        ("a kind that is a path", "kind", "Service/web", false),
        ("no kind", "kind", "", false),
        ("a version that is a path", "apiVersion", "v1/namespaces/shop", false),
        ("a version with a query", "apiVersion", "v1?x=", false),
        ("no version", "apiVersion", "", false),
        ("no uid", "uid", "", false),
    ] {
        assert_eq!(of(member, value).is_some(), is_one, "{name}");
    }
    assert_eq!(of("name", "web").map(|it| it.state), Some(State::Created));
}
