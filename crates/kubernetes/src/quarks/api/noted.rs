//! The notes of a run in the annotations of its Job: whoever has nothing but the Job can carry the run on as it was
//! begun.

use std::collections::BTreeMap;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use engine::trigger::{JobRecord, References, Run, Trigger, Versions};
use k8s_openapi::api::batch::v1::Job;
use kube::api::ObjectMeta;
use ring::hmac;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dialect::Dialect;
use super::naming;
use super::pod::SIDECAR;
use super::resource::longest;

/// The annotation of a Job or a pod with the number of its run.
pub(crate) const RUN_ID: &str = "manciple.dev/run-id";
/// The annotation of a Job that the original operator has made.
const INHERITED: &str = "manciple.dev/inherited";
/// The annotation with the trigger of the run.
const TRIGGER: &str = "manciple.dev/trigger";
/// The annotation with the [`digest`] of the spec that the Job was made by.
const SPEC: &str = "manciple.dev/spec";
/// The annotation with `spec.output`, which says what is kept of the run.
const OUTPUT: &str = "manciple.dev/output";
/// The annotation with what the run's references held when it began, as in the record: the record may be removed while
/// the run goes on.
const FOUND: &str = "manciple.dev/found";
/// The annotation with how many seconds the Job stays after its end, by the template that it was made by.
pub(crate) const STAYS: &str = "manciple.dev/ttl";
/// The annotation that proves that we have made the Job.
const PROOF: &str = "manciple.dev/proof";
/// The longest `spec.output` that is noted, in bytes: an object's annotations have room for 256 KiB. A longer one is
/// not noted, and the newest spec says what is kept of the run.
const MAX_OUTPUT_BYTES: usize = 128 * 1024;
/// The longest note of what a run found, in bytes. A longer one is not ours: anybody who may write a Job may write it,
/// and it is held in memory for as long as the run goes on.
const MAX_FOUND_BYTES: usize = 64 * 1024;

/// The notes of a run, as its Job has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    /// What triggered the run; `None`: the version of Manciple that made the Job did not note it.
    pub(crate) trigger: Option<Trigger>,
    /// When the Job was made, RFC 3339.
    pub(crate) at: String,
    /// The original operator has made the Job, and its pods keep their output themselves.
    pub(crate) inherited: bool,
    /// How many seconds the Job stays after its end.
    pub(crate) stays: Option<u64>,
    /// Whether output is kept though the run fails; `None`: that is not noted.
    pub(crate) keeps_failures: Option<bool>,
    digest: Option<Arc<str>>,
    found: Option<Arc<str>>,
}

/// What a run's references held when it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) references: References,
    #[serde(default, skip_serializing_if = "Versions::is_empty")]
    pub(crate) versions: Versions,
}

impl Noted {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        let note = |name: &str| metadata.annotations.as_ref()?.get(name);
        let trigger = note(TRIGGER).map(|word| json!(word));
        Self {
            trigger: trigger.and_then(|word| Trigger::deserialize(word).ok()),
            at: metadata.creation_timestamp.as_ref().map(|at| at.0.to_string()).unwrap_or_default(),
            inherited: note(INHERITED).is_some(),
            stays: note(STAYS).and_then(|seconds| seconds.parse().ok()).map(longest),
            keeps_failures: note(OUTPUT).and_then(|output| {
                let output: Value = serde_json::from_str(output).ok()?;
                Some(output["writeOnFailure"] == true)
            }),
            digest: note(SPEC).map(|digest| digest.as_str().into()),
            found: note(FOUND)
                .filter(|it| it.len() <= MAX_FOUND_BYTES)
                .map(|found| found.as_str().into()),
        }
    }

    /// What the run found, if that is noted.
    pub(crate) fn found(&self) -> Option<Found> {
        serde_json::from_str(self.found.as_deref()?).ok()
    }

    /// Forgets what the run found: that may be many times as large as all the rest.
    pub(crate) fn forget_found(&mut self) {
        self.found = None;
    }

    /// Whether the Job was made by the spec of this digest, as far as that is noted.
    pub(crate) fn is_by(&self, digest: &str) -> bool {
        self.digest.as_deref().is_none_or(|known| known == digest)
    }
}

/// The key by which Jobs are proved to be ours. Without a proof, whoever may make Jobs in a namespace could have one
/// taken for that of a run, with notes that say which Secrets are written; and so would a Job that was copied by hand.
pub(crate) struct Proofs(hmac::Key);

impl Proofs {
    /// From the key of digests. The same key serves both: no object's digest is as long as what is proved here.
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Adds the proof to the annotations of a Job that is about to be made.
    pub(crate) fn add(&self, namespace: &str, name: &str, owner: &str, annotations: &mut Value) {
        let note = |name: &str| annotations[name].as_str();
        let proof = hmac::sign(&self.0, &proved(namespace, name, owner, note));
        annotations[PROOF] = json!(HEXLOWER.encode(proof.as_ref()));
    }

