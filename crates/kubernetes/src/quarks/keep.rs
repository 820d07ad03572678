//! Keeps what a run has left: reads its reports, writes its Secrets. All of it can be done again.

use std::collections::BTreeMap;

use engine::trigger::Outcome;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ListParams, LogParams, PostParams};
use serde_json::{Value, json};

use super::Controller;
use super::dialect::Dialect;
use super::held::{Marks, Object, WRITTEN_BY};
use super::manifest;
use super::output::{Kept, OutputMap, Wanted, kept, merged};
use super::reference::Kind;
use super::report::{self, Found};
use super::resource::Resource;
use super::seen::{JobEnd, SeenJob, SeenPod};
use crate::calls::{CallError, call, find};

/// How often a name that is taken is looked at again.
const TRIES: u32 = 10;

/// Why a Secret is not written, for people; calls that fail are no reason.
type Refusal = String;

impl Controller {
    /// Keeps what the run of a Job has left; its outcome.
    pub(super) async fn keep(
        &self,
        resource: &Resource,
        job: &SeenJob,
    ) -> Result<Outcome, CallError> {
        let spec = resource.spec();
        let failed = match &job.end {
            Some(JobEnd::Failed(reason, message)) => Some((reason.clone(), message.clone())),
            Some(JobEnd::Complete) | None => None,
        };
        let has_output = !OutputMap::of(resource.dialect, &spec).is_empty();
        let on_failure = spec["output"]["writeOnFailure"] == true;
        let pod = self.pod(job, has_output || failed.is_some()).await?;
        let mut outcome = match failed {
            None => Outcome {
                succeeded: true,
                reason: "Completed".to_owned(),
                message: String::new(),
                made: Vec::new(),
            },
            Some((reason, message)) => {
                let ends = pod.as_ref().map(report::ends).filter(|ends| !ends.is_empty());
                let words: Vec<String> = ends.into_iter().chain([message]).collect();
                Outcome::failed(
                    if reason.is_empty() { "Failed" } else { &reason },
                    words.join("; "),
                )
            }
        };
        if !has_output || !(outcome.succeeded || on_failure) {
            return Ok(outcome);
        }
        let mut kept = match &pod {
            Some(pod) => {
                let reports = self.reports(resource.dialect, &spec, job, pod).await?;
                kept(resource.dialect, &spec, &merged(reports))
            }
            None => {
                let why = "no pod that ended is there any more: its output went with it".to_owned();
                Kept { faults: vec![("OutputLost", why)], ..Kept::default() }
            }
        };
        for wanted in std::mem::take(&mut kept.wanted) {
            match self.write(resource, job, &wanted).await? {
                Ok(name) => outcome.made.push(name),
                Err(why) => kept.faults.push(("SecretRefused", why)),
            }
        }
        if outcome.succeeded {
            outcome.message = kept.notes.join("; ");
        }
        if let Some((reason, _)) = kept.faults.first() {
            let words = kept.faults.iter().map(|(_, why)| why.as_str());
            // Of a run that failed anyhow, that comes first.
            let before = (!outcome.succeeded).then(|| outcome.message.clone());
            let words: Vec<&str> = before.as_deref().into_iter().chain(words).collect();
            outcome.message = words.join("; ");
            if outcome.succeeded {
                (outcome.succeeded, outcome.reason) = (false, (*reason).to_owned());
            }
        }
        Ok(outcome)
    }

    /// The pod whose output counts. A watch may be behind that of the Job: where one is `needed`, it is asked
    /// for.
    async fn pod(&self, job: &SeenJob, needed: bool) -> Result<Option<SeenPod>, CallError> {
        let seen = {
            let table = self.table();
            report::chosen(table.pods(job)).cloned()
        };
        if seen.as_ref().is_some_and(|pod| pod.succeeded || job.end.is_some()) || !needed {
            return Ok(seen);
        }
        let selector = format!("controller-uid={}", job.uid);
        let pods = self.api::<Pod>(&job.namespace);
        let listed = call(pods.list(&ListParams::default().labels(&selector))).await?;
        let listed: Vec<SeenPod> = listed.iter().filter_map(SeenPod::of).collect();
        Ok(report::chosen(listed.iter()).cloned())
    }

