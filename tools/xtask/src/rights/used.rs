//! Whether each right of a service account is one that it needs: the API server writes down what is done in the walk, and
//! what is not done there names the test that has the occasion.

use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use super::{Rights, binds, joined, rules};
use crate::cluster;

/// What is installed in a namespace of its own.
pub(crate) struct Install {
    /// For people.
    pub(crate) name: &'static str,
    /// Where it is; `None`: wherever no other is.
    pub(crate) namespace: Option<&'static str>,
    pub(crate) objects: Vec<Value>,
}

/// A right that the walk has no occasion for: of which install and role, of what, verbs, and the test that has it.
struct Elsewhere(&'static str, &'static str, &'static str, &'static [&'static str], &'static str);

impl Elsewhere {
    fn is_given(&self, installs: &[Install]) -> bool {
        let of = installs.iter().filter(|it| it.name == self.0);
        let of = of.flat_map(|it| given(&it.objects)).filter(|given| given.name() == self.1);
        let rights: Vec<Rights> = of.map(|given| given.rights).collect();
        self.3.iter().all(|verb| {
            let mut all = rights.iter().filter_map(|rights| rights.get(self.2));
            all.any(|verbs| verbs.contains(*verb))
        })
    }
}

const ELSEWHERE: &[Elsewhere] = &[
    Elsewhere(
        "base",
        "Role of manciple",
        "brokers.manciple.dev",
        &["list", "watch"],
        "manciple/tests/brokers.rs::two_brokers_are_one_catalog_and_a_broken_one_harms_neither",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "brokers.manciple.dev/status",
        &["patch"],
        "manciple/tests/brokers.rs::a_broker_is_edited_removed_and_created_again",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "configmaps",
        &["update", "delete"],
        "kubernetes/tests/store.rs::the_store_keeps_its_contract",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "events",
        &["create"],
        "manciple/tests/describe.rs::describe_explains_why_any_operation_waits_and_why_it_failed",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "jobs.batch",
        &["delete"],
        "kubernetes/tests/budget.rs::calls_are_as_promised",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "jobs.batch",
        &["get"],
        "kubernetes/tests/pods/main.rs::a_job_that_is_deleted_is_a_run_that_is_lost",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "jobs.batch",
        &["patch"],
        "kubernetes/tests/pods/main.rs::a_result_that_was_seen_outlives_its_pod",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "namespaces",
        &["get"],
        "kubernetes/tests/pods/main.rs::a_namespace_that_is_deleted_is_named",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "pods",
        &["delete"],
        "kubernetes/tests/pods/main.rs::a_pod_without_its_job_can_be_cancelled",
    ),
    Elsewhere(
        "base",
        "Role of manciple",
        "pods/log",
        &["get"],
        "kubernetes/tests/pods/main.rs::a_large_output_comes_home_whole",
    ),
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "configmaps",
        &["get"],
        "kubernetes/tests/runs/main.rs::no_schedule_of_failures_loses_repeats_or_invents_a_run",
    ),
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "configmaps",
        &["update"],
        "kubernetes/tests/quarks/beyond.rs::output_becomes_a_config_map_and_others_follow_it",
    ),
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "configmaps",
        &["delete"],
        "kubernetes/tests/quarks/owners.rs::a_config_map_and_what_an_extended_job_prints_are_made_anew_too",
    ),
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "quarksjobs.quarks.cloudfoundry.org",
        &["get"],
        "kubernetes/tests/quarks/owners.rs::what_one_of_its_name_has_left_that_is_gone_is_made_anew_and_costs_three_calls_more",
    ),
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "extendedjobs.fissile.cloudfoundry.org",
        &["get"],
        "kubernetes/tests/quarks/owners.rs::a_config_map_and_what_an_extended_job_prints_are_made_anew_too",
    ),
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "jobs.batch",
        &["get"],
        "kubernetes/tests/quarks/output.rs::what_is_edited_in_mid_run_is_of_the_next",
    ),
    // No call is made for these: the API server asks for them where one of these is to own a Job.
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "quarksjobs.quarks.cloudfoundry.org/finalizers",
        &["update"],
        "kubernetes/tests/quarks/manifest.rs::a_job_and_its_pods_are_labelled_and_it_is_owned_as_in_the_original",
    ),
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "extendedjobs.fissile.cloudfoundry.org/finalizers",
        &["update"],
        "kubernetes/tests/quarks/manifest.rs::a_job_and_its_pods_are_labelled_and_it_is_owned_as_in_the_original",
    ),
    // Where two lead, and one is behind.
    Elsewhere(
        "controller",
        "ClusterRole of manciple-controller",
        "secrets",
        &["get"],
        "kubernetes/tests/runs/main.rs::no_schedule_of_failures_loses_repeats_or_invents_a_run",
    ),
    Elsewhere(
        "controller",
        "Role of manciple-controller",
        "secrets",
        &["patch"],
        "kubernetes/tests/quarks/lost.rs::output_that_is_sealed_to_the_key_before_comes_home",
    ),
    Elsewhere(
        "templates",
        "Role of manciple",
        "configmaps",
        &["update"],
        "kubernetes/tests/store.rs::the_store_keeps_its_contract",
    ),
    Elsewhere(
        "templates",
        "ClusterRole of manciple-controller",
        "events",
        &["create"],
        "kubernetes/tests/templates/leaving.rs::a_deletion_that_fails_is_told_and_tried_again",
    ),
    Elsewhere(
        "templates",
        "Role of manciple",
        "events",
        &["create"],
        "manciple/tests/describe.rs::describe_explains_why_any_operation_waits_and_why_it_failed",
    ),
    Elsewhere(
        "templates",
        "Role of manciple",
        "secrets",
        &["delete"],
        "kubernetes/tests/faults.rs::an_id_that_is_used_anew_has_a_resource_of_its_own",
    ),
    Elsewhere(
        "templates",
        "ClusterRole of manciple",
        "secrets",
        &["get"],
        "manciple/tests/templates/switch.rs::what_the_broker_of_openshift_ordered_is_fetched_bound_unbound_and_removed",
    ),
    Elsewhere(
        "templates",
        "ClusterRole of manciple-controller",
        "secrets",
        &["list"],
        "kubernetes/tests/templates/withstands.rs::what_nothing_owns_of_an_instance_that_went_unheld_is_removed_too",
    ),
    // The key of requesters: whoever is first makes it, and the broker may be.
    Elsewhere(
        "templates",
        "Role of manciple-controller",
        "secrets",
        &["create"],
        "kubernetes/tests/templates/instances.rs::a_template_without_objects_is_ready",
    ),
    // Where another has just written it.
    Elsewhere(
        "templates",
        "ClusterRole of manciple-controller",
        "templateinstances.template.openshift.io",
        &["get"],
        "kubernetes/tests/templates/leaders.rs::a_leader_that_was_paused_makes_nothing_twice",
    ),
    Elsewhere(
        "templates",
        "ClusterRole of manciple, manciple-controller",
        "groups",
        &["impersonate"],
        OF_IDENTITIES,
    ),
    Elsewhere(
        "templates",
        "ClusterRole of manciple, manciple-controller",
        "serviceaccounts",
        &["impersonate"],
        OF_IDENTITIES,
    ),
    Elsewhere(
        "templates",
        "ClusterRole of manciple, manciple-controller",
        "*.authentication.k8s.io",
        &["impersonate"],
        OF_IDENTITIES,
    ),
    Elsewhere(
        "operator",
        "Role of settings-broker",
        "configmaps",
        &["update"],
        "kubernetes/tests/store.rs::the_store_keeps_its_contract",
    ),
    Elsewhere(
        "operator",
        "Role of settings-broker",
        "secrets",
        &["delete"],
        "kubernetes/tests/faults.rs::an_id_that_is_used_anew_has_a_resource_of_its_own",
    ),
];
const OF_IDENTITIES: &str = "kubernetes/tests/templates/account.rs::groups_accounts_and_what_else_an_identity_has_take_a_right_each";