    /// Whether we have made this Job, under this name, for this owner, with these notes.
    pub(crate) fn hold(&self, job: &ObjectMeta, owner: &str) -> bool {
        let note = |name: &str| job.annotations.as_ref()?.get(name).map(String::as_str);
        let (Some(namespace), Some(name)) = (&job.namespace, &job.name) else { return false };
        let proof = note(PROOF).and_then(|proof| HEXLOWER.decode(proof.as_bytes()).ok());
        let proved = proved(namespace, name, owner, note);
        proof.is_some_and(|proof| hmac::verify(&self.0, &proved, &proof).is_ok())
    }
}

fn proved<'n>(
    namespace: &str,
    name: &str,
    owner: &str,
    note: impl Fn(&str) -> Option<&'n str>,
) -> Vec<u8> {
    let notes = [RUN_ID, TRIGGER, SPEC, OUTPUT, INHERITED].map(note);
    json!(["a Job of a run", namespace, name, owner, notes]).to_string().into_bytes()
}

/// The notes of a run for its Job; `record` is the record that the run is in.
pub(crate) fn notes(run: &Run, spec: &Value, record: &JobRecord) -> Value {
    let mut notes = BTreeMap::from([
        (RUN_ID, run.id.to_string()),
        (TRIGGER, run.trigger.word().to_owned()),
        (SPEC, digest(spec)),
    ]);
    // Noted even if there is none: output may be added to the spec while the run goes on, for the next one.
    let output = match spec["output"].is_object() {
        true => spec["output"].to_string(),
        false => Value::Null.to_string(),
    };
    if output.len() <= MAX_OUTPUT_BYTES {
        notes.insert(OUTPUT, output);
    }
    let (references, versions) = (record.references.clone(), record.versions.clone());
    let found = references.map(|references| json!(Found { references, versions }).to_string());
    notes.extend(found.filter(|it| it.len() <= MAX_FOUND_BYTES).map(|it| (FOUND, it)));
    json!(notes)
}

/// The notes of a run whose Job the original operator has made.
pub(crate) fn inherited(run: u64, trigger: Trigger) -> Value {
    json!({RUN_ID: run.to_string(), TRIGGER: trigger.word(), INHERITED: "true"})
}

/// The spec that a Job was made by, as far as what is kept of the run depends on it.
pub(crate) fn spec_of(dialect: Dialect, job: &Job) -> Option<Value> {
    let noted = job.metadata.annotations.as_ref()?.get(OUTPUT)?;
    let output: Value = serde_json::from_str(noted).ok()?;
    let mut pod = serde_json::to_value(&job.spec.as_ref()?.template).ok()?;
    // A classic sidecar is one of the containers, but not in the template, and leaves nothing of its own.
    if let Some(containers) = pod.pointer_mut("/spec/containers").and_then(Value::as_array_mut) {
        containers.retain(|container| container["name"] != SIDECAR);
    }
    Some(match dialect {
        Dialect::QuarksJob => json!({"template": {"spec": {"template": pod}}, "output": output}),
        Dialect::ExtendedJob => json!({"template": pod, "output": output}),
    })
}