    /// What a pod's agents left, each container's or why not.
    async fn reports(
        &self,
        dialect: Dialect,
        spec: &Value,
        job: &SeenJob,
        pod: &SeenPod,
    ) -> Result<Vec<agent::Gathered>, CallError> {
        let mut reports = Vec::new();
        for (reporter, found) in report::find(dialect, pod, spec) {
            let log = match &found {
                Found::InLog(container, _) | Found::Printed(container) => {
                    Some(self.log(pod, container).await?)
                }
                _ => None,
            };
            let open = || report::open(&found, log.as_deref(), &self.keys.all(), &job.name);
            let mut opened = open();
            if matches!(opened, Err(agent::Error::UnknownKey(_))) {
                // Another replica may have made a new one.
                let reloaded = self.keys.reload().await;
                reloaded.map_err(|error| CallError::NoAnswer(error.to_string()))?;
                opened = open();
            }
            let why = match (&found, &opened) {
                (Found::Not(why), _) => why.clone(),
                (_, Err(error)) => error.to_string(),
                (_, Ok(_)) => String::new(),
            };
            reports.push(opened.unwrap_or_else(|_| report::lost(dialect, spec, &reporter, &why)));
        }
        Ok(reports)
    }

    async fn log(&self, pod: &SeenPod, container: &str) -> Result<String, CallError> {
        let params = LogParams { container: Some(container.to_owned()), ..LogParams::default() };
        match call(self.api::<Pod>(&pod.namespace).logs(&pod.name, &params)).await {
            // The container's log went with it.
            Err(CallError::NotFound | CallError::Invalid(_)) => Ok(String::new()),
            log => log,
        }
    }

