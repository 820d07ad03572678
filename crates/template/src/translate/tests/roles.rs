use super::*;

fn role(kind: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "authorization.openshift.io/v1", "kind": kind, "metadata": {"name": "r"}, "rules": rules,
    })
}

fn binding(kind: &str, role: Value, beside: Value) -> Value {
    let mut binding =
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "b"}, "roleRef": role});
    let (members, Value::Object(beside)) = (binding.as_object_mut().unwrap(), beside) else {
        panic!("members are a map")
    };
    members.extend(beside);
    binding
}

#[test]
fn rules_are_those_of_rbac() {
    let (found, said) = one(role(
        "Role",
        json!([
            {"verbs": ["get"], "resources": ["pods"], "attributeRestrictions": null, "resourceNames": ["p"]},
            {"verbs": ["get"], "resources": ["pods"], "apiGroups": []},
            {"verbs": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "resources": ["*"], "resourceNames": ["x"]},
            {"verbs": ["get"], "resources": ["deployments"], "apiGroups": ["apps"]},
        ]),
    ));
    let rule = |group: &str, verb: &str, resource: &str| json!({"apiGroups": [group], "verbs": [verb], "resources": [resource]});
    let with_name = |mut rule: Value, name: &str| {
        rule["resourceNames"] = json!([name]);
        rule
    };
    assert_eq!(
        found,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
            "rules": [
                with_name(rule("", "get", "pods"), "p"),
                rule("", "get", "pods"),
                rule("*", "*", "*"),
                with_name(rule("", "*", "*"), "x"),
                rule("apps", "get", "deployments"),
            ],
        })
    );
    assert_eq!(said, [""; 0]);
}

#[test]
fn rules_over_objects_and_addresses_are_two() {
    let both = json!({"verbs": ["get"], "resources": ["pods"], "nonResourceURLs": ["/healthz"]});
    let urls = json!({"verbs": ["get"], "resources": [], "nonResourceURLs": ["/healthz"]});
    let (found, _) = one(role("ClusterRole", json!([both, urls, {"verbs": ["get"]}])));
    assert_eq!(found["kind"], "ClusterRole");
    assert_eq!(
        found["rules"],
        json!([
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
            {"verbs": ["get"], "nonResourceURLs": ["/healthz"]},
            {"verbs": ["get"], "nonResourceURLs": ["/healthz"]},
            {"verbs": ["get"]},
        ])
    );
}

#[test]
fn a_role_without_a_namespace_is_of_the_cluster() {
    for (name, kind, role, found, warned) in [
        ("cluster", "RoleBinding", json!({"name": "edit"}), "ClusterRole", false),
        ("local", "RoleBinding", json!({"name": "edit", "namespace": "shop"}), "Role", false),
        ("kind", "RoleBinding", json!({"name": "edit", "kind": "Role"}), "ClusterRole", true),
        ("cluster's", "ClusterRoleBinding", json!({"name": "view"}), "ClusterRole", false),
        ("OpenShift's", "RoleBinding", json!({"name": "system:image-puller"}), "ClusterRole", true),
        (
            "of the same name",
            "RoleBinding",
            json!({"name": "basic-user", "namespace": "shop"}),
            "Role",
            false,
        ),
    ] {
        let (bound, said) = one(binding(kind, role.clone(), json!({})));
        let expected =
            json!({"apiGroup": "rbac.authorization.k8s.io", "kind": found, "name": role["name"]});
        assert_eq!(bound["roleRef"], expected, "{name}");
        assert_eq!((&bound["kind"], &bound["subjects"]), (&json!(kind), &json!([])), "{name}");
        assert_eq!(!said.is_empty(), warned, "{name}: {said:?}");
    }
}

