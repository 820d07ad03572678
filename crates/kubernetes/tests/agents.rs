//! How the agent comes into pods: made, kept, made again and removed.

mod support;

use std::path::{Path, PathBuf};
use std::time::Duration;

use engine::ports::{Run, RunState, Runner, StartError};
use engine::record::Reason;
use engine::testing::runner_contract::{BROKER, Behaviour, run, until, until_finished};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kubernetes::{Bonds, Delivery, JobRunner, PackedAgent};
use osb::jobs::contract::Capability;
use osb::{Action, BindingId, Output};
use serde_json::json;

use support::jobs::Jobs;
use support::{packed_agent, wait};

/// No Job is as old as that, and every ConfigMap is.
const AT_ONCE: Duration = Duration::ZERO;
const AN_HOUR: Duration = Duration::from_secs(60 * 60);
/// The longest that anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// What an agent may have resident in an ordinary run, in kB: the aim is 3 MB. It counts against the limit of the broker's
/// container, which is 16 MiB here. The program takes 1.7 MB of it; the rest is for what a run is given and makes, and for
/// what looks for that in the log (decision 0028).
const MOST_RESIDENT: u64 = 3_000;

async fn jobs() -> Jobs {
    Jobs::new("agents", BROKER).await
}

async fn open(jobs: &Jobs) -> JobRunner {
    JobRunner::open(jobs.cluster.client.clone(), jobs.settings.clone(), Bonds::default())
        .await
        .unwrap()
}

fn maps(jobs: &Jobs) -> Api<ConfigMap> {
    jobs.cluster.api()
}

async fn agents(jobs: &Jobs) -> Vec<String> {
    let agents = ListParams::default().labels("manciple.dev/keeps=agent");
    let found = maps(jobs).list_metadata(&agents).await.unwrap();
    found.items.into_iter().filter_map(|map| map.metadata.name).collect()
}

async fn done(runner: &JobRunner, run: &Run) -> Output {
    runner.start(run).await.unwrap();
    until_finished(runner, &run.name).await.unwrap()
}

/// Waits until the broker of a run has begun.
async fn begun(jobs: &Jobs, run: &Run) {
    wait::until("its broker does not begin", PATIENCE, async || {
        if jobs.effects(&run.work.instance_id) == 0 { Err("no effect") } else { Ok(()) }
    })
    .await;
}

/// The same program in other bytes: between the loader and what it carries is room.
fn another_version() -> PackedAgent {
    let path = testkit::cluster::packed_agent().unwrap();
    let packed = std::fs::read(path).unwrap();
    let trailer = packed.last_chunk().unwrap();
    let carried = usize::try_from(loader::length(trailer).unwrap()).unwrap();
    let (loader, rest) = packed.split_at(packed.len() - loader::TRAILER_BYTES - carried);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [loader, b"another", rest].concat()).unwrap();
    PackedAgent::read(file.path()).unwrap()
}

#[tokio::test]
async fn one_map_of_the_contents_name_serves_all_runs_and_cannot_be_changed() {
    let jobs = jobs().await;
    let runner = open(&jobs).await;
    assert_eq!(agents(&jobs).await, [] as [&str; 0], "before it is needed");
    let (one, other) = (run(Behaviour::Succeeds, "one"), run(Behaviour::Succeeds, "other"));
    tokio::join!(done(&runner, &one), done(&runner, &other));
    assert_eq!(agents(&jobs).await, [packed_agent().name()]);
    let map = maps(&jobs).get(packed_agent().name()).await.unwrap();
    assert_eq!(map.immutable, Some(true));
    // Another replica, and one after a restart, find it there.
    done(&open(&jobs).await, &run(Behaviour::Succeeds, "third")).await;
}

#[tokio::test]
async fn one_that_is_removed_is_made_again_and_the_run_goes_on() {
    let jobs = jobs().await;
    let runner = open(&jobs).await;
    done(&runner, &run(Behaviour::Succeeds, "before")).await;
    // The kubelet has looked at it last for the pod before.
    runner.release(&run(Behaviour::Succeeds, "before").name).await.unwrap();
    let agent = packed_agent();
    maps(&jobs).delete(agent.name(), &DeleteParams::default()).await.unwrap();
    let after = run(Behaviour::Succeeds, "after");
    runner.start(&after).await.unwrap();
    until(&runner, &after.name, |state| !matches!(state, RunState::Running { .. })).await;
    until_finished(&runner, &after.name).await.unwrap();
    assert_eq!(agents(&jobs).await, [agent.name()]);
    assert_eq!(jobs.effects(&after.work.instance_id), 1);
}

