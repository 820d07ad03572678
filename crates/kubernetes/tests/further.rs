//! Jobs in further namespaces: what changes, or is gone, between a run's first try and its end.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::names::RunName;
use engine::ports::{Run, Runner, StartError};
use engine::testing::runner_contract::{Behaviour, run};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kubernetes::brokers::{self, Brokers, Registry};
use kubernetes::{Bonds, JobRunner, JobSettings, Lead};
use osb::PlanId;
use osb::jobs::contract::Capability;
use serde_json::json;
use support::jobs::Jobs;
use support::proxied;
use testkit::proxy::Plan;

const BROKER: &str = "further";

/// A further namespace for Jobs.
async fn further(jobs: &Jobs) -> (String, Api<Namespace>) {
    let further = format!("{}-there", jobs.cluster.namespace);
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": further}})).unwrap();
    let namespaces = Api::<Namespace>::all(jobs.cluster.client.clone());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    (further, namespaces)
}

/// In another namespace than the records nothing is collected with them: what a run had goes by its release, or stays.
#[tokio::test]
async fn what_was_given_to_a_run_in_a_further_namespace_goes_with_its_release() {
    let jobs = Jobs::new("further", "#!/bin/sh\n").await;
    let client = jobs.cluster.client.clone();
    let (further, namespaces) = further(&jobs).await;
    let brokers = Brokers::new(jobs.settings.clone(), vec![further.clone()]);
    let runner = JobRunner::open_group(client.clone(), brokers, Bonds::default()).await.unwrap();
    let run = RunName::parse("provision-further-1").unwrap();
    let mut given = Secret::default();
    given.metadata.name = Some(run.to_string());
    let secrets = Api::<Secret>::namespaced(client, &further);
    secrets.create(&PostParams::default(), &given).await.unwrap();
    runner.release(&run).await.unwrap();
    let left = secrets.get_opt(run.as_str()).await.unwrap();
    namespaces.delete(&further, &DeleteParams::background()).await.unwrap();
    assert!(left.is_none(), "it stays for ever");
}

/// A `Broker` with the service of a run, whose Jobs may be in a further namespace.
struct Movable {
    jobs: Jobs,
    further: String,
    namespaces: Api<Namespace>,
    resources: Api<DynamicObject>,
}

impl Movable {
    async fn new(test: &str, run: &Run) -> Self {
        let jobs = Jobs::new(test, "#!/bin/sh\n").await;
        let (further, namespaces) = further(&jobs).await;
        let (client, home) = (jobs.cluster.client.clone(), &jobs.cluster.namespace);
        let resources = Api::namespaced_with(client, home, &brokers::resource());
        let resource = json!({
            "apiVersion": "manciple.dev/v1alpha1", "kind": "Broker", "metadata": {"name": "it"},
            "spec": {"image": testkit::cluster::SHELL_IMAGE},
        });
        let resource = serde_json::from_value(resource).unwrap();
        resources.create(&PostParams::default(), &resource).await.unwrap();
        let has = json!([{"id": run.work.service_id, "name": "s", "sold": true}]);
        let status = Patch::Merge(json!({"status": {"services": has}}));
        resources.patch_status("it", &PatchParams::default(), &status).await.unwrap();
        Self { jobs, further, namespaces, resources }
    }

    /// From now on.
    async fn moves(&self, plan: &PlanId, namespace: &str) {
        let plans = json!({"spec": {"plans": [{"planID": plan, "namespace": namespace}]}});
        let params = PatchParams::default();
        self.resources.patch("it", &params, &Patch::Merge(plans)).await.unwrap();
    }

    async fn open(&self, client: &kube::Client, linger: Duration) -> (Arc<Brokers>, JobRunner) {
        self.open_led(client, linger, None).await
    }

    async fn open_led(
        &self,
        client: &kube::Client,
        linger: Duration,
        lead: Option<&Arc<Lead>>,
    ) -> (Arc<Brokers>, JobRunner) {
        let settings = JobSettings { linger, ..self.jobs.settings.clone() };
        let bonds = Bonds { store: None, lead: lead.cloned() };
        let brokers = Brokers::new(settings, vec![self.further.clone()]);
        let runner =
            JobRunner::open_group(client.clone(), Arc::clone(&brokers), bonds).await.unwrap();
        (brokers, runner)
    }