#[test]
fn subjects_are_told_by_their_kinds() {
    let subjects = json!([
        {"kind": "User", "name": "alice"}, {"kind": "SystemUser", "name": "system:admin"},
        {"kind": "Group", "name": "g"}, {"kind": "SystemGroup", "name": "system:authenticated"},
        {"kind": "ServiceAccount", "name": "a", "namespace": "n"}, {"kind": "ServiceAccount", "name": "a"},
    ]);
    let (bound, _) = one(binding(
        "RoleBinding",
        json!({"name": "edit"}),
        json!({"subjects": subjects, "userNames": null, "groupNames": null}),
    ));
    let group = "rbac.authorization.k8s.io";
    assert_eq!(
        bound["subjects"],
        json!([
            {"apiGroup": group, "kind": "User", "name": "alice"},
            {"apiGroup": group, "kind": "User", "name": "system:admin"},
            {"apiGroup": group, "kind": "Group", "name": "g"},
            {"apiGroup": group, "kind": "Group", "name": "system:authenticated"},
            {"kind": "ServiceAccount", "name": "a", "namespace": "n"},
            {"kind": "ServiceAccount", "name": "a", "namespace": "shop"},
        ])
    );
    assert_eq!((&bound["userNames"], &bound["groupNames"]), (&Value::Null, &Value::Null));
}

#[test]
fn names_go_before_subjects() {
    let beside = json!({
        "userNames": ["alice", "system:serviceaccount:n:a", "system:serviceaccount:n:", "system:serviceaccount:n:a:b"],
        "groupNames": ["system:serviceaccount:n:a"],
        "subjects": [{"kind": "User", "name": "mallory"}],
    });
    let (bound, said) = one(binding("ClusterRoleBinding", json!({"name": "view"}), beside));
    let group = "rbac.authorization.k8s.io";
    assert_eq!(
        bound["subjects"],
        json!([
            {"apiGroup": group, "kind": "User", "name": "alice"},
            {"kind": "ServiceAccount", "name": "a", "namespace": "n"},
            {"apiGroup": group, "kind": "User", "name": "system:serviceaccount:n:"},
            {"apiGroup": group, "kind": "User", "name": "system:serviceaccount:n:a:b"},
            {"apiGroup": group, "kind": "Group", "name": "system:serviceaccount:n:a"},
        ])
    );
    assert_eq!(said, [""; 0]);
    let nobody = json!({"userNames": [], "subjects": [{"kind": "User", "name": "alice"}]});
    let (bound, said) = one(binding("RoleBinding", json!({"name": "view"}), nobody));
    assert_eq!(bound["subjects"], json!([]));
    assert!(said[0].starts_with("subjects: Questionable: is passed over"), "{said:?}");
}

#[test]
fn what_rbac_cannot_say_is_refused() {
    let restricted =
        json!([{"verbs": ["get"], "resources": ["pods"], "attributeRestrictions": {"kind": "x"}}]);
    let of =
        |role: Value, subjects: Value| binding("RoleBinding", role, json!({"subjects": subjects}));
    let edit = || json!({"name": "edit"});
    let elsewhere = json!({"name": "edit", "namespace": "other"});
    let whole = |role: Value, beside: Value| binding("ClusterRoleBinding", role, beside);
    for (object, said) in [
        (role("Role", restricted), "rules[0].attributeRestrictions: Invalid value: a map"),
        (role("Role", json!({})), "rules: Invalid value: a map: has to be a list"),
        (role("Role", json!([{"verbs": "get"}])), "rules[0].verbs: Invalid value: a string"),
        (of(elsewhere.clone(), json!([])), "roleRef.namespace: Invalid value: a string: has to be"),
        (whole(elsewhere, json!({})), "roleRef.namespace: Invalid value: a string: a ClusterRoleB"),
        (of(json!({}), json!([])), "roleRef.name: Required value"),
        (
            of(edit(), json!([{"name": "x"}])),
            "subjects[0].kind: Invalid value: a string: has to be",
        ),
        (of(edit(), json!([{"kind": "User"}])), "subjects[0].name: Required value"),
        (of(edit(), json!(["alice"])), "subjects[0]: Invalid value: a string: has to be a map"),
        (
            whole(edit(), json!({"subjects": [{"kind": "ServiceAccount", "name": "a"}]})),
            "subjects[0].namespace: Required value: an account is of a namespace",
        ),
        (whole(edit(), json!({"userNames": "x"})), "userNames: Invalid value: a string: has to be"),
        (whole(edit(), json!({"groupNames": [1]})), "groupNames[0]: Invalid value: a number: has"),
    ] {
        let found = refused(json!([object]), &means());
        assert!(found[0].starts_with(said), "{said}: {found:?}");
    }
    let account = of(edit(), json!([{"kind": "ServiceAccount", "name": "a"}]));
    let said = refused(json!([account]), &Translation { namespace: None, ..means() });
    assert!(said[0].ends_with("set it, or say where objects go"), "{said:?}");
}
