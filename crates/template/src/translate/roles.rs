//! Translates roles and their bindings of `authorization.openshift.io/v1` to those of `rbac.authorization.k8s.io/v1`.
//!
//! The rules are those of OpenShift's own conversion (`rbacconversion` of openshift-apiserver, with the defaults of the
//! old version), except that a rule with `attributeRestrictions`, which never applies there, is refused.

use serde_json::{Map, Value, json};

use super::Translation;
use super::members::{Members, Notes, map};
use super::namespace;
use crate::fault::Place;

const GROUP: &str = "rbac.authorization.k8s.io";
const VERSION: &str = "rbac.authorization.k8s.io/v1";
/// The prefix of the names of users that are service accounts.
const ACCOUNT: &str = "system:serviceaccount:";
/// ClusterRoles that every OpenShift cluster has, and no other Kubernetes.
const OPENSHIFT: [&str; 16] = [
    "basic-user",
    "cluster-reader",
    "cluster-status",
    "registry-admin",
    "registry-editor",
    "registry-viewer",
    "self-access-reviewer",
    "self-provisioner",
    "storage-admin",
    "sudoer",
    "system:build-strategy-docker",
    "system:deployer",
    "system:image-builder",
    "system:image-puller",
    "system:image-pusher",
    "system:image-signer",
];

/// Translates a Role or a ClusterRole, as `kind` says.
pub(super) fn role(
    place: &Place<'_>,
    kind: &str,
    object: Map<String, Value>,
    notes: &mut Notes,
) -> Value {
    let mut role = Members::new(place, object.into(), notes);
    let list = role.at("rules");
    let mut rules = Vec::new();
    for (index, rule) in role.list("rules", notes).into_iter().enumerate() {
        self::rule(&Place::Index(&list, index), rule, &mut rules, notes);
    }
    let metadata = role.value("metadata");
    let aggregated = role.value("aggregationRule");
    role.take("apiVersion");
    role.take("kind");
    role.end(notes);
    map([
        ("apiVersion", VERSION.into()),
        ("kind", kind.into()),
        ("metadata", metadata),
        ("aggregationRule", aggregated),
        ("rules", rules.into()),
    ])
}

/// Translates a rule; one for resources and for URLs becomes two.
fn rule(place: &Place<'_>, rule: Value, to: &mut Vec<Value>, notes: &mut Notes) {
    let mut rule = Members::new(place, rule, notes);
    if let Some(restrictions) = rule.take("attributeRestrictions") {
        let detail = "with restrictions the rule never applies on OpenShift: leave the rule out";
        notes.wrong(&rule.at("attributeRestrictions"), &restrictions, detail);
    }
    let [verbs, mut groups, resources, names, urls] =
        ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"]
            .map(|key| rule.list(key, notes));
    rule.end(notes);
    if groups.is_empty() && !resources.is_empty() {
        let all = [Value::from("*")];
        let is_all = verbs == all && resources == all && names.is_empty() && urls.is_empty();
        groups.push(if is_all { "*" } else { "" }.into());
    }
    let listed = |list: Vec<Value>| if list.is_empty() { Value::Null } else { list.into() };
    let over_urls = (!urls.is_empty())
        .then(|| map([("verbs", json!(verbs)), ("nonResourceURLs", urls.into())]));
    if over_urls.is_none() || !(groups.is_empty() && resources.is_empty() && names.is_empty()) {
        to.push(map([
            ("verbs", verbs.into()),
            ("apiGroups", listed(groups)),
            ("resources", listed(resources)),
            ("resourceNames", listed(names)),
        ]));
    }
    to.extend(over_urls);
}

/// Translates a RoleBinding.
pub(super) fn binding(
    place: &Place<'_>,
    object: Map<String, Value>,
    means: &Translation,
    notes: &mut Notes,
) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    let home = namespace(&metadata, means);
    bound(place, "RoleBinding", object, home, notes)
}

/// Translates a ClusterRoleBinding.
pub(super) fn cluster_binding(
    place: &Place<'_>,
    object: Map<String, Value>,
    notes: &mut Notes,
) -> Value {
    bound(place, "ClusterRoleBinding", object, "", notes)
}

fn bound(
    place: &Place<'_>,
    kind: &str,
    object: Map<String, Value>,
    home: &str,
    notes: &mut Notes,
) -> Value {
    let mut binding = Members::new(place, object.into(), notes);
    let role = role_ref(&mut binding, kind, home, notes);
    let subjects = subjects(&mut binding, home, notes);
    let metadata = binding.value("metadata");
    binding.take("apiVersion");
    binding.take("kind");
    binding.end(notes);
    map([
        ("apiVersion", VERSION.into()),
        ("kind", kind.into()),
        ("metadata", metadata),
        ("subjects", subjects.into()),
        ("roleRef", role),
    ])
}