    /// Writes a Secret, unless it is there as it should be. Its name.
    async fn write(
        &self,
        resource: &Resource,
        job: &SeenJob,
        wanted: &Wanted,
    ) -> Result<Result<String, Refusal>, CallError> {
        for _ in 0..TRIES {
            let step = match wanted.versioned {
                true => self.next_version(resource, job, wanted),
                false => self.plain(resource, wanted),
            };
            let (name, step) = match step {
                Ok(step) => step,
                Err(refusal) => return Ok(Err(refusal)),
            };
            let secrets = self.api::<Secret>(&resource.namespace);
            let written = match step {
                Step::Nothing => return Ok(Ok(name)),
                Step::Create(secret) => call(secrets.create(&PostParams::default(), &secret)).await,
                Step::Replace(secret) => {
                    call(secrets.replace(&name, &PostParams::default(), &secret)).await
                }
            };
            match written {
                Ok(secret) => {
                    self.learn_secret(&secret);
                    return Ok(Ok(name));
                }
                Err(CallError::Exists) => match find(secrets.get(&name)).await? {
                    Some(secret) => self.learn_secret(&secret),
                    None => self.forget_secret(resource, &name),
                },
                Err(CallError::NotFound) => self.forget_secret(resource, &name),
                Err(CallError::Invalid(why)) => {
                    return Ok(Err(format!("the Secret {name} was refused: {}", secretless(&why))));
                }
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }

    /// Whoever refers to it is told here: to the watch it will be nothing new.
    fn learn_secret(&self, secret: &Secret) {
        let Some(object) = Object::of_secret(secret) else { return };
        let keys = {
            let mut table = self.table();
            let changed = table.objects.learn(object.clone());
            if changed { table.referrers(&object) } else { Vec::new() }
        };
        self.queue.push(keys);
    }

    fn forget_secret(&self, resource: &Resource, name: &str) {
        let mut table = self.table();
        let known = table.objects.get(&resource.namespace, Kind::Secret, name).cloned();
        if let Some(known) = known {
            table.objects.forget(&known);
        }
    }

    fn plain(&self, resource: &Resource, wanted: &Wanted) -> Result<(String, Step), Refusal> {
        let name = wanted.name.clone();
        let table = self.table();
        let known = table.objects.get(&resource.namespace, Kind::Secret, &name);
        let secret = secret(&name, wanted, None)?;
        let Some(known) = known else { return Ok((name, Step::Create(secret))) };
        if known.holds(&wanted.data) && known.is_marked(&wanted.labels, &wanted.annotations) {
            return Ok((name, Step::Nothing));
        }
        let controller = known.owned.as_ref().and_then(|owned| owned.controller.as_ref());
        if controller.is_some_and(|uid| *uid != resource.uid) {
            return Err(format!(
                "the Secret {name} is there and belongs to another controller: name another in outputMap, \
                 or delete it"
            ));
        }
        if known.immutable {
            let why = format!(
                "the Secret {name} is there and immutable: name another in outputMap, or delete it"
            );
            return Err(why);
        }
        Ok((name, Step::Replace(secret)))
    }

    fn next_version(
        &self,
        resource: &Resource,
        job: &SeenJob,
        wanted: &Wanted,
    ) -> Result<(String, Step), Refusal> {
        let base = &wanted.name;
        let table = self.table();
        // Another may have kept this run, and a newer one after it.
        if let Some(name) = table.objects.written_by(&resource.namespace, base, &job.name) {
            return Ok((name.to_string(), Step::Nothing));
        }
        let newest = table.objects.newest(&resource.namespace, base);
        if let Some((version, known)) = newest {
            let marked = |marks: &Marks| is_subset(&marks.labels, &wanted.labels);
            if known.holds(&wanted.data) && known.marks().is_some_and(marked) {
                return Ok((format!("{base}-v{version}"), Step::Nothing));
            }
        }
        let mut version = newest.map_or(1, |(version, _)| version + 1);
        // Somebody else's, of another kind: a number is as good as the next.
        while table
            .objects
            .get(&resource.namespace, Kind::Secret, &format!("{base}-v{version}"))
            .is_some()
        {
            version += 1;
        }
        let name = format!("{base}-v{version}");
        let mut marked = wanted.clone();
        let own = |name: &str| resource.dialect.label(name);
        marked.labels.insert(own("secret-kind"), "versionedSecret".to_owned());
        marked.labels.insert(own("secret-version"), version.to_string());
        let source = resource.dialect.source().to_owned();
        marked.annotations.insert(own("source-description"), source);
        marked.annotations.insert(WRITTEN_BY.to_owned(), job.name.to_string());
        let secret = secret(&name, &marked, Some(resource))?;
        Ok((name, Step::Create(secret)))
    }
}

enum Step {
    /// It is there.
    Nothing,
    Create(Secret),
    Replace(Secret),
}

fn secret(name: &str, wanted: &Wanted, owner: Option<&Resource>) -> Result<Secret, Refusal> {
    let owners: Vec<Value> = owner.map(|it| manifest::owner(it, false)).into_iter().collect();
    let mut secret = json!({
        "metadata": {
            "name": name,
            "labels": wanted.labels,
            "annotations": wanted.annotations,
            "ownerReferences": owners,
        },
        "type": "Opaque",
    });
    if owner.is_some() {
        secret["immutable"] = json!(true);
    }
    let made: Result<Secret, _> = serde_json::from_value(secret);
    let mut made = made.map_err(|_| format!("the Secret {name} cannot be made"))?;
    let data = wanted.data.iter().map(|(key, value)| (key.clone(), ByteString(value.clone())));
    made.data = Some(data.collect());
    Ok(made)
}

/// Whether the labels of a version, but for those that each has of its own, are among those that are wanted.
fn is_subset(known: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    let own = |name: &str| {
        let of = |dialect: Dialect| {
            [dialect.label("secret-kind"), dialect.label("secret-version")]
                .iter()
                .any(|it| it == name)
        };
        Dialect::ALL.into_iter().any(of)
    };
    known.iter().all(|(name, value)| own(name) || wanted.get(name) == Some(value))
}

/// What the API server says of a Secret may show what is in it: only where the fault is.
fn secretless(why: &str) -> String {
    let fields = why.split(": ").take(2).collect::<Vec<_>>().join(": ");
    fields.chars().take(200).collect()
}
