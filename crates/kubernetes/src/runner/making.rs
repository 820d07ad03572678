//! Makes runs: the Secret with what they are given, then the Job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::BASE64;
use engine::names::RunName;
use engine::ports::StartError;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::Shared;
use super::manifest::Manifest;
use super::seen::SeenJob;
use crate::calls::{CallError, call, find};
use crate::lease::Lead;
use crate::resources;

impl Shared {
    /// Makes the Secret and the Job of a run, the Job only while nobody but `lead` may lead; `Ok` too if the Job exists
    /// and is not of a former life.
    pub(super) async fn make(
        &self,
        name: &RunName,
        namespace: &str,
        mut manifest: Manifest,
        lead: Option<&Arc<Lead>>,
    ) -> Result<(), StartError> {
        if self.makes_second_pods {
            manifest.keep_alone();
        }
        manifest.belong_to(self.home());
        let Manifest { job, given } = manifest;
        let job: Job = serde_json::from_value(job)
            .map_err(|error| StartError::Permanent(error.to_string()))?;
        let noted = |error: CallError| {
            self.note(name, namespace, &error);
            error
        };
        self.bring_agent(namespace).await.map_err(noted).map_err(|error| {
            StartError::Transient(format!("the ConfigMap of the agent cannot be made: {error}"))
        })?;
        if !given.is_empty() {
            self.places.gave(name, namespace);
            let given = self.give(name, namespace, &job, &given).await.map_err(noted);
            given.map_err(|error| refused("what it is to be given", error.of_a_secret()))?;
        }
        let gave = !given.is_empty();
        let jobs = self.jobs(namespace);
        let left = lead.map_or(Duration::MAX, |lead| lead.left());
        if left.is_zero() {
            return Err(StartError::Unready("another may lead by now".to_owned()));
        }
        let params = PostParams::default();
        let made = call(jobs.create(&params, &job));
        let Ok(made) = tokio::time::timeout(left, made).await else {
            return Err(StartError::Unready(
                "the API server takes longer than it leads".to_owned(),
            ));
        };
        match made {
            Ok(made) => {
                SeenJob::of(&made).into_iter().for_each(|job| self.known.learn(job));
                self.note_made(name, namespace, gave);
            }
            Err(CallError::Exists) => {
                let found = find(self.texts::<Job>(namespace).get(name.as_str()))
                    .await
                    .map_err(|error| refused("the Job", error))?;
                let found = found.as_ref().and_then(SeenJob::of_text);
                if gave && found.as_ref().is_some_and(|job| job.released.is_some()) {
                    // What is kept for a time is kept without what the run was given.
                    let taken = self.take_back(namespace, name).await;
                    taken.map_err(|error| refused("what it was given", error))?;
                }
                self.take_over(found)?;
                self.note_made(name, namespace, gave);
            }
            Err(error) => return Err(refused("the Job", noted(error))),
        }
        Ok(())
    }

    /// Notes that a run has its Job, which says whether it was given something.
    fn note_made(&self, run: &RunName, namespace: &str, gave: bool) {
        if gave {
            self.places.settle(run, namespace);
        }
        self.places.forget_refusal(run);
    }

    /// Notes that making a run in a namespace is forbidden: nothing was made there.
    fn note(&self, run: &RunName, namespace: &str, error: &CallError) {
        if matches!(error, CallError::Forbidden(_)) && namespace != self.home() {
            self.places.refuse(run, namespace);
        }
    }

    /// Takes over the Job that has the name of the run, whatever has become of it: names are not used again. Of one that
    /// was released, and is kept for a time, the record says how it ended; whoever starts it has not heard of that yet.
    ///
    /// # Errors
    /// If the Job is gone by now.
    pub(super) fn take_over(&self, found: Option<SeenJob>) -> Result<(), StartError> {
        let gone = || StartError::Transient("a Job of its name was just removed".to_owned());
        self.known.learn(found.ok_or_else(gone)?);
        Ok(())
    }

    /// The Job of a run in another namespace than it would be made in now. A name is taken only in its namespace, and
    /// where the Jobs of a plan are made may change: the former leader may have made this one in the earlier place.
    pub(super) async fn made_elsewhere(
        &self,
        name: &RunName,
        namespace: &str,
        manifest: &Manifest,
    ) -> Result<Option<SeenJob>, StartError> {
        if self.further().is_empty() {
            return Ok(None);
        }
        // A dead watch is begun anew after a minute.
        let is_new = self.bonds.lead.as_ref().is_some_and(|lead| lead.lasted() < 2 * self.linger);
        let found = match self.known.get(name).job {
            Some(job) if !job.is_deleted() && !job.unsure => Some(job),
            _ if is_new => {
                // In a namespace that may not be read any more, nothing of ours is known.
                let found = self.find_job_where(name, |place, _| place != self.home());
                found.await.map_err(|error| refused("the Job", error))?
            }
            _ => None,
        };
        if found.is_none() && is_new && !manifest.given.is_empty() {
            // The former leader may have died between the Secret there and the Job. At home, a record's resource owns
            // the Secret.
            for further in self.further().iter().filter(|further| *further != namespace) {
                match self.take_back(further, name).await {
                    Ok(()) | Err(CallError::Forbidden(_)) => {}
                    Err(error) => return Err(refused("what it was given", error)),
                }
            }
        }
        Ok(found.filter(|job| job.namespace != namespace))
    }

    async fn give(
        &self,
        name: &RunName,
        namespace: &str,
        job: &Job,
        given: &[(&'static str, Vec<u8>)],
    ) -> Result<(), CallError> {
        let data: serde_json::Map<String, Value> = given
            .iter()
            .map(|(key, bytes)| ((*key).to_owned(), json!(BASE64.encode(bytes))))
            .collect();
        // An owner has to be in the same namespace: elsewhere it would count as gone.
        let owner = self.owner(job).filter(|_| self.home() == namespace);
        let secret = json!({
            "metadata": {
                "name": name.as_str(),
                "labels": job.metadata.labels,
                "ownerReferences": owner.as_slice(),
            },
            "immutable": true,
            "data": data,
        });
        let secret: Secret =
            serde_json::from_value(secret).map_err(|error| CallError::Unsent(error.to_string()))?;
        let secrets = self.secrets(namespace);
        match call(secrets.create(&PostParams::default(), &secret)).await {
            Ok(_) => Ok(()),
            // By its name the Secret is of this run: the process died before the Job was made. The run may be given
            // other files by now, because its broker was changed.
            Err(CallError::Exists) => match find(secrets.get(name.as_str())).await? {
                Some(there) if keys(&there).eq(keys(&secret)) => Ok(()),
                _ => {
                    self.take_back(namespace, name).await?;
                    call(secrets.create(&PostParams::default(), &secret)).await.map(drop)
                }
            },
            Err(error) => Err(error),
        }
    }

    /// The owner reference to the resource of a Job's record, if that is known.
    fn owner(&self, job: &Job) -> Option<Value> {
        let key = SeenJob::of(job)?.record?;
        let (name, uid, _) = self.bonds.store.as_ref()?.resource(&key)?;
        let (version, kind) = (resources::api_version(), resources::Kind::of(&key).name());
        Some(json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid}))
    }
}

fn keys(secret: &Secret) -> impl Iterator<Item = &String> {
    secret.data.iter().flat_map(BTreeMap::keys)
}

fn refused(what: &str, error: CallError) -> StartError {
    match error {
        CallError::Invalid(why) => StartError::Permanent(format!("{what} was refused: {why}")),
        CallError::NotFound => StartError::Transient("there is no such namespace".to_owned()),
        error => StartError::Transient(error.to_string()),
    }
}
