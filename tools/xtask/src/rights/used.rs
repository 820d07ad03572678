//! Whether each right of a service account is one that it needs: the API server writes down what is done in the walk, and
//! what is not done there names the test that has the occasion.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::ensure;
use serde_json::Value;

use super::{Rights, binds, joined, rules};
use crate::cluster;

/// Rights by account.
type ByAccount = BTreeMap<String, Rights>;

/// A right that the walk has no occasion for: whose, of what, verbs, and the test that has it.
struct Elsewhere(&'static str, &'static str, &'static [&'static str], &'static str);

const ELSEWHERE: &[Elsewhere] = &[
    Elsewhere(
        "manciple",
        "brokers.manciple.dev",
        &["list", "watch"],
        "manciple/tests/brokers.rs::two_brokers_are_one_catalog_and_a_broken_one_harms_neither",
    ),
    Elsewhere(
        "manciple",
        "brokers.manciple.dev/status",
        &["patch"],
        "manciple/tests/brokers.rs::a_broker_is_edited_removed_and_created_again",
    ),
    Elsewhere(
        "manciple",
        "configmaps",
        &["update"],
        "kubernetes/tests/store.rs::the_store_keeps_its_contract",
    ),
    Elsewhere(
        "manciple",
        "events",
        &["create"],
        "manciple/tests/describe.rs::describe_explains_why_any_operation_waits_and_why_it_failed",
    ),
    Elsewhere(
        "manciple",
        "jobs.batch",
        &["delete"],
        "kubernetes/tests/budget.rs::calls_are_as_promised",
    ),
    Elsewhere(
        "manciple",
        "jobs.batch",
        &["get"],
        "kubernetes/tests/pods/main.rs::a_job_that_is_deleted_is_a_run_that_is_lost",
    ),
    Elsewhere(
        "manciple",
        "jobs.batch",
        &["patch"],
        "kubernetes/tests/pods/main.rs::a_result_that_was_seen_outlives_its_pod",
    ),
    Elsewhere(
        "manciple",
        "namespaces",
        &["get"],
        "kubernetes/tests/pods/main.rs::a_namespace_that_is_deleted_is_named",
    ),
    Elsewhere(
        "manciple",
        "pods",
        &["delete"],
        "kubernetes/tests/pods/main.rs::a_pod_without_its_job_can_be_cancelled",
    ),
    Elsewhere(
        "manciple",
        "pods/log",
        &["get"],
        "kubernetes/tests/pods/main.rs::a_large_output_comes_home_whole",
    ),
    Elsewhere(
        "manciple-controller",
        "configmaps",
        &["get"],
        "kubernetes/tests/quarks/beyond.rs::a_config_map_of_somebody_else_is_not_written_over",
    ),
    Elsewhere(
        "manciple-controller",
        "configmaps",
        &["update"],
        "kubernetes/tests/quarks/beyond.rs::output_becomes_a_config_map_and_others_follow_it",
    ),
    Elsewhere(
        "manciple-controller",
        "configmaps",
        &["delete"],
        "kubernetes/tests/quarks/owners.rs::a_config_map_and_what_an_extended_job_prints_are_made_anew_too",
    ),
    Elsewhere(
        "manciple-controller",
        "quarksjobs.quarks.cloudfoundry.org",
        &["get"],
        "kubernetes/tests/quarks/owners.rs::what_one_of_its_name_has_left_that_is_gone_is_made_anew_and_costs_three_calls_more",
    ),
    Elsewhere(
        "manciple-controller",
        "extendedjobs.fissile.cloudfoundry.org",
        &["get"],
        "kubernetes/tests/quarks/owners.rs::a_config_map_and_what_an_extended_job_prints_are_made_anew_too",
    ),
    Elsewhere(
        "settings-broker",
        "configmaps",
        &["update"],
        "kubernetes/tests/store.rs::the_store_keeps_its_contract",
    ),
    Elsewhere(
        "settings-broker",
        "secrets",
        &["delete"],
        "kubernetes/tests/faults.rs::an_id_that_is_used_anew_has_a_resource_of_its_own",
    ),
    Elsewhere(
        "manciple-controller",
        "jobs.batch",
        &["get"],
        "kubernetes/tests/quarks/output.rs::what_is_edited_in_mid_run_is_of_the_next",
    ),
];

/// Who acts for others, in the walk for people without groups.
const ACTORS: [&str; 2] = ["manciple", "manciple-controller"];
const ACTING: [&str; 3] = ["groups", "serviceaccounts", "*.authentication.k8s.io"];
const OF_ACTING: &str = "kubernetes/tests/templates/account.rs::groups_accounts_and_what_else_an_identity_has_take_a_right_each";

/// What no call is made for: the API server asks for it where one of these is to own something.
const ASKED_FOR: &str = "/finalizers";

/// What an API server writes down from now on.
pub(crate) struct Log {
    path: PathBuf,
    from: u64,
}

impl Log {
    /// Of the test cluster; of another it is not known where that is.
    pub(crate) fn of(kubeconfig: &Path) -> anyhow::Result<Option<Self>> {
        let Some(path) = cluster::audit_log(kubeconfig) else { return Ok(None) };
        let from = path.metadata().map_or(0, |log| log.len());
        Ok(Some(Self { path, from }))
    }

