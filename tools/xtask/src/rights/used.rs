//! Whether each right of a service account is one that it needs: the API server writes down what is done in the walk, and
//! what is not done there names the test that has the occasion.

mod elsewhere;

use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use self::elsewhere::ELSEWHERE;
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