#[tokio::test]
async fn while_one_that_is_removed_may_not_be_made_again_its_run_is_told_of_and_can_be_ended() {
    let jobs = jobs().await;
    let runner = open(&jobs).await;
    let before = run(Behaviour::Succeeds, "before");
    done(&runner, &before).await;
    runner.release(&before.name).await.unwrap();
    refuse_maps(&jobs).await;
    maps(&jobs).delete(packed_agent().name(), &DeleteParams::default()).await.unwrap();
    let after = run(Behaviour::Succeeds, "after");
    runner.start(&after).await.unwrap();
    until(&runner, &after.name, |state| match state {
        RunState::Running { progress: Some(said) } => said.contains("not found"),
        _ => false,
    })
    .await;
    runner.cancel(&after.name).await.unwrap();
    let end = until_finished(&runner, &after.name).await;
    assert_eq!(end.unwrap_err().reason, Reason::Halted);
    assert_eq!(agents(&jobs).await, [] as [&str; 0]);
    assert_eq!(jobs.effects(&after.work.instance_id), 0);
}

/// No further ConfigMap can be made.
async fn refuse_maps(jobs: &Jobs) {
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"count/configmaps": "0"}}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    let quotas = jobs.cluster.api::<ResourceQuota>();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let further = json!({"metadata": {"name": "further"}});
    let further: ConfigMap = serde_json::from_value(further).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait::until("it can be made", PATIENCE, async || {
        maps(jobs).create(&dry, &further).await.map_or(Ok(()), Err)
    })
    .await;
}

#[tokio::test]
async fn another_content_under_its_name_is_refused_with_the_remedy() {
    let jobs = jobs().await;
    jobs.make_config_map(packed_agent().name(), "agent", "something else").await;
    let runner = open(&jobs).await;
    let run = run(Behaviour::Succeeds, "it");
    let error = runner.start(&run).await.unwrap_err();
    assert!(matches!(&error, StartError::Transient(_)), "{error:?}");
    assert!(error.to_string().contains("delete it"), "{error}");
    assert_eq!(jobs.pods_of(&run.name).await.len(), 0);
    maps(&jobs).delete(packed_agent().name(), &DeleteParams::default()).await.unwrap();
    done(&runner, &run).await;
}

