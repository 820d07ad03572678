//! What is seen of a Job, in few words.

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
    /// In seconds since 1970.
    pub(crate) created: i64,
    pub(crate) dialect: Dialect,
    /// The uid of what it belongs to.
    pub(crate) owner: Arc<str>,
    /// The name of that.
    pub(crate) owner_name: Arc<str>,
    /// It belongs to something else, too.
    pub(crate) shared: bool,
    pub(crate) run: u64,
    pub(crate) end: Option<JobEnd>,
    /// Kubernetes does not say yet that it is over: where its end is known, pods of it may go on, on a dead node for ever.
    pub(crate) winds_up: bool,
    /// When Kubernetes has to have begun or ended it, in seconds since 1970, if there is such a time.
    pub(crate) due_at: Option<i64>,
    /// When Kubernetes was last asked to look at it, in seconds since 1970.
    pub(crate) reminded: Option<i64>,
    pub(crate) wants: Wants,
    pub(crate) noted: Noted,
    /// Somebody deletes it.
    pub(crate) deleting: bool,
    /// A list was without it, which may have been an old one.
    pub(crate) unsure: bool,
    /// Its run was carried out by another Job, which has been here.
    pub(crate) late: bool,
    /// Whether its pods go with it.
    pub(crate) takes_pods: bool,
    /// Its run is over, and something that is not of its template goes on in a pod of it.
    pub(crate) lingers: bool,
    /// Its run is over, and a pod of it was seen to go on.
    pub(crate) outlasted: bool,
    /// Kubernetes removes it some time after its end, or was told to.
    pub(crate) expires: bool,
    /// Its run is over, and Kubernetes was told to end what goes on in its pods.
    pub(crate) told: bool,
}

impl SeenJob {
    /// `None`: it does not look like one of ours.
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

/// A number among the annotations.
fn note<N: FromStr>(metadata: &ObjectMeta, name: &str) -> Option<N> {
    metadata.annotations.as_ref()?.get(name)?.parse().ok()
}

pub(crate) fn end(job: &Job) -> Option<JobEnd> {
    let condition = |type_| job_condition(job, type_);
    // From 1.31 on it has succeeded before all its pods are over, too.
    if condition("Complete").or_else(|| condition("SuccessCriteriaMet")).is_some() {
        return Some(JobEnd::Complete);
    }
    // From 1.31 on it is said first that Kubernetes has given it up, and that it has failed when all its pods are over:
    // where one is on a node that is dead that is never.
    condition("Failed").or_else(|| condition("FailureTarget")).map(JobEnd::failed)
}

impl SeenJob {
    /// Its run is over: takes what goes on in these pods of it. Whether that is news.
    pub(crate) fn note_after<'p>(&mut self, pods: impl IntoIterator<Item = &'p SeenPod>) -> bool {
        let before = (self.lingers, self.outlasted);
        for pod in pods {
            self.lingers |= pod.lingers();
            self.outlasted |= pod.outlasts();
        }
        before != (self.lingers, self.outlasted)
    }

    /// Its run is over, as this resource says, which had these pods.
    pub(crate) fn settle(&mut self, resource: &Resource, pods: &OfJob) {
        self.note_after(pods.values());
        // Of the newest run it is what the next one is held to, where the record of that is lost.
        let newest = resource.status.history.first().map(|run| run.id);
        if newest.is_some_and(|newest| self.run < newest) {
            self.noted.forget_found();
        }
    }

    /// Its run is over, and something goes on that nobody else would end. What was only seen late to end is nothing once
    /// Kubernetes says that the Job has ended.
    pub(crate) fn goes_on(&self) -> bool {
        self.lingers || self.outlasted && self.end.is_none()
    }

    /// Nothing goes on in it any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some() && !self.winds_up && !self.goes_on()
    }
}
