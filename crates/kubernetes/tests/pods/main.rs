//! What happens to pods, on a real cluster: each is named as what it is, soon, and is never a success.

mod silent;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/twin.rs"]
mod twin;
mod unbegun;

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::names::RunName;
use engine::ports::{Run, RunFailure, RunState, Runner, StartError};
use engine::record::Reason;
use engine::testing::runner_contract::{Behaviour, run, until, until_finished};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, EvictParams};
use osb::{Action, BindingId, InstanceId, PlanId};
use serde_json::json;

use kubernetes::{Bonds, JobRunner};
use support::jobs::Jobs;
use support::wait;
use testkit::processor::Processor;
use testkit::proxy::Plan;

/// What Kubernetes knows is named within this time.
const SOON: Duration = Duration::from_secs(10);
/// The longest that anything else takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

const BROKER: &str = r#"#!/bin/sh
digest() { printf %s "$1" | sha256sum | cut -c1-64; }
while [ $# -gt 1 ]; do
    case $2 in --plan-id) plan=$3 ;; --instance-id) instance=$3 ;; --binding-id) binding=$3 ;; esac
    shift 2
done
file=$(printf %s "$instance" | tr -c 'a-zA-Z0-9-' _ | cut -c1-100)
echo effect >>"$LEDGER/$file"
case $plan in
    sleeps) sleep 600 ;;
    slow) sleep 3 ;;
    memory) tail /dev/zero || exit 1 ;;
    large) head -c 11534336 /dev/zero | tr '\0' x ;;
    report) printf '{"dashboard_url": "https://dashboard.example/'; head -c 600000 /dev/urandom | base64 -w0 | tr '+/' '-_'; echo '"}'; exit ;;
    flood) echo first >&2; yes 'of no use' | head -c 20000000 >&2; echo last >&2 ;;
    text) echo 'all is well'; exit ;;
    bytes) printf '{"dashboard_url": "\377\376"}'; printf 'bytes: \377\376\n' >&2; exit ;;
    bytes-in-log) printf 'bytes: \377\376\n' >&2 ;;
    id) printf '{"credentials": {"instance": "%s", "binding": "%s"}}' "$(digest "$instance")" "$(digest "$binding")"; exit ;;
esac
echo '{"dashboard_url": "https://dashboard.example"}'
"#;

async fn jobs() -> Jobs {
    Jobs::new("pods", BROKER).await
}

fn asked(plan: &str) -> Run {
    let mut run = run(Behaviour::Succeeds, "it-1");
    run.work.plan_id = PlanId::new(plan).unwrap();
    run
}

async fn started(jobs: &Jobs, plan: &str) -> (Arc<dyn Runner>, Run) {
    let (runner, run) = (jobs.open().await, asked(plan));
    runner.start(&run).await.unwrap();
    (runner, run)
}

/// One whose broker has begun, as Kubernetes knows: a kubelet of 1.20 takes a dozen seconds to end a pod
/// before that.
async fn begun(jobs: &Jobs, plan: &str) -> (Arc<dyn Runner>, Run) {
    let (runner, run) = started(jobs, plan).await;
    until_effect(jobs, &run.work.instance_id).await;
    let is_running = |pod: &Pod| {
        pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
    };
    wait::until("its pod does not run", PATIENCE, async || {
        let pods = jobs.pods_of(&run.name).await;
        if pods.iter().all(is_running) { Ok(()) } else { Err(pods) }
    })
    .await;
    (runner, run)
}

