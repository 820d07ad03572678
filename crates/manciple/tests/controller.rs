//! `manciple controller` as people start it: on a cluster, killed, told to end, told wrong things.

mod support;

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::{Served, http, within};
use testkit::cluster;

const PLANTED: &str = "planted-output";

/// A namespace that is monitored, for the length of a test.
struct Town {
    name: String,
}

impl Town {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("controller-{}-{count}", std::process::id());
        cluster::apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {
                "quarks.cloudfoundry.org/monitored": name,
                "quarks.cloudfoundry.org/qjob-service-account": "default",
            }},
        }));
        Self { name }
    }

    /// With the original's variables.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.arg("controller").env_clear();
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        for (name, value) in [
            ("KUBECONFIG", cluster::kubeconfig().unwrap().display().to_string()),
            ("POD_NAMESPACE", self.name.clone()),
            ("MONITORED_ID", self.name.clone()),
            ("APPLY_CRD", "true".to_owned()),
            ("MELTDOWN_DURATION", "60".to_owned()),
            ("MANCIPLE_LISTEN", "127.0.0.1:0".to_owned()),
            ("MANCIPLE_AGENT_FILE", cluster::packed_agent().unwrap().display().to_string()),
            ("LOG_LEVEL", "debug".to_owned()),
            ("MANCIPLE_LOG_FORMAT", "json".to_owned()),
        ] {
            command.env(name, value);
        }
        command
    }

    fn create(&self, name: &str, spec: &Value) {
        cluster::apply(&json!({
            "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
            "metadata": {"name": name, "namespace": self.name}, "spec": spec,
        }));
    }

    fn kubectl(&self, arguments: &[&str]) -> String {
        let output = cluster::kubectl().args(["-n", &self.name]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn completes(&self, name: &str) {
        let path = "jsonpath={.status.completed}";
        let completed = || {
            let said = self.kubectl(&["get", "qjob", name, "-o", path]);
            (said == "true").then_some(())
        };
        let said = within(90, completed);
        assert!(said.is_some(), "{}", self.kubectl(&["get", "qjob", name, "-o", "yaml"]));
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        let arguments = ["delete", "namespace", &self.name, "--wait=false"];
        let _ = cluster::kubectl().args(arguments).output();
    }
}

fn spec(strategy: &str, script: &str, secret: &str) -> Value {
    let container = json!({
        "name": "c", "image": cluster::SHELL_IMAGE, "command": ["/bin/sh", "-c", script],
    });
    json!({
        "trigger": {"strategy": strategy},
        "template": {"spec": {"template": {"spec": {
            "restartPolicy": "Never", "containers": [container],
        }}}},
        "output": {"outputMap": {"c": {"o.json": {"name": secret}}}},
    })
}

/// As the suites of the original begin it: with its flags, a kubeconfig, and nothing else; one beside another.
#[test]
fn two_are_begun_by_the_originals_flags_and_a_kubeconfig_and_each_runs_what_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let agent = cluster::packed_agent().unwrap();
    let towns = [Town::new(), Town::new()];
    let begun = towns.each_ref().map(|town| {
        let kubeconfig = folder.path().join(&town.name);
        std::fs::copy(cluster::kubeconfig().unwrap(), &kubeconfig).unwrap();
        let mut context = cluster::kubectl();
        context.arg("--kubeconfig").arg(&kubeconfig);
        context.args(["config", "set-context", "--current", "--namespace", &town.name]);
        assert!(context.output().unwrap().status.success());
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.args(["controller", "--apply-crd"]).env_clear();
        command.args("-o ghcr.io/cloudfoundry-incubator -r quarks-job -t v1.0.219".split(' '));
        command.args("--meltdown-duration 1 --meltdown-requeue-after 1".split(' '));
        command.args(["--monitored-id", &town.name]);
        // Of a chart that has no value for them.
        command.env("MAX_WORKERS", "").env("LOG_LEVEL", "").env("WATCH_NAMESPACE", "");
        command.env("KUBECONFIG", &kubeconfig).env("MANCIPLE_AGENT_FILE", &agent);
        command.env("MANCIPLE_LOG_FORMAT", "json");
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        Served::start(&mut command).unwrap_or_else(|log| panic!("{log}"))
    });
    assert_ne!(begun[0].address, begun[1].address);
    for town in &towns {
        town.create("j", &spec("once", "echo '{\"k\": \"v\"}' > /mnt/quarks/o.json", "kept"));
    }
    for town in &towns {
        town.completes("j");
        let leases = town.kubectl(&["get", "leases", "-o", "name"]);
        assert_eq!(leases.lines().count(), 1, "{leases}");
    }
}