    /// What is said of it now.
    async fn learn(&self, brokers: &Brokers) {
        let cluster = &self.jobs.cluster;
        let registry = Registry::open(cluster.client.clone(), &cluster.namespace).await.unwrap();
        brokers.learn(&registry.all(), false);
    }

    /// Where there is a Job of this name.
    async fn places(&self, run: &RunName) -> Vec<&String> {
        let mut places = Vec::new();
        for place in [&self.jobs.cluster.namespace, &self.further] {
            let jobs = Api::<Job>::namespaced(self.jobs.cluster.client.clone(), place);
            places.extend(jobs.get_opt(run.as_str()).await.unwrap().map(|_| place));
        }
        places
    }
}

/// A name is taken in one namespace, and a plan's Jobs may be in another from one moment to the next.
#[tokio::test]
async fn a_job_that_is_where_its_plan_had_them_before_is_not_made_again() {
    const HOURS: u64 = 10 * 60 * 60 * 1000;
    let (first, second) = (run(Behaviour::Succeeds, "it-1"), run(Behaviour::Succeeds, "it-2"));
    let town = Movable::new("moved", &first).await;
    let (client, home) = (&town.jobs.cluster.client, &town.jobs.cluster.namespace);
    let lead = Arc::new(Lead::new(client.clone(), home, BROKER, "it"));

    // Who is to lead next hears of Jobs hours later.
    let (_proxy, late) = proxied(&town.jobs.cluster, Plan { lag: HOURS, ..Plan::calm() }).await;
    let (now, next) = town.open_led(&late, Duration::from_secs(60), Some(&lead)).await;
    let (before, last) = town.open(client, Duration::from_secs(60)).await;
    town.learn(&before).await;
    last.start(&first).await.unwrap();
    town.moves(&first.work.plan_id, &town.further).await;
    town.learn(&now).await;
    let keeps = Arc::clone(&lead);
    let keeping = tokio::spawn(async move { keeps.keep().await });
    lead.held().wait_for(|held| *held).await.unwrap();
    next.start(&first).await.unwrap();
    let found = town.places(&first.name).await;

    // Who has led for long asks nobody first.
    let (proxy, prompt) = proxied(&town.jobs.cluster, Plan::calm()).await;
    let (brokers, long) = town.open_led(&prompt, Duration::ZERO, Some(&lead)).await;
    town.learn(&brokers).await;
    proxy.made();
    long.start(&second).await.unwrap();
    let calls = proxy.made();
    let then = town.places(&second.name).await;
    keeping.abort();
    town.namespaces.delete(&town.further, &DeleteParams::background()).await.unwrap();
    assert_eq!(found, [home], "it was made twice");
    assert_eq!(then, [&town.further], "it is not where its plan has them");
    let looks = |call: &&String| call.starts_with("GET ") && call.contains("/jobs/");
    assert_eq!(calls.iter().filter(looks).count(), 0, "{calls:?}");
}

/// With something that its broker is given in a file.
fn given(name: &str) -> Run {
    let mut run = run(Behaviour::Succeeds, name);
    run.capabilities.push(Capability::RequestFile);
    let parameters = json!({"size": 1}).as_object().unwrap().clone();
    run.work.parameters = parameters.into();
    run
}