/// Insists that each of [`ELSEWHERE`] is a right that is given.
pub(crate) fn are_given(installs: &[Install]) -> anyhow::Result<()> {
    match ELSEWHERE.iter().find(|it| !it.is_given(installs)) {
        Some(Elsewhere(install, role, what, verbs, test)) => {
            bail!("{test}: {install}: no {role} has {verbs:?} of {what}")
        }
        None => Ok(()),
    }
}

/// What an API server writes down from now on.
pub(crate) struct Log {
    path: PathBuf,
    from: u64,
}

/// What a line tells of: who did what, and where.
#[derive(Debug, PartialEq)]
struct Deed {
    home: String,
    account: String,
    namespace: Option<String>,
    what: String,
    verb: String,
}

impl Log {
    /// Of the test cluster; of another it is not known where that is.
    pub(crate) fn of(kubeconfig: &Path) -> Option<Self> {
        let path = cluster::audit_log(kubeconfig)?;
        // There is none before somebody has done something.
        let from = path.metadata().map_or(0, |log| log.len());
        Some(Self { path, from })
    }

    /// Insists that each right that these give to accounts was used since, or is one of [`ELSEWHERE`].
    pub(crate) fn covers(&self, installs: &[Install]) -> anyhow::Result<()> {
        let deeds = self.deeds()?;
        let mut idle = Vec::new();
        for install in installs {
            let is_here = |deed: &&Deed| match install.namespace {
                Some(namespace) => deed.home == namespace,
                None => !installs.iter().any(|it| it.namespace == Some(&deed.home)),
            };
            let here: Vec<&Deed> = deeds.iter().filter(is_here).collect();
            idle.extend(unused(install, &here));
        }
        ensure!(idle.is_empty(), "rights that nobody has used in the walk: {idle:#?}");
        Ok(())
    }

