//! What is left of runs at the end of a schedule: what they were to keep, and their Jobs as far as they stay.

use engine::trigger::{LOST, REPLACED};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DynamicObject, ObjectMeta};
use serde_json::Value;

use crate::shape::{Kept, Policy, Shape};
use crate::town::Town;
use crate::truth::list;
use crate::users::{Manner, User};

/// Why a run has ended whose pod failed: none is tried again.
pub(crate) const FAILED: &str = "BackoffLimitExceeded";

/// What one has left that was deleted, by name: Kubernetes is to take it away with that.
pub(crate) async fn orphans(town: &Town, users: &[User]) -> Vec<String> {
    let mut orphans = Vec::new();
    for user in users.iter().filter(|user| user.manner == Manner::Deleted) {
        let uid = user.get().await.metadata.uid.unwrap_or_default();
        let bases = user.shape.kept_as(&user.name);
        let is_of_user = |name: &str| bases.iter().any(|base| is_kept_as(user, base, name));
        let is_one = |it: &Output| is_of_user(&it.name) && !it.owners.contains(&uid);
        orphans.extend(all_of(town, user).await.into_iter().filter(is_one).map(|it| it.name));
    }
    orphans
}

/// What a user's runs are kept in, by name: what those have left that succeeded, or failed where that is asked for, and
/// nothing else.
pub(crate) async fn outputs(
    town: &Town,
    user: &User,
    object: &DynamicObject,
    history: &[Value],
) -> Vec<String> {
    let all = all_of(town, user).await;
    let mut names = Vec::new();
    for base in user.shape.kept_as(&user.name) {
        let of_base = |it: &&Output| is_kept_as(user, &base, &it.name);
        let found: Vec<&Output> = all.iter().filter(of_base).collect();
        for output in &found {
            let owner = object.metadata.uid.clone().filter(|_| user.shape.kept.is_owned());
            let expected: Vec<String> = owner.into_iter().collect();
            assert_eq!(output.owners, expected, "the owner of {}", output.name);
        }
        let jobs: Vec<&str> = found.iter().map(|it| it.job.as_str()).collect();
        match user.shape.kept.is_versioned() {
            true => versions(user, history, jobs),
            false => plain(user, history, &jobs),
        }
        names.extend(found.into_iter().map(|it| it.name.clone()));
    }
    names
}

/// Whether what has this name was left by a user's runs under `base`.
fn is_kept_as(user: &User, base: &str, name: &str) -> bool {
    match user.shape.kept.is_versioned() {
        true => name.starts_with(&format!("{base}-v")),
        false => name == base,
    }
}

/// All that anybody's runs are kept in of the kind that this user's are.
async fn all_of(town: &Town, user: &User) -> Vec<Output> {
    match user.shape.kept {
        Kept::ConfigMap { .. } => config_maps(town).await,
        _ => secrets(town).await,
    }
}

/// The Jobs that are there though their runs have ended, the newest first: those that failed, for whoever looks for the
/// cause, and where there is a limit so many of either kind.
pub(crate) fn jobs_that_stay<'h>(shape: &Shape, history: &'h [Value]) -> Vec<&'h str> {
    let of = |succeeded: bool, most: u64| {
        let of_kind = move |run: &&Value| run["succeeded"] == succeeded && !is_taken(run);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        history.iter().filter(of_kind).take(most)
    };
    let failed = of(false, shape.limit.unwrap_or(u64::MAX));
    let succeeded = of(true, shape.limit.unwrap_or_default());
    failed.chain(succeeded).filter_map(|run| run["job"].as_str()).collect()
}

/// Whether what a run has left may be there though it is said to have come to nothing: it was kept before that run was
/// taken, by hand or by another, and before anybody could say so: for outputs are there before `completed`. Whoever
/// comes after that finds a Job that is gone, or, where a hand took the pod alone, one whose pod is.
fn may_be_kept(user: &User, run: &Value) -> bool {
    is_taken(run) || user.is_robbed() && run["reason"] == "OutputLost"
}

