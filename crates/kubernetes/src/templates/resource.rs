//! A TemplateInstance as it is read.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use template::ready;

use super::names::{FINALIZER, OWNER};
use super::requester::Requester;
use super::seen::SeenInstance;
use crate::deep::{Unread, part};
use crate::queue::Placed;

/// What tells one from others: of its name there may be another, later.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
}

impl Placed for Key {
    fn namespace(&self) -> &Arc<str> {
        &self.namespace
    }
}

impl Key {
    pub(super) fn of(seen: &SeenInstance) -> Option<Self> {
        let metadata = &seen.metadata;
        let text = |text: &Option<String>| text.as_deref().map(Arc::from);
        Some(Self {
            namespace: text(&metadata.namespace)?,
            name: text(&metadata.name)?,
            uid: text(&metadata.uid)?,
        })
    }
}

/// The finalizer that Kubernetes sets by `--cascade=orphan`.
const ORPHAN: &str = "orphan";

/// How long objects may take to be ready, from the creation of their instance, unless it says otherwise.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3600);

/// One that is there.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) key: Key,
    /// For the write that follows from it.
    pub(super) version: String,
    pub(super) generation: i64,
    pub(super) deleting: bool,
    pub(super) created_at: Timestamp,
    pub(super) finalizers: Vec<String>,
    annotations: Value,
    /// As it is written: of most that are heard of only the status is looked at.
    seen: Arc<SeenInstance>,
    spec: OnceLock<Result<Value, Unread>>,
    status: Value,
}

impl Instance {
    pub(super) fn of(seen: impl Into<Arc<SeenInstance>>) -> Option<Self> {
        let seen = seen.into();
        Some(Self {
            key: Key::of(&seen)?,
            version: seen.resource_version()?,
            generation: seen.metadata.generation.unwrap_or_default(),
            deleting: seen.metadata.deletion_timestamp.is_some(),
            created_at: seen.metadata.creation_timestamp.as_ref()?.0,
            finalizers: seen.finalizers().to_vec(),
            annotations: json!(seen.metadata.annotations),
            spec: OnceLock::new(),
            // It is ours; what cannot be read of it was not written by us.
            status: part(seen.status.as_deref()).unwrap_or_default(),
            seen,
        })
    }

    /// What is ordered; null where it is not read.
    pub(super) fn spec(&self) -> &Value {
        self.read().as_ref().unwrap_or(&Value::Null)
    }

    fn read(&self) -> &Result<Value, Unread> {
        self.spec.get_or_init(|| part(self.seen.spec.as_deref()))
    }

    /// What its spec takes once it is read, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.seen.weight()
    }

    pub(super) fn status(&self) -> &Value {
        &self.status
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations[name].as_str()
    }

    /// Whether it can be read.
    ///
    /// # Errors
    /// If not: what to do about it.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.read() {
            Err(why) => Err(format!("spec: {why}")),
            Ok(_) => self.timeout().map(drop),
        }
    }

    /// Whether it is an object of another instance.
    pub(super) fn is_nested(&self) -> bool {
        self.seen.labels().contains_key(OWNER)
    }

    /// The Secret that its parameters are in.
    pub(super) fn secret(&self) -> Option<&str> {
        self.spec()["secret"]["name"].as_str().filter(|name| !name.is_empty())
    }

    /// Who it is made for, as it says.
    pub(super) fn requester(&self) -> Result<Requester, String> {
        Requester::of(&self.spec()["requester"])
    }

    /// Whether it is held until its objects are gone.
    pub(super) fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }

    /// Whether whoever deleted it lets its objects be, and the garbage collector has not seen to that yet.
    pub(super) fn is_orphaning(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == ORPHAN)
    }

    pub(super) fn is(&self, condition: &str) -> bool {
        let conditions = self.status["conditions"].as_array();
        let mut holding = conditions.into_iter().flatten().filter(|it| it["status"] == "True");
        holding.any(|it| it["type"] == condition)
    }

    /// Whether nothing further becomes of it, unless it is changed.
    pub(super) fn has_ended(&self) -> bool {
        self.is("Ready") || self.is("InstantiateFailure")
    }

    /// Whether something else is ordered than what was last taken up. Where the API server counts no generations
    /// (OpenShift's own kinds, whose spec never changes) nothing is.
    pub(super) fn is_changed(&self) -> bool {
        let observed = self.status["observedGeneration"].as_i64().unwrap_or_default();
        let taken_up = self.status["change"]["generation"].as_i64().unwrap_or_default();
        self.generation > observed.max(taken_up).max(1)
    }

    /// Whether what is ordered now is a change that was taken up.
    pub(super) fn is_taken_up(&self) -> bool {
        self.status["change"]["generation"] == self.generation
    }

    /// When what is ordered now was taken up.
    pub(super) fn begun_at(&self) -> Timestamp {
        let at = self.status["change"]["startedAt"].as_str().filter(|_| self.is_taken_up());
        at.and_then(|at| at.parse().ok()).unwrap_or(self.created_at)
    }

    /// Its objects, as it says.
    pub(super) fn objects(&self) -> &[Value] {
        self.status["objects"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Whether something was made of it, as it says.
    pub(super) fn says_what_was_made(&self) -> bool {
        !self.objects().is_empty() || self.status["revision"].is_u64()
    }

    /// Whether all of its objects were made.
    pub(super) fn is_made(&self) -> bool {
        let planned = self.spec()["template"]["objects"].as_array().map_or(0, Vec::len);
        let observed = self.status["observedGeneration"].as_i64();
        self.objects().len() >= planned && observed.is_some_and(|it| it >= self.generation)
    }

    /// When its objects have taken too long.
    pub(super) fn deadline(&self) -> Timestamp {
        let timeout = self.timeout().unwrap_or(TIMEOUT);
        let timeout = jiff::SignedDuration::try_from(timeout).unwrap_or(jiff::SignedDuration::MAX);
        self.begun_at().saturating_add(timeout).unwrap_or(Timestamp::MAX)
    }

    fn timeout(&self) -> Result<Duration, String> {
        ready_timeout(&self.annotations, self.spec())
    }
}

/// How long the objects of an instance may take to be ready: by its own annotations, else by its template's.
///
/// # Errors
/// If the annotation is no period: what to do about it.
pub(super) fn ready_timeout(annotations: &Value, spec: &Value) -> Result<Duration, String> {
    let own = ready::timeout(annotations)?;
    let of_template = || ready::timeout(&spec["template"]["metadata"]["annotations"]);
    Ok(own.map_or_else(of_template, |own| Ok(Some(own)))?.unwrap_or(TIMEOUT))
}