    /// Without a line that is being written.
    fn deeds(&self) -> anyhow::Result<Vec<Deed>> {
        let lacks = || {
            format!("{}: begin the cluster anew, `cargo xtask cluster down`", self.path.display())
        };
        let mut file = std::fs::File::open(&self.path).with_context(lacks)?;
        // From the end of a line on, or from the beginning.
        file.seek(SeekFrom::Start(self.from.saturating_sub(1)))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let text = match self.from {
            0 => text.as_str(),
            _ => text.split_once('\n').map_or("", |(_, rest)| rest),
        };
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let mut deeds = Vec::new();
        for line in whole.lines() {
            deeds.extend(deed(&serde_json::from_str(line)?));
        }
        Ok(deeds)
    }
}

/// A role that accounts have, with what it lets them do: in their own namespace, or everywhere.
struct Given<'o> {
    accounts: BTreeSet<&'o str>,
    everywhere: bool,
    rights: Rights,
}

impl Given<'_> {
    /// `Role of ACCOUNT`.
    fn name(&self) -> String {
        let kind = if self.everywhere { "ClusterRole" } else { "Role" };
        let accounts = self.accounts.iter().copied().collect::<Vec<_>>().join(", ");
        format!("{kind} of {accounts}")
    }
}

/// The rights of an install that none of these deeds took. What is done at home is a Role's, where one gives that right.
fn unused(install: &Install, deeds: &[&Deed]) -> Vec<String> {
    let all = given(&install.objects);
    let takes = |given: &Given<'_>, deed: &Deed, verb: &str, what: &str| {
        given.accounts.contains(deed.account.as_str()) && deed.what == what && deed.verb == verb
    };
    let mut idle = Vec::new();
    for given in &all {
        for (what, verbs) in &given.rights {
            for verb in verbs {
                let is_a_roles = |deed: &Deed| {
                    let mut roles = all.iter().filter(|it| !it.everywhere);
                    roles.any(|it| {
                        it.accounts.contains(deed.account.as_str())
                            && it.rights.get(what).is_some_and(|verbs| verbs.contains(verb))
                    })
                };
                let is_used = deeds.iter().any(|deed| {
                    let at_home = deed.namespace.as_ref() == Some(&deed.home);
                    takes(given, deed, verb, what)
                        && match given.everywhere {
                            true => !(at_home && is_a_roles(deed)),
                            false => at_home,
                        }
                });
                let mut elsewhere = ELSEWHERE.iter();
                let role = given.name();
                let is_elsewhere = elsewhere.any(|it| {
                    (it.0, it.1, it.2) == (install.name, role.as_str(), what.as_str())
                        && it.3.contains(&verb.as_str())
                });
                if !is_used && !is_elsewhere {
                    idle.push(format!("{}: {verb} {what}, by a {role}", install.name));
                }
            }
        }
    }
    idle
}

fn given(objects: &[Value]) -> Vec<Given<'_>> {
    let is = |object: &Value, kind: &str| object["kind"] == kind;
    let accounts: Vec<&str> = objects
        .iter()
        .filter(|it| is(it, "ServiceAccount"))
        .filter_map(|it| it["metadata"]["name"].as_str())
        .collect();
    let roles = objects.iter().filter(|it| is(it, "Role") || is(it, "ClusterRole"));
    let of = |role: &Value| {
        let bindings: Vec<&Value> = objects
            .iter()
            .filter(|it| {
                let of = &it["roleRef"];
                of["kind"] == role["kind"] && of["name"] == role["metadata"]["name"]
            })
            .collect();
        let is_bound = |account: &&&str| bindings.iter().any(|binding| binds(binding, account));
        Given {
            accounts: accounts.iter().filter(is_bound).copied().collect(),
            everywhere: bindings.iter().any(|it| is(it, "ClusterRoleBinding")),
            rights: joined(rules(role).into_iter()),
        }
    };
    roles.map(of).filter(|given| !given.accounts.is_empty()).collect()
}

/// What a line of the log tells of, if it was allowed to a service account: as [`rules`] names it.
fn deed(line: &Value) -> Option<Deed> {
    let user = line["user"]["username"].as_str()?.strip_prefix("system:serviceaccount:")?;
    let (home, account) = user.split_once(':')?;
    if line["annotations"]["authorization.k8s.io/decision"] != "allow" {
        return None;
    }
    let of = &line["objectRef"];
    let (what, verb) = match line["impersonatedUser"]["username"].as_str() {
        // What is done as somebody else is that one's right.
        Some(as_whom) if as_whom.starts_with("system:serviceaccount:") => {
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
    Some(Deed {
        home: home.to_owned(),
        account: account.to_owned(),
        namespace: of["namespace"].as_str().map(str::to_owned),
        what,
        verb: verb.to_owned(),
    })
}

#[cfg(test)]
mod tests;
