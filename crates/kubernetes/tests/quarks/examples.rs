//! Manifests in the shape of the originals' official examples, with members at wrong levels and ones that nobody knows:
//! kubectl takes them as they are, they run, and all that they say stays. And one of ours, as it stands in its folder.

use std::io::Write as _;
use std::process::Stdio;

use kube::api::DynamicObject;
use kubernetes::quarks::Dialect;
use serde_json::{Value, json};

use super::harness::Town;

/// A QuarksJob: `backoffLimit` beside the Job's spec, an output type that nobody reads, and words of other releases.
const QUARKS_JOB: &str = r#"
apiVersion: quarks.cloudfoundry.org/v1alpha1
kind: QuarksJob
metadata:
  name: generate
  labels: {tier: one}
spec:
  run: {when: always}
  trigger:
    strategy: once
    interval: 5
  updateOnConfigChange: true
  output:
    outputType: json
    stdout: true
    secretLabels: {app: shop}
    outputMap:
      generate:
        login.json:
          name: login
          persistencemethod: one-to-one
          keep: {for: ever}
        parts.json:
          name: part
          persistencemethod: fan-out
  template:
    backoffLimit: 2
    activeDeadlineSeconds: 600
    metadata:
      labels: {of: the-job}
    spec:
      backoffLimit: 1
      completionPolicy: {of: nobody}
      template:
        metadata:
          labels: {of: the-pod}
        spec:
          terminationGracePeriodSeconds: 1
          restartPolicy: Never
          priorityHint: low
          containers:
          - name: generate
            image: IMAGE
            command: ["/bin/sh", "-c"]
            args:
            - |
              echo '{"user": "shop", "password": "p"}' > /mnt/quarks/login.json
              echo '{"one": "{\"k\": \"1\"}", "two": "{\"k\": \"2\"}"}' > /mnt/quarks/parts.json
            env:
            - name: LEVEL
              valueFrom:
                configMapKeyRef: {name: level, key: key}
            restartPolicyRules: [{action: Restart}]
"#;

/// An ExtendedJob, whose pod is at its template, with a Job's number beside it.
const EXTENDED_JOB: &str = r#"
apiVersion: fissile.cloudfoundry.org/v1alpha1
kind: ExtendedJob
metadata:
  name: generate
spec:
  run: once
  trigger:
    strategy: once
    after: 5
  output:
    namePrefix: printed-
    outputType: json
    outputMap: {generate: login}
    secretLabels: {app: shop}
  template:
    backoffLimit: 2
    metadata:
      labels: {of: the-pod}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      priorityHint: low
      containers:
      - name: generate
        image: IMAGE
        command: ["/bin/sh", "-c"]
        args: ["echo '{\"k\": \"v\"}'"]
        restartPolicyRules: [{action: Restart}]
"#;

fn manifest(text: &str) -> String {
    text.replace("IMAGE", testkit::cluster::SHELL_IMAGE)
}

