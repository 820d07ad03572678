//! Checks that a service account has the rights that its roles say, and no others, and that each is needed.

pub(crate) mod used;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;

use crate::kubectl::Cluster;

/// The rights: verbs, by the resource.
type Rights = BTreeMap<String, BTreeSet<String>>;

/// The time within which an API server applies roles that were written.
const HEARD: Duration = Duration::from_secs(30);

/// Makes those of the objects that are about the rights of an account, each in the namespace that it says, and checks
/// that the account has the rights that they name, those that every account has, and no others: in its own namespace,
/// and in each in which it has a Role.
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
    cluster.install(namespace, objects.iter().cloned())?;
    let places: BTreeSet<&str> = objects.iter().filter_map(place).chain([namespace]).collect();
    for there in places {
        let holds = |object: &&Value| place(object).is_none_or(|place| place == there);
        let said = joined(objects.iter().filter(holds).flat_map(rules));
        let list = |account: &str| -> anyhow::Result<Rights> {
            let who = format!("--as=system:serviceaccount:{namespace}:{account}");
            let groups = "--as-group=system:serviceaccounts";
            let asked = ["-n", there, "auth", "can-i", "--list", "--no-headers", &who, groups];
            Ok(joined(cluster.run(&asked)?.lines().flat_map(may)))
        };
        let begun = Instant::now();
        loop {
            let (everybody, mut ours) = (list("default")?, list(account)?);
            ours.retain(|what, verbs| everybody.get(what) != Some(verbs));
            if ours == said {
                break;
            }
            // The API server hears of a role a moment after it has kept it, and of one that is gone.
            ensure!(
                begun.elapsed() < HEARD,
                "in {there} {account} may {ours:?}, and its roles say {said:?}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

/// The namespace that an object is in; `None`: it is cluster-wide.
fn place(object: &Value) -> Option<&str> {
    object["metadata"]["namespace"].as_str()
}

fn bindings<'o>(objects: &'o [Value], account: &'o str) -> impl Iterator<Item = &'o Value> {
    objects.iter().filter(move |object| binds(object, account))
}

/// Whether an object binds a role to an account.
fn binds(object: &Value, account: &str) -> bool {
    object["subjects"].as_array().into_iter().flatten().any(|subject| subject["name"] == account)
}

/// Joins rules about the same resource.
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
                let what = format!("{resource}{dot}{group}{slash}{sub}");
                said.extend(each(&what, &words("resourceNames"), &words("verbs")));
            }
        }
    }
    said
}

/// Parses a line of `kubectl auth can-i --list`: resources or paths, names, verbs.
fn may(line: &str) -> Vec<(String, BTreeSet<String>)> {
    let what = line.split_once('[').map_or(line, |(what, _)| what).trim();
    // The columns are as wide as their longest word.
    let whole = || line.split_whitespace().collect::<Vec<_>>().join(" ");
    let what = if what.is_empty() { whole() } else { what.to_owned() };
    let mut lists = line.rsplit('[').map(|list| {
        let words = list.trim().trim_end_matches(']').split_whitespace();
        words.map(ToOwned::to_owned).collect::<BTreeSet<String>>()
    });
    let (verbs, names) = (lists.next().unwrap_or_default(), lists.next().unwrap_or_default());
    each(&what, &names, &verbs)
}

/// The rights to all of a resource, or to each of these names.
fn each(
    what: &str,
    names: &BTreeSet<String>,
    verbs: &BTreeSet<String>,
) -> Vec<(String, BTreeSet<String>)> {
    match names.is_empty() {
        true => vec![(what.to_owned(), verbs.clone())],
        false => names.iter().map(|name| (named(what, name), verbs.clone())).collect(),
    }
}

/// The key for an object of a resource that has this name.
fn named(what: &str, name: &str) -> String {
    format!("{what} ({name})")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_is_read_as_the_rule_that_it_is_of() {
        let rule = |resource: &str, group: &str, names: Value, verbs: &[&str]| {
            let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
            rule["resourceNames"] = names;
            json!({"kind": "Role", "rules": [rule]})
        };
        for (line, role) in [
            (
                "pods/log                []    []         [get]",
                rule("pods/log", "", json!(null), &["get"]),
            ),
            (
                "jobs.batch              []    []         [get list]",
                rule("jobs", "batch", json!(null), &["get", "list"]),
            ),
            (
                "secrets                 []    [cf ops]   [list watch]",
                rule("secrets", "", json!(["cf", "ops"]), &["list", "watch"]),
            ),
        ] {
            assert_eq!(joined(may(line).into_iter()), joined(rules(&role).into_iter()), "{line}");
        }
        let one = rule("secrets", "", json!(["cf"]), &["list"]);
        let all = rule("secrets", "", json!(null), &["list"]);
        assert_ne!(rules(&one), rules(&all), "a right to one is none to all");
    }
}
