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

/// The key of an instance; with the uid, because a later instance may have the same name.
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

/// How long objects may take to become ready, from the creation of their instance, by default.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3600);

/// A TemplateInstance that exists.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) key: Key,
    /// The `resourceVersion`, for the next write.
    pub(super) version: String,
    pub(super) generation: i64,
    pub(super) deleting: bool,
    pub(super) created_at: Timestamp,
    pub(super) finalizers: Vec<String>,
    annotations: Value,
    /// The instance as text: of most instances only the status is looked at.
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
            // The status is written by us: a part that cannot be read was not.
            status: part(seen.status.as_deref()).unwrap_or_default(),
            seen,
        })
    }

    /// The spec; null where it cannot be read.
    pub(super) fn spec(&self) -> &Value {
        self.read().as_ref().unwrap_or(&Value::Null)
    }

    fn read(&self) -> &Result<Value, Unread> {
        self.spec.get_or_init(|| part(self.seen.spec.as_deref()))
    }

    /// How many bytes the spec takes once it is parsed.
    pub(super) fn weight(&self) -> usize {
        self.seen.weight()
    }

    pub(super) fn status(&self) -> &Value {
        &self.status
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations[name].as_str()
    }

    /// Checks that the spec and the timeout can be read.
    ///
    /// # Errors
    /// If not; the message says what is wrong.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.read() {
            Err(why) => Err(format!("spec: {why}")),
            Ok(_) => self.timeout().map(drop),
        }
    }

    /// Whether the instance is an object of another instance.
    pub(super) fn is_nested(&self) -> bool {
        self.seen.labels().contains_key(OWNER)
    }

    /// The name of the Secret with the parameters.
    pub(super) fn secret(&self) -> Option<&str> {
        self.spec()["secret"]["name"].as_str().filter(|name| !name.is_empty())
    }

    /// The requester that the spec names.
    pub(super) fn requester(&self) -> Result<Requester, String> {
        Requester::of(&self.spec()["requester"])
    }

    /// Whether the instance has our finalizer, which holds it until its objects are gone.
    pub(super) fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == FINALIZER)
    }

    /// Whether the instance was deleted with its objects orphaned, and the garbage collector has not done that yet.
    pub(super) fn is_orphaning(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == ORPHAN)
    }

    pub(super) fn is(&self, condition: &str) -> bool {
        let conditions = self.status["conditions"].as_array();
        let mut holding = conditions.into_iter().flatten().filter(|it| it["status"] == "True");
        holding.any(|it| it["type"] == condition)
    }

    /// Whether the instance is ready or has failed, so that nothing happens unless it is changed.
    pub(super) fn has_ended(&self) -> bool {
        self.is("Ready") || self.is("InstantiateFailure")
    }

    /// Whether the spec has changed since it was last taken up. Never where the API server counts no generations
    /// (OpenShift's own kinds, whose spec never changes).
    pub(super) fn is_changed(&self) -> bool {
        let observed = self.status["observedGeneration"].as_i64().unwrap_or_default();
        let taken_up = self.status["change"]["generation"].as_i64().unwrap_or_default();
        self.generation > observed.max(taken_up).max(1)
    }

    /// Whether the present spec is a change that was taken up.
    pub(super) fn is_taken_up(&self) -> bool {
        self.status["change"]["generation"] == self.generation
    }

    /// When the present spec was taken up.
    pub(super) fn begun_at(&self) -> Timestamp {
        let at = self.status["change"]["startedAt"].as_str().filter(|_| self.is_taken_up());
        at.and_then(|at| at.parse().ok()).unwrap_or(self.created_at)
    }

    /// The objects in the status.
    pub(super) fn objects(&self) -> &[Value] {
        self.status["objects"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Whether the status says that something was made.
    pub(super) fn says_what_was_made(&self) -> bool {
        !self.objects().is_empty() || self.status["revision"].is_u64()
    }

    /// Whether all objects of the present spec were made.
    pub(super) fn is_made(&self) -> bool {
        let planned = self.spec()["template"]["objects"].as_array().map_or(0, Vec::len);
        let observed = self.status["observedGeneration"].as_i64();
        self.objects().len() >= planned && observed.is_some_and(|it| it >= self.generation)
    }

    /// When the time for the objects to become ready is over.
    pub(super) fn deadline(&self) -> Timestamp {
        let timeout = self.timeout().unwrap_or(TIMEOUT);
        let timeout = jiff::SignedDuration::try_from(timeout).unwrap_or(jiff::SignedDuration::MAX);
        self.begun_at().saturating_add(timeout).unwrap_or(Timestamp::MAX)
    }

    fn timeout(&self) -> Result<Duration, String> {
        ready_timeout(&self.annotations, self.spec())
    }
}

/// How long the objects of an instance may take to become ready: by the instance's annotations, else by its template's.
///
/// # Errors
/// If the annotation is no duration; the message says what is wrong.
pub(super) fn ready_timeout(annotations: &Value, spec: &Value) -> Result<Duration, String> {
    let own = ready::timeout(annotations)?;
    let of_template = || ready::timeout(&spec["template"]["metadata"]["annotations"]);
    Ok(own.map_or_else(of_template, |own| Ok(Some(own)))?.unwrap_or(TIMEOUT))
}
