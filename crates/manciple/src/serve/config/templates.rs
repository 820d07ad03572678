//! `kubernetes.templates` of the configuration: which templates are offered, and how they are made.

use std::time::Duration;

use kubernetes::syntax::{is_label, is_subdomain};
use kubernetes::templates::{self, broker};
use serde::Deserialize;
use template::translate::Translation;

use super::Period;

/// The shortest interval between looks for drift: each look costs a call for each object.
const LEAST_DRIFT_INTERVAL: Duration = Duration::from_secs(1);

/// The settings of templates: which are offered, and who makes the ordered instances.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Templates {
    /// The namespaces whose templates are offered.
    pub(crate) namespaces: Vec<String>,
    /// The namespaces whose TemplateInstances are made; all, if none is named.
    #[serde(default)]
    pub(crate) instance_namespaces: Vec<String>,
    /// Whether TemplateInstances are made here too; not if OpenShift or another server does it.
    #[serde(default = "yes")]
    pub(crate) controller: bool,
    /// Whose word counts that a requester is the user who ordered an instance.
    #[serde(default)]
    pub(crate) requesters: Requesters,
    /// What to do with objects that differ from what was made.
    #[serde(default)]
    pub(crate) drift: Drift,
    /// How often the controller looks for such drift; zero: never.
    #[serde(default)]
    pub(crate) drift_interval: Option<Period>,
    /// Whether, and how, OpenShift's own kinds are translated to those of any Kubernetes.
    #[serde(default)]
    pub(crate) translate: Option<Translate>,
    /// The source of the ids of services; it must not be changed later.
    #[serde(default)]
    pub(crate) ids: Ids,
    /// The set of status codes with which requests are answered.
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

impl Translate {
    /// The members whose values cannot be part of an Ingress, and why.
    pub(crate) fn faults(&self) -> impl Iterator<Item = (&'static str, String)> {
        let members =
            [("route_domain", &self.route_domain), ("ingress_class", &self.ingress_class)];
        members.into_iter().filter_map(|(member, value)| {
            // Empty: as if it was not said.
            let value = value.as_deref().filter(|it| !it.is_empty() && !is_subdomain(it))?;
            let why = "has to be a DNS name: small letters, digits, '-' and '.'";
            Some((member, format!("{value:?}: {why}")))
        })
    }
}

impl Templates {
    /// The faults in these settings, by the member.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.namespaces.is_empty() {
            faults.push("namespaces: name at least one, whose templates are offered".to_owned());
        }
        for (member, names) in
            [("namespaces", &self.namespaces), ("instance_namespaces", &self.instance_namespaces)]
        {
            let wrong = names.iter().enumerate().filter_map(|(index, name)| {
                let fault = namespace(name).err()?;
                Some(format!("{member}[{index}]: {name:?}: {fault}"))
            });
            faults.extend(wrong);
        }
        let interval = self.drift_interval.and_then(|it| drift_interval_fault(it.0));
        faults.extend(interval.map(|fault| format!("drift_interval: {fault}")));
        let translate = self.translate.iter().flat_map(Translate::faults);
        faults.extend(translate.map(|(member, fault)| format!("translate.{member}: {fault}")));
        faults
    }
}

/// Checks the name of a namespace in a list of them. An empty one would mean all namespaces to the API server.
///
/// # Errors
/// If there is none of that name.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    match (text.is_empty(), is_label(text)) {
        (true, _) => Err("is empty: take it out; for all namespaces, name none".to_owned()),
        (_, true) => Ok(text.to_owned()),
        _ => Err("is no name of a namespace: small letters, digits and '-', 63 at most".to_owned()),
    }
}

/// The fault in the interval at which the controller looks for drift, if there is one.
pub(crate) fn drift_interval_fault(interval: Duration) -> Option<&'static str> {
    let is_short = !interval.is_zero() && interval < LEAST_DRIFT_INTERVAL;
    is_short.then_some("has to be 1s at least, or 0s for never")
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

/// The sets of status codes with which requests for templates are answered.
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

/// The sources of the ids of services.
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
