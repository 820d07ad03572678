//! What the schedules found, each by itself: writers that are ended half-way, replicas that are behind.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::names::RunName;
use engine::ports::{
    Filter, Kind as Records, Query, RunState, Runner, StartError, Store, StoreError,
};
use engine::record::{Key, Lifecycle, Phase, Record, Timestamp};
use engine::testing::runner_contract::{Behaviour, run};
use engine::testing::store_contract::{Lists as _, sample, sample_binding};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kubernetes::resources::Kind;
use kubernetes::{Bonds, Client, JobRunner, KubernetesStore, Lead, StoreSettings, names};
use serde_json::json;
use support::jobs::Jobs;
use support::{Cluster, proxied};
use testkit::proxy::{Plan, Proxy};
use testkit::random::Random;

const BROKER: &str = "faults";

async fn open(client: &kube::Client, cluster: &Cluster) -> KubernetesStore {
    let settings =
        StoreSettings { namespace: cluster.namespace.clone(), broker: BROKER.to_owned() };
    KubernetesStore::open(client.clone(), settings).await.unwrap()
}

async fn behind(cluster: &Cluster, plan: Plan) -> (Proxy, KubernetesStore) {
    let (proxy, client) = proxied(cluster, plan).await;
    let store = open(&client, cluster).await;
    (proxy, store)
}

fn resources(cluster: &Cluster) -> Api<DynamicObject> {
    let kind = Kind::ServiceInstance.resource();
    Api::namespaced_with(cluster.client.clone(), &cluster.namespace, &kind)
}

/// With something confidential in it.
fn confidential(id: &str) -> Record {
    let mut record = sample(id);
    record.ordered.parameters = json!({"password": "p"}).as_object().unwrap().clone().into();
    record
}

#[tokio::test]
async fn a_record_whose_writer_was_ended_half_way_is_removed_by_whoever_reads_it() {
    let cluster = Cluster::new("half-made").await;
    let record = confidential("i");
    let name = names::resource(BROKER, &record.key);
    {
        let store = open(&cluster.client, &cluster).await;
        store.write(Arc::new(record.clone()), None).await.unwrap();
    }
    // As if it had been ended before this was made.
    let secrets: Api<Secret> = cluster.api();
    secrets.delete(&name, &DeleteParams::default()).await.unwrap();
    let store = open(&cluster.client, &cluster).await;
    // A platform's request and whoever carries operations out, say. One of them removes it.
    let reads = (0..8).map(|_| store.read(&record.key));
    for read in futures_util::future::join_all(reads).await {
        assert!(matches!(&read, Ok(None)), "nobody was told of it: {read:?}");
    }
    assert!(resources(&cluster).get_opt(&name).await.unwrap().is_none(), "it stays");
    store.write(Arc::new(record), None).await.unwrap();
    cluster.remove().await;
}

#[tokio::test]
async fn a_record_whose_secret_is_not_let_in_is_the_servers_trouble_and_leaves_nothing_half_made() {
    let cluster = Cluster::new("no-secrets").await;
    let store = open(&cluster.client, &cluster).await;
    let none = json!({"metadata": {"name": "none"}, "spec": {"hard": {"secrets": "0"}}});
    let none: ResourceQuota = serde_json::from_value(none).unwrap();
    cluster.api::<ResourceQuota>().create(&PostParams::default(), &none).await.unwrap();
    let probe: Secret =
        serde_json::from_value(json!({"metadata": {"generateName": "probe-"}})).unwrap();
    // The API server hears of the quota a moment later.
    while cluster.api::<Secret>().create(&PostParams::default(), &probe).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let record = confidential("i");
    let refused = store.write(Arc::new(record.clone()), None).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::Unavailable(why) if why.contains("exceeded quota")),
        "{refused:?}"
    );
    let name = names::resource(BROKER, &record.key);
    assert!(resources(&cluster).get_opt(&name).await.unwrap().is_none(), "half of it stays");
    cluster.remove().await;
}

/// An API server that was restarted answers before it knows of definitions: a platform that was told "gone" then would
/// forget an instance that is there.
#[tokio::test]
async fn that_a_kind_is_not_served_yet_does_not_mean_that_nothing_of_it_is_there() {
    let cluster = Cluster::new("unserved").await;
    let (proxy, store) = behind(&cluster, Plan::calm()).await;
    let (there, missing) = (confidential("i"), sample("j").key);
    let version = store.write(Arc::new(there.clone()), None).await.unwrap();
    proxy.forget_kinds(|_| true);
    let unavailable = |error| matches!(error, StoreError::Unavailable(_));
    assert!(unavailable(store.read(&there.key).await.unwrap_err()), "it is there");
    assert!(unavailable(store.read(&missing).await.unwrap_err()), "who knows?");
    let query = Query {
        kind: Records::Bindings,
        instance: there.key.instance().clone().into(),
        filter: Filter::All,
        after: None,
        limit: 9,
    };
    assert!(store.list(&query).await.is_err_and(unavailable), "it may have bindings");
    let mut changed = there.clone();
    changed.updated_at = changed.updated_at.plus(Duration::from_secs(1));
    let written = store.write(Arc::new(changed), Some(&version)).await;
    assert!(unavailable(written.unwrap_err()), "nobody else wrote");
    proxy.forget_kinds(|_| false);
    assert_eq!(store.read(&there.key).await.unwrap().map(|it| (*it.record).clone()), Some(there));
    assert!(store.read(&missing).await.unwrap().is_none());
    cluster.remove().await;
}

