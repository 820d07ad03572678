//! Pods that do not begin, or not yet: what is missing is named and, if it may come, waited for.

use std::time::Duration;

use engine::record::Reason;
use engine::testing::runner_contract::until_finished;
use k8s_openapi::api::core::v1::{ResourceQuota, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kubernetes::Delivery;
use serde_json::json;

use super::support::wait;
use super::{PATIENCE, assert_stays, jobs, started, until_failed, until_said};

#[tokio::test]
async fn a_missing_image_is_named_and_the_run_can_be_cancelled() {
    let mut jobs = jobs().await;
    jobs.settings.image = "manciple.test/none:1".to_owned();
    let (runner, run) = started(&jobs, "succeeds").await;
    let said = until_said(&*runner, &run.name, "the image cannot be pulled").await;
    assert!(said.contains("manciple.test/none:1"), "{said}");
    runner.cancel(&run.name).await.unwrap();
    until_failed(&*runner, &run.name, Reason::Halted, "ended").await;
    assert_stays(&jobs, &*runner, &run.name).await;
}

#[tokio::test]
async fn an_image_that_does_not_come_is_a_run_that_never_began() {
    let mut jobs = jobs().await;
    jobs.settings.image = "manciple.test/none:1".to_owned();
    jobs.settings.start_timeout = Duration::from_secs(12);
    let (runner, run) = started(&jobs, "succeeds").await;
    until_failed(&*runner, &run.name, Reason::NotStarted, "the image cannot be pulled").await;
    assert_stays(&jobs, &*runner, &run.name).await;
}

#[tokio::test]
async fn an_image_without_a_broker_is_named() {
    let mut jobs = jobs().await;
    jobs.settings.pod.volume_mounts.remove(0);
    let (runner, run) = started(&jobs, "succeeds").await;
    let words = "the image has no /bin/broker";
    until_failed(&*runner, &run.name, Reason::NotStarted, words).await;
}

#[tokio::test]
async fn a_broker_that_is_not_executable_is_named() {
    let mut jobs = jobs().await;
    jobs.settings.pod.volumes[0]["configMap"]["defaultMode"] = json!(0o444);
    let (runner, run) = started(&jobs, "succeeds").await;
    let words = "/bin/broker in the image cannot be executed by this user";
    until_failed(&*runner, &run.name, Reason::NotStarted, words).await;
}

#[tokio::test]
async fn an_agent_that_is_not_in_its_image_is_named() {
    let mut jobs = jobs().await;
    let image = testkit::cluster::AGENT_IMAGE.to_owned();
    jobs.settings.delivery =
        Delivery::InitContainer { image, path: "/nowhere".to_owned(), resources: None };
    let (runner, run) = started(&jobs, "succeeds").await;
    let words = "the agent could not be installed";
    until_failed(&*runner, &run.name, Reason::NotStarted, words).await;
}

#[tokio::test]
async fn an_image_that_wants_root_is_named() {
    let mut jobs = jobs().await;
    jobs.settings.pod.security_context = Some(json!({"runAsNonRoot": true}));
    let (runner, run) = started(&jobs, "succeeds").await;
    until_failed(&*runner, &run.name, Reason::NotStarted, "may not run as this user").await;
}

#[tokio::test]
async fn a_quota_that_is_used_up_is_named_and_waited_for() {
    let jobs = jobs().await;
    let quotas: Api<ResourceQuota> = jobs.cluster.api();
    let quota = serde_json::from_value(
        json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}),
    );
    quotas.create(&PostParams::default(), &quota.unwrap()).await.unwrap();
    wait::until("nobody counts", PATIENCE, async || {
        let status = quotas.get("few").await.unwrap().status;
        let is_counted = status.as_ref().is_some_and(|status| status.hard.is_some());
        if is_counted { Ok(()) } else { Err(status) }
    })
    .await;
    let (runner, run) = started(&jobs, "succeeds").await;
    until_said(&*runner, &run.name, "exceeded quota: few").await;
    let more = Patch::Merge(json!({"spec": {"hard": {"pods": "9"}}}));
    quotas.patch("few", &PatchParams::default(), &more).await.unwrap();
    until_finished(&*runner, &run.name).await.unwrap();
    assert_eq!(jobs.effects(&run.work.instance_id), 1);
}

#[tokio::test]
async fn a_quota_that_stays_used_up_is_a_run_that_never_began() {
    let mut jobs = jobs().await;
    jobs.settings.start_timeout = Duration::from_secs(12);
    let quotas: Api<ResourceQuota> = jobs.cluster.api();
    let quota = serde_json::from_value(
        json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}),
    );
    quotas.create(&PostParams::default(), &quota.unwrap()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (runner, run) = started(&jobs, "succeeds").await;
    until_failed(&*runner, &run.name, Reason::NotStarted, "exceeded quota: few").await;
    assert_stays(&jobs, &*runner, &run.name).await;
}

#[tokio::test]
async fn a_config_map_that_is_missing_is_named_and_waited_for() {
    let mut jobs = jobs().await;
    jobs.settings.config_map = Some("later".to_owned());
    let (runner, run) = started(&jobs, "succeeds").await;
    until_said(&*runner, &run.name, r#"configmap "later" not found"#).await;
    jobs.make_config_map("later", "REGION", "eu").await;
    until_finished(&*runner, &run.name).await.unwrap();
}

#[tokio::test]
async fn a_secret_that_is_missing_is_named_and_waited_for() {
    let mut jobs = jobs().await;
    jobs.settings.secret = Some("later".to_owned());
    let (runner, run) = started(&jobs, "succeeds").await;
    until_said(&*runner, &run.name, r#"secret "later" not found"#).await;
    let secret = serde_json::from_value(json!({"metadata": {"name": "later"}}));
    let secrets: Api<Secret> = jobs.cluster.api();
    secrets.create(&PostParams::default(), &secret.unwrap()).await.unwrap();
    until_finished(&*runner, &run.name).await.unwrap();
}

#[tokio::test]
async fn a_config_map_that_stays_missing_is_a_run_that_never_began() {
    let mut jobs = jobs().await;
    jobs.settings.config_map = Some("later".to_owned());
    jobs.settings.start_timeout = Duration::from_secs(20);
    let (runner, run) = started(&jobs, "succeeds").await;
    let words = r#"configmap "later" not found"#;
    until_failed(&*runner, &run.name, Reason::NotStarted, words).await;
}

#[tokio::test]
async fn a_pod_that_no_node_takes_is_named_and_the_run_can_be_cancelled() {
    let mut jobs = jobs().await;
    jobs.settings.pod.node_selector = Some(json!({"manciple.test/none": "such"}));
    let (runner, run) = started(&jobs, "succeeds").await;
    until_said(&*runner, &run.name, "no node takes the pod").await;
    runner.cancel(&run.name).await.unwrap();
    until_failed(&*runner, &run.name, Reason::Halted, "ended").await;
}
