//! `kubernetes.templates` of the configuration: which templates are offered, and how they are made.

use kubernetes::templates::{self, broker};
use serde::Deserialize;
use template::translate::Translation;

use super::config::Period;

/// Which templates are offered, and who makes what is ordered.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Templates {
    /// The namespaces whose templates are offered.
    pub(crate) namespaces: Vec<String>,
    /// The namespaces whose TemplateInstances are made; all, if none is named.
    #[serde(default)]
    pub(crate) instance_namespaces: Vec<String>,
    /// Whether TemplateInstances are made here too; not where OpenShift or another replica does it.
    #[serde(default = "yes")]
    pub(crate) controller: bool,
    /// Whose word it is that a requester is who ordered an instance.
    #[serde(default)]
    pub(crate) requesters: Requesters,
    /// What becomes of objects that are not what was made.
    #[serde(default)]
    pub(crate) drift: Drift,
    /// How often that is looked at.
    #[serde(default)]
    pub(crate) drift_interval: Option<Period>,
    /// Whether, and how, what only OpenShift has becomes what any Kubernetes has.
    #[serde(default)]
    pub(crate) translate: Option<Translate>,
    /// What the ids of services are made of: said once, and not again.
    #[serde(default)]
    pub(crate) ids: Ids,
    /// By whose status codes requests are answered.
    #[serde(default)]
    pub(crate) status_codes: StatusCodes,
}

/// How what only OpenShift has becomes what any Kubernetes has.
#[derive(Debug, Clone, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub(crate) struct Translate {
    /// For --translate: where Routes without a host are, at NAME-NAMESPACE.DOMAIN
    #[serde(default)]
    #[arg(long, env = "MANCIPLE_ROUTE_DOMAIN", requires = "translate", value_name = "DOMAIN")]
    pub(crate) route_domain: Option<String>,
    /// For --translate: the class of the Ingresses that Routes become [default: the cluster's]
    #[serde(default)]
    #[arg(long, env = "MANCIPLE_INGRESS_CLASS", requires = "translate", value_name = "NAME")]
    pub(crate) ingress_class: Option<String>,
}

impl From<Translate> for Translation {
    fn from(Translate { route_domain, ingress_class }: Translate) -> Self {
        Self { domain: route_domain, ingress_class, namespace: None }
    }
}

/// What becomes of objects that are not what their TemplateInstance made, unless it says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Drift {
    /// Nobody looks
    Ignore,
    /// The instance says which, and where
    #[default]
    Report,
    /// They become what was made
    Repair,
}

impl From<Drift> for templates::Drift {
    fn from(drift: Drift) -> Self {
        match drift {
            Drift::Ignore => Self::Ignore,
            Drift::Report => Self::Report,
            Drift::Repair => Self::Repair,
        }
    }
}

/// By whose status codes requests for templates are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StatusCodes {
    /// Those of the specification.
    #[default]
    Specification,
    /// Those of the original broker of templates.
    Original,
}

impl From<StatusCodes> for broker::StatusCodes {
    fn from(codes: StatusCodes) -> Self {
        match codes {
            StatusCodes::Specification => Self::Specification,
            StatusCodes::Original => Self::Original,
        }
    }
}

/// What the ids of services are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ids {
    /// The uids of templates, as in the original.
    #[default]
    Uid,
    /// An annotation of each template, or its namespace and name.
    Name,
}

impl From<Ids> for broker::Ids {
    fn from(ids: Ids) -> Self {
        match ids {
            Ids::Uid => Self::Uid,
            Ids::Name => Self::Name,
        }
    }
}

fn yes() -> bool {
    true
}

/// Whose word it is that the requester of a TemplateInstance is who ordered it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Requesters {
    /// That of the webhook, or of the broker, who have verified it
    #[default]
    Verified,
    /// That of whoever may create TemplateInstances: they may act for anybody then
    Trusted,
}

impl From<Requesters> for templates::Requesters {
    fn from(requesters: Requesters) -> Self {
        match requesters {
            Requesters::Verified => Self::Verified,
            Requesters::Trusted => Self::Trusted,
        }
    }
}