    /// Insists that each right that these objects give was used since, or is one of [`ELSEWHERE`].
    pub(crate) fn covers(&self, objects: &[Value]) -> anyhow::Result<()> {
        let (given, used) = (given(objects), self.used()?);
        let is_elsewhere = |account: &str, what: &str, verb: &str| {
            let mut all = ELSEWHERE.iter();
            what.ends_with(ASKED_FOR)
                || ACTORS.contains(&account) && ACTING.contains(&what)
                || all.any(|it| (it.0, it.1) == (account, what) && it.2.contains(&verb))
        };
        let mut idle = Vec::new();
        for (account, rights) in &given {
            for (what, verbs) in rights {
                let used = used.get(account).and_then(|used| used.get(what));
                for verb in verbs {
                    let is_used = used.is_some_and(|used| used.contains(verb));
                    if !is_used && !is_elsewhere(account, what, verb) {
                        idle.push(format!("{account}: {verb} {what}"));
                    }
                }
            }
        }
        ensure!(idle.is_empty(), "rights that nobody has used in the walk: {idle:#?}");
        Ok(())
    }

    fn used(&self) -> anyhow::Result<ByAccount> {
        let mut file = std::fs::File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut used = BTreeMap::<String, Vec<_>>::new();
        for line in BufReader::new(file).lines() {
            if let Some((account, right)) = right(&serde_json::from_str(&line?)?) {
                used.entry(account).or_default().push(right);
            }
        }
        Ok(used.into_iter().map(|(account, all)| (account, joined(all.into_iter()))).collect())
    }
}

/// The rights that roles among these objects give, by the name of the account.
fn given(objects: &[Value]) -> ByAccount {
    let accounts = objects.iter().filter(|object| object["kind"] == "ServiceAccount");
    let names = accounts.filter_map(|object| object["metadata"]["name"].as_str());
    let of = |account: &str| {
        let bound: Vec<_> =
            objects.iter().filter(|it| binds(it, account)).map(|it| &it["roleRef"]).collect();
        let is_bound = |object: &&Value| {
            let mut bound = bound.iter();
            bound.any(|it| it["kind"] == object["kind"] && it["name"] == object["metadata"]["name"])
        };
        joined(objects.iter().filter(is_bound).flat_map(rules))
    };
    names.map(|account| (account.to_owned(), of(account))).collect()
}

/// The account and the right that a line tells of, if it was allowed: as [`rules`] has it.
fn right(line: &Value) -> Option<(String, (String, BTreeSet<String>))> {
    let account = line["user"]["username"].as_str()?.strip_prefix("system:serviceaccount:")?;
    let (_, account) = account.split_once(':')?;
    if line["annotations"]["authorization.k8s.io/decision"] != "allow" {
        return None;
    }
    let of = &line["objectRef"];
    let (what, verb) = match line["impersonatedUser"]["username"].as_str() {
        // What is done as somebody else is that one's right.
        Some(user) if user.starts_with("system:serviceaccount:") => {
            ("serviceaccounts".to_owned(), "impersonate")
        }
        Some(_) => ("users".to_owned(), "impersonate"),
        None => {
            let word = |name: &str| of[name].as_str().unwrap_or_default();
            let (group, sub) = (word("apiGroup"), word("subresource"));
            let dot = if group.is_empty() { "" } else { "." };
            let slash = if sub.is_empty() { "" } else { "/" };
            (format!("{}{dot}{group}{slash}{sub}", word("resource")), line["verb"].as_str()?)
        }
    };
    Some((account.to_owned(), (what, [verb.to_owned()].into())))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::{ELSEWHERE, OF_ACTING, right};

    #[test]
    fn what_the_walk_has_no_occasion_for_has_a_test() {
        for test in ELSEWHERE.iter().map(|it| it.3).chain([OF_ACTING]) {
            let (file, name) = test.split_once("::").unwrap();
            let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
            let source = std::fs::read_to_string(crates.join(file)).unwrap();
            assert!(source.contains(&format!("fn {name}(")), "{test}");
        }
    }

    #[test]
    fn a_line_tells_of_the_right_that_it_took() {
        let line = |verb: &str, of: serde_json::Value, decision: &str| {
            json!({
                "user": {"username": "system:serviceaccount:somewhere:manciple"}, "verb": verb,
                "objectRef": of, "annotations": {"authorization.k8s.io/decision": decision},
            })
        };
        let status = json!({
            "resource": "serviceinstances", "apiGroup": "manciple.dev", "subresource": "status",
        });
        let mut impersonated = line("get", json!({"resource": "secrets"}), "allow");
        impersonated["impersonatedUser"] = json!({"username": "jane"});
        let mut of_people = line("get", json!({"resource": "secrets"}), "allow");
        of_people["user"]["username"] = json!("kubernetes-admin");
        for (line, expected) in [
            (line("get", json!({"resource": "secrets"}), "allow"), Some(("secrets", "get"))),
            (line("get", json!({"resource": "secrets"}), "forbid"), None),
            (
                line("patch", status, "allow"),
                Some(("serviceinstances.manciple.dev/status", "patch")),
            ),
            (impersonated, Some(("users", "impersonate"))),
            (of_people, None),
        ] {
            let expected = expected.map(|(what, verb)| {
                ("manciple".to_owned(), (what.to_owned(), [verb.to_owned()].into()))
            });
            assert_eq!(right(&line), expected, "{line}");
        }
    }
}