/// Translates the reference to a role. Its kind follows from the namespace: without one it is a ClusterRole. The member
/// `kind` was never read.
fn role_ref(binding: &mut Members<'_>, of: &str, home: &str, notes: &mut Notes) -> Value {
    let place = binding.at("roleRef");
    let mut role = Members::new(&place, binding.value("roleRef"), notes);
    let (name, namespace) = (role.text("name", notes), role.text("namespace", notes));
    if name.is_empty() {
        notes.required(&role.at("name"), "a binding has a role: name it");
    }
    if of == "ClusterRoleBinding" && !namespace.is_empty() {
        let detail = "a ClusterRoleBinding binds a ClusterRole, which has none: leave it out";
        notes.wrong(&role.at("namespace"), &namespace.as_str().into(), detail);
    } else if !namespace.is_empty() && !home.is_empty() && namespace != home {
        let detail = "has to be that of the binding, or none for a ClusterRole";
        notes.wrong(&role.at("namespace"), &namespace.as_str().into(), detail);
    }
    let is_of_cluster = namespace.is_empty();
    if is_of_cluster && role.value("kind") == "Role" {
        let detail = "is passed over, as on OpenShift: without a namespace it is a ClusterRole";
        notes.warn(&role.at("kind"), detail);
    }
    if let Some(name) = OPENSHIFT.iter().find(|known| is_of_cluster && **known == name) {
        let detail = format!("plain Kubernetes has no ClusterRole {name}: it binds nothing");
        notes.warn(&role.at("name"), detail);
    }
    let kind = if is_of_cluster { "ClusterRole" } else { "Role" };
    json!({"apiGroup": GROUP, "kind": kind, "name": name})
}

/// Translates the subjects. Lists of names take precedence over subjects, as on OpenShift: empty lists bind nobody.
fn subjects(binding: &mut Members<'_>, home: &str, notes: &mut Notes) -> Vec<Value> {
    let lists = ["userNames", "groupNames"].map(|key| binding.take(key).map(|list| (key, list)));
    let list = binding.at("subjects");
    let listed = binding.list("subjects", notes);
    if lists.iter().all(Option::is_none) {
        let each = listed.into_iter().enumerate();
        return each
            .map(|(index, it)| subject(&Place::Index(&list, index), it, home, notes))
            .collect();
    }
    let mut subjects = Vec::new();
    for (key, names) in lists.into_iter().flatten() {
        let place = binding.at(key);
        let Value::Array(names) = names else {
            notes.wrong(&place, &names, "has to be a list of names");
            continue;
        };
        for (index, name) in names.iter().enumerate() {
            match name.as_str().filter(|name| !name.is_empty()) {
                Some(name) => subjects.push(named(name, key == "userNames")),
                None => notes.wrong(&Place::Index(&place, index), name, "has to be a name"),
            }
        }
    }
    if listed.len() > subjects.len() {
        let detail = "is passed over, as on OpenShift: userNames and groupNames say who is bound";
        notes.warn(&list, detail);
    }
    subjects
}

/// The subject for one of a list of names.
fn named(name: &str, is_user: bool) -> Value {
    let account = name.strip_prefix(ACCOUNT).filter(|_| is_user).and_then(|it| it.split_once(':'));
    match account {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains(':') =>
        {
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        _ => {
            json!({"apiGroup": GROUP, "kind": if is_user { "User" } else { "Group" }, "name": name})
        }
    }
}

fn subject(place: &Place<'_>, subject: Value, home: &str, notes: &mut Notes) -> Value {
    let mut subject = Members::new(place, subject, notes);
    let [kind, name, namespace] = ["kind", "name", "namespace"].map(|key| subject.text(key, notes));
    if name.is_empty() {
        notes.required(&subject.at("name"), "somebody is bound: name them");
    }
    match kind.as_str() {
        "User" | "SystemUser" => json!({"apiGroup": GROUP, "kind": "User", "name": name}),
        "Group" | "SystemGroup" => json!({"apiGroup": GROUP, "kind": "Group", "name": name}),
        "ServiceAccount" => {
            // An account without a namespace is in the binding's, which need not be named.
            let namespace = Some(namespace.as_str()).filter(|own| !own.is_empty()).unwrap_or(home);
            if namespace.is_empty() {
                let detail = "an account is of a namespace: set it, or say where objects go";
                notes.required(&subject.at("namespace"), detail);
            }
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        _ => {
            let detail = "has to be User, Group, ServiceAccount, SystemUser or SystemGroup";
            notes.wrong(&subject.at("kind"), &kind.into(), detail);
            Value::Null
        }
    }
}