/// Whether what a run has left is kept: it succeeded, or its pod failed and that is kept, too.
fn is_kept(user: &User, run: &Value) -> bool {
    run["succeeded"] == true || is_kept_of_one_that_failed(user, run)
}

pub(crate) fn is_kept_of_one_that_failed(user: &User, run: &Value) -> bool {
    user.shape.on_failure && run["reason"] == FAILED
}

/// Whether a run has no Job any more, though it came to nothing.
pub(crate) fn is_taken(run: &Value) -> bool {
    [LOST, REPLACED].iter().any(|reason| run["reason"] == *reason)
}

/// One for each run of which it is kept, or for the last of them where there is a limit, with what that run has left.
fn versions(user: &User, history: &[Value], mut kept: Vec<&str>) {
    let good = history.iter().filter(|run| is_kept(user, run));
    let most = user.shape.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
    let mut expected: Vec<&str> = good.take(most).filter_map(|run| run["job"].as_str()).collect();
    let taken = |job: &str| history.iter().any(|run| run["job"] == *job && may_be_kept(user, run));
    kept.retain(|job| !taken(job));
    kept.sort_unstable();
    expected.sort_unstable();
    assert_eq!(kept, expected, "{}: {history:#?}", user.name);
}

/// That of the last run of which it is kept. Where runs go on beside each other, the last to end was written last: any may
/// be that.
fn plain(user: &User, history: &[Value], kept: &[&str]) {
    let good: Vec<&Value> = history.iter().filter(|run| is_kept(user, run)).collect();
    let last = good.first().map(|run| run["id"].clone());
    let overlap = user.shape.policy == Policy::Allow;
    let is_right = |run: &&Value| match is_kept(user, run) {
        true => overlap || Some(&run["id"]) == last.as_ref(),
        false => {
            let is_later = overlap || run["id"].as_u64() > last.as_ref().and_then(Value::as_u64);
            may_be_kept(user, run) && is_later
        }
    };
    let right: Vec<&str> =
        history.iter().filter(is_right).filter_map(|run| run["job"].as_str()).collect();
    let holds = match kept {
        [] => good.is_empty(),
        [job] => right.contains(job),
        _ => false,
    };
    assert!(holds, "{}: {kept:?} is kept of {history:#?}", user.name);
}

/// A Secret or a ConfigMap that a run has left.
struct Output {
    name: String,
    /// What it holds: the name of the Job.
    job: String,
    /// The uids of what it goes with.
    owners: Vec<String>,
}

impl Output {
    fn of(metadata: ObjectMeta, job: String) -> Self {
        let owners = metadata.owner_references.unwrap_or_default();
        let owners = owners.into_iter().map(|owner| owner.uid).collect();
        Self { name: metadata.name.unwrap_or_default(), job, owners }
    }
}

async fn secrets(town: &Town) -> Vec<Output> {
    let of = |secret: Secret| {
        let job = secret.data.unwrap_or_default().remove("job")?;
        Some(Output::of(secret.metadata, String::from_utf8(job.0).ok()?))
    };
    list(town).await.into_iter().filter_map(of).collect()
}

async fn config_maps(town: &Town) -> Vec<Output> {
    let of = |map: ConfigMap| {
        let job = map.data.unwrap_or_default().remove("job")?;
        Some(Output::of(map.metadata, job))
    };
    list(town).await.into_iter().filter_map(of).collect()
}

/// The names of all that anybody has left.
pub(crate) async fn all_outputs(town: &Town) -> Vec<String> {
    let secrets = list::<Secret>(town).await.into_iter().map(|it| it.metadata);
    let maps = list::<ConfigMap>(town).await.into_iter().map(|it| it.metadata);
    let names = secrets.chain(maps).filter_map(|it| it.name);
    names.filter(|name| name.starts_with("out-")).collect()
}