/// A digest of a spec's template and output.
pub(crate) fn digest(spec: &Value) -> String {
    naming::hash([&*spec["template"].to_string(), &*spec["output"].to_string()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quarks::api::output_map::OutputMap;

    fn job(annotations: &Value) -> Job {
        let object = json!({
            "metadata": {"annotations": annotations, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn what_a_run_found_is_not_ours_where_it_is_more_than_we_write() {
        let found = json!({"references": {}}).to_string();
        let padded = format!("{found}{}", " ".repeat(MAX_FOUND_BYTES));
        for (text, is_kept) in [(found, true), (padded, false)] {
            let job = job(&json!({FOUND: text}));
            assert_eq!(Noted::of(&job.metadata).found().is_some(), is_kept);
        }
    }

    #[test]
    fn a_job_says_what_its_run_was_begun_for_and_by_what() {
        let run = Run {
            id: 3,
            trigger: Trigger::ConfigChange,
            at: String::new(),
            inputs: Vec::new(),
            pod: None,
        };
        let spec = json!({
            "trigger": {"strategy": "once"}, "template": {"a": 1},
            "output": {"outputMap": {"c": {"o.json": {"name": "s"}}}},
        });
        let job = job(&notes(&run, &spec, &JobRecord::default()));
        let noted = Noted::of(&job.metadata);
        assert_eq!(noted.trigger, Some(Trigger::ConfigChange));
        assert_eq!(noted.at, "2026-01-01T00:00:00Z");
        for (name, member, value, same) in [
            ("nothing", "x", json!(null), true),
            ("its trigger", "trigger", json!({"strategy": "now"}), true),
            ("its template", "template", json!({"a": 2}), false),
            ("its output", "output", json!({}), false),
        ] {
            let mut changed = spec.clone();
            changed[member] = value;
            assert_eq!(noted.is_by(&digest(&changed)), same, "{name}");
        }
        let kept = spec_of(Dialect::QuarksJob, &job).unwrap();
        assert_eq!(kept["output"], spec["output"]);
        assert_eq!(Dialect::QuarksJob.pod_spec(&kept)["containers"][0]["name"], "c");
    }

    #[test]
    fn a_sidecar_of_ours_is_no_container_of_which_a_prefix_has_something_kept() {
        let note = json!({OUTPUT: json!({"namePrefix": "foo"}).to_string()});
        let ours = json!([{"name": "c"}, {"name": SIDECAR}]);
        for (name, dialect) in
            [("files", Dialect::QuarksJob), ("what is printed", Dialect::ExtendedJob)]
        {
            let mut job = serde_json::to_value(job(&note)).unwrap();
            job["spec"]["template"]["spec"]["containers"] = ours.clone();
            let kept = spec_of(dialect, &serde_json::from_value(job).unwrap()).unwrap();
            let map = OutputMap::of(dialect, &kept);
            assert_eq!(map.containers().collect::<Vec<_>>(), ["c"], "{name}");
        }
    }

    #[test]
    fn a_run_of_which_nothing_is_kept_stays_one_whatever_is_said_meanwhile() {
        let run =
            Run { id: 3, trigger: Trigger::Once, at: String::new(), inputs: Vec::new(), pod: None };
        for spec in [json!({"template": {"a": 1}}), json!({"template": {"a": 1}, "output": null})] {
            let job = job(&notes(&run, &spec, &JobRecord::default()));
            let mut added = spec.clone();
            added["output"] = json!({"outputMap": {"c": {"o.json": {"name": "s"}}}});
            assert!(!Noted::of(&job.metadata).is_by(&digest(&added)), "{spec}");
            assert_eq!(spec_of(Dialect::QuarksJob, &job).unwrap()["output"], json!(null), "{spec}");
        }
    }

    #[test]
    fn only_what_was_made_under_this_name_for_this_owner_with_these_notes_is_ours() {
        let proofs = Proofs::new(&[7; 32]);
        let run =
            Run { id: 3, trigger: Trigger::Now, at: String::new(), inputs: Vec::new(), pod: None };
        let mut annotations =
            notes(&run, &json!({"output": {"outputMap": {}}}), &JobRecord::default());
        proofs.add("n", "a-3", "u", &mut annotations);
        let made = json!({"namespace": "n", "name": "a-3", "annotations": annotations});
        let changed = |path: &str, value: Value| {
            let mut changed = made.clone();
            *changed.pointer_mut(path).unwrap() = value;
            changed
        };
        let with = |name: &str, value: &str| {
            let mut changed = made.clone();
            changed["annotations"][name] = json!(value);
            changed
        };
        for (case, metadata, owner, expected) in [
            ("as it was made", made.clone(), "u", true),
            ("a note of somebody else", with("example.com/x", "y"), "u", true),
            ("another name", changed("/name", json!("copy")), "u", false),
            ("another namespace", changed("/namespace", json!("m")), "u", false),
            ("another owner", made.clone(), "v", false),
            ("another run", with(RUN_ID, "4"), "u", false),
            ("another output", with(OUTPUT, "{}"), "u", false),
            ("the original's", with(INHERITED, "true"), "u", false),
            ("no proof", with(PROOF, ""), "u", false),
            ("half a proof", with(PROOF, "00"), "u", false),
            ("no digits", with(PROOF, "x"), "u", false),
            ("nothing", json!({}), "u", false),
        ] {
            let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
            assert_eq!(proofs.hold(&metadata, owner), expected, "{case}");
        }
        let metadata: ObjectMeta = serde_json::from_value(made).unwrap();
        assert!(!Proofs::new(&[8; 32]).hold(&metadata, "u"), "another key");
    }

    #[test]
    fn a_job_that_says_nothing_is_by_whatever_is_said_now() {
        for annotations in [json!({}), json!({TRIGGER: "x", OUTPUT: "{"})] {
            let job = job(&annotations);
            let noted = Noted::of(&job.metadata);
            assert_eq!(noted.trigger, None);
            assert!(noted.is_by(&digest(&json!({"template": 1}))));
            assert_eq!(spec_of(Dialect::QuarksJob, &job), None);
        }
    }
}