#[test]
fn it_runs_is_killed_goes_on_and_ends_when_it_is_told_to() {
    let town = Town::new();
    let mut served = Served::start(&mut town.command()).unwrap();
    let log = served.log();
    let passed_over = || log.lines().filter(|line| line.contains("what has no meaning here"));
    assert!(passed_over().all(|line| line.contains("--meltdown-duration")), "{log}");
    assert_eq!(passed_over().count(), 1, "{log}");
    let ready = || {
        http::get(served.url().trim_start_matches("http://"), "/readyz")
            .filter(|answer| answer.status == 200)
    };
    assert!(within(30, ready).is_some(), "{}", served.log());
    let script =
        format!("echo '{{\"k\": \"{PLANTED}\"}}' > /mnt/quarks/o.json; cat /mnt/quarks/o.json");
    town.create("a", &spec("once", &script, "first"));
    town.completes("a");
    let metrics = http::get(served.url().trim_start_matches("http://"), "/metrics").unwrap();
    let metrics = metrics.body.as_str().unwrap();
    for (metric, value) in [
        ("jobs", Some("1")),
        ("runs_in_progress", Some("0")),
        ("runs_started_total", Some("1")),
        ("runs_succeeded_total", Some("1")),
        ("runs_failed_total", Some("0")),
        // A busy server may let a call fail.
        ("looks_failed_total", None),
    ] {
        let named = format!("manciple_quarks_{metric} ");
        let found = metrics.lines().find_map(|line| line.strip_prefix(&named));
        assert!(found.is_some() && (value.is_none() || found == value), "{metric}: {metrics}");
    }
    let version = format!("manciple_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    for line in [&*version, "manciple_leading 1"] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    town.create("b", &spec("once", &format!("sleep 3; {script}"), "second"));
    let begun = || {
        let jobs = town.kubectl(&["get", "jobs", "-o", "name"]);
        jobs.lines().any(|job| job.starts_with("job.batch/b-")).then_some(())
    };
    assert!(within(30, begun).is_some());
    served.kill();
    assert!(!served.log().contains(PLANTED));
    let mut again = Served::start(&mut town.command()).unwrap();
    town.completes("b");
    let columns = town.kubectl(&["get", "qjob"]);
    assert!(columns.contains("COMPLETED") && columns.contains("Completed"), "{columns}");
    let everything = town.kubectl(&["get", "qjob,jobs,pods,events", "-o", "yaml"]);
    let said: Vec<&str> = everything.lines().filter(|line| line.contains(PLANTED)).collect();
    assert!(!said.is_empty(), "its script is not there");
    assert!(said.iter().all(|line| line.contains("echo")), "but its script: {said:?}");
    again.signal(Signal::TERM);
    assert!(again.wait().unwrap().success(), "{}", again.log());
    assert!(!again.log().contains(PLANTED));
}

#[test]
fn what_cannot_be_meant_is_refused_with_a_word_what_to_do() {
    let town = Town::new();
    for (name, value, words) in [
        ("MANCIPLE_MONITORED", "some", "possible values: labelled, marked, all"),
        ("MANCIPLE_SETTLE", "soon", "write 30s, 15m, 2h or 7d"),
        ("MAX_WORKERS", "0", "1"),
        ("MANCIPLE_KEY_ROTATION", "0s", "1h at least"),
        ("KUBECONFIG", "/nowhere", "kubeconfig"),
        ("MANCIPLE_AGENT_FILE", "/nowhere", "--agent-file: "),
        ("MANCIPLE_AGENT_FILE", "/nowhere", "or say --agent-delivery init-container"),
        ("MANCIPLE_AGENT_DELIVERY", "init-container", "--agent-image: give the image"),
        ("MONITORED_ID", "not a label", "monitored"),
        (
            "LOG_LEVEL",
            "loud",
            "--log-level (LOG_LEVEL): \"loud\" is not a level; give one of off, error",
        ),
        ("MANCIPLE_INSTANCE_NAMESPACES", "shop,", "is empty: take it out"),
        ("MANCIPLE_INSTANCE_NAMESPACES", ",", "is empty: take it out"),
        ("MANCIPLE_INSTANCE_NAMESPACES", "shop, BAD_NS", "no name of a namespace"),
        ("MANCIPLE_DRIFT_INTERVAL", "1ms", "1s at least"),
        ("MANCIPLE_ALLOW_CHANGES", "true", "--webhook-listen"),
        ("POD_NAMESPACE", "A B", "--namespace (or POD_NAMESPACE): "),
    ] {
        let (code, said) = Served::refused(town.command().env(name, value));
        assert_eq!(code, Some(2), "{name}: {said}");
        assert!(said.contains(words), "{name}: {said}");
    }
    // Of a variable that is as if it were not set; a flag is given on purpose.
    let (code, said) = Served::refused(town.command().args(["--instance-namespaces", ""]));
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("is empty: take it out"), "{said}");
}

#[test]
fn what_is_switched_off_wants_nothing_beside_it() {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
    command.arg("controller").env_clear().env("HOME", home.path());
    command.env("MANCIPLE_ALLOW_CHANGES", "false").env("POD_NAMESPACE", "n");
    let (_, said) = Served::refused(command.stdout(Stdio::null()).stderr(Stdio::piped()));
    assert!(said.contains("no cluster is configured"), "{said}");
}

/// Nobody is asked: neither cluster is there.
#[test]
fn several_kubeconfigs_are_one_and_an_empty_variable_is_none() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &Value| {
        let path = home.path().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path.display().to_string()
    };
    let cluster = json!({"name": "c", "cluster": {"server": "http://127.0.0.1:1"}});
    let context = json!({"name": "c", "context": {"cluster": "c", "user": ""}});
    let first = file("first", &json!({"clusters": [cluster]}));
    let second = file("second", &json!({"contexts": [context], "current-context": "c"}));
    for (variable, words) in [
        (format!("{first}:{second}"), "no answer from the API server"),
        (String::new(), "no cluster is configured"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.args(["controller", "--apply-crd", "--namespace", "n"]).env_clear();
        command.env("KUBECONFIG", &variable).env("HOME", home.path());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let (code, said) = Served::refused(&mut command);
        assert_eq!(code, Some(2), "{variable:?}: {said}");
        assert!(said.contains(words), "{variable:?}: {said}");
    }
}