async fn until_effect(jobs: &Jobs, instance: &InstanceId) {
    for _ in 0..2400 {
        if jobs.effects(instance) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the broker was not started");
}

/// Waits until a run that goes on says something with these words.
async fn until_said(runner: &dyn Runner, run: &RunName, words: &str) -> String {
    let since = Processor::now();
    let state = until(runner, run, |state| match state {
        RunState::Running { progress } => {
            progress.as_ref().is_some_and(|said| said.contains(words))
        }
        state => panic!("{state:?}"),
    })
    .await;
    println!("said after {:.1} s: {state:?}", since.elapsed().as_secs_f32());
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    let RunState::Running { progress: Some(said) } = state else { unreachable!() };
    said
}

/// Waits for the end of a run, which is long before its deadline. A pod that does not begin, or is deleted in the moment
/// in which it does, takes a kubelet of 1.20 a dozen seconds to end; it is said meanwhile why.
async fn until_over(runner: &dyn Runner, run: &RunName) -> RunState {
    let since = Instant::now();
    let state = until(runner, run, |state| !matches!(state, RunState::Running { .. })).await;
    let shown = format!("{state:?}").chars().take(400).collect::<String>();
    println!("over after {:.1} s: {shown}", since.elapsed().as_secs_f32());
    assert!(since.elapsed() < 18 * SOON, "{:?}", since.elapsed());
    state
}

async fn until_failed(runner: &dyn Runner, run: &RunName, reason: Reason, words: &str) {
    let RunState::Finished(Err(RunFailure { reason: why, failure, .. })) =
        until_over(runner, run).await
    else {
        panic!("it did not fail");
    };
    assert_eq!(why, reason, "{failure:?}");
    assert!(failure.description.contains(words), "{failure:?}");
}

async fn until_lost(runner: &dyn Runner, run: &RunName, words: &str) {
    let RunState::Lost { why } = until_over(runner, run).await else { panic!("it is not lost") };
    assert!(why.contains(words), "{why}");
}

/// To this runner, to another one, and some time later.
async fn assert_stays(jobs: &Jobs, runner: &dyn Runner, run: &RunName) {
    let state = runner.observe(run).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(runner.observe(run).await.unwrap(), state);
    assert_eq!(jobs.open().await.observe(run).await.unwrap(), state);
}

#[tokio::test]
async fn a_pod_that_is_deleted_is_lost_and_not_followed_by_another() {
    is_followed_by_none(None).await;
}

#[tokio::test]
async fn a_pod_that_is_deleted_by_force_is_lost_and_not_followed_by_another() {
    is_followed_by_none(Some(0)).await;
}

async fn is_followed_by_none(grace: Option<u32>) {
    let jobs = jobs().await;
    let (runner, run) = begun(&jobs, "sleeps").await;
    let how = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
    jobs.delete_pods_of(&run.name, &how).await;
    until_lost(&*runner, &run.name, "its pod was deleted").await;
    assert_stays(&jobs, &*runner, &run.name).await;
    assert_eq!(jobs.effects(&run.work.instance_id), 1);
    runner.release(&run.name).await.unwrap();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
}

#[tokio::test]
async fn a_pod_that_is_removed_by_force_is_followed_by_no_other_broker() {
    let jobs = jobs().await;
    let (runner, run) = (jobs.open().await, asked("sleeps"));
    runner.start(&run).await.unwrap();
    // Its kubelet has said nothing of it yet.
    until_effect(&jobs, &run.work.instance_id).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    jobs.delete_pods_of(&run.name, &now).await;
    until_lost(&*runner, &run.name, "its pod was deleted").await;
    // A container takes a second to begin.
    for _ in 0..30 {
        assert_eq!(jobs.effects(&run.work.instance_id), 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_pod_that_is_evicted_is_lost_and_not_followed_by_another() {
    let jobs = jobs().await;
    let (runner, run) = begun(&jobs, "sleeps").await;
    let pod = jobs.pods_of(&run.name).await.remove(0).metadata.name.unwrap();
    jobs.pods().evict(&pod, &EvictParams::default()).await.unwrap();
    until_lost(&*runner, &run.name, "its pod was").await;
    assert_stays(&jobs, &*runner, &run.name).await;
    assert_eq!(jobs.effects(&run.work.instance_id), 1);
}

/// As a Job controller makes one that had no answer. Before 1.30 the scheduler keeps it away from the first; from then on
/// both may have begun.
#[tokio::test]
async fn a_pod_too_many_costs_a_run_nothing_where_it_waits_for_the_first() {
    let jobs = jobs().await;
    let (runner, run) = begun(&jobs, "slow").await;
    let pod = jobs.pods_of(&run.name).await.remove(0);
    twin::come_and_go(&jobs.pods(), &pod, PATIENCE).await;
    let affinity = pod.spec.and_then(|spec| spec.affinity);
    match affinity.is_some_and(|it| it.pod_anti_affinity.is_some()) {
        true => until_finished(&*runner, &run.name).await.map(drop).unwrap(),
        false => until_lost(&*runner, &run.name, "Kubernetes made two pods for it").await,
    }
    assert_eq!(jobs.effects(&run.work.instance_id), 1);
}

/// Whether the Job of a run says how it ended.
async fn has_ended(jobs: &Jobs, run: &RunName) -> bool {
    let job = jobs.cluster.api::<Job>().get(run.as_str()).await.unwrap();
    let conditions = job.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|it| it.status == "True")
}

#[tokio::test]
async fn a_result_that_was_seen_outlives_its_pod() {
    let jobs = jobs().await;
    for plan in ["succeeds", "text"] {
        let (runner, mut run) = (jobs.open().await, asked(plan));
        run.name = RunName::parse(plan).unwrap();
        runner.start(&run).await.unwrap();
        let state = until_over(&*runner, &run.name).await;
        // One that is deleted before the Job controller has counted it was taken away.
        wait::until("its Job does not say how it ended", PATIENCE, async || {
            if has_ended(&jobs, &run.name).await { Ok(()) } else { Err("not yet") }
        })
        .await;
        jobs.delete_pods_of(&run.name, &DeleteParams::default()).await;
        wait::until("its pod stays", PATIENCE, async || {
            let pods = jobs.pods_of(&run.name).await;
            if pods.is_empty() { Ok(()) } else { Err(pods) }
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(runner.observe(&run.name).await.unwrap(), state);
        let words = "was deleted before its report was read";
        until_lost(&*jobs.open().await, &run.name, words).await;
        assert_eq!(jobs.effects(&run.work.instance_id), if plan == "text" { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_broker_that_uses_up_its_memory_is_named() {
    let mut jobs = jobs().await;
    jobs.settings.pod.resources = Some(json!({"limits": {"memory": "24Mi"}}));
    let (runner, run) = started(&jobs, "memory").await;
    let state = until_over(&*runner, &run.name).await;
    assert!(!matches!(state, RunState::Finished(Ok(_))), "{state:?}");
    assert!(format!("{state:?}").contains("OOMKilled"), "{state:?}");
}

#[tokio::test]
async fn too_much_on_stdout_is_named() {
    let jobs = jobs().await;
    let (runner, run) = started(&jobs, "large").await;
    until_failed(&*runner, &run.name, Reason::OutputTooLarge, "1048576").await;
}

#[tokio::test]
async fn a_flood_on_stderr_is_cut_and_harms_nothing() {
    let jobs = jobs().await;
    let (runner, run) = started(&jobs, "flood").await;
    assert!(matches!(until_over(&*runner, &run.name).await, RunState::Finished(Ok(_))));
    let log = runner.log(&run.name).await.unwrap().unwrap();
    assert!(
        log.starts_with("first\n") && log.ends_with("last\n"),
        "{:?}",
        log.get(log.len() - 200..)
    );
    assert!(log.len() < 512 * 1024, "{} bytes", log.len());
}

/// It does not fit into the termination message, and is in the log.
#[tokio::test]
async fn a_large_output_comes_home_whole() {
    let jobs = jobs().await;
    let runner = jobs.open().await;
    for index in 0..3 {
        let mut run = asked("report");
        run.name = RunName::parse(&format!("report-{index}")).unwrap();
        runner.start(&run).await.unwrap();
        let RunState::Finished(Ok(output)) = until_over(&*runner, &run.name).await else {
            panic!("it did not come");
        };
        assert!(output.dashboard_url.unwrap().len() > 700_000);
    }
}

/// A kubelet that has just begun says of each pod that there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_is_waited_for_where_a_kubelet_does_not_know_of_the_pod_yet() {
    let jobs = jobs().await;
    let (proxy, client) = support::proxied(&jobs.cluster, Plan::calm()).await;
    proxy.lose_logs(true);
    let runner: Arc<dyn Runner> =
        Arc::new(JobRunner::open(client, jobs.settings.clone(), Bonds::default()).await.unwrap());
    let run = asked("report");
    runner.start(&run).await.unwrap();
    let waits = |state: &RunState| match state {
        RunState::Running { progress } => {
            progress.as_ref().is_some_and(|said| said.contains("its kubelet may have just begun"))
        }
        state => panic!("{state:?}"),
    };
    until(&*runner, &run.name, waits).await;
    proxy.lose_logs(false);
    let RunState::Finished(Ok(output)) = until_over(&*runner, &run.name).await else {
        panic!("it did not come");
    };
    assert!(output.dashboard_url.unwrap().len() > 700_000);
}

#[tokio::test]
async fn what_is_not_json_or_not_text_is_named() {
    let jobs = jobs().await;
    for plan in ["text", "bytes"] {
        let (runner, mut run) = (jobs.open().await, asked(plan));
        run.name = RunName::parse(plan).unwrap();
        runner.start(&run).await.unwrap();
        until_failed(&*runner, &run.name, Reason::NotJson, "").await;
    }
    let (runner, run) = started(&jobs, "bytes-in-log").await;
    assert!(matches!(until_over(&*runner, &run.name).await, RunState::Finished(Ok(_))));
    let log = runner.log(&run.name).await.unwrap().unwrap();
    assert!(log.contains("bytes: \u{FFFD}"), "{log}");
}

#[tokio::test]
async fn any_id_reaches_the_broker_as_it_is() {
    let jobs = jobs().await;
    let runner = jobs.open().await;
    let long = "x".repeat(255);
    let ids = [
        long.as_str(),
        "../../etc/passwd",
        "$(id) `id` $HOME %s \\n \"'",
        "\u{202E}\u{1F980} \u{e4}",
        "--plan-id",
        "$(POD_IP) $$(HOME)",
    ];
    for (index, id) in ids.into_iter().enumerate() {
        let mut run = asked("id");
        run.name = RunName::parse(&format!("id-{index}")).unwrap();
        run.work.action = Action::Bind;
        // Each of another.
        let (instance, binding) = (InstanceId::new(id).unwrap(), ids[(index + 1) % ids.len()]);
        run.work.instance_id = instance.clone();
        run.work.binding_id = Some(BindingId::new(binding).unwrap());
        runner.start(&run).await.unwrap();
        let output = until_finished(&*runner, &run.name).await.unwrap();
        let digest = |id: &str| {
            let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
            data_encoding::HEXLOWER.encode(digest.as_ref())
        };
        let expected = json!({"instance": digest(id), "binding": digest(binding)});
        let credentials = output.binding.unwrap().credentials.unwrap();
        assert_eq!(json!(credentials.expose()), expected, "{id}, {binding}");
        let record = engine::record::Key::Binding(instance, BindingId::new(binding).unwrap());
        let found = jobs.open().await.unreleased().await.unwrap();
        assert!(found.contains(&(run.name.clone(), record)), "{found:?}");
    }
}

#[tokio::test]
async fn a_namespace_that_is_deleted_is_named() {
    let jobs = jobs().await;
    let (runner, run) = begun(&jobs, "sleeps").await;
    let namespaces: Api<Namespace> = Api::all(jobs.cluster.client.clone());
    namespaces.delete(&jobs.cluster.namespace, &DeleteParams::background()).await.unwrap();
    let words = format!("the namespace {} was deleted", jobs.cluster.namespace);
    until_lost(&*runner, &run.name, &words).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    until_lost(&*runner, &run.name, &words).await;
    let mut another = asked("succeeds");
    another.name = RunName::parse("another-1").unwrap();
    let Err(StartError::Transient(why)) = runner.start(&another).await else {
        panic!("it was started");
    };
    assert!(why.contains("namespace") || why.contains("terminated"), "{why}");
    assert_eq!(jobs.effects(&run.work.instance_id), 1);
}

#[tokio::test]
async fn a_job_that_is_deleted_is_a_run_that_is_lost() {
    for how in [DeleteParams::background(), DeleteParams::foreground()] {
        let jobs = jobs().await;
        let (runner, run) = begun(&jobs, "sleeps").await;
        jobs.cluster.api::<Job>().delete(run.name.as_str(), &how).await.unwrap();
        until_lost(&*runner, &run.name, "its Job was deleted").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        until_lost(&*runner, &run.name, "its Job was deleted").await;
        // It is not started again under its name.
        runner.start(&run).await.unwrap();
        until_lost(&*runner, &run.name, "its Job was deleted").await;
        assert_eq!(jobs.effects(&run.work.instance_id), 1);
        runner.release(&run.name).await.unwrap();
        assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    }
}

#[tokio::test]
async fn a_pod_that_outlives_its_job_is_followed_to_its_end() {
    let jobs = jobs().await;
    let (runner, run) = begun(&jobs, "slow").await;
    let jobs_api = jobs.cluster.api::<Job>();
    jobs_api.delete(run.name.as_str(), &DeleteParams::orphan()).await.unwrap();
    wait::until("its Job stays", PATIENCE, async || {
        jobs_api.get_opt(run.name.as_str()).await.unwrap().map_or(Ok(()), Err)
    })
    .await;
    for runner in [&runner, &jobs.open().await] {
        let state = until_over(&**runner, &run.name).await;
        assert!(matches!(state, RunState::Finished(Ok(_))), "{state:?}");
    }
    runner.release(&run.name).await.unwrap();
    assert_eq!(runner.observe(&run.name).await.unwrap(), RunState::Absent);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(jobs.pods_of(&run.name).await.len(), 0);
}

#[tokio::test]
async fn a_pod_without_its_job_can_be_cancelled() {
    let jobs = jobs().await;
    let (runner, run) = begun(&jobs, "sleeps").await;
    let jobs_api = jobs.cluster.api::<Job>();
    jobs_api.delete(run.name.as_str(), &DeleteParams::orphan()).await.unwrap();
    until_said(&*runner, &run.name, "its Job was deleted").await;
    runner.cancel(&run.name).await.unwrap();
    until_failed(&*runner, &run.name, Reason::Halted, "").await;
}