/// kubectl with a manifest on its stdin, in the town's namespace: what it says, if all went well.
fn kubectl(town: &Town, arguments: &[&str], manifest: &str) -> String {
    let mut kubectl = testkit::cluster::kubectl();
    kubectl.args(["-n", &town.cluster.namespace]).args(arguments).args(["-f", "-"]);
    kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = kubectl.spawn().unwrap();
    child.stdin.take().unwrap().write_all(manifest.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "kubectl {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// What a manifest says, once its strategy is another.
fn said(town: &Town, manifest: &str, strategy: &str) -> Value {
    let read = kubectl(town, &["create", "--dry-run=client", "-o", "json"], manifest);
    let mut read: Value = serde_json::from_str(&read).unwrap();
    read["spec"]["trigger"]["strategy"] = json!(strategy);
    read["spec"].take()
}

/// Its spec is what the manifest says, and nothing else.
async fn stays(town: &Town, manifest: &str, strategy: &str, when: &str) {
    let object: DynamicObject = town.jobs().get("generate").await.unwrap();
    assert_eq!(object.data["spec"], said(town, manifest, strategy), "{when}");
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_as_the_official_examples_are_applied_unchanged_and_keep_all_that_they_say() {
    for (dialect, text, made) in [
        (Dialect::QuarksJob, QUARKS_JOB, json!(["login", "part-one", "part-two"])),
        (Dialect::ExtendedJob, EXTENDED_JOB, json!(["printed-generate"])),
    ] {
        let mut town = Town::new("examples").await;
        town.dialect = dialect;
        town.config_map("level", "1").await;
        let manifest = manifest(text);
        // With the validation of kubectl, and of the server, which says what it would keep.
        for tried in [
            vec!["apply", "--dry-run=server", "-o", "json"],
            vec!["apply", "--server-side", "--dry-run=server", "-o", "json"],
        ] {
            let kept: Value = serde_json::from_str(&kubectl(&town, &tried, &manifest)).unwrap();
            assert_eq!(kept["spec"], said(&town, &manifest, "once"), "{tried:?}");
        }
        assert!(kubectl(&town, &["apply"], &manifest).contains("/generate created"));
        let run = town.ended("generate", 1).await;
        assert_eq!((&run["succeeded"], &run["made"]), (&json!(true), &made), "{run}");
        stays(&town, &manifest, "done", "after a run").await;
        // What is told with kubectl, as its documents have it.
        let mut patch = testkit::cluster::kubectl();
        let kind = dialect.kind().to_lowercase();
        patch.args(["-n", &town.cluster.namespace, "patch", &kind, "generate", "--type=merge"]);
        let now = r#"{"spec": {"trigger": {"strategy": "now"}}}"#;
        assert!(patch.args(["-p", now]).output().unwrap().status.success());
        assert_eq!(town.ended("generate", 2).await["made"], made);
        stays(&town, &manifest, "manual", "after an errand").await;
        // Again as it is: it has run for `once`.
        assert!(kubectl(&town, &["apply"], &manifest).contains("/generate configured"));
        let again = manifest.replace("tier: one", "tier: two").replace("once", "now");
        kubectl(&town, &["replace"], &again);
        assert_eq!(town.ended("generate", 3).await["made"], made, "it was replaced");
        stays(&town, &again, "manual", "after it was replaced").await;
        assert_eq!(town.runs("generate").await, 3);
    }
}

/// As the walk through the examples has it, and what that cannot see.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_that_is_told_a_secret_waits_for_it_and_it_stands_nowhere_else() {
    const PLANTED: &str = "planted-7d20e6";
    let town = Town::new("told").await;
    let example = include_str!("../../../../examples/quarks-jobs/inputs-from.yaml");
    let manifest =
        example.replace("image: busybox:1", &format!("image: {}", testkit::cluster::SHELL_IMAGE));
    kubectl(&town, &["apply"], &manifest);
    let waits = |it: &Value| {
        it["status"]["conditions"].to_string().contains("\"it waits for secret/source-login\"")
    };
    let object = town.until("copy", "said to wait", waits).await;
    assert_eq!(object["spec"]["trigger"]["strategy"], "now", "its trigger is not taken");
    // So that there is a Job to be looked at.
    town.patch("copy", json!({"spec": {"successfulJobsHistoryLimit": 1}})).await;
    town.make_secret(json!({
        "metadata": {"name": "source-login"}, "stringData": {"password": PLANTED},
    }))
    .await;
    let run = town.ended("copy", 1).await;
    assert_eq!((&run["trigger"], &run["succeeded"]), (&json!("now"), &json!(true)), "{run}");
    let copied = town.data("copied").await;
    let letters = PLANTED.len().to_string();
    assert_eq!((&*copied["from"], &*copied["letters"]), ("old.example", &*letters));
    let object = town.jobs().get("copy").await.unwrap();
    assert_eq!(object.data["spec"]["trigger"], json!({"strategy": "manual"}), "they are taken");
    let (jobs, pods) = (town.batch_jobs().await, town.pods().await);
    assert_eq!((jobs.len(), pods.len()), (1, 1));
    let env =
        jobs[0].spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0].env.iter();
    let told = env.flatten().find(|it| it.name == "PASSWORD").unwrap();
    let from = told.value_from.as_ref().unwrap().secret_key_ref.as_ref().unwrap();
    assert_eq!((&*from.name, &*from.key), ("source-login", "password"));
    for text in [
        serde_json::to_string(&object).unwrap(),
        serde_json::to_string(&jobs).unwrap(),
        serde_json::to_string(&pods).unwrap(),
    ] {
        assert!(!text.contains(PLANTED), "{text}");
    }
    // The next run is told nothing, and has what the template says.
    town.trigger("copy", "now").await;
    assert_eq!(town.ended("copy", 2).await["succeeded"], true);
    let copied = town.data("copied").await;
    assert_eq!((&*copied["from"], &*copied["letters"]), ("new.example", "0"));
}
