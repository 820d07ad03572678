//! `manciple job` on a cluster, with a controller: people run, read, and are told what is wrong.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use support::said::Said;
use support::town::Town;
use support::{Served, within};
use testkit::cluster;

/// A namespace with a controller of its own.
struct Hall {
    town: Town,
    _controller: Served,
}

impl Hall {
    fn new() -> Self {
        let town = Town::empty();
        let id = &town.namespace;
        let monitored = format!("quarks.cloudfoundry.org/monitored={id}");
        let account = "quarks.cloudfoundry.org/qjob-service-account=default";
        town.kubectl(&["label", "namespace", id, &monitored, account]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
        command.arg("controller").env_clear().stdout(Stdio::null()).stderr(Stdio::piped());
        for (name, value) in [
            ("KUBECONFIG", cluster::kubeconfig().unwrap().display().to_string()),
            ("POD_NAMESPACE", id.clone()),
            ("MONITORED_ID", id.clone()),
            ("MANCIPLE_LISTEN", "127.0.0.1:0".to_owned()),
            ("MANCIPLE_AGENT_FILE", cluster::packed_agent().unwrap().display().to_string()),
            ("MANCIPLE_LOG_FORMAT", "json".to_owned()),
        ] {
            command.env(name, value);
        }
        let controller = Served::start(&mut command).unwrap_or_else(|log| panic!("{log}"));
        Self { town, _controller: controller }
    }

    /// A QuarksJob whose container `c` runs this script.
    fn create(&self, name: &str, script: &str, more: &Value) {
        create(&self.town, name, script, more);
    }

    fn job(&self, arguments: &[&str]) -> Said {
        job(&self.town, arguments)
    }

    /// Waits until a list says this of one.
    fn lists(&self, name: &str, words: &str) {
        let row = || {
            let all = self.job(&["list"]).stdout;
            let row =
                all.lines().find(|line| line.split_whitespace().next() == Some(name))?.to_owned();
            row.contains(words).then_some(())
        };
        assert!(within(60, row).is_some(), "{words}: {:?}", self.job(&["list"]));
    }
}

fn create(town: &Town, name: &str, script: &str, more: &Value) {
    let container =
        json!({"name": "c", "image": cluster::SHELL_IMAGE, "command": ["/bin/sh", "-c", script]});
    let pod = json!({"restartPolicy": "Never", "containers": [container]});
    let mut spec = json!({
        "trigger": {"strategy": "manual"},
        "template": {"spec": {"backoffLimit": 1, "template": {"spec": pod}}},
    });
    for (member, value) in more.as_object().unwrap().clone() {
        spec[member] = value;
    }
    town.make(&json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob",
        "metadata": {"name": name}, "spec": spec,
    }));
}

