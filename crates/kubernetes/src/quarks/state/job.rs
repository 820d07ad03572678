//! What is held in memory of a Job of a run.

use std::str::FromStr;
use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use kube::api::ObjectMeta;

use super::forgotten;
use super::pod::SeenPod;
use super::pods::OfJob;
use super::wants::Wants;
use crate::conditions::{JobEnd, job_condition};
use crate::quarks::api::dialect::Dialect;
use crate::quarks::api::noted::{Noted, RUN_ID};
use crate::quarks::api::resource::Resource;

/// A Job of ours.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenJob {
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) version: u64,
    /// When it was made, in seconds since 1970.
    pub(crate) created: i64,
    pub(crate) dialect: Dialect,
    /// The uid of the QuarksJob that owns it.
    pub(crate) owner: Arc<str>,
    /// The name of that QuarksJob.
    pub(crate) owner_name: Arc<str>,
    /// It has other owners, too.
    pub(crate) shared: bool,
    pub(crate) run: u64,
    pub(crate) end: Option<JobEnd>,
    /// Kubernetes does not say yet that the Job is over: even if its end is known, pods of it may go on, on a dead node
    /// for ever.
    pub(crate) winds_up: bool,
    /// When Kubernetes has to have begun the Job, or ended it, in seconds since 1970, if there is such a time.
    pub(crate) due_at: Option<i64>,
    /// When Kubernetes was last asked to look at the Job again, in seconds since 1970.
    pub(crate) reminded: Option<i64>,
    pub(crate) wants: Wants,
    pub(crate) noted: Noted,
    /// It is being deleted.
    pub(crate) deleting: bool,
    /// A list lacked it, which may have been an old one.
    pub(crate) unsure: bool,
    /// Its run was carried out by another Job, which was here before.
    pub(crate) late: bool,
    /// Whether its pods go with it when it has succeeded: its template has the label `delete: pod`.
    pub(crate) takes_pods: bool,
    /// Its run is over, and a container that is not of its template goes on in a pod of it.
    pub(crate) lingers: bool,
    /// Its run is over, and a pod of it was seen to go on.
    pub(crate) outlasted: bool,
    /// Kubernetes removes it some time after its end, or was told to.
    pub(crate) expires: bool,
    /// Its run is over, and Kubernetes was told to end what goes on in its pods.
    pub(crate) told: bool,
}

impl SeenJob {
    /// Reads a Job; `None`: it does not look like one of ours.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let metadata = &job.metadata;
        let owners = metadata.owner_references.as_deref().unwrap_or_default();
        let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
        let spec = job.spec.as_ref()?;
        let pod_labels = spec.template.metadata.as_ref().and_then(|it| it.labels.as_ref());
        let created = metadata.creation_timestamp.as_ref().map_or(0, |at| at.0.as_second());
        Some(Self {
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            uid: metadata.uid.as_deref()?.into(),
            version: metadata.resource_version.as_deref()?.parse().ok()?,
            created,
            dialect: Dialect::of_owner(&owner.api_version, &owner.kind)?,
            owner: owner.uid.as_str().into(),
            owner_name: owner.name.as_str().into(),
            shared: owners.len() > 1,
            run: note(metadata, RUN_ID)?,
            end: end(job),
            winds_up: ["Complete", "Failed"].iter().all(|kind| job_condition(job, kind).is_none()),
            due_at: forgotten::due_at(spec, job.status.as_ref(), created),
            reminded: note(metadata, forgotten::REMINDED),
            wants: Wants::of(spec, job.status.as_ref(), metadata.annotations.as_ref()),
            noted: Noted::of(metadata),
            deleting: metadata.deletion_timestamp.is_some(),
            unsure: false,
            late: false,
            takes_pods: pod_labels.and_then(|all| all.get("delete")).is_some_and(|it| it == "pod"),
            lingers: false,
            outlasted: false,
            expires: spec.ttl_seconds_after_finished.is_some(),
            told: false,
        })
    }
}

/// The value of an annotation that is a number.
fn note<N: FromStr>(metadata: &ObjectMeta, name: &str) -> Option<N> {
    metadata.annotations.as_ref()?.get(name)?.parse().ok()
}

pub(crate) fn end(job: &Job) -> Option<JobEnd> {
    let condition = |type_| job_condition(job, type_);
    // From Kubernetes 1.31 on a Job has succeeded before all its pods are over, too.
    if condition("Complete").or_else(|| condition("SuccessCriteriaMet")).is_some() {
        return Some(JobEnd::Complete);
    }
    // From Kubernetes 1.31 on a Job that is given up is first `FailureTarget`, and `Failed` once all its pods are over:
    // if one is on a dead node that is never.
    condition("Failed").or_else(|| condition("FailureTarget")).map(JobEnd::failed)
}

impl SeenJob {
    /// Takes from these pods of the Job, whose run is over, what still goes on in them. Returns whether that is news.
    pub(crate) fn note_after<'p>(&mut self, pods: impl IntoIterator<Item = &'p SeenPod>) -> bool {
        let before = (self.lingers, self.outlasted);
        for pod in pods {
            self.lingers |= pod.lingers();
            self.outlasted |= pod.outlasts();
        }
        before != (self.lingers, self.outlasted)
    }

    /// Notes that the run of the Job is over, as `resource` says, and that these were its pods.
    pub(crate) fn settle(&mut self, resource: &Resource, pods: &OfJob) {
        self.note_after(pods.values());
        // For the newest run, what it found is kept: the next run is compared with that where the record is lost.
        let newest = resource.status.history.first().map(|run| run.id);
        if newest.is_some_and(|newest| self.run < newest) {
            self.noted.forget_found();
        }
    }

    /// Whether, after the end of the run, something goes on that nobody else would end. A pod that was only seen late
    /// to end does not count once Kubernetes says that the Job has ended.
    pub(crate) fn goes_on(&self) -> bool {
        self.lingers || self.outlasted && self.end.is_none()
    }

    /// Whether nothing goes on in the Job any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some() && !self.winds_up && !self.goes_on()
    }
}
