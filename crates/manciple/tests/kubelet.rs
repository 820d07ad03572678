//! A node whose kubelet is stopped under a run, on the real cluster: nobody else is to have pods there meanwhile.

mod support;

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use support::described::explained;
use support::heard::{self, Heard, condition};
use support::town::Town;
use support::{order, within};

/// Ends before anybody takes the pod of a node that is not heard of away, which is after five minutes.
const BROKER: &str = r#"#!/bin/sh
echo "$1 of $7" >>/ledger/all
[ "$1" != provision ] || sleep 20
echo '{"dashboard_url":"https://made.example"}'
"#;

/// The kubelet of `cargo xtask cluster up`, stopped until this is dropped.
struct Stopped(Pid);

impl Stopped {
    /// `None`: the cluster is another.
    fn kubelet() -> Option<Self> {
        let state = testkit::cluster::folder()?.join("state");
        let ours = testkit::cluster::kubeconfig().ok()? == state.join("kubeconfig");
        let kept =
            ours.then(|| std::fs::read_to_string(state.join("kubelet.pid")).ok()).flatten()?;
        let id = Pid::from_raw(kept.split(' ').next()?.parse().ok()?)?;
        kill_process(id, Signal::STOP).ok()?;
        Some(Self(id))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn nodes_are_ready(ready: bool) -> bool {
    let path = r"-o=jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
    let shown = testkit::cluster::kubectl().args(["get", "nodes", path]).output().unwrap();
    (String::from_utf8_lossy(&shown.stdout) == "True") == ready
}

#[test]
fn a_kubelet_that_stops_is_named_while_it_does_and_what_its_pod_has_done_comes_home_after_it() {
    let mut town = Town::empty();
    town.config_map("script", &json!({"broker": BROKER}));
    let catalog = json!({"services": [{
        "id": "s", "name": "db", "description": "d", "bindable": false,
        "plans": [{"id": "p", "name": "p", "description": "d"}],
    }]});
    let file = town.site.write("catalog.json", &catalog.to_string());
    town.site.settings = json!({
        "auth": {"disabled": true},
        "catalog": {"file": file},
        "kubernetes": {
            "namespace": town.namespace,
            "image": testkit::cluster::SHELL_IMAGE,
            "agent_file": testkit::cluster::packed_agent().unwrap_or_else(|why| panic!("{why}")),
            "pod": town.pod("script"),
        },
    })
    .to_string();
    let server = town.serve();
    server.says("leading");
    let other = town.serve();
    let replicas = [&server, &other];
    let heard = Heard::of(&replicas, "i");
    let ordered = order::provision(&other, "i", &order::body("p"));
    assert_eq!(ordered.status, 202, "{ordered:?}");
    let by_token = heard.of_token(&replicas, "i", ordered.body["operation"].as_str().unwrap());
    let works = || (town.effects("provision of i") == 1).then_some(());
    assert!(within(60, works).is_some(), "{}", server.log());

    // Kubernetes has to know that it does: of one that is being made it says no more, whether its node is there or not.
    let runs = || town.kubectl(&["get", "pods"]).contains(" Running ").then_some(());
    assert!(within(60, runs).is_some(), "{}", server.log());
    let Some(stopped) = Stopped::kubelet() else {
        return testkit::skipped("the cluster is none of `cargo xtask cluster up`");
    };
    let knows = || nodes_are_ready(false).then_some(());
    assert!(within(120, knows).is_some(), "Kubernetes never knows of it");
    let since = heard::known(&town, "nodes", condition("Ready", "Unknown"));
    let silent = "is not heard of: its kubelet is stopped";
    for last in [&heard, &by_token].into_iter().flat_map(|heard| heard.says(silent, since)) {
        assert_eq!(last["state"], "in progress", "{last}");
    }
    explained(&town, "Progressing", &[silent]);

    drop(stopped);
    for replica in replicas {
        let ended = order::settled(replica, "i");
        assert_eq!(ended["state"], "succeeded", "{ended}\n{}", server.log());
    }
    assert_eq!(town.effects("provision of i"), 1, "another did it again");
    // Others need the node.
    assert!(within(120, || nodes_are_ready(true).then_some(())).is_some());
    std::thread::sleep(Duration::from_secs(1));
}
