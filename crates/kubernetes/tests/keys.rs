//! The keys of reports: made anew while runs go on, by one of all replicas.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use engine::ports::{RunState, Runner};
use engine::testing::runner_contract::{BROKER, Behaviour, run, until};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use support::jobs::Jobs;
use support::wait;

/// The ids of the keys that the Secret has, with `newest`.
async fn keys(jobs: &Jobs) -> BTreeSet<String> {
    let secrets = jobs.cluster.api::<Secret>();
    let all = secrets.list(&ListParams::default()).await.unwrap().items;
    let named = |secret: &Secret| secret.metadata.name.as_ref().unwrap().starts_with("keys-");
    let secret = all.into_iter().find(named);
    secret.and_then(|secret| secret.data).unwrap_or_default().into_keys().collect()
}

/// Removes the Secret.
async fn remove(jobs: &Jobs) {
    let secrets = jobs.cluster.api::<Secret>();
    for secret in secrets.list(&ListParams::default()).await.unwrap().items {
        let name = secret.metadata.name.unwrap();
        if name.starts_with("keys-") {
            secrets.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    }
}

/// Has the newest key be as old as a key gets.
async fn age(jobs: &Jobs) {
    let secrets = jobs.cluster.api::<Secret>();
    for secret in secrets.list(&ListParams::default()).await.unwrap().items {
        let name = secret.metadata.name.unwrap();
        if name.starts_with("keys-") {
            let rotated = json!({"manciple.dev/rotated": "2020-01-01T00:00:00Z"});
            let patch = Patch::Merge(json!({"metadata": {"annotations": rotated}}));
            secrets.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        }
    }
}

async fn keys_become(jobs: &Jobs, wanted: impl Fn(&BTreeSet<String>) -> bool) -> BTreeSet<String> {
    wait::until("the keys stay", Duration::from_secs(60), async || {
        let keys = keys(jobs).await;
        if wanted(&keys) { Ok(keys) } else { Err(keys) }
    })
    .await
}

async fn succeeds(runner: &dyn Runner, run: &engine::ports::Run) {
    let ended = |state: &RunState| !matches!(state, RunState::Running { .. } | RunState::Absent);
    let state = until(runner, &run.name, ended).await;
    assert!(matches!(state, RunState::Finished(Ok(_))), "{state:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_come_home_while_keys_change_and_old_keys_go() {
    let jobs = Jobs::new("keys", BROKER).await;
    let first = jobs.open().await;
    let before = keys(&jobs).await;
    assert_eq!(before.len(), 2, "one, and which it is");
    let going = run(Behaviour::Slow, "of-the-first-key");
    first.start(&going).await.unwrap();
    age(&jobs).await;
    // Two replicas begin at once: one of them makes a key.
    let (second, _third) = tokio::join!(jobs.open(), jobs.open());
    let rotated = keys_become(&jobs, |keys| keys.len() > 2).await;
    assert_eq!(rotated.len(), 3, "{rotated:?}");
    assert!(rotated.is_superset(&before));
    // What began with the old key comes home, wherever it is looked for.
    succeeds(&*first, &going).await;
    succeeds(&*second, &going).await;
    // And what begins with the new one, where nobody has told of it.
    let fresh = run(Behaviour::Succeeds, "of-the-second-key");
    second.start(&fresh).await.unwrap();
    succeeds(&*first, &fresh).await;
    // Who has not looked since begins with the old one, all the same, and another key is made meanwhile.
    let stale = run(Behaviour::Slow, "of-the-first-key-still");
    first.start(&stale).await.unwrap();
    age(&jobs).await;
    let fourth = jobs.open().await;
    let again = keys_become(&jobs, |keys| *keys != rotated).await;
    assert_eq!(again.len(), 4, "{again:?}");
    assert!(again.is_superset(&rotated), "the first is needed for one period more");
    succeeds(&*fourth, &stale).await;
    // The next one takes the place of the first.
    age(&jobs).await;
    let _fifth = jobs.open().await;
    let last = keys_become(&jobs, |keys| *keys != again).await;
    assert_eq!(last.len(), 4, "{last:?}");
    let kept: Vec<_> = last.intersection(&before).collect();
    assert_eq!(kept, ["newest"], "the first is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_were_removed_under_a_run_are_put_back_by_who_knows_them() {
    let jobs = Jobs::new("lost-keys", BROKER).await;
    let first = jobs.open().await;
    let before = keys(&jobs).await;
    let going = run(Behaviour::Slow, "of-the-lost-key");
    first.start(&going).await.unwrap();
    remove(&jobs).await;
    // Who runs needs no Secret.
    let fresh = run(Behaviour::Succeeds, "without-a-secret");
    first.start(&fresh).await.unwrap();
    succeeds(&*first, &fresh).await;
    // Another one that begins now knows nothing of it, and makes its own.
    let second = jobs.open().await;
    let made = keys(&jobs).await;
    assert_eq!(made.intersection(&before).collect::<Vec<_>>(), ["newest"]);
    let other = run(Behaviour::Succeeds, "of-the-second-key");
    second.start(&other).await.unwrap();
    // By a key that it does not have, the first hears of that; then each can read the reports of the other.
    succeeds(&*first, &other).await;
    let whole = keys(&jobs).await;
    assert!(whole.is_superset(&before) && whole.is_superset(&made), "{whole:?}");
    succeeds(&*first, &going).await;
    succeeds(&*second, &going).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_were_removed_are_put_back_at_the_next_look() {
    let mut jobs = Jobs::new("no-keys", BROKER).await;
    jobs.settings.key_rotation = std::time::Duration::from_secs(4);
    let _runner = jobs.open().await;
    let before = keys(&jobs).await;
    remove(&jobs).await;
    let back = keys_become(&jobs, |keys| !keys.is_empty()).await;
    assert_eq!(back, before, "others were made");
}