#[tokio::test]
async fn versions_side_by_side_each_have_their_own_until_no_job_names_it() {
    let mut jobs = jobs().await;
    let old = another_version();
    let new = packed_agent();
    let runner = open(&jobs).await;
    jobs.settings.broker = "of the old version".to_owned();
    jobs.settings.delivery = Delivery::ConfigMap(old.clone());
    let before = open(&jobs).await;
    let (theirs, ours) = (run(Behaviour::Slow, "theirs"), run(Behaviour::Succeeds, "ours"));
    before.start(&theirs).await.unwrap();
    done(&runner, &ours).await;
    let mut both = [old.name(), new.name()];
    both.sort_unstable();
    assert_eq!(agents(&jobs).await, both);
    assert_eq!(runner.tidy_agents(AT_ONCE).await.unwrap(), 1, "a Job names the other");
    assert_eq!(agents(&jobs).await, both);
    until_finished(&before, &theirs.name).await.unwrap();
    before.release(&theirs.name).await.unwrap();
    let all: Api<Job> = jobs.cluster.api();
    wait::until("its Job stays", PATIENCE, async || {
        all.get_opt(theirs.name.as_str()).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
    assert_eq!(runner.tidy_agents(AN_HOUR).await.unwrap(), 1, "its next run may be under way");
    assert_eq!(agents(&jobs).await, both);
    assert_eq!(runner.tidy_agents(AT_ONCE).await.unwrap(), 0);
    assert_eq!(agents(&jobs).await, [new.name()]);
    // Somebody needed it after all.
    done(&before, &run(Behaviour::Succeeds, "again")).await;
    assert_eq!(agents(&jobs).await, both);
}

/// Says how often it finds in its request what was planted there.
const GIVEN: &str = r#"#!/bin/sh
printf '{"dashboard_url": "https://dashboard.example/%s"}' "$(grep -c planted "$OSB_REQUEST_FILE")"
"#;

#[tokio::test]
async fn both_ways_bring_what_is_given() {
    let mut jobs = Jobs::new("agents", GIVEN).await;
    let image = Delivery::from(testkit::cluster::AGENT_IMAGE);
    for (way, delivery) in [("map", packed_agent().into()), ("image", image)] {
        jobs.settings.delivery = delivery;
        let mut run = run(Behaviour::Succeeds, way);
        run.capabilities = vec![Capability::RequestFile];
        run.work.parameters =
            serde_json::from_value::<osb::Object>(json!({"password": "planted"})).unwrap().into();
        let output = done(&open(&jobs).await, &run).await;
        let said = format!("{output:?}");
        assert!(said.contains("dashboard.example/1"), "{way}: {said}");
    }
}

/// What a policy may ask of the image's file system; and a program is mapped once, wherever it came from.
#[tokio::test]
async fn it_needs_no_file_of_the_image_and_no_more_memory_than_it_had() {
    let mut jobs = jobs().await;
    jobs.settings.pod.container_security_context = Some(json!({
        "readOnlyRootFilesystem": true,
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
    }));
    jobs.settings.pod.resources = Some(json!({"limits": {"memory": "16Mi"}}));
    let runner = open(&jobs).await;
    let run = run(Behaviour::Sleeps, "it");
    runner.start(&run).await.unwrap();
    begun(&jobs, &run).await;
    let agents = agents_in(&jobs, &run).await;
    let resident: Vec<_> = agents.iter().filter_map(|agent| memory(agent, "VmRSS:")).collect();
    println!("resident: {resident:?} kB");
    runner.release(&run.name).await.unwrap();
    assert!(!is_node_here() || !resident.is_empty(), "no agent is seen in the pod");
    assert!(resident.iter().all(|&kilobytes| kilobytes < MOST_RESIDENT), "{resident:?} kB");
}

/// Waits for the file `go`, and prints what whoever binds to a database is given: an address, a password, a certificate of
/// so many bytes. An agent that has printed more than 16 KiB waits for 0.3 s at least before it ends, when all else is done.
fn binds(certificate: u32) -> String {
    r#"#!/bin/sh
echo bind >>"$LEDGER/it"
while [ ! -e "$LEDGER/go" ]; do sleep 0.05; done
yes 'a line of the log' | head -c 20000 >&2
password=$(head -c 18 /dev/urandom | base64)
certificate=$(head -c BYTES /dev/urandom | base64 -w 64 | tr '\n' '|' | sed 's/|/\\n/g')
printf '{"credentials": {"host": "db.example", "port": 5432, "username": "user-1a2b3c", "password": "%s",' "$password"
printf '"uri": "postgres://user-1a2b3c:%s@db.example/database",' "$password"
printf '"ca": "-----BEGIN CERTIFICATE-----\\n%s-----END CERTIFICATE-----\\n"}}' "$certificate"
"#
    .replace("BYTES", &certificate.to_string())
}

/// What it has at the end, when it looks for all of that in what was printed, counts against the same limit.
#[tokio::test]
async fn what_a_bind_made_takes_little_memory_too() {
    for certificate in [0, 900] {
        let most = resident_at_most(&binds(certificate)).await;
        println!("resident at most, with a certificate of {certificate} bytes: {most:?} kB");
        assert!(!is_node_here() || most.is_some(), "nothing was read of the agent");
        assert!(
            most.is_none_or(|kilobytes| kilobytes < MOST_RESIDENT),
            "{certificate}: {most:?} kB"
        );
    }
}

/// Of the agent of a broker that binds, in kB; `None` if its node is elsewhere.
async fn resident_at_most(broker: &str) -> Option<u64> {
    let mut jobs = Jobs::new("agents", broker).await;
    jobs.settings.pod.resources = Some(json!({"limits": {"memory": "16Mi"}}));
    let runner = open(&jobs).await;
    let mut run = run(Behaviour::Succeeds, "it");
    run.work.action = Action::Bind;
    run.work.binding_id = Some(BindingId::new("binding").unwrap());
    runner.start(&run).await.unwrap();
    begun(&jobs, &run).await;
    let agents = agents_in(&jobs, &run).await;
    assert!(!is_node_here() || !agents.is_empty(), "no agent is seen in the pod");
    jobs.put("go");
    // It only grows: what was read last is the most of all.
    let mut most = None;
    while let Some(now) = agents.iter().filter_map(|agent| memory(agent, "VmHWM:")).max() {
        most = Some(now);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let output = until_finished(&runner, &run.name).await.unwrap();
    assert!(output.binding.unwrap().credentials.is_some());
    most
}

/// Of a cluster on another machine nothing is seen.
fn is_node_here() -> bool {
    testkit::cluster::folder()
        .zip(testkit::cluster::kubeconfig().ok())
        .is_some_and(|(folder, kubeconfig)| kubeconfig.starts_with(folder))
}

/// The agents in the pod of a run, where the node is this machine: their folders in `/proc`.
async fn agents_in(jobs: &Jobs, run: &Run) -> Vec<PathBuf> {
    let uid = jobs.pods_of(&run.name).await[0].metadata.uid.clone().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let is_agent = |process: &PathBuf| {
        let cgroup = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
        let program = std::fs::read_link(process.join("exe")).unwrap_or_default();
        cgroup.contains(&uid) && program.ends_with("manciple/agent")
    };
    processes.filter(is_agent).collect()
}

/// A number of a process's status, in kB; `None` of one that has ended.
fn memory(process: &Path, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
