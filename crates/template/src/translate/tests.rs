mod deployment;
mod roles;
mod route;

use serde_json::json;

use super::*;

/// The domain is `apps.example.com`, the namespace `shop`.
fn means() -> Translation {
    Translation {
        domain: Some("apps.example.com".to_owned()),
        ingress_class: None,
        namespace: Some("shop".to_owned()),
    }
}

fn translated(objects: Value) -> Translated {
    let Value::Array(objects) = objects else { panic!("objects are a list") };
    translate(objects.clone(), &means()).unwrap_or_else(|faults| panic!("{faults:?}: {objects:?}"))
}

/// What becomes of one object, and what is said: without the path of the object.
fn one(object: Value) -> (Value, Vec<String>) {
    let mut translated = translated(json!([object]));
    assert_eq!(translated.objects.len(), 1, "{translated:?}");
    (translated.objects.remove(0), said(&translated.warnings))
}

fn said(faults: &[Fault]) -> Vec<String> {
    let text = |fault: &Fault| fault.to_string();
    let short =
        |text: String| text.strip_prefix("template.objects[0].").unwrap_or(&text).to_owned();
    faults.iter().map(text).map(short).collect()
}

/// Why objects cannot be translated.
fn refused(objects: Value, means: &Translation) -> Vec<String> {
    let Value::Array(objects) = objects else { panic!("objects are a list") };
    said(&translate(objects, means).unwrap_err())
}

/// A change to an object: what stands at a pointer; null takes it away.
fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (of, key) = pointer.rsplit_once('/').unwrap();
    let members = object.pointer_mut(of).unwrap().as_object_mut().unwrap();
    members.insert(key.to_owned(), value);
    object
}

#[test]
fn other_kinds_stay_as_they_are() {
    let objects = json!([
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}},
        {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": {"host": 1}},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "userNames": ["x"]},
        {"apiVersion": "template.openshift.io/v1", "kind": "Template"},
        {"apiVersion": "example.com/v1", "kind": "Route"},
        {"apiVersion": 1, "kind": "Route"},
        {"kind": "Route"},
        null,
        [],
    ]);
    let found = translated(objects.clone());
    assert_eq!(Value::from(found.objects), objects);
    assert_eq!(found.warnings, []);
}

#[test]
fn kinds_that_only_openshift_has_are_named() {
    let build = json!({"apiVersion": "v1", "kind": "BuildConfig", "metadata": {"name": "b"}});
    let stream = json!({"apiVersion": "image.openshift.io/v1", "kind": "ImageStream"});
    for object in [build, stream] {
        let (found, said) = one(object.clone());
        assert_eq!(found, object);
        assert_eq!(said, ["kind: Questionable: only OpenShift has this kind: it stays as it is"]);
    }
}

#[test]
fn all_faults_are_given_each_with_its_path() {
    let objects = json!([
        {"apiVersion": "v1", "kind": "Route"},
        {"apiVersion": "v1", "kind": "ConfigMap"},
        {"apiVersion": "v1", "kind": "DeploymentConfig", "spec": {"test": true}},
    ]);
    let paths: Vec<_> = translate(objects.as_array().unwrap().clone(), &means())
        .unwrap_err()
        .into_iter()
        .map(|fault| fault.path)
        .collect();
    assert_eq!(
        paths,
        [
            "template.objects[0].spec.host",
            "template.objects[0].spec.to.name",
            "template.objects[0].spec.port",
            "template.objects[2].spec.template",
            "template.objects[2].spec.test",
        ]
    );
}

#[test]
fn what_is_made_has_a_name_of_its_own() {
    let route = route::route();
    let ingress = |namespace: Value| {
        json!({
            "apiVersion": "networking.k8s.io/v1beta1", "kind": "Ingress",
            "metadata": {"name": "web", "namespace": namespace},
        })
    };
    let taken = "template.objects[0]: Duplicate value: the name: another object of the template is the Ingress that \
                 it becomes: rename one";
    for namespace in [json!(null), json!("shop")] {
        assert_eq!(refused(json!([route, ingress(namespace)]), &means()), [taken]);
    }
    translated(json!([route, ingress(json!("other"))]));
    let taken = "template.objects[1]: Duplicate value: the name: another object of the template is the Ingress that \
                 it becomes: rename one";
    assert_eq!(refused(json!([route, route]), &means()), [taken]);
}

#[test]
fn no_fault_and_no_warning_has_a_value() {
    let secret = "hunter2";
    let of = |kind: &str, spec: Value| {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": secret, "annotations": {
            "template.openshift.io/expose-hunter2": "{.hunter2}", "haproxy.router.openshift.io/hunter2": secret,
        }}, "spec": spec, "hunter2": secret})
    };
    let objects = json!([
        of("Route", json!({
            "host": secret, "path": secret, "wildcardPolicy": secret, "hunter2": secret,
            "to": {"kind": secret, "name": secret}, "port": {"targetPort": [secret]},
            "tls": {"termination": secret, "key": secret, "insecureEdgeTerminationPolicy": secret},
        })),
        of("DeploymentConfig", json!({
            "strategy": {"type": secret, "customParams": secret}, "triggers": [{"type": secret}], "selector": secret,
            "template": secret, "hunter2": secret,
        })),
        {"apiVersion": "v1", "kind": "RoleBinding", "roleRef": {"name": secret, "namespace": secret, "kind": secret},
         "subjects": [{"kind": secret, "name": secret}, secret]},
        {"apiVersion": "v1", "kind": "Role", "rules": [secret, {"verbs": secret, "attributeRestrictions": secret}]},
    ]);
    let faults = refused(objects, &means());
    assert!(faults.len() > 15, "{faults:?}");
    assert!(!faults.concat().contains(secret), "{faults:?}");
}