fn command(town: &Town, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manciple"));
    command.arg("job").args(arguments).args(["-n", &town.namespace]).env_clear();
    command.env("KUBECONFIG", cluster::kubeconfig().unwrap());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn job(town: &Town, arguments: &[&str]) -> Said {
    Said::from(command(town, arguments).output().unwrap())
}

/// What it says in the end, of one that was spawned.
fn ended(child: Child) -> Said {
    Said::from(child.wait_with_output().unwrap())
}

fn output(file: &str, secret: &str) -> Value {
    json!({"outputMap": {"c": {file: {"name": secret}}}})
}

#[test]
fn what_came_of_a_run_is_told_and_is_the_exit_code() {
    let hall = Hall::new();
    // More than a pod's status takes: it comes home in the log.
    let large = "head -c 30000 /dev/urandom | base64 | tr -d '\\n'";
    let script = format!(
        "echo before; echo \"{{\\\"k\\\": \\\"$({large})\\\"}}\" > /mnt/quarks/o.json; echo after"
    );
    hall.create("good", &script, &json!({"output": output("o.json", "page")}));
    hall.create("bad", "echo no luck; exit 3", &json!({}));
    hall.create("never", "true", &json!({}));
    let run = hall.job(&["run", "good"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("Outcome:  Completed") && run.stdout.contains("page"), "{run:?}");
    for words in ["run of QuarksJob good: triggered", "recorded as run 1", "run 1 ended: Completed"]
    {
        assert!(run.stderr.contains(words), "{words}: {run:?}");
    }
    let run = hall.job(&["logs", "good"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "before\nafter\n"), "{run:?}");
    assert!(run.stderr.contains("sealed"), "{run:?}");

    let run = hall.job(&["run", "bad", "-o", "json"]);
    let (said, error): (Value, Value) =
        (serde_json::from_str(&run.stdout).unwrap(), serde_json::from_str(&run.stderr).unwrap());
    assert_eq!((run.code, &said["state"], &said["run"]), (Some(1), &json!("failed"), &json!(1)));
    assert_eq!(said["reason"], "BackoffLimitExceeded");
    assert_eq!(error["error"]["kind"], "operation-failed");
    assert!(error["error"]["message"].as_str().unwrap().contains("exited with 3"), "{error}");
    let run = hall.job(&["logs", "bad", "--run", "1"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "no luck\nno luck\n"), "{run:?}");
    assert_eq!(run.stderr.matches("--- bad-").count(), 2, "{run:?}");

    hall.lists("good", "Completed");
    hall.lists("bad", "BackoffLimitExceeded");
    hall.lists("never", "manual");
    assert_eq!(hall.job(&["run", "good", "-q"]).stdout, "2\n");
    let history = hall.job(&["history", "good"]);
    let numbers: Vec<_> = history
        .stdout
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(numbers, ["2", "1"], "{history:?}");

    let run = hall.job(&["logs", "never"]);
    assert!(run.code == Some(6) && run.stderr.contains("has had no run yet"), "{run:?}");
    let run = hall.job(&["run", "absent"]);
    assert!(run.code == Some(6) && run.stderr.contains("\"absent\" not found"), "{run:?}");
    let pods = ["delete", "pods", "-l", "quarks.cloudfoundry.org/qjob-name=good", "--now"];
    hall.town.kubectl(&pods);
    let run = hall.job(&["logs", "good"]);
    assert!(run.code == Some(6) && run.stderr.contains("are gone"), "{run:?}");
}

/// Of one name there may be one of each kind: `--kind` says which is meant.
#[test]
fn extended_jobs_are_run_listed_and_read_by_their_kind() {
    let hall = Hall::new();
    let script = |script: &str| {
        let container = json!({
            "name": "c", "image": cluster::SHELL_IMAGE, "command": ["/bin/sh", "-c", script],
        });
        json!({"restartPolicy": "Never", "containers": [container]})
    };
    let make = |name: &str, pod: Value| {
        hall.town.make(&json!({
            "apiVersion": "fissile.cloudfoundry.org/v1alpha1", "kind": "ExtendedJob",
            "metadata": {"name": name},
            "spec": {
                "trigger": {"strategy": "manual"}, "template": {"spec": pod},
                "output": {"namePrefix": "of"},
            },
        }));
    };
    make("good", script(r#"echo working >&2; echo '{"k": "v"}'"#));
    make("bad", script("echo no luck >&2; exit 3"));
    hall.create("good", "echo of the other kind", &json!({}));
    let ejob = |arguments: &[&str]| hall.job(&[arguments, &["--kind", "ejob"]].concat());

    let run = ejob(&["run", "good"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("Outcome:  Completed") && run.stdout.contains("of-c"), "{run:?}");
    assert!(run.stderr.contains("run of ExtendedJob good: triggered"), "{run:?}");
    let run = ejob(&["logs", "good"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "working\n"), "{run:?}");

    let run = ejob(&["run", "bad", "-o", "json"]);
    let said: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &said["state"]), (Some(1), &json!("failed")), "{run:?}");
    assert_eq!(said["reason"], "BackoffLimitExceeded", "{run:?}");
    let run = ejob(&["logs", "bad", "--run", "1"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (Some(0), "no luck\n".repeat(3).as_str()),
        "{run:?}"
    );

    assert_eq!(ejob(&["run", "good", "-q"]).stdout, "2\n");
    assert_eq!(ejob(&["history", "good", "-q"]).stdout, "2\n1\n");
    let list = ejob(&["list"]).stdout;
    let row = |name: &str| list.lines().find(|line| line.split_whitespace().next() == Some(name));
    assert!(row("good").unwrap().contains("Completed"), "{list}");
    assert!(row("bad").unwrap().contains("BackoffLimitExceeded"), "{list}");

    // The QuarksJob of that name is another, which has had no run.
    let run = hall.job(&["logs", "good"]);
    assert!(run.code == Some(6) && run.stderr.contains("has had no run yet"), "{run:?}");
    let list = hall.job(&["list"]).stdout;
    assert!(!list.contains("bad") && list.contains("good"), "{list}");
    let run = ejob(&["run", "absent"]);
    assert!(run.code == Some(6) && run.stderr.contains("\"absent\" not found"), "{run:?}");
}

#[test]
fn a_run_that_goes_on_is_followed_and_another_passed_over() {
    let hall = Hall::new();
    let script = "echo begun; until [ -e /tmp/go ]; do sleep 0.1; done; printf '\\033[2Jended\\n'";
    hall.create("slow", script, &json!({"concurrencyPolicy": "Forbid"}));
    let run = hall.job(&["run", "slow", "--timeout", "1s"]);
    assert_eq!(run.code, Some(8), "{run:?}");
    let begun = || (hall.job(&["history", "slow", "-q"]).stdout == "1\n").then_some(());
    assert!(within(30, begun).is_some());
    let follow = command(&hall.town, &["logs", "slow", "--follow"]).spawn();
    let mut follow = follow.unwrap();
    let mut log = BufReader::new(follow.stdout.take().unwrap());
    let mut first = String::new();
    log.read_line(&mut first).unwrap();
    assert_eq!(first, "begun\n");
    let run = hall.job(&["run", "slow"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{run:?}");
    assert!(run.stderr.contains("concurrencyPolicy: Forbid"), "{run:?}");
    let history = hall.job(&["history", "slow"]);
    assert!(
        history.stdout.contains("Going") && follow.try_wait().unwrap().is_none(),
        "{history:?}"
    );
    let pods = hall.town.get("pods");
    let pod = pods["items"][0]["metadata"]["name"].as_str().unwrap();
    hall.town.kubectl(&["exec", pod, "-c", "c", "--", "touch", "/tmp/go"]);
    let mut rest = String::new();
    log.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "\u{1b}[2Jended\n", "to a pipe it goes as it is");
    assert_eq!(ended(follow).code, Some(0));
    hall.lists("slow", "Completed");
    assert_eq!(hall.job(&["logs", "slow"]).stdout, "begun\n\u{1b}[2Jended\n");
}

/// Its Job has a random name.
#[test]
fn the_log_of_a_run_that_the_original_has_begun_is_found() {
    let hall = Hall::new();
    hall.create("old", "true", &json!({}));
    let owner = json!({
        "apiVersion": "quarks.cloudfoundry.org/v1alpha1", "kind": "QuarksJob", "name": "old",
        "uid": hall.town.get("qjob/old")["metadata"]["uid"], "controller": true,
    });
    let container = json!({
        "name": "c", "image": cluster::SHELL_IMAGE,
        "command": ["/bin/sh", "-c", "echo begun; exec sleep 600"],
    });
    hall.town.make(&json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "old-5d1f", "ownerReferences": [owner],
            "labels": {"quarks.cloudfoundry.org/qjob-name": "old"},
        },
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }));
    let mut object = hall.town.get("qjob/old");
    object["status"] = json!({"completed": false});
    let group = "/apis/quarks.cloudfoundry.org/v1alpha1";
    let path = format!("{group}/namespaces/{}/quarksjobs/old/status", hall.town.namespace);
    let mut replace = cluster::kubectl();
    replace.args(["replace", "--raw", &path, "-f", "-"]).stdin(Stdio::piped());
    let mut replace = replace.stdout(Stdio::null()).spawn().unwrap();
    replace.stdin.take().unwrap().write_all(object.to_string().as_bytes()).unwrap();
    assert!(replace.wait().unwrap().success());
    let begun = || (hall.job(&["logs", "old"]).stdout == "begun\n").then_some(());
    assert!(within(60, begun).is_some(), "{:?}", hall.job(&["logs", "old"]));
}

#[test]
fn what_a_trigger_waits_for_is_said() {
    let hall = Hall::new();
    let pod = json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": "c", "image": cluster::SHELL_IMAGE, "command": ["true"],
            "envFrom": [{"secretRef": {"name": "keys"}}],
        }],
    });
    hall.create("held", "", &json!({"template": {"spec": {"template": {"spec": pod}}}}));
    let mut waiting = command(&hall.town, &["run", "held"]).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.find(|line| line.contains(": it waits for secret/keys"));
    assert!(told.is_some(), "{:?}", ended(waiting));
    hall.lists("held", "secret/keys");
    let run = hall.job(&["run", "held", "--no-wait"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("already; it waits for secret/keys"), "{run:?}");
    hall.town.secret("keys", &json!({"k": "v"}));
    let run = ended(waiting);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("Run:      1"), "{run:?}");
    assert!(lines.any(|line| line.contains("run 1 ended: Completed")));
}