/// What nobody owns goes by the release of its run, though the Job is somewhere else by then.
#[tokio::test]
async fn what_was_given_where_no_job_was_made_goes_with_the_run_that_was_made_elsewhere() {
    let run = given("it-3");
    let town = Movable::new("left", &run).await;
    let (client, home) = (&town.jobs.cluster.client, &town.jobs.cluster.namespace);
    let (brokers, runner) = town.open(client, Duration::ZERO).await;
    town.moves(&run.work.plan_id, &town.further).await;
    town.learn(&brokers).await;
    let none = json!({"metadata": {"name": "none"}, "spec": {"hard": {"count/jobs.batch": "0"}}});
    let none: ResourceQuota = serde_json::from_value(none).unwrap();
    let quotas = Api::<ResourceQuota>::namespaced(client.clone(), &town.further);
    quotas.create(&PostParams::default(), &none).await.unwrap();
    // The API server hears of the quota a moment later.
    let probe: Job = serde_json::from_value(json!({
        "metadata": {"generateName": "probe-"},
        "spec": {"parallelism": 0, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}],
        }}},
    }))
    .unwrap();
    let there = Api::<Job>::namespaced(client.clone(), &town.further);
    while there.create(&PostParams::default(), &probe).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let refused = runner.start(&run).await.unwrap_err();
    let is_quota = matches!(&refused, StartError::Transient(why) if why.contains("quota"));
    let secrets = Api::<Secret>::namespaced(client.clone(), &town.further);
    let before = secrets.get_opt(run.name.as_str()).await.unwrap();
    town.moves(&run.work.plan_id, home).await;
    town.learn(&brokers).await;
    runner.start(&run).await.unwrap();
    let places = town.places(&run.name).await;
    // It ends what goes on, for which a busy kubelet takes its time.
    let begun = Instant::now();
    while let Err(error) = runner.release(&run.name).await {
        assert!(begun.elapsed() < Duration::from_secs(120), "{error}");
    }
    let after = secrets.get_opt(run.name.as_str()).await.unwrap();
    town.namespaces.delete(&town.further, &DeleteParams::background()).await.unwrap();
    assert!(is_quota, "{refused:?}");
    assert_eq!(places, [home]);
    assert!(before.is_some(), "nothing was given there");
    assert!(after.is_none(), "it stays for ever");
}

/// A broker that was changed between two tries may want other files.
#[tokio::test]
async fn what_a_run_was_to_be_given_once_is_not_taken_for_what_it_is_given_now() {
    let run = given("it-4");
    let town = Movable::new("changed", &run).await;
    let client = &town.jobs.cluster.client;
    let mut old = Secret::default();
    old.metadata.name = Some(run.name.to_string());
    old.immutable = Some(true);
    old.data = Some(BTreeMap::from([("other".to_owned(), ByteString(b"{}".to_vec()))]));
    let secrets: Api<Secret> = town.jobs.cluster.api();
    secrets.create(&PostParams::default(), &old).await.unwrap();
    let (brokers, runner) = town.open(client, Duration::ZERO).await;
    town.learn(&brokers).await;
    runner.start(&run).await.unwrap();
    let given = secrets.get(run.name.as_str()).await.unwrap().data.unwrap();
    town.namespaces.delete(&town.further, &DeleteParams::background()).await.unwrap();
    assert!(!given.contains_key("other"), "{:?}", given.keys());
    assert!(!given.is_empty());
}

/// Whose home is another namespace has its Jobs for itself, though it has the same name.
#[tokio::test]
async fn what_another_of_the_same_name_runs_in_the_same_further_namespace_is_left_alone() {
    let run = run(Behaviour::Succeeds, "it-1");
    let town = Movable::new("shared", &run).await;
    let client = &town.jobs.cluster.client;
    town.moves(&run.work.plan_id, &town.further).await;
    let (brokers, runner) = town.open(client, Duration::from_secs(60)).await;
    town.learn(&brokers).await;
    runner.start(&run).await.unwrap();
    let other = Jobs::new("shared-other", "#!/bin/sh\n").await;
    let broker = town.jobs.settings.broker.clone();
    let settings = JobSettings { broker: broker.clone(), ..other.settings.clone() };
    let further = vec![town.further.clone()];
    let same = Brokers::new(settings, further.clone());
    let same = JobRunner::open_group(client.clone(), same, Bonds::default()).await.unwrap();
    let (ours, theirs) = (runner.unreleased().await.unwrap(), same.unreleased().await.unwrap());
    let home = &other.cluster.namespace;
    kubernetes::own::forget(client.clone(), home, &further, &broker).await.unwrap();
    let places = town.places(&run.name).await;
    town.namespaces.delete(&town.further, &DeleteParams::background()).await.unwrap();
    assert_eq!(ours.len(), 1, "its own");
    assert!(theirs.is_empty(), "the other's: {theirs:?}");
    assert_eq!(places, [&town.further], "it was removed with what another had");
}
