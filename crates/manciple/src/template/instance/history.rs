//! `manciple template instance history`: prints the revisions of an instance.

use jiff::Timestamp;
use kube::api::DynamicObject;
use kubernetes::templates::record::Revision;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::revisions::changes;
use crate::cli::failure::Failure;
use crate::cli::output::one_line;
use crate::cli::times;

/// The annotation in which a template may say its version.
const VERSION: &str = "template.manciple.dev/version";

pub(super) async fn print(cluster: &Cluster) -> Result<(), Failure> {
    let instance = cluster.instance().await?;
    let revisions = cluster.revisions(&instance).await?;
    let out = cluster.out;
    let before = revisions.iter().skip(1).map(Some).chain([None]);
    let pairs = revisions.iter().zip(before);
    if out.is_json() {
        let items: Vec<Value> = pairs.map(|(it, before)| document(it, before)).collect();
        return out.json(&json!({ "items": items }));
    }
    if out.quiet {
        let numbers: Vec<String> =
            revisions.iter().map(|it| it.record.revision.to_string()).collect();
        return if numbers.is_empty() { Ok(()) } else { out.line(&numbers.join("\n")) };
    }
    let now = Timestamp::now();
    let rows = pairs.map(|(it, before)| row(it, before, now));
    out.table(&["REVISION", "RECORDED", "REQUESTER", "TEMPLATE", "CHANGES"], rows.collect())?;
    if let (true, Some(why)) = (revisions.is_empty(), failure(&instance)) {
        out.hint(&one_line(&format!("nothing is recorded, for nothing was made: {why}")));
    } else if revisions.is_empty() {
        out.hint(
            "nothing is recorded yet: is a controller running, and is the requester verified?",
        );
    } else if revisions.len() > 1 {
        out.hint(&format!("what a rollback would do: {} --to-revision N", cluster.command("diff")));
    }
    Ok(())
}

/// Why the instance failed, if it did.
fn failure(instance: &DynamicObject) -> Option<&str> {
    let conditions = instance.data["status"]["conditions"].as_array()?;
    let failed = conditions.iter().find(|it| it["type"] == "InstantiateFailure")?;
    failed["message"].as_str().filter(|_| failed["status"] == "True")
}

fn row(revision: &Revision, before: Option<&Revision>, now: Timestamp) -> Vec<String> {
    let record = &revision.record;
    let words = changes(revision, before).map(|changes| changes.words());
    let [name, version] = template(revision);
    vec![
        record.revision.to_string(),
        times::ago(&record.recorded_at, now),
        record.requester["username"].as_str().unwrap_or_default().to_owned(),
        [name, version].into_iter().flatten().collect::<Vec<_>>().join(" "),
        words.unwrap_or_else(|| "too large to be kept".to_owned()),
    ]
}

/// The document of a revision, for programs.
fn document(revision: &Revision, before: Option<&Revision>) -> Value {
    let record = &revision.record;
    let [name, version] = template(revision);
    let mut document = json!({
        "revision": record.revision,
        "recorded_at": record.recorded_at,
        "requester": record.requester["username"],
        "template": {"name": name, "version": version},
        "kept": revision.spec.is_some(),
    });
    if let Some(changes) = changes(revision, before) {
        document["objects"] = json!(changes.objects);
        document["parameters_changed"] = json!(changes.parameters);
        if let Some([new, gone, changed]) = changes.compared {
            document["changes"] = json!({"new": new, "gone": gone, "changed": changed});
        }
    }
    document
}

/// The name and the version of a revision's template, as far as it says them.
fn template(revision: &Revision) -> [Option<String>; 2] {
    let Some(spec) = &revision.spec else { return [None, None] };
    let metadata = &spec["template"]["metadata"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    [text(&metadata["name"]), text(&metadata["annotations"][VERSION])]
}
