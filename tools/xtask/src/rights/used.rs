//! Checks that each right of a service account is needed, in its own namespace, in those beside it and everywhere: the
//! API server writes down what is done in the walk, and a right that is not used there names the test that uses it.

mod elsewhere;

use std::collections::BTreeSet;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use self::elsewhere::ELSEWHERE;
use super::{Rights, binds, joined, named, place, rules};
use crate::cluster;

/// An installation in a namespace of its own.
pub(crate) struct Install {
    /// The name of the installation, for people.
    pub(crate) name: &'static str,
    /// The namespace; `None`: any in which no other installation is.
    pub(crate) namespace: Option<&'static str>,
    pub(crate) objects: Vec<Value>,
}

/// A right that the walk does not use: the installation, the role, the resource, the verbs, and the test that uses it.
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

/// Checks that each of [`ELSEWHERE`] is a right that is given.
pub(crate) fn are_given(installs: &[Install]) -> anyhow::Result<()> {
    match ELSEWHERE.iter().find(|it| !it.is_given(installs)) {
        Some(Elsewhere(install, role, what, verbs, test)) => {
            bail!("{test}: {install}: no {role} has {verbs:?} of {what}")
        }
        None => Ok(()),
    }
}

/// The part of an API server's audit log from now on.
pub(crate) struct Log {
    path: PathBuf,
    from: u64,
}

/// The deed that a line of the log records: who did what, and where.
#[derive(Debug, PartialEq)]
struct Deed {
    home: String,
    account: String,
    namespace: Option<String>,
    what: String,
    /// The name of the one object, or of a list that can hold only one.
    name: Option<String>,
    verb: String,
}

impl Deed {
    /// Whether the deed is done to this resource, as [`rules`] names it.
    fn is_of(&self, what: &str) -> bool {
        let is_it = |name: &String| named(&self.what, name) == what;
        self.what == what || self.name.as_ref().is_some_and(is_it)
    }
}

impl Log {
    /// The log of the test cluster; `None` for another, whose log is not known.
    pub(crate) fn of(kubeconfig: &Path) -> Option<Self> {
        let path = cluster::audit_log(kubeconfig)?;
        // There is none before somebody has done something.
        let from = path.metadata().map_or(0, |log| log.len());
        Some(Self { path, from })
    }

    /// Checks that each right that these installations give to accounts was used since, or is one of [`ELSEWHERE`].
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

    /// The deeds of the log, without a line that is being written.
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

/// A role that accounts have, with its rights.
struct Given<'o> {
    accounts: BTreeSet<&'o str>,
    place: Where<'o>,
    rights: Rights,
}

/// The scope of a role.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Where<'o> {
    /// The namespace of its accounts, wherever it is installed.
    Home,
    /// Another namespace, of this name.
    Beside(&'o str),
    Everywhere,
}

impl Given<'_> {
    /// The name of the role for people: `Role of ACCOUNT`.
    fn name(&self) -> String {
        let kind = match self.place {
            Where::Home => "Role",
            Where::Beside(_) => "Role elsewhere",
            Where::Everywhere => "ClusterRole",
        };
        let accounts = self.accounts.iter().copied().collect::<Vec<_>>().join(", ");
        format!("{kind} of {accounts}")
    }

    fn each(&self) -> Vec<Right<'_>> {
        let mut each = Vec::new();
        for (what, verbs) in &self.rights {
            each.extend(verbs.iter().map(|verb| Right { given: self, what, verb }));
        }
        each
    }
}

/// One verb of what a role gives.
struct Right<'g> {
    given: &'g Given<'g>,
    what: &'g str,
    verb: &'g str,
}

impl Right<'_> {
    fn allows(&self, deed: &Deed) -> bool {
        let is_there = match self.given.place {
            Where::Home => deed.namespace.as_ref() == Some(&deed.home),
            Where::Beside(place) => deed.namespace.as_deref() == Some(place),
            Where::Everywhere => true,
        };
        let is_theirs = self.given.accounts.contains(deed.account.as_str());
        is_there && is_theirs && self.verb == deed.verb && deed.is_of(self.what)
    }

    /// The breadth of a right that allows a deed: one in a single namespace is less than one everywhere, and one to the
    /// deed's name less than one to all.
    fn breadth(&self, deed: &Deed) -> (bool, bool) {
        (self.given.place == Where::Everywhere, self.what == deed.what)
    }

    fn is_elsewhere(&self, install: &str) -> bool {
        let role = self.given.name();
        let mut all = ELSEWHERE.iter();
        all.any(|it| {
            (it.0, it.1, it.2) == (install, role.as_str(), self.what) && it.3.contains(&self.verb)
        })
    }
}

