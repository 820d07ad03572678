//! The parsed spec of a `Broker`, and the settings of runs that follow from it.

use std::collections::BTreeMap;

use osb::PlanId;

use super::policy::Policy;
use crate::runner::JobSettings;

/// The parsed spec of a `Broker`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spec {
    pub(super) image: String,
    pub(super) config_map: Option<String>,
    pub(super) secret: Option<String>,
    pub(super) policy: Policy,
    pub(super) plans: BTreeMap<PlanId, Policy>,
}

impl Spec {
    /// The settings for runs of a plan; without a plan, those for the question for the catalog.
    pub(super) fn settings(
        &self,
        base: &JobSettings,
        name: &str,
        plan: Option<&PlanId>,
    ) -> JobSettings {
        let mut settings = JobSettings {
            resource: Some(name.to_owned()),
            image: self.image.clone(),
            config_map: self.config_map.clone(),
            secret: self.secret.clone(),
            ..base.clone()
        };
        match plan.and_then(|plan| self.plans.get(plan)) {
            Some(plan) => plan.over(&self.policy).apply(&mut settings),
            None => self.policy.apply(&mut settings),
        }
        settings
    }
}
