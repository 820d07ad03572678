//! The credentials of a binding: the values that annotations of the objects expose.
//!
//! `template.openshift.io/expose-KEY` holds a JSONPath template over the object that has the annotation; data of a
//! Secret is decoded, and has to be text then. `template.openshift.io/base64-expose-KEY` leaves the data in base64, and
//! other values as they are: as in the original, where only that place of an object has bytes.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use serde_json::Value;

use crate::jsonpath::{self, FindError, JsonPath};

/// The prefix of annotations that expose a plain value.
const PLAIN: &str = "template.openshift.io/expose-";
/// The prefix of annotations that expose a value in base64.
const ENCODED: &str = "template.openshift.io/base64-expose-";
/// The kinds that may expose something, by group and kind: those of the original, and what a Route is translated to.
const KINDS: [(&str, &str); 6] = [
    ("", "ConfigMap"),
    ("", "Secret"),
    ("", "Service"),
    ("", "Route"),
    ("route.openshift.io", "Route"),
    ("networking.k8s.io", "Ingress"),
];

/// The message where the exposed values together exceed the limits.
const TOO_MUCH: &str =
    "up to here it takes too long to find what is exposed, or it is too long: expose less";

/// Why a value cannot be exposed. The message never quotes the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name}: metadata.annotations[{annotation:?}]: {detail}")]
pub struct NotExposed {
    /// The kind of the object.
    pub kind: String,
    /// The name of the object.
    pub name: String,
    /// The annotation that exposes it.
    pub annotation: String,
    /// What is wrong with it, and the remedy.
    pub detail: String,
}

/// Whether objects of this kind may expose something.
pub fn may_expose(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    KINDS.contains(&(group, kind))
}

/// The key that an annotation exposes, by the annotation's name, and whether the value is in base64.
pub(crate) fn exposed(annotation: &str) -> Option<(&str, bool)> {
    let plain = annotation.strip_prefix(PLAIN).map(|key| (key, false));
    plain.or_else(|| annotation.strip_prefix(ENCODED).map(|key| (key, true)))
}

/// Whether an object has an annotation that exposes something; its metadata is enough to tell.
pub fn exposes(object: &Value) -> bool {
    let mut annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
    annotations.any(|(annotation, _)| exposed(annotation).is_some())
}

/// What objects expose, all of them together: see [`Exposed`].
///
/// # Errors
///
/// The first of [`Exposed::add`].
pub fn expose<'a>(
    objects: impl IntoIterator<Item = &'a Value>,
) -> Result<BTreeMap<String, String>, NotExposed> {
    let mut exposed = Exposed::default();
    for object in objects {
        exposed.add(object)?;
    }
    Ok(exposed.credentials)
}

/// What objects expose that are looked at one after the other, so that none has to be there for the next.
///
/// A path that leads nowhere gives an empty text, as in the original, for example for an address that is not there yet.
/// All paths together may take as many steps as a single one, [`jsonpath::MAX_STEPS`], and give no more than
/// [`jsonpath::MAX_BYTES`] bytes: an object has room for thousands of annotations.
#[derive(Default)]
pub struct Exposed {
    /// By the keys of the annotations.
    pub credentials: BTreeMap<String, String>,
    left: Left,
}

impl Exposed {
    /// Adds what another object exposes.
    ///
    /// # Errors
    ///
    /// The first of these faults: an annotation that is no JSONPath, or that finds several values or something other than
    /// text, a number or a boolean; data that is no UTF-8, except for base64; a key that is exposed already; too many
    /// values or steps.
    pub fn add(&mut self, object: &Value) -> Result<(), NotExposed> {
        add(object, &mut self.credentials, &mut self.left)
    }
}

/// What the remaining paths may cost.
struct Left {
    steps: usize,
    bytes: usize,
}

impl Default for Left {
    fn default() -> Self {
        Self { steps: jsonpath::MAX_STEPS, bytes: jsonpath::MAX_BYTES }
    }
}