/// The rights of an installation that none of these deeds used. A deed uses the least right that allows it.
fn unused(install: &Install, deeds: &[&Deed]) -> Vec<String> {
    let all = given(&install.objects);
    let mut rights = Vec::new();
    for given in &all {
        rights.extend(given.each());
    }
    let mut used = vec![false; rights.len()];
    for deed in deeds {
        let allow = rights.iter().filter(|it| it.allows(deed));
        let least = allow.map(|it| it.breadth(deed)).min();
        for (right, used) in rights.iter().zip(&mut used) {
            *used |= right.allows(deed) && Some(right.breadth(deed)) == least;
        }
    }
    let mut idle = Vec::new();
    for (right, used) in rights.iter().zip(used) {
        if !used && !right.is_elsewhere(install.name) {
            let (verb, what, role) = (right.verb, right.what, right.given.name());
            idle.push(format!("{}: {verb} {what}, by a {role}", install.name));
        }
    }
    idle
}

fn given(objects: &[Value]) -> Vec<Given<'_>> {
    let is = |object: &Value, kind: &str| object["kind"] == kind;
    let mut all = Vec::new();
    for role in objects.iter().filter(|it| is(it, "Role") || is(it, "ClusterRole")) {
        let bindings: Vec<&Value> = objects
            .iter()
            .filter(|it| {
                let of = &it["roleRef"];
                let is_named = of["kind"] == role["kind"] && of["name"] == role["metadata"]["name"];
                // Several namespaces may have one of this name.
                is_named && (is(role, "ClusterRole") || place(it) == place(role))
            })
            .collect();
        let mut accounts = BTreeSet::new();
        let mut home = None;
        for account in objects.iter().filter(|it| is(it, "ServiceAccount")) {
            let name = account["metadata"]["name"].as_str().unwrap_or_default();
            if bindings.iter().any(|binding| binds(binding, name)) {
                accounts.insert(name);
                home = place(account);
            }
        }
        if accounts.is_empty() {
            continue;
        }
        let is_everywhere = bindings.iter().any(|it| is(it, "ClusterRoleBinding"));
        let place = match bindings.first().copied().and_then(place) {
            _ if is_everywhere => Where::Everywhere,
            Some(there) if home != Some(there) => Where::Beside(there),
            _ => Where::Home,
        };
        all.push(Given { accounts, place, rights: joined(rules(role).into_iter()) });
    }
    all
}

/// The deed that a line of the log records, if it was allowed to a service account, in the terms of [`rules`].
fn deed(line: &Value) -> Option<Deed> {
    let user = line["user"]["username"].as_str()?.strip_prefix("system:serviceaccount:")?;
    let (home, account) = user.split_once(':')?;
    if line["annotations"]["authorization.k8s.io/decision"] != "allow" {
        return None;
    }
    let of = &line["objectRef"];
    let (what, name, verb) = match line["impersonatedUser"]["username"].as_str() {
        // What is done as somebody else is that one's right.
        Some(as_whom) if as_whom.starts_with("system:serviceaccount:") => {
            ("serviceaccounts".to_owned(), None, "impersonate")
        }
        Some(_) => ("users".to_owned(), None, "impersonate"),
        None => {
            let word = |name: &str| of[name].as_str().unwrap_or_default();
            let (group, sub) = (word("apiGroup"), word("subresource"));
            let dot = if group.is_empty() { "" } else { "." };
            let slash = if sub.is_empty() { "" } else { "/" };
            let what = format!("{}{dot}{group}{slash}{sub}", word("resource"));
            (what, of["name"].as_str(), line["verb"].as_str()?)
        }
    };
    Some(Deed {
        home: home.to_owned(),
        account: account.to_owned(),
        namespace: of["namespace"].as_str().map(str::to_owned),
        what,
        name: name.map(str::to_owned),
        verb: verb.to_owned(),
    })
}

#[cfg(test)]
mod tests;
