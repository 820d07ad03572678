//! Translates objects that only OpenShift has to those of plain Kubernetes, if that is configured.
//!
//! ```text
//! Route ─────────────────────────────▶ Ingress, and a Secret where the Route holds a certificate
//! DeploymentConfig ──────────────────▶ Deployment
//! Role, RoleBinding, ClusterRole,
//! ClusterRoleBinding, OpenShift's own ▶ those of rbac.authorization.k8s.io
//! everything else ───────────────────▶ itself
//! ```
//!
//! An object that would behave differently afterwards is refused. Members that are only left out are reported
//! (`Problem::Questionable`). The tables are in `docs/templates.md`.
//!
//! The translation takes all objects of a template together, because the port of an Ingress is that of a Service, and a
//! Route names it otherwise. Time and memory are linear in the objects.

mod deployment;
mod exposed;
mod members;
mod roles;
mod route;
mod services;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::fault::{Fault, Place};
use crate::groups;
use members::Notes;
use services::Services;

/// The settings of a translation, which are in no template.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Translation {
    /// The domain of Routes without a host: they get `NAME-NAMESPACE.DOMAIN`, as on OpenShift. Without a domain they
    /// are refused.
    pub domain: Option<String>,
    /// The class of each Ingress. Without it the cluster's default decides.
    pub ingress_class: Option<String>,
    /// The namespace of objects that do not name one.
    pub namespace: Option<String>,
}

/// The translated objects of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct Translated {
    /// The objects in their order; a new Secret comes before its Ingress.
    pub objects: Vec<Value>,
    /// What was left out, and what somebody else has to take care of.
    pub warnings: Vec<Fault>,
}

/// Translates the objects of a processed template.
///
/// The rules are those of OpenShift's own conversions where it has some (`rbacconversion` of openshift-apiserver for
/// roles, the defaults of `apps.openshift.io/v1`), and of its router for what a Route means.
///
/// # Errors
///
/// Everything that plain Kubernetes cannot do as OpenShift does it, each with its path and the remedy. No message has a
/// value, which may come from a parameter.
pub fn translate(objects: Vec<Value>, means: &Translation) -> Result<Translated, Vec<Fault>> {
    let context = Context { means, services: Services::of(&objects, means) };
    let mut notes = Notes::default();
    let root = Place::Root("template");
    let list = Place::Key(&root, "objects");
    let mut known: HashSet<_> = objects
        .iter()
        .filter(|object| Legacy::of(object).is_none())
        .filter_map(|object| identity(object, means))
        .collect();
    let mut translated = Vec::with_capacity(objects.len());
    for (index, object) in objects.into_iter().enumerate() {
        let place = Place::Index(&list, index);
        let made = match (Legacy::of(&object), object) {
            (Some(kind), Value::Object(object)) => context.made(&place, kind, object, &mut notes),
            (_, object) => {
                if is_only_of_openshift(&object) {
                    let detail = "only OpenShift has this kind: it stays as it is";
                    notes.warn(&Place::Key(&place, "kind"), detail);
                }
                translated.push(object);
                continue;
            }
        };
        for object in made {
            if identity(&object, means).is_some_and(|identity| !known.insert(identity)) {
                notes.taken(&place, object["kind"].as_str().unwrap_or_default());
            }
            translated.push(object);
        }
    }
    match notes.faults.is_empty() {
        true => Ok(Translated { objects: translated, warnings: notes.warnings }),
        false => Err(notes.faults),
    }
}

/// The kinds that are translated.
#[derive(Clone, Copy)]
enum Legacy {
    Route,
    DeploymentConfig,
    /// A Role or a ClusterRole.
    Role(&'static str),
    RoleBinding,
    ClusterRoleBinding,
}

impl Legacy {
    fn of(object: &Value) -> Option<Self> {
        let kind = object["kind"].as_str()?;
        let current = match object["apiVersion"].as_str()? {
            "v1" => groups::current(kind)?,
            version => version.to_owned(),
        };
        match (current.as_str(), kind) {
            ("route.openshift.io/v1", "Route") => Some(Self::Route),
            ("apps.openshift.io/v1", "DeploymentConfig") => Some(Self::DeploymentConfig),
            ("authorization.openshift.io/v1", "Role") => Some(Self::Role("Role")),
            ("authorization.openshift.io/v1", "ClusterRole") => Some(Self::Role("ClusterRole")),
            ("authorization.openshift.io/v1", "RoleBinding") => Some(Self::RoleBinding),
            ("authorization.openshift.io/v1", "ClusterRoleBinding") => {
                Some(Self::ClusterRoleBinding)
            }
            _ => None,
        }
    }
}

/// The context of a translation beyond its object.
struct Context<'a> {
    means: &'a Translation,
    services: Services,
}

impl Context<'_> {
    fn made(
        &self,
        place: &Place<'_>,
        kind: Legacy,
        object: Map<String, Value>,
        notes: &mut Notes,
    ) -> Vec<Value> {
        match kind {
            Legacy::Route => route::ingress(place, object, self, notes),
            Legacy::DeploymentConfig => vec![deployment::deployment(place, object, notes)],
            Legacy::Role(kind) => vec![roles::role(place, kind, object, notes)],
            Legacy::RoleBinding => vec![roles::binding(place, object, self.means, notes)],
            Legacy::ClusterRoleBinding => vec![roles::cluster_binding(place, object, notes)],
        }
    }
}

/// The namespace of an object; empty if nothing names one.
fn namespace<'o>(metadata: &'o Value, means: &'o Translation) -> &'o str {
    let own = metadata["namespace"].as_str().filter(|own| !own.is_empty());
    own.or(means.namespace.as_deref()).unwrap_or_default()
}

/// The identity of an object: group, kind, namespace and name.
fn identity(object: &Value, means: &Translation) -> Option<[String; 4]> {
    let version = object["apiVersion"].as_str()?;
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let (kind, metadata) = (object["kind"].as_str()?, &object["metadata"]);
    let name = metadata["name"].as_str().filter(|name| !name.is_empty())?;
    Some([group, kind, namespace(metadata, means), name].map(str::to_owned))
}

/// Whether no plain Kubernetes accepts an object. Template kinds are accepted: Manciple brings their definitions.
fn is_only_of_openshift(object: &Value) -> bool {
    let text = |of: &str| object[of].as_str().unwrap_or_default();
    let current = match text("apiVersion") {
        "v1" => groups::current(text("kind")).unwrap_or_default(),
        version => version.to_owned(),
    };
    let group = current.split_once('/').map_or("", |(group, _)| group);
    group.ends_with(".openshift.io") && group != "template.openshift.io"
}
