//! Events on a QuarksJob, for those who have nothing but `kubectl describe`: a run that failed, a trigger that was
//! passed over, something that is waited for or cannot be removed.
//!
//! What succeeds is only in the status, which is written anyway: an event for each step would cost a call each.

use engine::trigger::{JobRecord, Outcome, Run, Trigger};
use k8s_openapi::api::core::v1::Event;

use super::Controller;
use super::api::naming;
use super::api::resource::Resource;
use super::output::objects::Wanted;
use crate::events::{Told, warning, write};
use crate::resources::time;

impl Controller {
    /// Writes an event if a run has failed.
    pub(super) fn tell_of_end(&self, resource: &Resource, run: &Run, outcome: &Outcome) {
        if outcome.succeeded {
            return;
        }
        let message = format!("run {}: {}", run.id, outcome.message);
        self.tell_event(resource, &outcome.reason, &message, &run.id.to_string());
    }

    /// Writes an event for a trigger that was passed over because a run was going on.
    pub(super) fn tell_of_one_passed_over(
        &self,
        resource: &Resource,
        trigger: Trigger,
        record: &JobRecord,
    ) {
        let (name, going) = (&*resource.name, record.open.last().map_or(0, |run| run.id));
        let message = format!(
            "run {going} goes on, and concurrencyPolicy is Forbid: no run for {}",
            trigger.word()
        );
        tracing::info!(
            namespace = &*resource.namespace,
            name,
            why = message,
            "a trigger was passed over"
        );
        self.tell_event(resource, "PassedOver", &message, &resource.version.to_string());
    }

    /// Writes an event that says what a QuarksJob waits for.
    pub(super) fn tell_of_waiting(&self, resource: &Resource, waits: &str) {
        self.tell_event(resource, "Waiting", waits, waits);
    }

    /// Writes an event that says why old versions of a Secret beyond the limit stay.
    pub(super) fn tell_of_what_stays(&self, resource: &Resource, wanted: &Wanted, why: &str) {
        let message = format!("old versions of {} stay: {why}", wanted.name);
        let (namespace, name) = (&*resource.namespace, &*resource.name);
        tracing::warn!(namespace, name, "{message}");
        self.tell_event(resource, "VersionsStay", &message, &message);
    }

    /// Writes an event. Its name derives from `reason` and `of`, so two leaders that tell the same write it once.
    fn tell_event(&self, resource: &Resource, reason: &str, message: &str, of: &str) {
        let told = Told {
            api_version: &resource.dialect.api_version(),
            kind: resource.dialect.kind(),
            namespace: &resource.namespace,
            name: &resource.name,
            uid: &resource.uid,
            reason,
            message,
            at: &time(self.now_millis()),
        };
        let name = naming::event(&resource.name, &resource.uid, reason, of);
        let Some(event) = warning(&name, &told) else { return };
        write(self.api::<Event>(&resource.namespace), event);
    }
}