#[test]
fn who_may_not_is_told_which_right_is_missing() {
    let town = Town::empty();
    create(&town, "backup", "true", &json!({}));
    let (_, token) = town.account("person", "");
    let config = town.kubectl(&["config", "view", "--raw", "--minify", "-o", "json"]);
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["users"][0]["user"] = json!({"token": token});
    let file = town.site.write("kubeconfig", &config.to_string());
    let file = file.to_str().unwrap();
    let quarksjobs = "quarksjobs.quarks.cloudfoundry.org";
    let denied = |arguments: &[&str], words: &str| {
        let run = job(&town, &[arguments, &["-c", file]].concat());
        assert_eq!((run.code, run.stdout.as_str()), (Some(7), ""), "{run:?}");
        assert!(run.stderr.contains(words), "{words}: {run:?}");
        assert!(!run.stderr.contains(&token), "{run:?}");
    };
    denied(&["list"], &format!("the right to list {quarksjobs} in namespace {}", town.namespace));
    denied(&["run", "backup"], &format!("the right to get {quarksjobs}"));
    let role = ["create", "role", "reads", "--verb=get,list", "--resource", quarksjobs];
    town.kubectl(&role);
    let person = format!("--serviceaccount={}:person", town.namespace);
    town.kubectl(&["create", "rolebinding", "reads", "--role=reads", &person]);
    let granted = within(10, || (job(&town, &["list", "-c", file]).code == Some(0)).then_some(()));
    assert!(granted.is_some());
    denied(
        &["run", "backup"],
        &format!("kubectl -n {} create role NAME --verb=patch", town.namespace),
    );
    let everywhere = command(&town, &["list", "-A", "-c", file]).output().unwrap();
    assert_eq!(everywhere.status.code(), Some(2), "-n and -A: {everywhere:?}");
}

#[test]
fn where_nothing_monitors_a_namespace_that_is_said() {
    let town = Town::empty();
    create(&town, "backup", "true", &json!({}));
    let run = job(&town, &["run", "backup", "--timeout", "12s"]);
    assert_eq!(run.code, Some(8), "{run:?}");
    for words in [
        "no controller seems to monitor namespace",
        "quarks.cloudfoundry.org/monitored and quarks.cloudfoundry.org/qjob-service-account",
        "was not begun within 12s",
    ] {
        assert!(run.stderr.contains(words), "{words}: {run:?}");
    }
}
