//! Whether what a service account may do is what its roles say, and whether somebody needs it.

pub(crate) mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;

use crate::kubectl::Cluster;

/// What may be done: verbs, by what it is done to.
type Rights = BTreeMap<String, BTreeSet<String>>;

/// Within this time an API server goes by the roles that it keeps.
const HEARD: Duration = Duration::from_secs(30);

/// Makes what of these objects is about the rights of an account, and insists that it has those that they name, those
/// that every account has, and no others.
pub(crate) fn compare(
    cluster: &Cluster,
    namespace: &str,
    account: &str,
    mut objects: Vec<Value>,
) -> anyhow::Result<()> {
    let roles: Vec<Value> = bindings(&objects, account).map(|it| it["roleRef"].clone()).collect();
    let is_bound = |object: &Value| {
        let mut roles = roles.iter();
        roles.any(|it| it["kind"] == object["kind"] && it["name"] == object["metadata"]["name"])
    };
    objects.retain(|object| {
        let is_account =
            object["kind"] == "ServiceAccount" && object["metadata"]["name"] == account;
        is_account || is_bound(object) || binds(object, account)
    });
    let said = joined(objects.iter().flat_map(rules));
    cluster.apply(namespace, objects.into_iter(), &[])?;
    let list = |account: &str| -> anyhow::Result<Rights> {
        let who = format!("--as=system:serviceaccount:{namespace}:{account}");
        let groups = "--as-group=system:serviceaccounts";
        let asked = ["-n", namespace, "auth", "can-i", "--list", "--no-headers", &who, groups];
        Ok(joined(cluster.run(&asked)?.lines().map(may)))
    };
    let begun = Instant::now();
    loop {
        let (everybody, mut ours) = (list("default")?, list(account)?);
        ours.retain(|what, verbs| everybody.get(what) != Some(verbs));
        if ours == said {
            return Ok(());
        }
        // The API server hears of a role a moment after it has kept it, and of one that is gone.
        ensure!(begun.elapsed() < HEARD, "{account} may {ours:?}, and its roles say {said:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn bindings<'o>(objects: &'o [Value], account: &'o str) -> impl Iterator<Item = &'o Value> {
    objects.iter().filter(move |object| binds(object, account))
}

/// Whether it binds a role to an account.
fn binds(object: &Value, account: &str) -> bool {
    object["subjects"].as_array().into_iter().flatten().any(|subject| subject["name"] == account)
}

/// Two rules about one thing are one.
fn joined(rights: impl Iterator<Item = (String, BTreeSet<String>)>) -> Rights {
    let mut joined = Rights::new();
    rights.for_each(|(what, verbs)| joined.entry(what).or_default().extend(verbs));
    joined
}

/// The rules of a Role, a resource each, as [`may`] has them; none of anything else.
fn rules(object: &Value) -> Vec<(String, BTreeSet<String>)> {
    let mut said = Vec::new();
    for rule in object["rules"].as_array().into_iter().flatten() {
        let words = |name: &str| -> BTreeSet<String> {
            let words = rule[name].as_array().into_iter().flatten().filter_map(Value::as_str);
            words.map(ToOwned::to_owned).collect()
        };
        for group in words("apiGroups") {
            for resource in words("resources") {
                // pods/log, jobs.batch, serviceinstances.manciple.dev/status
                let (resource, sub) = resource.split_once('/').unwrap_or((&resource, ""));
                let dot = if group.is_empty() { "" } else { "." };
                let slash = if sub.is_empty() { "" } else { "/" };
                said.push((format!("{resource}{dot}{group}{slash}{sub}"), words("verbs")));
            }
        }
    }
    said
}

/// A line of `kubectl auth can-i --list`: resources or paths, names, verbs.
fn may(line: &str) -> (String, BTreeSet<String>) {
    let what = line.split_once('[').map_or(line, |(what, _)| what).trim();
    let verbs = line.rsplit_once('[').map_or("", |(_, verbs)| verbs).trim().trim_end_matches(']');
    // The columns are as wide as their longest word.
    let whole = || line.split_whitespace().collect::<Vec<_>>().join(" ");
    let rest = if what.is_empty() { whole() } else { what.to_owned() };
    (rest, verbs.split(' ').map(ToOwned::to_owned).collect())
}