#[tokio::test]
async fn a_slow_first_write_is_not_taken_away_once_it_was_acknowledged() {
    let cluster = Cluster::new("slow").await;
    let (proxy, slow) = behind(&cluster, Plan::calm()).await;
    let quick = open(&cluster.client, &cluster).await;
    let mut acknowledged = Vec::new();
    // A record without its Secret is taken for half made after three seconds.
    for (number, late) in [1500, 2900, 3100, 6000].into_iter().enumerate() {
        proxy.hold_up(makes_a_secret);
        let let_go = async {
            tokio::time::sleep(Duration::from_millis(late)).await;
            proxy.hold_up(|_| false);
        };
        let record = confidential(&format!("i{number}"));
        let reads = async {
            loop {
                if quick.read(&record.key).await.unwrap_or_default().is_some() {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let written = slow.write(Arc::new(record.clone()), None);
        let reads = tokio::time::timeout(Duration::from_secs(12), reads);
        let (written, _, ()) = tokio::join!(written, reads, let_go);
        let there = quick.read(&record.key).await.unwrap().is_some();
        assert!(there || written.is_err(), "it was acknowledged, and is gone");
        acknowledged.push(written.is_ok());
    }
    assert!(acknowledged[0] && !acknowledged[3], "{acknowledged:?}");
    cluster.remove().await;
}

fn makes_a_secret(call: &str) -> bool {
    call.starts_with("POST ") && call.ends_with("/secrets")
}

/// A request that finds a record is answered by it, whoever made it.
#[tokio::test]
async fn what_one_reader_has_found_another_that_took_it_for_half_made_does_not_remove() {
    let cluster = Cluster::new("found").await;
    let (made_by, slow) = behind(&cluster, Plan::calm()).await;
    let (removed_by, impatient) = behind(&cluster, Plan::calm()).await;
    let other = open(&cluster.client, &cluster).await;
    let record = confidential("i");
    let changes: fn(&str) -> bool = |call| call.starts_with("PATCH ");
    made_by.hold_up(makes_a_secret);
    removed_by.hold_up(changes);
    let (begin, begun) = tokio::sync::oneshot::channel();
    let others = async {
        until_made(&made_by, makes_a_secret).await;
        begin.send(()).unwrap();
        until_made(&removed_by, changes).await;
        // The Secret comes now; no later call of that writer does.
        made_by.hold_up(changes);
        tokio::time::sleep(Duration::from_millis(500)).await;
        let found = other.read(&record.key).await.unwrap().is_some();
        made_by.hold_up(|_| false);
        removed_by.hold_up(|_| false);
        found
    };
    let written = slow.write(Arc::new(record.clone()), None);
    let read = async {
        begun.await.unwrap();
        impatient.read(&record.key).await
    };
    let (written, read, found) = tokio::join!(written, read, others);
    let stays = other.read(&record.key).await.unwrap().is_some();
    let read = read.unwrap().is_some();
    for (name, is_there) in
        [("its writer", written.is_ok()), ("a reader", found), ("who waited", read)]
    {
        assert!(!is_there || stays, "{name} found it, and it is gone");
    }
    assert!(
        matches!(written, Err(StoreError::Conflict)) && !stays,
        "it came too late: {written:?}"
    );
    cluster.remove().await;
}

/// Waits until a client has made a call, which may be held up.
async fn until_made(proxy: &Proxy, which: fn(&str) -> bool) {
    while !proxy.made().iter().any(|call| which(call)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Whoever is held up on its way to the Secret may come when the id is used anew, and everybody was told of that.
#[tokio::test]
async fn who_comes_late_with_a_secret_leaves_that_of_a_later_resource() {
    let cluster = Cluster::new("late-secret").await;
    let (proxy, late) = behind(&cluster, Plan::calm()).await;
    let quick = open(&cluster.client, &cluster).await;
    for (id, was_there) in [("with-an-outcome", true), ("with-an-order", false)] {
        let version = match was_there {
            true => Some(late.write(Arc::new(sample(id)), None).await.unwrap()),
            false => None,
        };
        proxy.made();
        proxy.hold_up(makes_a_secret);
        let meanwhile = async {
            until_made(&proxy, makes_a_secret).await;
            if let Some(version) = &version {
                let gone = Record { lifecycle: Lifecycle::Deleted, ..sample(id) };
                quick.write(Arc::new(gone), Some(version)).await.unwrap();
            }
            // What is half made is removed by whoever reads it, after three seconds.
            let there = quick.read(&sample(id).key).await.unwrap();
            let anew = Record { sequence: 2, ..confidential(id) };
            let there = there.map(|there| there.version);
            quick.write(Arc::new(anew.clone()), there.as_ref()).await.unwrap();
            proxy.hold_up(|_| false);
            anew
        };
        let outcome = Record { updated_at: Timestamp(3), ..confidential(id) };
        let written = late.write(Arc::new(outcome), version.as_ref());
        let (written, anew) = tokio::join!(written, meanwhile);
        assert!(matches!(written, Err(StoreError::Conflict)), "{id}: {written:?}");
        let reader = open(&cluster.client, &cluster).await;
        let now = reader.read(&anew.key).await.unwrap();
        assert_eq!(now.map(|it| (*it.record).clone()), Some(anew), "{id}: it was acknowledged");
    }
    cluster.remove().await;
}

#[tokio::test]
async fn an_id_that_is_used_anew_has_a_resource_of_its_own() {
    let cluster = Cluster::new("anew").await;
    let store = open(&cluster.client, &cluster).await;
    let record = sample("i");
    let name = names::resource(BROKER, &record.key);
    let uid = async || resources(&cluster).get(&name).await.unwrap().metadata.uid.unwrap();
    let version = store.write(Arc::new(record.clone()), None).await.unwrap();
    let mut deleted = record.clone();
    deleted.lifecycle = Lifecycle::Deleted;
    let version = store.write(Arc::new(deleted), Some(&version)).await.unwrap();
    let before = uid().await;
    // Not buried yet: whoever does it may be slow.
    store.write(Arc::new(record.clone()), Some(&version)).await.unwrap();
    assert_ne!(uid().await, before, "whoever deletes the old one deletes the new one");
    let tombstones: Api<ConfigMap> = cluster.api();
    assert!(tombstones.get_opt(&name).await.unwrap().is_none(), "a tombstone of one that lives");
    assert_eq!(store.read(&record.key).await.unwrap().unwrap().record.lifecycle, Lifecycle::Ready);
    cluster.remove().await;
}

#[tokio::test]
async fn what_another_removed_is_not_listed_by_a_replica_that_is_behind() {
    let cluster = Cluster::new("behind").await;
    let store = open(&cluster.client, &cluster).await;
    let instance = sample("i");
    let binding = sample_binding("i", "b");
    store.write(Arc::new(instance), None).await.unwrap();
    let version = store.write(Arc::new(binding.clone()), None).await.unwrap();
    let plan = Plan { random: Random::new(1), lag: 600_000, ..Plan::calm() };
    let (_proxy, behind) = behind(&cluster, plan).await;
    let Key::Binding(id, _) = &binding.key else { panic!() };
    let query = Query {
        kind: Records::Bindings,
        instance: Some(id.clone()),
        filter: Filter::Live,
        after: None,
        limit: 1,
    };
    assert_eq!(behind.list(&query).await.unwrap().len(), 1);
    store.remove(&binding.key, &version).await.unwrap();
    assert_eq!(behind.list(&query).await.unwrap().len(), 0, "it is gone");
    cluster.remove().await;
}

#[tokio::test]
async fn what_was_given_to_a_run_that_was_never_made_goes_with_its_release() {
    let jobs = Jobs::new("never-made", "#!/bin/sh\n").await;
    let runner = jobs.open().await;
    let run = RunName::parse("provision-never-made-1").unwrap();
    let mut given = Secret::default();
    given.metadata.name = Some(run.to_string());
    given.data = Some(BTreeMap::from([("work.json".to_owned(), ByteString(b"{}".to_vec()))]));
    let secrets: Api<Secret> = jobs.cluster.api();
    secrets.create(&PostParams::default(), &given).await.unwrap();
    runner.release(&run).await.unwrap();
    assert!(secrets.get_opt(run.as_str()).await.unwrap().is_none(), "it stays for ever");
}

/// How long one may take to begin: on a busy machine a pod needs seconds.
const TO_BEGIN: Duration = Duration::from_secs(12);

/// A broker that works for longer than one may take to begin.
async fn works(test: &str, plan: Plan) -> (Jobs, Proxy, JobRunner) {
    let (jobs, proxy, client) = place_of_work(test, plan).await;
    let runner = JobRunner::open(client, jobs.settings.clone(), Bonds::default()).await.unwrap();
    (jobs, proxy, runner)
}

async fn place_of_work(test: &str, plan: Plan) -> (Jobs, Proxy, Client) {
    let mut jobs = Jobs::new(test, "#!/bin/sh\nsleep 600\n").await;
    jobs.settings.start_timeout = TO_BEGIN;
    let (proxy, client) = proxied(&jobs.cluster, plan).await;
    (jobs, proxy, client)
}

#[tokio::test]
async fn a_run_is_not_ended_for_what_a_dead_watch_did_not_say_of_it() {
    const HOURS: u64 = 10 * 60 * 60 * 1000;
    let (jobs, _proxy, runner) = works("dead-watch", Plan { lag: HOURS, ..Plan::calm() }).await;
    let run = run(Behaviour::Succeeds, "it-1");
    runner.start(&run).await.unwrap();
    let begun = Instant::now();
    while begun.elapsed() < TO_BEGIN + Duration::from_secs(7) {
        let state = runner.observe(&run.name).await.unwrap();
        assert!(matches!(state, RunState::Running { .. }), "{state:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let job = jobs.cluster.api::<Job>().get(run.name.as_str()).await.unwrap();
    assert_eq!(job.spec.unwrap().parallelism, Some(1), "it was ended");
    let pods = jobs.pods_of(&run.name).await;
    assert_eq!(pods[0].status.as_ref().unwrap().phase.as_deref(), Some("Running"));
}

#[tokio::test]
async fn a_job_is_not_made_by_who_may_not_lead_any_more() {
    let (jobs, _proxy, client) = place_of_work("leads-not", Plan::calm()).await;
    let namespace = &jobs.cluster.namespace;
    let lead = Arc::new(Lead::new(jobs.cluster.client.clone(), namespace, BROKER, "it"));
    let bonds = Bonds { store: None, lead: Some(Arc::clone(&lead)) };
    let runner = JobRunner::open(client, jobs.settings.clone(), bonds).await.unwrap();
    let run = run(Behaviour::Succeeds, "it-1");
    let refused = runner.start(&run).await.unwrap_err();
    assert!(matches!(&refused, StartError::Unready(why) if why.contains("lead")), "{refused:?}");
    let jobs = jobs.cluster.api::<Job>();
    assert!(jobs.get_opt(run.name.as_str()).await.unwrap().is_none());
    let keeps = Arc::clone(&lead);
    let keeping = tokio::spawn(async move { keeps.keep().await });
    lead.held().wait_for(|held| *held).await.unwrap();
    runner.start(&run).await.unwrap();
    assert!(jobs.get_opt(run.name.as_str()).await.unwrap().is_some());
    keeping.abort();
}

#[tokio::test]
async fn what_nobody_listens_to_is_told_to_whoever_begins_to() {
    let cluster = Cluster::new("listens").await;
    let store = open(&cluster.client, &cluster).await;
    let record = sample("i");
    store.write(Arc::new(record.clone()), None).await.unwrap();
    let mut changes = store.changes().unwrap();
    assert_eq!(changes.recv().await.unwrap().key, record.key);
    assert!(store.changes().is_none(), "one listens already");
    cluster.remove().await;
}

/// Nothing was recorded: a platform may come again. Of what is recorded that is not said, for it is carried out.
#[tokio::test]
async fn that_nothing_was_recorded_is_said_only_where_nothing_was() {
    let cluster = Cluster::new("too-many").await;
    for (refused, is_recorded) in [("POST serviceinstances", false), ("DELETE configmaps", true)] {
        let store = open(&cluster.client, &cluster).await;
        let mut record = sample(if is_recorded { "recorded" } else { "not" });
        record.lifecycle = Lifecycle::Deleted;
        record.operation.phase = Phase::Succeeded;
        let tombstone = store.write(Arc::new(record.clone()), None).await.unwrap();

        let base = cluster.client.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let base = base.clone();
            let (method, resource) = refused.split_once(' ').unwrap();
            let is_it = request.method() == method && request.uri().path().contains(resource);
            async move {
                if !is_it {
                    return base.send(request).await;
                }
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
                    "reason": "TooManyRequests", "message": "try again", "metadata": {},
                });
                let body = kube::client::Body::from(status.to_string().into_bytes());
                Ok(http::Response::builder().status(429).body(body).unwrap())
            }
        });
        let client = kube::Client::new(service, cluster.namespace.clone());
        let store = open(&client, &cluster).await;
        record.lifecycle = Lifecycle::Ready;
        record.sequence += 1;
        let written = store.write(Arc::new(record.clone()), Some(&tombstone)).await;
        match is_recorded {
            true => assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}"),
            false => assert!(matches!(written, Err(StoreError::Overloaded)), "{written:?}"),
        }
        let name = names::resource(BROKER, &record.key);
        let found = resources(&cluster).get_opt(&name).await.unwrap();
        assert_eq!(found.is_some(), is_recorded, "{refused}");
    }
    cluster.remove().await;
}
