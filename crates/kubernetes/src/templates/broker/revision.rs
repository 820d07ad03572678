//! The revision of a template: the version that a plan has in `maintenance_info`, by which a platform asks for the
//! newer one.

use osb::MaintenanceInfo;
use serde_json::{Value, json};

use crate::templates::verified::digest;

/// The annotation of a template with its semantic version.
pub(super) const VERSION: &str = "template.manciple.dev/version";
/// The members of a template from which an instance is made.
const CONTENT: [&str; 4] = ["objects", "parameters", "labels", "message"];
/// How many hexadecimal digits of the content's digest are in a version.
const DIGITS: usize = 12;

/// The revision of a template document: the version that its author gives; otherwise one from its generation, if the
/// API server counts that, and from the digest of its content.
pub(super) fn revision(document: &Value) -> MaintenanceInfo {
    let metadata = &document["metadata"];
    let said = metadata["annotations"][VERSION].as_str();
    if let Some(version) = said.filter(|version| osb::catalog::is_version(version)) {
        let description = format!("Version {version} of the template");
        return MaintenanceInfo { version: version.to_owned(), description: Some(description) };
    }
    let generation = metadata["generation"].as_u64().unwrap_or_default();
    let content: Vec<&Value> = CONTENT.iter().map(|member| &document[*member]).collect();
    let digest = digest(&json!(content));
    let digest = digest.get(..DIGITS).unwrap_or_default();
    MaintenanceInfo {
        version: format!("1.{generation}.0+{digest}"),
        description: Some("The template as it is now".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Value {
        json!({
            "metadata": {"name": "t", "generation": 7, "annotations": {}},
            "objects": [{"kind": "ConfigMap"}], "parameters": [{"name": "A"}],
            "labels": {"a": "b"}, "message": "m",
        })
    }

    fn version(change: fn(&mut Value)) -> String {
        let mut document = template();
        change(&mut document);
        revision(&document).version
    }

    #[test]
    fn a_version_is_the_authors_or_is_made_of_what_an_instance_is_made_of() {
        let made = version(|_| ());
        assert!(made.starts_with("1.7.0+") && made.len() == 18, "{made}");
        assert!(osb::catalog::is_version(&made));
        type Change = fn(&mut Value);
        let same: [(&str, Change); 3] = [
            ("another description", |it| it["metadata"]["annotations"]["description"] = json!("d")),
            ("a version that is none", |it| it["metadata"]["annotations"][VERSION] = json!("v2")),
            ("another way to write it", |it| it["extra"] = json!(null)),
        ];
        for (case, change) in same {
            assert_eq!(version(change), made, "{case}");
        }
        let other: [(&str, Change); 5] = [
            ("an object", |it| it["objects"][0]["kind"] = json!("Secret")),
            ("a parameter", |it| it["parameters"][0]["value"] = json!("1")),
            ("a label", |it| it["labels"]["a"] = json!("c")),
            ("the message", |it| it["message"] = json!("n")),
            ("a change that was changed back", |it| it["metadata"]["generation"] = json!(9)),
        ];
        for (case, change) in other {
            assert_ne!(version(change), made, "{case}");
        }
        assert_eq!(
            version(|it| it["metadata"]["annotations"][VERSION] = json!("2.1.0-rc.1")),
            "2.1.0-rc.1"
        );
        let uncounted = version(|it| it["metadata"]["generation"] = json!(null));
        assert_eq!(uncounted, made.replace("1.7.0", "1.0.0"));
    }
}