fn add(
    object: &Value,
    credentials: &mut BTreeMap<String, String>,
    left: &mut Left,
) -> Result<(), NotExposed> {
    let text = |of: &str| object[of].as_str().unwrap_or_default();
    if !may_expose(text("apiVersion"), text("kind")) {
        return Ok(());
    }
    let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
    for (annotation, path) in annotations {
        let Some((key, encoded)) = exposed(annotation) else { continue };
        let refused = |detail: String| NotExposed {
            kind: text("kind").to_owned(),
            name: object["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            annotation: annotation.clone(),
            detail,
        };
        if credentials.contains_key(key) {
            return Err(refused(format!("credential with key {key:?} already exists")));
        }
        let path = path.as_str().unwrap_or_default();
        let bytes = evaluate(object, path, encoded, left).map_err(refused)?;
        let value = String::from_utf8(bytes).map_err(|_| {
            let remedy = format!("it is no UTF-8: expose it by {ENCODED}{key}");
            refused(remedy)
        })?;
        credentials.insert(key.to_owned(), value);
    }
    Ok(())
}

/// Evaluates a JSONPath template for an object.
fn evaluate(object: &Value, path: &str, encoded: bool, left: &mut Left) -> Result<Vec<u8>, String> {
    // A syntax error might quote the value of a parameter in the annotation.
    let path = JsonPath::parse(path).map_err(|_| {
        "it is no JSONPath template: `manciple template lint` of the template says why".to_owned()
    })?;
    // An evaluation error might quote the data of a Secret.
    let none = |error: FindError| match error.is_limit() {
        true => TOO_MUCH.to_owned(),
        false => "the path cannot be followed in this object".to_owned(),
    };
    let path = path.allow_missing_keys(true);
    let found = path.find_within(object, &mut left.steps).map_err(none)?;
    let mut bytes = Vec::new();
    for results in found {
        let more = match results.as_slice() {
            [] => continue,
            [one] => scalar(object, one, encoded)?,
            [..] => return Err(format!("it finds {} things: one is text", results.len())),
        };
        left.bytes = left.bytes.checked_sub(more.len()).ok_or(TOO_MUCH)?;
        bytes.extend(more);
    }
    Ok(bytes)
}

fn scalar(object: &Value, found: &Value, encoded: bool) -> Result<Vec<u8>, String> {
    match found {
        Value::String(text) if is_secret_data(object, found) => {
            let decoded = BASE64.decode(text.as_bytes());
            let bytes = decoded.map_err(|_| "the data of the Secret is no base64".to_owned())?;
            Ok(if encoded { BASE64.encode(&bytes).into_bytes() } else { bytes })
        }
        Value::String(text) => Ok(text.clone().into_bytes()),
        Value::Number(number) => Ok(jsonpath::number(number).into_bytes()),
        Value::Bool(truth) => Ok(truth.to_string().into_bytes()),
        Value::Null => Err("it finds null: nil kind interface is no text".to_owned()),
        Value::Array(_) => Err("it finds a list: unrepresentable kind slice".to_owned()),
        Value::Object(_) => Err("it finds a map: unrepresentable kind map".to_owned()),
    }
}

/// Whether a node is an entry of the Secret's data.
fn is_secret_data(object: &Value, node: &Value) -> bool {
    let data = object["data"].as_object().filter(|_| object["kind"] == "Secret");
    data.is_some_and(|data| data.values().any(|entry| std::ptr::eq(entry, node)))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use serde_json::json;

    use super::*;

    fn of(object: Value) -> Result<BTreeMap<String, String>, String> {
        expose([&object]).map_err(|error| error.to_string())
    }

    fn secret(annotation: &str, path: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "s", "annotations": {annotation: path}},
            "data": {"user": "YWRtaW4=", "bin": "/w==", "a.b": "eA==", "bad": "!"},
            "type": "Opaque",
        })
    }

    fn service(path: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "s", "annotations": {"template.openshift.io/expose-k": path}},
            "spec": {
                "clusterIP": "10.0.0.1",
                "ports": [{"name": "web", "port": 8080}, {"name": "admin", "port": 9090}],
                "headless": false, "nothing": null,
            },
        })
    }

    #[test]
    fn what_annotations_expose_is_given() {
        for (path, value) in [
            (r#"{.spec.clusterIP}:{.spec.ports[?(.name=="web")].port}"#, "10.0.0.1:8080"),
            ("http://{.spec.clusterIP}/", "http://10.0.0.1/"),
            ("{.spec.headless}", "false"),
            ("{.spec.missing}{.spec.clusterIP}", "10.0.0.1"),
            ("{.spec.missing}", ""),
            ("plain", "plain"),
            ("", ""),
        ] {
            assert_eq!(
                of(service(path)).as_ref().map(|all| all["k"].as_str()),
                Ok(value),
                "{path}"
            );
        }
    }

    #[test]
    fn numbers_are_written_as_go_writes_them() {
        for (number, text) in [
            (json!(0), "0"),
            (json!(-1), "-1"),
            (json!(9_007_199_254_740_993_u64), "9007199254740993"),
            (json!(0.5), "0.5"),
            (json!(1234.5), "1234.5"),
            (json!(1e21), "1e+21"),
            (json!(0.00001), "1e-05"),
        ] {
            let mut object = service("{.spec.number}");
            object["spec"]["number"] = number.clone();
            assert_eq!(of(object).unwrap()["k"], text, "{number}");
        }
    }

    /// All that the templates of old have in these annotations is of one of these forms.
    #[test]
    fn what_templates_of_old_expose_is_given() {
        let route = json!({"host": "h.example.com", "path": "/p"});
        let ports = json!({"clusterIP": "10.0.0.1", "ports": [{"name": "x", "port": 80}]});
        for (kind, spec, path, value) in [
            ("Route", route.clone(), "http://{.spec.host}{.spec.path}", "http://h.example.com/p"),
            ("Route", json!({"host": "h"}), "http://{.spec.host}{.spec.path}", "http://h"),
            ("Service", ports.clone(), r#"{.spec.ports[?(.name=="x")].port}"#, "80"),
            (
                "Service",
                ports,
                r#"postgres://{.spec.clusterIP}:{.spec.ports[?(.name=="x")].port}"#,
                "postgres://10.0.0.1:80",
            ),
        ] {
            let mut object = service(path);
            (object["kind"], object["spec"]) = (kind.into(), spec);
            assert_eq!(of(object).unwrap()["k"], value, "{path}");
        }
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
            "metadata": {"annotations": {"template.openshift.io/expose-k": "{.data['k']}"}},
        });
        assert_eq!(of(map).unwrap()["k"], "v");
        let none = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
        assert_eq!(of(none), Ok(BTreeMap::new()));
    }

    #[test]
    fn the_data_of_a_secret_is_decoded() {
        let plain = |path: &str| of(secret("template.openshift.io/expose-k", path));
        assert_eq!(plain("{.data.user}").unwrap()["k"], "admin");
        assert_eq!(plain("{.data['user']}@x").unwrap()["k"], "admin@x");
        assert_eq!(plain(r"{.data.a\.b}").unwrap()["k"], "x");
        assert_eq!(plain("{.type}").unwrap()["k"], "Opaque");
        let encoded = |path: &str| of(secret("template.openshift.io/base64-expose-k", path));
        assert_eq!(encoded("{.data.bin}").unwrap()["k"], "/w==");
        assert_eq!(encoded("{.data.user}@{.data.bin}").unwrap()["k"], "YWRtaW4=@/w==");
        assert_eq!(encoded("{.type}").unwrap()["k"], "Opaque");
    }

    #[test]
    fn what_is_no_text_is_refused_without_a_value() {
        for (object, said) in [
            (service("{.spec.ports}"), "it finds a list: unrepresentable kind slice"),
            (service("{.spec}"), "it finds a map: unrepresentable kind map"),
            (service("{.spec.nothing}"), "it finds null: nil kind interface is no text"),
            (service("{.spec.ports[*].port}"), "it finds 2 things: one is text"),
            (service("{.spec['planted"), "it is no JSONPath template"),
            (secret("template.openshift.io/expose-k", "{.data.bin}"), "it is no UTF-8"),
            (secret("template.openshift.io/expose-k", "{.data.bad}"), "no base64"),
            (
                secret("template.openshift.io/expose-k", "{.data.user[?(@.x)]}"),
                "cannot be followed",
            ),
        ] {
            let refused = of(object).unwrap_err();
            assert!(refused.contains(said), "{refused}");
            assert!(refused.contains(r#"metadata.annotations["template.openshift.io/expose-k"]"#));
            let held = ["YWRt", "admin", "planted"];
            assert!(!held.iter().any(|it| refused.contains(it)), "{refused}");
        }
    }

    #[test]
    fn a_key_is_exposed_once() {
        let object = service("{.spec.clusterIP}");
        let refused = expose([&object, &object]).unwrap_err();
        assert_eq!(refused.detail, r#"credential with key "k" already exists"#);
    }

    /// Each of these goes well alone.
    #[test]
    fn all_that_is_exposed_has_a_limit_together() {
        let list = json!(vec![1; 10_000]);
        let text = json!("x".repeat(100_000));
        for (name, spec, path) in [
            ("what is looked through", list, "{.spec[*].missing}"),
            ("what is given", text, "{.spec}{.spec}{.spec}{.spec}{.spec}"),
        ] {
            let exposing = |keys: Range<usize>| {
                let mut object = service("");
                object["spec"] = spec.clone();
                object["metadata"]["annotations"] = keys
                    .map(|index| (format!("template.openshift.io/expose-{index:03}"), json!(path)))
                    .collect();
                object
            };
            assert!(expose([&exposing(0..1)]).is_ok(), "{name}");
            let several = (0..40).map(|index| exposing(index * 3..index * 3 + 3));
            for objects in [vec![exposing(0..100)], several.collect()] {
                let refused = expose(&objects).unwrap_err();
                assert_eq!(refused.detail, TOO_MUCH, "{name}");
            }
        }
    }

    #[test]
    fn only_some_kinds_expose() {
        assert!(may_expose("route.openshift.io/v1", "Route") && may_expose("v1", "Route"));
        assert!(may_expose("networking.k8s.io/v1", "Ingress"));
        assert!(!may_expose("apps/v1", "Deployment") && !may_expose("example.com/v1", "Secret"));
        let mut deployment = service("{.spec.clusterIP}");
        (deployment["apiVersion"], deployment["kind"]) = ("apps/v1".into(), "Deployment".into());
        assert_eq!(of(deployment), Ok(BTreeMap::new()));
    }
}
